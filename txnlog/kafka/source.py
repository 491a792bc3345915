"""Partitions of Kafka topics, read from given offsets: a consumer without a group of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from txnformat.clock import Clock, waited_ms
from txnformat.errors import StorageError
from txnformat.types import IsolationLevel
from txnlog.kafka.failures import (
    as_config,
    client_logger,
    invalid_config,
    kafka_error,
    missing_package,
    passes,
    unavailable,
)
from txnlog.kafka.places import Bounds, Place, out_of_range
from txnlog.kafka.rows import KafkaRecord

try:
    from confluent_kafka import (
        TIMESTAMP_NOT_AVAILABLE,
        Consumer,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka import IsolationLevel as KafkaIsolation
    from confluent_kafka.admin import AdminClient, OffsetSpec
except ModuleNotFoundError as _error:
    raise missing_package(_error) from None

__all__ = ["Source", "TopicOfKafka"]

T = TypeVar("T")

RESERVED = {
    "group.id": "positions are kept in the log; give group=",
    "enable.auto.commit": "positions are kept in the log",
    "auto.offset.reset": "give start=, and on_lost=",
    "isolation.level": "give isolation=",
    "enable.partition.eof": "the import needs it",
}

PROBE_S = 10.0
"""Longest wait for one answer of a broker."""

QUIET_MS = 3_000
"""Silence after which the brokers are asked whether they are there."""


class TopicOfKafka(NamedTuple):
    """A topic as the brokers describe it."""

    topic_id: str
    partitions: list[int]


class Source:
    """Reads partitions.

    Parameters
    ----------
    kafka
        Address of a broker, or properties of the C client.
    patience_ms
        How long brokers may be gone before a call raises StorageError of kind ``kafka-unavailable``.
    """

    def __init__(self, kafka: object, isolation: IsolationLevel, clock: Clock, patience_ms: int) -> None:
        config = as_config(kafka, RESERVED)
        self._isolation = isolation
        self._clock = clock
        self._patience_ms = patience_ms
        own = {
            "group.id": "txnlog-import",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation.value,
            "enable.partition.eof": True,
        }
        more = {"queued.max.messages.kbytes": 65_536, "client.id": "txnlog-import"}
        try:
            self._admin = AdminClient({"client.id": "txnlog-import", **config}, logger=client_logger)
            self._consumer = Consumer({**more, **config, **own}, logger=client_logger)
        except (KafkaException, TypeError, ValueError) as error:
            raise invalid_config(error, config) from None
        self.ends: dict[Place, int] = {}
        """Offsets at which partitions end for now: what comes from there on is left out. Set by the caller.
        """
        self.reached: dict[Place, int] = {}
        """Next offset of each partition: behind all records that were handed out, and behind markers and gaps
        before the end."""
        self._heard = self._answered = clock.now()

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def describe(self, topics: Iterable[str]) -> tuple[str, dict[str, TopicOfKafka]]:
        """Return the id of the cluster, and the topics. Raises NotFoundError (``unknown-kafka-topic``)."""
        names = list(topics)
        return self._patiently(lambda: self._describe(names))

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again while no broker answers, until the patience is over."""
        begun = self._clock.now()
        while True:
            try:
                return ask()
            except StorageError as error:
                over = waited_ms(begun, self._clock.now()) >= self._patience_ms
                if error.kind != "kafka-unavailable" or over:
                    raise
                self._clock.sleep(0.2)

    def _describe(self, names: list[str]) -> tuple[str, dict[str, TopicOfKafka]]:
        try:
            cluster = self._admin.list_topics(topic=names[0], timeout=PROBE_S).cluster_id or "-"
            described = self._admin.describe_topics(TopicCollection(names), request_timeout=PROBE_S)
            found = {}
            for name in names:
                one = described[name].result()
                found[name] = TopicOfKafka(str(one.topic_id), sorted(each.id for each in one.partitions))
        except KafkaException as error:
            raise kafka_error(error, "topics cannot be described", topics=names) from None
        return cluster, found

    def bounds(self, places: Iterable[Place]) -> dict[Place, Bounds]:
        """Return what each partition holds, up to the last stable offset with ``read_committed``."""
        wanted = list(places)
        return self._patiently(lambda: self._bounds(wanted))

    def _bounds(self, wanted: list[Place]) -> dict[Place, Bounds]:
        level = (
            KafkaIsolation.READ_COMMITTED
            if self._isolation is IsolationLevel.READ_COMMITTED
            else KafkaIsolation.READ_UNCOMMITTED
        )
        found = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):
            asked = {TopicPartition(*place): spec for place in wanted}
            try:
                futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=PROBE_S)
                found.append(
                    {Place(at.topic, at.partition): one.result().offset for at, one in futures.items()}
                )
            except KafkaException as error:
                raise kafka_error(error, "offsets cannot be listed") from None
        return {place: Bounds(found[0][place], max(found[0][place], found[1][place])) for place in wanted}

    def assign(self, starts: Mapping[Place, int]) -> None:
        """Read these partitions, too, each from its offset on."""
        self.reached.update(starts)
        wanted = [TopicPartition(*place, offset) for place, offset in starts.items()]
        try:
            self._consumer.incremental_assign(wanted)
        except KafkaException as error:
            raise kafka_error(error, "partitions cannot be read") from None
        self._heard = self._answered = self._clock.now()

    @property
    def is_done(self) -> bool:
        """Whether every partition with an end has come to it."""
        return all(self.reached[place] >= end for place, end in self.ends.items())

    def take(self, records_max: int, wait_ms: int) -> list[KafkaRecord]:
        """Return the next records, at most so many; none when none come in time.

        Raises
        ------
        OffsetOutOfRangeError
            Kind ``kafka-offset-out-of-range``: the source has removed records before they were read.
        StorageError
            Kind ``kafka-unavailable`` after the patience.
        """
        try:
            messages = self._consumer.consume(records_max, wait_ms / 1000)
        except KafkaException as error:
            raise kafka_error(error, "records cannot be read") from None
        found = []
        for message in messages:
            if message.error() is not None:
                self._note(message)
                continue
            record = _record(message)
            place = Place(record.topic, record.partition)
            if record.offset >= self.ends.get(place, record.offset + 1):
                self._stop(place)
            else:
                self.reached[place] = record.offset + 1
                found.append(record)
        if messages:
            self._heard = self._clock.now()
        else:
            self._look()
        return found

    def _stop(self, place: Place) -> None:
        """Read no further in a partition: its end was passed."""
        self.reached[place] = max(self.reached[place], self.ends[place])
        self._consumer.pause([TopicPartition(*place)])

    def _note(self, message: Any) -> None:
        """Take note of the end of a partition, and raise an error that stays."""
        error = message.error()
        code = error.code()
        place = Place(message.topic() or "", message.partition() if message.partition() is not None else -1)
        if code == KafkaError._PARTITION_EOF:
            end = message.offset()
            self.reached[place] = max(self.reached[place], min(end, self.ends.get(place, end)))
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise out_of_range(*place, self.reached.get(place, 0), self.bounds([place])[place])
        elif error.fatal() or not (passes(error) or code in _PASSING):
            raise kafka_error(error, "records cannot be read", topic=place.topic, partition=place.partition)

    def _look(self) -> None:
        """Ask whether the brokers are there when they have been silent: the C client would wait for ever."""
        now = self._clock.now()
        silent_ms = waited_ms(self._heard, now)
        if self.ends and silent_ms >= self._patience_ms and not self.is_done:
            place = next(place for place, end in self.ends.items() if self.reached[place] < end)
            raise unavailable(
                "a partition has more records, and the brokers send none",
                topic=place.topic,
                partition=place.partition,
                position=self.reached[place],
                end=self.ends[place],
                silent_ms=silent_ms,
            )
        if waited_ms(self._answered, now) < QUIET_MS:
            return
        try:
            self._admin.list_topics(timeout=PROBE_S)
            self._answered = self._clock.now()
        except KafkaException as error:
            if waited_ms(self._answered, self._clock.now()) >= self._patience_ms:
                raise unavailable(
                    "no broker answers", silent_ms=silent_ms, kafka_error=error.args[0].name()
                ) from None


_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._STATE,
    }
)
"""Errors that the C client mends by itself."""


def _record(message: Any) -> KafkaRecord:
    kind, timestamp_ms = message.timestamp()
    headers, problem = None, None
    try:
        headers = message.headers()
    except (UnicodeDecodeError, KafkaException) as error:
        problem = f"the headers cannot be read: {error!s:.200}"
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
        message.key(),
        message.value(),
        headers,
        problem,
    )
