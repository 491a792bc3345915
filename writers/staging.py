"""Records between a send and the entry that names them: buffered, then uploaded, then staged for one entry.

    inbox ── take_in ──> accumulator ── stream / finish ──> open files ── finish ──> staged uploads ── appends
    ──> an entry

Records leave a stage only when they are safe in the next one, so a failed step can be repeated. The exception
is a file that fails after earlier records went into it: those are lost, and ``is_broken`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from txnformat import keys
from txnformat.clock import Clock, Ids
from txnformat.core.intents import TopicAppend
from txnformat.core.records.batch_table import BATCHES_IN_ENTRY_MAX
from txnformat.core.state import TopicState
from txnformat.core.topics.settings import value_of
from txnformat.persistent import replace
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import SMALL_BYTES
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from writers.accumulator import SPOOL_ROWS_MAX, Accumulator, Inbox, Prepared, Run
from writers.settings import ProducerSettings
from writers.upload import (
    TopicUpload,
    Uploaded,
    combine,
    topic_append,
    upload_held,
    upload_whole,
    with_batch_table,
)
from writers.whole_files import WholeFile

__all__ = ["Staging"]


ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, slots=True)
class _Staged:
    """Files that wait for an entry."""

    topic: TopicState
    """As it was when the records were distributed."""
    uploaded: Uploaded
    runs: tuple[tuple[Run, ...], ...]
    """The runs of each batch."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A file that takes more batches."""

    topic: TopicState
    upload: TopicUpload
    runs: list[tuple[Run, ...]] = field(default_factory=list)


