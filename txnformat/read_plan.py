"""Planning a read of a topic: what a reader asks for in, rows of extents and their files out.

Only metadata objects are fetched here (batch tables), no data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from txnformat.batch_table import decode_batch_table
from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.persistent import Rows
from txnformat.predicate import Predicate
from txnformat.pruning import may_match_plan
from txnformat.reader import METADATA_FIELDS, read_rows
from txnformat.scan import PartitionPlan, check_range, extents_in, plan_partition
from txnformat.schema import TopicSchema
from txnformat.state import LogState, TopicState
from txnformat.store.base import ObjectStore
from txnformat.types import FileRecord, IsolationLevel, TopicPartition

__all__ = ["OffsetSpec", "ReadPlan", "check_isolation", "plan_read", "read_plan", "topic_predicate"]

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
    where: Predicate | None = None
    """Only records for which it is true; what the plan alone excludes is not in it."""


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
    where: str | Predicate | None = None,
) -> ReadPlan:
    """Plan a read on ``state``. Requests: 1 GET for each batch table in range.

    Parameters
    ----------
    start, end : int or mapping of partition to int, optional
        First offset (inclusive) and end offset (exclusive).
    partitions : sequence of int, optional
        Only these.
    where : str or Predicate, optional
        SQL condition on the records (:func:`topic_predicate`).

    Raises
    ------
    NotFoundError, OffsetOutOfRangeError, InvalidInputError
    """
    found = state.topic(topic)
    level = check_isolation(isolation)
    numbers = _check_partitions(found, partitions, start, end)
    if where is not None and not isinstance(where, Predicate):
        where = topic_predicate(where, found.schema)
    plans = []
    files: dict[int, FileRecord] = {}
    for number in numbers:
        partition = state.partition(TopicPartition(found.topic_id, number))
        wanted = check_range(
            partition, level, _offset(start, number), _offset(end, number), topic=topic, number=number
        )
        keep = None
        if where is not None:
            keep = partial(
                may_match_plan,
                where,
                topic=topic,
                partition=number,
                timestamp_column=found.schema.timestamp_column,
            )
        extents = extents_in(partition, wanted)
        tables = _tables(store, state, extents if keep is None else extents[keep(extents)])
        plan = plan_partition(number, partition, wanted, level, tables, keep)
        plans.append(plan)
        files |= {file: state.files[file] for file in set(plan.rows["file"].tolist())}
    return ReadPlan(found, state.entry, level, tuple(plans), files, where)


def topic_predicate(where: str, schema: TopicSchema) -> Predicate:
    """Return what a condition on a topic's records means: on its own columns and the metadata columns.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-where``: every problem.
    """
    from txnformat.predicate_sql import compile_where  # brings the SQL parser, which few reads need

    types = {field.name: field.type for field in schema.arrow_schema}
    types |= {name: field.type for name, field in METADATA_FIELDS.items()}
    aliases = {} if schema.timestamp_column is None else {"_timestamp": schema.timestamp_column}
    return compile_where(where, types, aliases=aliases)


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
            where=plan.where,
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
