"""Planning a read of a topic: what a reader asks for in, rows of extents and their files out.

Only metadata objects are fetched here (batch tables, sidecars of sealed segments), no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from txnformat.core.records.scan import (
    PartitionPlan,
    check_not_cleaned,
    check_not_erased,
    check_not_trimmed,
    check_range,
    extents_in,
    extents_to_read,
    plan_partition,
    plan_runs,
    plan_sealed,
)
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.protocol.cuts import check_isolation, topic_as_of
from txnformat.reading.pruning import SPAN, may_match_plan
from txnformat.reading.rows import METADATA_FIELDS
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, IsolationLevel, ObjectRecord, OffsetRange, TopicPartition

__all__ = [
    "Keep",
    "OffsetSpec",
    "ReadPlan",
    "SealedRange",
    "extents_since",
    "open_range",
    "plan_filter",
    "plan_range",
    "plan_read",
    "read_tables",
    "topic_predicate",
]

Keep = Callable[[Rows], Rows]
"""Says of rows with offsets and timestamps which of them can hold a record that is wanted."""

OffsetSpec = int | Mapping[int, int] | None
"""One offset for every partition, an offset per partition, or None for the natural end."""


@dataclass(frozen=True, slots=True)
class SealedRange:
    """Offsets of one partition that lie in a sealed segment: all that is needed to read them, in any
    process.
    """

    partition: int
    range: OffsetRange
    index: ObjectRecord
    """The segment's ``.index``."""
    size: int
    """Compressed bytes of the records in range, estimated; aborted ones are left out."""
    as_of: int = -1
    """The entry of a snapshot read."""
    batches: int = 0
    """Batches in range, or runs of a compacted segment, estimated."""

    @classmethod
    def of(cls, partition: int, part: SegmentPart, wanted: OffsetRange, as_of: int) -> Self:
        """Return the part of a segment that is in ``wanted``."""
        row, (first, last) = part.row, part.range
        start, end = max(first, wanted.start), min(last, wanted.end)
        size = int(row["size"]) - int(row["aborted_size"])
        share = (end - start) / (last - first)
        batches = round(int(row["batches"]) * share)
        return cls(partition, OffsetRange(start, end), part.record.index, int(size * share), as_of, batches)


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A plan of a read of a topic, pinned to one entry: planning again later may give more, this never
    changes.
    """

    topic: TopicState
    entry: int
    """With isolation snapshot the one that is read, else that of the state it was made on."""
    isolation: IsolationLevel
    partitions: tuple[PartitionPlan, ...]
    files: Mapping[int, FileRecord]
    """File records, by the numbers that the plans' rows have in ``file``."""
    where: Predicate | None = None
    """Only records for which it is true; what the plan alone excludes is not in it."""
    sealed: tuple[SealedRange, ...] = ()
    """Sealed segments that are not among the plans' rows; they precede them. By partition, then offset."""


