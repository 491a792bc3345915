"""The deferred buffer, and how auto becomes it: stages hold nobody up, and the commit shows everything at
once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.memory_4gib import MIB, Case, measure
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
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    NotFoundError,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.session import UNNAMED_MS_MAX

UNCLEAR = pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)


class SetClock(QuickClock):
    """Time that a test moves."""

    def pass_ms(self, milliseconds: int) -> None:
        self.set_back(-milliseconds)


def new_log(partitions: int = 1, clock: QuickClock | None = None) -> TxnLog:
    log = TxnLog.create(CountingStore(MemoryStore(clock)), clock=clock)
    log.create_topic("t", NUMBERS, partitions=partitions)
    return log


def tables(log: TxnLog) -> int:
    return len(log.refresh().tables)


def test_staged_records_are_nowhere_until_the_commit_and_hold_nobody_up() -> None:
    log = new_log()
    with Producer(log, "slow", buffer="deferred") as slow, Producer(log, "quick") as quick:
        slow.begin()
        slow.send("t", rows(1, 2))
        flushed = slow.flush()
        assert (flushed.entry, flushed.offsets) == (log.refresh().entry, {})
        with quick.transaction() as txn:
            txn.send("t", rows(10))
        assert read(log) == read(log, "read_uncommitted") == [10]
        (offsets,) = log.offsets("t")
        assert (offsets.last_stable_offset, offsets.log_end, offsets.held_by) == (2, 2, None)
        slow.send("t", rows(3))
        info = slow.commit()
        assert info.offsets == {("t", 0): 2}
    assert read(log) == [10, 1, 2, 3]
    found = log.read("t", columns=["_offset", "_entry", "_commit_entry"]).read_all().to_pylist()
    assert [row["_offset"] for row in found] == [0, 2, 3, 4]
    assert {row["_entry"] for row in found[1:]} == {row["_commit_entry"] for row in found[1:]} == {info.entry}


def test_transactions_get_their_offsets_in_the_order_of_their_commits() -> None:
    log = new_log()
    with Producer(log, "a", buffer="deferred") as a, Producer(log, "b", buffer="deferred") as b:
        for producer, number in ((a, 1), (b, 2)):
            producer.begin()
            producer.send("t", rows(number))
            producer.flush()
        assert b.commit().offsets == {("t", 0): 0}
        assert a.commit().offsets == {("t", 0): 2}
    assert read(log) == [2, 1]


def test_an_abort_leaves_nothing_but_files() -> None:
    log = new_log()
    with Producer(log, "p", buffer="deferred") as producer:
        producer.begin()
        for number in range(3):
            producer.send("t", rows(number))
            producer.flush()
        assert tables(log) == 3
        producer.abort()
        state = log.refresh()
        assert (len(state.files), len(state.tables), state.undecided) == (0, 0, frozenset())
        assert log.offsets("t")[0].log_end == 0
        assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
        with producer.transaction() as txn:
            txn.send("t", rows(7))
    assert read(log, "read_uncommitted") == [7]
    assert log.verify(deep=True).ok


def test_a_new_instance_forgets_what_was_staged_and_fences_the_old_one() -> None:
    log = new_log()
    old = Producer(log, "p", buffer="deferred")
    old.init()
    old.begin()
    old.send("t", rows(1))
    old.flush()
    with Producer(TxnLog.open(log.store), "p", buffer="deferred") as new, new.transaction() as txn:
        assert tables(log) == 0
        txn.send("t", rows(2))
        txn.flush()
        old.send("t", rows(3))
        with pytest.raises(ProducerFencedError):
            old.flush()
        assert old.status is ProducerStatus.FENCED
    assert read(log) == [2]


def test_a_restarted_producer_can_read_back_every_topic_of_a_deferred_transaction() -> None:
    log = new_log(partitions=4)
    log.create_topic("u", NUMBERS, partitions=2)
    with Producer(log, "p", buffer="deferred") as producer, producer.transaction() as txn:
        for number in range(6):
            txn.send("t", rows(number), partition=number % 4)
            txn.send("u", rows(10 + number), partition=number % 2)
            txn.flush()
    again = TxnLog.open(log.store)
    assert sorted(read(again)) == list(range(6))
    assert sorted(again.read("u").read_all().column("n").to_pylist()) == list(range(10, 16))
    assert again.verify(deep=True).ok


# --- unknown outcomes and failures --------------------------------------------------------------------------


@UNCLEAR
def test_an_unknown_stage_is_repeated_with_the_same_intent(kind: FaultKind, landed: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="deferred") as producer:
        producer.begin()
        producer.send("t", rows(1))
        unclear_commit(plan, kind)
        with pytest.raises(CommitStateUnknownError):
            producer.flush()
        for call in (producer.commit, producer.prepare, lambda: producer.send("t", rows(2))):
            with pytest.raises(InvalidTransactionStateError):
                call()
        plan.clear()
        files = (
            plan.seen[RequestKind.OPEN_WRITE, KeyClass.DATA],
            plan.seen[RequestKind.CREATE, KeyClass.TABLE],
        )
        producer.flush()
        assert files == (
            plan.seen[RequestKind.OPEN_WRITE, KeyClass.DATA],
            plan.seen[RequestKind.CREATE, KeyClass.TABLE],
        )
        assert tables(log) == 1
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


@UNCLEAR
@pytest.mark.parametrize("close", [False, True])
def test_an_unknown_stage_can_be_aborted(kind: FaultKind, landed: bool, close: bool) -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "p", buffer="deferred")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.flush()
    plan.clear()
    producer.close() if close else producer.abort()
    assert log.outcome("p", 0).outcome == "abort"
    if not close:
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == ([] if close else [2])
    assert tables(log) == 0


@pytest.mark.parametrize(
    ("where", "embed_bytes"),
    [
        ((RequestKind.OPEN_WRITE, KeyClass.DATA), 0),
        ((RequestKind.CREATE, KeyClass.DATA), 65_536),
        ((RequestKind.CREATE, KeyClass.TABLE), 65_536),
        (ENTRY, 65_536),
    ],
    ids=["file", "small file", "table", "entry"],
)
@pytest.mark.parametrize("kind", [FaultKind.DISK_FULL, FaultKind.PERMISSION_DENIED])
def test_a_refused_stage_changes_nothing_and_can_be_repeated(
    where: tuple[RequestKind, KeyClass], embed_bytes: int, kind: FaultKind
) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="deferred", embed_bytes=embed_bytes) as producer:
        producer.begin()
        producer.send("t", rows(1))
        before = log.refresh()
        plan.next(*where, Fault(kind))
        with pytest.raises(StorageError):
            producer.flush()
        assert (log.refresh(), producer.status) == (before, ProducerStatus.IN_TRANSACTION)
        producer.flush()
        producer.send("t", rows(2))
        producer.commit()
    assert read(log) == [1, 2]


def test_a_topic_that_grows_while_records_are_staged_gets_only_the_rest_distributed_again() -> None:
    log = new_log()
    log.create_topic("k", NUMBERS, partitions=2, key_columns=["n"])
    other = TxnLog.open(log.store)
    with Producer(log, "p", buffer="deferred") as producer, producer.transaction() as txn:
        txn.send("k", rows(*range(100)))
        txn.flush()
        txn.send("k", rows(*range(100, 200)))
        other.alter_topic("k", partitions=5)
    found = log.read("k", columns=["n", "_partition"]).read_all().to_pylist()
    assert sorted(row["n"] for row in found) == list(range(200))
    assert {row["_partition"] for row in found if row["n"] < 100} == {0, 1}
    assert {row["_partition"] for row in found if row["n"] >= 100} == {0, 1, 2, 3, 4}


# --- how much is staged when --------------------------------------------------------------------------------


def test_full_buffers_go_to_files_and_files_of_a_size_are_staged() -> None:
    """A send that needs room costs no entry; one entry is made for each ``roll_bytes``."""
    log = new_log()
    table = rows(*range(1_000))
    store = log.store
    assert isinstance(store, CountingStore)
    with Producer(log, "p", buffer="deferred", batch_bytes=1, roll_bytes=20_000) as producer:
        producer.begin()
        with store.measure() as measured:
            for _ in range(40):
                producer.send("t", table)
        staged = log.state.transactional_ids["p"].staged
        uploaded = sum(log.state.files[flush.first_file].size for flush in staged)
        assert len(staged) >= 2
        assert uploaded >= len(staged) * 20_000
        assert measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == len(staged)
        assert measured.counts.count(RequestKind.CREATE, KeyClass.TABLE) == len(staged)
        producer.commit()
    assert read(log) == 40 * list(range(1_000))


def test_auto_is_a_one_shot_up_to_1000_batches_and_deferred_beyond() -> None:
    log = new_log()
    with Producer(log, "p", batch_bytes=1) as producer:
        producer.begin()
        for number in range(1_001):
            producer.send("t", rows(number))
        assert log.refresh().undecided == frozenset()
        producer.send("t", rows(1_001))
        assert log.refresh().undecided == {"p"}
        (flush,) = log.state.transactional_ids["p"].staged
        assert sum(part.batch_count for part in flush.partitions) == 1_001
        producer.send("t", rows(1_002))
        producer.flush()
        assert len(log.state.transactional_ids["p"].staged) == 2
        assert read(log, "read_uncommitted") == []
        producer.commit()
        assert read(log) == list(range(1_003))
        producer.begin()
        producer.send("t", rows(1))
        assert producer.flush().entry is None, "the next transaction begins as a one-shot again"
        producer.abort()


def test_auto_is_a_one_shot_for_an_hour_since_its_first_upload_and_deferred_beyond() -> None:
    clock = SetClock()
    log = new_log(clock=clock)
    with Producer(log, "p") as producer:
        producer.begin()
        producer.send("t", rows(1))
        clock.pass_ms(10 * UNNAMED_MS_MAX)  # what is only in memory has no age
        producer.flush()
        clock.pass_ms(UNNAMED_MS_MAX)
        producer.send("t", rows(2))
        producer.flush()
        assert log.refresh().undecided == frozenset()
        clock.pass_ms(1)
        producer.send("t", rows(3))
        assert log.refresh().undecided == {"p"}
        assert log.state.transactional_ids["p"].staged_records() != {}
        producer.commit()
        producer.begin()
        producer.send("t", rows(4))
        producer.flush()
        producer.abort()
        clock.pass_ms(2 * UNNAMED_MS_MAX)
        producer.begin()
        producer.send("t", rows(5))
        assert producer.flush().entry is None, "another transaction's age does not count"
        producer.commit()
    assert read(log) == [1, 2, 3, 5]


def test_auto_commits_what_is_many_in_one_entry_if_it_was_never_staged() -> None:
    log = new_log()
    with Producer(log, "p", batch_bytes=1) as producer, producer.transaction() as txn:
        for number in range(1_001):
            txn.send("t", rows(number))
        before = log.refresh().entry
    assert log.refresh().entry == before + 1
    assert read(log) == list(range(1_001))


# --- what the state holds -----------------------------------------------------------------------------------


def test_the_state_holds_references_and_totals_however_many_rows_are_staged() -> None:
    """A thousand times the rows, and a hundred times the batches, in as many flushes: the same state but for
    digits."""
    sizes = {}
    for batches, records in ((1, 10), (100, 100)):
        log = new_log(partitions=2)
        with Producer(log, "p", buffer="deferred", batch_bytes=1) as producer:
            producer.begin()
            for _ in range(3):
                for number in range(batches):
                    producer.send("t", rows(*range(records)), partition=number % 2)
                producer.send("t", rows(1), partition=1)
                producer.flush()
            state = log.refresh()
            known = state.transactional_ids["p"]
            assert sum(known.staged_records().values()) == 3 * (batches * records + 1)
            assert (len(known.staged), len(state.files), len(state.tables)) == (3, 3, 3)
            assert state.extents == 0
            sizes[batches] = len(encode_snapshot(state))
            producer.abort()
    assert sizes[100] <= 1.05 * sizes[1]


# --- memory -------------------------------------------------------------------------------------------------

SMALL = 512 * MIB


@pytest.mark.parametrize(
    "case",
    [
        Case(buffer="deferred", what="small", total_bytes=SMALL, roll_bytes=64 * MIB),
        Case(
            buffer="auto",
            what="small, beyond 1,000 batches",
            total_bytes=SMALL,
            send_bytes=MIB // 4,
            batch_bytes=MIB // 4,
        ),
    ],
    ids=lambda case: case.buffer,
)
def test_a_transaction_larger_than_its_memory(tmp_path: Path, case: Case) -> None:
    """A process of its own writes 512 MiB, and grows by less than half of it: ``make memory`` does it with 4
    GiB."""
    found = measure(tmp_path, case)
    assert found["sent_bytes"] >= SMALL
    assert found["growth_mib"] <= 192
    assert found["stages"] >= (6 if case.buffer == "deferred" else 1)
    with TxnLog.open(tmp_path / "log") as log:
        assert sum(int(part.rows["take"].sum()) for part in log.plan("t").partitions) >= found["records"]


def test_that_an_opening_aborted_what_was_staged_is_known_later_too() -> None:
    """Such an abort has no marker anywhere: only the stages before it say that there was something."""
    log = new_log()
    first, second = Producer(log, "p", buffer="deferred"), Producer(log, "p")
    first.init()
    first.begin()
    first.send("t", rows(1))
    first.flush()
    second.init()
    aborted = log.outcome("p", 0)
    assert (aborted.outcome, aborted.cause, aborted.entry) == ("abort", "init", log.state.entry)
    third = Producer(log, "p")
    third.init()  # ends nothing
    with third.transaction() as txn:
        txn.send("t", rows(2))
    assert log.outcome("p", 0) == aborted
    with pytest.raises(NotFoundError):
        log.outcome("p", 1)


def test_a_transaction_that_sent_nothing_is_not_taken_for_the_one_before() -> None:
    log = new_log()
    first = Producer(log, "p", buffer="inline")
    first.init()
    first.begin()
    first.send("t", rows(1))
    first.flush()
    Producer(log, "p").init()  # aborts epoch 0
    last = Producer(log, "p")
    last.init()  # aborts nothing
    with last.transaction() as txn:
        txn.send("t", rows(2))
    assert log.outcome("p", 0).cause == "init"
    assert log.outcome("p", 2).outcome == "commit"
    with pytest.raises(NotFoundError):
        log.outcome("p", 1)
