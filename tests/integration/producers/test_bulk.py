"""One append without a producer: all of it in one entry, once, or nothing."""

from __future__ import annotations

import pytest

from tests.integration.clients.failing import (
    ENTRY,
    NUMBERS,
    Plan,
    QuickClock,
    faulty,
    read,
    rows,
    unclear_commit,
)
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Producer,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.bulk import BulkAppend
from writers.settings import ProducerSettings


def test_any_number_of_topics_files_and_batches_is_one_entry() -> None:
    log = TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("u", NUMBERS)
    before = log.state.entry
    small = ProducerSettings(batch_bytes=800, buffer_bytes=4_000, roll_bytes=20_000)
    with BulkAppend(log, small) as append:
        for first in range(0, 10_000, 100):
            append.send("t", rows(*range(first, first + 100)), partition=first // 100 % 2)
        append.send("u", rows(1))
        assert log.refresh().entry == before
        info = append.commit()
    assert (info.entry, log.refresh().entry) == (before + 1, before + 1)
    assert info.offsets == {("t", 0): 0, ("t", 1): 0, ("u", 0): 0}
    assert sorted(read(log)) == list(range(10_000))
    assert len(log.state.files) > 2


def test_nothing_sent_is_no_entry_and_an_end_is_an_end() -> None:
    log = faulty(Plan())
    before = log.state.entry
    append = BulkAppend(log)
    assert append.commit().entry is None
    append.send("t", rows(1))
    append.close()
    append.close()
    for call in (append.commit, lambda: append.send("t", rows(1))):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "producer-closed"
    assert log.refresh().entry == before


def test_what_cannot_be_taken_in_keeps_nothing_of_its_own() -> None:
    log = faulty(Plan())
    with BulkAppend(log) as append:
        append.send("t", rows(1))
        with pytest.raises(InvalidInputError):
            append.send("t", [{"n": "x"}])
        with pytest.raises(NotFoundError):
            append.send("nix", rows(1))
        append.commit()
    assert read(log) == [1]


def test_a_topic_that_somebody_else_has_just_made_is_found() -> None:
    log = faulty(Plan())
    other = TxnLog.open(log.store, clock=log.committer.clock)
    other.create_topic("new", NUMBERS)
    with BulkAppend(log) as append:
        append.send("new", rows(1))
        assert append.commit().offsets == {("new", 0): 0}


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_an_unknown_outcome_is_settled_by_committing_again(kind: FaultKind) -> None:
    plan = Plan()
    log = faulty(plan)
    with BulkAppend(log) as append:
        append.send("t", rows(1, 2))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            append.commit()
        with pytest.raises(InvalidTransactionStateError) as caught:
            append.send("t", rows(3))
        assert caught.value.kind == "commit-undecided", "the next commit would not have these"
        plan.clear()
        append.commit()
    assert read(log) == [1, 2]


def test_an_entry_that_the_store_refuses_can_be_committed_later() -> None:
    plan = Plan()
    log = faulty(plan)
    with BulkAppend(log) as append:
        append.send("t", rows(1, 2))
        plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            append.commit()
        assert read(log) == []
        plan.clear()
        append.commit()
    assert read(log) == [1, 2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_records_that_went_down_with_a_file_end_the_append(when: str) -> None:
    plan = Plan()
    log = faulty(plan)
    small = ProducerSettings(batch_bytes=8, buffer_bytes=8, embed_bytes=0)
    with BulkAppend(log, small) as append:
        plan.next(
            RequestKind.OPEN_WRITE, KeyClass.DATA, Fault(FaultKind.DISK_FULL)
        )  # when the file is closed
        append.send("t", rows(*range(100)))
        if when == "after":
            append.send("t", rows(*range(100)))
        with pytest.raises(StorageError):
            append.commit()
        plan.clear()
        if when == "before":  # nothing was in a file yet: the same records again
            append.commit()
        else:
            with pytest.raises(InvalidTransactionStateError) as caught:
                append.commit()
            assert caught.value.kind == "abort-required"
    assert len(read(log)) == (100 if when == "before" else 0)


@pytest.mark.parametrize("keys", [None, ["n"]])
def test_a_topic_that_grows_meanwhile_is_a_conflict_and_then_committed(keys: list[str] | None) -> None:
    log = TxnLog.create(MemoryStore(QuickClock()), clock=QuickClock())
    log.create_topic("t", NUMBERS, partitions=2, key_columns=keys)
    with BulkAppend(log) as append:
        append.send("t", rows(*range(50)))
        TxnLog.open(log.store, clock=QuickClock()).alter_topic("t", partitions=5)
        with pytest.raises(ConflictError) as caught:
            append.commit()
        assert caught.value.kind == "partition-count-changed"
        append.commit()
    assert sorted(read(log)) == list(range(50))
    if keys is not None:
        with Producer(log) as producer:
            producer.send("t", rows(*range(50)))
        for number in range(5):
            found = log.read("t", partitions=[number]).read_all().column("n").to_pylist()
            assert sorted(found) == sorted(2 * sorted(set(found))), "where the producer sends the same keys"
