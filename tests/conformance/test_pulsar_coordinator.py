"""Pulsar's tests of the transaction coordinator: ids, states, who may end what.

The coordinator here is a pure function that folds entries, and every client is one: what upstream asks a
broker is asked of the log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from tests.conformance.pulsar import BUFFERS, again, new_log, opened, read, send
from txnformat.core.intents import Done, Included, ProducerRef, Rejected, Write
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    InvalidTransactionStateError,
    NotFoundError,
    Outcome,
    Producer,
    ProducerFencedError,
)
from txnlog_testing.stores.counting import CountingStore
from writers.settings import Buffer

OUTCOMES = pytest.mark.parametrize("outcome", [COMMIT, ABORT], ids=str)

# --- ids ----------------------------------------------------------------------------------------------------


@case("TransactionTest", "testGetTxnID")
@case("TransactionMetadataStoreServiceTest", "testNewTransaction")
@case("TransactionCoordinatorV5Test", "newTransaction_createsHeader_withSequentialLeastBits")
@BUFFERS
def test_the_transactions_of_an_id_are_numbered_one_after_the_other(buffer: Buffer) -> None:
    """(producer id, epoch) names a transaction: the id for life, the epoch one more after each end."""
    log = new_log()
    with Producer(log, "one", buffer=buffer) as producer:
        named = []
        for number in range(4):
            producer.begin()
            send(producer, number)
            named.append((producer.producer_id, producer.epoch))
            if number % 2:
                producer.abort()
            else:
                producer.commit()
    # With "auto" the log never held what was aborted: that transaction leaves no trace, and its number to the
    # next.
    assert named == [(0, epoch) for epoch in ([0, 1, 1, 2] if buffer is Buffer.AUTO else [0, 1, 2, 3])]
    committed = log.read("t", columns=["n", "_producer_epoch"]).read_all().to_pylist()
    assert [(row["n"], row["_producer_epoch"]) for row in committed] == [(n, named[n][1]) for n in (0, 2)]


@case("TransactionCoordinatorV5Test", "newTransaction_collectionsAreScopedByTcId")
def test_each_transactional_id_counts_its_own_transactions() -> None:
    chain = Chain("a", "b")
    for _ in range(3):
        chain.send("a", 1)
        chain.end("a", COMMIT)
    assert (chain.producer("a"), chain.producer("b")) == (ProducerRef(0, 3, "a"), ProducerRef(1, 0, "b"))


@case("TransactionCoordinatorV5Test", "addPartitionAndAddSubscription_areNoOps")
@BUFFERS
def test_nothing_is_registered_before_the_first_flush(buffer: Buffer) -> None:
    """To begin and to send to two partitions asks nobody; an end of nothing neither."""
    log = new_log(CountingStore(MemoryStore()), partitions=2)
    producer = opened(log, "one", buffer)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        for partition in range(2):
            producer.send("t", [{"n": 1}], partition=partition)
        producer.abort()
    assert measured.counts.count() == 0


@case("TransactionMetadataStoreServiceTest", "testAddProducedPartitionToTxn")
@case("TransactionMetadataStoreProviderTest", "testAddProducedPartition")
def test_the_log_knows_the_partitions_of_an_open_transaction() -> None:
    """They join with the entry that has their first message; the transaction stays open."""
    log = new_log(partitions=3)
    producer = opened(log, "one")
    for partition in (0, 2):
        send(producer, 1, partition=partition)
        (described,) = again(log).describe().transactions
        assert described.partitions == tuple(("t", each) for each in (0, 2) if each <= partition)
        assert described.status == "Ongoing"
    send(producer, 2, partition=0)
    assert again(log).describe().transactions[0].partitions == (("t", 0), ("t", 2))
    producer.commit()
    assert again(log).describe().transactions[0].partitions == ()


# --- states -------------------------------------------------------------------------------------------------


def _in(state: str) -> Chain:
    """Return a chain in which the transaction of epoch 0 of "a" is in a state."""
    chain = Chain("a")
    if state != "empty":
        chain.send("a", 1)
    if state in ("committed", "aborted"):
        chain.end("a", COMMIT if state == "committed" else ABORT)
    return chain


def _actions(chain: Chain) -> dict[str, Write]:
    producer = ProducerRef(0, 0, "a")
    return {
        "send": chain.write(producer, 1, sequence=len(chain.offsets()) and 1),
        "commit": Write(producer, end=COMMIT),
        "abort": Write(producer, end=ABORT),
    }


TRANSITIONS: dict[tuple[str, str], type[Included | Done] | str] = {
    # (state of the transaction, what is asked): done anew, done already, or the kind of refusal.
    ("empty", "send"): Included,
    ("empty", "commit"): "no-transaction",
    ("empty", "abort"): Included,  # after an unclear answer it settles what happened
    ("open", "commit"): Included,
    ("open", "abort"): Included,
    ("committed", "send"): "transaction-ended",
    ("committed", "commit"): Done,
    ("committed", "abort"): "transaction-committed",
    ("aborted", "send"): "transaction-ended",
    ("aborted", "commit"): "transaction-aborted",
    ("aborted", "abort"): Done,
}


@case("TxnStatusTest", "testTxnStatusTransition")
@case(
    "TransactionMetadataStoreProviderTest",
    "testUpdateTxnStatusSuccess",
    "testUpdateTxnStatusNotExpectedStatus",
)
@case("TransactionMetadataStoreProviderTest", "testUpdateTxnStatusCannotTransition")
@pytest.mark.parametrize(("state", "asked"), TRANSITIONS, ids="-".join)
def test_a_transaction_goes_only_where_its_state_allows(state: str, asked: str) -> None:
    """Pulsar's table without COMMITTING and ABORTING, which cannot be seen: decision and markers are one
    entry."""
    chain = _in(state)
    before = chain.state
    verdict = chain.decide(_actions(chain)[asked])
    expected = TRANSITIONS[state, asked]
    if isinstance(expected, str):
        assert isinstance(verdict, Rejected)
        assert isinstance(verdict.error, InvalidTransactionStateError)
        assert verdict.error.kind == expected
    else:
        assert isinstance(verdict, expected)
    assert (chain.state is before) == (expected is not Included)


@case("TransactionTest", "testGetTxnState")
@BUFFERS
def test_a_transaction_tells_its_state(buffer: Buffer) -> None:
    log = new_log()
    producer = opened(log, "one", buffer)
    assert producer.status == "in-transaction"
    send(producer, 1)
    producer.commit()
    assert producer.status == "ready"
    assert log.outcome("one", 0).outcome is Outcome.COMMIT
    other = opened(log, "two")
    send(other, 2)
    assert log.outcome("two", 0).outcome is None, "open"
    other.abort()
    assert (log.outcome("two", 0).outcome, log.outcome("two", 0).cause) == (Outcome.ABORT, "producer")
    # ERROR there: somebody else has ended the transaction, and the commit is too late.
    late = opened(log, "three", buffer)
    send(late, 3)
    opened(log, "three").close()
    with pytest.raises(ProducerFencedError):
        late.commit()
    assert late.status == "fenced"


@case("TransactionMetadataStoreProviderTest", "testGetTxnStatusNotFound", "testGetTxnStatusSuccess")
def test_the_outcome_of_a_transaction_is_found_by_id_and_epoch_and_of_no_other() -> None:
    log = new_log()
    send(opened(log, "one"), 1)
    assert log.outcome("one", 0).outcome is None
    for name, epoch in (("nobody", 0), ("one", 1), ("one", -1)):
        with pytest.raises(NotFoundError) as caught:
            log.outcome(name, epoch)
        assert caught.value.kind == "unknown-transaction"


@case("TransactionTest", "testTopicTransactionMetrics")
def test_metrics_count_committed_aborted_and_open_transactions() -> None:
    log = new_log()
    for name, end in (("one", "commit"), ("two", "abort"), ("three", None)):
        producer = opened(log, name)
        send(producer, 1)
        if end:
            getattr(producer, end)()
    measured = again(log).metrics()
    (partition,) = measured.partitions
    assert partition.open_transactions == 1
    assert log.offsets("t")[0].aborted_transactions == 1
    counted = {status: count for status, count in measured.transactional_ids.items() if count}
    assert counted == {"Ongoing": 1, "CompleteCommit": 1, "CompleteAbort": 1}


# --- ends ---------------------------------------------------------------------------------------------------


@case("TransactionCoordinatorV5Test", "endTransaction_commit_casesHeaderAndFansOutSegmentEvent")
@case("TransactionCoordinatorV5Test", "endTransaction_abort_casesHeaderAndFansOutEvents")
@OUTCOMES
def test_an_end_is_one_conditional_put_over_all_partitions(outcome: Outcome) -> None:
    """PIP-473's single compare-and-set, with nothing behind it: the markers are in the same entry."""
    log = new_log(CountingStore(MemoryStore()), partitions=8)
    assert isinstance(log.store, CountingStore)
    producer = opened(log, "one")
    for partition in range(8):
        producer.send("t", [{"n": partition}], partition=partition)
    producer.flush()
    follower = again(log)
    with log.store.measure() as measured:
        if outcome is COMMIT:
            producer.commit()
        else:
            producer.abort()
    assert measured.counts.count() == measured.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    assert sorted(follower.read("t").read_all().column("n").to_pylist()) == (
        list(range(8)) if outcome is COMMIT else []
    )
    assert {(each.last_stable_offset, each.log_end) for each in follower.offsets("t")} == {(2, 2)}


