"""Damage of the newest entry, which no other entry covers: no way of reading takes it for another one, no
writer goes on from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import ENTRY, QuickClock, read, rows
from tests.integration.golden_roots import COMMITTED, ROOTS
from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import AllocateIds
from txnformat.core.wire.document import ZSTD_MAGIC
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, key_class
from txnformat.verify.log import verify_log
from txnlog import CommitStateUnknownError, CorruptDataError, Producer, StorageError, TxnLog, VerifyReport
from txnlog_testing.entries import changed_entry, without_checksum

NUMBERS = pa.schema([("n", pa.int64())])


def flip(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ (1 << bit % 8)]) + data[bit // 8 + 1 :]


def build(
    store: MemoryStore, *, compressed: bool, entries: int, clock: QuickClock | None = None
) -> tuple[str, bytes]:
    """Make a log whose newest entry is small, or compressed; returns that entry."""
    with TxnLog.create(store, clock=clock, embedding=False) as log:
        log.create_topic("t", NUMBERS)
        for _ in range(entries):
            log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
    with TxnLog.open(store, clock=clock) as log:
        with Producer(log, "p", batch_bytes=1) as producer:
            before = log.state.entry
            with producer.transaction() as transaction:
                for n in range(200 if compressed else 1):
                    transaction.send("t", rows(n))
        newest = max(info.key for info in store.list(keys.LOG_PREFIX))
        data = store.get(newest)
        assert data is not None
        assert newest == keys.entry_key(before + 1)
        assert data.startswith(ZSTD_MAGIC) is compressed
        return newest, data


def bits(data: bytes, step: int) -> Iterator[int]:
    """Yield bits of all of an entry, and all of those of the last bytes, which hold the checksum."""
    yield from range(0, 8 * len(data) - 8 * 85, step)
    yield from range(8 * len(data) - 8 * 85, 8 * len(data), 3 * step // 100)


# --- reading ------------------------------------------------------------------------------------------------


def _open_without_hint(store: MemoryStore) -> TxnLog:
    store.delete(keys.LATEST_KEY)
    return TxnLog.open(store)


def _write_late(older: TxnLog, _: MemoryStore) -> None:
    """Commit with a view that is too old to go straight to a slot."""
    clock = older.committer.clock
    assert isinstance(clock, QuickClock)
    clock.sleep(120)
    older.committer.commit(older.committer.intend(AllocateIds("x", 1)))


READERS: dict[str, Callable[[TxnLog, MemoryStore], object]] = {
    "open": lambda _, store: TxnLog.open(store),
    "open without the hint": lambda _, store: _open_without_hint(store),
    "follow": lambda older, _: older.refresh(),
    "write": lambda older, _: older.committer.commit(older.committer.intend(AllocateIds("x", 1))),
    "write with an old view": lambda older, store: _write_late(older, store),
}


@pytest.mark.parametrize("how", READERS)
@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "zstd"])
@pytest.mark.parametrize("entries", [3, 130], ids=["short", "with snapshot"])
def test_no_reader_takes_a_damaged_newest_entry_for_another(how: str, compressed: bool, entries: int) -> None:
    clock = QuickClock()
    store = MemoryStore(clock)
    key, data = build(store, compressed=compressed, entries=entries, clock=clock)
    # A writer that finds its slot taken cannot know whose the damaged bytes are.
    expected = CommitStateUnknownError if how == "write" else CorruptDataError
    assert any(key_class(info.key) is KeyClass.SNAPSHOT for info in store.list("")) is (entries > 100)
    store.delete(key)
    hint = store.get(keys.LATEST_KEY)
    for bit in bits(data, 2_003 if entries > 100 else 709):
        older = TxnLog.open(store, clock=clock)
        store.put(key, flip(data, bit))
        before = {info.key for info in store.list("")}
        with pytest.raises(expected) as caught:
            READERS[how](older, store)
        assert caught.value.values["object"] == key
        assert {"expected", "got"} <= caught.value.values.keys()
        assert {info.key for info in store.list("")} | {keys.LATEST_KEY} == before | {keys.LATEST_KEY}
        older.close()
        store.delete(key)
        if hint is not None:
            store.put(keys.LATEST_KEY, hint)
    store.put(key, data)
    TxnLog.open(store).close()


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "zstd"])
def test_history_and_verify_name_a_damaged_newest_entry(compressed: bool) -> None:
    store = MemoryStore()
    key, data = build(store, compressed=compressed, entries=3)
    log = TxnLog.open(store)
    for bit in bits(data, 301):
        store.put(key, flip(data, bit))
        with pytest.raises(CorruptDataError) as caught:
            list(log.history())
        assert caught.value.values["object"] == key
        (problem,) = verify_log(store).problems
        assert problem.object == key
        assert problem.kind in ("wrong-hash", "undecodable")
        assert problem.expected
        assert problem.got


def test_a_bundle_in_which_a_bit_is_flipped_is_not_believed() -> None:
    """Deleted entries are in bundles only, where no next entry's slot vouches for what is asked."""
    store = MemoryStore()
    with TxnLog.create(store) as log:
        for _ in range(250):
            log.committer.commit(log.committer.intend(AllocateIds("build", 1)))
    log = TxnLog.open(store)
    times = {entry.entry: entry.timestamp_ms for entry in log.history()}
    bundle = keys.bundle_key(0, 99)
    data = store.get(bundle)
    slot = store.get(keys.entry_key(50))
    assert data is not None
    assert slot is not None
    at = data.index(slot) + slot.index(b'"timestamp_ms":') + 20
    store.put(bundle, flip(data, 8 * at))
    store.delete(keys.entry_key(50))
    log.snapshot(version_as_of=50)
    with pytest.raises(CorruptDataError) as caught:
        assert log.snapshot(version_as_of=50).timestamp_ms == times[50]
    assert caught.value.values["object"] == bundle
    assert caught.value.values["entry"] == 50


