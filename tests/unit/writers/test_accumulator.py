"""Buffering by topic and partition, single records, settings, and which call is legal when."""

from __future__ import annotations

import datetime
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.operations import CreateTopic
from txnformat.core.state import TopicState
from txnformat.core.topics.schema import TopicSchema, conform
from txnformat.errors import InvalidInputError, InvalidTransactionStateError, NotFoundError
from txnformat.types import TopicPartition
from writers.accumulator import SPOOL_ROWS_MAX, Accumulator
from writers.partitioner import murmur2
from writers.rows import RowFormat
from writers.settings import Buffer, ProducerSettings
from writers.transaction import LEGAL_IN, REPEATS, Call, ProducerStatus, check_call

ARROW = pa.schema([("key", pa.string()), ("n", pa.int64())])


def topic(partitions: int = 4, *key_columns: str, schema: pa.Schema = ARROW, name: str = "id") -> TopicState:
    created = CreateTopic(name, "t", "t-00000000", partitions, (), key_columns, None)
    return TopicState(name, "t", "t-00000000", partitions, TopicSchema(schema, key_columns), created, 0)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"key": [f"k{n % 5}" for n in numbers], "n": numbers}, schema=ARROW)


def accumulator(batch_bytes: int, *draws: float) -> Accumulator:
    """Return one whose topics begin their turns at ``draws``; at partition 0 where none is given."""
    return Accumulator(batch_bytes, chain(draws, repeat(0.0)).__next__)


def send(held: Accumulator, where: TopicState, data: Any, partition: int | None = None) -> None:
    held.accept(held.prepare(where, data, partition))


def content(held: Accumulator) -> dict[int, list[int]]:
    return {key.partition: held.batch(key).column("n").to_pylist() for key in sorted(held.largest_first())}


def flush(held: Accumulator) -> dict[int, list[int]]:
    """Return what is held, after it has left."""
    found = content(held)
    held.drop(held.largest_first())
    return found


def test_records_without_a_key_stay_with_a_partition_until_its_batch_has_left() -> None:
    held = accumulator(10**9)
    found = []
    for number in range(0, 8, 2):
        send(held, topic(3), rows(number))
        send(held, topic(3), [{"key": "k", "n": number + 1}])
        found.append(flush(held))
    assert found == [{0: [0, 1]}, {1: [2, 3]}, {2: [4, 5]}, {0: [6, 7]}]


def test_records_without_a_key_stay_with_a_partition_until_its_batch_is_full() -> None:
    table = rows(*range(100))
    held = accumulator(2 * table.nbytes)
    for _ in range(7):
        send(held, topic(3), table)
    assert {number: len(found) for number, found in content(held).items()} == {0: 300, 1: 200, 2: 200}
    send(held, topic(3), rows(9))
    assert content(held)[1][-1:] == [9]


def test_named_partitions_take_no_turn() -> None:
    held = accumulator(10**9)
    for number in range(3):
        send(held, topic(3), rows(number), partition=0)
        assert flush(held) == {0: [number]}
    send(held, topic(3), rows(5))
    send(held, topic(3), rows(6), partition=2)
    assert flush(held) == {0: [5], 2: [6]}
    send(held, topic(3), rows(7))
    assert flush(held) == {1: [7]}


def test_each_topic_begins_at_a_partition_of_its_own() -> None:
    held = accumulator(10**9, 0.99, 0.5)
    for where in (topic(4), topic(4, name="other"), topic(4)):
        send(held, where, rows(1))
    assert [tuple(key) for key in sorted(held.largest_first())] == [("id", 3), ("other", 2)]


def test_records_with_null_keys_take_turns_and_those_with_keys_do_not() -> None:
    held = accumulator(10**9)
    where = topic(4, "key")
    keyed = (murmur2(b"k1") & 0x7FFFFFFF) % 4
    found = []
    for number in range(4):
        send(held, where, pa.table({"key": [None, "k1"], "n": [number, 10 + number]}, schema=ARROW))
        found.append({one: [n for n in there if n < 10] for one, there in flush(held).items()})
        send(held, where, [{"key": "k1", "n": 20}])
        assert flush(held) == {keyed: [20]}
    assert [[one for one, there in turn.items() if there] for turn in found] == [[0], [1], [2], [3]]


def test_a_large_record_fills_a_batch_and_so_ends_a_turn() -> None:
    held = accumulator(10**9)
    assert [held.choose_partition(topic(3), {"key": "k", "n": 1}) for _ in range(4)] == [0, 1, 2, 0]


