"""Payload bundles: few requests for many small transactions; they prove nothing; and who deletes them."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from tests.integration.producers.embedded_logs import SCHEMA, rows
from tests.model.groups import ManualClock
from txnformat import keys
from txnformat.admin.garbage import Fate, Kind
from txnformat.admin.truncation import Act, TruncatedKind
from txnformat.core.wire.bundle import PAYLOAD_SIZES, decode_payloads, encode_payloads
from txnformat.protocol.follow import TENS_AHEAD
from txnformat.segments.payload import head_of, payload_of, with_payload
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import FarStore

HOURS = datetime.timedelta(hours=2)


def log_of(commits: int) -> tuple[ManualClock, MemoryStore, TxnLog]:
    """Return a log on a store that is far away, whose last entry has so many small transactions before and in
    it."""
    clock = ManualClock()
    store = MemoryStore(clock)
    log = TxnLog.create(FarStore(store), clock=clock)
    log.create_topic("t", SCHEMA)
    commit(log, range(commits))
    return clock, store, log


def commit(log: TxnLog, numbers: range) -> None:
    with Producer(log, "p") as producer:
        for number in numbers:
            with producer.transaction() as txn:
                txn.send("t", rows(number))
            log.committer.close()  # what is under way behind the answer ends in the seconds before the next one


def bundles(store: ObjectStore) -> list[tuple[int, int]]:
    found = (keys.parse_payloads_key(info.key) for info in store.list(keys.PAYLOAD_PREFIX))
    return sorted(one for one in found if one is not None)


def numbers_read(store: ObjectStore) -> list[int]:
    found: list[int] = TxnLog.open(store).read("t").read_all()["n"].to_pylist()
    return found


def cold_gets(store: MemoryStore) -> tuple[int, int]:
    """Return the GETs of entries, and of payload bundles, of a reader that knows nothing."""
    counting = CountingStore(FarStore(store))
    with counting.measure() as measured:
        numbers_read(counting)
    return tuple(measured.counts.count(RequestKind.GET, one) for one in (KeyClass.ENTRY, KeyClass.PAYLOADS))  # type: ignore[return-value]


def test_a_cold_reader_asks_for_one_object_in_fifty_small_transactions() -> None:
    _, store, log = log_of(601)
    assert log.state.entry % 100 < 10
    entries, payloads = cold_gets(store)
    assert entries + payloads <= 1 + 0.02 * 601
    assert numbers_read(FarStore(store)) == [*range(601)]


def test_the_last_entries_are_read_in_tens() -> None:
    _, store, log = log_of(75)
    log.committer.write_snapshot()
    entries, payloads = cold_gets(store)
    # Tens, and a hundred that is not there; a ten that is not complete, the checkpoint, and the slot behind
    # it.
    assert payloads <= log.state.entry // 10 + 2
    assert entries <= log.state.entry % 10 + 3
    assert bundles(store) == [(first, first + 9) for first in range(0, log.state.entry - 8, 10)]


def test_bundles_have_what_the_slots_have_and_none_is_written_on_a_local_disk_or_without_embedding() -> None:
    _, store, _ = log_of(210)
    for first, last in bundles(store):
        count = last - first + 1
        key = keys.payloads_key(first, last)
        slots = [store.get(keys.entry_key(number)) for number in range(first, last + 1)]
        assert decode_payloads(store.get(key) or b"", key, count) == slots
        assert count in PAYLOAD_SIZES
    assert {last - first + 1 for first, last in bundles(store)} == set(PAYLOAD_SIZES)
    for near in (MemoryStore(), FarStore(MemoryStore())):
        other = TxnLog.create(near, embedding=isinstance(near, MemoryStore))
        other.create_topic("t", SCHEMA)
        commit(other, range(25))
        assert bundles(near) == []


@pytest.mark.parametrize(("seconds", "tens"), [(6, 2), (7, 0)])
def test_entries_without_payloads_are_bundled_only_if_ten_of_them_come_in_a_minute(
    seconds: int, tens: int
) -> None:
    """Followers find those together; others they read one by one, as they come. A hundred of them are in the
    bundle of their heads."""
    clock, store, log = log_of(0)
    while log.state.entry % 10 != 9:
        log.create_topic(f"first-{log.state.entry}", SCHEMA)
    log.committer.close()
    before = bundles(store)
    for number in range(20):
        clock.sleep(seconds)
        log.create_topic(f"other-{number}", SCHEMA)
        log.committer.close()
    assert len(bundles(store)) - len(before) == tens


def followed(store: MemoryStore, log: TxnLog) -> tuple[int, int]:
    """Return the GETs of slots and of bundles when a log is followed to its tip."""
    counting = CountingStore(FarStore(store))
    log.store = log.committer.store = log.committer._driver.store = counting
    with counting.measure() as measured:
        log.refresh()
    slots = measured.counts.count(RequestKind.GET, KeyClass.ENTRY)
    return slots, measured.counts.count(RequestKind.GET) - slots


def test_a_follower_reads_tens_and_learns_how_much_to_expect() -> None:
    _, store, log = log_of(30)
    follower = TxnLog.open(FarStore(store), clock=log.committer.clock)
    found = []
    for count in (57, 57, 1, 0, 3):
        if count:
            commit(log, range(count))
        found.append(followed(store, follower))
        assert follower.state.entry_sha256 == log.state.entry_sha256
    first, second, *rest = found
    assert sum(first) <= 3 + 6 + 5 + 9 + TENS_AHEAD
    assert sum(second) <= 1 + 6 + 4 + 9 + TENS_AHEAD
    assert rest[1] == (1, 0), "nothing new is one request, whatever is expected"
    assert sum(rest[0]) <= 5


def test_a_writer_fetches_what_others_have_written() -> None:
    _, store, log = log_of(6)
    other = TxnLog.open(FarStore(store), clock=log.committer.clock)
    commit(other, range(6, 8))
    assert log.state.entry < other.state.entry
    commit(log, range(8, 30))
    assert bundles(store)[0] == (0, 9)
    assert numbers_read(FarStore(store)) == [*range(30)]


def cut_short(data: bytes) -> bytes:
    return data[:-1]


def one_bit_of_a_payload(data: bytes) -> bytes:
    place = data.rindex(b"TXNLROWS") - 40
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def payloads_in_other_entries(data: bytes) -> bytes:
    count = 100 if len(data) > 100_000 else 10
    entries = decode_payloads(data, "x", count)
    turned = [*entries[1:], entries[0]]
    return (
        encode_payloads(
            [with_payload(head_of(a), payload_of(b)) for a, b in zip(entries, turned, strict=True)]
        )
        or b""
    )


def nothing(data: bytes) -> bytes:
    return b""


@pytest.mark.parametrize(
    "damage",
    [cut_short, one_bit_of_a_payload, payloads_in_other_entries, nothing],
    ids=lambda one: one.__name__,
)
def test_a_bad_bundle_is_passed_over(damage: Callable[[bytes], bytes]) -> None:
    _, store, _ = log_of(130)
    for info in store.list(keys.PAYLOAD_PREFIX):
        store.put(info.key, damage(store.get(info.key) or b""))
    assert numbers_read(FarStore(store)) == [*range(130)]
    report = TxnLog.open(FarStore(store)).verify()
    bad = {problem.object for problem in report.problems}
    assert bad == {info.key for info in store.list(keys.PAYLOAD_PREFIX)}
    for key in bad:
        store.delete(key)
    assert TxnLog.open(FarStore(store)).verify(deep=True).ok


def test_a_bundle_that_may_not_be_read_is_passed_over_and_one_missing_too() -> None:
    _, store, _ = log_of(130)
    for info in store.list(keys.PAYLOAD_PREFIX):
        store.put(info.key, bytes(20 * 2**20))  # an error of the store: larger than any
    assert numbers_read(FarStore(store)) == [*range(130)]
    for info in store.list(keys.PAYLOAD_PREFIX):
        store.delete(info.key)
    assert numbers_read(FarStore(store)) == [*range(130)]


def test_a_vacuum_deletes_bundles_whose_rows_are_sealed_and_whose_grace_is_over() -> None:
    clock, store, log = log_of(130)
    there = bundles(store)
    assert len(there) > 10
    clock.sleep(30 * 24 * 3600)
    commit(log, range(130, 131))  # the last entry of which the grace is over is the one before it
    assert log.vacuum(HOURS).count(Fate.DELETED, Kind.PAYLOADS) == 0  # their rows are nowhere else
    log.maintain("seal")
    planned = TxnLog.open(FarStore(store)).read("t", columns=["n"])
    assert log.vacuum(HOURS, dry_run=True).count(Fate.DELETED, Kind.PAYLOADS) == len(there)
    assert bundles(store) == there
    assert log.vacuum(HOURS).count(Fate.DELETED, Kind.PAYLOADS) == len(there)
    assert bundles(store) == []
    assert planned.read_all()["n"].to_pylist() == [*range(131)]
    commit(log, range(131, 150))
    log.maintain("seal")
    young = bundles(store)
    assert young
    assert log.vacuum(HOURS).count(Fate.DELETED, Kind.PAYLOADS) == 0  # they are younger than the grace
    assert bundles(store) == young


def test_a_truncation_deletes_the_bundles_of_its_entries_in_each_run() -> None:
    clock, store, log = log_of(250)
    late = keys.payloads_key(0, 9)
    repeated = store.get(late) or b""
    log.maintain("seal")
    for _ in range(2):
        log.committer.write_snapshot()
    clock.sleep(30 * 24 * 3600)
    commit(log, range(250, 251))
    for _ in range(2):
        log.committer.write_snapshot()
    log.truncate()
    assert late in {info.key for info in store.list(keys.PAYLOAD_PREFIX)}
    clock.sleep(3_601)
    report = log.truncate()
    assert report.deleted_below == 200
    assert report.count(Act.DELETED, TruncatedKind.PAYLOADS) == 22
    assert min(bundles(store)) >= (200, 0)
    store.put(late, repeated)  # a writer that slept
    assert log.truncate().count(Act.DELETED, TruncatedKind.PAYLOADS) == 1
    assert min(bundles(store)) >= (200, 0)
    assert numbers_read(FarStore(store)) == [*range(251)]


def test_bundles_cost_a_writer_eleven_objects_for_a_hundred_entries_and_nothing_else() -> None:
    """The entries are those that the process has just written."""
    store = CountingStore(FarStore(MemoryStore()))
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    commit(log, range(100 - log.state.entry % 100))
    before = log.state.entry
    with store.measure() as measured:
        commit(log, range(150))
    counts = measured.counts
    expected = [entry for entry in range(before + 1, log.state.entry + 1) if entry % 10 == 9]
    hundreds = [entry for entry in expected if entry % 100 == 99]
    assert counts.count(RequestKind.CREATE, KeyClass.PAYLOADS) == len(expected) + len(hundreds)
    assert counts.count(RequestKind.GET, KeyClass.PAYLOADS) == 0
    # A snapshot's writer reads it back, and the last entries were written by itself.
    assert counts.count(RequestKind.GET, KeyClass.ENTRY) == 0
