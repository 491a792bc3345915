"""Topics of a real broker into a log: what arrives, what is left out, where an import begins, and what it
refuses."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.kafka.broker import Broker
from txnlog import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    StorageError,
    TxnLog,
    TxnLogError,
)
from txnlog import Producer as LogProducer
from txnlog.kafka import import_topics
from txnlog.kafka.failures import invalid_config
from txnlog.kafka.importing import ImportProgress
from txnlog.kafka.places import Place
from txnlog.kafka.source import Source

Name = Callable[[], str]


def filled(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    """Let a topic have so many records in each partition."""
    producer = broker.producer()
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, f"v{number}".encode(), f"k{number}".encode(), partition)
    producer.flush(60)


def values(log: TxnLog, topic: str) -> list[tuple[int, bytes]]:
    rows = log.read(topic, columns=["_partition", "_offset", "value"]).read_all().to_pylist()
    return [
        (row["_partition"], row["value"])
        for row in sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))
    ]


def test_records_arrive_whole_in_their_partitions_and_order(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name(), 2)
    producer = broker.producer()
    producer.produce(
        topic, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("a", None), ("b", b"")]
    )
    producer.produce(topic, None, b"gone", 1)
    producer.produce(topic, b"", None, 0)
    producer.flush(60)
    report = import_topics(log, broker.bootstrap, topic)
    assert (report.records, report.commits, report.created) == (3, 1, [topic])
    assert report.positions == {topic: {0: 1, 1: 2}}
    rows = (
        log.read(
            topic,
            columns=[
                *["key", "value", "headers", "timestamp", "kafka_partition", "kafka_offset", "_partition"]
            ],
        )
        .read_all()
        .to_pylist()
    )
    first, second, third = sorted(rows, key=lambda row: (row["_partition"], row["kafka_offset"]))
    assert (first["key"], first["value"], first["headers"], first["_partition"]) == (None, b"", None, 0)
    assert (second["key"], second["value"], second["_partition"], second["kafka_offset"]) == (
        b"k",
        b"v",
        1,
        0,
    )
    assert second["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "a", "value": None},
        {"key": "b", "value": b""},
    ]
    assert second["timestamp"] == datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC)
    assert (third["key"], third["value"], third["kafka_offset"]) == (b"gone", None, 1)


def test_rows_and_positions_are_in_one_entry(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name())
    filled(broker, topic, 10)
    import_topics(log, broker.bootstrap, topic, group="bring", batch_records=4)
    entries = {
        row["_commit_entry"] for row in log.read(topic, columns=["_commit_entry"]).read_all().to_pylist()
    }
    changed = {
        entry.entry for entry in log.history() if any(change.group == "bring" for change in entry.groups)
    }
    assert len(entries) == 3
    assert entries <= changed


def test_what_is_aborted_or_open_is_left_out_and_the_next_import_goes_on(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = broker.create_topic(name())
    producer = broker.producer(f"{topic}-a")
    for number, ends in enumerate([producer.commit_transaction, producer.abort_transaction, None]):
        producer.begin_transaction()
        producer.produce(topic, f"v{number}".encode())
        producer.flush(60)
        if ends:
            ends(60)
    report = import_topics(log, broker.bootstrap, topic)
    assert values(log, topic) == [(0, b"v0")]
    assert report.positions == {topic: {0: 4}}  # two records, two markers: the open transaction begins there
    producer.commit_transaction(60)
    assert import_topics(log, broker.bootstrap, topic).records == 1
    assert values(log, topic) == [(0, b"v0"), (0, b"v2")]
    assert import_topics(log, broker.bootstrap, topic).commits == 0
    report = import_topics(
        log, broker.bootstrap, {topic: "everything"}, group="other", isolation="read_uncommitted"
    )
    assert [value for _, value in values(log, "everything")] == [b"v0", b"v1", b"v2"]


def test_partitions_go_where_they_are_sent(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name(), 2)
    filled(broker, topic, 2, 2)
    log.create_topic("one", "kafka")
    with pytest.raises(InvalidInputError) as raised:
        import_topics(log, broker.bootstrap, {topic: "one"})
    assert raised.value.kind == "partition-without-place"
    import_topics(log, broker.bootstrap, {topic: "one"}, partitions={0: 0, 1: 0})
    assert sorted(values(log, "one")) == [(0, b"v0"), (0, b"v0"), (0, b"v1"), (0, b"v1")]
    log.create_topic("keyed", "kafka", partitions=5)
    with LogProducer(log) as producer:
        producer.send("keyed", [{"key": b"k0", "value": b"here"}, {"key": b"k1", "value": b"here"}])
    expected = dict(keys_of(log, "keyed"))
    import_topics(log, broker.bootstrap, {topic: "keyed"}, group="keyed", partitions="key", start="earliest")
    assert set(keys_of(log, "keyed")) == set(expected.items())


def keys_of(log: TxnLog, topic: str) -> list[tuple[bytes, int]]:
    rows = log.read(topic, columns=["key", "_partition"]).read_all().to_pylist()
    return [(row["key"], row["_partition"]) for row in rows]


def test_without_a_position_a_topic_with_records_is_not_imported_again(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    """A group that was forgotten, or whose name is mistyped, doubles nothing."""
    topic = broker.create_topic(name())
    filled(broker, topic, 3)
    import_topics(log, broker.bootstrap, topic, group="right")
    with pytest.raises(InvalidInputError) as raised:
        import_topics(log, broker.bootstrap, topic, group="wrong")
    assert raised.value.kind == "import-without-position"
    assert import_topics(log, broker.bootstrap, topic, group="late", start="latest").records == 0
    assert len(values(log, topic)) == 3
    filled(broker, topic, 1)
    assert import_topics(log, broker.bootstrap, topic, group="late").records == 1


def test_removed_records_are_an_error_that_names_what_is_there(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = broker.create_topic(name())
    filled(broker, topic, 4)
    import_topics(log, broker.bootstrap, topic)
    filled(broker, topic, 6)
    broker.delete_records(topic, 0, 7)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        import_topics(log, broker.bootstrap, topic)
    error = raised.value
    assert error.kind == "kafka-offset-out-of-range"
    assert error.values == {"topic": topic, "partition": 0, "position": 4, "earliest": 7, "latest": 10}
    report = import_topics(log, broker.bootstrap, topic, on_lost="continue")
    assert [tuple(one) for one in report.lost] == [(topic, 0, 4, 7)]
    assert [value for _, value in values(log, topic)] == [b"v0", b"v1", b"v2", b"v3", b"v3", b"v4", b"v5"]


def test_records_removed_beneath_a_running_import_are_the_same_error(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    topic = broker.create_topic(name())
    producer = broker.producer()
    for number in range(500):
        producer.produce(topic, f"v{number}".encode().ljust(20_000))
    assert producer.flush(60) == 0

    def remove(at: ImportProgress) -> None:
        broker.delete_records(topic, 0, 500)

    small = {"bootstrap.servers": broker.bootstrap, "queued.min.messages": 1}
    small |= {"queued.max.messages.kbytes": 512, "fetch.message.max.bytes": 100_000}
    with pytest.raises(OffsetOutOfRangeError) as raised:
        import_topics(log, small, topic, batch_records=10, progress=remove)
    error = raised.value
    assert (error.kind, error.values["earliest"], error.values["latest"]) == (
        "kafka-offset-out-of-range",
        500,
        500,
    )
    have = [value.strip() for _, value in values(log, topic)]
    assert have == [f"v{number}".encode() for number in range(len(have))]
    assert error.values["position"] >= len(have) > 0


def test_a_compacted_topic_has_gaps_and_no_error(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(
        name(),
        cleanup_policy="compact",
        segment_ms="50",
        min_cleanable_dirty_ratio="0.001",
        max_compaction_lag_ms="100",
    )
    producer = broker.producer()
    for number in range(60):
        producer.produce(topic, f"v{number}".encode(), b"same")
        producer.flush(60)
        if number > 20 and len(broker.records(topic)) < number:
            break
    else:
        pytest.fail("the broker has compacted nothing")
    import_topics(log, broker.bootstrap, topic)
    offsets = [
        row["kafka_offset"] for row in log.read(topic, columns=["kafka_offset"]).read_all().to_pylist()
    ]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < offsets[-1] + 1
    assert import_topics(log, broker.bootstrap, topic).records == 0


def test_a_topic_that_was_created_again_is_another_one(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name())
    filled(broker, topic, 2)
    import_topics(log, broker.bootstrap, topic)
    broker.delete_topic(topic)
    with pytest.raises(NotFoundError) as raised:
        import_topics(log, broker.bootstrap, topic)
    assert raised.value.kind == "unknown-kafka-topic"
    broker.create_topic(topic)
    filled(broker, topic, 5)
    with pytest.raises(NotFoundError) as raised:
        import_topics(log, broker.bootstrap, topic)
    assert raised.value.kind == "kafka-topic-replaced"
    assert len(values(log, topic)) == 2
    assert import_topics(log, broker.bootstrap, topic, on_lost="continue").records == 5


def test_a_newer_import_fences_the_older_one(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name())
    filled(broker, topic, 20)
    others: list[int] = []

    def other(at: ImportProgress) -> None:
        if not others:
            others.append(import_topics(TxnLog.open(log.url), broker.bootstrap, topic).records)

    with pytest.raises((ProducerFencedError, ConflictError)):
        import_topics(log, broker.bootstrap, topic, batch_records=5, progress=other)
    assert [value for _, value in values(log, topic)] == [f"v{number}".encode() for number in range(20)]
    assert others == [15]


def test_a_following_import_takes_what_comes_and_new_partitions(
    broker: Broker, log: TxnLog, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.admin import NewPartitions

    monkeypatch.setattr("txnlog.kafka.importing.METADATA_MS", 100)
    topic = broker.create_topic(name())
    log.create_topic(topic, "kafka", partitions=2)
    stop = threading.Event()
    seen: list[int] = []

    def next_step(at: ImportProgress) -> None:
        seen.append(at.records)
        if at.records == 3:
            admin = broker.admin()
            admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
            producer = broker.producer()
            send(producer, topic, 1)
        if at.records == 4:
            stop.set()

    def send(producer: Producer, topic: str, partition: int) -> None:
        producer.produce(topic, b"more", None, partition)
        assert producer.flush(60) == 0

    filled(broker, topic, 3)
    report = import_topics(
        log, broker.bootstrap, topic, follow=True, progress=next_step, stop=stop, commit_interval_ms=1
    )
    assert report.positions == {topic: {0: 3, 1: 1}}
    assert values(log, topic)[-1] == (1, b"more")


def test_an_import_ends_where_the_topic_ended_when_it_began(
    broker: Broker, log: TxnLog, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = broker.create_topic(name())
    filled(broker, topic, 20)
    assign = Source.assign

    def grown(source: Source, starts: Mapping[Place, int]) -> None:
        filled(broker, topic, 50)  # after the import has asked for the end
        assign(source, starts)

    monkeypatch.setattr(Source, "assign", grown)
    report = import_topics(log, broker.bootstrap, topic)
    assert (report.records, report.positions) == (20, {topic: {0: 20}})
    monkeypatch.undo()
    assert import_topics(log, broker.bootstrap, topic).records == 50


def test_positions_that_another_client_has_moved_stop_the_import(
    broker: Broker, log: TxnLog, name: Name
) -> None:
    """A client that does not fence the import is noticed as well: each commit demands the positions
    before.
    """
    topic = broker.create_topic(name())
    filled(broker, topic, 20)

    def move(at: ImportProgress) -> None:
        (position,) = log.groups.describe("kafka-import").foreign_positions
        with LogProducer(log, "other") as producer, producer.transaction() as txn:
            txn.send_offsets("kafka-import", positions={position.name: "3 id"})

    with pytest.raises(ConflictError) as raised:
        import_topics(log, broker.bootstrap, topic, batch_records=5, progress=move)
    assert raised.value.kind == "offsets-changed"
    assert len(values(log, topic)) == 5


def test_brokers_that_are_gone_are_one_error(log: TxnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnlog.kafka.source.PROBE_S", 1.0)
    from tests.kafka.broker import free_port

    nowhere = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    with pytest.raises(StorageError) as raised:
        import_topics(log, nowhere, "clicks", patience_ms=1)
    assert (raised.value.kind, raised.value.transient) == ("kafka-unavailable", True)
    assert log.topics() == []


def test_rows_that_the_topic_refuses_go_to_the_dead_letters(broker: Broker, log: TxnLog, name: Name) -> None:
    """A compacted topic takes no record without a key; which one it was is found by halves."""
    topic = broker.create_topic(name())
    log.create_topic(topic, "kafka", settings={"cleanup.policy": "compact"})
    producer = broker.producer()
    for number in range(9):
        producer.produce(topic, f"v{number}".encode(), None if number in (3, 7) else b"k")
    producer.flush(60)
    with pytest.raises(InvalidInputError) as raised:
        import_topics(log, broker.bootstrap, topic)
    assert (raised.value.kind, raised.value.values["offset"]) == ("undecodable-record", 3)
    assert values(log, topic) == []
    report = import_topics(log, broker.bootstrap, topic, dead_letter_topic="dead", batch_records=4)
    assert (report.records, report.dead_letters) == (7, 2)
    dead = log.read("dead").read_all().to_pylist()
    assert [(row["value"], row["kafka_offset"], row["kafka_topic"]) for row in dead] == [
        (b"v3", 3, topic),
        (b"v7", 7, topic),
    ]
    assert all("key" in row["error"] for row in dead)
    assert import_topics(log, broker.bootstrap, topic, dead_letter_topic="dead").commits == 0


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"topics": []}, "invalid-topics"),
        ({"topics": [1]}, "invalid-topics"),
        ({"partitions": "some"}, "invalid-partitions"),
        ({"start": "middle"}, "invalid-argument"),
        ({"on_lost": "shrug"}, "invalid-argument"),
        ({"value_format": "xml"}, "invalid-argument"),
        ({"value_format": "avro"}, "invalid-schema"),
        ({"records_per_second": 0}, "invalid-argument"),
        ({"batch_records": 0}, "invalid-argument"),
        ({"kafka": {}}, "invalid-kafka-settings"),
        ({"kafka": {"bootstrap.servers": "x", "group.id": "mine"}}, "invalid-kafka-settings"),
        ({"kafka": {"bootstrap.servers": "x", "no.such.property": "1"}}, "invalid-kafka-settings"),
        ({"group": "a/b"}, "invalid-group-name"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_done(
    log: TxnLog, given: dict[str, object], kind: str
) -> None:
    arguments: dict[str, object] = {"kafka": "127.0.0.1:1", "topics": "clicks", **given}
    with pytest.raises(TxnLogError) as raised:
        import_topics(log, **arguments)  # type: ignore[arg-type]
    assert raised.value.kind == kind
    assert log.refresh().entry == -1


def test_a_secret_is_not_in_the_message() -> None:
    config = {"bootstrap.servers": "x", "sasl.password": "hunter22"}
    assert "hunter22" not in str(invalid_config(ValueError("sasl.password: hunter22 is too short"), config))


def test_an_idle_import_commits_its_positions_again(
    broker: Broker, log: TxnLog, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that is not used for 30 days is forgotten: a following import without news keeps it."""
    monkeypatch.setattr("txnlog.kafka.importing.KEEP_MS", 0)
    topic = broker.create_topic(name())
    stop = threading.Event()
    import_topics(log, broker.bootstrap, topic, follow=True, stop=stop, progress=lambda at: stop.set())
    (kept,) = log.groups.describe("kafka-import").foreign_positions
    assert kept.position is not None
    assert kept.position.startswith("0 ")


def test_decoded_values_need_a_topic_with_columns(broker: Broker, log: TxnLog, name: Name) -> None:
    topic = broker.create_topic(name())
    with pytest.raises(NotFoundError) as raised:
        import_topics(log, broker.bootstrap, topic, value_format="json")
    assert raised.value.kind == "unknown-topic"
    log.create_topic(topic, pa.schema([("id", pa.int64())]))
    with pytest.raises(InvalidInputError) as wrong:
        import_topics(log, broker.bootstrap, topic)
    assert wrong.value.kind == "unmappable-schema"
    assert [entry for entry in log.history() if entry.groups] == []
