"""Prepared transactions (KIP-939): the token that names one, and what its producer and the next instance may
do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import Plan, faulty, read, rows
from txnformat.core.transactions.state import TransactionStatus
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    PreparedTransaction,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    TxnLog,
)

LOG = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "inline", "deferred"])


@case("PreparedTxnStateTest", "testParameterizedConstructor", "testMaxValues")
@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(0, 0), (123, 45), (2**15, 2**16), (2**62 - 1, 2**62 - 1)]
)
def test_a_token_is_text_with_log_producer_id_epoch_and_transactional_id(
    producer_id: int, epoch: int
) -> None:
    """64-bit numbers, where Kafka's epoch ends at 32767; the log's id, so that no other log takes it for its
    own."""
    prepared = PreparedTransaction(LOG, "etl", producer_id, epoch)
    assert str(prepared) == f"txnlog-prepared:{LOG}:{producer_id}:{epoch}:etl"
    assert PreparedTransaction.parse(str(prepared)) == prepared


@case("PreparedTxnStateTest", "testDeserializationFromString", "testRoundTripSerialization")
@pytest.mark.parametrize("name", ["etl", "a:b:0:1", "größe 漢字", "two\nlines", " ", "x" * 249])
def test_a_token_comes_back_as_it_was_whatever_the_id(name: str) -> None:
    prepared = PreparedTransaction(LOG, name, 123, 45)
    for copy in (PreparedTransaction.parse(str(prepared)), pickle.loads(pickle.dumps(prepared))):
        assert copy == prepared
        assert str(copy) == str(prepared)
        assert (copy.log_id, copy.transactional_id, copy.producer_id, copy.epoch) == (LOG, name, 123, 45)


@case("PreparedTxnStateTest", "testEqualsAndHashCode")
def test_tokens_are_equal_exactly_when_they_name_the_same_transaction() -> None:
    one = PreparedTransaction(LOG, "etl", 123, 45)
    assert one == PreparedTransaction(LOG, "etl", 123, 45)
    others = [
        PreparedTransaction(LOG.replace("a", "b"), "etl", 123, 45),
        PreparedTransaction(LOG, "other", 123, 45),
        PreparedTransaction(LOG, "etl", 456, 45),
        PreparedTransaction(LOG, "etl", 123, 46),
    ]
    assert len({one, PreparedTransaction(LOG, "etl", 123, 45), *others}) == 5
    assert all(one != other for other in others)


@case(
    "PreparedTxnStateTest",
    "testHandlingOfNullOrEmptyString",
    "testInvalidFormatThrowsException",
    "testInvalidProducerIdEpochCombinations",
)
@pytest.mark.parametrize(
    "token",
    [
        None,
        "",
        7,
        b"txnlog-prepared",
        "123:45",
        f"txnlog-prepared:{LOG}:123:45:",
        f"txnlog-prepared:{LOG}:123:45",
        f"txnlog-prepared:{LOG}:-1:45:etl",
        f"txnlog-prepared:{LOG}:123:-1:etl",
        f"txnlog-prepared:{LOG}:-1:-1:etl",
        f"txnlog-prepared:{LOG}:abc:45:etl",
        f"txnlog-prepared:{LOG}:123:xyz:etl",
        f"txnlog-prepared:{LOG}:0123:45:etl",
        f"txnlog-prepared:{LOG}:+1:45:etl",
        f"txnlog-prepared:{LOG}:{2**62}:45:etl",
        f"txnlog-prepared:{LOG}:1:{2**62}:etl",
        f"txnlog-prepared:{LOG}:{'9' * 40}:45:etl",
        f"txnlog-prepared:{LOG}:\u0661:45:etl",
        f"txnlog-prepared:{LOG.upper()}:123:45:etl",
        "txnlog-prepared:log:123:45:etl",
        f"txnlog-prepared:{LOG}:123:45:{'x' * 250}",
        f" txnlog-prepared:{LOG}:123:45:etl",
        f"PREPARED:{LOG}:123:45:etl",
    ],
    ids=repr,
)
def test_what_is_no_token_is_refused_and_never_means_that_nothing_is_prepared(token: Any) -> None:
    """Kafka takes "" and null for "no transaction", so a token that was lost aborts one that others have
    committed."""
    with pytest.raises(InvalidInputError) as caught:
        PreparedTransaction.parse(token)
    assert caught.value.kind == "invalid-token"
    log = faulty(Plan())
    entry = log.refresh().entry
    for end in (log.commit_prepared, log.abort_prepared):
        with pytest.raises(InvalidInputError):
            end(token)
    assert log.refresh().entry == entry


def _prepared(log: TxnLog, buffer: str = "auto", *numbers: int) -> Producer:
    producer = Producer(log, "etl", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(*(numbers or (1,))))
    producer.prepare()
    return producer


@case("PreparedTxnStateTest", "testDefaultConstructor", "testHasTransaction")
@BUFFERS
def test_a_producer_names_what_it_has_prepared_and_nothing_else(buffer: str) -> None:
    log = faulty(Plan())
    named: list[PreparedTransaction | None] = []
    with Producer(log, "etl", buffer=buffer) as producer:
        named.append(producer.prepared)
        producer.begin()
        producer.send("t", rows(1))
        named.append(producer.prepared)
        token = producer.prepare()
        named.append(producer.prepared)
        producer.commit()
        named.append(producer.prepared)
    assert token == PreparedTransaction(log.log_id, "etl", 0, 0)
    assert named == [None, None, token, None]
    assert read(log) == [1]


@case("TransactionManagerTest", "testPrepareTransaction")
@BUFFERS
@pytest.mark.parametrize("commit", [True, False])
def test_what_is_prepared_can_be_committed_or_aborted_and_nothing_can_join_it(
    buffer: str, commit: bool
) -> None:
    """In Kafka prepare is the client's word only; here the log has it, and holds everybody to it."""
    log = faulty(Plan())
    producer = _prepared(log, buffer, 1, 2)
    statuses = [producer.status]
    known = log.refresh().transactional_ids["etl"]
    assert (known.status, known.expires_ms) == (TransactionStatus.PREPARED, None)
    calls: tuple[Callable[[], object], ...] = (
        producer.init,
        producer.begin,
        lambda: producer.send("t", rows(9)),
        producer.flush,
        producer.prepare,
    )
    for call in calls:
        with pytest.raises(InvalidTransactionStateError):
            call()
        statuses.append(producer.status)
    assert set(statuses) == {ProducerStatus.PREPARED}
    assert read(log) == []
    producer.commit() if commit else producer.abort()
    with producer.transaction() as txn:
        txn.send("t", rows(3))
    assert read(log) == ([1, 2, 3] if commit else [3])
    assert producer.epoch == 2
    producer.close()