# --- going on from it ---------------------------------------------------------------------------------------


def chain_on(store: MemoryStore, key: str) -> None:
    """Append an entry to a damaged newest one, as a writer does that knows no checksum."""
    damaged = store.get(key) or b""
    number = keys.parse_entry_key(key)
    assert number is not None
    before = store.get(keys.entry_key(number - 1)) or b""

    def follow(document: dict[str, Any]) -> None:
        document["timestamp_ms"] += 5_000
        document["entry"] = number + 1
        document["previous"] = sha256_hex(damaged)
        document["intents"] = ["00000000-0000-4000-8000-000000000001"]
        document["operations"] = [
            {"operation": "allocate_producer_ids", "intent": 0, "owner": "x", "first": 4, "last": 4}
        ]

    store.put(keys.entry_key(number + 1), without_checksum(changed_entry(before, follow)))


@pytest.mark.parametrize("deep", [False, True])
def test_verify_is_not_silent_after_an_older_writer_went_on_from_a_damaged_entry(deep: bool) -> None:
    store = MemoryStore()
    key, data = build(store, compressed=False, entries=3)
    at = data.index(b'"min_timestamp_ms":') + 20
    store.put(key, flip(data, 8 * at))  # another digit: it decodes, and fits
    chain_on(store, key)
    (problem,) = [one for one in verify_log(store, deep=deep).problems if one.object == key]
    assert problem.kind == "wrong-hash"
    assert "the next entry follows these very bytes" in problem.hint
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(store)
    assert caught.value.values["object"] == key


def test_verify_says_nothing_of_a_next_entry_that_follows_what_was_written() -> None:
    store = MemoryStore()
    key, data = build(store, compressed=False, entries=3)
    with TxnLog.open(store) as log:
        log.committer.commit(log.committer.intend(AllocateIds("x", 1)))
    store.put(key, flip(data, 8 * (data.index(b'"size":') + 8)))
    (problem,) = [one for one in verify_log(store).problems if one.object == key]
    assert "follows these very bytes" not in problem.hint


class Damaging(MemoryStore):
    """Damages the next entry that is created, and gives no clear answer."""

    bit: int | None = None
    outcome = CreateOutcome.AMBIGUOUS

    def create(self, key: str, data: bytes) -> CreateResult:
        if self.bit is None or key_class(key) is not ENTRY[1]:
            return super().create(key, data)
        super().create(key, flip(data, self.bit))
        self.bit = None
        return CreateResult(self.outcome, StorageError("no answer", transient=True))


@pytest.mark.parametrize("outcome", [CreateOutcome.AMBIGUOUS, CreateOutcome.EXISTS])
@pytest.mark.parametrize("bit", [80, 1_234, 3_000])
def test_a_slot_that_reads_back_damaged_is_neither_ours_nor_lost(outcome: CreateOutcome, bit: int) -> None:
    """It may be ours, damaged since: a clear refusal would be a lie once the entry is restored from a
    copy.
    """
    clock = QuickClock()
    store = Damaging(clock)
    log = TxnLog.create(store, clock=clock)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        store.bit, store.outcome = bit, outcome
        key = keys.entry_key(log.state.entry + 1)
        with pytest.raises(CommitStateUnknownError, match="damaged") as caught:
            producer.commit()
        assert caught.value.values["object"] == key
        with pytest.raises(CommitStateUnknownError):  # still unclear
            producer.commit()
        with pytest.raises(CorruptDataError):
            log.refresh()
        store.put(key, flip(store.get(key) or b"", bit))
        assert producer.commit().entry == keys.parse_entry_key(key)
    assert read(log) == [1]


def test_a_log_whose_first_entry_reads_back_damaged_is_not_taken_for_somebody_elses() -> None:
    clock = QuickClock()
    store = Damaging(clock)
    log = TxnLog.create(store, clock=clock)
    store.bit = 700
    with pytest.raises(CommitStateUnknownError):
        log.create_topic("t", NUMBERS)


# --- what older and newer versions have written -------------------------------------------------------------


def copy(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOTS / name, tmp_path / name))


def checked(report: VerifyReport) -> tuple[int, int]:
    return report.checked["entries"], report.checked["entries_with_checksum"]


@pytest.mark.parametrize(("name", "checksums"), [("without-checksum", 0), ("with-checksum", 12)])
def test_a_kept_root_is_read_verified_and_written_to(name: str, checksums: int, tmp_path: Path) -> None:
    path = copy(name, tmp_path)
    with TxnLog.open(path) as log:
        assert sorted(log.read("t").read_all().column("n").to_pylist()) == COMMITTED
        report = log.verify(deep=True)
        assert report.ok
        assert checked(report) == (12, checksums)
        with Producer(log) as producer:
            producer.send("t", [{"n": 7, "text": "new"}], partition=0)
        assert sorted(log.read("t", isolation="snapshot").read_all().column("n").to_pylist()) == sorted(
            [*COMMITTED, 7]
        )
        report = log.verify(deep=True)
        assert report.ok
        assert checked(report) == (log.state.entry + 1, checksums + log.state.entry - 11)
        assert len(list(log.history())) == log.state.entry + 1


def test_entries_of_an_older_writer_between_others_are_read() -> None:
    store = MemoryStore()
    key, _ = build(store, compressed=True, entries=3)
    chain_on(store, key)
    with TxnLog.open(store) as log:
        log.committer.commit(log.committer.intend(AllocateIds("x", 1)))
        report = log.verify()
    assert report.ok
    entries, checksums = checked(report)
    assert entries - checksums == 1
