"""The unwritten half of a producer: buffered rows, streamed files, sequences. No commits happen here."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from txnformat.clock import Ids
from txnformat.intents import TopicAppend
from txnformat.state import TopicState
from txnformat.store.base import ObjectStore
from txnformat.types import TopicPartition
from writers.accumulator import Accumulator, DrainedBatch, distribute
from writers.upload import TopicUpload, topic_append, with_batch_table

__all__ = ["Pending"]


class Pending:
    """Rows on their way from ``send`` to an append.

    Parameters
    ----------
    batch_bytes, buffer_bytes, roll_bytes : int
        See :class:`writers.producer.Producer`.
    """

    def __init__(
        self, store: ObjectStore, ids: Ids, *, batch_bytes: int, buffer_bytes: int, roll_bytes: int
    ) -> None:
        self._store = store
        self._ids = ids
        self._roll_bytes = roll_bytes
        self._accumulator = Accumulator(batch_bytes, buffer_bytes)
        self._uploads: dict[str, tuple[TopicState, TopicUpload]] = {}
        self._turns: dict[str, int] = {}
        self._next_sequences: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        """Return whether anything is buffered or uploaded and not yet taken."""
        return bool(self._accumulator) or bool(self._uploads)

    def add(self, topic: TopicState, table: pa.Table, partition: int | None) -> None:
        """Buffer the rows of one send; all or none of them."""
        pieces, turn = distribute(topic, table, partition, self._turns.get(topic.topic_id, 0))
        self._turns[topic.topic_id] = turn
        for number, piece in pieces:
            self._accumulator.add(topic, number, piece)

    def stream_full(self, born: int) -> None:
        """Write what is too much to hold to files."""
        self._write(self._accumulator.drain_full(), born)

    def has_full_batch(self) -> bool:
        """Return whether something was streamed to a file, or should be."""
        return bool(self._uploads)

    def _write(self, batches: Iterator[DrainedBatch], born: int) -> None:
        for batch in batches:
            topic = batch.topic
            if topic.topic_id not in self._uploads:
                upload = TopicUpload(
                    self._store,
                    self._ids,
                    directory=topic.directory,
                    schema=topic.schema,
                    born=born,
                    roll_bytes=self._roll_bytes,
                )
                self._uploads[topic.topic_id] = (topic, upload)
            self._uploads[topic.topic_id][1].add(batch.partition, batch.table)

    def take(self, born: int, *, sequenced: bool) -> tuple[TopicAppend, ...]:
        """Write everything, close the files, and return the appends that name them.

        Sequences are assigned here, once: the appends keep them whatever becomes of their commit.

        Parameters
        ----------
        sequenced : bool
            False for a producer without an identity.
        """
        self._write(self._accumulator.drain_all(), born)
        uploads, self._uploads = self._uploads, {}
        appends: list[TopicAppend] = []
        sequences = dict(self._next_sequences)  # none is spent when an upload fails half-way
        for topic, upload in uploads.values():
            uploaded = upload.finish()
            bases: dict[int, int] = {}
            for batch in uploaded.batches:
                key = TopicPartition(topic.topic_id, batch.partition)
                following = sequences.get(key, 0)
                bases.setdefault(batch.partition, following)
                sequences[key] = following + batch.records
            appends.append(
                topic_append(topic.topic_id, topic.partitions, uploaded, bases if sequenced else None)
            )
        named = with_batch_table(self._store, self._ids, born, appends)
        self._next_sequences = sequences
        return named

    def drop(self) -> None:
        """Forget what is buffered and drop open files; finished ones are left alone."""
        self._accumulator.clear()
        for _, upload in self._uploads.values():
            upload.abort()
        self._uploads = {}

    def restart_sequences(self) -> None:
        """Begin at 0 again: a new epoch."""
        self._next_sequences = {}
