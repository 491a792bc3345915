"""Single records and dicts, as people from Kafka's clients send and poll them."""

from __future__ import annotations

import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, QuickClock
from tests.integration.consumers.consuming import refuses
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.store.memory import MemoryStore
from txnlog import Consumer, InvalidInputError, NotFoundError, Producer, TxnLog, TxnLogError

NOON = datetime.datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=datetime.UTC)

MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}
"""Of Kafka's UtilsTest.testMurmur2."""


class World:
    """A log in memory with the topic ``t`` of Kafka's schema, and an open producer."""

    def __init__(self, partitions: int = 1, **producer: Any) -> None:
        self.clock = QuickClock()
        self.log = TxnLog.create(MemoryStore(self.clock), clock=self.clock)
        self.log.create_topic("t", "kafka", partitions=partitions)
        self.log.create_topic("n", NUMBERS)
        self.producer = Producer(self.log, "p", **producer)
        self.producer.init()

    def sent(self, *args: Any, **record: Any) -> list[dict[str, Any]]:
        """Send in a transaction and return all that a consumer then polls."""
        with self.producer.transaction() as txn:
            txn.send("t", *args, **record)
        return self.polled()

    def polled(self) -> list[dict[str, Any]]:
        with Consumer(self.log) as consumer:
            consumer.subscribe(["t"])
            return consumer.poll_dicts(0)


@pytest.fixture
def world() -> World:
    return World()


def test_a_record_comes_back_with_all_that_a_kafka_record_has(world: World) -> None:
    headers = [("trace", b"\x00\x01"), ("trace", b"twice"), ("none", None), ("", b"")]
    assert world.sent(key=b"k", value=b"v", headers=headers, timestamp=NOON) == [
        {
            "key": b"k",
            "value": b"v",
            "headers": [{"key": name, "value": value} for name, value in headers],
            "timestamp": NOON,
            "_topic": "t",
            "_partition": 0,
            "_offset": 0,
            "_timestamp": NOON,
        }
    ]


@pytest.mark.parametrize("key", [None, b"", b"\xff\xfe\x00", bytearray(b"k"), "schlüssel"])
@pytest.mark.parametrize("value", [None, b"", b"\xff\x00\xc3\x28", memoryview(b"v"), "", "größe"])
def test_keys_and_values_are_bytes_text_or_nothing_and_these_stay_different(
    world: World, key: Any, value: Any
) -> None:
    (found,) = world.sent(key=key, value=value)
    assert (found["key"], found["value"]) == tuple(
        one.encode() if isinstance(one, str) else None if one is None else bytes(one) for one in (key, value)
    )


def test_a_record_without_a_timestamp_has_that_of_its_sending(world: World) -> None:
    before = world.clock.now().wall_ms
    found = world.sent(value=b"single") + world.sent([{"value": b"dict"}])[1:]
    for record in found:
        assert record["timestamp"] == record["_timestamp"]
        assert before <= record["timestamp"].timestamp() * 1000 <= world.clock.now().wall_ms


def test_a_timestamp_without_a_zone_is_in_utc(world: World) -> None:
    assert world.sent(value=b"v", timestamp=NOON.replace(tzinfo=None))[0]["timestamp"] == NOON


@pytest.mark.parametrize(
    "headers",
    [
        {"a": b"1", "b": "2", "c": None},
        [("a", b"1"), ("b", "2"), ("c", None)],
        [{"key": "a", "value": b"1"}, {"key": "b", "value": "2"}, {"key": "c", "value": None}],
    ],
    ids=["mapping", "pairs", "dicts"],
)
@pytest.mark.parametrize("as_dict", [False, True])
def test_headers_are_a_mapping_pairs_or_what_a_consumer_returned(
    world: World, headers: Any, as_dict: bool
) -> None:
    given = ([{"value": b"v", "headers": headers}],) if as_dict else ()
    (found,) = world.sent(*given, **({} if as_dict else {"value": b"v", "headers": headers}))
    assert found["headers"] == [
        {"key": "a", "value": b"1"},
        {"key": "b", "value": b"2"},
        {"key": "c", "value": None},
    ]


def test_no_headers_and_an_empty_list_of_them_stay_different(world: World) -> None:
    world.sent([{"value": b"1", "headers": []}, {"value": b"2"}])
    world.sent(value=b"3", headers={})
    assert [one["headers"] for one in world.sent(value=b"4")] == [[], None, [], None]


