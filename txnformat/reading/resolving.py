"""Reads whose files are gone: what is left of them is planned again on the newest state, by its offsets.

A compaction replaces files, and a vacuum deletes them a grace later. A read that was planned before both has
the names of the old files. The records have kept their offsets, so a reader plans the rest of its read again
and goes on behind the last record that it has handed out (docs/internals/spec.md, section 6). That costs
requests only where a file is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.core.records.scan import INT64_MAX, PLANNED, Stored, check_not_cleaned, check_not_erased
from txnformat.core.state import LogState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.open_files import OpenFiles
from txnformat.reading.plan import ReadPlan, plan_range, plan_read
from txnformat.reading.rows import (
    ROWS_PER_BATCH,
    Left,
    files_of_runs,
    has_data,
    output_schema,
    read_rows,
    record_batch,
)
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, IsolationLevel, OffsetRange, TopicPartition

__all__ = ["FILE_MISSING", "PartitionRead", "Resolver", "known_at", "on_newest", "read_plan", "read_resolved"]

FILE_MISSING = "segment-file-missing"
"""The kind of the error about a file that is gone."""
TRIES_MAX = 8
"""How often in a row a plan is made again before the error is raised: each time another compaction and
another vacuum have to have finished."""
PLACES = ("_offset", "_commit_entry")

T = TypeVar("T")


def on_newest(refresh: Callable[[], LogState], make: Callable[[LogState], T], state: LogState) -> T:
    """Return ``make(state)``; where an object that the state names is gone or damaged, and the log has got
    newer entries, that of the newest state.

    Requests: those of ``make``; 1 GET more at the least after an error.
    """
    for _ in range(TRIES_MAX):
        try:
            return make(state)
        except (CorruptDataError, NotFoundError) as error:
            if isinstance(error, NotFoundError) and error.kind != FILE_MISSING:
                raise
            newest = refresh()
            if newest.entry == state.entry:
                raise
            state = newest
    return make(state)


def known_at(rows: Rows, entry: int) -> Rows:
    """Return rows planned on a newer state with what an entry knew: later commits are not yet there."""
    known = rows.copy()
    if "known_entry" in (rows.dtype.names or ()):
        known["known_entry"] = np.minimum(rows["known_entry"], entry)
    if "commit_entry" not in (rows.dtype.names or ()):
        return known  # of a compacted segment, whose rows know it
    known["commit_entry"] = np.where(rows["commit_entry"] > entry, -1, rows["commit_entry"])
    return known


@dataclass(frozen=True, slots=True)
class Resolver:
    """Plans ranges of offsets of a topic again. Safe for use by many threads, as far as ``refresh`` is."""

    sidecars: SidecarCache
    refresh: Callable[[], LogState]
    """Follows the log, and returns its newest state."""
    topic_id: str
    isolation: IsolationLevel
    entry: int
    """Entry of the read. Later entries do not affect the result."""

    def plan(self, partition: int, within: OffsetRange, *, whole: bool = False) -> ReadPlan:
        """Return a plan of a range on the newest state.

        ``whole``: of all records, also of open and aborted transactions; else of what the isolation level
        shows.

        Raises NotFoundError: kind ``topic-gone``: the topic was deleted; kind ``version-trimmed``: key
        compaction removed records of the version that is read; OffsetOutOfRangeError: a trim removed records
        of the range.
        """

        def planned(state: LogState) -> ReadPlan:
            topic = state.topic_of(self.topic_id, "the read")
            key = TopicPartition(self.topic_id, partition)
            if self.isolation is IsolationLevel.SNAPSHOT:
                check_not_cleaned(state.partition(key), self.entry, topic.name, partition)
                check_not_erased(state.partition(key), self.entry, topic.name, partition)
            if whole:
                level = IsolationLevel.READ_UNCOMMITTED
                return plan_range(self.sidecars, state, key, within, level)
            start, end = {partition: within.start}, {partition: within.end}
            return plan_read(
                self.sidecars,
                state,
                topic.name,
                isolation=self.isolation,
                start=start,
                end=end,
                partitions=[partition],
                as_of=self.entry,
            )

        return on_newest(self.refresh, planned, self.refresh())


class PartitionRead(NamedTuple):
    """The range to read of one partition, and how to read it."""

    resolver: Resolver
    topic: str
    schema: TopicSchema
    partition: int
    columns: Sequence[str] | None
    where: Predicate | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    """Further arguments of :func:`read_rows`."""

    def rows(self, rows: Rows, file_of: Callable[[int], FileRecord], left: Left) -> Iterator[pa.RecordBatch]:
        """Read planned rows."""
        return read_rows(
            self.resolver.sidecars.store,
            self.topic,
            self.schema,
            self.partition,
            rows,
            file_of,
            self.columns,
            where=self.where,
            left=left,
            **self.options,
        )


def read_plan(
    sidecars: SidecarCache, refresh: Callable[[], LogState], plan: ReadPlan, columns: Sequence[str] | None
) -> Generator[pa.RecordBatch]:
    """Yield the records of a plan, partition by partition, each in offset order."""
    resolver = Resolver(sidecars, refresh, plan.topic.topic_id, plan.isolation, plan.entry)
    topic, where, file_of = plan.topic, plan.where, plan.files.__getitem__
    rows = np.concatenate([np.empty(0, PLANNED), *(part.rows for part in plan.partitions)])
    with OpenFiles(sidecars.store, has_data=has_data(rows, topic.schema, columns, where)) as files:
        # A small file with batches of several partitions is kept from the first of them to the last.
        expected = [
            files_of_runs(part.rows, where, topic.name, topic.schema, part.partition)
            for part in plan.partitions
        ]
        files.expect(np.concatenate(expected or [np.empty(0, np.int64)]), file_of)
        for part in plan.partitions:
            reading = PartitionRead(
                resolver, topic.name, topic.schema, part.partition, columns, where, {"files": files}
            )
            yield from read_resolved(reading, part.rows, file_of)


def read_resolved(
    reading: PartitionRead, rows: Rows, file_of: Callable[[int], FileRecord]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of planned rows as :func:`read_rows` does; where a file is gone, each record that is
    left, once, from the files that have it now.

    Raises NotFoundError, kind ``segment-file-missing``: the newest state still names the file; and as
    :meth:`Resolver.plan`. Requests: those of :func:`read_rows`; where a file is gone, 1 GET to follow the
    log, and those of another plan.
    """
    left = Left()
    try:
        yield from reading.rows(rows, file_of, left)
        return
    except NotFoundError as error:
        if error.kind != FILE_MISSING or left.rows is None:
            raise
        missing = error
    for group in _ascending(left.rows):
        yield from _again(reading, group, missing)


