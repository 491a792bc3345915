"""Conditions on reads: what is not fetched, asserted as requests and bytes."""

from __future__ import annotations

import datetime
import importlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.core.records.state import EXTENT
from txnformat.reading.plan import topic_predicate
from txnformat.reading.pruning import may_match_plan
from txnformat.reading.rows import read_rows
from txnformat.segments import segment_object
from txnformat.segments.writer import chunk_range
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import NO_TIMESTAMP_MS
from txnlog import CorruptDataError, InvalidInputError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema(
    [("n", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("text", pa.string()), ("f", pa.float64())]
)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
ROWS = 500


def batch(number: int) -> pa.Table:
    """Return rows n = 1000 * number … + 499, an hour of time for each batch, null texts in every third."""
    values = range(1_000 * number, 1_000 * number + ROWS)
    hour = START + datetime.timedelta(hours=number)
    return pa.table(
        {
            "n": values,
            "time": [hour + datetime.timedelta(milliseconds=k) for k in range(ROWS)],
            "text": [None if number % 3 == 0 else f"text {n:06}" for n in values],
            "f": [n / 2 for n in values],
        },
        schema=SCHEMA,
    )


@pytest.fixture(autouse=True)
def _no_file_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is fetched of a file; a small one is fetched whole."""
    importlib.import_module("txnformat.reading.dataset")  # it takes the constant when it is first imported
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", 0)


@pytest.fixture(params=["time", None], ids=["timestamp-column", "log-time"])
def counted(request: Any) -> tuple[CountingStore, TxnLog]:
    """Two partitions; three files of eight row groups each; the middle one's transaction is aborted."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA, partitions=2, timestamp_column=request.param)
    with Producer(log, "p", batch_bytes=1) as producer:
        for file in range(3):
            producer.begin()
            for part in range(8):
                producer.send("t", batch(8 * file + part), partition=part % 2)
            if file == 1:
                producer.flush()
                producer.abort()
            else:
                producer.commit()
    return store, log


def fetched(store: CountingStore, log: TxnLog, where: str, columns: list[str]) -> tuple[pa.Table, int, int]:
    """Return what a read gives, and its requests and bytes of data."""
    with store.measure() as measured:
        table = log.read("t", columns=columns, where=where).read_all()
    counts = measured.counts
    assert counts.count(RequestKind.GET, KeyClass.DATA) == 0
    return table, counts.count(None, KeyClass.DATA), counts.bytes_read(KeyClass.DATA)


def chunk_bytes(log: TxnLog, names: set[str], wanted: set[int]) -> tuple[int, int]:
    """Return the bytes of the chunks of these columns in the row groups of these batches, and of the
    footers.
    """
    chunks = footers = 0
    for file in log.state.files:
        footer = pq.read_metadata(pa.BufferReader(log.store.get(file.key)))
        used = False
        for group in range(footer.num_row_groups):
            if footer.row_group(group).column(0).statistics.min // 1_000 not in wanted:
                continue
            used = True
            chunks += sum(
                chunk_range(footer.row_group(group).column(leaf))[1]
                for leaf in range(footer.num_columns)
                if footer.row_group(group).column(leaf).path_in_schema in names
            )
        footers += file.footer_bytes if used else 0
    return chunks, footers


def test_row_groups_are_excluded_by_statistics_and_only_asked_columns_are_fetched(counted: Any) -> None:
    store, log = counted
    cases: list[tuple[str, set[str], set[int], int]] = [
        ("n = 3007", {"n", "text"}, {3}, 1),
        ("n >= 3400 AND n < 4100", {"n", "text"}, {3, 4}, 200),
        ("n IN (7, 2, 5003, 70000)", {"n", "text"}, {0, 5}, 3),
        ("text LIKE 'text 0050%'", {"text"}, {5}, 100),
        ("text IS NULL AND n < 8000", {"n", "text"}, {0, 3, 6}, 1_500),
        ("text IS NOT NULL AND NOT n > 2000", {"n", "text"}, {1, 2}, 501),
        ("f < 10", {"f", "text"}, {0}, 20),
        ("f > 11700 AND f <= 1e300", {"f", "text"}, {23}, 99),
    ]
    for where, names, batches, count in cases:
        table, requests, size = fetched(store, log, where, ["text"])
        assert (where, table.num_rows, table.schema.names) == (where, count, ["text"])
        chunks, footers = chunk_bytes(log, names, batches)
        # Both partitions read the footer of a file that both lie in; the plan does not know of these columns.
        assert size - chunks <= 2 * sum(file.footer_bytes for file in log.state.files)
        assert size >= chunks + footers
        assert requests <= 4 + 2 * len(batches)


def test_floats_above_a_bound_are_looked_for_in_every_row_group_because_of_nan(counted: Any) -> None:
    store, log = counted
    table, _, size = fetched(store, log, "f > 1e300", ["n"])
    assert table.num_rows == 0
    everything, _ = chunk_bytes(log, {"n", "f"}, {*range(8), *range(16, 24)})
    assert size > everything


def test_a_plan_excludes_partitions_and_extents_without_a_request(counted: Any) -> None:
    store, log = counted
    for where in (("_partition = "
                  "2"), "_partition NOT IN (0, 1)", "_offset < 0", "_offset >= 100000", "_entry < 2",
                  "_topic = 'u'", "_timestamp < DATE '1999-01-01'", "_timestamp IS NULL AND _offset > 99999",
                  "_producer_id > 7", "_partition = 0 AND n > 5 AND _offset IS NULL"):  # fmt: skip
        table, requests, _ = fetched(store, log, where, ["n"])
        assert (where, table.num_rows, requests) == (where, 0, 0)
    table, requests, size = fetched(store, log, "_partition = 1 AND _offset BETWEEN 500 AND 999", ["n"])
    assert table.column("n").to_pylist() == list(range(3_000, 3_500))
    chunks, footers = chunk_bytes(log, {"n"}, {3})
    assert (requests, size) == (2, chunks + footers)


def test_times_are_excluded_by_the_plan(counted: Any) -> None:
    store, log = counted
    if log.state.topic("t").schema.timestamp_column is None:
        committed = log.read("t", columns=["_timestamp"]).read_all().column(0)
        last = committed[-1].as_py()
        table, requests, size = fetched(store, log, f"_timestamp >= TIMESTAMP '{last.isoformat()}'", ["n"])
        assert table.num_rows == 8 * ROWS
        expected = sum(file.footer_bytes for file in list(log.state.files)[-1:])
        assert (
            size == chunk_bytes(log, {"n"}, set(range(16, 24)))[0] + expected
        )  # one file, of both partitions
        return
    for where in (
        (
            "_timestamp >= TIMESTAMP '2026-01-01 05:00:00.100Z' AND _timestamp < TIMESTAMP '2026-01-01 "
            "06:00:00Z'"
        ),
        "time >= TIMESTAMP '2026-01-01 05:00:00.100Z' AND time < TIMESTAMP '2026-01-01 06:00:00Z'",
    ):
        table, requests, size = fetched(store, log, where, ["n"])
        assert table.column("n").to_pylist() == list(range(5_100, 5_500))
        chunks, footers = chunk_bytes(log, {"n", "time"}, {5})
        assert (requests, size) == (2, chunks + footers)  # n and time lie side by side
    plan = log.plan("t", where="time > DATE '2027-01-01'")
    assert [len(part.rows) for part in plan.partitions] == [0, 0]


def test_a_batch_table_is_not_fetched_for_extents_that_are_excluded() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA, partitions=2, timestamp_column="time")
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as txn:
        for number in range(1_001):
            txn.send("t", batch(number).slice(0, 1), partition=number % 2)
    assert len(log.state.tables) == 1
    with store.measure() as measured:
        assert log.read("t", where="time < DATE '2000-01-01'").read_all().num_rows == 0
    assert measured.counts.count(None, KeyClass.TABLE) == 0
    with store.measure() as measured:
        found = log.read("t", columns=["n"], where="time < TIMESTAMP '2026-01-01 00:30:00Z'").read_all()
    assert found.column("n").to_pylist() == [0]
    assert measured.counts.count(RequestKind.GET, KeyClass.TABLE) == 1
    assert measured.counts.count(RequestKind.GET_RANGE, KeyClass.DATA) == 2