def test_what_was_polled_can_be_sent_on(world: World) -> None:
    (first,) = world.sent(key=b"k", value=b"v", headers={"a": b"1"}, timestamp=NOON)
    own = {name: value for name, value in first.items() if not name.startswith("_")}
    world.sent(key=first["key"], value=first["value"], headers=first["headers"], timestamp=first["timestamp"])
    found = world.sent([own])
    assert [{**one, "_offset": 0} for one in found] == [first] * 3


def test_dicts_may_leave_out_key_headers_and_timestamp_and_nothing_else(world: World) -> None:
    rows = [
        {"value": b"1"},
        {"key": "k", "value": None, "headers": {"a": "b"}},
        {"timestamp": NOON, "value": "3"},
    ]
    found = world.sent(rows)
    assert [one["value"] for one in found] == [b"1", None, b"3"]
    assert [one["key"] for one in found] == [None, b"k", None]
    assert found[2]["timestamp"] == NOON
    assert rows[0] == {"value": b"1"}, "the caller's dicts stay as they are"
    for row, problem in (({"key": b"k"}, "'value' is missing"), ({"value": b"1", "valeu": b"2"}, "valeu")):
        error = refuses(InvalidInputError, "schema-mismatch", partial(world.sent, [row]))
        assert problem in str(error)
    assert len(world.polled()) == 3


def test_topics_with_another_schema_take_exactly_their_columns(world: World) -> None:
    def sending(*args: Any, **record: Any) -> TxnLogError:
        return refuses(
            InvalidInputError, "schema-mismatch", lambda: _in_transaction(world, "n", *args, **record)
        )

    assert "kafka" in str(sending(key=b"k", value=b"v"))
    assert "list of dicts" in str(sending(value=b"v"))
    assert "'n' is missing" in str(sending([{}]))


def test_columns_that_were_added_to_a_topic_of_records_may_be_missing(world: World) -> None:
    world.log.alter_topic("t", add_columns=[pa.field("source", pa.string())])
    assert [one["source"] for one in world.sent(value=b"1")] == [None]
    assert [one["source"] for one in world.sent([{"value": b"2", "source": "s"}])] == [None, "s"]


# --- partitions and offsets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [2, 7, 100])
@pytest.mark.parametrize("as_dict", [False, True])
def test_a_key_goes_to_the_partition_that_kafka_would_choose(partitions: int, as_dict: bool) -> None:
    world = World(partitions)
    for key in MURMUR2:
        if as_dict:
            world.sent([{"key": key, "value": b"v"}])
        else:
            world.sent(key=key, value=b"v")
    found = {record["key"].decode(): record["_partition"] for record in world.polled()}
    assert found == {key: (code & 0x7FFFFFFF) % partitions for key, code in MURMUR2.items()}


def test_a_named_partition_goes_before_the_key() -> None:
    world = World(3)
    for partition in (2, 0, 1):
        world.sent(key=b"k", value=b"v", partition=partition)
    assert sorted(record["_partition"] for record in world.polled()) == [0, 1, 2]


@pytest.mark.parametrize("partition", [3, -1, "1", True, 1.0])
def test_an_unknown_partition_is_refused_and_the_transaction_goes_on(partition: Any) -> None:
    world = World(3)
    with world.producer.transaction() as txn:
        txn.send("t", key=b"k", value=b"1")
        error = refuses(
            NotFoundError,
            "unknown-partition",
            lambda: txn.send("t", key=b"k", value=b"2", partition=partition),
        )
        assert "partitions 0 to 2" in str(error)
    assert [record["value"] for record in world.polled()] == [b"1"]


@pytest.mark.parametrize("buffer", ["auto", "deferred"])
def test_a_commit_tells_the_offset_of_every_record(buffer: str) -> None:
    """Those of a partition follow each other from the first one on, in the order of sending."""
    world = World(3, buffer=buffer)
    world.sent(key=b"before", value=b"0")
    sent = []
    with world.producer.transaction() as txn:
        for number in range(40):
            partition = number * 7 % 3
            txn.send("t", value=f"{number}", partition=partition)
            sent.append((partition, f"{number}".encode()))
    assert txn.info is not None
    following = dict(txn.info.offsets)
    expected = {}
    for partition, value in sent:
        expected[partition, following["t", partition]] = value
        following["t", partition] += 1
    found = {(one["_partition"], one["_offset"]): one["value"] for one in world.polled()}
    assert expected.items() <= found.items()
    assert len(found) == len(sent) + 1


