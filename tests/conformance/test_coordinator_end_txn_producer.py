"""The main rows of the table of ends, through real producers on a log on the local disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import ABORT, COMMIT, NAME
from tests.conformance.end_txn_table import ERRORS, TABLE, Answer, Epoch
from tests.integration.clients.failing import NUMBERS, Plan, QuickClock, rows, unclear_commit
from txnformat import keys
from txnformat.core.entry import decode_entry
from txnformat.core.intents import EndTransaction, ProducerRef, Write
from txnformat.core.operations import Cause, EndTxn
from txnformat.log import TxnLog
from txnformat.persistent import replace
from txnformat.store.local import LocalStore
from txnformat.types import Outcome
from txnlog import CommitStateUnknownError, Producer, TxnLogError
from txnlog_testing.stores.faulty import FaultKind, FaultyStore


class Scene(NamedTuple):
    """A producer in a process whose store can fail, and another process; time passes when the test says
    so.
    """

    plan: Plan
    clock: QuickClock
    producer: Producer
    other: TxnLog

    def ref(self) -> ProducerRef:
        """Return the producer's identity."""
        assert self.producer._session.at.ref is not None
        return self.producer._session.at.ref

    def ends(self) -> list[EndTxn]:
        """Return every end in the log, from its bytes."""
        found: list[EndTxn] = []
        for number in range(self.other.refresh().entry + 1):
            data = self.other.store.get(keys.entry_key(number))
            assert data is not None
            found += [op for op in decode_entry(data, number).operations if isinstance(op, EndTxn)]
        return found


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    plan, clock = Plan(), QuickClock()
    store = LocalStore(tmp_path, clock)
    TxnLog.create(store, clock=clock).create_topic("t", NUMBERS)
    producer = Producer(TxnLog.open(FaultyStore(store, plan), clock=clock), NAME, buffer="inline")
    producer.init()
    return Scene(plan, clock, producer, TxnLog.open(LocalStore(tmp_path, clock), clock=clock))


def _send(scene: Scene) -> None:
    scene.producer.begin()
    scene.producer.send("t", rows(1))
    scene.producer.flush()


def _lost(outcome: Outcome) -> Callable[[Scene], None]:
    """The end lands, its answer is lost."""

    def act(scene: Scene) -> None:
        _send(scene)
        unclear_commit(scene.plan, FaultKind.APPLIED_LOST_ANSWER)
        with pytest.raises(CommitStateUnknownError):
            scene.producer.commit() if outcome is COMMIT else scene.producer.abort()
        scene.plan.clear()

    return act


def _other_opens(scene: Scene) -> None:
    _send(scene)
    Producer(scene.other, NAME).init()


def _by(cause: Cause) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        _send(scene)
        scene.clock.sleep(61)
        if cause is Cause.TIMEOUT:
            assert len(scene.other.committer.end_expired()) == 1
        else:
            ref = scene.ref()
            end = EndTransaction(NAME, ref.producer_id, ref.epoch, cause)
            scene.other.committer.commit(scene.other.committer.intend(end))

    return act


def _prepared(scene: Scene) -> None:
    _send(scene)
    scene.other.committer.commit(scene.other.committer.intend(Write(scene.ref(), prepare=True)))


def _ahead(scene: Scene) -> None:
    _send(scene)
    scene.producer._session.at = replace(
        scene.producer._session.at, ref=ProducerRef(scene.ref().producer_id, scene.ref().epoch + 1, NAME)
    )


def _stranger(scene: Scene) -> None:
    _send(scene)
    scene.producer._session.at = replace(
        scene.producer._session.at, ref=ProducerRef(scene.ref().producer_id + 1, scene.ref().epoch, NAME)
    )


