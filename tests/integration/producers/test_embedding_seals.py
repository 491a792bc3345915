"""A seal of rows that are in entries takes them from what its process keeps, and compares their hashes."""

from __future__ import annotations

import pytest

from tests.integration.producers.embedded_logs import copy_of, log_on, seen, write
from txnformat.store.memory import MemoryStore
from txnformat.store.recent import recent_payloads
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore


@pytest.mark.parametrize("sealed_by", ["the writer", "a follower", "another process"])
def test_a_seal_reads_no_payload_that_its_process_has_seen(sealed_by: str) -> None:
    store = CountingStore(MemoryStore())
    log = log_on(store)
    write(log)
    if sealed_by == "another process":
        log.committer.write_snapshot()  # it need not read the entries
    other = log if sealed_by == "the writer" else TxnLog.open(copy_of(store))
    entries = {file.place.entry for file in log.state.files if file.place is not None}
    counting = other.store
    assert isinstance(counting, CountingStore)
    before = seen(log)
    other.refresh()
    with counting.measure() as measured:
        other.committer.seal()
    reads = len(entries) if sealed_by == "another process" else 0
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == reads
    assert not len(other.state.files)
    assert seen(other) == before
    assert other.verify(deep=True).ok


def test_a_seal_believes_no_payload_of_another_entry_in_the_same_slot() -> None:
    store = CountingStore(MemoryStore())
    log = log_on(store)
    write(log)
    before = seen(log)
    entries = sorted({file.place.entry for file in log.state.files if file.place is not None})
    for entry in entries[::2]:
        recent_payloads(store).keep(entry, b"rows of another entry" * 200)
    with store.measure() as measured:
        log.committer.seal()
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == len(entries[::2])
    assert seen(log) == before
    assert log.verify(deep=True).ok
