"""Records between a send and the entry that names them: buffered, then uploaded, then staged for one entry.

    accumulator ── stream / finish ──> open files ── finish ──> staged uploads ── appends ──> an entry names them

Records leave a stage only when they are safe in the next one, so a failed step can be repeated. The exception is
a file that fails after earlier records went into it: those are lost, and ``is_broken`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txnformat.clock import Ids
from txnformat.intents import TopicAppend
from txnformat.state import TopicState
from txnformat.store.base import ObjectStore
from txnformat.types import TopicPartition
from writers.accumulator import Accumulator
from writers.settings import ProducerSettings
from writers.upload import TopicUpload, Uploaded, combine, topic_append, with_batch_table

__all__ = ["Staging"]


class Staging:
    """What a producer has taken in and the log does not hold yet. One thread at a time.

    Parameters
    ----------
    newest_entry : callable
        Returns the number of the newest entry known, at no request: the lower bound of the files' age.
    """

    def __init__(
        self, store: ObjectStore, ids: Ids, settings: ProducerSettings, newest_entry: Callable[[], int]
    ) -> None:
        self._store = store
        self._ids = ids
        self._settings = settings
        self._newest_entry = newest_entry
        self.buffered = Accumulator(settings.batch_bytes)
        self._open: dict[str, TopicUpload] = {}
        self._staged: dict[str, list[Uploaded]] = {}
        self._topics: dict[str, TopicState] = {}
        self._next_sequences: dict[TopicPartition, int] = {}
        self.is_broken = False
        """Whether records are lost that were taken in."""

    def __bool__(self) -> bool:
        """Return whether anything waits for an entry."""
        return bool(self.buffered) or bool(self._open) or bool(self._staged)

    def is_over(self, coming: int) -> bool:
        """Return whether records must leave the buffer before ``coming`` bytes are taken in."""
        buffered = self.buffered
        return bool(buffered.full) or (
            bool(buffered) and buffered.size + coming > self._settings.buffer_bytes
        )

    def stream(self, coming: int) -> None:
        """Move records to open files until ``coming`` bytes have room: whole batches, then the largest first.

        Raises
        ------
        StorageError
            Unless ``is_broken``, nothing is lost and the call can be repeated.
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
        for topic in self.buffered.topics():
            self._write(self.buffered.partitions(topic.topic_id))

    def finish(self) -> None:
        """Move all records to closed files: durable, and ready for an entry. Requests: 1 PUT per file.

        Raises
        ------
        StorageError
            As in :meth:`stream`.
        """
        for topic in self.buffered.topics():
            keys = self.buffered.partitions(topic.topic_id)
            if topic.topic_id in self._open:
                self._write(keys)
                continue
            # The usual small commit: nothing of it is in a file yet, so it can be tried again whole.
            upload = self._upload_of(topic)
            try:
                for key in keys:
                    upload.add(key.partition, self.buffered.batch(key))
                uploaded = upload.finish()
            except BaseException:
                upload.abort()
                raise
            self.buffered.drop(keys)
            self._stage(topic.topic_id, uploaded)
        for topic_id, upload in list(self._open.items()):
            try:
                uploaded = upload.finish()
            except BaseException:
                self.is_broken = True
                raise
            del self._open[topic_id]
            self._stage(topic_id, uploaded)

    def appends(self, *, numbered: bool) -> tuple[TopicAppend, ...]:
        """Return the appends of everything staged. Requests: 1 PUT when it takes a batch table.

        Parameters
        ----------
        numbered : bool
            Whether the records carry sequences: they go on from those that are in the log.
        """
        appends = []
        for topic_id, uploads in sorted(self._staged.items()):
            uploaded = uploads[0] if len(uploads) == 1 else combine(uploads)
            topic = self._topics[topic_id]
            bases = None
            if numbered:
                bases = {
                    number: self._next_sequences.get(TopicPartition(topic_id, number), 0)
                    for number in {batch.partition for batch in uploaded.batches}
                }
            appends.append(topic_append(topic_id, topic.partitions, uploaded, bases))
        return with_batch_table(self._store, self._ids, self._born(), appends)

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
        self.buffered.clear()
        for upload in self._open.values():
            upload.abort()
        self._open.clear()
        self._staged.clear()
        self.is_broken = False

    def restart_sequences(self) -> None:
        """Begin a new epoch: sequences start at 0."""
        self._next_sequences.clear()

    def _born(self) -> int:
        return max(self._newest_entry(), 0)

    def _upload_of(self, topic: TopicState) -> TopicUpload:
        self._topics[topic.topic_id] = topic
        return TopicUpload(
            self._store,
            self._ids,
            directory=topic.directory,
            schema=topic.schema,
            born=self._born(),
            roll_bytes=self._settings.roll_bytes,
        )

    def _stage(self, topic_id: str, uploaded: Uploaded) -> None:
        if uploaded.batches:
            self._staged.setdefault(topic_id, []).append(uploaded)

    def _write(self, keys: Sequence[TopicPartition]) -> None:
        """Write batches of one topic to its open file."""
        topic = self.buffered.topic(keys[0].topic_id)
        upload = self._open.get(topic.topic_id) or self._upload_of(topic)
        for key in keys:
            batch = self.buffered.batch(key)
            try:
                upload.add(key.partition, batch)
            except BaseException:
                upload.abort()
                # A file that is open holds records that are nowhere else any more.
                self.is_broken = topic.topic_id in self._open
                raise
            self._open[topic.topic_id] = upload
            self.buffered.drop((key,))
