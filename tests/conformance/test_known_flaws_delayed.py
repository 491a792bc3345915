"""What a delayed request does to the next transaction of its producer: nothing.

Kafka's first protocol named a transaction by producer id and epoch of the *producer*: a commit, abort or
append that a pause held back until its successor was open hit the successor. Jepsen showed lost writes,
aborted reads and torn transactions. Here every end begins an epoch. A request is late in two ways, and each
test tries both: its bytes arrive late at the store, and its sender wakes up late, looks at the log and
decides again.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import Plan, faulty, read, rows, unclear_commit
from txnformat.core.intents import CommitResult, ProducerRef, Write
from txnformat.store.base import CreateOutcome
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    Outcome,
    Producer,
    ProducerFencedError,
    TxnLog,
)
from txnlog_testing.stores.faulty import FaultKind, FaultyStore
from txnlog_testing.strategies import make_append

INLINE = "inline"


class Stalled:
    """A producer whose first transaction ended behind the back of one of its requests."""

    def __init__(self) -> None:
        self.plan = Plan()
        self.log = faulty(self.plan)
        self.producer = Producer(self.log, "p", buffer=INLINE)
        self.producer.init()
        self.old = ProducerRef(self.producer.producer_id or 0, 0, "p")

    def send(self, *numbers: int) -> None:
        """Send and flush."""
        self.producer.send("t", rows(*numbers))
        self.producer.flush()

    def lose(self, call: str) -> None:
        """Make a call whose entry is still on its way; then end the transaction by an abort."""
        unclear_commit(self.plan, FaultKind.APPLIED_LATE)
        with pytest.raises(CommitStateUnknownError):
            {"commit": self.producer.commit, "abort": self.producer.abort, "flush": self.producer.flush}[
                call
            ]()
        self.plan.clear()
        self.producer.abort()

    def arrive(self) -> None:
        """Let the bytes arrive: their slot is taken."""
        assert isinstance(self.log.store, FaultyStore)
        (landed,) = self.log.store.release()
        assert landed.result is not None
        assert landed.result.outcome is CreateOutcome.EXISTS

    def wake(self, write: Write) -> CommitResult:
        """Decide a request anew, on what the log has become, as its sender does after a stall."""
        log = TxnLog.open(self.log.store, clock=self.log.committer.clock)
        return log.committer.commit(log.committer.intend(write))

    def late_commit(self) -> None:
        """Both ways of a late commit of the first transaction."""
        self.arrive()
        with pytest.raises(InvalidTransactionStateError) as caught:
            self.wake(Write(self.old, end=Outcome.COMMIT))
        assert caught.value.kind == "transaction-aborted"

    def late_abort(self) -> None:
        """Both ways of a late abort of the first transaction."""
        self.arrive()
        entry = self.log.refresh().entry
        answer = self.wake(Write(self.old, end=Outcome.ABORT))
        assert answer.repeated, "it is the end that the log holds"
        assert self.log.refresh().entry == entry

    def late_append(self) -> None:
        """Both ways of a late append of the first transaction."""
        self.arrive()
        append = make_append(self.log.refresh().topic("t").created, {0: (1, 1)}, content="late")
        with pytest.raises((InvalidTransactionStateError, ProducerFencedError)):
            self.wake(Write(self.old, (append,)))

    def ends(self) -> tuple[int, int]:
        """Return last stable offset and log end."""
        (ends,) = self.log.offsets("t")
        return ends.last_stable_offset, ends.log_end


@case("KnownFlaws", "a delayed commit commits the next transaction")
def test_a_late_commit_makes_nothing_of_the_next_transaction_visible() -> None:
    stalled = Stalled()
    stalled.producer.begin()
    stalled.send(1)
    stalled.lose("commit")
    stalled.producer.begin()
    stalled.send(2)
    stalled.late_commit()
    assert read(stalled.log) == []
    stalled.producer.abort()
    assert read(stalled.log) == []
    assert [stalled.log.outcome("p", epoch).outcome for epoch in (0, 1)] == [Outcome.ABORT] * 2


@case("KnownFlaws", "a delayed abort aborts the next transaction", "a delayed abort is taken for a repeat")
def test_a_late_abort_takes_nothing_from_the_next_transaction() -> None:
    """It is answered as the repeat that it is, and the next transaction stays open and commits."""
    stalled = Stalled()
    stalled.producer.begin()
    stalled.send(1)
    stalled.lose("abort")
    stalled.producer.begin()
    stalled.send(2)
    stalled.late_abort()
    assert stalled.ends() == (2, 3), "a record and its marker; the open one"
    stalled.producer.commit()
    assert read(stalled.log) == [2]
    assert [stalled.log.outcome("p", epoch).outcome for epoch in (0, 1)] == [Outcome.ABORT, Outcome.COMMIT]


@case("KnownFlaws", "a delayed end tears the next transaction")
@pytest.mark.parametrize("late", ["commit", "abort"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_late_end_in_the_middle_of_the_next_transaction_leaves_it_whole(late: str, commits: bool) -> None:
    stalled = Stalled()
    stalled.producer.begin()
    stalled.send(1)
    stalled.lose(late)
    stalled.producer.begin()
    stalled.send(2)
    stalled.late_commit() if late == "commit" else stalled.late_abort()
    assert read(stalled.log) == []
    stalled.send(3)
    stalled.producer.commit() if commits else stalled.producer.abort()
    assert read(stalled.log) == ([2, 3] if commits else [])
    stable, end = stalled.ends()
    assert stable == end


@case("KnownFlaws", "an append that arrives after the abort hangs")
def test_a_late_append_after_the_abort_opens_nothing() -> None:
    """The last stable offset goes on to the log end, for others too."""
    stalled = Stalled()
    stalled.producer.begin()
    stalled.send(1)
    stalled.producer.send("t", rows(2))
    stalled.lose("flush")
    stalled.late_append()
    assert stalled.ends() == (2, 2)
    with Producer(stalled.log) as plain:
        plain.send("t", rows(3))
    assert read(stalled.log) == [3]
    assert stalled.ends() == (3, 3)


@case("KnownFlaws", "an append that arrives late joins the next transaction")
@pytest.mark.parametrize("commits", [True, False])
def test_a_late_append_is_not_part_of_the_next_transaction(commits: bool) -> None:
    stalled = Stalled()
    stalled.producer.begin()
    stalled.producer.send("t", rows(1))
    stalled.lose("flush")
    stalled.producer.begin()
    stalled.send(2)
    stalled.late_append()
    stalled.producer.commit() if commits else stalled.producer.abort()
    assert read(stalled.log) == ([2] if commits else [])
    assert read(stalled.log, "read_uncommitted") == [2]


@case(
    "KnownFlaws", "an append without a registered partition hangs", "no client can end a hanging transaction"
)
def test_an_append_registers_itself_and_anybody_can_end_what_it_opened() -> None:
    """A client that sends an append and nothing else, and is gone: the log knows whose it is."""
    stalled = Stalled()
    append = make_append(stalled.log.refresh().topic("t").created, {0: (0, 1)}, content="buggy")
    stalled.wake(Write(stalled.old, (append,)))
    (ends,) = stalled.log.offsets("t")
    assert (ends.last_stable_offset, ends.log_end) == (0, 1)
    assert ends.held_by is not None
    assert (ends.held_by.transactional_id, ends.held_by.first_offset) == ("p", 0)
    Producer(TxnLog.open(stalled.log.store, clock=stalled.log.committer.clock), "p").init()
    assert stalled.ends() == (2, 2)


@case("KnownFlaws", "one end bumps the epoch twice", "an end of the current epoch is accepted again")
@pytest.mark.parametrize("end", [Outcome.COMMIT, Outcome.ABORT])
def test_an_end_counts_once_however_often_it_arrives(end: Outcome) -> None:
    """No second marker, no second epoch; the opposite end is refused; one of an epoch to come too."""
    stalled = Stalled()
    stalled.producer.begin()
    stalled.send(1)
    stalled.producer.commit() if end is Outcome.COMMIT else stalled.producer.abort()
    before = stalled.log.refresh()
    for _ in range(3):
        assert stalled.wake(Write(stalled.old, end=end)).repeated
        with pytest.raises(InvalidTransactionStateError) as caught:
            stalled.wake(Write(stalled.old, end=Outcome.ABORT if end is Outcome.COMMIT else Outcome.COMMIT))
        assert caught.value.kind in ("transaction-committed", "transaction-aborted")
    for epoch in (2, 32_767, 2**40):
        with pytest.raises(InvalidTransactionStateError) as caught:
            stalled.wake(Write(ProducerRef(stalled.old.producer_id, epoch, "p"), end=end))
        assert caught.value.kind == "unknown-epoch"
    assert stalled.log.refresh() == before
    assert (before.transactional_ids["p"].epoch, stalled.ends()) == (1, (2, 2))
