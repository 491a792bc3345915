"""A log without a usable snapshot, however long it is, opens a piece at a time: the same state, the same
complaints."""

from __future__ import annotations

import functools

import pytest

from tests.integration.clients.failing import NUMBERS
from txnformat import keys
from txnformat.core.intents import AllocateIds
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first
from txnformat.protocol import follow
from txnformat.protocol.effects import Steps
from txnformat.protocol.tail import HUNDREDS, Tail, read_tail, write_bundles
from txnformat.store.memory import MemoryStore
from txnlog import CorruptDataError, TxnLog
from txnlog_testing.stores.counting import CountingStore

ENTRIES = 350
PIECES = [1, 99, 100, 101, 250, 349]


@functools.cache
def built() -> tuple[dict[str, bytes], bytes]:
    """Return the objects of a log without snapshots, and its state."""
    store = MemoryStore()
    with TxnLog.create(store) as log:
        log.create_topic("t", NUMBERS)
        while log.state.entry < ENTRIES:
            log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
        # A writer that is busy with one bundle leaves the next one to others.
        log.committer.read(write_bundles(bundle_first(ENTRIES + 1) - BUNDLE_ENTRIES))
    with TxnLog.open(store) as log:
        state = encode_snapshot(log.state)
    objects = {info.key: store.get(info.key) or b"" for info in store.list("")}
    return {
        key: data for key, data in objects.items() if "snapshots" not in key and "latest" not in key
    }, state


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    for key, data in built()[0].items():
        store.put(key, data)
    return store


@pytest.fixture(params=PIECES)
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Most entries that are read at once; none of the reads may have more."""
    most: int = request.param

    def watched(*args: object, **kwargs: object) -> Steps[Tail]:
        tail: Tail = yield from read_tail(*args, **kwargs)  # type: ignore[arg-type]
        assert len(tail.entries) <= most
        return tail

    monkeypatch.setattr(follow, "TAIL_MAX", most)
    monkeypatch.setattr(follow, "read_tail", watched)
    return most


def opened(store: MemoryStore) -> bytes:
    with TxnLog.open(store) as log:
        return encode_snapshot(log.state)


def test_the_state_is_that_of_one_piece(store: MemoryStore, piece: int) -> None:
    assert any(key.startswith(keys.BUNDLE_PREFIX) for key in built()[0])
    assert opened(store) == built()[1]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_bundles_that_are_damaged_or_missing_do_not_matter(
    store: MemoryStore, piece: int, number: int
) -> None:
    bundles = sorted(key for key in built()[0] if key.startswith(keys.BUNDLE_PREFIX))
    store.put(bundles[number], b"nothing")
    assert opened(store) == built()[1]
    store.delete(bundles[number])
    assert opened(store) == built()[1]
    other = built()[0][bundles[(number + 1) % len(bundles)]]
    store.put(bundles[number], other)
    assert opened(store) == built()[1]


@pytest.mark.parametrize("missing", [0, 1, 99, 100, 101, 200, 251, 300, ENTRIES - 1])
def test_an_entry_that_is_missing_is_named(store: MemoryStore, piece: int, missing: int) -> None:
    for key in built()[0]:
        if key.startswith(keys.BUNDLE_PREFIX):
            store.delete(key)
    store.delete(keys.entry_key(missing))
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(store)
    assert caught.value.values["object"] == keys.entry_key(missing)


@pytest.mark.parametrize("damaged", [0, 99, 100, 250, ENTRIES - 1])
def test_an_entry_that_is_damaged_is_named(store: MemoryStore, piece: int, damaged: int) -> None:
    for key in built()[0]:
        if key.startswith(keys.BUNDLE_PREFIX):
            store.delete(key)
    data = built()[0][keys.entry_key(damaged)]
    store.put(keys.entry_key(damaged), data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(store)
    assert caught.value.values["object"] in {keys.entry_key(damaged), keys.entry_key(damaged + 1)}


def test_a_piece_at_a_time_reads_no_entry_twice(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = CountingStore(store)
    with TxnLog.open(counting):
        whole = sum(counting.counts.requests.values())
    counting.reset()
    monkeypatch.setattr(follow, "TAIL_MAX", 100)
    with TxnLog.open(counting):
        assert sum(counting.counts.requests.values()) <= whole + follow.AHEAD_MAX + HUNDREDS.ahead
