"""Rows in entries and the removal of entries: what keeps them, what lets them go, and what is read
meanwhile.
"""

from __future__ import annotations

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.producers.embedded_logs import SCHEMA, copy_of, rows, seen
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.core.lifecycle.truncation import LimitedBy
from txnformat.core.wire.bundle import decode_payloads
from txnformat.segments.payload import payload_of
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import Outcome
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import FarStore


def old_log(*, seals: bool) -> tuple[ManualClock, MemoryStore, TxnLog]:
    """Return a log with 250 embedded transactions of a month ago, and two snapshots after them."""
    clock = ManualClock()
    store = MemoryStore(clock)
    log = TxnLog.create(FarStore(store), clock=clock)
    log.create_topic("t", SCHEMA)
    with Producer(log, "p") as producer:
        for number in range(250):
            with producer.transaction() as txn:
                txn.send("t", rows(number))
    planned = log.state.entry
    if seals:
        log.maintain("seal")
    for _ in range(2):
        log.committer.write_snapshot()
    clock.sleep(30 * 24 * 3600)
    with Producer(log) as plain:
        plain.send("t", rows(1_000))
    log.committer.write_snapshot()
    log.committer.write_snapshot()
    assert log.state.entry > planned
    return clock, store, log


@pytest.mark.parametrize("seals", [False, True])
def test_a_truncation_keeps_rows_that_are_nowhere_else(seals: bool) -> None:
    clock, store, log = old_log(seals=seals)
    before = seen(log)
    report = log.truncate()
    assert (report.boundary > 0) == seals
    if not seals:
        assert report.limited_by == LimitedBy.EMBEDDED.value
    clock.sleep(3_601)
    log.truncate()
    slots = [info.key for info in store.list(keys.LOG_PREFIX)]
    assert (len(slots) < 150) == seals
    other = TxnLog.open(copy_of(store), clock=clock)
    assert seen(other) == before
    assert [one.entry for one in other.history()][-1] == 0
    assert other.verify(deep=True).ok


@pytest.mark.parametrize("outcome", [Outcome.COMMIT, Outcome.ABORT])
def test_a_transaction_that_stays_prepared_keeps_no_entry_from_a_truncation(outcome: Outcome) -> None:
    """Nor do rows behind it that are committed. One row is far below what a writer spills on its own."""
    clock = ManualClock()
    store = MemoryStore(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", SCHEMA)
    held = Producer(log, "held", buffer="inline")
    held.init()
    held.begin()
    held.send("t", rows(-1))
    token = held.prepare()
    with Producer(log, "p") as producer:
        for number in range(230):
            with producer.transaction() as txn:
                txn.send("t", rows(number))
    clock.sleep(30 * 24 * 3600)
    with Producer(log) as plain:
        plain.send("t", rows(1_000))
    week = datetime.timedelta(days=7)
    assert log.truncate(week, dry_run=True).limited_by in (
        LimitedBy.EMBEDDED.value,
        LimitedBy.SNAPSHOTS.value,
        LimitedBy.SNAPSHOT.value,
    )
    before = seen(log)
    for _ in range(2):
        log.maintain("truncate", truncate_older_than=week)
        clock.sleep(3_601)
    assert (keys.parse_entry_key(_log_keys(store)[0]) or 0) >= 200
    for other in (log, TxnLog.open(copy_of(store), clock=clock)):
        assert seen(other) == before
    (log.commit_prepared if outcome is Outcome.COMMIT else log.abort_prepared)(token)
    expected = [*range(230), 1_000, *([-1] if outcome is Outcome.COMMIT else [])]
    assert sorted(one["n"] for one in seen(log)["read_committed"]) == sorted(expected)
    assert log.verify(deep=True).ok


def _log_keys(store: MemoryStore) -> list[str]:
    return sorted(info.key for info in store.list(keys.LOG_PREFIX))


def test_a_read_that_was_planned_before_the_seal_goes_on_when_its_entries_are_deleted() -> None:
    clock, store, log = old_log(seals=False)
    reader = TxnLog.open(CountingStore(store), clock=clock)
    batches = reader.read("t", columns=["n"])
    log.maintain("seal")
    for _ in range(2):
        log.committer.write_snapshot()
    clock.sleep(30 * 24 * 3600)
    with Producer(log) as plain:
        plain.send("t", rows(1_001))
    for _ in range(2):
        log.committer.write_snapshot()
    log.truncate()
    clock.sleep(3_601)
    assert log.truncate().deleted_below >= 200
    assert sorted(batches.read_all()["n"].to_pylist()) == [*range(250), 1_000]


def test_bundles_have_no_rows_and_followers_who_are_far_behind_fetch_none() -> None:
    _, store, log = old_log(seals=False)
    first = keys.entry_key(100)
    payload = payload_of(store.get(first) or b"")
    assert payload
    (bundle,) = (
        info.key for info in store.list(keys.BUNDLE_PREFIX) if keys.parse_bundle_key(info.key) == (100, 199)
    )
    assert payload not in (store.get(bundle) or b"")
    assert log.verify(deep=True).ok
    counting = CountingStore(store)
    with counting.measure() as measured:
        assert TxnLog.open(counting).state.entry_sha256 == log.state.entry_sha256
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) < 20


