"""Many small files: each is one GET, whatever partitions it holds and however it is read; several are on
their way where a request has a latency."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.reading.small_files import BUDGET, Far, counted, fill, gets_per_file
from txnformat.consumers import fetching
from txnformat.errors import NotFoundError
from txnformat.reading import compacting
from txnformat.reading.open_files import OpenFiles
from txnformat.store.memory import MemoryStore
from txnformat.store.open import open_store
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

FILES = 80
_roots = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with seaweedfs_server() as running:
        yield running


def read(log: TxnLog) -> list[int]:
    return log.read("t").read_all().column("n").to_pylist()  # type: ignore[no-any-return]


def read_where(log: TxnLog) -> list[int]:
    return log.read("t", where="text LIKE 'row%'").read_all().column("n").to_pylist()  # type: ignore[no-any-return]


def read_version(log: TxnLog) -> list[int]:
    found = log.read("t", version_as_of=log.state.entry)
    return found.read_all().column("n").to_pylist()  # type: ignore[no-any-return]


def read_offsets(log: TxnLog) -> list[int]:
    offsets = log.read("t", columns=["_offset"]).read_all().num_rows
    return list(range(offsets))


def scan(log: TxnLog) -> list[int]:
    return log.dataset("t").to_table().column("n").to_pylist()  # type: ignore[no-any-return]


def poll(log: TxnLog, most: int = 500) -> list[int]:
    found: list[int] = []
    with Consumer(log, max_poll_records=most) as consumer:
        consumer.subscribe(["t"])
        while (batch := consumer.poll(0)) is not None:
            found += batch.column("n").to_pylist()
    return found


def poll_few(log: TxnLog) -> list[int]:
    return poll(log, 7)


def receive(log: TxnLog) -> list[int]:
    found: list[int] = []
    subscription = Subscription(log, "t", "s")
    while (batch := subscription.receive(500, 0)) is not None:
        found += batch.column("n").to_pylist()
    subscription.close()
    return found


def verify(log: TxnLog) -> list[int]:
    report = log.verify(deep=True)
    assert report.ok
    return list(range(report.checked["records"]))


WAYS: list[Callable[[TxnLog], list[int]]] = [
    read,
    read_where,
    read_version,
    read_offsets,
    scan,
    poll,
    poll_few,
    receive,
    verify,
]


def subscribed(store: CountingStore) -> None:
    with TxnLog.open(store) as log:
        log.subscriptions.create("t", "s", start="earliest")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(("partitions", "seal_after"), [(1, None), (5, None), (5, 60)])
def test_a_small_file_is_one_get(
    way: Callable[[TxnLog], list[int]], far: bool, partitions: int, seal_after: int | None
) -> None:
    store = counted(far)
    expected = fill(store, FILES, partitions, seal_after=seal_after)
    subscribed(store)
    found: list[int] = []
    with TxnLog.open(store) as log:
        assert gets_per_file(store, FILES, lambda: found.extend(way(log))) <= BUDGET
    assert sorted(found) == expected
    assert not [one.name for one in threading.enumerate() if one.name.startswith("txnlog-read")]


@pytest.mark.parametrize("way", WAYS)
def test_a_small_file_is_one_get_of_a_bucket(server: S3Server, way: Callable[[TxnLog], list[int]]) -> None:
    store = CountingStore(
        open_store(server.url(f"small-{next(_roots)}"), storage_options=server.storage_options)
    )
    expected = fill(store, 24, 3, seal_after=12)
    subscribed(store)
    found: list[int] = []
    with TxnLog.open(store) as log:
        assert gets_per_file(store, 24, lambda: found.extend(way(log))) <= BUDGET
    assert sorted(found) == expected


def test_records_come_in_the_order_of_the_log() -> None:
    stores = [counted(far=False), counted(far=True)]
    tables = []
    for store in stores:
        fill(store, FILES, 4, seal_after=50)
        with TxnLog.open(store) as log:
            tables.append(log.read("t", columns=["n", "_partition", "_offset"]).read_all())
    assert tables[0] == tables[1]
    assert tables[0].num_rows == 4 * FILES


def test_a_consumer_that_is_far_behind_fetches_each_file_once_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunks of the partitions cover the same files: what one partition has fetched the others find."""
    monkeypatch.setattr(fetching, "CHUNK_FILES_MAX", 10)
    store = counted(far=True)
    expected = fill(store, FILES, 6)
    found: list[int] = []
    with TxnLog.open(store) as log:
        file = log.state.files[0]
        monkeypatch.setattr(fetching, "FILES_BYTES_MAX", 24 * (file.size + 4 * file.footer_bytes))
        assert gets_per_file(store, FILES, lambda: found.extend(poll(log))) <= BUDGET
    assert sorted(found) == expected