def test_keys_decide_and_the_order_within_a_partition_is_kept() -> None:
    held = accumulator(10**9)
    where = topic(4, "key")
    send(held, where, rows(*range(50)))
    for number in range(50, 100):
        send(held, where, [{"key": f"k{number % 5}", "n": number}])
    send(held, where, rows(*range(100, 150)))
    expected: dict[int, list[int]] = {}
    for number in range(150):
        partition = (murmur2(f"k{number % 5}".encode()) & 0x7FFFFFFF) % 4
        expected.setdefault(partition, []).append(number)
    assert content(held) == expected


def test_single_records_without_a_key_are_one_batch() -> None:
    held = accumulator(10**9)
    for number in range(SPOOL_ROWS_MAX + 5):
        send(held, topic(3), [{"key": None, "n": number}])
    assert content(held) == {0: list(range(SPOOL_ROWS_MAX + 5))}


def test_single_records_for_a_named_partition_and_others_do_not_mix() -> None:
    held = accumulator(10**9)
    send(held, topic(3), [{"key": None, "n": 1}], partition=2)
    send(held, topic(3), [{"key": None, "n": 2}])
    send(held, topic(3), [{"key": None, "n": 3}], partition=2)
    assert content(held) == {0: [2], 2: [1, 3]}


@pytest.mark.parametrize("partition", [-1, 4, True, 1.0, "1"])
def test_a_partition_that_does_not_exist_is_refused(partition: Any) -> None:
    held = accumulator(10**9)
    with pytest.raises(NotFoundError) as caught:
        held.prepare(topic(4), rows(1), partition)
    assert caught.value.kind == "unknown-partition"


def test_prepare_keeps_nothing() -> None:
    held = accumulator(10**9)
    send(held, topic(3), rows(1))
    for _ in range(5):
        held.prepare(topic(3), rows(7), None)
    with pytest.raises(InvalidInputError):
        held.prepare(topic(3), [{"n": 1}], None)
    send(held, topic(3), rows(2))
    assert content(held) == {0: [1, 2]}


def test_sizes_are_counted_and_full_partitions_listed() -> None:
    table = rows(*range(100))
    held = accumulator(2 * table.nbytes)
    assert not held
    send(held, topic(), table, partition=1)
    send(held, topic(), rows(1), partition=2)
    assert (held.size, held.full) == (table.nbytes + rows(1).nbytes, set())
    send(held, topic(), table, partition=1)
    full = TopicPartition("id", 1)
    assert held.full == {full}
    assert held.largest_first() == [full, TopicPartition("id", 2)]
    held.drop([full])
    assert (held.size, held.full, bool(held)) == (rows(1).nbytes, set(), True)
    held.clear()
    assert (held.size, bool(held), held.topics()) == (0, False, [])


def test_large_single_records_fill_a_partition_without_many_of_them() -> None:
    schema = pa.schema([("n", pa.int64()), ("x", pa.binary())])
    held = accumulator(1_000_000)
    where = topic(2, schema=schema)
    for number in range(3):
        send(held, where, [{"n": number, "x": bytes(400_000)}])
    assert held.size >= 1_200_000
    assert held.full == {TopicPartition("id", 0)}


def test_an_empty_send_is_nothing() -> None:
    held = accumulator(10**9)
    send(held, topic(3), rows())
    send(held, topic(3), [])
    assert not held
    send(held, topic(3), rows(1))
    assert content(held) == {0: [1]}


@pytest.mark.parametrize("keyed", [False, True])
def test_records_that_wait_do_not_keep_what_they_were_cut_from_in_memory(keyed: bool) -> None:
    """A few records of each large table wait, sent as a slice or split off by their key."""
    held = accumulator(2**20)
    where = topic(2, "key") if keyed else topic(2)
    keys = ["k0"] + ["k3"] * 99_999
    waiting, other = ((murmur2(key) & 0x7FFFFFFF) % 2 for key in (b"k0", b"k3"))
    assert waiting != other
    before = pa.total_allocated_bytes()
    for number in range(50):
        large = pa.table({"key": keys, "n": pc.add(pa.array(np.arange(100_000)), number)}, schema=ARROW)
        send(held, where, large if keyed else large.slice(0, 1), None if keyed else waiting)
        held.drop(tuple(held.full))  # what is left is the one record
    assert pa.total_allocated_bytes() - before < 16 * 2**20
    assert content(held) == {waiting: list(range(50))}
    assert [run.records for run in held.runs(TopicPartition("id", waiting))] == [50]


def test_copied_records_keep_their_order_and_who_named_their_partition() -> None:
    held = accumulator(10**9)
    large = rows(*range(200_000))
    sent: list[int] = []
    for number in range(20):
        partition = 0 if number % 5 else None
        send(held, topic(1), large.slice(1_000 * number, 3), partition)
        sent += range(1_000 * number, 1_000 * number + 3)
    assert content(held) == {0: sent}
    runs = held.runs(TopicPartition("id", 0))
    assert [tuple(run) for run in runs] == 4 * [(3, False), (12, True)]


