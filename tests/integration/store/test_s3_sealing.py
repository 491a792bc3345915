"""Sealing and datasets in a bucket: what they cost, and that other engines read the same."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from txnformat.store.open import open_store
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


@pytest.fixture
def store(server: S3Server, request: pytest.FixtureRequest) -> CountingStore:
    """A log: ten committed records, ten aborted ones, ten committed ones, in each of two partitions."""
    url = server.url(request.node.name.replace("_", "-"))
    store = CountingStore(open_store(url, storage_options=server.storage_options))
    with TxnLog.create(store) as log:
        log.create_topic("t", pa.schema([("n", pa.int64()), ("text", pa.string())]), partitions=2)
        with Producer(log, "p", buffer="inline") as producer:
            for first in (0, 10, 20):
                producer.begin()
                for partition in (0, 1):
                    numbers = range(100 * partition + first, 100 * partition + first + 10)
                    rows = pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})
                    producer.send("t", rows, partition=partition)
                producer.flush()
                producer.abort() if first == 10 else producer.commit()
    return store


COMMITTED = [*range(10), *range(20, 30), *range(100, 110), *range(120, 130)]


def test_a_seal_is_three_sidecars_and_one_entry_and_a_cold_read_fetches_one(store: CountingStore) -> None:
    with TxnLog.open(store) as log:
        log.refresh()
        with store.measure() as measured:
            report = log.maintain("seal")
        assert (report.segments, report.partitions, report.batches) == (1, 2, 6)
        assert measured.counts.count(RequestKind.CREATE, KeyClass.SIDECAR) == 3
        assert measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
        # One file of the rows that were committed, one of those that were aborted;.
        assert measured.counts.count(RequestKind.CREATE, KeyClass.DATA) == 2
        assert measured.counts.count(RequestKind.OPEN_WRITE, KeyClass.DATA) == 0
        assert measured.counts.bytes_written(KeyClass.SIDECAR) == report.sidecar_bytes
        assert log.state.extents == 0
    with TxnLog.open(store) as log:
        for sidecars in (1, 0):  # kept by the process
            with store.measure() as measured:
                assert log.read("t").read_all().column("n").to_pylist() == COMMITTED
            assert measured.counts.count(RequestKind.GET, KeyClass.SIDECAR) == sidecars
            assert measured.counts.count(RequestKind.CREATE) == 0
        assert log.verify(deep=True).ok


@pytest.mark.parametrize("sealed", [False, True])
def test_duckdb_reads_a_dataset_in_a_bucket(store: CountingStore, sealed: bool) -> None:
    with TxnLog.open(store) as log:
        if sealed:
            log.maintain("seal")
        dataset = log.dataset("t")
        with duckdb.connect() as connection:
            connection.register("dataset", dataset)
            found = connection.sql(
                "SELECT n FROM dataset WHERE n >= 5 AND text <> 'row 7' ORDER BY n"
            ).fetchall()
    assert [n for (n,) in found] == [n for n in COMMITTED if n >= 5 and n != 7]