@case(
    "TransactionManagerTest",
    "testInitializeTransactionsWithKeepPreparedTxn",
    "testInitPidResponseWithKeepPreparedTrueAndOngoingTransaction",
)
@case("TransactionCoordinatorTest", "shouldReturnInvalidRequestWhenKeepPreparedIsTrue")
@BUFFERS
@pytest.mark.parametrize("commit", [True, False])
def test_the_next_instance_finds_what_was_prepared_and_ends_it(buffer: str, commit: bool) -> None:
    """Kafka's brokers refuse to keep it (UNSUPPORTED_VERSION): its transaction is aborted, whatever others
    have decided."""
    log = faulty(Plan())
    token = _prepared(log, buffer).prepared
    next_one = Producer(log, "etl")
    next_one.init()
    assert (next_one.status, next_one.prepared) == (ProducerStatus.PREPARED, token)
    with pytest.raises(InvalidTransactionStateError):
        next_one.begin()
    next_one.commit() if commit else next_one.abort()
    with next_one.transaction() as txn:
        txn.send("t", rows(2))
    assert read(log) == ([1, 2] if commit else [2])
    next_one.close()


@case("TransactionManagerTest", "testInitPidResponseWithKeepPreparedTrueAndNoOngoingTransaction")
@pytest.mark.parametrize("before", ["nothing", "open", "ended"])
def test_an_instance_after_which_nothing_is_prepared_begins_as_always(before: str) -> None:
    """What was only open is aborted; what was prepared and has ended stays as it ended."""
    log = faulty(Plan())
    if before == "open":
        old = Producer(log, "etl", buffer="inline")
        old.init()
        old.begin()
        old.send("t", rows(1))
        old.flush()
    elif before == "ended":
        log.commit_prepared(str(_prepared(log).prepared))
    with Producer(log, "etl") as producer:
        assert (producer.status, producer.prepared) == (ProducerStatus.READY, None)
    assert read(log) == ([1] if before == "ended" else [])


@case("TransactionManagerTest", "testPrepareTransaction")
@BUFFERS
@pytest.mark.parametrize("commit", [True, False])
def test_whoever_has_the_token_ends_it_once_and_the_same_again_is_done(buffer: str, commit: bool) -> None:
    """From another process, after the producer has gone; the opposite is refused, also after later
    transactions."""
    log = faulty(Plan())
    producer = _prepared(log, buffer)
    token = str(producer.prepared)
    producer.close()
    assert log.refresh().transactional_ids["etl"].status is TransactionStatus.PREPARED, "close leaves it"
    other = TxnLog.open(log.store, clock=log.committer.clock)
    end, opposite = (
        (other.commit_prepared, other.abort_prepared)
        if commit
        else (other.abort_prepared, other.commit_prepared)
    )
    first = end(token)
    for later in range(2):
        assert end(token).entry == first.entry
        with pytest.raises(InvalidTransactionStateError) as caught:
            opposite(token)
        assert caught.value.kind == ("transaction-committed" if commit else "transaction-aborted")
        with Producer(other, "etl") as next_one, next_one.transaction() as txn:
            txn.send("t", rows(10 + later))
    assert read(log) == ([1] if commit else []) + [10, 11]


@case("TransactionCoordinatorTest", "shouldReturnInvalidRequestWhenKeepPreparedIsTrue")
def test_a_token_of_another_log_and_one_that_was_given_up_by_force_end_nothing() -> None:
    log, stranger = faulty(Plan()), faulty(Plan())
    token = str(_prepared(log).prepared)
    _prepared(stranger)
    with pytest.raises(InvalidInputError) as wrong:
        stranger.commit_prepared(token)
    assert wrong.value.kind == "token-of-another-log"
    assert stranger.refresh().transactional_ids["etl"].status is TransactionStatus.PREPARED
    log.transactions.force_terminate("etl")
    with pytest.raises(ProducerFencedError) as caught:
        log.commit_prepared(token)
    assert caught.value.kind == "aborted-by-operator"
    assert read(log) == []
