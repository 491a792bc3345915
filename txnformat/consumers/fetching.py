"""Fetching records for a consumer: of each partition an open read, of all of them together the next batch.

Rules of this file:

* Nothing is fetched that may still be aborted: a read ends where its isolation level does, at the time it was
  planned.
* A position goes with the last record that was handed out. Only behind the last record of a read it moves on
  to the read's end, past markers and aborted batches.
* A batch is handed out whole or not at all: positions move when it is known that the caller has it. A read
  that is ahead of its partition's position (an error, an interrupt, a seek) is begun anew from there.
* Turns go round: a partition that was served goes to the end of the queue. One that waits for memory lets
  none go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from txnformat.core.records.scan import Stored, readable_end
from txnformat.core.state import LogState, TopicState
from txnformat.errors import InternalError, TxnLogError
from txnformat.persistent import Rows
from txnformat.reading.open_files import AHEAD_MAX, FETCHED_MAX, OpenFiles
from txnformat.reading.plan import ReadPlan, plan_range
from txnformat.reading.resolving import PartitionRead, Resolver, on_newest, read_resolved
from txnformat.reading.rows import output_schema
from txnformat.reading.sealed import SidecarCache
from txnformat.types import FileRecord, IsolationLevel, OffsetRange, TopicPartition

__all__ = ["Assigned", "Fetched", "Fetcher", "Turns"]

METADATA_COLUMNS = ("_topic", "_partition", "_offset", "_timestamp")
"""Behind a topic's own columns, unless other columns are asked for."""

CHUNK_BYTES = 8 * 2**20
"""Compressed bytes of a partition that are read in its turn; at least one batch of a producer."""
WHOLE_BYTES = 2**20
"""Chunks up to this size are read at once; larger ones as they are asked for, with a thread ahead."""
OPEN_BYTES_MAX = 64 * 2**20
"""Compressed bytes of the chunks, over all partitions, that may be begun and not handed out."""
BATCH_BYTES_MAX = 32 * 2**20
"""Arrow bytes beyond which no further partition's records join a batch."""
SKIPPED_MAX = 2**16
"""Offsets that a read passes over rather than be begun anew behind them."""
FILES_BYTES_MAX = 48 * 2**20
"""Small files, and footers of larger ones, that are kept: a file often holds records of many partitions."""
CHUNK_FILES_MAX = FETCHED_MAX
"""Small files of a chunk: 64 of 256 KiB are a third of what is kept, so they are still there when the next
partition reads them."""

UNKNOWN = object()
"""No state of a partition."""
NOWHERE = -1
"""The offset of a read that is broken: no position is there, so it is begun anew."""


@dataclass(slots=True, eq=False)
class Assigned:
    """A partition that a consumer reads."""

    key: TopicPartition
    topic: str
    position: int | None = None
    """Offset of the next record to hand out; None before it is known."""
    is_paused: bool = False
    read: Read | None = field(default=None, repr=False)
    drained: object = field(default=UNKNOWN, repr=False)
    """The partition's state at which there was nothing left; while it is that one there is nothing to look
    for."""

    @property
    def names(self) -> tuple[str, int]:
        """Topic and partition, as users name them."""
        return self.topic, self.key.partition

    def seek(self, offset: int | None) -> None:
        """Go on from another offset; None: from wherever a partition without a position is begun."""
        self.position = offset
        self.drained = UNKNOWN
        self.drop()

    def go_on(self, offset: int) -> None:
        """Go on from an offset; one that is a little further is reached by what is open, which is not read
        anew.
        """
        read, position = self.read, self.position
        if position is None or read is None or read.offset != position:
            if offset != position:
                self.seek(offset)
        elif 0 < offset - position <= SKIPPED_MAX and read.skip(offset):
            self.position = offset
        elif offset != position:
            self.seek(offset)

    def may_have_more(self, state: LogState) -> bool:
        """Return whether there may be something to hand out: asked of every partition at every poll, it is
        quick.
        """
        return not self.is_paused and self.drained is not state.partitions.get(self.key)

    def drop(self) -> None:
        """Forget what is fetched and not handed out."""
        if self.read is not None:
            self.read.close()
            self.read = None


Turns = OrderedDict[TopicPartition, Assigned]
"""The partitions of a consumer, in the order in which it is their turn."""


