"""Pulsar's tests of what is stored of pending acknowledgements: what a restart knows of them, and what is
left of them.

A ledger beside each subscription (MLPendingAckStore) or records of a metadata store (PIP-473) there; here
operations in the entries of the log, and the state that folds them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, CoreLog, kinds, orders, rows
from tests.conformance.pulsar import again, new_log, opened, snapshot
from tests.conformance.subscribers import (
    BATCHES,
    SUB,
    acks_of,
    figures,
    fill,
    numbers,
    received,
    refused,
    subscribed,
    worker,
)
from tests.integration.clients.failing import Plan, faulty
from txnformat.core.intents import Acks, Write
from txnformat.core.operations import EndTxn
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.core.state import IntentWindow
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode, CreateSubscription
from txnformat.core.subscriptions.state import PartitionAcks
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import CorruptDataError
from txnformat.keys import entry_key
from txnformat.persistent import replace
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import Outcome
from txnlog import InvalidInputError, InvalidTransactionStateError, StorageError, Subscription, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind

SNAPSHOTS = pytest.mark.parametrize("named", [False, True], ids=["entries", "snapshot"])
"""Whether a restart begins with a snapshot or folds every entry."""
OUTCOMES = pytest.mark.parametrize("outcome", [COMMIT, ABORT], ids=str)

# --- the client after a restart -----------------------------------------------------------------------------


@case("PendingAckPersistentTest", "individualPendingAckReplayTest")
@SNAPSHOTS
def test_a_restart_knows_which_messages_are_pending_acknowledged_or_free(tmp_path: Path, named: bool) -> None:
    root = tmp_path / "log"
    log = subscribed(60, LocalStore(root))
    messages = received(worker(log))
    pending, free = messages[::2], messages[1::2]
    abort = opened(log, "abort")
    abort.acknowledge(worker(log), pending)
    abort.flush()
    if named:
        snapshot(log)
    found = TxnLog.open(root)
    assert figures(found) == (60, 30)
    other, commit, instance = opened(found, "other"), opened(found, "commit"), worker(found)
    for message in pending:
        refused(other.acknowledge, instance, message)
    commit.acknowledge(instance, free)
    other.abort()
    commit.commit()
    abort.abort()
    if named:
        snapshot(log)
    found = TxnLog.open(root)
    assert figures(found) == (30, 0)
    assert len(acks_of(found).acked) == 30
    other, commit, instance = opened(found, "other"), opened(found, "commit"), worker(found)
    for message in free:
        refused(other.acknowledge, instance, message, kind="already-acknowledged")
    assert numbers(instance) == list(range(0, 60, 2))
    commit.acknowledge(instance, pending)
    other.abort()
    commit.commit()
    assert acks_of(TxnLog.open(root)) == PartitionAcks(60), "one number is left of all of it"


@case("PendingAckPersistentTest", "cumulativePendingAckReplayTest")
@SNAPSHOTS
def test_a_restart_knows_the_position_that_a_transaction_holds(tmp_path: Path, named: bool) -> None:
    root = tmp_path / "log"
    log = subscribed(30, LocalStore(root))
    instance = worker(log)
    messages = received(instance)
    abort = opened(log, "abort")
    for message in messages:
        abort.acknowledge_cumulative(instance, message)
    abort.flush()
    if named:
        snapshot(log)
    found = TxnLog.open(root)
    other, commit, instance = opened(found, "other"), opened(found, "commit"), worker(found)
    for message in messages:
        refused(other.acknowledge_cumulative, instance, message)
    abort.abort()
    for message in messages:
        commit.acknowledge_cumulative(instance, message)
        commit.flush()
    commit.commit()
    if named:
        snapshot(found)
    found = TxnLog.open(root)
    instance = worker(found)
    for message in messages:
        refused(other.acknowledge_cumulative, instance, message, kind="already-acknowledged")
    assert acks_of(found) == PartitionAcks(30)


@case("PendingAckPersistentTest", "testBuildConsumerEncounterPendingAckInitFailure")
def test_an_instance_gets_over_reads_that_fail_for_a_while_and_says_so_when_they_go_on() -> None:
    plan = Plan()
    log = faulty(plan)
    fill(log, range(3))
    log.subscriptions.create("t", SUB)
    instance = Subscription(log, "t", SUB)
    plan.next(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    assert numbers(instance) == [0, 1, 2]
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.PERMISSION_DENIED))
    with pytest.raises(StorageError):
        Subscription(log, "t", SUB).receive(timeout_ms=0)
    plan.clear()
    assert numbers(Subscription(log, "t", SUB)) == [0, 1, 2]


@case("TransactionTest", "testEndTPRecoveringWhenManagerLedgerDisReadable")
def test_an_acknowledgement_that_cannot_be_read_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    """Pulsar ends its replay there and is ready, without what it could not read: messages would come
    twice.
    """
    root = tmp_path / "log"
    log = subscribed(3, LocalStore(root))
    instance = worker(log)
    instance.acknowledge(received(instance)[0])
    entry = log.refresh().entry
    (root / entry_key(entry)).chmod(0o600)
    (root / entry_key(entry)).write_bytes(b"{")
    with pytest.raises(CorruptDataError) as caught:
        TxnLog.open(root)
    assert caught.value.values["object"] == entry_key(entry)


@case("PendingAckPersistentTest", "testPendingAckMetrics")
def test_figures_tell_how_many_transactions_of_acknowledgements_were_committed_and_aborted() -> None:
    log = subscribed(10)
    instance = worker(log)
    for n, message in enumerate(received(instance)):
        producer = opened(log, f"etl-{n}")
        producer.acknowledge_cumulative(instance, message)
        producer.flush()
        assert log.subscriptions.list("t")[0].pending_transactions == (f"etl-{n}",)
        producer.commit() if n % 2 else producer.abort()
    counted = {status: count for status, count in again(log).metrics().transactional_ids.items() if count}
    assert counted == {"CompleteCommit": 5, "CompleteAbort": 5}
    ends = [each.outcome for entry in log.history() for each in entry.transactions]
    assert (ends.count(COMMIT), ends.count(ABORT)) == (5, 5)
    assert log.subscriptions.list("t")[0].pending_transactions == ()


@case("PendingAckPersistentTest", "testDeleteSubThenDeletePendingAckManagedLedger")
@SNAPSHOTS
def test_nothing_is_left_of_a_subscription_that_is_deleted(named: bool) -> None:
    """Also not of what transactions had acknowledged in it: one of the same name begins anew."""
    log = subscribed(5)
    producer = opened(log, "one")
    producer.acknowledge(worker(log), received(worker(log))[1:3])
    producer.flush()
    refused(log.subscriptions.delete, "t", SUB)
    producer.commit()
    log.subscriptions.delete("t", SUB)
    if named:
        snapshot(log)
    found = again(log)
    assert found.state.subscriptions == {}
    assert found.subscriptions.list() == ()
    assert [topic.name for topic in found.state.topics.values()] == ["t"]
    found.subscriptions.create("t", SUB)
    assert numbers(worker(found)) == [0, 1, 2, 3, 4]


# --- what is left in memory ---------------------------------------------------------------------------------


@case("PendingAckInMemoryDeleteTest", "txnAckTestNoBatchAndSharedSubMemoryDeleteTest")
@case("PendingAckInMemoryDeleteTest", "txnAckTestBatchAndSharedSubMemoryDeleteTest")
@BATCHES
def test_the_state_keeps_what_is_not_acknowledged_and_no_more(batched: bool) -> None:
    """Half is acknowledged at once, half in a transaction; one message of each turn is left, in the
    middle.
    """
    log = subscribed(0)
    instance = worker(log)
    left = []
    for turn in range(2):
        fill(log, range(100 * turn, 100 * turn + 100), batched=batched)
        messages = received(instance)
        left.append(messages.pop(50))
        producer = opened(log, "one")
        producer.acknowledge(instance, messages[::2])
        producer.flush()
        instance.acknowledge(messages[1::2])
        producer.commit()
        producer.close()
        acks = acks_of(log)
        assert acks.pending == {}
        assert acks.mark == 50
        assert acks.acked.pairs() == [(51, 100), (51, 150), (151, 200)][turn : 2 * turn + 1]
        assert figures(log) == (turn + 1, 0)
    instance.acknowledge(left[0])
    assert acks_of(log) == PartitionAcks(150, acks_of(log).acked)
    producer = opened(log, "two")
    producer.acknowledge(instance, left[1])
    producer.commit()
    assert acks_of(log) == PartitionAcks(200)


@case("PendingAckInMemoryDeleteTest", "testPendingAckClearPositionIsSmallerThanMarkDelete")
def test_nothing_below_the_mark_is_kept_and_what_others_hold_above_it_is() -> None:
    log = subscribed(10)
    instance = worker(log)
    messages = received(instance)
    one, other = opened(log, "one"), opened(log, "other")
    one.acknowledge(instance, messages[:1])
    one.flush()
    other.acknowledge(instance, messages[9:])
    other.flush()
    assert set(acks_of(log).pending) == {"one", "other"}
    one.commit()
    acks = acks_of(log)
    assert acks.mark == 1
    assert {name: held.ranges.pairs() for name, held in acks.pending.items()} == {"other": [(9, 10)]}
    other.abort()
    assert acks_of(log) == PartitionAcks(1)


@case("PendingAckPersistentTest", "testDeleteUselessLogDataWhenSubCursorMoved")
@case("TransactionTest", "testPendingAckMarkDeletePosition")
def test_a_snapshot_holds_nothing_of_transactions_whose_acknowledgements_are_below_the_mark() -> None:
    """Pulsar deletes its log of pending acknowledgements up to there; here they join, however many there
    were."""
    log = subscribed(40)
    instance = worker(log)
    messages = received(instance)
    producer = opened(log, "one")
    sizes = []
    for turn in range(0, 40, 10):
        for message in messages[turn : turn + 10]:
            producer.acknowledge(instance, message)
            producer.flush()
        producer.commit()
        producer.begin()
        assert acks_of(log) == PartitionAcks(turn + 10)
        # The window of commit ids is bounded by itself.
        sizes.append(len(encode_snapshot(replace(log.refresh(), window=IntentWindow()))))
    assert sizes[-1] <= sizes[0] + 40, "digits of numbers and times, nothing for each message"


# --- operations ---------------------------------------------------------------------------------------------


class Subscribed(CoreLog):
    """A log with 20 records in partition 0 of ``orders``, a subscription of it, and a producer of the id
    ``etl``."""

    def __init__(self) -> None:
        super().__init__()
        self.topic_id = self.state.topic("orders").topic_id
        self.apply(Write(appends=rows(sequence=-1, records=20)))
        self.apply(CreateSubscription(self.topic_id, SUB))
        self.producer_ref = self.open()

    def individual(self, *offsets: int) -> Acks:
        part = AckedPartition(0, tuple((offset, offset + 1) for offset in offsets))
        return Acks(self.topic_id, SUB, AckMode.INDIVIDUAL, (part,))

    def below(self, position: int) -> Acks:
        return Acks(self.topic_id, SUB, AckMode.CUMULATIVE, (AckedPartition(0, position=position),))

    @property
    def acks(self) -> PartitionAcks:
        return self.state.subscriptions[self.topic_id, SUB].partition(0)


@case("MetadataPendingAckStoreTest", "appendIndividualAck_writesTxnOpsAndTracksOpenTxn")
@case("TransactionMetadataStoreServiceTest", "testAddAckedPartitionToTxn")
@case("TransactionMetadataStoreProviderTest", "testAddAckedPartition")
def test_acknowledgements_are_one_operation_and_join_the_transaction() -> None:
    log = Subscribed()
    operations = log.apply(Write(log.producer_ref, acks=(log.individual(3, 5),)))
    assert kinds(operations) == ["Ack"]
    (op,) = operations
    assert isinstance(op, Ack)
    assert (op.mode, op.partitions) == (AckMode.INDIVIDUAL, (AckedPartition(0, ((3, 4), (5, 6))),))
    known = log.id()
    assert known.status is TransactionStatus.ONGOING
    assert known.subscriptions == {(log.topic_id, SUB)}
    assert known.partitions == {}, "no partition gets a marker for it"
    log.apply(Write(log.producer_ref, acks=(log.individual(7),)))
    assert log.id().subscriptions == {(log.topic_id, SUB)}, "once, however often"


@case("MetadataPendingAckStoreTest", "appendCumulativeAck_writesSingleRecordWithCumulativeTrue")
def test_a_cumulative_acknowledgement_is_one_position_whatever_lies_below_it() -> None:
    log = Subscribed()
    log.apply(Write(acks=(log.individual(1, 3, 5),)))
    (op,) = log.apply(Write(log.producer_ref, acks=(log.below(10),)))
    assert isinstance(op, Ack)
    assert (op.mode, op.partitions) == (AckMode.CUMULATIVE, (AckedPartition(0, position=10),))
    held = log.acks.pending["etl"]
    assert (held.position, held.ranges.pairs()) == (10, [])


@case("MetadataPendingAckStoreTest", "appendCommitMarkAndAbortMark_areNoOps")
@OUTCOMES
def test_an_end_has_nothing_to_say_of_subscriptions(outcome: Outcome) -> None:
    """A client that folds it knows what the transaction holds: no mark in the subscription, and none in the
    partition."""
    log = Subscribed()
    log.apply(Write(log.producer_ref, acks=(log.individual(3),)))
    log_end = log.state.partition(orders(0)).log_end
    operations = log.apply(Write(log.producer_ref, end=outcome))
    assert kinds(operations) == ["EndTxn"]
    assert isinstance(operations[0], EndTxn)
    assert operations[0].markers == ()
    assert log.state.partition(orders(0)).log_end == log_end


@case("MetadataPendingAckStoreTest", "commitEvent_callsHandleCommitTxn_andDeletesOpRecords")
@case("MetadataPendingAckStoreTest", "abortEvent_callsHandleAbortTxn_andDeletesOpRecords")
@OUTCOMES
def test_an_end_puts_acknowledgements_into_force_or_frees_them_and_keeps_nothing_else(
    outcome: Outcome,
) -> None:
    log = Subscribed()
    log.apply(Write(log.producer_ref, acks=(log.individual(3, 5),)))
    assert set(log.acks.pending) == {"etl"}
    log.finish(log.producer_ref, outcome)
    assert log.acks.pending == {}
    assert log.acks.acked.pairs() == ([(3, 4), (5, 6)] if outcome is COMMIT else [])
    assert log.id().subscriptions == frozenset()


@case("MetadataPendingAckStoreTest", "recovery_rebuildsOpenTxnStateFromAckRecords")
@case("MLPendingAckStoreTest", "testMainProcess")
def test_whoever_folds_the_log_anew_knows_every_transaction_that_holds_something() -> None:
    """Twenty transactions, individual and cumulative by subscription; some end. From every entry on, and from
    snapshots."""
    log = Subscribed()
    log.apply(CreateSubscription(log.topic_id, "positions"))
    producers = [log.open(f"etl-{n}") for n in range(20)]
    for n, producer in enumerate(producers):
        log.apply(Write(producer, acks=(log.individual(n),)))
    log.apply(
        Write(
            producers[0],
            acks=(Acks(log.topic_id, "positions", AckMode.CUMULATIVE, (AckedPartition(0, position=9),)),),
        )
    )
    for n, producer in enumerate(producers[:12]):
        log.finish(producer, COMMIT if n % 2 == 0 else ABORT)
    assert set(log.acks.pending) == {f"etl-{n}" for n in range(12, 20)}
    assert (log.acks.mark, log.acks.acked.pairs()) == (1, [(2, 3), (4, 5), (6, 7), (8, 9), (10, 11)])
    assert log.state.subscriptions[log.topic_id, "positions"].partition(0) == PartitionAcks(9)
    log.check_reopening()


@case("PendingAckPersistentTest", "testPendingAckLowWaterMarkRemoveFirstTxn")
@case("TransactionLowWaterMarkTest", "testPendingAckLowWaterMark")
@OUTCOMES
def test_an_acknowledgement_that_comes_after_the_end_of_its_transaction_is_refused(outcome: Outcome) -> None:
    """It holds nothing then, also not for the next transaction of the same id, and not after a restart."""
    log = Subscribed()
    late = log.producer_ref
    log.apply(Write(late, acks=(log.individual(0),)))
    log.finish(late, outcome)
    for wanted in (log.individual(5), log.below(9)):
        assert isinstance(log.refusal(Write(late, acks=(wanted,))), InvalidTransactionStateError)
    assert log.acks.pending == {}
    successor = log.producer("etl")
    log.apply(Write(successor, acks=(log.individual(7),)))
    assert isinstance(log.refusal(Write(late, acks=(log.individual(5),))), InvalidTransactionStateError)
    assert [held.ranges.pairs() for held in log.acks.pending.values()] == [[(7, 8)]]
    log.finish(successor, COMMIT)
    assert log.acks.pending == {}


@case("MLPendingAckStoreTest", "testPendingAckStoreWithSlashSubscriptionName")
def test_the_name_of_a_subscription_is_in_no_key() -> None:
    """Pulsar names a ledger after it, and has to encode a slash. Here a slash is refused, as in names of
    topics."""
    log = new_log(CountingStore(MemoryStore()))
    assert isinstance(log.store, CountingStore)
    entry = log.refresh().entry
    with log.store.measure() as measured, pytest.raises(InvalidInputError) as caught:
        log.subscriptions.create("t", "tenant/namespace/my-function")
    assert caught.value.kind == "invalid-subscription-name"
    assert not dict(measured.counts.requests)
    assert log.refresh().entry == entry
    fill(log, [0])
    log.subscriptions.create("t", "tenant.namespace_my-function")
    assert numbers(worker(log, "tenant.namespace_my-function")) == [0]
    assert not [key for key in log.store.list("") if "my-function" in key.key]