def plan_read(
    sidecars: SidecarCache,
    state: LogState,
    topic: str,
    *,
    isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    start: OffsetSpec = None,
    end: OffsetSpec = None,
    partitions: Sequence[int] | None = None,
    where: str | Predicate | None = None,
    open_sealed: bool = True,
    as_of: int | None = None,
) -> ReadPlan:
    """Plan a read on ``state``.

    Requests: 1 GET for each batch table, spill and sealed segment in range that is not kept.

    ``sidecars``: of the log's store. ``start``, ``end``: first offset (inclusive) and end offset (exclusive).
    ``partitions``: only these. ``where``: SQL condition on the records (:func:`topic_predicate`).
    ``open_sealed``: False: leave sealed segments to the reader; they are in ``ReadPlan.sealed`` instead of
    the plans' rows. ``as_of``: with isolation snapshot the entry to read, from
    :func:`~txnformat.protocol.cuts.cut_at`; by default the state's. Raises NotFoundError,
    OffsetOutOfRangeError, InvalidInputError: what is asked for is not there; CorruptDataError, StorageError:
    a batch table or sidecar is not what the log says, or cannot be read.
    """
    level = check_isolation(isolation)
    entry = state.entry if as_of is None or level is not IsolationLevel.SNAPSHOT else as_of
    found = topic_as_of(state, topic, entry)
    numbers = _check_partitions(found, partitions, start, end)
    if where is not None and not isinstance(where, Predicate):
        where = topic_predicate(where, found.schema)
    plans = []
    files: dict[int, FileRecord] = {}
    tables: dict[int, Rows] = {}
    sealed: list[SealedRange] = []
    for number in numbers:
        key = TopicPartition(found.topic_id, number)
        partition = state.partition(key)
        if level is IsolationLevel.SNAPSHOT:
            check_not_trimmed(partition, entry, topic, number)
            check_not_cleaned(partition, entry, topic, number)
            check_not_erased(partition, entry, topic, number)
        wanted = check_range(
            partition, level, _offset(start, number), _offset(end, number), topic=topic, number=number
        )
        keep = None if where is None else plan_filter(where, topic, found.schema, number)
        whole = sidecars.whole(state, key, wanted)
        partition = whole.partition(key)
        extents = extents_to_read(partition, wanted, level, keep, entry)
        read_tables(sidecars, whole, extents, tables)
        plan = plan_partition(number, partition, wanted, level, tables, keep, entry)
        files |= {file: whole.files[file] for file in set(plan.rows["file"].tolist())}
        parts = [
            SealedRange.of(number, part, wanted, entry)
            for part in sidecars.segments(state, key, wanted)
            if _has_rows(part, level, keep)
        ]
        if open_sealed and parts:
            opened = _open_all(sidecars, parts, level, files, keep)
            plan = replace(plan, rows=np.concatenate([*opened, plan.rows]))
        elif parts:
            sealed += parts
        plans.append(plan)
    return ReadPlan(found, entry, level, tuple(plans), files, where, tuple(sealed))


