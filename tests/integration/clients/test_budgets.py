"""Requests and bytes that actions cost (specification, section "Budgets"): numbers, not times."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.segments import segment_object
from txnformat.segments.writer import chunk_range
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass, RequestCounts

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])
DATA_CREATE = RequestClass(RequestKind.CREATE, KeyClass.DATA)
DATA_PUT = RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA)
ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)
TABLE_PUT = RequestClass(RequestKind.CREATE, KeyClass.TABLE)
TABLE_GET = RequestClass(RequestKind.GET, KeyClass.TABLE)
ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]}, schema=NUMBERS)


def counted(*, embedding: bool = False) -> tuple[CountingStore, TxnLog]:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store, embedding=embedding)
    for name in ("t", "u"):
        log.create_topic(name, NUMBERS, partitions=500)
    return store, log


def requests(counts: RequestCounts) -> dict[RequestClass, int]:
    return dict(counts.requests)


def test_a_one_shot_costs_one_put_per_topic_and_one_entry_whatever_the_partitions() -> None:
    store, log = counted()
    with Producer(log, "p") as producer:
        for _ in range(2):
            with store.measure() as begun:
                producer.begin()
                for number in range(500):
                    producer.send("t", rows(number), partition=number)
                    producer.send("u", rows(number), partition=number)
            assert requests(begun.counts) == {}
            with store.measure() as measured:
                producer.commit()
            assert requests(measured.counts) == {DATA_PUT: 2, ENTRY_PUT: 1}


def test_a_batch_table_above_1000_batches_is_one_more_put() -> None:
    store, log = counted()
    with (
        Producer(log, "p", batch_bytes=1) as producer,
        store.measure() as measured,
        producer.transaction() as txn,
    ):
        for number in range(1_001):
            txn.send("t", rows(number))
    assert requests(measured.counts) == {
        DATA_PUT: 1,
        TABLE_PUT: 1,
        ENTRY_PUT: 1,
    }


def test_each_inline_flush_is_one_put_and_one_entry() -> None:
    store, log = counted()
    with (
        Producer(log, "p", buffer="inline") as producer,
        store.measure() as measured,
        producer.transaction() as txn,
    ):
        for number in range(3):
            txn.send("t", rows(number))
            txn.flush()
    assert requests(measured.counts) == {DATA_PUT: 3, ENTRY_PUT: 4}


def test_each_deferred_flush_is_one_put_per_file_one_table_and_one_entry() -> None:
    store, log = counted()
    with Producer(log, "p", buffer="deferred") as producer:
        producer.begin()
        for number in range(3):
            with store.measure() as measured:
                producer.send("t", rows(number))
                producer.send("u", rows(number))
                producer.flush()
                producer.flush()
            assert requests(measured.counts) == {DATA_PUT: 2, TABLE_PUT: 1, ENTRY_PUT: 1}
        with store.measure() as measured:
            producer.commit()
        assert requests(measured.counts) == {ENTRY_PUT: 1}
        producer.begin()
        for number in range(2):
            producer.send("t", rows(number))
            with store.measure() as measured:
                producer.commit() if number else producer.flush()
            assert requests(measured.counts) == {DATA_PUT: 1, TABLE_PUT: 1, ENTRY_PUT: 1}


def test_a_deferred_transaction_that_never_flushed_costs_what_a_one_shot_does() -> None:
    store, log = counted()
    with Producer(log, "p", buffer="deferred") as producer, store.measure() as measured:
        with producer.transaction() as txn:
            txn.send("t", rows(1))
            txn.send("u", rows(1))
        producer.begin()
        producer.send("t", rows(1))
        producer.abort()
    assert requests(measured.counts) == {DATA_PUT: 2, ENTRY_PUT: 1}


def test_preparing_is_one_put_per_file_one_table_and_one_entry_and_its_end_one_entry() -> None:
    store, log = counted()
    for buffer, flushed, expected in (
        ("auto", False, {DATA_PUT: 1, TABLE_PUT: 1, ENTRY_PUT: 1}),
        ("auto", True, {TABLE_PUT: 1, DATA_PUT: 1, ENTRY_PUT: 1}),  # a one-shot's file is closed now
        ("deferred", True, {ENTRY_PUT: 1}),
        ("inline", False, {DATA_PUT: 1, ENTRY_PUT: 1}),
    ):
        with Producer(log, "p", buffer=buffer) as producer:
            for end in (producer.commit, producer.abort):
                producer.begin()
                producer.send("t", rows(1))
                if flushed:
                    producer.flush()
                with store.measure() as measured:
                    producer.prepare()
                assert requests(measured.counts) == expected
                with store.measure() as measured:
                    end()
                assert requests(measured.counts) == {ENTRY_PUT: 1}


def test_ending_a_prepared_transaction_by_its_token_is_one_entry_and_finding_it_ended_is_none() -> None:
    store, log = counted()
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        token = str(producer.prepare())
    log.refresh()
    with store.measure() as measured:
        log.commit_prepared(token)
    assert requests(measured.counts) == {ENTRY_GET: 1, ENTRY_PUT: 1}
    with store.measure() as measured:
        log.commit_prepared(token)
    assert requests(measured.counts) == {ENTRY_GET: 1}


def test_an_abort_costs_nothing_or_one_entry() -> None:
    store, log = counted()
    for buffer, expected in (
        ("auto", {}),
        ("inline", {DATA_PUT: 1, ENTRY_PUT: 2}),
        ("deferred", {DATA_PUT: 1, TABLE_PUT: 1, ENTRY_PUT: 2}),
    ):
        with Producer(log, f"p-{buffer}", buffer=buffer) as producer, store.measure() as measured:
            producer.begin()
            producer.send("t", rows(1))
            producer.flush()
            producer.abort()
            producer.begin()
            producer.commit()
            producer.begin()
            producer.abort()
        assert requests(measured.counts) == expected


@pytest.mark.parametrize(
    ("buffer", "flush", "prepare", "commit", "abort"),
    [
        ("auto", {}, {ENTRY_PUT: 1, TABLE_PUT: 1, DATA_CREATE: 2}, {ENTRY_PUT: 1, DATA_PUT: 2}, {}),
        ("inline", {ENTRY_PUT: 1}, {ENTRY_PUT: 1}, {ENTRY_PUT: 1}, {ENTRY_PUT: 1}),
        (
            "deferred",
            {DATA_CREATE: 2, TABLE_PUT: 1, ENTRY_PUT: 1},
            {ENTRY_PUT: 1, TABLE_PUT: 1, DATA_CREATE: 2},
            {ENTRY_PUT: 1},
            {ENTRY_PUT: 1},
        ),
    ],
)
def test_what_travels_in_entries_costs_no_request_of_its_own(
    buffer: str,
    flush: dict[RequestClass, int],
    prepare: dict[RequestClass, int],
    commit: dict[RequestClass, int],
    abort: dict[RequestClass, int],
) -> None:
    """Two topics. What is staged is uploaded, as in a log that does not embed; a flush of a one-shot begins
    files."""
    store, log = counted(embedding=True)

    def send() -> None:
        producer.begin()
        producer.send("t", rows(1))
        producer.send("u", rows(1))

    with Producer(log, "p", buffer=buffer) as producer:
        for call, flushes, expected in (
            (producer.commit, False, {ENTRY_PUT: 1}),
            (producer.commit, True, commit),
            (producer.abort, False, {}),
            (producer.abort, True, abort),
            (producer.prepare, False, prepare),
        ):
            send()
            if flushes:
                with store.measure() as measured:
                    producer.flush()
                assert requests(measured.counts) == flush
            with store.measure() as measured:
                call()
            assert requests(measured.counts) == expected, (call, flushes)
        producer.commit()


def test_opening_a_producer_is_one_entry_and_ids_one_per_process_and_1000() -> None:
    store, log = counted()
    with store.measure() as measured:
        Producer(log, "p").init()
    assert requests(measured.counts) == {ENTRY_PUT: 1}
    with store.measure() as measured:
        for _ in range(1_000):
            Producer(log).init()
    assert requests(measured.counts) == {ENTRY_PUT: 1}
    with store.measure() as measured:
        Producer(log).init()
    assert requests(measured.counts) == {ENTRY_PUT: 1}
    with store.measure() as measured:
        Producer(log, enable_idempotence=False).init()
    assert requests(measured.counts) == {}


def test_a_warm_refresh_with_nothing_new_is_one_get() -> None:
    store, log = counted()
    log.refresh()
    with store.measure() as measured:
        log.refresh()
    assert requests(measured.counts) == {ENTRY_GET: 1}


@pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])
def test_planning_a_partition_reads_no_data(buffer: str) -> None:
    store, log = counted()
    with Producer(log, "p", buffer=buffer) as producer:
        for number in range(20):
            producer.begin()
            producer.send("t", rows(number), partition=7)
            producer.flush()
            producer.abort() if number % 3 == 0 else producer.commit()
    with store.measure() as measured:
        plan = log.plan("t", partitions=[7])
    assert len(plan.partitions[0].rows) == 13
    tables = (
        {TABLE_GET: 13} if buffer == "deferred" else {}
    )  # one for each committed flush, until they are sealed
    assert requests(measured.counts) == {ENTRY_GET: 1} | tables


def test_trying_the_store_is_four_requests_at_a_process_first_write_and_nothing_for_readers(
    tmp_path: Path,
) -> None:
    """Counted apart from the log's own: two creates, one read, one deletion. Memory is not tried."""
    TxnLog.create(tmp_path / "log").create_topic("t", NUMBERS)
    (tmp_path / "same").symlink_to(tmp_path / "log")  # under another name: nothing was tried yet
    store = CountingStore(LocalStore(tmp_path / "same"))
    log = TxnLog.open(store)
    log.read("t").read_all()
    assert store.counts.count(None, KeyClass.PROBE) == 0
    with store.measure() as measured:
        Producer(log, "p").init()
    assert requests(measured.counts) == {
        RequestClass(RequestKind.CREATE, KeyClass.PROBE): 2,
        RequestClass(RequestKind.GET, KeyClass.PROBE): 1,
        RequestClass(RequestKind.DELETE, KeyClass.PROBE): 1,
        ENTRY_PUT: 1,
    }
    with store.measure() as measured:
        Producer(TxnLog.open(store), "q").init()
    assert measured.counts.count(None, KeyClass.PROBE) == 0
    assert counted()[0].counts.count(None, KeyClass.PROBE) == 0