@case("TransactionCoordinatorV5Test", "endTransaction_failsOnMismatchedAction")
@OUTCOMES
def test_the_opposite_end_of_an_ended_transaction_is_refused(outcome: Outcome) -> None:
    chain = Chain("a")
    producer = chain.producer("a")
    chain.send("a", 1)
    chain.end("a", outcome)
    opposite = ABORT if outcome is COMMIT else COMMIT
    refused = chain.refusal(Write(producer, end=opposite))
    assert isinstance(refused, InvalidTransactionStateError)
    assert refused.kind == ("transaction-committed" if outcome is COMMIT else "transaction-aborted")
    known = chain.state.transactional_ids["a"].last_end
    assert known is not None
    assert known.outcome is outcome


def _unknown(chain: Chain) -> ProducerRef:
    del chain
    return ProducerRef(9_999, 0, "nobody")


def _other_id(chain: Chain) -> ProducerRef:
    return ProducerRef(chain.producer("b").producer_id, 0, "a")


def _later_epoch(chain: Chain) -> ProducerRef:
    return ProducerRef(chain.producer("a").producer_id, 7, "a")


@case(
    "TransactionCoordinatorV5Test",
    "endTransaction_failsForUnknownTxn",
    "verifyTxnOwnership_unknownTxnReturnsFalse",
)
@case("TransactionCoordinatorV5Test", "verifyTxnOwnership_matchesOwnerAndRejectsOthers")
@OUTCOMES
@pytest.mark.parametrize("who", [_unknown, _other_id, _later_epoch])
def test_only_the_identity_that_the_log_gave_ends_a_transaction(
    who: Callable[[Chain], ProducerRef], outcome: Outcome
) -> None:
    """Neither an unknown id, nor the producer of another, nor an epoch that was never given; then the owner
    does."""
    chain = Chain("a", "b")
    chain.send("a", 1)
    refused = chain.refusal(Write(who(chain), end=outcome))
    assert isinstance(refused, InvalidTransactionStateError)
    assert refused.kind in ("unknown-transactional-id", "unknown-epoch")
    assert chain.stable() == 0, "still open"
    chain.end("a", outcome)
    assert chain.offsets() == ([0] if outcome is COMMIT else [])


@BUFFERS
@case("TransactionCoordinatorV5Test", "verifyTxnOwnership_matchesOwnerAndRejectsOthers")
def test_a_newer_owner_of_the_id_shuts_the_older_out(buffer: Buffer) -> None:
    log = new_log()
    older = opened(log, "one", buffer)
    send(older, 1)
    newer = opened(log, "one", buffer)
    for call in (older.commit, older.abort):
        with pytest.raises(ProducerFencedError):
            call()
    send(newer, 2)
    newer.commit()
    assert read(log) == [2]
