"""Pulsar's tests of timeouts, and of transactions that another process than their own ends.

There is no timer here: the next commit of any client ends expired transactions, or a client that is asked to.
Time is a clock that tests move.
"""

from __future__ import annotations

import threading

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from tests.conformance.pulsar import again, new_log, opened, plain, read, send, snapshot, stable
from tests.integration.clients.failing import QuickClock
from txnformat.core.intents import EndTransaction, Included, OpenProducer, ProducerRef, Write
from txnformat.core.lifecycle.idle import TRANSACTIONAL_ID_RETENTION_MS
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS, Cause
from txnlog import InvalidTransactionStateError, Outcome, TransactionTimedOutError, TxnLog
from writers.settings import Buffer


def _timed() -> tuple[TxnLog, QuickClock]:
    clock = QuickClock()
    return new_log(clock=clock), clock


def _later(clock: QuickClock, milliseconds: int = TIMEOUT_MS + 1_000) -> None:
    """Let time pass: by default the timeout, and a second for log time, which is a few milliseconds ahead."""
    clock.sleep(milliseconds / 1_000)


def _expired(log: TxnLog) -> list[str]:
    """Let a process that has just opened the log end what has expired."""
    return [action.transactional_id for action in again(log).committer.end_expired()]


@case("TransactionEndToEndTest", "testTxnTimeoutAtTransactionMetadataStore")
@case("TransactionCoordinatorV5Test", "sweepTimeouts_abortsExpiredOpenTxnAndFansOut")
@case("TransactionMetadataStoreServiceTest", "testTimeoutTrackerExpired")
def test_an_expired_transaction_is_aborted_in_all_of_its_partitions_by_anybody() -> None:
    """And again the next one of the same producer; nobody of the producer's process is needed for it."""
    clock = QuickClock()
    log = new_log(partitions=2, clock=clock)
    producer = opened(log, "one")
    for epoch in range(2):
        for partition in range(2):
            send(producer, partition, partition=partition)
        _later(clock)
        assert _expired(log) == ["one"]
        found = log.outcome("one", epoch)
        assert (found.outcome, found.cause) == (Outcome.ABORT, Cause.TIMEOUT)
        assert all(each.last_stable_offset == each.log_end for each in log.offsets("t"))
        with pytest.raises(TransactionTimedOutError):
            producer.commit()
        producer.abort()
        producer.begin()
    assert read(log) == []


@case("TransactionCoordinatorV5Test", "sweepTimeouts_leavesUnexpiredOpenTxnAlone")
def test_a_transaction_whose_time_is_not_over_is_left_alone() -> None:
    """To the millisecond."""
    log, clock = _timed()
    producer = opened(log, "one")
    send(producer, 1)
    _later(clock, TIMEOUT_MS - 1 - (int(clock.now().wall_ms) - log.state.timestamp_ms))
    assert _expired(log) == []
    assert log.outcome("one", 0).outcome is None
    _later(clock, 1)
    assert _expired(log) == ["one"]


@case("TransactionEndToEndTest", "testTxnTimeOutInClient")
@case("TransactionTest", "testGetTxnState")
def test_in_a_transaction_that_has_timed_out_nothing_more_is_sent() -> None:
    """TIME_OUT there: the flush says so, plain messages do not care, and the producer may begin another."""
    log, clock = _timed()
    producer = opened(log, "one")
    send(producer, 1)
    _later(clock)
    plain(log, 2)  # whoever commits next ends it, at no extra entry
    assert log.outcome("one", 0).cause is Cause.TIMEOUT
    assert read(log) == [2]
    producer.send("t", [{"n": 3}])
    with pytest.raises(TransactionTimedOutError):
        producer.flush()
    producer.abort()
    with producer.transaction() as txn:
        txn.send("t", [{"n": 4}])
    assert read(log) == [2, 4]


@case("TransactionTest", "testCancelTxnTimeout")
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_end_of_a_transaction_is_the_end_of_its_timeout(end: str) -> None:
    log, clock = _timed()
    producer = opened(log, "one")
    send(producer, 1)
    getattr(producer, end)()
    before = log.refresh()
    _later(clock, 10 * TIMEOUT_MS)
    assert _expired(log) == []
    assert log.refresh() == before
    assert log.outcome("one", 0).outcome == end


