"""Topics of a log into a real broker: what arrives, where an export goes on, what fences it, and what it
refuses."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import Producer as KafkaProducer

from tests.kafka.broker import Broker
from txnlog import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    ProducerFencedError,
    StorageError,
    TxnLog,
)
from txnlog.kafka import export_topics
from txnlog.kafka.exporting import ExportProgress

Name = Callable[[], str]


def filled(log: TxnLog, topic: str, count: int, start: int = 0) -> None:
    """Let a topic have so many records, each in a transaction of its own, on both partitions if it has
    two.
    """
    partitions = log.refresh().topic(topic).partitions
    with Producer(log, "filler", buffer="inline") as producer:
        for number in range(start, start + count):
            with producer.transaction() as txn:
                txn.send(
                    topic,
                    [{"key": f"k{number}".encode(), "value": f"v{number}".encode()}],
                    number % partitions,
                )


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [message.value() for message in broker.records(topic)]


def expected(count: int) -> list[bytes]:
    return [f"v{number}".encode() for number in range(count)]


def test_records_arrive_whole_and_in_their_partitions(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = name()
    log.create_topic(topic, "kafka", partitions=2)
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_901, datetime.UTC)
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send(
            topic, partition=1, key=b"k", value=b"v", headers=[("a", b"1"), ("a", None)], timestamp=at
        )
        producer.send(topic, partition=1, key=b"gone", value=None)
        producer.send(topic, partition=0, value=b"")
        producer.commit()
        producer.begin()
        producer.send(topic, partition=0, value=b"aborted")
        producer.flush()
        producer.abort()
    with pytest.raises(NotFoundError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic)
    assert raised.value.kind == "unknown-kafka-topic"
    report = export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    assert (report.records, report.commits) == (3, 1)
    first, second, third = broker.records(topic)
    assert (first.partition(), first.key(), first.value(), first.headers()) == (0, None, b"", None)
    assert (second.partition(), second.key(), second.value()) == (1, b"k", b"v")
    assert second.headers() == [("a", b"1"), ("a", None)]
    assert second.timestamp()[1] == int(at.timestamp() * 1000)
    assert (third.key(), third.value()) == (b"gone", None)
    group = log.groups.describe(topic)
    assert (group.lag, [one.current_offset for one in group.positions]) == (
        0,
        [4, 3],
    )  # behind the aborted record and its marker
    again = export_topics(log, broker.bootstrap, topic, group=topic)
    assert (again.records, again.commits) == (0, 0)


def test_rows_of_other_topics_are_json(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = name()
    log.create_topic(topic, pa.schema([("id", pa.int64()), ("raw", pa.binary())]), key_columns=["id"])
    with Producer(log) as producer:
        producer.send(topic, [{"id": 7, "raw": b"\xff"}, {"id": 8, "raw": None}])
    export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    records = [(json.loads(one.key()), json.loads(one.value())) for one in broker.records(topic)]
    assert records == [({"id": 7}, {"id": 7, "raw": "/w=="}), ({"id": 8}, {"id": 8, "raw": None})]


def test_an_export_goes_on_from_the_positions_in_kafka_whatever_the_log_says(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 5)
    export_topics(log, broker.bootstrap, topic, group=topic, create=True, batch_records=2)
    log.groups.reset_offsets(topic, topic, to="earliest", force=True)  # the copy is for people
    filled(log, topic, 3, 5)
    assert export_topics(log, broker.bootstrap, topic, group=topic).records == 3
    assert values(broker, topic) == expected(8)


def test_an_older_export_is_fenced_and_what_it_had_open_is_aborted(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 12)
    others: list[int] = []

    def other(at: ExportProgress) -> None:
        if not others:
            others.append(export_topics(TxnLog.open(log.url), broker.bootstrap, topic, group=topic).records)

    with pytest.raises(ProducerFencedError):
        export_topics(log, broker.bootstrap, topic, group=topic, create=True, batch_records=3, progress=other)
    assert others == [9]
    assert values(broker, topic) == expected(12)


def test_positions_are_found_behind_transactions_that_were_aborted(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    """The last record of the topic of positions is that of an export that died; the last committed one
    counts."""
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 2)
    export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    dead = broker.producer(f"txnlog-export.{topic}")
    dead.begin_transaction()
    for _ in range(40):
        dead.produce(f"txnlog-export.{topic}", b"{}", topic.encode())
    dead.produce(topic, b"half")
    assert dead.flush(60) == 0
    filled(log, topic, 1, 2)
    assert export_topics(log, broker.bootstrap, topic, group=topic).records == 1
    assert values(broker, topic) == expected(3)


def test_a_following_export_ends_when_it_is_stopped(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 1)
    stop = threading.Event()

    def go_on(at: ExportProgress) -> None:
        if at.records < 3:
            filled(log, topic, 1, at.records)
        else:
            stop.set()

    export_topics(
        log, broker.bootstrap, topic, group=topic, create=True, follow=True, progress=go_on, stop=stop
    )
    assert values(broker, topic) == expected(3)


def test_a_transaction_of_the_log_is_one_in_kafka(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = name()
    log.create_topic(topic, "kafka", partitions=2)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for number in range(2):
            txn.send(topic, [{"value": b"v"}] * 50, number)
    report = export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    assert (report.records, report.commits) == (100, 1)


def test_without_positions_in_kafka_a_known_export_does_not_begin_anew(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 2)
    export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    broker.delete_topic(f"txnlog-export.{topic}")
    with pytest.raises(InvalidInputError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic)
    assert raised.value.kind == "export-without-position"
    filled(log, topic, 1, 2)
    assert export_topics(log, broker.bootstrap, topic, group=topic, start="group").records == 1
    assert values(broker, topic) == expected(3)


def test_two_logs_do_not_share_an_export(broker: Broker, log: TxnLog, name: Name, tmp_path: object) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 1)
    export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    other = TxnLog.create(f"{tmp_path}/other")
    other.create_topic(topic, "kafka")
    filled(other, topic, 1)
    with pytest.raises(ConflictError) as raised:
        export_topics(other, broker.bootstrap, topic, group=topic)
    assert raised.value.kind == "export-of-another-log"


def test_records_that_the_log_has_removed_are_an_error_or_passed_over(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 2)
    export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    filled(log, topic, 4, 2)
    log.delete_records(topic, {0: 8})
    with pytest.raises(OffsetOutOfRangeError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic)
    assert (raised.value.values["position"], raised.value.values["earliest"]) == (4, 8)
    export_topics(log, broker.bootstrap, topic, group=topic, on_lost="continue")
    assert values(broker, topic) == [b"v0", b"v1", b"v4", b"v5"]


def test_what_kafka_does_not_take_is_one_error_and_nothing_half(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    filled(log, topic, 1)
    with Producer(log) as producer:
        producer.send(topic, value=b"x" * 2_000_000)
    with pytest.raises(InvalidInputError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    assert raised.value.kind == "kafka-record-too-large"
    assert values(broker, topic) == []


def test_parts_of_large_values_are_not_exported(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = name()
    log.create_topic(topic, "kafka")
    with Producer(log, "p", chunk_bytes=1024) as producer, producer.transaction() as txn:
        txn.send(topic, value=b"x" * 5_000)
    with pytest.raises(InvalidInputError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic, create=True)
    assert raised.value.kind == "chunks-in-export"
    assert values(broker, topic) == []


def test_partitions_without_a_place_are_named_before_anything_is_created(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = broker.create_topic(name())
    log.create_topic(topic, "kafka", partitions=2)
    filled(log, topic, 4)
    with pytest.raises(InvalidInputError) as raised:
        export_topics(log, broker.bootstrap, topic, group=topic)
    assert raised.value.kind == "partition-without-place"
    assert f"txnlog-export.{topic}" not in broker.admin().list_topics(timeout=30).topics
    export_topics(log, broker.bootstrap, topic, group=topic, partitions={0: 0, 1: 0})
    assert sorted(one or b"" for one in values(broker, topic)) == expected(4)


def test_keys_go_where_javas_client_sends_them(broker: Broker, log: TxnLog, name: Name) -> None:
    topic, other = broker.create_topic(name(), 5), broker.create_topic(name(), 5)
    log.create_topic(topic, "kafka")
    filled(log, topic, 30)
    export_topics(log, broker.bootstrap, topic, group=topic, partitions="key")
    producer = KafkaProducer({**broker.properties, "partitioner": "murmur2_random"})
    for number in range(30):
        producer.produce(other, b"", f"k{number}".encode())
    producer.flush(60)
    places = [{one.key(): one.partition() for one in broker.records(which)} for which in (topic, other)]
    assert places[0] == places[1]
    assert len(set(places[0].values())) > 1


def test_brokers_that_are_gone_are_one_error(log: TxnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.kafka.broker import free_port

    monkeypatch.setattr("txnlog.kafka.sink.STEP_S", 0.5)
    log.create_topic("t", "kafka")
    with pytest.raises(StorageError) as raised:
        export_topics(log, f"127.0.0.1:{free_port()}", "t", patience_ms=1)
    assert (raised.value.kind, raised.value.transient) == ("kafka-unavailable", True)
