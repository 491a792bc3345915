"""Records on their way to files, by topic and partition, in the order in which they were sent. No IO.

A send has two steps. ``prepare`` checks the data and brings it to the topic's schema; whatever is wrong is
raised here, and nothing is kept or changed, so any thread may call it at any time. ``accept`` chooses
partitions and keeps the records. In between the caller makes room, or leaves what is prepared in an
:class:`Inbox`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txnformat.core.state import TopicState
from txnformat.core.topics.cleanup import check_keys, keeps_latest
from txnformat.core.topics.schema import conform
from txnformat.errors import NotFoundError, repr_of
from txnformat.types import TopicPartition
from writers.partitioner import split_by_partition
from writers.rows import PlainRow, RowFormat

__all__ = ["Accumulator", "Inbox", "Prepared", "Run", "check_partition"]

SPOOL_ROWS_MAX = 10_000
"""Single records that are made into Arrow together."""

CHUNKS_MAX = 64
"""A batch in more pieces than this is copied into one: many small pieces cost more than the copy."""

SPARE_BYTES = 64 * 2**10
"""Bytes beyond twice its records that a partition may keep alive: below that a copy is not worth its time."""

SHARED_SPARE_BYTES = 8 * 2**20
"""The same for a send that was split: its parts keep one table alive together, and mostly leave together."""


class Run(NamedTuple):
    """Records of a batch that follow each other."""

    records: int
    is_named: bool
    """Whether the caller named their partition."""


class Prepared(NamedTuple):
    """Data of one send, checked."""

    topic: TopicState
    size: int
    """Arrow bytes; of single records roughly."""
    partition: int | None
    """The partition that the caller named."""
    table: Any = None
    """pyarrow.Table in the topic's schema; None when ``row`` is given."""
    row: PlainRow | None = None
    """In place of ``table``: one record."""


class Inbox:
    """Sends that were handed over, and that no call has taken in yet.

    A send appends to ``items`` in one step of the interpreter, without a lock, and then looks whether the
    inbox is still in use. If it is, the call that takes it out of use finds the record. If not, the sender
    asks under the lock whether the record was found.
    """

    __slots__ = ("items", "size", "taken")

    def __init__(self) -> None:
        self.items: list[Prepared] = []
        self.size = 0
        """Bytes, roughly: threads that send at the same time may count too few."""
        self.taken: tuple[Prepared, ...] = ()
        """Sends that were in it when it went out of use."""


@dataclass(slots=True)
class _Pending:
    """Records of one partition."""

    tables: list[Any] = field(default_factory=list)
    named: list[bool] = field(default_factory=list)
    """For each table, whether the caller named the partition."""
    size: int = 0
    alive: int = 0
    """Bytes that the tables keep from being freed: a slice holds on to all of what it was cut from."""

    def add(self, table: Any, size: int, spare: int, *, is_named: bool, is_full: bool) -> None:
        """Keep a table of ``size`` bytes; a full batch is not worth a copy, because it leaves with the next
        send.
        """
        alive = table.get_total_buffer_size()
        if alive > 2 * size + spare and not is_full:
            table = table.take(pa.array(np.arange(table.num_rows)))
            alive = size
        self.tables.append(table)
        self.named.append(is_named)
        self.size += size
        self.alive += alive
        if self.alive > 2 * self.size + spare and not is_full:
            self._join()

    def _join(self) -> None:
        """Copy many small tables into joined ones, to free the memory that they were cut from."""
        pairs = zip(self.named, self.tables, strict=True)
        runs = [
            (is_named, [table for _, table in run]) for is_named, run in groupby(pairs, key=itemgetter(0))
        ]
        self.tables = [pa.concat_tables(tables).combine_chunks() for _, tables in runs]
        self.named = [is_named for is_named, _ in runs]
        self.alive = self.size


@dataclass(slots=True)
class _Spool:
    """Single records of one topic that were sent for the same partition, or for none."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class _Turn:
    """Which partition takes a topic's records without keys."""

    partition: int
    is_taken: bool = False
    """Whether it has such records since it is its turn."""


