"""Verification of what hashes cannot show: a log whose every link fits, made by a writer with a defect."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.core.intents import TakeCheckpoint
from txnformat.core.records.state import ABORTED, PartitionState
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.persistent import Columns, replace
from txnformat.protocol.follow import empty_state, fold_bytes
from txnformat.protocol.snapshots import write_hint, write_snapshot
from txnformat.protocol.view import View
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnformat.verify.log import verify_log
from txnformat.verify.offsets import OffsetDerivation
from txnlog import Producer, TxnLog
from txnlog_testing.entries import changed_entry

NUMBERS = pa.schema([("n", pa.int64())])
Json = dict[str, Any]


@pytest.fixture
def store() -> MemoryStore:
    """Entries: 0 upgrade, 1 topic, 2 init, 3 append, 4 append, 5 abort, 6 init, 7 append of a transaction
    that is open."""
    store = MemoryStore()
    log = TxnLog.create(store, embedding=False)
    log.create_topic("t", NUMBERS)
    with Producer(log, "a", buffer="inline") as producer:
        producer.begin()
        for first in (0, 10):
            producer.send("t", pa.table({"n": [first, first + 1, first + 2]}, schema=NUMBERS))
            producer.flush()
        producer.abort()
    holder = Producer(log, "b", buffer="inline")
    holder.init()
    holder.begin()
    holder.send("t", pa.table({"n": [99]}, schema=NUMBERS))
    holder.flush()
    return store


def tail(store: MemoryStore) -> list[bytes]:
    found = [store.get(info.key) for info in store.list(keys.LOG_PREFIX)]
    return [data for data in found if data is not None]


def rewrite(store: MemoryStore, number: int, change: Callable[[Json], None]) -> None:
    """Change an entry, and chain all later ones anew."""
    previous = ""
    for slot, data in enumerate(tail(store)):
        if slot < number:
            continue
        written = changed_entry(
            data, change if slot == number else operator.methodcaller("update", previous=previous)
        )
        store.put(keys.entry_key(slot), written)
        previous = sha256_hex(written)


def part(document: Json) -> Json:
    found: Json = document["operations"][0]["partitions"][0]
    return found


def batch(document: Json) -> Json:
    found: Json = document["operations"][0]["batches"][0]
    return found


def more_records(document: Json) -> None:
    part(document)["records"] += 1
    batch(document)["records"] += 1


DEFECTS: list[tuple[int, Callable[[Json], None], str]] = [
    (4, lambda entry: part(entry).update(base_offset=4), "invalid-entry"),
    (4, lambda entry: part(entry).update(base_sequence=2), "invalid-entry"),
    (4, lambda entry: part(entry).update(records=4), "invalid-entry"),
    (5, lambda entry: entry["operations"][0]["markers"][0].update(offset=7), "invalid-entry"),
    (5, lambda entry: entry["operations"][0].update(epoch=4), "invalid-entry"),
    (5, lambda entry: entry.update(timestamp_ms=1), "invalid-entry"),
    (7, more_records, "batches"),
    (7, lambda entry: batch(entry).update(row_group=3), "batches"),
    (7, lambda entry: entry["operations"][0]["files"][0].update(rows=9), "undecodable"),
    (7, lambda entry: entry["operations"][0]["files"][0].update(size=999_999), "wrong-size"),
    (7, lambda entry: entry["operations"][0]["files"][0].update(footer_sha256="0" * 64), "wrong-hash"),
    (7, lambda entry: entry.update(log_id="00000000-0000-4000-8000-000000000000"), "broken-chain"),
    (7, lambda entry: entry["operations"][0].update(operation="truncate"), "unsupported"),
]


@pytest.mark.parametrize(("number", "change", "kind"), DEFECTS)
def test_a_log_that_chains_but_is_wrong(
    store: MemoryStore, number: int, change: Callable[[Json], None], kind: str
) -> None:
    assert verify_log(store).ok
    rewrite(store, number, change)
    report = verify_log(store)
    assert kind in {problem.kind for problem in report.problems}, report.problems
    if kind in ("invalid-entry", "broken-chain", "unsupported"):
        assert report.problems[0].object == keys.entry_key(number)


def test_a_defect_does_not_end_the_verification(store: MemoryStore) -> None:
    """What comes after an entry that does not fit is still decoded, linked, and its files looked at."""
    rewrite(store, 4, lambda entry: part(entry).update(base_offset=4))
    last = max(info.key for info in store.list("t-"))
    store.delete(last)
    kinds = {problem.kind for problem in verify_log(store).problems}
    assert {"invalid-entry", "missing"} <= kinds


def test_a_snapshot_that_is_not_the_state_of_its_entries(store: MemoryStore) -> None:
    committer = TxnLog.open(store).committer
    wrong = replace(committer.refresh(), next_producer_id=77)
    checkpoint = committer.read(write_snapshot(View(wrong)))
    committer.commit(committer.intend(TakeCheckpoint(checkpoint)))
    committer.read(write_hint(checkpoint))
    report = verify_log(store)
    assert [(problem.kind, problem.object) for problem in report.problems] == [
        ("snapshot-differs", checkpoint.key)
    ]


def folded(store: MemoryStore) -> tuple[LogState, OffsetDerivation]:
    data = store.get(keys.FORMAT_KEY)
    assert data is not None
    state = empty_state(data)
    derivation = OffsetDerivation(state)
    for number, found in enumerate(tail(store)):
        entry: CommitEntry = decode_entry(found, number)
        derivation.add(entry)
        state = fold_bytes(state, found)
    return state, derivation


def _aborted(partition: PartitionState, field: str, change: int) -> PartitionState:
    rows = partition.aborted.array().copy()
    rows[field] += change
    return replace(partition, aborted=Columns(ABORTED).append(rows))


WRONG_FOLDS: list[tuple[Callable[[PartitionState], PartitionState], str]] = [
    (lambda partition: replace(partition, log_end=partition.log_end + 1), "log end"),
    (lambda partition: replace(partition, open={}), "transactions are open"),
    (lambda partition: replace(partition, open=dict.fromkeys(partition.open, 6)), "transactions are open"),
    (lambda partition: replace(partition, open=dict.fromkeys(partition.open, 8)), "last stable offset"),
    (lambda partition: replace(partition, aborted=Columns(ABORTED)), "abort index"),
    (lambda partition: _aborted(partition, "first_offset", 1), "abort index"),
    (lambda partition: _aborted(partition, "last_offset", -1), "abort index"),
    (lambda partition: _aborted(partition, "last_stable_offset", 1), "abort index"),
    (lambda partition: _aborted(partition, "epoch", 1), "abort index"),
]


@pytest.mark.parametrize(("change", "told"), WRONG_FOLDS)
def test_a_fold_that_is_wrong_differs_from_the_second_derivation(
    store: MemoryStore, change: Callable[[PartitionState], PartitionState], told: str
) -> None:
    state, derivation = folded(store)
    assert list(derivation.compare(state)) == []
    key = TopicPartition(state.topic_ids["t"], 0)
    wrong = replace(state, partitions={key: change(state.partitions[key])})
    found = list(derivation.compare(wrong))
    assert any(told in violation.what for violation in found), found
    assert {violation.partition for violation in found} == {key}


def test_rows_of_another_topic_cannot_be_forged_into_one(store: MemoryStore) -> None:
    """An entry that chains names a file of a topic that its readers may not read."""
    log = TxnLog.open(store)
    log.create_topic("secrets", NUMBERS)
    with Producer(log) as producer:
        producer.send("secrets", pa.table({"n": [4711]}, schema=NUMBERS))
        producer.flush()
        producer.send("t", pa.table({"n": [1]}, schema=NUMBERS))
        producer.flush()
    state = log.refresh()
    assert verify_log(store).ok
    (secret,) = (file for file in state.files if file.key.startswith("secrets-"))

    def forge(entry: Json) -> None:
        entry["operations"][0]["files"][0].update(
            key=secret.key,
            size=secret.size,
            sha256=secret.sha256,
            footer_bytes=secret.footer_bytes,
            footer_sha256=secret.footer_sha256,
        )

    rewrite(store, state.entry, forge)
    with pytest.raises(CorruptDataError) as caught:
        list(TxnLog.open(store).read("t"))
    assert (caught.value.kind, caught.value.values["got"]) == ("invalid-entry", secret.key)
    report = verify_log(store)
    problem = report.problems[0]
    assert (problem.kind.value, problem.object) == ("invalid-entry", keys.entry_key(state.entry))
    assert secret.key in str(problem)