def plan_range(
    sidecars: SidecarCache,
    state: LogState,
    key: TopicPartition,
    within: OffsetRange,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> ReadPlan:
    """Plan a read of a range of offsets of one partition; otherwise as :func:`plan_read`."""
    number = key.partition
    start, end = {number: within.start}, {number: within.end}
    topic = state.topics[key.topic_id].name
    return plan_read(sidecars, state, topic, isolation=isolation, start=start, end=end, partitions=[number])


def topic_predicate(where: str, schema: TopicSchema, *, need_zone: bool = False) -> Predicate:
    """Return what a condition on a topic's records means: on its own columns and the metadata columns.

    ``need_zone``: as for :func:`txnformat.predicates.sql.compile_where`. Raises InvalidInputError: kind
    ``invalid-where``: every problem.
    """
    from txnformat.predicates.sql import compile_where  # brings the SQL parser, which few reads need

    types = {field.name: field.type for field in schema.arrow_schema}
    types |= {name: field.type for name, field in METADATA_FIELDS.items()}
    aliases = {} if schema.timestamp_column is None else {"_timestamp": schema.timestamp_column}
    return compile_where(where, types, aliases=aliases, need_zone=need_zone)


def plan_filter(where: Predicate, topic: str, schema: TopicSchema, partition: int) -> Keep:
    """Return what tells, of the rows of a partition's extents, which can hold a record for which ``where`` is
    true.
    """
    time = schema.timestamp_column
    return partial(may_match_plan, where, topic=topic, partition=partition, timestamp_column=time)


def _has_rows(part: SegmentPart, isolation: IsolationLevel, keep: Keep | None) -> bool:
    """Return whether a segment can hold anything to read: else it needs no request."""
    hidden = 0 if isolation is IsolationLevel.READ_UNCOMMITTED else part.row["aborted_records"]
    if part.row["records"] <= hidden:
        return False
    if keep is None:
        return True
    whole = np.zeros(1, SPAN)  # of many producers and entries, of which it must say nothing
    whole["base_offset"] = part.range.start
    whole["records"] = part.range.end - part.range.start
    for name in ("min_timestamp_ms", "max_timestamp_ms"):
        whole[name] = part.row[name]
    return bool(keep(whole)[0])


def _open_all(
    sidecars: SidecarCache,
    parts: Sequence[SealedRange],
    isolation: IsolationLevel,
    files: dict[int, FileRecord],
    keep: Keep | None,
) -> Iterator[Rows]:
    for part in parts:
        yield _open(sidecars, part, isolation, files, keep)
        if isolation is IsolationLevel.SNAPSHOT:
            newest = sidecars.index(part.index).newest_entry(part.partition, part.range)
            if newest > part.as_of:
                return  # appends stand in the order of their entries: the rest is younger


def _open(
    sidecars: SidecarCache,
    part: SealedRange,
    isolation: IsolationLevel,
    files: dict[int, FileRecord],
    keep: Keep | None,
) -> Rows:
    index = sidecars.index(part.index)
    found = index.rows_of(part.partition, part.range)
    if keep is not None:
        found = found[keep(found)]
    plan = plan_runs if index.is_compacted else plan_sealed
    rows = plan(found, part.range, isolation, part.as_of)
    files |= {number: index.files[number] for number in set(rows["file"].tolist())}
    return rows


def open_range(
    sidecars: SidecarCache, part: SealedRange, isolation: IsolationLevel, keep: Keep | None = None
) -> tuple[Rows, dict[int, FileRecord]]:
    """Return what to read of a sealed segment: rows of dtype ``scan.PLANNED`` and the files that they name.

    Requests: 1 GET, none when the sidecar is kept.
    """
    files: dict[int, FileRecord] = {}
    return _open(sidecars, part, isolation, files, keep), files


class Since(NamedTuple):
    """Offsets of which some record is not older than a time."""

    range: OffsetRange
    is_append: bool
    """Whether all of them were appended by one entry."""


def extents_since(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, within: OffsetRange, timestamp_ms: int
) -> Iterator[Since]:
    """Yield the offsets, clipped to ``within``, of each extent, or run of a compacted segment, whose newest
    record is not older than a time.

    Ascending. Requests: 1 GET for each sealed segment that has such records, and each spill, that is reached.
    """
    for part in sidecars.segments(state, key, within):
        if part.row["max_timestamp_ms"] >= timestamp_ms:
            index = sidecars.index(part.record.index)
            if index.is_compacted:
                runs = index.runs_of(key.partition, part.range)
                runs = runs[runs["max_timestamp_ms"] >= timestamp_ms]
                yield from _since(runs["start_offset"], runs["end_offset"], within, is_append=False)
            else:
                yield from _appended_since(index.partition(key.partition), within, timestamp_ms)
    partition = sidecars.whole(state, key, within).partition(key)
    yield from _appended_since(extents_in(partition, within), within, timestamp_ms)


def _appended_since(rows: Rows, within: OffsetRange, timestamp_ms: int) -> Iterator[Since]:
    rows = rows[rows["max_timestamp_ms"] >= timestamp_ms]
    yield from _since(rows["base_offset"], rows["base_offset"] + rows["records"], within, is_append=True)


def _since(starts: Rows, ends: Rows, within: OffsetRange, *, is_append: bool) -> Iterator[Since]:
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if start < within.end and end > within.start:
            yield Since(OffsetRange(max(start, within.start), min(end, within.end)), is_append)


def read_tables(sidecars: SidecarCache, state: LogState, extents: Rows, tables: dict[int, Rows]) -> None:
    """Read the batch tables that extents refer to and ``tables`` lacks: one holds batches of many partitions.

    Requests: 1 GET for each that is not kept.
    """
    for number in sorted(set(extents["table"].tolist()) - {-1} - tables.keys()):
        tables[number] = sidecars.table(state.tables[number])


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
            f"partitions is {repr_of(partitions)}, not a list of partition numbers",
            kind="invalid-partitions",
            hint="name them as in partitions=[0, 2]",
        )
    odd: list[Any] = [number for number in partitions or () if type(number) is not int]
    named = set() if partitions is None or odd else set(partitions)
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
    odd += [number for number in named if type(number) is not int]
    unknown = odd or sorted(number for number in named if not 0 <= number < topic.partitions)
    if unknown:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"{'partitions are whole numbers; ' if odd else ''}the topic has {topic.shown_partitions}",
            topic=topic.name,
            partitions=unknown,
        )
    return sorted(set(partitions)) if partitions is not None else list(range(topic.partitions))