class Staging:
    """Records that a producer has taken in and the log does not hold yet.

    One thread at a time, but for the inbox.

    ``born``: returns the entry that an object is born in which is uploaded now.
    ``clock``: with it, uploads that fail for now are tried again for a minute
    (:class:`writers.upload.TopicUpload`). ``may_embed``: returns whether the log's entries may have payloads.
    """

    def __init__(
        self,
        store: ObjectStore,
        ids: Ids,
        settings: ProducerSettings,
        born: Callable[[], int],
        clock: Clock | None = None,
        may_embed: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._ids = ids
        self._clock = clock
        self._may_embed = may_embed
        self._settings = settings
        self._born = born
        self.buffered = Accumulator(settings.batch_bytes, ids.uniform)
        self.inbox: Inbox | None = None
        """Where any thread may leave what it has prepared; None while nothing can be sent."""
        self._open: dict[str, _Open] = {}
        self._staged: dict[str, list[_Staged]] = {}
        self._next_sequences: dict[TopicPartition, int] = {}
        self.is_broken = False
        """Whether records are lost that were taken in."""

    def __bool__(self) -> bool:
        """Return whether anything waits for an entry."""
        inbox = self.inbox
        return (
            (inbox is not None and bool(inbox.items))
            or bool(self.buffered)
            or bool(self._open)
            or bool(self._staged)
        )

    def has_room(self, inbox: Inbox, coming: int) -> bool:
        """Return whether ``coming`` bytes fit into the inbox, and no batch can be full.

        Safe in every thread.
        """
        buffered, settings = self.buffered, self._settings
        waiting = inbox.size
        return (
            waiting + buffered.largest < settings.batch_bytes
            and waiting + buffered.size + coming <= settings.buffer_bytes
            and len(inbox.items) < SPOOL_ROWS_MAX
        )

    def open_inbox(self, *, is_open: bool) -> None:
        """Take in what waits, and let more come, or no more."""
        old = self.inbox
        if old is None:
            self.inbox = Inbox() if is_open else None
            return
        if not old.items and is_open:
            return
        self.inbox = Inbox() if is_open else None
        old.taken = tuple(old.items)
        for sent in old.taken:
            self.buffered.accept(sent)

    def take_in(self) -> None:
        """Take in what waits in the inbox."""
        self.open_inbox(is_open=self.inbox is not None)

    def take(self, sent: Prepared) -> None:
        """Take in one send, behind those that wait."""
        self.take_in()
        self.buffered.accept(sent)

    @property
    def uploaded_batches(self) -> int:
        """Batches in files, open or closed, that no entry names."""
        closed = sum(len(one.uploaded.batches) for staged in self._staged.values() for one in staged)
        return closed + sum(len(opened.runs) for opened in self._open.values())

    @property
    def uploaded_bytes(self) -> int:
        """Size of those files so far."""
        closed = sum(
            file.size for staged in self._staged.values() for one in staged for file in one.uploaded.files
        )
        return closed + sum(opened.upload.size for opened in self._open.values())

    def is_over(self, coming: int) -> bool:
        """Return whether records must leave the buffer before ``coming`` bytes are taken in."""
        self.take_in()
        buffered = self.buffered
        return bool(buffered.full) or (
            bool(buffered) and buffered.size + coming > self._settings.buffer_bytes
        )

    def stream(self, coming: int) -> None:
        """Move records to open files until ``coming`` bytes have room: whole batches, then the largest first.

        Raises StorageError: unless ``is_broken``, nothing is lost and the call can be repeated.
        """
        buffered = self.buffered
        for key in sorted(buffered.full):
            self._write((key,))
        if buffered.size + coming <= self._settings.buffer_bytes:
            return
        # Half is freed at once, so that not every send has to look for the largest again.
        limit = self._settings.buffer_bytes
        target = min(limit // 2, max(0, limit - coming))
        for key in buffered.largest_first():
            if buffered.size <= target:
                return
            self._write((key,))

    def stream_all(self) -> None:
        """Move all records to open files."""
        self.take_in()
        for topic in self.buffered.topics():
            self._write(self.buffered.partitions(topic.topic_id))

    def take_whole(self, topic: TopicState, whole: WholeFile, partition: int | None) -> None:
        """Upload a whole file behind everything that waits. ``partition``: None: the one whose turn it is.

        Raises StorageError, OSError: nothing of the file waits, and the call can be repeated unless
        ``is_broken``.
        """
        number = self.buffered.next_partition(topic, partition)
        self.finish()
        key = keys.data_key(topic.directory, self._born(), self._ids.new())
        uploaded = upload_whole(self._store, self._ids, self._clock, whole, key, number)
        runs = tuple((Run(batch.records, partition is not None),) for batch in uploaded.batches)
        self._staged.setdefault(topic.topic_id, []).append(_Staged(topic, uploaded, runs))

    def finish(self) -> None:
        """Move all records to closed files, durable or held: 1 PUT for each that is not held.

        Raises StorageError as :meth:`stream`.
        """
        self.take_in()
        for topic in self.buffered.topics():
            waiting = self.buffered.partitions(topic.topic_id)
            if topic.topic_id in self._open:
                self._write(waiting)
                continue
            # The usual small commit: nothing of it is in a file yet, so it can be tried again whole.
            is_small = self.buffered.bytes_of(waiting) <= SMALL_BYTES
            opened = self._opened(topic, is_small=is_small)
            try:
                for key in waiting:
                    self._add(opened, key)
                uploaded = opened.upload.finish()
            except BaseException:
                opened.upload.abort()
                raise
            self._stage(opened, uploaded)
            self.buffered.drop(waiting)
        for topic_id in list(self._open):
            self._close(topic_id)

    def _held_bytes_max(self, topic: TopicState) -> int:
        """Return how large a file of a topic may be that waits for an entry that has it."""
        if not self._may_embed() or value_of(topic.settings, "embed") != "true":
            return 0
        return self._settings.embed_bytes

    def _upload_held(self, *, all_of_it: bool) -> None:
        """Upload what is held: all of it, if it is more than an entry may have; else that of topics of which
        other files are uploaded.
        """
        held = [data for staged in self._staged.values() for one in staged for data in one.uploaded.payload]
        all_of_it |= sum(map(len, held)) > self._settings.embed_bytes
        for staged in self._staged.values():
            if not all_of_it and all(one.uploaded.payload for one in staged):
                continue
            for number, one in enumerate(staged):
                if one.uploaded.payload:
                    uploaded = upload_held(self._store, self._ids, one.uploaded, self._clock)
                    staged[number] = replace(one, uploaded=uploaded)

    def adopt(self, topics: Mapping[str, TopicState]) -> None:
        """Bring what is buffered to the topics as they are now: their columns and their partitions."""
        self.take_in()
        for known in self.buffered.topics():
            self.buffered.adopt(topics.get(known.topic_id, known))

    def redistribute(self, topics: Mapping[str, TopicState]) -> None:
        """Bring what is staged to the partitions that the topics have now.

        Requests: none while no topic has grown; else, with key columns, records are read back and uploaded
        again. Raises StorageError: nothing is lost; the call can be repeated.
        """
        for topic_id, staged in self._staged.items():
            self._staged[topic_id] = [
                one for old in staged for one in self._redistributed(old, topics.get(topic_id, old.topic))
            ]

    def forget(self, topics: Mapping[str, TopicState]) -> None:
        """Give up what is staged of topics that are not there any more."""
        self._staged = {topic_id: staged for topic_id, staged in self._staged.items() if topic_id in topics}

    def _redistributed(self, staged: _Staged, topic: TopicState) -> list[_Staged]:
        if topic.partitions == staged.topic.partitions:
            return [staged]
        if not topic.schema.key_columns or all(run.is_named for runs in staged.runs for run in runs):
            return [replace(staged, topic=topic)]  # no record is where it is because of its key
        anew = Staging(self._store, self._ids, self._settings, self._born, self._clock, self._may_embed)
        try:
            for partition, table in self._read_back(staged):
                was = staged.topic.schema.schema_id
                sent = anew.buffered.prepare_again(topic, table, was, partition)
                if anew.is_over(sent.size):
                    anew.stream(sent.size)
                anew.buffered.accept(sent)
            anew.finish()
        except BaseException:
            anew.discard()
            raise
        return anew._staged[topic.topic_id]

    def _read_back(self, staged: _Staged) -> Iterator[tuple[int | None, pa.Table]]:
        """Yield the records in the order of the log, each run with its partition if the caller named it."""
        schema, files = staged.topic.schema, staged.uploaded.files
        store: ObjectStore = MemoryStore() if staged.uploaded.payload else self._store
        for file, data in zip(files, staged.uploaded.payload, strict=False):
            store.put(file.key, data)
        readers = [SegmentFileReader(store, file, schema.of_file(file)) for file in files]
        for batch, runs in zip(staged.uploaded.batches, staged.runs, strict=True):
            groups = range(batch.row_group, batch.row_group + batch.row_group_count)
            names = list(schema.of_file(files[batch.file]).names)
            table = pa.Table.from_batches(readers[batch.file].read(groups, names, ROWS_AT_ONCE))
            first = 0
            for run in runs:
                yield batch.partition if run.is_named else None, table.slice(first, run.records)
                first += run.records

    def appends(self, *, numbered: bool, deferred: bool = False) -> tuple[TopicAppend, ...]:
        """Return the appends of everything staged.

        Requests: 1 PUT when it takes a batch table; then also 1 for each file that is held.

        ``numbered``: whether the records carry sequences: they go on from those that are in the log.
        ``deferred``: whether they are to be staged in the log: then the batches are in a table, however few.
        """
        self._upload_held(all_of_it=deferred or self.uploaded_batches > BATCHES_IN_ENTRY_MAX)
        appends = []
        for topic_id, staged in sorted(self._staged.items()):
            uploaded = staged[0].uploaded if len(staged) == 1 else combine(one.uploaded for one in staged)
            bases = None
            if numbered:
                bases = {
                    number: self._next_sequences.get(TopicPartition(topic_id, number), 0)
                    for number in {batch.partition for batch in uploaded.batches}
                }
            appends.append(topic_append(topic_id, staged[-1].topic.partitions, uploaded, bases))
        batches_max = 0 if deferred else BATCHES_IN_ENTRY_MAX
        return with_batch_table(self._store, self._ids, self._born(), appends, batches_max, self._clock)

    def landed(self, appends: tuple[TopicAppend, ...]) -> None:
        """Note that an entry holds ``appends``: their sequences are spent, and nothing is staged any more."""
        self._staged.clear()
        for append in appends:
            for part in append.partitions:
                if part.base_sequence >= 0:
                    key = TopicPartition(append.topic_id, part.partition)
                    self._next_sequences[key] = part.base_sequence + part.records

    def discard(self) -> None:
        """Forget everything that waits; uploaded files are left to the vacuum."""
        if self.inbox is not None:
            self.inbox = Inbox()
        self.buffered.clear()
        for opened in self._open.values():
            opened.upload.abort()
        self._open.clear()
        self._staged.clear()
        self.is_broken = False

    def follow_sequences(self, last: Mapping[TopicPartition, int]) -> None:
        """Continue behind others' stages.

        ``last``: inclusive sequence of the last staged record of each partition.
        """
        self._next_sequences.update({key: sequence + 1 for key, sequence in last.items()})

    def restart_sequences(self) -> None:
        """Begin a new epoch: sequences start at 0."""
        self._next_sequences.clear()

    def _opened(self, topic: TopicState, *, is_small: bool = False) -> _Open:
        """Return the topic's open file, or a new one: a file is of one version of a topic."""
        found = self._open.get(topic.topic_id)
        if found is not None and found.topic is not topic:
            self._close(topic.topic_id)
            found = None
        if found is not None:
            return found
        upload = TopicUpload(
            self._store,
            self._ids,
            directory=topic.directory,
            schema=topic.schema,
            born=self._born(),
            roll_bytes=self._settings.roll_bytes,
            clock=self._clock,
            is_small=is_small,
            held_bytes_max=self._held_bytes_max(topic) if is_small else 0,
        )
        return _Open(topic, upload)

    def _add(self, opened: _Open, key: TopicPartition) -> None:
        opened.upload.add(key.partition, self.buffered.batch(key))
        opened.runs.append(self.buffered.runs(key))

    def _close(self, topic_id: str) -> None:
        """Close an open file."""
        opened = self._open[topic_id]
        try:
            uploaded = opened.upload.finish()
        except BaseException:
            self.is_broken = True
            raise
        del self._open[topic_id]
        self._stage(opened, uploaded)

    def _stage(self, opened: _Open, uploaded: Uploaded) -> None:
        if uploaded.batches:
            staged = _Staged(opened.topic, uploaded, tuple(opened.runs))
            self._staged.setdefault(opened.topic.topic_id, []).append(staged)

    def _write(self, batches: Sequence[TopicPartition]) -> None:
        """Write batches of one topic to its open file."""
        topic = self.buffered.topic(batches[0].topic_id)
        opened = self._opened(topic)
        for key in batches:
            try:
                self._add(opened, key)
            except BaseException:
                opened.upload.abort()
                # A file that is open holds records that are nowhere else any more.
                self.is_broken = topic.topic_id in self._open
                raise
            self._open[topic.topic_id] = opened
            self.buffered.drop((key,))
