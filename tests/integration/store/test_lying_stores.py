"""No store that breaks its promise at every request gets as far as a wrong acknowledgement: not one lie, nor
several at once."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat.errors import StorageError
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.lying import Lie, LyingStore

NUMBERS = pa.schema([("n", pa.int64())])
SETS = [frozenset(lies) for size in range(1, len(Lie) + 1) for lies in itertools.combinations(Lie, size)]
WINNERS = range(2, 33)
STALE = range(1, 9)
PAGE = Path(__file__).parents[3] / "docs/internals/reliability.md"


def _stores(inner: MemoryStore | LocalStore, lies: frozenset[Lie]) -> list[LyingStore]:
    """Return the store with these lies, and with each number of winners or of stale answers when it tells one
    lie."""
    if lies == {Lie.SEVERAL_WIN}:
        return [LyingStore(inner, lies, winners=winners) for winners in WINNERS]
    if lies in ({Lie.STALE_READS}, {Lie.STALE_LISTS}):
        return [LyingStore(inner, lies, stale=stale) for stale in STALE]
    return [LyingStore(inner, lies)]


def _written() -> tuple[MemoryStore, dict[str, bytes]]:
    """Return a log that was made while its store kept its promises, and its objects."""
    inner = MemoryStore()
    log = TxnLog.create(inner)
    log.create_topic("t", NUMBERS)
    _append(log, 1)
    log.close()
    return inner, _objects(inner)


def _append(log: TxnLog, number: int) -> None:
    with Producer(log) as producer:
        producer.send("t", [{"n": number}])


def _objects(store: MemoryStore) -> dict[str, bytes]:
    return {info.key: store.get(info.key) or b"" for info in store.list("")}


def test_a_store_that_lies_gets_no_log() -> None:
    """The kind of the error says that the store is the cause."""
    refused = 0
    for lies in SETS:
        inner = MemoryStore()
        for store in _stores(inner, lies):
            with pytest.raises(StorageError) as caught:
                TxnLog.create(store)
            assert caught.value.kind == "unsupported-store", (lies, caught.value)
            assert "use a store" in str(caught.value)
            assert _objects(inner) == {}, lies
            refused += 1
    assert refused == len(SETS) + len(WINNERS) - 1 + 2 * (len(STALE) - 1)
    assert _stated("a log is made") == (refused, refused)


def test_a_store_that_lies_since_its_log_was_made_acknowledges_nothing() -> None:
    """The first write of a process tries it.

    Stale listings alone are not looked for: nothing that is acknowledged rests on them. One read cannot tell
    a store that replaced the object, and shows the one before once more, from one that keeps its promise.
    """
    refused = tried = 0
    for lies in SETS:
        for number in range(len(_stores(MemoryStore(), lies))):
            if lies == {Lie.STALE_LISTS}:
                continue
            tried += 1
            inner, before = _written()
            log = TxnLog.open(_stores(inner, lies)[number])
            if lies - {Lie.STALE_LISTS} == {Lie.REPLACES, Lie.STALE_READS}:
                _append(log, 2)
                log.close()
                continue
            with pytest.raises(StorageError) as caught:
                _append(log, 2)
            log.close()
            assert caught.value.kind == "unsupported-store", (lies, caught.value)
            assert _objects(inner) == before, lies
            refused += 1
    assert tried == len(SETS) - 1 + len(WINNERS) - 1 + len(STALE) - 1
    assert _stated("a process writes to a log") == (refused, tried)


@pytest.mark.parametrize("stale", [1, 3, 1_000_000])
def test_records_are_whole_in_a_store_whose_listings_are_stale(stale: int) -> None:
    """Two writers take turns, and a third opens the log late; the store behind shows what each was told."""
    inner, _ = _written()
    logs = [TxnLog.open(LyingStore(inner, {Lie.STALE_LISTS}, stale=stale)) for _ in range(2)]
    for number in range(2, 12):
        if number == 7:
            logs.append(TxnLog.open(LyingStore(inner, {Lie.STALE_LISTS}, stale=stale)))
        _append(logs[number % len(logs)], number)
    for log in logs:
        log.close()
    assert TxnLog.open(inner).read("t").read_all()["n"].to_pylist() == [*range(1, 12)]


def _stated(what: str) -> tuple[int, int]:
    """Return the numbers that the page on reliability states: refused, and tried."""
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {what}"))
    found = re.search(r"\| (\d+) of (\d+) \|", line)
    assert found, line
    return int(found[1]), int(found[2])