class Accumulator:
    """Holds records by (topic, partition).

    Records without a key go to one partition until its batch is full or leaves; then it is the next one's
    turn. The first partition of a topic is random: else producers that send little would fill partition 0.
    ``batch_bytes``: Arrow bytes from which a partition is listed in :attr:`full`. ``uniform``: returns a
    float in [0, 1): where the turn of a topic begins.
    """

    def __init__(self, batch_bytes: int, uniform: Callable[[], float]) -> None:
        self._batch_bytes = batch_bytes
        self._uniform = uniform
        self._pending: dict[TopicPartition, _Pending] = {}
        self._spools: dict[str, dict[int | None, _Spool]] = {}
        self._formats: dict[tuple[str, int], RowFormat] = {}
        self._topics: dict[str, TopicState] = {}
        self._turns: dict[str, _Turn] = {}
        self.size = 0
        """Bytes held."""
        self.full: set[TopicPartition] = set()
        """Partitions that hold a whole batch."""
        self._largest = 0  # bytes of the partition that holds the most
        self._spooled = 0  # bytes of single records

    def __bool__(self) -> bool:
        """Return whether any record is held."""
        return bool(self._pending) or bool(self._spools)

    @property
    def largest(self) -> int:
        """Upper bound, inclusive, of the bytes that a partition holds."""
        return self._largest + self._spooled

    def prepare(self, topic: TopicState, data: Any, partition: int | None) -> Prepared:
        """Return the data of a send, checked; nothing is kept or changed. Safe in every thread.

        ``partition``: None: by the key columns; without a key, the one whose turn it is. Raises NotFoundError
        of kind ``unknown-partition``; InvalidInputError of kind ``schema-mismatch``: every difference; of
        kind ``null-key``.
        """
        if partition is not None:
            check_partition(topic, partition)
        needs_key = keeps_latest(topic.settings)
        if type(data) is list and len(data) == 1:
            row = self._format(topic).pack(data[0])
            if row is not None and not (needs_key and _has_null(row.values, topic)):
                return Prepared(topic, row.size, partition, row=row)
        prepared = self._conformed(topic, data, partition)
        if needs_key:
            check_keys(topic.name, topic.schema, prepared.table)
        return prepared

    def prepare_again(
        self, topic: TopicState, table: pa.Table, schema_id: int, partition: int | None
    ) -> Prepared:
        """Return records that were taken in already as the topic is now: what it refuses by now stays.

        ``schema_id``: the version that they have; a column of it that was dropped goes.
        """
        if schema_id != topic.schema.schema_id:
            table = topic.schema.carried(table, schema_id)
        return self._conformed(topic, table, partition)

    def _conformed(self, topic: TopicState, data: Any, partition: int | None) -> Prepared:
        table = conform(data, topic.schema.arrow_schema, topic.schema.added)
        if table.num_rows == 0:
            return Prepared(topic, 0, partition, table)
        return Prepared(topic, table.nbytes, partition, table)

    def choose_partition(self, topic: TopicState, row: Mapping[str, Any]) -> int:
        """Return the partition of a large record: by its key, else the one whose turn it is, which then
        passes on.
        """
        table = conform([row], topic.schema.arrow_schema, topic.schema.added)
        ((partition, _),), is_keyless = self._distribute(topic, table, None)
        return self.next_partition(topic) if is_keyless else partition

    def next_partition(self, topic: TopicState, named: int | None = None) -> int:
        """Return the partition that the caller named, else the one whose turn it is; the turn then
        passes on.
        """
        if named is not None:
            return named
        turn = self._turn(topic)
        turn.is_taken = True
        self._pass_on(topic, turn.partition)
        return turn.partition

    def accept(self, sent: Prepared) -> None:
        """Keep what ``prepare`` returned, perhaps when the topic had fewer columns or partitions."""
        topic_id = sent.topic.topic_id
        known = self._topics.get(topic_id)
        if known is not None and known is not sent.topic and _has_grown(known, sent.topic):
            table = sent.table
            if sent.row is not None:
                table = self._format(sent.topic).table([sent.row.values])
            sent = self.prepare_again(known, table, sent.topic.schema.schema_id, sent.partition)
        elif known is not sent.topic:
            self.adopt(sent.topic)
        if sent.row is None:
            self._settle(topic_id)
            if sent.table.num_rows:
                self._add(sent.topic, sent.table, sent.partition, sent.size)
            return
        spools = self._spools.setdefault(topic_id, {})
        spool = spools.get(sent.partition)
        if spool is None:
            spool = spools[sent.partition] = _Spool()
        spool.rows.append(sent.row.values)
        spool.size += sent.row.size
        self.size += sent.row.size
        self._spooled += sent.row.size
        if len(spool.rows) >= SPOOL_ROWS_MAX or spool.size >= self._batch_bytes:
            self._settle(topic_id)

    def adopt(self, topic: TopicState) -> None:
        """Take a topic as it is now: its records here get its columns and partitions."""
        topic_id = topic.topic_id
        known = self._topics.get(topic_id)
        if known is None or not _has_grown(topic, known):
            self._topics[topic_id] = topic
            return
        self._settle(topic_id)
        self._topics[topic_id] = topic
        moving = []
        for key in self.partitions(topic_id):
            pending = self._pending[key]
            for table, is_named in zip(pending.tables, pending.named, strict=True):
                stays = is_named or not topic.schema.key_columns
                wanted = key.partition if stays else None
                moved = self.prepare_again(topic, table, known.schema.schema_id, wanted)
                moving.append((moved, is_named))
        for key in self.partitions(topic_id):
            self._forget(key)
        for moved, is_named in moving:
            self._add(topic, moved.table, moved.partition, moved.size, is_named=is_named)

    def topic(self, topic_id: str) -> TopicState:
        """Return a topic of which records were taken in."""
        return self._topics[topic_id]

    def topics(self) -> list[TopicState]:
        """Return the topics that hold records."""
        held = {key.topic_id for key in self._pending} | set(self._spools)
        return [self._topics[topic_id] for topic_id in sorted(held)]

    def largest_first(self) -> list[TopicPartition]:
        """Return the partitions that hold records, the largest first."""
        self.settle()
        return sorted(self._pending, key=lambda key: (-self._pending[key].size, key))

    def partitions(self, topic_id: str) -> list[TopicPartition]:
        """Return the partitions of a topic that hold records, ascending."""
        self._settle(topic_id)
        return sorted(key for key in self._pending if key.topic_id == topic_id)

    def bytes_of(self, keys: Iterable[TopicPartition]) -> int:
        """Return the bytes that some partitions hold, which hold some."""
        return sum(self._pending[key].size for key in keys)

    def batch(self, key: TopicPartition) -> pa.Table:
        """Return the records of a partition (which holds some), oldest first; they stay."""
        tables = self._pending[key].tables
        if len(tables) == 1:
            return tables[0]
        table = pa.concat_tables(tables)
        return table.combine_chunks() if len(tables) > CHUNKS_MAX else table

    def runs(self, key: TopicPartition) -> tuple[Run, ...]:
        """Return which records of :meth:`batch` the caller named the partition of."""
        pending = self._pending[key]
        pairs = zip(pending.named, pending.tables, strict=True)
        return tuple(
            Run(sum(table.num_rows for _, table in group), is_named)
            for is_named, group in groupby(pairs, key=itemgetter(0))
        )

    def drop(self, keys: Iterable[TopicPartition]) -> None:
        """Forget the records of some partitions: they are in a file."""
        for key in keys:
            self._forget(key)
            self._pass_on(self._topics[key.topic_id], key.partition)

    def _forget(self, key: TopicPartition) -> None:
        gone = self._pending.pop(key).size
        self.size -= gone
        self.full.discard(key)
        if gone >= self._largest:
            self._largest = max((pending.size for pending in self._pending.values()), default=0)

    def clear(self) -> None:
        """Forget all records."""
        self._pending.clear()
        self._spools.clear()
        self.full.clear()
        self.size = self._largest = self._spooled = 0

    def settle(self) -> None:
        """Give single records their partitions."""
        for topic_id in list(self._spools):
            self._settle(topic_id)

    def _format(self, topic: TopicState) -> RowFormat:
        version = (topic.topic_id, topic.schema.schema_id)
        known = self._formats.get(version)
        if known is None:
            known = self._formats[version] = RowFormat(topic.schema.arrow_schema)
        return known

    def _settle(self, topic_id: str) -> None:
        """Make single records of one topic into tables of its partitions, behind what these hold already."""
        spools = self._spools.get(topic_id)
        if spools is None:
            return
        topic = self._topics[topic_id]
        # Records whose conversion fails are kept: they are taken out when all of them are in tables.
        tables = [
            (partition, spool.size, self._format(topic).table(spool.rows))
            for partition, spool in spools.items()
        ]
        del self._spools[topic_id]
        for partition, size, table in tables:
            self.size -= size
            self._spooled -= size
            self._add(topic, table, partition)

    def _add(
        self,
        topic: TopicState,
        table: Any,
        partition: int | None,
        size: int | None = None,
        *,
        is_named: bool | None = None,
    ) -> None:
        """Add a table to the partitions of its records. ``size``: its bytes, where they are known."""
        parts, is_keyless = self._distribute(topic, table, partition)
        if is_keyless:
            self._turn(topic).is_taken = True
        named = partition is not None if is_named is None else is_named
        spare = SPARE_BYTES if len(parts) == 1 else SHARED_SPARE_BYTES
        for number, part in parts:
            key = TopicPartition(topic.topic_id, number)
            pending = self._pending.setdefault(key, _Pending())
            # A table's size takes a walk over its buffers: when all of a send is one part, it is known.
            bytes_ = size if size is not None and len(parts) == 1 else part.nbytes
            is_full = pending.size + bytes_ >= self._batch_bytes
            pending.add(part, bytes_, spare, is_named=named, is_full=is_full)
            self.size += bytes_
            self._largest = max(self._largest, pending.size)
            if is_full:
                self.full.add(key)
                self._pass_on(self._topics[topic.topic_id], number)

    def _turn(self, topic: TopicState) -> _Turn:
        """Return the partition that takes records without keys; the first one is random."""
        turn = self._turns.get(topic.topic_id)
        if turn is None:
            turn = self._turns[topic.topic_id] = _Turn(int(self._uniform() * topic.partitions))
        return turn

    def _pass_on(self, topic: TopicState, partition: int) -> None:
        """Note that a partition's batch is full or has left: if it took records in its turn, the turn is
        over.
        """
        turn = self._turns.get(topic.topic_id)
        if turn is not None and turn.is_taken and turn.partition == partition:
            self._turns[topic.topic_id] = _Turn((partition + 1) % topic.partitions)

    def _distribute(
        self, topic: TopicState, table: Any, partition: int | None
    ) -> tuple[tuple[tuple[int, Any], ...], bool]:
        """Return the table by partition, the order of its rows kept, and whether some had no key."""
        if partition is not None:
            return ((partition, table),), False
        turn = self._turn(topic).partition
        parts, next_turn = split_by_partition(table, topic.schema.key_columns, topic.partitions, turn)
        return tuple(parts), next_turn != turn


def _has_null(values: Sequence[Any], topic: TopicState) -> bool:
    """Return whether a key column of a record is null: it is then looked at more closely."""
    names = topic.schema.arrow_schema.names
    return any(values[names.index(name)] is None for name in topic.schema.key_columns)


def _has_grown(topic: TopicState, known: TopicState) -> bool:
    """Return whether a topic has changed since ``known``: it only ever grows."""
    return topic.partitions > known.partitions or topic.schema.schema_id > known.schema.schema_id


def check_partition(topic: TopicState, partition: int) -> None:
    """Raise NotFoundError of kind ``unknown-partition`` about what is none of a topic."""
    if type(partition) is not int or not 0 <= partition < topic.partitions:
        raise NotFoundError(
            "no such partition",
            kind="unknown-partition",
            hint=f"the topic has {topic.shown_partitions}",
            topic=topic.name,
            partition=partition
            if type(partition) is int
            else repr_of(partition),  # "0" and True look like numbers
        )