# --- 30 % aborted -------------------------------------------------------------------------------------------

WIDE = pa.schema([("n", pa.int64()), ("a", pa.float64()), ("b", pa.string()), ("c", pa.binary())])
BATCH_ROWS = 2_000


def _wide(first: int) -> pa.Table:
    numbers = range(first, first + BATCH_ROWS)
    return pa.table(
        {
            "n": numbers,
            "a": [n * 0.1 for n in numbers],
            "b": [f"some text {n * 7919 % 100_003}" for n in numbers],
            "c": [(n * 2654435761 % 2**64).to_bytes(8, "big") * 4 for n in numbers],
        },
        schema=WIDE,
    )


def _chunk_bytes(log: TxnLog, columns: list[str]) -> tuple[int, int, int]:
    """Return the bytes of the asked chunks of committed row groups, of the footers, and the number of
    files.
    """
    (part,) = log.plan("w").partitions
    total = footers = 0
    touched = sorted(set(part.rows["file"].tolist()))
    for number in touched:
        file = log.state.files[number]
        footer = pq.read_metadata(pa.BufferReader(log.store.get(file.key)))
        footers += file.footer_bytes
        for row in part.rows[part.rows["file"] == number]:
            for group in range(row["row_group"], row["row_group"] + row["row_group_count"]):
                for leaf in range(footer.num_columns):
                    chunk = footer.row_group(group).column(leaf)
                    if chunk.path_in_schema in columns:
                        total += chunk_range(chunk)[1]
    return total, footers, len(touched)


