"""A transactional producer of Kafka, and the topic in which an export keeps its positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from txnformat.clock import Clock, waited_ms
from txnformat.errors import InvalidInputError, TxnLogError
from txnlog.kafka.failures import (
    as_config,
    client_logger,
    invalid_config,
    kafka_error,
    missing_package,
    passes,
    unavailable,
)
from txnlog.kafka.messages import KafkaMessage
from txnlog.kafka.positions import window_starts

try:
    from confluent_kafka import (
        Consumer,
        KafkaError,
        KafkaException,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka import IsolationLevel as KafkaIsolation
    from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
except ModuleNotFoundError as _error:
    raise missing_package(_error) from None

__all__ = ["TOPIC_SETTINGS", "Sink"]

RESERVED = {
    "transactional.id": "it is that of the export; give group=",
    "enable.idempotence": "the export needs it",
    "acks": "the export needs all",
    "partitioner": "give partitions=",
}

STEP_S = 10.0
"""Longest wait for one answer of a broker; the patience decides how often it is asked again."""

TOPIC_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
"""Settings of the topic of positions: nothing but its last record is needed, and that never expires."""


_NO_LEADER = frozenset({KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
"""Errors of a topic that was created a moment ago."""


def _cause(error: Exception) -> Any:
    """Return the client's own error: Python says SystemError when a callback ran after the client had raised
    it.
    """
    if isinstance(error, KafkaException):
        return error
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    raise error


def _failure(error: Any, what: str) -> TxnLogError:
    """Return the error of a transaction; one that only ends this producer, and not the right to write, is
    mended by another session.
    """
    found, cause = kafka_error(error, what), error.args[0]
    if found.kind == "kafka-failed" and (cause.fatal() or cause.txn_requires_abort()):
        return unavailable(found.what, **found.values)
    return found


class Sink:
    """Sends records in transactions.

    Parameters
    ----------
    transactional_id
        Of the export: a newer instance fences an older one.
    patience_ms
        How long brokers may be gone before a call raises StorageError of kind ``kafka-unavailable``.
    """

    def __init__(self, kafka: object, transactional_id: str, clock: Clock, patience_ms: int) -> None:
        config = as_config(kafka, RESERVED)
        own = {"transactional.id": transactional_id, "partitioner": "murmur2_random"}
        more = {"client.id": "txnlog-export", "linger.ms": 20, "compression.type": "zstd"}
        self._clock, self._patience_ms = clock, patience_ms
        self._config = config
        try:
            self._admin = self._new_admin()
            self._producer = Producer({**more, **config, **own}, logger=client_logger)
        except (KafkaException, TypeError, ValueError) as error:
            raise invalid_config(error, config) from None

    def _new_admin(self) -> Any:
        return AdminClient({"client.id": "txnlog-export", **self._config}, logger=client_logger)

    def topics(self, names: Iterable[str]) -> dict[str, int]:
        """Return how many partitions each topic has; topics that Kafka does not have are left out."""
        wanted = list(names)
        described = self._asked(
            lambda: self._admin.describe_topics(TopicCollection(wanted), request_timeout=STEP_S),
            "topics cannot be described",
        )
        found = {}
        for name in wanted:
            try:
                found[name] = len(described[name].result().partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise kafka_error(error, "topics cannot be described", topic=name) from None
        return found

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic with the brokers' replication factor; one that is there meanwhile is no error."""
        new = NewTopic(name, partitions, -1, config=dict(settings))
        try:
            self._admin.create_topics([new], operation_timeout=STEP_S, request_timeout=STEP_S)[name].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise kafka_error(error, "a topic cannot be created", topic=name) from None

    # --- transactions ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Fence older instances; their transactions have ended when this returns, also one whose commit had
        begun.
        """
        self._repeated(self._producer.init_transactions, "the producer cannot begin")

    def begin(self) -> None:
        """Begin a transaction."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise _failure(error, "a transaction cannot begin") from None

    def send(self, message: KafkaMessage) -> None:
        """Add a record to the transaction; whether it has arrived is known with the commit.

        Raises InvalidInputError (``kafka-record-too-large``).
        """
        while True:
            try:
                self._producer.produce(
                    message.topic,
                    message.value,
                    message.key,
                    -1 if message.partition is None else message.partition,
                    timestamp=message.timestamp_ms,
                    headers=message.headers,
                )
            except BufferError:
                self._poll(0.1)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise InvalidInputError(
                        "a record is larger than Kafka takes",
                        kind="kafka-record-too-large",
                        hint="raise message.max.bytes here, and max.message.bytes of the topic in Kafka",
                        topic=message.topic,
                        size=len(message.key or b"") + len(message.value or b""),
                    ) from None
                raise _failure(error, "a record cannot be sent") from None
            else:
                self._poll(0)
                return

    def _poll(self, seconds: float) -> None:
        """Serve the C client.

        An error that ends the producer comes up here, when another client has fenced it.
        """
        try:
            self._producer.poll(seconds)
        except (KafkaException, SystemError) as error:
            raise _failure(_cause(error), "records cannot be sent") from None

    def commit(self) -> None:
        """Commit.

        Raises StorageError (``kafka-unavailable``): the outcome is not known; the next :meth:`open` settles
        it.
        """
        self._repeated(self._producer.commit_transaction, "the transaction cannot be committed")

    def abort(self) -> None:
        """Abort the transaction. A failure is no error: the next :meth:`open` aborts it."""
        try:
            self._producer.abort_transaction(STEP_S)
        except (KafkaException, SystemError) as error:
            client_logger.info("a transaction could not be aborted: %s", error)

    def _repeated(self, call: Any, what: str) -> None:
        """Call until the answer is no time-out, or the patience is over."""
        begun = self._clock.now()
        while True:
            try:
                call(STEP_S)
            except (KafkaException, SystemError) as raised:
                error = _cause(raised)
                over = waited_ms(begun, self._clock.now()) >= self._patience_ms
                if over or not error.args[0].retriable() or error.args[0].txn_requires_abort():
                    raise _failure(error, what) from None
            else:
                return

    def _asked(self, ask: Any, what: str) -> Any:
        try:
            return ask()
        except KafkaException as error:
            raise kafka_error(error, what) from None

    # --- positions ------------------------------------------------------------------------------------------

    def positions(self, topic: str) -> bytes | None:
        """Return the value of the last committed record of a topic of positions; None: it has none.

        After :meth:`open`.
        """
        begun = self._clock.now()
        while True:
            earliest = self._offset(topic, OffsetSpec.earliest(), KafkaIsolation.READ_UNCOMMITTED)
            end = self._offset(topic, OffsetSpec.latest(), KafkaIsolation.READ_UNCOMMITTED)
            if self._offset(topic, OffsetSpec.latest(), KafkaIsolation.READ_COMMITTED) >= end:
                break
            if waited_ms(begun, self._clock.now()) >= self._patience_ms:
                raise unavailable(
                    "a transaction in the topic of positions does not end: another program writes there",
                    topic=topic,
                )
            self._clock.sleep(0.05)
        if earliest == end:
            return None
        consumer = Consumer(
            {
                "client.id": "txnlog-export",
                **self._config,
                "group.id": "txnlog-export",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            },
            logger=client_logger,
        )
        try:
            for start in window_starts(earliest, end):
                found = self._last(consumer, topic, start, end)
                if found is not None:
                    value: bytes | None = found.value()
                    return value
        except KafkaException as error:
            raise kafka_error(error, "positions cannot be read", topic=topic) from None
        finally:
            consumer.close()
        return None

    def _offset(self, topic: str, spec: Any, isolation: Any) -> int:
        """Return an offset of the partition, once it has a leader: one that was just created may have none
        yet.
        """
        at, begun = TopicPartition(topic, 0), self._clock.now()
        while True:
            try:
                asked = self._admin.list_offsets(
                    {at: spec}, isolation_level=isolation, request_timeout=STEP_S
                )
                offset: int = asked[at].result().offset
            except KafkaException as error:
                found = error.args[0]
                is_passing = passes(found) or found.code() in _NO_LEADER
                if not is_passing or waited_ms(begun, self._clock.now()) >= self._patience_ms:
                    raise kafka_error(error, "offsets cannot be listed", topic=topic) from None
                self._clock.sleep(0.05)
                self._admin = self._new_admin()  # it remembers for long that there was no such topic
            else:
                return offset

    def _last(self, consumer: Any, topic: str, start: int, end: int) -> Any:
        """Return the last committed record from ``start`` on."""
        consumer.assign([TopicPartition(topic, 0, start)])
        begun, found = self._clock.now(), None
        while True:
            for message in consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    found = message
                    if message.offset() >= end - 1:
                        return found
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
            if waited_ms(begun, self._clock.now()) >= self._patience_ms:
                raise unavailable("the positions cannot be read", topic=topic)