def test_bounds_at_the_edge_of_time_and_unknown_ones_exclude_nothing_wrongly() -> None:
    schema = TxnLog.create(MemoryStore()).create_topic("t", SCHEMA, timestamp_column="time").schema
    rows = np.zeros(3, EXTENT)
    rows["records"] = 1
    last_ms = (2**63 - 1) // 1_000
    rows["min_timestamp_ms"] = [NO_TIMESTAMP_MS, last_ms, 2 - last_ms]
    rows["max_timestamp_ms"] = [NO_TIMESTAMP_MS, last_ms, 2 - last_ms]
    for where, expected in (
        ("time > DATE '2026-01-01'", [True, True, False]),
        ("time < DATE '2026-01-01'", [True, True, True]),
        ("time IS NULL", [True, True, True]),
    ):
        predicate = topic_predicate(where, schema)
        mask = may_match_plan(predicate, rows, topic="t", partition=0, timestamp_column="time")
        assert (where, mask.tolist()) == (where, expected)


def test_conditions_on_sealed_segments(counted: Any) -> None:
    store, log = counted
    wheres = ("_entry > 4", "_entry = 3", ("_producer_id = 0 AND n < "
                                          "500"), "_producer_id = 1", "_producer_epoch >= 1",
              "_offset >= 1000", "n = 3007", ("_timestamp > DATE '1999-01-01' AND _partition = "
                                             "1"), "text IS NULL",
              "_commit_entry > 4")  # fmt: skip
    expected = [log.read("t", columns=["_offset", "n"], where=where).read_all() for where in wheres]
    whole = log.dataset("t").to_table()
    log.maintain("seal")
    assert not any(len(part.extents) for part in log.refresh().partitions.values())
    for where, before in zip(wheres, expected, strict=True):
        assert (where, log.read("t", columns=["_offset", "n"], where=where).read_all()) == (where, before)
    assert log.dataset("t").to_table().equals(whole)
    fresh = TxnLog.open(store)
    table, requests, _ = fetched(store, fresh, "_offset < 0 OR _timestamp < DATE '1999-01-01'", ["n"])
    assert (table.num_rows, requests) == (0, 0)


