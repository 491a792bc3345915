"""Pulsar's tests of recovery: what a broker, a coordinator or a buffer knows after a restart.

Here a process that opens the log: real files, a snapshot or none, and reads that fail.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from tests.conformance.pulsar import BUFFERS, again, new_log, opened, plain, read, send, snapshot, stable
from tests.integration.clients.failing import Plan, faulty, unclear_commit
from txnformat.core.intents import AllocateIds, Write
from txnformat.core.operations import AllocateProducerIds
from txnformat.core.snapshot.codec import state_digest
from txnformat.errors import CorruptDataError
from txnformat.keys import entry_key
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import CommitStateUnknownError, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.settings import Buffer

SNAPSHOTS = pytest.mark.parametrize("named", ["never", "open", "ended"])
"""When a snapshot was named: never, while transactions were open, after their ends."""


@BUFFERS
@SNAPSHOTS
@case("TopicTransactionBufferRecoverTest", "recoverTest")
def test_a_restart_knows_open_committed_and_aborted_transactions(
    tmp_path: Path, buffer: Buffer, named: str
) -> None:
    """Two interleaved transactions; one commits, a restart; the other ends, a restart."""
    root = tmp_path / "log"
    log = new_log(LocalStore(root))
    one, two = opened(log, "one", buffer), opened(log, "two", buffer)
    for n in range(10):
        send(one if n % 2 == 0 else two, n)
    if named == "open":
        snapshot(log)
    one.commit()
    first = [0] if buffer is Buffer.INLINE else [0, 2, 4, 6, 8]
    assert read(TxnLog.open(root)) == first, "inline: message 1 of the open one stands in the way"
    two.abort()
    if named == "ended":
        snapshot(log)
    found = TxnLog.open(root)
    assert read(found) == [0, 2, 4, 6, 8]
    assert state_digest(found.state) == state_digest(log.refresh())
    two.begin()
    send(two, 10)
    two.commit()
    assert read(TxnLog.open(root)) == [0, 2, 4, 6, 8, 10]


@BUFFERS
@SNAPSHOTS
@case("MetadataTransactionBufferTest", "restartAfterCommit_committedDataStillVisible")
@case("MetadataTransactionBufferTest", "restartAfterAbort_abortedTxnStillFiltered")
def test_what_old_transactions_committed_stays_visible_and_what_they_aborted_stays_hidden(
    tmp_path: Path, buffer: Buffer, named: str
) -> None:
    """Long after their ids have moved on, sealed, and behind a snapshot that knows nothing of them any
    more.
    """
    root = tmp_path / "log"
    log = new_log(LocalStore(root))
    for n, outcome in enumerate(("commit", "abort", "commit", "abort")):
        producer = opened(log, "one", buffer)
        send(producer, n)
        if named == "open" and n == 1:
            snapshot(log)
        getattr(producer, outcome)()
        producer.close()
    log.maintain("seal")
    if named == "ended":
        snapshot(log)
    assert TxnLog.open(root).state.extents == 0
    assert read(TxnLog.open(root)) == [0, 2]
    plain(log, 4)
    assert read(TxnLog.open(root)) == [0, 2, 4]


@case("MetadataTransactionBufferTest", "recoveryDiscoveredOpenTxn_pinsAtWatermark")
@case("TransactionStablePositionTest", "testSyncNormalPositionWhenTBRecover")
@SNAPSHOTS
def test_an_open_transaction_that_a_restart_finds_pins_at_its_own_first_message(
    tmp_path: Path, named: str
) -> None:
    """Plain messages that come after the restart wait behind it; other partitions do not know of it."""
    root = tmp_path / "log"
    log = new_log(LocalStore(root), partitions=2)
    plain(log, 1)
    plain(log, 2, partition=1)
    send(opened(log, "gone"), 3, 4)
    if named != "never":
        snapshot(log)
    if named == "open":
        plain(log, 5)
    found = TxnLog.open(root)
    assert (stable(found), stable(found, 1)) == (1, 1)
    plain(found, 6)
    plain(found, 7, partition=1)
    assert (stable(found), stable(found, 1)) == (1, 2)
    assert sorted(read(found)) == [1, 2, 7]
    opened(found, "gone").close()
    assert stable(TxnLog.open(root)) == found.offsets("t")[0].log_end
    assert sorted(read(found)) == sorted([1, 2, 7, 6, *([5] if named == "open" else [])])


@case("TransactionTest", "testTakeSnapshotBeforeBuildTxnProducer")
@case("TopicTransactionBufferTest", "testWriteSnapshotWhenFirstTxnMessageSend")
def test_the_first_transaction_of_a_topic_needs_no_snapshot_before_it() -> None:
    """A buffer of Pulsar writes one first, so that recovery knows to look; every recovery folds the chain
    here."""
    log = new_log(CountingStore(MemoryStore()))
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        producer = opened(log, "one")
        send(producer, 1)
        producer.abort()
        plain(log, 2, 3)
        send(opened(log, "two"), 4)
    log.close()
    assert measured.counts.count(key_class=KeyClass.SNAPSHOT) == 0
    assert (read(log), stable(again(log))) == ([2, 3], 4)


@case("TransactionTest", "testNoEntryCanBeReadWhenRecovery")
def test_a_restart_behind_whose_snapshot_nothing_was_written_is_complete() -> None:
    """But the entry that names the snapshot: the log opens from there, and does not wait for anything."""
    log = new_log(CountingStore(MemoryStore()))
    send(opened(log, "one"), 1)
    plain(log, 2)
    entry = snapshot(log)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        found = again(log)
    assert found.state.entry == entry + 1
    # The entry that names it, and the slot behind it, which is empty.
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == 2
    assert state_digest(found.state) == state_digest(log.refresh())
    assert stable(found) == 0


# --- reads that fail ----------------------------------------------------------------------------------------


@case("TopicTransactionBufferRecoverTest", "testTBRecoverCanRetryIfTimeoutRead")
def test_opening_the_log_repeats_a_read_that_times_out() -> None:
    plan = Plan()
    log = faulty(plan)
    send(opened(log, "one"), 1)
    plain(log, 2)
    # Every entry is asked for at once, and the first of them three times more.
    plan.next(RequestKind.GET, KeyClass.ENTRY, *[Fault(FaultKind.FAIL_BEFORE)] * (log.state.entry + 5))
    found = again(log)
    assert found.state.entry == log.state.entry
    assert stable(found) == 0


@case("TopicTransactionBufferRecoverTest", "testTransactionBufferRecoverThrowException")
def test_opening_the_log_fails_when_its_entries_cannot_be_read_and_succeeds_when_they_can() -> None:
    """It never opens with half of what is there, and a failure leaves nothing that the next try would trip
    over."""
    plan = Plan()
    log = faulty(plan)
    producer = opened(log, "one")
    send(producer, 1)
    producer.commit()
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(StorageError):
        again(log)
    plan.clear()
    assert read(log) == [1]


@case("TransactionTest", "testEndTBRecoveringWhenManagerLedgerDisReadable")
@case("TransactionTest", "testEndTCRecoveringWhenManagerLedgerDisReadable")
def test_opening_ends_with_an_error_that_names_what_is_unreadable(tmp_path: Path) -> None:
    """Pulsar ends its recovery there and goes on without what it could not read; here nobody goes on."""
    root = tmp_path / "log"
    log = new_log(LocalStore(root))
    producer = opened(log, "one")
    send(producer, 1)
    entry = log.state.entry
    producer.commit()
    (root / entry_key(entry)).chmod(0o600)
    (root / entry_key(entry)).write_bytes(b"{")
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(root)
    assert caught.value.values["object"] == entry_key(entry)


@case("TransactionTest", "testConsistencyOfTransactionStatsAtEndTxn")
def test_a_commit_does_not_depend_on_what_keeps_the_log_small() -> None:
    """Pulsar's coordinator could not delete the records of the ended transaction; the commit stands all the
    same."""
    plan = Plan()
    log = faulty(plan)
    for what in (KeyClass.SNAPSHOT, KeyClass.SIDECAR):
        plan.always(RequestKind.CREATE, what, Fault(FaultKind.DISK_FULL))
        plan.always(RequestKind.OPEN_WRITE, what, Fault(FaultKind.DISK_FULL))
        plan.always(RequestKind.PUT, what, Fault(FaultKind.DISK_FULL))
    producer = opened(log, "one")
    for n in range(120):  # beyond the bound at which the writer makes a snapshot
        send(producer, n)
        producer.commit()
        producer.begin()
    log.close()
    assert any(what is KeyClass.SNAPSHOT for _, what in plan.seen), "it was tried"
    assert log.state.checkpoints == ()
    assert read(log) == list(range(120))


# --- ids and the coordinator's log --------------------------------------------------------------------------


@case("MLTransactionMetadataStoreTest", "testRecoverSequenceId")
@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_restart_gives_no_id_again(from_snapshot: bool) -> None:
    """Neither producer ids nor epochs, from entries or from a snapshot."""
    log = new_log()
    producer = opened(log, "one")
    send(producer, 1)
    producer.commit()
    (block,) = log.committer.commit(log.committer.intend(AllocateIds("process"))).operations
    assert isinstance(block, AllocateProducerIds)
    if from_snapshot:
        snapshot(log)
    found = again(log)
    successor, other = opened(found, "one"), opened(found, "two")
    assert (successor.producer_id, successor.epoch) == (producer.producer_id, 2)
    assert other.producer_id == block.last + 1


@case("MLTransactionMetadataStoreTest", "testInitTransactionReader", "testTransactionOperation")
@case("TransactionRecoverTrackerTest", "openStatusRecoverTrackerTest")
def test_transactions_in_every_state_are_recovered_with_partitions_and_times() -> None:
    """One that has sent nothing, one that is open in two partitions, one that committed, one that aborted."""
    chain = Chain("empty", "open", "committed", "aborted")
    for name in ("open", "committed", "aborted"):
        chain.now_ms += 1_000
        chain.send(name, 1, 0, 2)
    chain.end("committed", COMMIT)
    chain.end("aborted", ABORT)
    for entry in range(len(chain.entries)):
        found = chain.reopened(entry).transactional_ids
        assert {name: each.status.value for name, each in found.items()} == {
            "empty": "Empty",
            "open": "Ongoing",
            "committed": "CompleteCommit",
            "aborted": "CompleteAbort",
        }
        known = found["open"]
        assert {key.partition: first for key, first in known.partitions.items()} == {0: 0, 2: 0}
        assert known.started_ms == 1_700_000_001_000, "what its timeout counts from"
        assert found["committed"].partitions == found["aborted"].partitions == {}
    chain.check_reopening()


@case("MLTransactionMetadataStoreTest", "testRecoverWhenDeleteFromCursor")
def test_open_transactions_are_recovered_although_entries_before_the_snapshot_are_gone() -> None:
    log = new_log()
    send(opened(log, "open"), 1)
    ended = opened(log, "ended")
    send(ended, 2)
    ended.abort()
    entry = snapshot(log)
    log.close()
    for number in range(entry):
        log.store.delete(entry_key(number))
    found = again(log)
    assert {name: each.status.value for name, each in found.state.transactional_ids.items()} == {
        "open": "Ongoing",
        "ended": "CompleteAbort",
    }
    assert stable(found) == 0
    opened(found, "open").close()
    plain(found, 3)
    assert read(found) == [3]


@case("MLTransactionMetadataStoreTest", "testManageLedgerWriteFailState")
def test_a_write_that_fails_fails_its_call_and_the_next_one_works() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = opened(log, "one")
    send(producer, 1)
    plan.next(RequestKind.CREATE, KeyClass.ENTRY, Fault(FaultKind.READ_ONLY))
    before = log.refresh()
    with pytest.raises(StorageError):
        producer.commit()
    assert log.refresh() == before
    producer.commit()
    opened(log, "two").close()
    assert read(log) == [1]


@case("TransactionTest", "testRetryExceptionOfEndTxn")
@case("TopicTransactionBufferTest", "testTransactionBufferAppendMarkerWriteFailState")
@BUFFERS
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_end_is_tried_again_while_the_store_fails_and_then_holds(buffer: Buffer, end: str) -> None:
    """The same call: it comes back when the entry is there. No marker is there without the decision."""
    plan = Plan()
    log = faulty(plan)
    producer = opened(log, "one", buffer)
    send(producer, 1)
    plan.next(RequestKind.CREATE, KeyClass.ENTRY, *[Fault(FaultKind.SERVER_ERROR)] * 4)
    getattr(producer, end)()
    assert read(log) == ([1] if end == "commit" else [])
    assert stable(log) == log.offsets("t")[0].log_end


@case("TransactionTest", "testEndTxnWhenCommittingOrAborting")
@case("TransactionMetadataStoreServiceTest", "testEndTransactionOpRetry")
@BUFFERS
@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("lands", [True, False])
def test_an_end_that_was_under_way_is_ended_by_the_same_call(buffer: Buffer, end: str, lands: bool) -> None:
    """COMMITTING and ABORTING are here a call without an answer: repeated, it gives one end, and the same."""
    plan = Plan()
    log = faulty(plan)
    producer = opened(log, "one", buffer)
    before = log.refresh().entry
    send(producer, 1)
    if end == "abort" and log.refresh().entry == before:
        producer.abort()  # nobody has to be asked: the log holds nothing of it
        assert log.refresh().entry == before
        return
    unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER if lands else FaultKind.FAIL_BEFORE)
    with pytest.raises(CommitStateUnknownError):
        getattr(producer, end)()
    plan.clear()
    assert (again(log).state.transactional_ids["one"].last_end is not None) == lands
    getattr(producer, end)()
    last_end = log.refresh().transactional_ids["one"].last_end
    assert last_end is not None
    assert (last_end.epoch, last_end.outcome.value) == (0, end)
    with producer.transaction() as txn:
        txn.send("t", [{"n": 2}])
    assert read(log) == ([1, 2] if end == "commit" else [2])


@case("TransactionMetadataStoreServiceTest", "testEndTransactionOpRetry")
def test_the_other_end_than_the_one_under_way_is_refused_when_that_had_landed() -> None:
    """ABORTING and then a commit: InvalidTxnStatus there, and here."""
    chain = Chain("a")
    producer = chain.producer("a")
    chain.send("a", 1)
    chain.end("a", ABORT)
    assert chain.refusal(Write(producer, end=COMMIT)).kind == "transaction-aborted"
