"""Topics of a log into Kafka: records and the positions behind them in one Kafka transaction, so that each
record is there once, whatever dies when.

Two systems cannot commit in one step, so the positions that count are in Kafka: in a topic of positions,
written in the same transaction as the records. On start an older instance is fenced, which ends its
transaction; then the positions are read, and the log is read from there. The group in the log follows behind:
it is for people and metrics. docs/internals/adr/0041 has the table of failures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from txnformat.arguments import one_of, positive
from txnformat.client.identity import check_still_there
from txnformat.clock import Instant, waited_ms
from txnformat.consumers.consumer import Consumer
from txnformat.consumers.group_offsets import OffsetAndMetadata
from txnformat.core.state import TopicState
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    StorageError,
)
from txnformat.keys import check_reader_name
from txnformat.log import TxnLog, check_log
from txnformat.types import TopicPartition
from txnlog.kafka.messages import KafkaMessage, message_maker
from txnlog.kafka.places import Whenever
from txnlog.kafka.positions import Positions, decode_positions, encode_positions
from txnlog.kafka.routing import SAME, as_routes, as_topics
from txnlog.kafka.sink import TOPIC_SETTINGS, Sink

__all__ = ["ExportProgress", "ExportReport", "export_topics"]

logger = logging.getLogger("txnlog")

POLL_MS = 500
"""Longest wait for new records: an interrupt or a stop is seen as soon."""

MIRROR_MS = 10_000
"""How often the positions are copied into the group of the log."""

BACKOFF_S = 0.5
"""Wait before a session is begun again after Kafka could not be reached."""


class ExportProgress(NamedTuple):
    """How far an export is; given to ``progress`` after each commit."""

    records: int
    """Records that are in Kafka by now, from this call."""
    done: int
    """Offsets that were passed."""
    total: int
    """Offsets to pass, as known now."""


@dataclass(slots=True)
class ExportReport:
    """Result of an export."""

    group: str
    records: int = 0
    """Records that it has committed in Kafka."""
    commits: int = 0
    """Transactions in Kafka."""
    sessions: int = 0
    """How often it began: again after Kafka could not be reached."""
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    """Next offset of each partition of the log, by topic."""
    created: list[str] = field(default_factory=list)
    """Topics that the export created in Kafka."""


class _Settings(NamedTuple):
    group: str
    position_topic: str
    start: str | None
    on_lost: Whenever
    follow: bool
    create: bool
    batch_records: int
    patience_ms: int


STARTS = ("earliest", "latest", "group")


def export_topics(
    log: TxnLog,
    kafka: str | Mapping[str, Any],
    topics: str | Sequence[str] | Mapping[str, str],
    *,
    group: str = "kafka-export",
    follow: bool = False,
    partitions: str | Mapping[int, int] = SAME,
    start: str | None = None,
    on_lost: str = Whenever.STOP,
    create: bool = False,
    position_topic: str | None = None,
    batch_records: int = 10_000,
    patience_ms: int = 60_000,
    progress: Callable[[ExportProgress], object] | None = None,
    stop: threading.Event | None = None,
) -> ExportReport:
    """Export topics to Kafka, each committed record exactly once.

    Records are sent in Kafka transactions, each with the positions behind its records. So an export can die
    at any time: call it again with the same group to continue where it stopped; consumers in Kafka that read
    committed records see none lost and none doubled. A newer export of the group fences an older one.

    Parameters
    ----------
    kafka
        Addresses of brokers, or properties of librdkafka by name.
    topics
        Names in the log, or a mapping of them to names in Kafka. Of a topic with the schema "kafka": key,
        value, headers and timestamp. Of any other: each row as a JSON object, its key columns as the key.
    group
        Name of the export. Its transactional id in Kafka is ``txnlog-export.<group>``; the group of this name
        in the log has copies of its positions.
    follow
        Follow the topics. By default the export stops at the ends that the partitions had at the start.
    partitions
        "same": each record keeps the number of its partition. "key": by the key, as Kafka's Java client
        would. A mapping: number here to number in Kafka.
    start
        Where to begin when Kafka has no positions of the export: "earliest" (default of a new one), "latest",
        or "group": at the copies in the log.
    on_lost
        "stop": it is an error if the log has removed records that were not exported yet. "continue": skip to
        the earliest.
    create
        Create topics that Kafka does not have, with as many partitions as here.
    position_topic
        Topic in Kafka that keeps the positions; created if need be. By default ``txnlog-export.<group>``.
    batch_records
        About how many records a transaction has at most. An export that keeps up puts all records of a
        transaction of the log into one of Kafka, unless it is larger than this.
    patience_ms
        How long brokers may be gone.
    progress
        Called after each commit.
    stop
        When it is set, the export ends after its round, also if it follows.

    Returns
    -------
    ExportReport
        What was exported.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-topics``, ``invalid-partitions``, ``invalid-argument``, ``invalid-kafka-settings``,
        ``partition-without-place``, ``export-without-position``, ``kafka-record-too-large``,
        ``chunks-in-export``.
    NotFoundError
        Kinds ``unknown-topic``, ``unknown-kafka-topic`` (without ``create``).
    OffsetOutOfRangeError
        Kind ``offset-out-of-range``: a position is below the log start, or beyond the end of a log that was
        set back.
    ProducerFencedError
        A newer export of the group has begun.
    ConflictError
        Kind ``export-of-another-log``.
    StorageError
        Kinds ``kafka-unavailable``, ``kafka-denied``, ``kafka-failed``: what was committed stays; repeat the
        same call to continue.
    UnsupportedFeatureError
        Kind ``missing-package``.

    Notes
    -----
    Timestamps are cut to milliseconds, which is what Kafka has. Requests: those of reading; an entry for each
    copy of the positions, one in 10 s.
    """
    check_log(log, "export_topics")
    check_reader_name(group, "group")
    if start is not None and start not in STARTS:
        raise InvalidInputError(
            f"start is {start!r:.80}, not one of {', '.join(STARTS)}", kind="invalid-argument"
        )
    settings = _Settings(
        group,
        position_topic or f"txnlog-export.{group}",
        start,
        one_of(Whenever, "on_lost", on_lost),
        follow,
        create,
        positive("batch_records", batch_records),
        positive("patience_ms", patience_ms),
    )
    run = _Export(log, kafka, as_topics(topics), as_routes(partitions), settings)
    run.progress, run.stop = progress, stop or threading.Event()
    return run.run()


class _Export:
    """One export: sessions, each of which begins by finding out how far the ones before have come."""

    def __init__(
        self, log: TxnLog, kafka: object, topics: Mapping[str, str], routes: Any, settings: _Settings
    ) -> None:
        self._log, self._kafka, self._topics, self._routes, self._settings = (
            log,
            kafka,
            topics,
            routes,
            settings,
        )
        self._clock = log.committer.clock
        self._report = ExportReport(settings.group)
        self._moved = self._clock.now()
        self._mirrored: Instant | None = None
        self._ends: dict[tuple[str, int], int] = {}
        self._begun: dict[tuple[str, int], int] = {}
        self.progress: Callable[[ExportProgress], object] | None = None
        self.stop = threading.Event()

    def run(self) -> ExportReport:
        """Run sessions until one comes to the end. Each progress renews the patience."""
        state = self._log.refresh()
        for topic in self._topics:
            for number in range(state.topic(topic).partitions):
                self._ends[topic, number] = 0
        for topic in self._topics:
            for one in self._log.offsets(topic):
                self._ends[topic, one.partition] = one.last_stable_offset
        while True:
            try:
                self._session()
            except StorageError as error:
                if error.kind != "kafka-unavailable" or self.stop.is_set():
                    raise
                if waited_ms(self._moved, self._clock.now()) >= self._settings.patience_ms:
                    raise
                logger.warning("the export begins again: %s", error)
                self._clock.sleep(BACKOFF_S, self.stop)
            else:
                return self._report

    def _session(self) -> None:
        self._report.sessions += 1
        sink = Sink(
            self._kafka, f"txnlog-export.{self._settings.group}", self._clock, self._settings.patience_ms
        )
        self._prepare(sink)
        sink.open()  # from here on no older instance commits
        stored = sink.positions(self._settings.position_topic)
        known = None if stored is None else decode_positions(stored, self._log.log_id)
        consumer = Consumer(
            self._log,
            self._settings.group,
            auto_offset_reset="none",
            max_poll_records=self._settings.batch_records,
        )
        try:
            consumer.assign(list(self._ends))
            positions = self._place(consumer, known)
            self._rounds(sink, consumer, positions)
            for (topic, number), at in consumer.positions().items():
                self._report.positions.setdefault(topic, {})[number] = at
            self._mirror(consumer)
        finally:
            consumer.close()

    # --- before the first round -----------------------------------------------------------------------------

    def _prepare(self, sink: Sink) -> None:
        """See that Kafka has the topics, and that every record has a place there.

        Nothing is created when one has none.
        """
        state = self._log.refresh()
        own = self._settings.position_topic
        found = sink.topics([*self._topics.values(), own])
        problems, missing = [], []
        for source, target in self._topics.items():
            count = state.topic(source).partitions
            if target not in found:
                if not self._settings.create:
                    raise NotFoundError(
                        "the topic is not in Kafka",
                        kind="unknown-kafka-topic",
                        hint="create it, or let the export create it: create=True",
                        topic=target,
                    )
                missing.append((target, count))
            problems += self._routes.problems(source, range(count), found.get(target, count))
        if problems:
            raise InvalidInputError(
                sorted(problems),
                kind="partition-without-place",
                hint="nothing was exported; give the topic in Kafka more partitions, or set partitions=",
            )
        for target, count in missing:
            sink.create_topic(target, count, {})
            self._report.created.append(target)
        if own not in found:
            sink.create_topic(own, 1, TOPIC_SETTINGS)
            self._report.created.append(own)

    def _place(self, consumer: Consumer, known: Positions | None) -> Positions:
        """Set the consumer to the positions in Kafka, and return them, with those of topics that this call
        does not export.
        """
        state = self._log.refresh()
        copies = self._copies()
        if known is None and self._settings.start is None and copies:
            raise InvalidInputError(
                "the log knows positions of this export, and Kafka has none: its topic of positions was "
                "deleted, or this is another cluster",
                kind="export-without-position",
                hint='say where to begin, once: start="group" at the copies in the log, "earliest" or '
                '"latest"; or use another group',
                group=self._settings.group,
                position_topic=self._settings.position_topic,
            )
        positions: Positions = dict(known or {})
        for topic in self._topics:
            topic_id = state.topic(topic).topic_id
            mine = dict(positions.get(topic_id, {}))
            for one in self._log.offsets(topic):
                at = mine.get(one.partition)
                if at is None:
                    at = one.earliest if mine else self._start(one, copies.get((topic, one.partition)))
                elif not one.earliest <= at <= one.last_stable_offset:
                    at = self._outside(topic, one, at)
                mine[one.partition] = at
                consumer.seek(topic, one.partition, at)
                self._begun.setdefault((topic, one.partition), at)
            positions[topic_id] = mine
        return positions

    def _start(self, one: Any, copy: int | None) -> int:
        start = self._settings.start
        if start == "latest":
            return int(one.last_stable_offset)
        return copy if start == "group" and copy is not None else int(one.earliest)

    def _outside(self, topic: str, one: Any, at: int) -> int:
        gone = at < one.earliest
        if gone and self._settings.on_lost is Whenever.CONTINUE:
            logger.warning(
                "the log has removed offsets %d to %d of partition %d of %s before they were exported",
                *(at, one.earliest - 1, one.partition, topic),
            )
            return int(one.earliest)
        raise OffsetOutOfRangeError(
            "the log has removed records that were not exported yet"
            if gone
            else "more of the topic was exported than the log has: it was set back, or this is a copy of it",
            hint='on_lost="continue" skips to the earliest offset'
            if gone
            else "export the copy under another group",
            topic=topic,
            partition=one.partition,
            position=at,
            earliest=one.earliest,
            latest=one.last_stable_offset,
        )

    # --- the rounds -----------------------------------------------------------------------------------------

    def _rounds(self, sink: Sink, consumer: Consumer, positions: Positions) -> None:
        makers: dict[str, Callable[[Any], Iterator[KafkaMessage]]] = {}
        while not self.stop.is_set():
            batches = self._collect(consumer)
            messages = []
            for batch in batches:
                topic = batch.column("_topic")[0].as_py()
                if topic not in makers:
                    makers[topic] = self._maker(topic)
                messages.append(makers[topic](batch))
            if batches:
                self._write(sink, consumer, positions, messages, batches)
            if self._mirrored is None or waited_ms(self._mirrored, self._clock.now()) >= MIRROR_MS:
                if self._mirrored is not None:
                    check_still_there(self._log.committer)
                self._mirror(consumer)
            if not self._settings.follow and (not batches or self._is_done(consumer)):
                break

    def _maker(self, topic: str) -> Callable[[Any], Iterator[KafkaMessage]]:
        state: TopicState = self._log.refresh().topic(topic)
        return message_maker(state.schema, self._topics[topic], self._routes)

    def _collect(self, consumer: Consumer) -> list[Any]:
        """Return the records of the next transaction: all that are there, up to the limit."""
        found: list[Any] = []
        count = 0
        wait_ms = POLL_MS if self._settings.follow else 0
        while count < self._settings.batch_records and not self.stop.is_set():
            batch = consumer.poll(0 if found else wait_ms, self._settings.batch_records - count)
            if batch is None:
                break
            found.append(batch)
            count += batch.num_rows
        return found

    def _write(
        self,
        sink: Sink,
        consumer: Consumer,
        positions: Positions,
        messages: Sequence[Iterator[KafkaMessage]],
        batches: Sequence[Any],
    ) -> None:
        """Commit records and the positions behind them in one Kafka transaction."""
        state = self._log.state
        for (topic, number), at in consumer.positions().items():
            positions[state.topic(topic).topic_id][number] = at
        sink.begin()
        try:
            for made in messages:
                for message in made:
                    sink.send(message)
            value = encode_positions(self._log.log_id, positions)
            now_ms = self._clock.now().wall_ms
            key = self._settings.group.encode()
            sink.send(KafkaMessage(self._settings.position_topic, 0, key, value, None, now_ms))
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        report = self._report
        report.records += sum(batch.num_rows for batch in batches)
        report.commits += 1
        self._moved = self._clock.now()
        if self.progress is not None:
            done = {key: positions[state.topic(key[0]).topic_id][key[1]] for key in self._ends}
            total = sum(max(end, done[key]) - self._begun[key] for key, end in self._ends.items())
            self.progress(
                ExportProgress(report.records, sum(done[key] - self._begun[key] for key in done), total)
            )

    def _is_done(self, consumer: Consumer) -> bool:
        at = consumer.positions()
        return all(at[key] >= end for key, end in self._ends.items())

    def _copies(self) -> dict[tuple[str, int], int]:
        """Return the positions that the group of the log has."""
        state = self._log.refresh()
        group = state.groups.get(self._settings.group)
        found = {}
        for topic, number in self._ends:
            at = (
                None
                if group is None
                else group.committed.get(TopicPartition(state.topic(topic).topic_id, number))
            )
            if at is not None:
                found[topic, number] = int(at.value)
        return found

    def _mirror(self, consumer: Consumer) -> None:
        """Copy the positions into the group of the log.

        They are for people; what fails here is said, and no error.
        """
        self._mirrored = self._clock.now()
        at = consumer.positions()
        if self._copies() == at:
            return
        try:
            consumer.commit({key: OffsetAndMetadata(offset, "in Kafka") for key, offset in at.items()})
        except (ConflictError, StorageError) as error:
            logger.warning("the positions of the export are not copied into the log: %s", error)