def _again(reading: PartitionRead, rows: Rows, missing: NotFoundError) -> Iterator[pa.RecordBatch]:
    """Yield the records of planned rows, ascending by offset, from the files that the newest state names."""
    wanted = output_schema(reading.schema, reading.columns)
    names = list(dict.fromkeys([*wanted.names, *PLACES]))
    by_commit = bool(rows["stored"][0] == Stored.BY_COMMIT)
    resolver, tries = reading.resolver, 0
    while True:
        within = OffsetRange(int(rows["base_offset"][0]), int(rows["end_offset"][-1]))
        plan = resolver.plan(reading.partition, within, whole=True)
        found = _touched(plan.partitions[0].rows, rows)
        if missing.values.get("object") in {plan.files[file].key for file in set(found["file"].tolist())}:
            raise missing
        schema = reading.schema.beside(plan.topic.schema)
        left = Left()
        held: list[pa.RecordBatch] = []
        # Other files than those that its reader expects.
        options = {name: value for name, value in reading.options.items() if name != "files"}
        again = reading._replace(schema=schema, columns=names, options=options)
        try:
            for batch in again.rows(known_at(found, resolver.entry), plan.files.__getitem__, left):
                kept = batch.filter(pa.array(_members(batch, rows)))
                if by_commit:
                    held.append(kept)
                elif kept.num_rows:
                    behind = kept.column("_offset")[-1].as_py() + 1
                    yield _selected(kept, wanted)
                    rows, tries = _behind(rows, behind), 0
            break
        except NotFoundError as error:
            tries += 1
            if error.kind != FILE_MISSING or tries > TRIES_MAX:
                raise
            missing = error
    if held:
        whole = pa.Table.from_batches(held).combine_chunks()
        order = [(name, "ascending") for name in reversed(PLACES)]
        for batch in whole.sort_by(order).to_batches(ROWS_PER_BATCH):
            yield _selected(batch, wanted)


def _selected(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    return record_batch(batch.num_rows, {name: batch.column(name) for name in wanted.names}, wanted)


def _ascending(rows: Rows) -> list[Rows]:
    """Split planned rows where offsets go back; rows that are sorted by commit entry stand alone."""
    alone = rows["stored"] == Stored.BY_COMMIT
    breaks = (rows["base_offset"][1:] < rows["base_offset"][:-1]) | alone[1:] | alone[:-1]
    return np.split(rows, np.flatnonzero(breaks) + 1)


def _touched(found: Rows, rows: Rows) -> Rows:
    """Return those of newly planned rows whose offsets overlap some of ``rows``."""
    places = np.searchsorted(rows["end_offset"], found["base_offset"], side="right")
    begins = np.append(rows["base_offset"], INT64_MAX)[places]
    return found[begins < found["end_offset"]]


def _members(batch: pa.RecordBatch, rows: Rows) -> Rows:
    """Tell of each record whether planned rows take it."""
    offsets = batch.column("_offset").to_numpy()
    entries = pc.fill_null(batch.column("_commit_entry"), -1).to_numpy()
    places = np.searchsorted(rows["base_offset"], offsets, side="right") - 1
    mask: Rows = (places >= 0) & (offsets < rows["end_offset"][places])
    stored = rows["stored"][places] != Stored.NO
    mask &= ~stored | ((entries > rows["since"][places]) & (entries <= rows["until"][places]))
    return mask


def _behind(rows: Rows, offset: int) -> Rows:
    """Return what of planned rows is at an offset or behind it."""
    rows = rows[rows["end_offset"] > offset].copy()
    rows["base_offset"] = np.maximum(rows["base_offset"], offset)
    return rows
