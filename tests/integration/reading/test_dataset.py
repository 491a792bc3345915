"""A topic as a pyarrow Dataset: the rows of log.read, in DuckDB, Polars and pandas, with pushdown into
Parquet."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from txnformat.segments.writer import chunk_range
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass
from txnlog import InvalidInputError, NotFoundError, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("n", pa.int64()), ("wide", pa.string()), ("f", pa.float64())])
ROWS = 2_000


def batch(number: int, rows: int = ROWS) -> pa.Table:
    """Return rows n = 10,000 * number …; ``wide`` does not compress."""
    values = range(10_000 * number, 10_000 * number + rows)
    wide = [hashlib.sha256(b"%d" % n).hexdigest() for n in values]
    return pa.table({"n": values, "wide": wide, "f": [float("nan") if n % 7 == 0 else n / 2 for n in values]}, schema=SCHEMA)  # fmt: skip


def fill(log: TxnLog, rows: int = ROWS) -> None:
    """Ten inline transactions over two partitions of which three are aborted, and one that stays open."""
    log.create_topic("t", SCHEMA, partitions=2)
    with Producer(log, "p", buffer="inline") as producer:
        for number in range(10):
            producer.begin()
            producer.send("t", batch(2 * number, rows), partition=0)
            producer.send("t", batch(2 * number + 1, rows), partition=1)
            producer.flush()
            producer.abort() if number in (2, 5, 8) else producer.commit()
    pending = Producer(log, "open", buffer="inline")
    pending.init()
    pending.begin()
    pending.send("t", batch(100), partition=1)
    pending.flush()


@pytest.fixture(scope="module")
def counted() -> tuple[CountingStore, TxnLog]:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    fill(log)
    return store, log


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TxnLog]:
    with TxnLog.create(tmp_path_factory.mktemp("dataset") / "log") as log:
        fill(log)
        yield log


def query(dataset: Any, text: str) -> pa.Table:
    """Return what DuckDB answers; the text names the dataset ``dataset``."""
    with duckdb.connect() as connection:
        connection.register("dataset", dataset)
        relation = connection.sql(text)
        assert relation is not None
        return relation.to_arrow_table()


def same(left: pa.Table, right: pa.Table) -> bool:
    """Compare with NaN equal to itself, in any order of rows."""
    order = [("n", "ascending")]
    return bool(repr(left.sort_by(order).to_pylist()) == repr(right.sort_by(order).to_pylist()))


@pytest.mark.parametrize("asked", [
    {}, {"start": {0: 1, 1: 1_999}}, {"end": {0: 2_000, 1: 4_500}}, {"start": 10, "end": 11}, {"start": 500, "end": 4_002},
    {"start": 5, "end": 5}, {"isolation": "read_uncommitted"}, {"where": "n >= 41990 AND n < 60005 OR n = 7"},
    {"columns": ["f", "n"]}, {"columns": ["n", "_partition"], "where": "_partition = 1"},
], ids=str)  # fmt: skip
def test_every_engine_sees_the_rows_of_a_read(counted: Any, local: TxnLog, asked: dict[str, Any]) -> None:
    for log in (counted[1], local):
        whole = log.read("t", **asked).read_all()
        dataset = log.dataset("t", **asked)
        assert dataset.schema.equals(whole.schema)
        assert same(dataset.to_table(), whole)
        assert same(query(dataset, "SELECT * FROM dataset"), whole)
        assert query(dataset, "SELECT count(*) AS c FROM dataset").to_pylist() == [{"c": whole.num_rows}]
        frame = pl.scan_pyarrow_dataset(dataset)
        assert same(frame.collect().to_arrow().cast(whole.schema), whole)
        assert frame.select(pl.len()).collect().item() == whole.num_rows
        assert sorted(dataset.to_table().to_pandas()["n"]) == sorted(whole.column("n").to_pylist())
        assert dataset.count_rows() == whole.num_rows
        assert dataset.count_rows(filter=pc.field("n") < 20_000) == sum(
            n < 20_000 for n in whole["n"].to_pylist()
        )


def test_rows_come_in_the_order_of_the_log(counted: Any) -> None:
    _, log = counted
    for asked in ({}, {"start": 700, "end": 6_500}):
        found = log.dataset("t", **asked).to_table(columns=["n"])
        assert found.equals(log.read("t", columns=["n"], **asked).read_all())


def test_pyarrow_still_counts_whole_files_for_some_row_groups() -> None:
    """The canary: when this fails, pyarrow counts rightly, and LogDataset needs no count of its own."""
    store = MemoryStore()
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA, partitions=2)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        for partition in (0, 1):
            txn.send("t", batch(partition), partition=partition)
    dataset = log.dataset("t", start={1: ROWS + 1})  # one of the two row groups of the file
    assert dataset.count_rows() == ROWS
    assert dataset.filter(pc.field("n") >= 0).count_rows() == ROWS
    assert dataset.scanner().count_rows() == 2 * ROWS


def chunk_bytes(log: TxnLog, names: set[str], batches: set[int]) -> int:
    total = 0
    for file in log.state.files:
        footer = pq.read_metadata(pa.BufferReader(log.store.get(file.key)))
        for group in range(footer.num_row_groups):
            columns = [footer.row_group(group).column(leaf) for leaf in range(footer.num_columns)]
            if columns[0].statistics.min // 10_000 in batches:
                total += sum(chunk_range(column)[1] for column in columns if column.path_in_schema in names)
    return total


def test_columns_and_conditions_reach_parquet() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    fill(log, 10_000)
    dataset = log.dataset("t")
    committed = {2 * k + p for k in range(10) if k not in (2, 5, 8) for p in (0, 1)}
    with store.measure() as measured:
        dataset.count_rows()
    footers = measured.counts.bytes_read(KeyClass.DATA)  # pyarrow reads 64 KiB for each
    assert footers <= 14 * 2**16
    assert footers < chunk_bytes(log, {"wide"}, committed) / 2
    queries: list[tuple[Any, set[str], set[int]]] = [
        (lambda: dataset.to_table(columns=["n"]), {"n"}, committed),
        (lambda: dataset.to_table(columns=["n"], filter=pc.field("n") < 2_000), {"n"}, {0}),
        (lambda: query(dataset, "SELECT sum(n) FROM dataset"), {"n"}, committed),
        (lambda: query(dataset, "SELECT max(f) FROM dataset WHERE n BETWEEN 120000 AND "
                                "120100"), {"n", "f"}, {12}),
        (lambda: pl.scan_pyarrow_dataset(dataset).select("f").collect(), {"f"}, committed),
        (lambda: pl.scan_pyarrow_dataset(dataset).filter(pl.col("n") > 191_000).select("f").collect(), {"n", "f"}, {19}),
        (lambda: log.dataset("t", where="n IN (5, 190001)").to_table(columns=["f"]), {"n", "f"}, {0, 19}),
        (lambda: log.dataset("t", where="wide LIKE '8%'", columns=["wide"]).to_table(), {"wide"}, committed),
    ]  # fmt: skip
    for number, (run, names, batches) in enumerate(queries):
        with store.measure() as measured:
            run()
        size = measured.counts.bytes_read(KeyClass.DATA)
        wanted = chunk_bytes(log, names, batches)
        # Some engines plan with a scan of their own, so that footers come twice; and gaps below 8 KiB are
        # fetched.
        assert (number, wanted <= size) == (number, True)
        assert (number, size <= wanted + 2 * footers + 14 * 2**13) == (number, True)


def test_nothing_is_fetched_before_a_scan_but_what_a_range_cuts(counted: Any) -> None:
    store, log = counted
    with store.measure() as measured:
        log.dataset("t")
        log.dataset("t", where="n < 5")
    assert measured.counts.count(None, KeyClass.DATA) == 0
    with store.measure() as measured:
        log.dataset("t", start={0: 700}, columns=["n"])
    assert measured.counts.count(None, KeyClass.DATA) == 2  # a footer, and the file of the range that is cut
    with store.measure() as measured:
        assert log.dataset("t", where="_partition = 7", columns=["n", "_partition"]).to_table().num_rows == 0
    assert measured.counts.count(None, KeyClass.DATA) == 0


def test_a_dataset_is_pinned() -> None:
    log = TxnLog.create(MemoryStore())
    fill(log, 10)
    dataset = log.dataset("t")
    before = dataset.count_rows()
    with Producer(log, "q") as producer, producer.transaction() as txn:
        txn.send("t", batch(50), partition=0)
    assert dataset.count_rows() == before
    assert log.dataset("t").count_rows() == before + ROWS


def test_batch_tables_and_older_schemas() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int32()), ("g", pa.float32())]), partitions=2)
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as txn:
        for number in range(1_001):
            txn.send("t", [{"n": number, "g": 0.5}], partition=number % 2)
    assert len(log.state.tables) == 1
    log.alter_topic(
        "t", add_columns=pa.schema([("tag", pa.string())]), widen={"n": pa.int64(), "g": pa.float64()}
    )
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", [{"n": 2**40, "g": 0.1, "tag": "new"}], partition=0)
    dataset = log.dataset("t")
    assert same(dataset.to_table(), log.read("t").read_all())
    for where in ("n > 998", "tag IS NULL AND n < 3", "tag = 'new'", "g = 0.5 AND n IN (4, 5)", "g > 0.4"):
        found = log.dataset("t", where=where).to_table()
        assert (where, same(found, log.read("t", where=where).read_all())) == (where, True)
    assert query(dataset, "SELECT count(tag) AS c, max(n) AS m FROM dataset").to_pylist() == [
        {"c": 1, "m": 2**40}
    ]


@pytest.mark.parametrize(("asked", "said"), [
    ({"columns": ["n", "_offset"]}, "no column '_offset'"),
    ({"where": "_offset < 5"}, "no column '_offset'"),
    ({"where": "n < 5", "columns": ["f"]}, "needs column 'n'"),
    ({"where": "_partition = 1"}, "needs column '_partition'"),
])  # fmt: skip
def test_what_a_dataset_cannot_have_is_named(counted: Any, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        counted[1].dataset("t", **asked)
    assert caught.value.kind == "unsupported-column"


def test_a_damaged_page_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log", embedding=False)
    fill(log, 100)
    dataset = log.dataset("t")
    path = tmp_path / "log" / next(iter(log.state.files)).key
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(OSError, match=r"checksum|CRC"):
        dataset.to_table()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        dataset.to_table()
    store = MemoryStore()
    log = TxnLog.create(store, embedding=False)
    fill(log, 100)
    dataset = log.dataset("t")
    store.delete(next(iter(log.state.files)).key)
    with pytest.raises(NotFoundError) as caught:
        dataset.to_table()
    assert caught.value.kind == "segment-file-missing"


def test_a_local_dataset_goes_to_other_processes(local: TxnLog) -> None:
    dataset = pickle.loads(pickle.dumps(local.dataset("t")))
    assert isinstance(dataset, ds.Dataset)
    assert dataset.count_rows() == local.read("t", columns=[]).read_all().num_rows