def test_a_certificate_waits_for_the_entries_that_may_have_the_rows() -> None:
    clock, store, log = old_log(seals=False)
    log.erase("t", where="n = 7", requested_by="me")
    missing: tuple[str, ...] = ()
    for _ in range(6):
        log.maintain("seal")
        log.vacuum(datetime.timedelta(hours=2))
        missing = log.maintain("erasures").erasures[0].missing
        clock.sleep(7_201)
    assert any("payloads may hold" in one for one in missing), missing
    assert _holds(store, b"row 7")
    clock.sleep(30 * 24 * 3600)
    for number in range(200):
        with Producer(log) as plain:
            plain.send("t", rows(2_000 + number))
    log.maintain("seal")
    for _ in range(2):
        log.committer.write_snapshot()
    clock.sleep(30 * 24 * 3600)
    for _ in range(3):
        with Producer(log) as plain:
            plain.send("t", rows(3_000))
        log.maintain("seal")
        for _ in range(2):
            log.committer.write_snapshot()
        log.truncate()
        clock.sleep(3_601)
        log.vacuum(datetime.timedelta(hours=2))
        log.maintain("erasures")
    (status,) = log.erasures()
    assert status.is_complete, status.missing
    assert not _holds(store, b"row 7")
    assert not [key for key in _payload_keys(store) if key < keys.payloads_key(200, 0)]
    assert 7 not in log.read("t").read_all()["n"].to_pylist()


def _payload_keys(store: MemoryStore) -> list[str]:
    return sorted(info.key for info in store.list(keys.PAYLOAD_PREFIX))


def test_no_certificate_while_a_bundle_repeats_payloads_that_are_gone() -> None:
    """A writer that slept creates a bundle after the truncation: the next vacuum finds it, and so does the
    certificate before that."""
    clock, store, log = old_log(seals=True)
    late = keys.payloads_key(10, 19)
    repeated = store.get(late) or b""
    assert _holds(store, b"row 7")
    log.erase("t", where="n = 7", requested_by="me")
    for number in range(100):
        with Producer(log) as plain:
            plain.send("t", rows(2_000 + number))
    for _ in range(3):
        clock.sleep(30 * 24 * 3600)
        with Producer(log) as plain:
            plain.send("t", rows(3_000))
        log.maintain("seal")
        for _ in range(2):
            log.committer.write_snapshot()
        log.truncate()
        clock.sleep(3_601)
        log.truncate()
        log.vacuum(datetime.timedelta(hours=2))
    assert (keys.parse_entry_key(_log_keys(store)[0]) or 0) > log.erasures()[0].rewritten_entry
    store.put(late, repeated)
    assert _holds(store, b"row 7")
    (status,) = log.maintain("erasures").erasures
    assert any("payload bundles" in one for one in status.missing), status.missing
    assert not log.erasures()[0].is_complete
    log.vacuum(datetime.timedelta(hours=2))
    assert not _holds(store, b"row 7")
    log.maintain("erasures")
    assert log.erasures()[0].is_complete


def _holds(store: MemoryStore, text: bytes) -> bool:
    """Return whether any object has the text of an embedded file's uncompressed page, or of a Parquet
    file.
    """
    for info in store.list(""):
        data = store.get(info.key) or b""
        bundled = keys.parse_payloads_key(info.key)
        parts = [data] if bundled is None else decode_payloads(data, info.key, bundled[1] - bundled[0] + 1)
        for part in (*map(payload_of, parts), *parts):
            if (
                part.startswith(b"PAR1")
                and text.decode() in pq.read_table(pa.BufferReader(part))["text"].to_pylist()
            ):
                return True
    return False