def test_with_an_inline_buffer_each_flush_tells_the_offsets() -> None:
    world = World(buffer="inline")
    with world.producer.transaction() as txn:
        txn.send("t", value=b"0")
        txn.send("t", value=b"1")
        assert txn.flush().offsets == {("t", 0): 0}
        txn.send("t", value=b"2")
        assert txn.flush().offsets == {("t", 0): 2}
    assert [one["_offset"] for one in world.polled()] == [0, 1, 2]


def test_without_transactions_a_flush_tells_the_offsets_of_what_it_wrote() -> None:
    world = World()
    with Producer(world.log, linger_ms=3_600_000) as producer:  # else the flush may come by itself
        producer.send("t", value=b"0")
        producer.send("t", value=b"1")
        assert producer.flush().offsets == {("t", 0): 0}
        producer.send("t", value=b"2")
        assert producer.flush().offsets == {("t", 0): 2}


# --- what is refused ----------------------------------------------------------------------------------------


def _in_transaction(world: World, topic: str, *args: Any, **record: Any) -> None:
    with world.producer.transaction() as txn:
        txn.send(topic, *args, **record)


@pytest.mark.parametrize(
    ("args", "record", "kind", "says"),
    [
        ((b"v",), {}, "schema-mismatch", "value=…"),
        (("v",), {}, "schema-mismatch", "value=…"),
        (({"value": b"v"},), {}, "schema-mismatch", "a list of dicts"),
        ((["v"],), {}, "schema-mismatch", "row 0 is of the type str"),
        (([{"value": b"v"}],), {"key": b"k"}, "invalid-input", "not both"),
        ((), {"key": 1, "value": b"v"}, "schema-mismatch", "'key'"),
        ((), {"value": {"a": 1}}, "schema-mismatch", "'value'"),
        ((), {"key": "\ud800", "value": b"v"}, "schema-mismatch", "surrogate"),
        ((), {"value": "a\udfff"}, "schema-mismatch", "surrogate"),
        ((), {"value": b"v", "headers": {"a": "\ud800"}}, "schema-mismatch", "surrogate"),
        ((), {"value": b"v", "headers": {"\ud800": b"1"}}, "schema-mismatch", "headers"),
        ((), {"value": b"v", "headers": {1: b"1"}}, "schema-mismatch", "headers"),
        ((), {"value": b"v", "headers": {"a": 1}}, "schema-mismatch", "headers"),
        ((), {"value": b"v", "headers": 5}, "invalid-headers", "(name, value) pairs"),
        ((), {"value": b"v", "headers": "ab"}, "invalid-headers", "(name, value) pairs"),
        ((), {"value": b"v", "headers": ["ab"]}, "invalid-headers", "(name, value) pairs"),
        ((), {"value": b"v", "headers": [("a", b"1", 2)]}, "invalid-headers", "(name, value) pairs"),
        ((), {"value": b"v", "headers": [{"key": "a"}]}, "invalid-headers", "(name, value) pairs"),
        (
            (),
            {"value": b"v", "headers": [{"key": CHUNK_HEADER, "value": b""}]},
            "invalid-headers",
            "read_values",
        ),
        (([{"value": b"v", "headers": {CHUNK_HEADER: b""}}],), {}, "invalid-headers", "read_values"),
        (([{"value": b"v", "headers": [("a",)]}],), {}, "invalid-headers", "(name, value) pairs"),
        (([{"value": b"v", "timestamp": 1_700_000_000_000}],), {}, "schema-mismatch", "milliseconds"),
        ((), {"value": b"v", "timestamp": 1_700_000_000_000}, "schema-mismatch", "milliseconds"),
        ((), {"value": b"v", "timestamp": "2026-01-31"}, "schema-mismatch", "datetime"),
    ],
)
def test_what_is_no_record_is_refused_and_nothing_of_it_is_sent(
    world: World, args: tuple[Any, ...], record: dict[str, Any], kind: str, says: str
) -> None:
    entry = world.log.refresh().entry
    error = refuses(InvalidInputError, kind, lambda: _in_transaction(world, "t", *args, **record))
    assert says in str(error)
    assert world.log.refresh().entry == entry, "not even an abort had to be written"
    assert [one["value"] for one in world.sent(value=b"next")] == [b"next"]
