"""Damage of an entry with rows: a fold needs the head alone, and nothing that needs the rows takes others for
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.producers.embedded_logs import copy_of, log_on, rows
from txnformat import keys
from txnformat.core.intents import AllocateIds, SpillExtents
from txnformat.errors import CommitStateUnknownError, CorruptDataError, TxnLogError
from txnformat.protocol.spilling import write_spill
from txnformat.segments.payload import END_BYTES, head_of, payload_of
from txnformat.store.memory import MemoryStore
from txnformat.store.recent import recent_payloads
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

PARTS = ("head", "payload", "size", "magic", "head and payload")


def entries_of(store: Any) -> tuple[str, bytes]:
    """Make a log whose newest entry has rows of two topics, after another with rows; return that entry."""
    log = log_on(store)
    with Producer(log, "p") as producer:
        for number in range(2):
            with producer.transaction() as txn:
                txn.send("t", rows(number, number + 100), partition=0)
                txn.send("u", rows(number), partition=1)
    key = keys.entry_key(log.state.entry)
    return key, store.get(key) or b""


def flips(data: bytes, part: str) -> list[list[int]]:
    """Return some sets of bits of one part of an entry."""
    head, payload = len(head_of(data)), len(payload_of(data))
    end = len(data) - END_BYTES
    ranges = {
        "head": [range(0, 8 * head, 769)],
        "payload": [range(8 * head, 8 * (head + payload), 769)],
        "size": [range(8 * end, 8 * end + 32, 3)],
        "magic": [range(8 * end + 32, 8 * len(data), 7)],
    }
    ranges["head and payload"] = ranges["head"] + ranges["payload"]
    return [list(bits) for bits in zip(*ranges[part], strict=False)]


def flipped(data: bytes, bits: list[int]) -> bytes:
    found = bytearray(data)
    for bit in bits:
        found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


@pytest.mark.parametrize("part", PARTS)
def test_only_damage_of_the_payload_lets_a_follower_fold_the_newest_entry(part: str) -> None:
    """It has all that the chain binds; any other damage stops each reader, as that of an entry without
    rows.
    """
    store = MemoryStore()
    key, data = entries_of(store)
    store.delete(key)
    for bits in flips(data, part):
        older = TxnLog.open(store)
        store.put(key, flipped(data, bits))
        if part == "payload":
            assert older.refresh().entry == TxnLog.open(copy_of(store)).state.entry
            _all_tell(store, key)
        else:
            for fold in (older.refresh, lambda: TxnLog.open(copy_of(store))):
                with pytest.raises(CorruptDataError) as caught:
                    fold()
                assert caught.value.values["object"] == key
        assert _unopened(store).verify().problems[0].object == key
        older.close()
        store.delete(key)
    store.put(key, data)
    assert TxnLog.open(copy_of(store)).verify(deep=True).ok


def _unopened(store: MemoryStore) -> TxnLog:
    return TxnLog(copy_of(store))


def _consume(log: TxnLog) -> Any:
    with Consumer(log, "g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t", "u"])
        while (batch := consumer.poll(0)) is not None:
            assert {0, 1, 100, 101}.issuperset(batch["n"].to_pylist())


READERS: dict[str, Callable[[TxnLog], Any]] = {
    "read": lambda log: [log.read(topic).read_all() for topic in ("t", "u")],
    "read_uncommitted": lambda log: [log.read(one, isolation="read_uncommitted").read_all() for one in "tu"],
    "dataset": lambda log: [log.dataset(topic).to_table() for topic in ("t", "u")],
    "consumer": _consume,
    "seal": lambda log: log.maintain("seal"),
    "compaction": lambda log: log.compact(target_bytes=1, min_lag_ms=0),
    "spill": lambda log: log.committer.read(write_spill(log.state, 0)),
}


def _all_tell(store: MemoryStore, key: str) -> None:
    """Hold every reader of rows against a damaged payload; each begins with a copy of the log."""
    for how in ("read", "read_uncommitted", "dataset", "consumer", "seal", "compaction"):
        log = TxnLog.open(copy_of(store))
        with pytest.raises(CorruptDataError) as caught:
            READERS[how](log)
        assert (caught.value.kind, caught.value.values["object"]) == ("payload-missing", key), how
        sealed = [index.key for index in log.store.list("") if index.key.endswith(".index")]
        assert bool(sealed) is (how in ("seal", "compaction")), "what is not damaged is sealed"
    for deep in (False, True):
        problems = TxnLog.open(copy_of(store)).verify(deep=deep).problems
        assert problems[0].object == key
        assert "until then readers stop at its rows, and no seal moves them" in problems[0].hint


@pytest.mark.parametrize("part", ["payload", "head"])
def test_a_writer_that_meets_a_damaged_entry_in_its_slot_does_not_know_whose_it_is(part: str) -> None:
    """It may be its own: so the payload is compared there, although a fold does not need it."""
    store = MemoryStore()
    key, data = entries_of(store)
    store.delete(key)
    older = TxnLog.open(store)
    store.put(key, flipped(data, flips(data, part)[0]))
    with pytest.raises(CommitStateUnknownError) as caught:
        older.committer.commit(older.committer.intend(AllocateIds("x", 1)))
    assert caught.value.values["object"] == key


def test_writers_go_on_from_a_damaged_payload_and_a_copy_of_the_entry_mends_it() -> None:
    store = MemoryStore()
    key, data = entries_of(store)
    store.put(key, flipped(data, flips(data, "payload")[3]))
    log = TxnLog.open(copy_of(store))
    with Producer(log, "q") as producer, producer.transaction() as txn:
        txn.send("u", rows(7), partition=1)
    with pytest.raises(CorruptDataError):
        log.maintain("seal")
    (problem, *_) = log.verify().problems
    assert (problem.object, problem.kind) == (key, "wrong-hash")
    assert "follows these very bytes" not in problem.hint, "the chain does not bind the payload"
    log.store.put(key, data)
    assert log.verify(deep=True).ok
    log.maintain("seal")
    other = TxnLog.open(copy_of(log.store))
    assert sorted(other.read("t").read_all()["n"].to_pylist()) == [0, 1, 100, 101]
    assert sorted(other.read("u").read_all()["n"].to_pylist()) == [0, 1, 7]
    assert other.verify(deep=True).ok
    assert not len(other.state.files)


def test_a_damaged_payload_holds_back_no_other_topic() -> None:
    """Nor the partitions of its own topic, up to the entry: their records are sealed, compacted and
    removed.
    """
    store = MemoryStore()
    key, data = entries_of(store)
    state = TxnLog.open(store).state
    (first,) = (file.key for file in state.files if file.place == (keys.parse_entry_key(key), 0))
    damaged = "t" if first.startswith("t-") else "u"
    sound = "u" if damaged == "t" else "t"
    store.put(key, flipped(data, [8 * (len(head_of(data)) + 40)]))
    calls: tuple[Callable[[TxnLog], object], ...] = (
        lambda log: log.delete_records(sound, {_partition(log, sound).partition: 1}),
        lambda log: log.compact(sound, target_bytes=1, min_lag_ms=0),
        lambda log: log.delete_topic(damaged),
    )
    for call in calls:
        log = TxnLog.open(copy_of(store))
        call(log)
        assert log.read(sound).read_all().num_rows >= 1
    log = TxnLog.open(copy_of(store))
    for _ in range(2):
        with pytest.raises(CorruptDataError):
            log.committer.seal()
        ends = {
            log.state.topics[one.topic_id].name: state.sealed_end
            for one, state in log.state.partitions.items()
            if state.log_end
        }
        assert ends == {
            sound: log.state.partition(_partition(log, sound)).log_end,
            damaged: _begin(log, damaged),
        }
    with pytest.raises(CorruptDataError):
        log.delete_records(
            damaged,
            {_partition(log, damaged).partition: log.state.partition(_partition(log, damaged)).log_end},
        )
    assert log.read(sound).read_all().num_rows


def _partition(log: TxnLog, topic: str) -> Any:
    return next(
        key
        for key in log.state.partitions
        if log.state.topics[key.topic_id].name == topic and log.state.partitions[key].log_end
    )


def _begin(log: TxnLog, topic: str) -> int:
    """Return the first offset of the newest entry in a topic."""
    return int(log.state.partitions[_partition(log, topic)].extents.array()["base_offset"][-1])


def test_a_process_that_has_the_rows_still_seals_them() -> None:
    """It compares them with their hash, as those that it fetches."""
    store = CountingStore(MemoryStore())
    key, data = entries_of(store)
    log = TxnLog.open(store)
    store.put(key, flipped(data, flips(data, "payload")[0]))
    number = keys.parse_entry_key(key)
    assert number is not None
    assert recent_payloads(store).get(number) == payload_of(data)
    log.maintain("seal")
    other = TxnLog.open(copy_of(store))
    assert sorted(other.read("t").read_all()["n"].to_pylist()) == [0, 1, 100, 101]
    assert other.verify().problems[0].object == key, "the entry is still there"


def test_a_spill_writes_no_damaged_payload_to_an_object() -> None:
    store = MemoryStore()
    log = log_on(store)
    held = Producer(log, "held", buffer="inline")
    held.init()
    held.begin()
    held.send("t", rows(1), partition=0)
    held.flush()
    key = keys.entry_key(log.state.entry)
    data = store.get(key) or b""
    with Producer(log, "p") as producer:
        for number in range(8):
            with producer.transaction() as txn:
                txn.send("t", rows(number), partition=0)
    store.put(key, flipped(data, flips(data, "payload")[0]))
    other = TxnLog.open(copy_of(store))
    with pytest.raises(TxnLogError) as caught:
        other.committer.read(write_spill(other.state, 1))
    assert caught.value.kind == "payload-missing"
    store.put(key, data)
    other = TxnLog.open(copy_of(store))
    spill = other.committer.read(write_spill(other.state, 1))
    assert spill is not None
    other.committer.commit(other.committer.intend(SpillExtents(spill)))
    assert other.read("t", isolation="read_uncommitted").read_all().num_rows == 9
