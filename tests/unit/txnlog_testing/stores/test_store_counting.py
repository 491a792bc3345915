"""The counting wrapper: requests by operation and class of key, bytes by direction."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from txnformat import keys
from txnformat.errors import NotFoundError, StorageError
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog_testing.stores.counting import CountingStore, RequestClass, RequestCounts

UUID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (keys.FORMAT_KEY, KeyClass.FORMAT),
        (keys.LATEST_KEY, KeyClass.LATEST),
        (keys.entry_key(42), KeyClass.ENTRY),
        (keys.LOG_PREFIX, KeyClass.ENTRY),
        (keys.boundary_key(42), KeyClass.BOUNDARY),
        (keys.BOUNDARY_PREFIX, KeyClass.BOUNDARY),
        (keys.snapshot_key(42, UUID), KeyClass.SNAPSHOT),
        (keys.table_key(42, UUID), KeyClass.TABLE),
        (keys.data_key("orders-01234567", 42, UUID), KeyClass.DATA),
        ("orders-01234567/data/", KeyClass.DATA),
        ("_txnlog/", KeyClass.OTHER),
        ("probe", KeyClass.OTHER),
    ],
)
def test_the_class_of_a_key(key: str, expected: KeyClass) -> None:
    assert key_class(key) is expected


def test_each_operation_is_one_request_whatever_its_outcome() -> None:
    store = CountingStore(MemoryStore())
    entry = keys.entry_key(0)
    store.get(entry)
    store.create(entry, b"12345")
    store.create(entry, b"123")  # lost: sent all the same
    store.get(entry)
    store.get_range(entry, 1, 2)
    with pytest.raises(NotFoundError):
        store.get_range("none", 0, 1)
    store.head(entry)
    store.put(keys.LATEST_KEY, b"12")
    store.list(keys.LOG_PREFIX)
    store.delete(entry)
    counts = store.counts
    assert counts.requests == {
        RequestClass(RequestKind.GET, KeyClass.ENTRY): 2,
        RequestClass(RequestKind.CREATE, KeyClass.ENTRY): 2,
        RequestClass(RequestKind.GET_RANGE, KeyClass.ENTRY): 1,
        RequestClass(RequestKind.GET_RANGE, KeyClass.OTHER): 1,
        RequestClass(RequestKind.HEAD, KeyClass.ENTRY): 1,
        RequestClass(RequestKind.PUT, KeyClass.LATEST): 1,
        RequestClass(RequestKind.LIST, KeyClass.ENTRY): 1,
        RequestClass(RequestKind.DELETE, KeyClass.ENTRY): 1,
    }
    assert counts.count() == 10
    assert counts.count(RequestKind.GET) == 2
    assert counts.count(key_class=KeyClass.ENTRY) == 8
    assert counts.count(RequestKind.PUT, KeyClass.ENTRY) == 0
    assert counts.bytes_read() == counts.bytes_read(KeyClass.ENTRY) == 7
    assert counts.bytes_written() == 10
    assert counts.bytes_written(KeyClass.LATEST) == 2


def test_a_stream_is_one_request_when_it_is_closed() -> None:
    store = CountingStore(MemoryStore())
    writer = store.open_write("a")
    writer.write(b"123")
    assert store.counts.count() == 0
    writer.close()
    writer.close()
    store.open_write("b").abort()
    taken = store.open_write("a")
    taken.write(b"4")
    with pytest.raises(StorageError):
        taken.close()
    assert store.counts.count(RequestKind.OPEN_WRITE) == store.counts.count() == 2
    assert store.counts.bytes_written() == 4


def test_a_measurement_holds_what_its_block_did() -> None:
    store = CountingStore(MemoryStore())
    store.get("a")
    with store.measure() as measured:
        store.put("a", b"123")
        assert measured.counts.count() == 1
        store.get("a")
    store.get("a")
    assert measured.counts.count() == 2
    assert measured.counts.requests == {
        RequestClass(RequestKind.PUT, KeyClass.OTHER): 1,
        RequestClass(RequestKind.GET, KeyClass.OTHER): 1,
    }
    assert (measured.counts.bytes_read(), measured.counts.bytes_written()) == (3, 3)


def test_counts_are_a_copy_and_reset_begins_from_zero() -> None:
    store = CountingStore(MemoryStore())
    store.get("a")
    before = store.counts
    store.reset()
    assert store.counts == RequestCounts()
    assert before.count() == 1


def test_no_request_of_many_threads_is_missed() -> None:
    store = CountingStore(MemoryStore())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: store.create(f"a/{number}", b"12"), range(800)))
    assert store.counts.count(RequestKind.CREATE) == 800
    assert store.counts.bytes_written() == 1600


def test_store_time_and_url_cost_nothing() -> None:
    store = CountingStore(MemoryStore(name="x"))
    assert store.store_time_ms() > 0
    assert store.url == "memory://x"
    assert store.counts.count() == 0