class Meeting(Far):
    """The first two reads of data, once ``meets`` is set, go on only together: a read that is alone waits
    until the barrier breaks."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.meets = False
        self._barrier = threading.Barrier(2, lambda: setattr(self, "meets", False))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if self.meets and key.endswith(".parquet"):
            self._barrier.wait(300)
        return super().get_range(key, start, length)


@pytest.mark.parametrize("way", [read, scan, poll, receive])
@pytest.mark.parametrize("partitions", [1, 4])
def test_several_files_are_on_their_way(way: Callable[[TxnLog], list[int]], partitions: int) -> None:
    store = Meeting()
    expected = fill(store, 24, partitions)
    subscribed(store)
    with TxnLog.open(store) as log:
        store.meets = True
        assert sorted(way(log)) == expected


def test_a_consumer_of_many_partitions_with_a_file_each_fetches_them_together() -> None:
    store = Meeting()
    with TxnLog.create(store) as log:
        log.create_topic("t", pa.schema([("n", pa.int64())]), partitions=12)
        for partition in range(12):
            with Producer(log, "p") as producer, producer.transaction() as txn:
                txn.send("t", [{"n": partition}], partition=partition)
    with TxnLog.open(store) as log:
        store.meets = True
        assert sorted(poll(log)) == list(range(12))


@pytest.mark.parametrize("far", [False, True])
def test_a_file_that_is_gone_is_an_error_at_its_place(far: bool) -> None:
    store = counted(far)
    fill(store, FILES, 1)
    with TxnLog.open(store) as log:
        store.delete(log.state.files[30].key)
        batches = log.read("t", columns=["n"])
        found = [batches.read_next_batch().column("n")[0].as_py() for _ in range(30)]
        with pytest.raises(NotFoundError) as caught:
            batches.read_next_batch()
        batches.close()
    assert caught.value.kind == "segment-file-missing"
    assert found == list(range(30))
    assert not [one.name for one in threading.enumerate() if one.name.startswith("txnlog-read")]


def test_a_read_that_is_left_early_asks_for_little_more() -> None:
    store = counted(far=True)
    fill(store, FILES, 1)
    with TxnLog.open(store) as log, store.measure() as measured:
        batches = iter(log.read("t"))
        next(batches)
        del batches
    assert measured.counts.count() <= 1 + 16 + 1
    assert not [one.name for one in threading.enumerate() if one.name.startswith("txnlog-read")]


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("seal_after", [None, 20])
def test_a_compaction_fetches_each_small_file_once(far: bool, seal_after: int | None) -> None:
    """A file with records of four partitions is kept from the first of them to the last."""
    store = counted(far)
    numbers = fill(store, FILES, 4, seal_after=seal_after)
    with TxnLog.open(store) as log:
        with store.measure() as measured:
            (found,) = log.compact("t", min_lag_ms=0)
        assert (found.files_before, found.files) == (FILES, 1)
        assert measured.counts.count(RequestKind.GET_RANGE, KeyClass.DATA) == FILES
        assert sorted(log.read("t").read_all()["n"].to_pylist()) == numbers


def test_a_compaction_keeps_a_bounded_number_of_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files beyond the bound those that are kept are still fetched once."""
    store = counted(far=False)
    numbers = fill(store, FILES, 4)
    most = []

    class Watched(OpenFiles):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named, bytes_max=60_000)

        def _keep(self, key: str, kept: Any) -> None:
            super()._keep(key, kept)
            most.append(self._bytes)

        def close(self) -> None:
            assert not self._uses, "every file was opened as often as was told"
            super().close()

    monkeypatch.setattr(compacting, "OpenFiles", Watched)
    with TxnLog.open(store) as log:
        with store.measure() as measured:
            log.compact("t", min_lag_ms=0)
        assert 50_000 < max(most) <= 60_000
        assert FILES < measured.counts.count(RequestKind.GET_RANGE, KeyClass.DATA) < 4 * FILES
        assert sorted(log.read("t").read_all()["n"].to_pylist()) == numbers