def test_many_small_tables_become_one_piece() -> None:
    held = accumulator(10**9)
    for number in range(200):
        send(held, topic(1), rows(number))
    assert held.batch(TopicPartition("id", 0)).column("n").num_chunks == 1


# --- single records -----------------------------------------------------------------------------------------

MIXED = pa.schema(
    [
        ("i8", pa.int8()), ("i64", pa.int64()), ("f", pa.float64()), ("f32", pa.float32()), ("b", pa.bool_()),
        ("s", pa.string()), ("x", pa.binary()), ("utc", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us")),
        ("day", pa.date32()), ("d", pa.decimal128(5, 2)), ("l", pa.list_(pa.field("element", pa.int64()))),
    ]
)  # fmt: skip
MIXED = TopicSchema(MIXED).arrow_schema
ANY = st.one_of(
    st.none(), st.booleans(), st.integers(-300, 300), st.integers(-(2**65), 2**65), st.floats(), st.text(),
    st.text(st.characters()), st.binary(), st.datetimes(), st.datetimes(timezones=st.just(datetime.UTC)),
    st.dates(), st.decimals(allow_nan=False), st.lists(st.integers(0, 9)),
)  # fmt: skip


@given(st.fixed_dictionaries(dict.fromkeys(MIXED.names, ANY)))
def test_a_plain_record_converts_as_the_careful_way_does(row: dict[str, Any]) -> None:
    form = RowFormat(MIXED)
    for name in MIXED.names:
        lone = {**dict.fromkeys(MIXED.names), name: row[name]}
        packed = form.pack(lone)
        if packed is not None:
            assert form.table([packed.values]).equals(conform([lone], MIXED)) or row[name] != row[name]


@pytest.mark.parametrize(
    "row", [{"n": 1}, {"key": "a", "m": 1}, {"key": "a", "n": 1, "o": 2}, [1, 2], None, "ab"]
)
def test_another_shape_is_not_plain(row: Any) -> None:
    assert RowFormat(ARROW).pack(row) is None


@pytest.mark.parametrize("value", [1.0, True, "1", 2**63, -(2**63) - 1])
def test_a_value_of_another_type_is_not_plain(value: Any) -> None:
    assert RowFormat(ARROW).pack({"key": "a", "n": value}) is None
    assert RowFormat(ARROW).pack({"key": "a", "n": 2**63 - 1}) is not None


# --- settings -----------------------------------------------------------------------------------------------


def test_settings_report_every_problem() -> None:
    with pytest.raises(InvalidInputError) as caught:
        ProducerSettings(
            transactional_id="x" * 250, enable_idempotence=False, linger_ms=-1, batch_bytes=0, buffer_bytes=0,
            roll_bytes=True,
        )  # fmt: skip
    assert caught.value.kind == "invalid-settings"
    assert len(caught.value.problems) == 6
    settings = ProducerSettings(transactional_id="p", buffer="inline")  # type: ignore[arg-type]  # as users write it
    assert settings.buffer is Buffer.INLINE
    assert settings.is_transactional


# --- which call is legal when -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ProducerStatus)
@pytest.mark.parametrize("call", Call)
def test_calls_are_legal_exactly_where_the_table_says(call: Call, status: ProducerStatus) -> None:
    if status is ProducerStatus.FENCED:
        return  # the producer answers with what fenced it before it asks the table
    for unknown in Call if status is ProducerStatus.UNKNOWN_OUTCOME else [None]:
        if unknown is not None and unknown not in REPEATS:
            continue  # they have no outcome
        legal = status in LEGAL_IN[call] or (unknown is not None and call in REPEATS[unknown])
        if legal:
            check_call(call, status, is_transactional=True, unknown=unknown)
            continue
        with pytest.raises(InvalidTransactionStateError) as caught:
            check_call(call, status, is_transactional=True, unknown=unknown)
        assert caught.value.hint


def test_after_an_unknown_outcome_only_the_same_call_and_abort_are_legal() -> None:
    assert {unknown: set(calls) for unknown, calls in REPEATS.items()} == {
        Call.INIT: {Call.INIT},
        Call.SEND: {Call.SEND, Call.FLUSH, Call.ABORT, Call.DELEGATE},
        Call.FLUSH: {Call.FLUSH, Call.ABORT},
        Call.COMMIT: {Call.COMMIT, Call.ABORT},
        Call.ABORT: {Call.ABORT},
        Call.PREPARE: {Call.PREPARE, Call.ABORT},
    }
