"""A seal of rows that are in entries takes them from what its process keeps, and compares their hashes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.integration.producers.embedded_logs import copy_of, log_on, rows, seen, write
from txnformat.client import committer
from txnformat.protocol import unembedding
from txnformat.store.memory import MemoryStore
from txnformat.store.recent import recent_payloads
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
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


def _changed(table: pa.Table, what: str) -> pa.Table:
    if what == "a value":
        return table.set_column(0, "n", pa.array([*table["n"].to_pylist()[:-1], 999]))
    if what == "a null":
        return table.set_column(1, "text", pa.array([None, *table["text"].to_pylist()[1:]], pa.string()))
    return table.take(list(range(len(table)))[::-1])


@pytest.mark.parametrize("what", ["a value", "a null", "the order"])
def test_a_deep_verification_compares_sealed_rows_with_those_in_the_entries(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """The file that a seal has written has checksums of its own, so nothing else would tell."""
    log = log_on(tmp_path / "log")
    write(log)
    original = unembedding._Payloads.table
    changed: list[str] = []

    def table(self: Any, file: Any, groups: Any, schema: pa.Schema) -> pa.Table:
        found = original(self, file, groups, schema)
        if len(found) < 2 or changed:
            return found
        changed.append(file.key)
        return _changed(found, what)

    monkeypatch.setattr(unembedding._Payloads, "table", table)
    log.maintain("seal")
    monkeypatch.undo()
    assert log.verify().ok
    (problem,) = log.verify(deep=True).problems
    assert problem.kind == "batches"
    assert "other rows than the entry that they were taken from" in problem.what
    assert changed[0] in str(problem.expected)


def test_a_deep_verification_takes_what_arrow_calls_unequal_for_the_same() -> None:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("f", pa.float64()), ("s", pa.struct([("g", pa.float32())]))]))
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("t", [{"f": float("nan"), "s": {"g": float("nan")}}, {"f": -0.0, "s": None}])
    log.maintain("seal")
    report = log.verify(deep=True)
    assert report.ok
    assert report.checked["copied_batches"] == 1


@pytest.mark.parametrize("topics", [1, 2])
def test_entries_with_rows_are_sealed_by_their_number_however_small_and_whatever_they_hold(
    topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader fetches each entry once, whatever the number of its topics and partitions: so it is entries
    that are counted."""
    bound, commits = 8, 60
    monkeypatch.setattr(committer, "SEAL_PAYLOADS", bound)
    store = CountingStore(MemoryStore())
    log = log_on(store)
    sealed = []
    with Producer(log, "p") as producer:
        for number in range(commits):
            with producer.transaction() as txn:
                for name in ("t", "u")[:topics]:
                    for partition in range(3):
                        txn.send(name, rows(number), partition=partition)
            log.close()  # a seal that is under way ends
            sealed.append(len(log.state.segments) + log.state.listed_segments)
    assert not any(sealed[:bound]), "no seal before there are more than the bound"
    assert sealed[bound] == topics
    assert sealed[-1] == topics * (commits // (bound + 1))
    other = TxnLog.open(copy_of(store))
    assert isinstance(other.store, CountingStore)
    with other.store.measure() as measured:
        found = other.read("t", columns=["n"]).read_all()
    assert sorted(found["n"].to_pylist()) == sorted(3 * [*range(commits)])
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) <= bound + 1


def test_a_seal_makes_files_of_bounded_size_however_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is made in memory, and a log may have many writers of which none seals before its own share."""
    log = log_on(MemoryStore())
    with Producer(log, "p") as producer:
        for number in range(12):
            with producer.transaction() as txn:
                txn.send("t", rows(*range(1_000 * number, 1_000 * number + 1_000)), partition=number % 2)
    before = seen(log)
    bound = 4_000  # a batch has about half of that
    monkeypatch.setattr(unembedding, "FILE_BYTES_MAX", bound)
    log.maintain("seal")
    assert not len(log.state.files)
    index = log.sidecars.index(log.state.segments[0].index)
    found: dict[str, int] = {}
    for row in index.rows:
        key = index.files[int(row["file"])].key
        found[key] = found.get(key, 0) + int(row["size"])
    assert len(found) >= 4
    assert max(found.values()) <= bound
    assert seen(log) == before
    assert log.verify(deep=True).ok


def test_a_batch_that_is_larger_than_a_file_of_a_seal_has_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_on(MemoryStore())
    write(log)
    before = seen(log)
    monkeypatch.setattr(unembedding, "FILE_BYTES_MAX", 1)
    embedded = len(log.state.files)
    log.maintain("seal")
    index = log.sidecars.index(log.state.segments[0].index)
    assert len({index.files[int(row["file"])].key for row in index.rows}) == len(index.rows) >= embedded
    assert seen(log) == before
    assert log.verify(deep=True).ok