def test_errors_come_before_anything_is_read(counted: Any) -> None:
    store, log = counted
    with store.measure() as measured, pytest.raises(InvalidInputError, match="did you mean 'text'") as caught:
        log.read("t", where="txet = 'a' OR n = 'b'")
    assert (caught.value.kind, len(caught.value.problems)) == ("invalid-where", 2)
    assert measured.counts.count(None, KeyClass.DATA) == 0


def test_a_condition_goes_with_offsets_partitions_and_no_columns(counted: Any) -> None:
    _, log = counted
    found = log.read("t", columns=[], where="n < 2100", start={0: 100, 1: 0}, end={0: 600, 1: 50})
    assert found.read_all().num_rows == 400 + 100 + 50
    found = log.read("t", columns=["_offset"], where="n >= 2000 AND n < 2050", start={0: 510}, partitions=[0])
    assert found.read_all().column(0).to_pylist() == list(range(510, 550))


def test_older_files_are_excluded_by_their_own_types_and_by_columns_that_they_lack() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store, embedding=False)
    log.create_topic("t", pa.schema([("n", pa.int32()), ("d", pa.decimal128(5, 2)), ("g", pa.float32())]))
    before = pa.table(
        {"n": [1, 2], "d": pa.array([1, 2], pa.decimal128(5, 2)), "g": pa.array([0.1, 2.0], pa.float32())},
        schema=log.state.topic("t").schema.arrow_schema,
    )
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", before)
    log.alter_topic(
        "t",
        add_columns=pa.schema([("tag", pa.string())]),
        widen={"n": pa.int64(), "d": pa.decimal128(9, 4), "g": pa.float64()},
    )
    now = log.refresh().topic("t").schema.arrow_schema
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", pa.Table.from_pylist([{"n": 2**40, "d": 3, "g": 0.1, "tag": "new"}], schema=now))
    assert len({file.schema_id for file in log.state.files}) == 2
    footers = sum(file.footer_bytes for file in log.state.files)
    for where, found, chunks in (
        ("n >= 2 AND n < 5", [2], 1),
        ("d > 1.9999 AND d <= 2", [2], 1),
        ("d = 3", [2**40], 1),
        ("g = 0.1", [2**40], 2),
        ("tag = 'new'", [2**40], 1),
        ("tag IS NULL", [1, 2], 1),
    ):
        table, requests, size = fetched(store, log, where, ["n"])
        assert (where, table.column("n").to_pylist()) == (where, found)
        assert (where, requests) in [(where, 2 + chunks), (where, 2 + 2 * chunks)]
        assert size > footers


def test_a_plan_that_claims_more_records_than_the_file_holds_is_corrupt_also_where_no_record_is_left() -> (
    None
):
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    with Producer(log) as producer:
        producer.send("t", [{"n": number} for number in range(3)])
    plan = log.plan("t")
    (part,) = plan.partitions
    claimed = part.rows.copy()
    claimed["take"] = 2**31 - 1
    for text in ("_offset > 5", "n > 5", "n >= 0"):
        where = topic_predicate(text, plan.topic.schema)
        read = read_rows(
            log.store, "t", plan.topic.schema, 0, claimed, plan.files.__getitem__, None, where=where
        )
        with pytest.raises(CorruptDataError, match="number of records") as raised:
            list(read)
        assert (raised.value.values["expected"], raised.value.values["got"]) == (2**31 - 1, 3)
