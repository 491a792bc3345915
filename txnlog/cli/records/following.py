"""Records as a consumer reads them: ``consume --follow`` waits for more, ``consume --group`` commits
positions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from txnformat.client.identity import check_still_there, explaining

if TYPE_CHECKING:
    import pyarrow as pa

    from txnformat.consumers.consumer import Consumer
    from txnformat.core.topics.schema import TopicSchema
    from txnformat.log import TxnLog
    from txnformat.predicates.tree import Predicate

__all__ = ["Following", "followed"]

WAIT_MS = 5_000
"""Longest time of one poll, ms: a signal ends it at once. After a poll without records the log is
looked up."""
RECORDS_MAX = 10_000
"""Most records of a batch."""
COMMIT_INTERVAL_MS = 5_000
"""Shortest time between two commits of a group's positions, ms, as in Kafka's console consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """The records that a consumer is to read."""

    topic: str
    group: str | None
    waits: bool
    """Whether to wait for more records when there are none left."""
    isolation: str
    start: int | Mapping[int, int] | None
    """First offset of every partition, or of some."""
    partitions: Sequence[int] | None
    columns: Sequence[str] | None
    """The columns to show. If None, the topic's own, also those that it gets later."""
    where: str | None
    limit: int | None


@contextmanager
def followed(log: TxnLog, wanted: Following) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Give the schema of records and their batches, without end if ``wanted.waits``. A batch counts as
    written when the next one is asked for.

    The group's positions are committed every few seconds and at the end: behind what is written. An interrupt
    ends the batches without an error.
    """
    from txnformat.consumers.consumer import Consumer
    from txnformat.reading.rows import output_schema

    schema = output_schema(log.state.topic(wanted.topic).schema, wanted.columns)
    consumer = Consumer(
        log,
        wanted.group,
        isolation=wanted.isolation,
        enable_auto_commit=wanted.group is not None,
        auto_commit_interval_ms=COMMIT_INTERVAL_MS,
        max_poll_records=RECORDS_MAX,
        columns=_read_columns(log, wanted),
    )
    reading = _Reading(log, consumer, wanted)
    try:
        with consumer:
            reading.begin()
            try:
                yield schema, reading.batches()
            except KeyboardInterrupt:
                if reading.written:
                    consumer.commit(reading.written)
                raise  # a batch that is not written is for the next reader of the group
    except KeyboardInterrupt:
        if not wanted.waits:
            raise


class _Reading:
    def __init__(self, log: TxnLog, consumer: Consumer, wanted: Following) -> None:
        self._log = log
        self._consumer = consumer
        self._wanted = wanted
        self._filter: tuple[TopicSchema, Predicate] | None = None
        self.written: dict[tuple[str, int], int] = {}
        """Positions of the group behind all that is written."""

    def begin(self) -> None:
        """Choose partitions and places. Raises InvalidInputError and NotFoundError."""
        wanted, topic = self._wanted, self._log.state.topic(self._wanted.topic)
        if wanted.where is not None:
            self._predicate(wanted.where)
        if wanted.partitions is None and wanted.start is None:
            self._consumer.subscribe([wanted.topic])
            return
        numbers = range(topic.partitions) if wanted.partitions is None else wanted.partitions
        self._consumer.assign([(wanted.topic, number) for number in numbers])
        starts = wanted.start if isinstance(wanted.start, Mapping) else dict.fromkeys(numbers, wanted.start)
        for number, offset in starts.items():
            if offset is not None:
                self._consumer.seek(wanted.topic, number, offset)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield what is wanted."""
        left = self._wanted.limit
        while left is None or left > 0:
            most = RECORDS_MAX if left is None else min(left, RECORDS_MAX)
            with explaining(self._log.committer):
                batch = self._consumer.poll(WAIT_MS if self._wanted.waits else 0, most)
            if batch is None:
                if self._wanted.waits:
                    check_still_there(self._log.committer)
                    continue
                return
            batch = self._shown(batch)
            left = None if left is None else left - batch.num_rows
            yield batch
            sys.stdout.flush()
            if self._wanted.group is not None:
                self.written = self._consumer.positions()

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        where, columns = self._wanted.where, self._wanted.columns
        if where is not None:
            predicate = self._predicate(where)
            arrays = {name: batch.column(name) for name in predicate.columns}
            batch = batch.filter(predicate.mask(arrays, batch.num_rows))
        own = self._schema().arrow_schema.names if columns is None else columns
        return batch.select([name for name in own if columns is not None or name in batch.schema.names])

    def _predicate(self, where: str) -> Predicate:
        """Return what the condition means for the topic as it is now."""
        from txnformat.reading.plan import topic_predicate

        schema = self._schema()
        if self._filter is None or self._filter[0] is not schema:
            self._filter = schema, topic_predicate(where, schema)
        return self._filter[1]

    def _schema(self) -> TopicSchema:
        return self._log.state.topic(self._wanted.topic).schema


def _read_columns(log: TxnLog, wanted: Following) -> list[str] | None:
    """Return the columns to read: those to show, and those of the condition. None: all, and
    METADATA_COLUMNS.
    """
    from txnformat.consumers.fetching import METADATA_COLUMNS
    from txnformat.reading.plan import topic_predicate
    from txnformat.reading.rows import METADATA_FIELDS

    schema = log.state.topic(wanted.topic).schema
    needed = () if wanted.where is None else topic_predicate(wanted.where, schema).columns
    others = set(needed) & METADATA_FIELDS.keys() - set(METADATA_COLUMNS)
    if wanted.columns is None and not others:
        return None
    names = schema.arrow_schema.names if wanted.columns is None else wanted.columns
    return list(dict.fromkeys((*names, *needed)))
