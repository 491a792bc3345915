"""Tests of Flink's Kafka sink about transactions that an earlier run left open: who aborts which, and what is
kept.

A writer of a job of p subtasks writes with the ids ``job-<subtask>``. Where the sink has a new id for each
checkpoint, an id here has an epoch for each; what a checkpoint has pre-committed is a prepared transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.conformance.cases import case
from tests.conformance.pulsar import BUFFERS, again, new_log, opened, plain, read, send, stable
from txnformat.core.intents import ProducerRef, Write
from txnformat.store.memory import MemoryStore
from txnlog import InvalidTransactionStateError, Outcome, Producer, ProducerFencedError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from writers.settings import Buffer


def _job(*open_ids: int, prepared: Sequence[int] = (), prefix: str = "job") -> TxnLog:
    """Return a log in which an earlier run left transactions open, and prepared others, each of one
    message.
    """
    log = new_log()
    for number in sorted({*open_ids, *prepared}):
        producer = opened(log, f"{prefix}-{number}")
        send(producer, number)
        if number in prepared:
            _prepare(log, f"{prefix}-{number}")
    return log


def _token(log: TxnLog, name: str) -> ProducerRef:
    known = log.refresh().transactional_ids[name]
    return ProducerRef(known.producer_id, known.epoch, name)


def _prepare(log: TxnLog, name: str) -> ProducerRef:
    token = _token(log, name)
    log.committer.commit(log.committer.intend(Write(token, prepare=True)))
    return token


def _restarts(
    log: TxnLog, parallelism: int, worker: int, *, restored: bool = False, prefix: str = "job"
) -> set[str]:
    """Return the ids of which a worker of a new run aborted a transaction."""
    done = again(log).transactions.abort_lingering(prefix, parallelism, worker, restored=restored)
    return {each.transactional_id for each in done if each.outcome == "aborted"}


def _open(log: TxnLog) -> set[str]:
    return set(log.refresh().undecided)


# --- which subtask aborts which transactions ----------------------------------------------------------------


@case("TransactionAbortStrategyImplTest", "testDownscale")
def test_after_a_downscale_the_new_workers_abort_what_all_old_ones_left_open() -> None:
    """Four become two: each takes two old subtasks, what was prepared is left alone, and what is another's
    too."""
    log = _job(0, 1, 2, 3, prepared=[1, 2])
    assert _restarts(log, 2, 0) == {"job-0"}
    assert _open(log) == {"job-1", "job-2", "job-3"}
    assert _restarts(log, 2, 1) == {"job-3"}
    assert _open(log) == {"job-1", "job-2"}, "prepared: their outcome is the committer's"
    for name in ("job-1", "job-2"):
        log.committer.commit(log.committer.intend(Write(_token(log, name), end=Outcome.COMMIT)))
    assert read(log) == [1, 2]


@case("TransactionAbortStrategyImplTest", "testDownscaleWithUnsafeTransactionalIds")
def test_ids_beyond_the_safe_factor_are_found_by_listing_and_aborted_by_their_names() -> None:
    """Sixteen become two: two workers look at ids below ten. The list says which nobody will abort."""
    log = _job(0, 3, 9, 10, 15)
    assert _restarts(log, 2, 0) == {"job-0"}
    assert _restarts(log, 2, 1) == {"job-3", "job-9"}
    beyond = [each.transactional_id for each in log.transactions.lingering("job", 2) if each.worker is None]
    assert beyond == ["job-10", "job-15"]
    for name in beyond:
        log.transactions.abort(name)
    assert _open(log) == set()
    plain(log, 100)
    assert read(log) == [100]


@case("TransactionAbortStrategyImplTest", "testDownscaleWithIntermediateUpscale")
def test_what_an_upscale_in_between_left_is_aborted_too() -> None:
    """Four, for a while seven, then two: no worker needs to know how many there were."""
    log = _job(0, 1, 5, 6)
    assert _restarts(log, 2, 0) == {"job-0", "job-6"}
    assert _restarts(log, 2, 1) == {"job-1", "job-5"}


@case("TransactionAbortStrategyImplTest", "testUpscale")
@case("TransactionOwnershipTest", "Implicit.testTwoRecoveredStates")
def test_after_an_upscale_each_old_subtask_has_one_worker() -> None:
    log = _job(0, 1)
    assert [_restarts(log, 4, worker) for worker in (3, 2, 1, 0)] == [set(), set(), {"job-1"}, {"job-0"}]


@case("TransactionAbortStrategyImplTest", "testUpscaleWithIntermediateUpscale")
def test_an_upscale_after_a_larger_one_covers_the_larger() -> None:
    """Two, for a while six, then four: ids 4 and 5 are those of workers 0 and 1."""
    log = _job(0, 4, 5)
    assert _restarts(log, 4, 0) == {"job-0", "job-4"}
    assert _restarts(log, 4, 1) == {"job-5"}


@case("TransactionAbortStrategyImplTest", "testUpscaleWithNoState")
def test_a_worker_aborts_its_own_without_any_state() -> None:
    log = _job(3)
    assert _restarts(log, 4, 3) == {"job-3"}
    assert _restarts(log, 4, 3) == set(), "once"


@case("TransactionOwnershipTest", "Implicit.testNoRecoveredStates", "Explicit.testNoRecoveredStates")
@case(
    "TransactionOwnershipTest",
    "Implicit.testOneRecoveredState",
    "Implicit.testOneRecoveredStateWithUnknownValues",
)
@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 7])
def test_every_id_below_the_factor_has_exactly_one_worker_whatever_ran_before(parallelism: int) -> None:
    numbers = range(5 * parallelism)
    log = _job(*numbers)
    seen: list[str] = []
    for worker in range(parallelism):
        mine = _restarts(log, parallelism, worker)
        assert mine == {f"job-{number}" for number in numbers if number % parallelism == worker}
        seen += mine
    assert len(seen) == len(set(seen)) == len(numbers)
    assert _open(log) == set()


def test_a_restored_job_aborts_its_own_id_alone_and_no_other_jobs() -> None:
    """From a checkpoint the others are alive, or will come and abort theirs; ids of another form are nobody's
    here."""
    log = _job(0, 2, 4)
    for name in ("job-x", "job-01", "job", "other-0", "job-0-1"):
        send(opened(log, name), 9)
    assert _restarts(log, 2, 0, restored=True) == {"job-0"}
    assert _restarts(log, 2, 0) == {"job-2", "job-4"}
    assert _open(log) == {"job-x", "job-01", "job", "other-0", "job-0-1"}


# --- the writer ---------------------------------------------------------------------------------------------


@BUFFERS
@case("ExactlyOnceKafkaWriterITCase", "shouldAbortLingeringTransactions")
def test_a_recovered_writer_is_read_although_its_predecessor_left_transactions_open(buffer: Buffer) -> None:
    """Two that were left open hold what is committed behind them; the new run aborts both and is read."""
    log = _job(0, 1)
    with Producer(log, "job-2", buffer=buffer) as producer:
        with producer.transaction() as txn:
            txn.send("t", [{"n": 100}])
        assert read(log) == []
        for worker in range(3):
            _restarts(log, 3, worker)
        assert read(log) == [100]
    assert stable(log) == log.offsets("t")[0].log_end


@case("ExactlyOnceKafkaWriterITCase", "shouldNotAbortPrecommittedTransactions")
@pytest.mark.parametrize("checkpointed", [1, 2, 3])
def test_what_checkpoints_hold_as_prepared_stays_open_and_commits(checkpointed: int) -> None:
    """However many of three are in the checkpoint; those that are not in it are aborted."""
    log = _job(*range(3), prepared=range(checkpointed))
    _restarts(log, 1, 0)
    names = {f"job-{number}" for number in range(checkpointed)}
    assert _open(log) == names
    for name in sorted(names):
        log.committer.commit(log.committer.intend(Write(_token(log, name), end=Outcome.COMMIT)))
    assert read(log) == list(range(checkpointed))


@case(
    "ExactlyOnceKafkaWriterITCase",
    "usePooledProducerForTransactional",
    "shouldSkipIdsOfCommitterForPooledTransactions",
)
def test_an_id_with_a_prepared_transaction_is_skipped_and_free_again_once_that_has_ended() -> None:
    """A pool takes the next id: the log begins nothing under one whose outcome is pending, and nothing
    changes."""
    log = _job(0, prepared=[0])
    before = log.refresh()
    with pytest.raises(InvalidTransactionStateError) as caught:
        opened(log, "job-0")
    assert caught.value.kind == "transaction-prepared"
    assert log.refresh() == before
    other = opened(log, "job-1")
    send(other, 1)
    other.commit()
    log.committer.commit(log.committer.intend(Write(_token(log, "job-0"), end=Outcome.COMMIT)))
    with Producer(log, "job-0") as recycled, recycled.transaction() as txn:
        txn.send("t", [{"n": 2}])
    assert read(log) == [0, 1, 2]


@BUFFERS
@case("ExactlyOnceKafkaWriterITCase", "prepareCommitForEmptyTransaction")
def test_an_empty_transaction_commits_nothing_and_costs_nothing(buffer: Buffer) -> None:
    """There is nothing to pre-commit either: the log refuses to prepare it."""
    log = new_log(CountingStore(MemoryStore()))
    producer = opened(log, "job-0", buffer)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        producer.flush()
        assert producer.commit().entry is None
    assert measured.counts.count() == 0
    assert (producer.epoch, producer.status) == (0, "ready")
    with pytest.raises(InvalidTransactionStateError) as caught:
        _prepare(log, "job-0")
    assert caught.value.kind == "no-transaction"


@BUFFERS
@case("ExactlyOnceKafkaWriterITCase", "testAbortOnClose")
def test_a_writer_that_is_closed_aborts_and_its_successor_commits(buffer: Buffer) -> None:
    log = new_log()
    with Producer(log, "job-0", buffer=buffer) as producer:
        producer.begin()
        send(producer, 1)
        assert read(log) == []
    assert _open(log) == set()
    with Producer(log, "job-0", buffer=buffer) as producer, producer.transaction() as txn:
        txn.send("t", [{"n": 2}])
    assert read(log) == [2]


@case("ExactlyOnceKafkaWriterITCase", "testFlushAsyncErrorPropagationAndErrorCounter")
@case("ExactlyOnceKafkaWriterITCase", "testWriteAsyncErrorPropagationAndErrorCounter")
@case("ExactlyOnceKafkaWriterITCase", "testCloseAsyncErrorPropagationAndErrorCounter")
@pytest.mark.parametrize("call", ["flush", "write", "commit", "close"])
def test_a_writer_that_was_fenced_is_told_by_its_next_call_and_by_every_later_one(call: str) -> None:
    """Also by a send that only fills a buffer, once it was told; a close has nothing left to undo.

    The sink throws such an error once and takes records again afterwards, which go nowhere: here they are
    refused.
    """
    log = new_log()
    fenced = opened(log, "job-0")
    send(fenced, 1)
    opened(log, "job-0").close()
    fenced.send("t", [{"n": 2}])
    if call == "close":
        fenced.close()
    else:
        with pytest.raises(ProducerFencedError):
            fenced.commit() if call == "commit" else fenced.flush()
        for later in (fenced.flush, fenced.commit, fenced.begin, lambda: fenced.send("t", [{"n": 3}])):
            with pytest.raises(ProducerFencedError):
                later()
        fenced.close()
    assert fenced.status == "closed"
    assert read(log, "read_uncommitted") == [1]