@pytest.mark.parametrize("columns", [["n"], ["b", "a"], WIDE.names])
def test_a_read_fetches_only_asked_chunks_of_committed_row_groups(
    monkeypatch: pytest.MonkeyPatch, columns: list[str]
) -> None:
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", 0)
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store, embedding=False)
    log.create_topic("w", WIDE)
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(10):
            producer.begin()
            for part in range(2):  # one file each
                producer.send("w", _wide((2 * number + part) * BATCH_ROWS))
                producer.flush()
            producer.abort() if number in (1, 4, 8) else producer.commit()
    chunks, footers, files = _chunk_bytes(log, columns)
    assert files == 14
    with store.measure() as measured:
        table = log.read("w", columns=columns).read_all()
    assert table.num_rows == 14 * BATCH_ROWS
    assert measured.counts.bytes_read(KeyClass.DATA) <= 1.02 * chunks + footers
    assert measured.counts.count(RequestKind.GET, KeyClass.DATA) == 0
    # A footer and at most one range for each run of asked columns; nothing of the six aborted files.
    assert measured.counts.count(RequestKind.GET_RANGE, KeyClass.DATA) <= files * (1 + len(columns))
    assert measured.counts.count(None, KeyClass.DATA) == measured.counts.count(
        RequestKind.GET_RANGE, KeyClass.DATA
    )


def test_a_file_with_committed_and_aborted_batches_gives_only_the_committed() -> None:
    """Two transactions whose batches lie in different files, of which one is aborted: its file is never
    touched."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store, embedding=False)
    log.create_topic("w", WIDE)
    with Producer(log, "a", buffer="inline") as lost, Producer(log, "b", buffer="inline") as kept:
        lost.begin()
        kept.begin()
        for number in range(4):
            (lost if number % 2 else kept).send("w", _wide(number * BATCH_ROWS))
            (lost if number % 2 else kept).flush()
        lost.abort()
        kept.commit()
    touched: list[str] = []
    inner_get_range = store.get_range

    class Watching(CountingStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            touched.append(key)
            return inner_get_range(key, start, length)

    watched = TxnLog.open(Watching(store))
    table = watched.read("w", columns=["n"]).read_all()
    expected = [*range(BATCH_ROWS), *range(2 * BATCH_ROWS, 3 * BATCH_ROWS)]
    assert table.column("n").to_pylist() == expected
    files = log.state.files
    assert set(touched) == {files[0].key, files[2].key}