@case("TransactionMetadataStoreServiceTest", "testTimeoutTracker")
def test_each_transaction_expires_by_its_own_timeout() -> None:
    """In any order of their beginnings, and only transactions that hold something."""
    chain = Chain()
    waits = {f"id-{n}": 1_000 * (1 + 7 * n % 10) for n in range(10)}
    chain.do(*(OpenProducer(name, timeout_ms=wait) for name, wait in waits.items()), OpenProducer("empty"))
    expires = {}
    for name, wait in waits.items():
        chain.send(name, 1)
        expires[name] = chain.state.timestamp_ms + wait
    for name in sorted(expires, key=lambda each: expires[each]):
        producer = chain.producer(name)
        for store_time_ms, ends in ((expires[name] - 1, False), (expires[name], True)):
            assert producer.transactional_id is not None
            over = EndTransaction(
                producer.transactional_id,
                producer.producer_id,
                producer.epoch,
                Cause.TIMEOUT,
                store_time_ms=store_time_ms,
            )
            if ends:
                chain.do(over)
            else:
                assert chain.refusal(over).kind == "transaction-not-expired"
    assert chain.state.undecided == frozenset()
    assert chain.partition().open == {}


@case("TransactionMetadataStoreServiceTest", "testTimeoutTrackerMultiThreading")
def test_transactions_of_many_threads_all_expire() -> None:
    log, clock = _timed()

    def work(thread: int) -> None:
        for number in range(5):
            send(opened(again(log), f"id-{thread}-{number}"), number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _expired(log) == []
    _later(clock)
    assert len(_expired(log)) == 25
    assert log.refresh().undecided == frozenset()
    assert stable(log) == log.offsets("t")[0].log_end == 50


@case("TransactionMetadataStoreServiceTest", "transactionTimeoutRecoverTest")
@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_restart_neither_forgets_a_timeout_nor_begins_it_anew(from_snapshot: bool) -> None:
    log, clock = _timed()
    send(opened(log, "one"), 1)
    _later(clock, TIMEOUT_MS // 2)
    if from_snapshot:
        snapshot(log)
    assert _expired(log) == []
    _later(clock, TIMEOUT_MS // 2 + 1_000)
    assert _expired(log) == ["one"]


def test_what_the_log_was_never_told_of_cannot_time_out() -> None:
    """With "auto" nobody waits for the transaction, so nobody needs to end it: it commits however long it
    took."""
    log, clock = _timed()
    producer = opened(log, "one", Buffer.AUTO)
    producer.send("t", [{"n": 1}])
    _later(clock, 2 * TIMEOUT_MS)
    assert _expired(log) == []
    producer.commit()
    assert read(log) == [1]


@case("TransactionEndToEndTest", "txnMetadataHandlerRecoverTest")
def test_transactions_of_a_client_that_is_gone_are_committed_by_another() -> None:
    """Twenty, of ten messages each. Pulsar lets anybody commit; here they were prepared for it, and time ends
    none."""
    chain = Chain(*(f"id-{n}" for n in range(20)))
    tokens: list[ProducerRef] = []
    for n in range(20):
        chain.send(f"id-{n}", 10)
        tokens.append(chain.producer(f"id-{n}"))
        chain.do(Write(tokens[-1], prepare=True))
    chain.now_ms += 100 * DEFERRED_TIMEOUT_MS
    chain.check_reopening()
    assert chain.offsets() == []
    for token in tokens:
        name = token.transactional_id
        assert name is not None
        over = EndTransaction(name, token.producer_id, token.epoch, Cause.TIMEOUT, store_time_ms=chain.now_ms)
        assert chain.refusal(over).kind == "transaction-prepared"
        assert isinstance(chain.decide(Write(token, end=COMMIT)), Included)
    assert len(chain.offsets()) == 200
    refused = chain.refusal(Write(tokens[0], end=ABORT))
    assert isinstance(refused, InvalidTransactionStateError)


@case("TransactionCoordinatorV5Test", "sweepGc_deletesHeaderWhenNoOpsRemain")
def test_an_id_that_is_long_idle_is_forgotten_and_what_its_transactions_did_is_not() -> None:
    """One whose outcome is pending stays, however long; so does everything that a reader needs."""
    log, clock = _timed()
    for name, end in (("committed", "commit"), ("aborted", "abort"), ("prepared", None)):
        producer = opened(log, name)
        send(producer, len(name))
        if end:
            getattr(producer, end)()
    known = log.refresh().transactional_ids["prepared"]
    token = ProducerRef(known.producer_id, known.epoch, "prepared")
    log.committer.commit(log.committer.intend(Write(token, prepare=True)))
    _later(clock, TRANSACTIONAL_ID_RETENTION_MS - TIMEOUT_MS)
    plain(log, 1)  # log time goes on with the log
    assert again(log).maintain("expire").expired_transactional_ids == 0
    _later(clock, 2 * TIMEOUT_MS)
    plain(log, 2)
    assert again(log).maintain("expire").expired_transactional_ids == 2
    assert set(log.refresh().transactional_ids) == {"prepared"}
    assert read(log) == [len("committed")]
    log.committer.commit(log.committer.intend(Write(token, end=COMMIT)))
    for _ in ("as appended", "sealed"):
        assert read(log) == [len("committed"), len("prepared"), 1, 2]
        log.maintain("seal")
