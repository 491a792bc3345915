"""Planning a read of a topic: what a reader asks for in, rows of extents and their files out.

Only metadata objects are fetched here (batch tables), no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txnformat.batch_table import decode_batch_table
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.persistent import Rows
from txnformat.reader import read_rows
from txnformat.scan import PartitionPlan, check_range, extents_in, plan_partition
from txnformat.state import LogState, TopicState
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord, IsolationLevel, TopicPartition

__all__ = ["OffsetSpec", "ReadPlan", "check_isolation", "plan_read", "read_plan"]

OffsetSpec = int | Mapping[int, int] | None
"""One offset for every partition, an offset per partition, or None for the natural end."""


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read of a topic, pinned to one entry: planning again later may give more, this never changes."""

    topic: TopicState
    entry: int
    isolation: IsolationLevel
    partitions: tuple[PartitionPlan, ...]
    files: Mapping[int, FileRecord]
    """By the numbers that the plans' rows have in ``file``."""


def check_isolation(value: str | IsolationLevel) -> IsolationLevel:
    """Return the isolation level that ``value`` names."""
    try:
        return IsolationLevel(value)
    except ValueError:
        raise InvalidInputError(
            f"{value!r} is not an isolation level",
            kind="unknown-isolation-level",
            hint=f"use one of {', '.join(IsolationLevel)}",
        ) from None


def plan_read(
    store: ObjectStore,
    state: LogState,
    topic: str,
    *,
    isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    start: OffsetSpec = None,
    end: OffsetSpec = None,
    partitions: Sequence[int] | None = None,
) -> ReadPlan:
    """Plan a read on ``state``. Requests: 1 GET for each batch table in range.

    Parameters
    ----------
    start, end : int or mapping of partition to int, optional
        First offset (inclusive) and end offset (exclusive).
    partitions : sequence of int, optional
        Only these.

    Raises
    ------
    NotFoundError, OffsetOutOfRangeError, InvalidInputError
    """
    found = state.topic(topic)
    level = check_isolation(isolation)
    numbers = _check_partitions(found, partitions, start, end)
    plans = []
    files: dict[int, FileRecord] = {}
    for number in numbers:
        partition = state.partition(TopicPartition(found.topic_id, number))
        wanted = check_range(
            partition, level, _offset(start, number), _offset(end, number), topic=topic, number=number
        )
        tables = _tables(store, state, extents_in(partition, wanted))
        plan = plan_partition(number, partition, wanted, level, tables)
        plans.append(plan)
        files |= {file: state.files[file] for file in set(plan.rows["file"].tolist())}
    return ReadPlan(found, state.entry, level, tuple(plans), files)


def read_plan(store: ObjectStore, plan: ReadPlan, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the records of a plan, partition by partition, each in offset order."""
    for part in plan.partitions:
        yield from read_rows(
            store,
            plan.topic.name,
            plan.topic.schema,
            part.partition,
            part.rows,
            plan.files.__getitem__,
            columns,
        )


def _tables(store: ObjectStore, state: LogState, extents: Rows) -> dict[int, Rows]:
    """Read the batch tables that extents refer to. Requests: 1 GET each."""
    numbers = sorted({int(number) for number in extents["table"] if number >= 0})
    return {
        number: decode_batch_table(store.get(state.tables[number].key), state.tables[number])
        for number in numbers
    }


def _offset(spec: OffsetSpec, partition: int) -> int | None:
    if spec is None or isinstance(spec, int):
        return spec
    return spec.get(partition)


def _check_partitions(
    topic: TopicState, partitions: Sequence[int] | None, start: OffsetSpec, end: OffsetSpec
) -> list[int]:
    """Return the partitions to read, or raise about every one that does not exist."""
    if partitions is not None and (
        isinstance(partitions, str | bytes) or not isinstance(partitions, Sequence)
    ):
        raise InvalidInputError(
            f"partitions is {partitions!r}, not a list of partition numbers",
            kind="invalid-partitions",
            hint="name them as in partitions=[0, 2]",
        )
    named = set() if partitions is None else set(partitions)
    for name, spec in (("start", start), ("end", end)):
        if spec is None:
            continue
        values = [spec] if not isinstance(spec, Mapping) else list(spec.values())
        if any(type(value) is not int for value in values):
            raise InvalidInputError(
                f"{name} must be an offset or a mapping of partition to offset",
                kind="invalid-offset",
                got=spec,
            )
        if isinstance(spec, Mapping):
            named |= set(spec)
    unknown = sorted(
        number for number in named if type(number) is not int or not 0 <= number < topic.partitions
    )
    if unknown:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"the topic has partitions 0 to {topic.partitions - 1}",
            topic=topic.name,
            partitions=unknown,
        )
    return sorted(set(partitions)) if partitions is not None else list(range(topic.partitions))
