"""Topics of Kafka into a log: records and the positions behind them in one commit, so that each record is
there once, whatever dies when.

An import is a loop of rounds. A round takes records, and writes them in one transaction together with the
next offset of each partition, as positions of a group that must still be what they were. On start the
producer fences an older instance of the import; then the positions are read from the log, and the source is
read from there.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from txnformat.arguments import one_of, positive
from txnformat.client.identity import check_still_there
from txnformat.clock import Clock, steady_ms, waited_ms
from txnformat.core.state import TopicState
from txnformat.errors import InvalidInputError, NotFoundError, StorageError
from txnformat.keys import check_reader_name
from txnformat.log import TxnLog, check_log
from txnformat.types import IsolationLevel
from txnlog.kafka.decoding import Format, as_format
from txnlog.kafka.pace import Pace, pace
from txnlog.kafka.places import (
    Lost,
    Place,
    Position,
    Start,
    Whenever,
    begin,
    position_name,
    positions_of,
)
from txnlog.kafka.routing import SAME, as_routes, as_topics
from txnlog.kafka.rows import DEAD_LETTERS, KafkaRecord, Rows, dead_letters
from txnlog.kafka.schemas import Registry, decode_with
from txnlog.kafka.sending import send, undecodable
from txnlog.kafka.source import Source, TopicOfKafka
from txnlog.rounds import abort, commit
from writers.producer import Producer

__all__ = ["ImportProgress", "ImportReport", "import_topics"]

logger = logging.getLogger("txnlog")

MIB = 1024 * 1024

POLL_MS = 200
"""Longest wait of one poll of the source: an interrupt or a stop is seen as soon."""

METADATA_MS = 30_000
"""How often a following import looks for new partitions, and whether topics are still the same."""

KEEP_MS = 24 * 3_600_000
"""A following import without news commits its positions again after this time: a group without use is
forgotten."""

TAKE_MAX = 10_000
"""Most records that are taken from the source at once."""


class ImportProgress(NamedTuple):
    """How far an import is; given to ``progress`` after each commit."""

    records: int
    """Records that are in the log by now, from this call."""
    done: int
    """Offsets that were passed."""
    total: int
    """Offsets to pass, as known now."""


@dataclass(slots=True)
class ImportReport:
    """Result of an import."""

    group: str
    records: int = 0
    """Records that it wrote."""
    bytes: int = 0
    """Their keys, values and headers."""
    commits: int = 0
    dead_letters: int = 0
    """Records that could not be imported, and went to the topic of dead letters."""
    lost: list[Lost] = field(default_factory=list)
    """Offsets that Kafka had removed before they were imported, with ``on_lost="continue"``."""
    positions: dict[str, dict[int, int]] = field(default_factory=dict)
    """Next offset of each partition in Kafka, by topic."""
    created: list[str] = field(default_factory=list)
    """Topics that the import created in the log."""


class _Settings(NamedTuple):
    group: str
    start: Start | None
    on_lost: Whenever
    dead_letter_topic: str | None
    follow: bool
    create: bool
    batch_records: int
    batch_bytes: int
    commit_interval_ms: int


def import_topics(
    log: TxnLog,
    kafka: str | Mapping[str, Any],
    topics: str | Sequence[str] | Mapping[str, str],
    *,
    group: str = "kafka-import",
    follow: bool = False,
    isolation: str | IsolationLevel = IsolationLevel.READ_COMMITTED,
    partitions: str | Mapping[int, int] = SAME,
    start: str | None = None,
    on_lost: str = Whenever.STOP,
    value_format: str = Format.RAW,
    key_format: str = Format.RAW,
    registry: str | Mapping[str, Any] | None = None,
    value_schema: str | Path | None = None,
    value_message: str | None = None,
    key_schema: str | Path | None = None,
    key_message: str | None = None,
    ignore_unknown_fields: bool = False,
    dead_letter_topic: str | None = None,
    create: bool = True,
    records_per_second: float | None = None,
    bytes_per_second: float | None = None,
    batch_records: int = 50_000,
    batch_bytes: int = 64 * MIB,
    commit_interval_ms: int = 5_000,
    patience_ms: int = 60_000,
    progress: Callable[[ImportProgress], object] | None = None,
    stop: threading.Event | None = None,
) -> ImportReport:
    """Import topics of Kafka, each record exactly once.

    The next offset of each partition is committed with its records, as a foreign position of ``group``. So an
    import can die at any time: call it again with the same group to continue where it stopped. Records are
    neither lost nor doubled. A newer import of the group fences an older one.

    Parameters
    ----------
    kafka
        Addresses of brokers, or properties of librdkafka by name (``{"bootstrap.servers": …,
        "security.protocol": …}``).
    topics
        Names in Kafka, or a mapping of them to names in the log.
    group
        Name of the import in the log. Its producer is ``kafka-import.<group>``.
    follow
        Follow the topics. By default the import stops at the ends that the partitions had at the start.
    isolation
        "read_committed": up to the last stable offset, without what was aborted. "read_uncommitted":
        everything.
    partitions
        "same": each record keeps the number of its partition. "key": by the key, as a producer of this log
        would. A mapping: number in Kafka to number here.
    start
        "earliest" or "latest": where to begin without a position, if the topic of the log has records
        already. Not needed otherwise.
    on_lost
        "stop": it is an error if Kafka has removed records that were not imported yet, or replaced the topic.
        "continue": skip to the next offset that exists; the report says what is missing.
    value_format, key_format
        "raw" (bytes), "text", "json", "avro", "protobuf". Fields of a decoded value go to the columns of the
        same name.
    registry
        URL of a schema registry, or properties of its client: Avro and Protobuf are then in its wire format.
    value_schema, key_schema
        In place of a registry: a file with an Avro schema, a ``.proto`` file, or one with Protobuf
        descriptors.
    value_message, key_message
        Full name of the message in such a file, if it has several.
    ignore_unknown_fields
        Leave out fields that the topic has no column for. By default a record with one is not imported.
    dead_letter_topic
        Topic of the log for records that cannot be imported; created if need be. By default such a record
        stops the import, before anything of its round is written.
    create
        Create topics that the log does not have: with the schema "kafka", columns for the place in Kafka, and
        as many partitions. Only for raw values.
    records_per_second, bytes_per_second
        Limits of the rate.
    batch_records, batch_bytes, commit_interval_ms
        A transaction is committed when it has so many records or bytes, or after this time.
    patience_ms
        How long brokers may be gone.
    progress
        Called after each commit.
    stop
        When it is set, the import ends after its round, also if it follows.

    Returns
    -------
    ImportReport
        What was imported.

    Raises
    ------
    InvalidInputError
        Kinds ``invalid-topics``, ``invalid-partitions``, ``invalid-argument``, ``invalid-kafka-settings``,
        ``invalid-registry``, ``invalid-schema``, ``unmappable-schema``, ``partition-without-place``,
        ``import-without-position``; kind ``undecodable-record``: a record does not decode, or does not fit
        the topic.
    NotFoundError
        Kinds ``unknown-kafka-topic``, ``kafka-topic-replaced``, ``unknown-topic`` (without ``create``).
    OffsetOutOfRangeError
        Kind ``kafka-offset-out-of-range``; names earliest and latest.
    StorageError
        Kinds ``kafka-unavailable``, ``kafka-denied``, ``kafka-failed``, ``registry-unavailable``: rounds that
        were committed stay; repeat the same call to continue.
    ProducerFencedError
        A newer import of the group has begun.
    UnsupportedFeatureError
        Kind ``missing-package``.

    Notes
    -----
    Requests: an entry to begin, and 1 file and 1 entry for each commit; an entry for each topic that is
    created.
    """
    check_log(log, "import_topics")
    settings = _Settings(
        check_reader_name(group, "group") or group,
        None if start is None else one_of(Start, "start", start),
        one_of(Whenever, "on_lost", on_lost),
        dead_letter_topic,
        follow,
        create,
        positive("batch_records", batch_records),
        positive("batch_bytes", batch_bytes),
        positive("commit_interval_ms", commit_interval_ms),
    )
    values, keys = as_format("value_format", value_format), as_format("key_format", key_format)
    client = None if registry is None else Registry(registry)
    decode_value = decode_with(values, client, value_schema, value_message)
    decode_key = decode_with(keys, client, key_schema, key_message)

    def rows_for(topic: TopicState) -> Rows:
        schema = topic.schema.arrow_schema
        return Rows(schema, values, keys, decode_value, decode_key, ignore_unknown_fields)

    source = Source(
        kafka,
        one_of(IsolationLevel, "isolation", isolation),
        log.committer.clock,
        positive("patience_ms", patience_ms),
    )
    try:
        run = _Import(log, source, as_topics(topics), as_routes(partitions), settings, rows_for)
        run.paces = (
            pace("records_per_second", records_per_second),
            pace("bytes_per_second", bytes_per_second),
        )
        run.is_raw = values is Format.RAW
        run.progress = progress
        run.stop = stop or threading.Event()
        return run.run()
    finally:
        source.close()


class _Import:
    """One import: its rounds."""

    def __init__(
        self,
        log: TxnLog,
        source: Source,
        topics: Mapping[str, str],
        routes: Any,
        settings: _Settings,
        rows_for: Callable[[TopicState], Rows],
    ) -> None:
        self._log, self._source, self._topics, self._routes = log, source, topics, routes
        self._settings, self._rows_for = settings, rows_for
        self._clock: Clock = log.committer.clock
        self._rows: dict[str, Rows] = {}
        self._ids: dict[str, str] = {}
        self._cluster = ""
        self._committed: dict[Place, str | None] = {}
        """Text of each position as the log has it."""
        self._begun: dict[Place, int] = {}
        self._mean = 4_096
        """Bytes of a record, as in the last transaction."""
        self._report = ImportReport(settings.group)
        self.paces: tuple[Pace, Pace] = (Pace(None), Pace(None))
        self.is_raw = True
        self.progress: Callable[[ImportProgress], object] | None = None
        self.stop = threading.Event()

    def run(self) -> ImportReport:
        """Import until the end, or until it is stopped."""
        self._cluster, found = self._source.describe(self._topics)
        self._prepare(found)
        with Producer(
            self._log, f"kafka-import.{self._settings.group}"
        ) as producer:  # fences the older instance
            self._place(found)
            self._rounds(producer)
        for place, offset in self._source.reached.items():
            self._report.positions.setdefault(place.topic, {})[place.partition] = offset
        return self._report

    # --- before the first round -----------------------------------------------------------------------------

    def _prepare(self, found: Mapping[str, TopicOfKafka]) -> None:
        """See that the log has the topics, and that every record has a place there.

        Nothing is created when one has none.
        """
        state = self._log.refresh()
        problems, missing = [], []
        for source, target in self._topics.items():
            partitions = found[source].partitions
            if target not in state.topic_ids:
                if not self._settings.create:
                    state.topic(target)  # raises
                if not self.is_raw:
                    raise NotFoundError(
                        "the log does not have the topic, and only topics of raw records are created",
                        kind="unknown-topic",
                        hint="create it with a column for each field of the value",
                        topic=target,
                    )
                missing.append((target, len(partitions)))
                problems += self._routes.problems(source, partitions, len(partitions))
            else:
                problems += self._routes.problems(source, partitions, state.topic(target).partitions)
        if problems:
            raise InvalidInputError(
                sorted(problems),
                kind="partition-without-place",
                hint="nothing was imported; give the topic of the log more partitions, or set partitions=",
            )
        for target, count in missing:
            _create_raw(self._log, target, count)
            self._report.created.append(target)
        dead = self._settings.dead_letter_topic
        if dead is not None and dead not in state.topic_ids:
            self._log.create_topic(
                dead, DEAD_LETTERS, key_columns=["key"], timestamp_column="timestamp", exist_ok=True
            )
            self._report.created.append(dead)

    def _place(self, found: Mapping[str, TopicOfKafka]) -> None:
        """Find where each partition begins.

        Behind the producer's opening: no older instance commits any more.
        """
        for source, target in self._topics.items():
            topic = self._log.refresh().topic(target)
            self._rows[source] = self._rows_for(topic)
            self._ids[source] = found[source].topic_id
            self._add(source, found[source].partitions)

    def _add(self, source: str, partitions: Sequence[int]) -> None:
        state = self._log.refresh()
        group = state.groups.get(self._settings.group)
        committed = (
            {}
            if group is None
            else {str(key): one.value for key, one in group.committed.items() if isinstance(key, str)}
        )
        known = positions_of(committed, self._cluster, source)
        places = [Place(source, number) for number in partitions]
        bounds = self._source.bounds(places)
        ends = [one.log_end for one in self._log.offsets(self._topics[source])]
        starts, lost = begin(
            source,
            self._ids[source],
            {place.partition: held for place, held in bounds.items()},
            known,
            start=self._settings.start,
            on_lost=self._settings.on_lost,
            target_is_empty=not any(ends),
        )
        self._report.lost += lost
        for one in lost:
            logger.warning(
                "Kafka has removed offsets %d to %d of partition %d of %s before they were imported",
                *(one.first, one.end - 1, one.partition, one.topic),
            )
        for place in places:
            at = known.get(place.partition)
            self._committed[place] = None if at is None else at.text()
            self._begun[place] = starts[place.partition]
            if not self._settings.follow:
                self._source.ends[place] = bounds[place].latest
        self._source.assign({place: starts[place.partition] for place in places})

    # --- the rounds -----------------------------------------------------------------------------------------

    def _rounds(self, producer: Producer) -> None:
        looked = kept = self._clock.now()
        while not self.stop.is_set():
            records = self._collect()
            if records:
                self._write(producer, records)
                kept = self._clock.now()
            if not self._settings.follow and self._source.is_done:
                break
            now = self._clock.now()
            if self._settings.follow and waited_ms(looked, now) >= METADATA_MS:
                check_still_there(self._log.committer)
                self._look_again()
                looked = now
            if waited_ms(kept, now) >= KEEP_MS:
                self._write(producer, [], keeps=True)
                kept = now
        self._check_same()
        self._write(producer, [])  # positions behind markers and gaps

    def _collect(self) -> list[KafkaRecord]:
        """Return the records of the next transaction; none if none come in time."""
        found: list[KafkaRecord] = []
        size = 0
        begun = self._clock.now()
        while not self.stop.is_set():
            now = self._clock.now()
            waits = max(limit.wait_ms(steady_ms(now)) for limit in self.paces)
            if waits > 0:
                self._clock.sleep(min(waits, POLL_MS) / 1000, self.stop)
            else:
                more = self._source.take(self._count(len(found), size), POLL_MS)
                grown = sum(record.size for record in more)
                found += more
                size += grown
                for limit, count in zip(self.paces, (len(more), grown), strict=True):
                    limit.passed(count, steady_ms(now))
                if not found or (self._source.is_done and not self._settings.follow):
                    break
            if len(found) >= self._settings.batch_records or size >= self._settings.batch_bytes:
                break
            if found and waited_ms(begun, self._clock.now()) >= self._settings.commit_interval_ms:
                break
        self._mean = size // len(found) if found else self._mean
        return found

    def _count(self, have: int, size: int) -> int:
        """Return how many records to take at once: as many as probably fit, and under a limit what passes in
        a tenth of a second.
        """
        left = min(
            self._settings.batch_records - have, (self._settings.batch_bytes - size) // max(1, self._mean)
        )
        records, size_limit = (limit.per_second for limit in self.paces)
        if records is not None:
            left = min(left, int(records / 10))
        if size_limit is not None:
            left = min(left, int(size_limit / 10 / max(1, self._mean)))
        return max(1, min(left, TAKE_MAX))

    def _write(self, producer: Producer, records: Sequence[KafkaRecord], *, keeps: bool = False) -> None:
        """Commit records and the positions behind them, in one transaction."""
        texts = {
            place: Position(at, self._ids[place.topic]).text() for place, at in self._source.reached.items()
        }
        changed = {place: text for place, text in texts.items() if keeps or text != self._committed[place]}
        if not changed:
            return
        report = self._report
        producer.begin()
        try:
            good, bad = self._send_all(producer, records)
            producer.send_offsets(
                self._settings.group,
                positions={position_name(self._cluster, place): text for place, text in changed.items()},
                expected_positions={
                    position_name(self._cluster, place): self._committed[place] for place in changed
                },
            )
            commit(producer)
        except BaseException:
            abort(producer)
            raise
        self._committed.update(changed)
        report.records += good
        report.dead_letters += bad
        report.bytes += sum(record.size for record in records)
        report.commits += 1
        if self.progress is not None:
            ends = {**self._source.reached, **self._source.ends}
            done = sum(self._source.reached[place] - begun for place, begun in self._begun.items())
            total = sum(max(0, ends[place] - begun) for place, begun in self._begun.items())
            self.progress(ImportProgress(report.records, done, total))

    def _send_all(self, producer: Producer, records: Sequence[KafkaRecord]) -> tuple[int, int]:
        """Send records, each partition's in its order, and return how many, and how many dead letters."""
        groups: dict[Place, list[KafkaRecord]] = defaultdict(list)
        for record in records:
            groups[Place(record.topic, record.partition)].append(record)
        bad: list[tuple[KafkaRecord, str]] = []
        for place, group in groups.items():
            made = self._rows[place.topic].rows(group)
            if made.bad and self._settings.dead_letter_topic is None:
                raise undecodable(*made.bad[0])
            target = self._topics[place.topic], self._routes.target(place.partition)
            refused = send(producer, *target, made.rows, made.records)
            if refused and self._settings.dead_letter_topic is None:
                raise undecodable(*refused[0])
            bad += made.bad + refused
        if bad:
            bad.sort(key=lambda one: (one[0].topic, one[0].partition, one[0].offset))
            producer.send(self._settings.dead_letter_topic or "", dead_letters(bad))
        return len(records) - len(bad), len(bad)

    # --- looking around -------------------------------------------------------------------------------------

    def _look_again(self) -> None:
        """Read partitions that topics have got since, too.

        Brokers that are gone for a while are no error here.
        """
        try:
            now = self._check_same()
        except StorageError as error:
            if error.kind != "kafka-unavailable":
                raise
            return
        for name, one in now.items():
            known = {place.partition for place in self._begun if place.topic == name}
            new = [number for number in one.partitions if number not in known]
            if new:
                target = self._log.refresh().topic(self._topics[name])
                problems = self._routes.problems(name, new, target.partitions)
                if problems:
                    raise InvalidInputError(
                        problems,
                        kind="partition-without-place",
                        hint="Kafka has more partitions now: give the topic of the log more, too",
                    )
                self._add(name, new)

    def _check_same(self) -> dict[str, TopicOfKafka]:
        """Return the topics as they are now. Raises NotFoundError (``kafka-topic-replaced``)."""
        _, found = self._source.describe(self._topics)
        for name, one in found.items():
            if one.topic_id != self._ids[name]:
                raise NotFoundError(
                    "the topic was deleted in Kafka and created again while it was imported",
                    kind="kafka-topic-replaced",
                    hint="what was imported is in the log; import the new topic under another group",
                    topic=name,
                    topic_id=one.topic_id,
                    expected=self._ids[name],
                )
        return found


def _create_raw(log: TxnLog, name: str, partitions: int) -> None:
    import pyarrow as pa

    log.create_topic(name, "kafka", partitions=partitions, exist_ok=True)
    have = log.refresh().topic(name).schema.arrow_schema.names
    more = [pa.field("kafka_partition", pa.int32()), pa.field("kafka_offset", pa.int64())]
    wanted = [one for one in more if one.name not in have]
    if wanted:
        log.alter_topic(name, add_columns=wanted)