ROWS: dict[str, tuple[Callable[[Scene], None], str, Epoch | None, tuple[Outcome, ...]]] = {
    # what happens first: how, the table's state and epoch (None: another producer id), the ends that a user
    # can try
    "sent": (_send, "Ongoing, the first", Epoch.CURRENT, (COMMIT, ABORT)),
    "commit lost its answer": (_lost(COMMIT), "CompleteCommit", Epoch.ENDED, (COMMIT, ABORT)),
    "abort lost its answer": (_lost(ABORT), "CompleteAbort", Epoch.ENDED, (ABORT,)),
    "a newer instance": (_other_opens, "Empty, by an init that aborted", Epoch.ENDED, (COMMIT, ABORT)),
    "a timeout": (_by(Cause.TIMEOUT), "CompleteAbort, by a timeout", Epoch.ENDED, (COMMIT, ABORT)),
    "an operator": (_by(Cause.OPERATOR), "CompleteAbort, by an operator", Epoch.ENDED, (COMMIT, ABORT)),
    "prepared": (_prepared, "Prepared", Epoch.CURRENT, (COMMIT, ABORT)),
    "an epoch of another log": (_ahead, "Ongoing, the first", Epoch.HIGHER, (COMMIT, ABORT)),
    "an id of another log": (_stranger, "Ongoing, the first", None, (COMMIT, ABORT)),
}
CALLS = [(name, outcome) for name, row in ROWS.items() for outcome in row[3]]


def _expected(state: str, epoch: Epoch | None, outcome: Outcome) -> Answer:
    if epoch is None:
        return Answer.UNKNOWN
    (row,) = (each for each in TABLE if (each.state, each.epoch) == (state, epoch))
    return row.commit if outcome is COMMIT else row.abort


@case(
    "TransactionCoordinatorTest",
    "shouldReplyWithInvalidPidMappingOnEndTxnWhenPidDoesntMatchMapped",
    "shouldReplyWithProducerFencedOnEndTxnWhenEpochIsNotSameAsTransaction",
    "testEndTxnWhenStatusIsCompleteCommitAndResultIsCommitInV2",
    "shouldReturnOkOnEndTxnWhenStatusIsCompleteAbortAndResultIsAbortInV2",
    "testEndTxnRequestWhenStatusIsCompleteCommitAndResultIsAbortInV2",
    "shouldAppendPrepareCommitToLogOnEndTxnWhenStatusIsOngoingAndResultIsCommit",
    "shouldAppendPrepareAbortToLogOnEndTxnWhenStatusIsOngoingAndResultIsAbort",
)
@pytest.mark.parametrize(("name", "outcome"), CALLS, ids=[f"{name}-{outcome}" for name, outcome in CALLS])
def test_a_producers_end_gets_the_answer_of_the_table(scene: Scene, name: str, outcome: Outcome) -> None:
    """What the user sees: success, or the class and kind that say what to do; and at most one end in
    the log.
    """
    act, state, epoch, _ = ROWS[name]
    act(scene)
    before, mine = scene.ends(), scene.ref().epoch
    answer = _expected(state, epoch, outcome)
    call = scene.producer.commit if outcome is COMMIT else scene.producer.abort
    if answer in (Answer.ENDS, Answer.REPEATED):
        call()
        assert scene.producer.epoch == mine + 1
    else:
        with pytest.raises(TxnLogError) as caught:
            call()
        assert (type(caught.value), caught.value.kind) == (ERRORS[answer], answer.value)
    ended = [(end.epoch, end.outcome) for end in scene.ends()[len(before) :]]
    assert ended == ([(mine, outcome)] if answer is Answer.ENDS else [])
    committed = [end for end in scene.ends() if end.outcome is COMMIT]
    assert scene.other.read("t").read_all().column("n").to_pylist() == [1] * len(committed)


@case("TransactionCoordinatorTest", "TestEndTxnRequestWhenEmptyTransactionStateForCommitInV2")
@pytest.mark.parametrize("outcome", Outcome)
def test_an_end_of_nothing_asks_nothing_and_keeps_the_epoch(scene: Scene, outcome: Outcome) -> None:
    """Kafka's client with V2 sends an abort when in doubt; here there is no doubt."""
    entry = scene.other.refresh().entry
    scene.producer.begin()
    scene.producer.commit() if outcome is COMMIT else scene.producer.abort()
    assert (scene.other.refresh().entry, scene.producer.epoch) == (entry, 0)


@case("TransactionCoordinatorTest", "TestEndTxnRequestWhenEmptyTransactionStateForCommitInV2")
def test_a_one_shot_begins_and_ends_in_one_entry(scene: Scene) -> None:
    one_shot = Producer(scene.other, "one-shot")
    one_shot.init()
    entry = scene.other.refresh().entry
    for number in range(3):
        one_shot.begin()
        one_shot.send("t", rows(number))
        one_shot.commit()
    assert scene.other.refresh().entry == entry + 3
    assert one_shot.epoch == 3
    assert [end.epoch for end in scene.ends()] == [0, 1, 2]