class Read:
    """An open read of consecutive offsets of one partition, chunk by chunk.

    ``plan`` is of this partition alone; ``asked`` is what the consumer wants. Batches that come out have
    ``_offset``, too.
    """

    def __init__(self, plan: ReadPlan, asked: pa.Schema, files: OpenFiles, resolver: Resolver) -> None:
        (part,) = plan.partitions
        self.asked = asked
        schema = plan.topic.schema
        places = dict(zip(schema.arrow_schema.names, schema.places_of(schema.schema_id), strict=True))
        self.places = [places.get(name) for name in asked.names]
        """The place of each column; None: a metadata column."""
        self.weight = 0
        """Compressed bytes of the chunk that is begun, as far as they are in memory at a time; 0 when none
        is."""
        self._plan = plan
        self._number = part.partition
        self._rows = part.rows
        self._left = int(part.rows["take"].sum())  # at most: of a run of a compacted file some may be taken
        self._may_be_fewer = bool((part.rows["stored"] == Stored.PART).any())
        self._end = part.range.end
        self.offset = part.range.start if self._left else self._end
        """The position that goes with what was taken."""
        self._open_files = files
        self._resolver = resolver
        self._chunk: Iterator[pa.RecordBatch] | None = None
        self.rest: pa.RecordBatch | None = None
        """The next records, as far as they are decoded."""

    @property
    def is_over(self) -> bool:
        """Whether everything was taken."""
        return self.offset == self._end

    @property
    def next_weight(self) -> int:
        """Return what ``weight`` would be with the next chunk."""
        return _weight(self._next_chunk())

    def take(self, rows_max: int) -> pa.RecordBatch | None:
        """Return up to ``rows_max`` of the next records; None at the end of a chunk, and of the read."""
        try:
            batch = self.rest if self.rest is not None else self._next_batch()
            if batch is None:
                if not self._left:
                    self.offset = self._end
                return None
            taken, rest = batch.slice(0, rows_max), batch.slice(rows_max)
            self.rest = rest if rest.num_rows else None
            self._left -= taken.num_rows
            self.offset = taken.column("_offset")[-1].as_py() + 1
        except BaseException:
            # It is not known what was passed over; and a generator that was interrupted looks as if it had
            # come to its end.
            self.close()
            self.offset = NOWHERE
            raise
        if not self._left:
            self.offset = self._end
            self.close()
        return taken

    def go_on(self, rows: int, offset: int) -> None:
        """Pass over the next records, which are fewer than ``rest`` has; ``offset`` is the position behind
        them.
        """
        assert self.rest is not None
        self.rest = self.rest.slice(rows)
        self._left -= rows
        self.offset = offset

    def skip(self, offset: int) -> bool:
        """Pass over what lies below an offset; False, if that is not in the chunk that is begun: then the
        read is of no use.
        """
        try:
            while self._chunk is not None:
                if self.rest is None:
                    self.rest = next(self._chunk, None)
                if self.rest is None:
                    return False
                below = int(np.searchsorted(self.rest.column("_offset").to_numpy(), offset))
                self._left -= below
                rest = self.rest.slice(below)
                self.rest = rest if rest.num_rows else None
                if self.rest is not None:
                    self.offset = offset
                    return True
        except BaseException:
            self.close()
            self.offset = NOWHERE
            raise
        return False

    def close(self) -> None:
        """Let go of the chunk that is begun."""
        chunk, self._chunk, self.rest, self.weight = self._chunk, None, None, 0
        if isinstance(chunk, Generator):
            chunk.close()

    def _next_batch(self) -> pa.RecordBatch | None:
        if self._chunk is None:
            rows = self._next_chunk()
            if not len(rows) and self._may_be_fewer:
                self._left = 0
                return None
            if not len(rows):
                raise InternalError(
                    "a read ended before its last record", partition=self._number, records_left=self._left
                )
            self._rows = self._rows[len(rows) :]
            self.weight = _weight(rows)
            self._chunk = self._begin(rows)
        batch = next(self._chunk, None)
        if batch is None:
            self.close()
        return batch

    def _next_chunk(self) -> Rows:
        """Return the next rows of the plan, of about CHUNK_BYTES; at least one.

        Rows of small files are fewer: as many as are read at once.
        """
        rows = self._rows
        if not len(rows):
            return rows
        file_of, is_at_hand = self._plan.files.__getitem__, self._open_files.is_at_hand
        is_small = is_at_hand(file_of(int(rows["file"][0])))
        bytes_max = min(WHOLE_BYTES, CHUNK_BYTES) if is_small else CHUNK_BYTES
        count = int(np.searchsorted(np.cumsum(rows["size"]), bytes_max, side="right"))
        rows = rows[: max(1, count)]
        files = rows["file"]
        begins = np.flatnonzero(np.append(True, files[1:] != files[:-1]))
        for count, place in enumerate(begins.tolist()):
            if count == (CHUNK_FILES_MAX if is_small else len(rows)):
                return rows[:place]
            if is_at_hand(file_of(int(files[place]))) != is_small:
                return rows[:place]
        return rows

    def files_ahead(self) -> list[FileRecord]:
        """Return the files of the next chunk, where none is begun."""
        if self._chunk is not None or self.rest is not None:
            return []
        numbers = dict.fromkeys(self._next_chunk()["file"].tolist())
        return [self._plan.files[number] for number in numbers]

    def _begin(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        topic = self._plan.topic
        self._open_files.fetch(self._plan.files[number] for number in dict.fromkeys(rows["file"].tolist()))
        reading = PartitionRead(
            self._resolver,
            topic.name,
            topic.schema,
            self._number,
            list(dict.fromkeys([*self.asked.names, "_offset"])),
            options={"files": self._open_files},
        )
        batches = read_resolved(reading, rows, self._plan.files.__getitem__)
        return iter(list(batches)) if self.weight <= WHOLE_BYTES else batches


def _weight(rows: Rows) -> int:
    # A larger chunk is one batch of a producer, read window by window.
    return min(int(rows["size"].sum()), CHUNK_BYTES)


class Fetched(NamedTuple):
    """A fetched batch, before positions have moved behind it."""

    batch: pa.RecordBatch | None
    positions: Mapping[TopicPartition, int]
    """Where partitions go on."""
    served: Sequence[TopicPartition]
    """The partitions with records in the batch."""
    drained: Mapping[TopicPartition, object]
    """The partitions of which nothing is left, with the state at which that is so."""
    schema: pa.Schema | None
    """Schema of the batch."""

    def move(self, assigned: Turns) -> None:
        """Move the positions; served partitions go to the end. Can be repeated."""
        for key, offset in self.positions.items():
            assigned[key].position = offset
        for key, state in self.drained.items():
            assigned[key].drained = state
        for key in self.served:
            assigned.move_to_end(key)


class Fetcher:
    """Makes batches for a consumer out of what is known of the log.

    It looks at the log itself only by ``refresh``, where an object that it was about to read is gone. Batches
    have ``columns``; None: the topic's own and METADATA_COLUMNS.
    """

    def __init__(
        self,
        sidecars: SidecarCache,
        refresh: Callable[[], LogState],
        isolation: IsolationLevel,
        columns: Sequence[str] | None,
    ) -> None:
        self._sidecars = sidecars
        self._refresh = refresh
        self._isolation = isolation
        self._columns = columns
        self._files = OpenFiles(sidecars.store, keeps=True, bytes_max=FILES_BYTES_MAX)
        self._begun: set[TopicPartition] = set()  # those with a chunk in memory, and some that had one

    def schema(self, topic: TopicState) -> pa.Schema:
        """Return the schema of a topic's batches.

        Raises InvalidInputError of kind ``unknown-column`` when the topic lacks one that is asked for.
        """
        names = self._columns
        return output_schema(
            topic.schema, [*topic.schema.arrow_schema.names, *METADATA_COLUMNS] if names is None else names
        )

    def fetch(self, state: LogState, assigned: Turns, rows_max: int, is_late: Callable[[], bool]) -> Fetched:
        """Return the next records, all of one topic, and where positions are behind them.

        They stay where they are.

        Positions also move past markers and aborted records. ``assigned`` is in the order of turns, with
        known positions; ``is_late`` says that there is no time left to add the records of other partitions.
        Requests: those of the data, and of sidecars.
        """
        filling = _Filling(rows_max)
        self._fetch_ahead(state, assigned)
        for one in list(assigned.values()):
            if filling.topic_id not in (None, one.key.topic_id) or not one.may_have_more(state):
                continue
            try:
                self._fill(state, assigned, one, filling)
            except TxnLogError:
                assigned.move_to_end(one.key)  # it shall not keep the others from their turn
                if not filling.parts:
                    raise
                break  # what is fetched comes first; its next turn meets the error
            if filling.is_full or (filling.parts and is_late()):
                break
        return Fetched(
            filling.batch(), filling.positions, tuple(filling.served), filling.drained, filling.schema
        )

    def _fetch_ahead(self, state: LogState, assigned: Turns) -> None:
        """Fetch small files of the partitions whose turn is next together: one after the other each would
        wait for a request.
        """
        if self._sidecars.store.reads_in_flight == 1:
            return
        wanted: dict[str, FileRecord] = {}
        for one in list(assigned.values()):
            if one.position is None or not one.may_have_more(state):
                continue
            if one.read is not None and one.read.offset != one.position:
                one.drop()
            try:
                if one.read is None or one.read.is_over:
                    start = one.position if one.read is None else one.read.offset
                    one.read = self._open(one.key, start, state)
            except TxnLogError:
                break  # its turn meets the error
            if one.read is not None:
                wanted |= {file.key: file for file in one.read.files_ahead()}
            if len(wanted) >= AHEAD_MAX:
                break
        self._files.fetch(wanted.values())

    def _fill(self, state: LogState, assigned: Turns, one: Assigned, filling: _Filling) -> None:
        """Add a partition's next records, as many as fit.

        After half of the files that can be kept it is the next partition's turn, which finds them there.
        """
        opened = self._files.opened_bytes
        if one.read is not None and one.read.offset != one.position:
            one.drop()
        while filling.room:
            if one.read is None or one.read.is_over:
                start = one.position if one.read is None else one.read.offset
                read = on_newest(self._refresh, partial(self._open, one.key, start), state)
                if read is None:
                    filling.drained[one.key] = state.partitions.get(one.key)
                    return
                one.read = read
            elif filling.schema is not None and not filling.is_of(one.read):
                return  # the topic has changed: its newer records come in a batch of their own
            elif not one.read.weight and (
                self._files.opened_bytes - opened > FILES_BYTES_MAX // 2
                or not self._may_begin(one.read, assigned, filling)
            ):
                return
            else:
                self._begun.add(one.key)
                taken = one.read.take(filling.room)
                if taken is not None:
                    filling.add(one, taken, one.read)
            filling.positions[one.key] = one.read.offset

    def _may_begin(self, read: Read, assigned: Turns, filling: _Filling) -> bool:
        """Return whether another chunk may be begun; those of paused partitions make room."""
        begun = {
            key: found
            for key in self._begun
            if key in assigned and (found := assigned[key].read) is not None and found.weight
        }
        for key in [key for key in begun if assigned[key].is_paused]:
            if sum(other.weight for other in begun.values()) + read.next_weight <= OPEN_BYTES_MAX:
                break
            assigned[key].drop()
            del begun[key]
        fits = sum(other.weight for other in begun.values()) + read.next_weight <= OPEN_BYTES_MAX
        filling.is_blocked |= not fits and bool(begun)
        self._begun = set(begun)
        return not filling.is_blocked

    def _open(self, key: TopicPartition, start: int | None, state: LogState) -> Read | None:
        """Plan the next sealed segment of a partition, or all that is not sealed; None when there is nothing
        yet.

        Requests: 1 GET for a segment, and for each batch table, that is not kept.
        """
        partition = state.partition(key)
        end = readable_end(partition, self._isolation)
        if start is None or start >= end:
            return None
        if start < partition.sealed_end:
            parts = self._sidecars.segments(state, key, OffsetRange(start, partition.sealed_end))
            end = min(end, parts[0].range.end)
        plan = plan_range(self._sidecars, state, key, OffsetRange(start, end), self._isolation)
        resolver = Resolver(self._sidecars, self._refresh, key.topic_id, self._isolation, plan.entry)
        return Read(plan, self.schema(plan.topic), self._files, resolver)


class _Filling:
    """A batch that is being made."""

    def __init__(self, rows_max: int) -> None:
        self.parts: list[pa.RecordBatch] = []
        self.positions: dict[TopicPartition, int] = {}
        self.served: dict[TopicPartition, None] = {}
        self.drained: dict[TopicPartition, object] = {}
        self.room = rows_max
        """Records that still fit."""
        self.is_blocked = False
        """Whether a partition waits for memory."""
        self.topic_id: str | None = None
        self.schema: pa.Schema | None = None
        self._places: list[int | None] = []
        self._size = 0

    @property
    def is_full(self) -> bool:
        return not self.room or self._size >= BATCH_BYTES_MAX

    def is_of(self, read: Read) -> bool:
        """Return whether the records of a read have the columns of the batch; others may have the same
        names.
        """
        return read.asked.equals(self.schema) and read.places == self._places

    def add(self, one: Assigned, records: pa.RecordBatch, read: Read) -> None:
        self.topic_id, self.schema, self._places = one.key.topic_id, read.asked, read.places
        self.parts.append(records)
        self.served[one.key] = None
        self.room -= records.num_rows
        self._size += records.nbytes
        if self._size >= BATCH_BYTES_MAX:
            self.room = 0

    def batch(self) -> pa.RecordBatch | None:
        if self.schema is None:
            return None
        whole = self.parts[0] if len(self.parts) == 1 else pa.concat_batches(self.parts)
        return whole.select(self.schema.names)
