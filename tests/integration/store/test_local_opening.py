"""Opening a log on a local disk: its directory of entries is not looked through, and a missing entry is still
noticed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.clients.failing import NUMBERS
from txnformat import keys
from txnformat.client.entry_listing import list_after
from txnformat.core.intents import AllocateIds
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.store.wrapped import WrappedStore
from txnlog import CorruptDataError, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass

PROBES_MAX = 60


class Scanning(MemoryStore):
    """Objects in memory that are listed as a local disk's are."""

    @property
    def lists_by_scanning(self) -> bool:
        return True


def numbers(store: ObjectStore, last: int) -> list[int | None]:
    return [keys.parse_entry_key(key) for key in list_after(store, keys.LOG_PREFIX, keys.entry_key(last))]


@settings(deadline=None)
@given(first=st.integers(0, 50), count=st.integers(0, 300))
def test_entries_that_follow_each_other_are_all_found(first: int, count: int) -> None:
    store = CountingStore(Scanning())
    for number in range(first + count + 1):
        store.put(keys.entry_key(number), b"")
    store.reset()
    assert numbers(store, first) == list(range(first + 1, first + count + 1))
    assert store.counts.requests.keys() == {RequestClass(RequestKind.HEAD, KeyClass.ENTRY)}
    assert sum(store.counts.requests.values()) <= PROBES_MAX


@settings(deadline=None)
@given(count=st.integers(1, 300), data=st.data())
def test_behind_a_missing_entry_later_ones_are_found(count: int, data: st.DataObject) -> None:
    missing = data.draw(st.integers(1, count))
    store = Scanning()
    for number in set(range(count + 2)) - {missing}:
        store.put(keys.entry_key(number), b"")
    assert numbers(store, 0) == list(range(1, count + 2))


def test_a_wrapper_says_how_the_store_behind_it_lists() -> None:
    assert not WrappedStore(MemoryStore()).lists_by_scanning
    assert WrappedStore(Scanning()).lists_by_scanning


def build(root: Path, entries_after: int) -> int:
    """Make a log with a snapshot and at least so many entries after the newest one, without bundles; returns
    the newest entry.

    Snapshots are written beside the commits, so where they land is chance. Bundles, which are hints, could
    stand in for an entry that a test removes.
    """
    store = MemoryStore()
    with TxnLog.create(store) as log:
        log.create_topic("t", NUMBERS)
        while not log.state.checkpoints:
            log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
    while entries_behind_snapshot(store) < entries_after:
        with TxnLog.open(store) as log:
            log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
    for info in store.list(""):
        if info.key.startswith(keys.BUNDLE_PREFIX):
            continue
        path = root / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(info.key) or b"")
    return newest_entry(store)


def newest_entry(store: ObjectStore) -> int:
    numbers = (keys.parse_entry_key(info.key) for info in store.list(keys.LOG_PREFIX))
    return max(number for number in numbers if number is not None)


def entries_behind_snapshot(store: ObjectStore) -> int:
    names = (keys.parse_snapshot_key(info.key) for info in store.list(keys.SNAPSHOT_PREFIX))
    return newest_entry(store) - max(name.born for name in names if name is not None)


def test_a_log_on_a_local_disk_opens_without_a_listing_of_its_entries(tmp_path: Path) -> None:
    entry = build(tmp_path, 5)
    store = CountingStore(LocalStore(tmp_path))
    with TxnLog.open(store) as log:
        assert log.state.entry == entry
    found = store.counts.requests
    assert RequestClass(RequestKind.LIST, KeyClass.ENTRY) not in found
    assert found[RequestClass(RequestKind.HEAD, KeyClass.ENTRY)] <= PROBES_MAX


def test_an_entry_that_is_missing_on_a_local_disk_is_named(tmp_path: Path) -> None:
    entry = build(tmp_path, 70)
    (tmp_path / keys.entry_key(entry - 1)).unlink()
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(LocalStore(tmp_path))
    assert caught.value.values["object"] == keys.entry_key(entry - 1)
    assert caught.value.values["newest"] == entry


@pytest.mark.parametrize(
    "name", ["a b", "x%20y", "a%41b", "100%", "%", "#?&+;=", "ü", os.fsdecode(b"nu\xff8"), "'\"", "\n"]
)
def test_the_url_of_a_log_leads_back_to_it_and_to_no_other(tmp_path: Path, name: str) -> None:
    log = TxnLog.create(tmp_path / name)
    log.create_topic("t", NUMBERS)
    assert log.url.isascii() or name == "ü"
    assert LocalStore(tmp_path / name).url == log.url == TxnLog.open(log.url).url
    assert TxnLog.open(log.url).log_id == log.log_id
    assert log.dataset("t").count_rows() == 0
    assert log.url in json.loads(log.timeline().to_json()).values()
