"""Clients of a simulated history that have to do with transactions: producers, their coordinators, and
cleaners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import (
    Action,
    CommitResult,
    EndTransaction,
    Intent,
    OpenProducer,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.operations import Cause, InitProducer
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import CommitStateUnknownError, TxnLogError
from txnformat.persistent import replace
from txnformat.types import ObjectRecord, Outcome, TopicPartition
from txnlog_testing.simulator.clients import Client

__all__ = ["TIMEOUTS", "CleaningClient", "DecidingClient", "Decisions", "TransactionalClient"]

TIMEOUTS = ((300, 1_000), (60_000, 86_400_000), (3_000, 500), (10_000, 5_000))
"""The timeouts that producers ask for; most histories take some ten seconds to a few minutes."""


@dataclass(slots=True)
class Decisions:
    """Where the outcomes of prepared transactions are decided, once each: another system, which never
    forgets.
    """

    draw: Callable[[], float]
    made: dict[tuple[int, int], Outcome]

    def of(self, who: tuple[int, int], *, else_: Outcome | None = None) -> Outcome:
        """Return what is decided for (producer id, epoch); decide it now if it is not."""
        if who not in self.made:
            self.made[who] = else_ or (Outcome.COMMIT if self.draw() < 0.6 else Outcome.ABORT)
        return self.made[who]


@dataclass(slots=True, eq=False)
class TransactionalClient(Client):
    """A producer with a transactional id: inline or staged records, one-shot commits, aborts, prepared
    transactions.

    A zombie goes on sending.
    """

    transactional_id: str = "tx"
    decisions: Decisions | None = None
    put: Callable[[str, bytes], None] | None = None
    """Stores a batch table."""
    one_shots: float = 0.45
    """How often an append ends its transaction by a commit."""
    deferred: float = 0.4
    """How many of the transactions stage."""
    ends: float = 0.25
    """How often it ends an open transaction without anything more."""
    is_focused: bool = False
    """Appends to the same partition as others."""
    timeouts: Sequence[tuple[int, int]] = TIMEOUTS
    ref: ProducerRef | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    is_open: bool = False
    is_deferred: bool = False
    """Whether the open transaction stages."""
    is_prepared: bool = False
    must_abort: bool = False
    """Nothing else is known to be right: another client has ended the transaction, or its abort came to
    nothing."""
    is_doubtful: bool = False
    """The last call's outcome is unknown: repeat it, or abort."""

    def wanted(self, state: LogState) -> list[Intent]:
        """Return the call that waits, an abort instead of it, or the next call."""
        if self.is_doubtful and self.ref is not None and not self.is_stopping and self.rng.random() < 0.3:
            self.is_doubtful = False
            outcome = Outcome.ABORT
            if self._may_be_prepared():
                # No client was told that it is prepared, but one may have found out.
                outcome = self._decided(else_=Outcome.ABORT)
            self.pending = [Intent(self.new_id(), state.entry + 1, Write(self.ref, end=outcome))]
        # An explicit base: a dataclass with slots is another class than the one that super() knows.
        return Client.wanted(self, state)

    def _may_be_prepared(self) -> bool:
        return self.is_prepared or any(
            isinstance(one.action, Write) and one.action.prepare for one in self.pending
        )

    def _decided(self, *, else_: Outcome | None = None) -> Outcome:
        assert self.decisions is not None
        assert self.ref is not None
        return self.decisions.of((self.ref.producer_id, self.ref.epoch), else_=else_)

    def plan(self, state: LogState) -> list[Action]:
        """Open, append or stage, prepare, commit or abort."""
        if self.ref is None:
            return [OpenProducer(self.transactional_id, *self.rng.choice(self.timeouts))]
        choice = self.rng.random()
        if self.must_abort:
            return [Write(self.ref, end=self._decided(else_=Outcome.ABORT))]
        if self.is_prepared:
            return self._plan_prepared(state, choice)
        if self.is_open and choice < self.ends:
            return [Write(self.ref, end=Outcome.COMMIT if choice < 0.5 * self.ends else Outcome.ABORT)]
        if self.is_open and choice < self.ends + 0.05:
            return [Write(self.ref, prepare=True)]
        partitions = self._some_partitions(state)
        if not partitions:
            return []
        if self.is_focused:
            partitions = [TopicPartition(min(state.topics), 0)]
        if not self.is_open:
            self.is_deferred = self.rng.random() < self.deferred
        append = self._append(
            state, partitions, lambda key: self.sequences.get(key, 0), may_embed=not self.is_deferred
        )
        if self.is_deferred:
            append = self._in_table(state, append)
        choice = self.rng.random()
        end = Outcome.COMMIT if choice < self.one_shots else Outcome.ABORT if choice > 0.95 else None
        prepare = 0.9 < choice <= 0.95
        write = self.beside(
            state, Write(self.ref, (append,), end, deferred=self.is_deferred, prepare=prepare)
        )
        return [] if write is None else [write]

    def beside(self, state: LogState, write: Write) -> Write | None:
        """Return a write as it is sent: with more in it, or none."""
        return write

    def _plan_prepared(self, state: LogState, choice: float) -> list[Action]:
        """Wait for the coordinator, end it as it was decided, or send more or open anew, which must be
        refused.
        """
        assert self.ref is not None
        known = state.transactional_ids.get(self.transactional_id)
        if known is not None and known.epoch == self.ref.epoch + 1:
            self._begin(replace(self.ref, epoch=known.epoch))
            return []
        if choice < 0.2:
            return [Write(self.ref, end=self._decided())]
        partitions = self._some_partitions(state)
        if choice < 0.3 and partitions:
            append = self._append(state, partitions[:1], lambda key: self.sequences.get(key, 0))
            append = self._in_table(state, append) if self.is_deferred else append
            return [Write(self.ref, (append,), deferred=self.is_deferred)]
        return [OpenProducer(self.transactional_id)] if choice < 0.4 else []

    def _in_table(self, state: LogState, append: TopicAppend) -> TopicAppend:
        data = encode_batch_table([(0, append.batches)])
        key = keys.table_key(max(0, state.entry), self.new_id())
        assert self.put is not None
        self.put(key, data)
        return replace(append, batches=(), table=ObjectRecord(key, len(data), sha256_hex(data)))

    def answered(self, intent: Intent, answer: CommitResult | TxnLogError, state: LogState) -> None:
        """Remember besides whether the outcome is unknown."""
        self.is_doubtful = isinstance(answer, CommitStateUnknownError)
        Client.answered(self, intent, answer, state)

    def succeeded(self, intent: Intent, result: CommitResult) -> None:
        """Take the identity that an open gives, count sequences, and go to the next epoch after an end."""
        action = intent.action
        if isinstance(action, OpenProducer):
            for op in result.operations:  # none when the entry is deleted: then open once more
                if isinstance(op, InitProducer):
                    self._begin(ProducerRef(op.producer_id, op.epoch, self.transactional_id))
        elif isinstance(action, Write) and self.ref is not None and action.end is not None:
            self._begin(replace(self.ref, epoch=self.ref.epoch + 1))
        elif isinstance(action, Write):
            self.is_open = True
            self.is_prepared = action.prepare
            for append in action.appends:
                for part in append.partitions:
                    key = TopicPartition(append.topic_id, part.partition)
                    self.sequences[key] = part.base_sequence + part.records

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Open again, whatever it was: fenced, ended, out of order.

        A fenced instance often goes on for a while.
        """
        if error.kind == "commit-contention":
            # An abort may have been instead of a call whose outcome is unknown still.
            self.must_abort |= isinstance(intent.action, Write) and intent.action.end is Outcome.ABORT
            return
        if error.kind == "producer-fenced" and self.rng.random() < 0.3:
            return
        if error.kind == "transaction-timed-out" and self.rng.random() < 0.7:
            self.must_abort = True
            return
        if error.kind == "transaction-prepared" and self.is_prepared:
            return
        self.ref = None

    def crashed(self) -> None:
        """Forget the identity: the next instance opens with the same id."""
        Client.crashed(self)
        self.ref = None
        self.is_doubtful = self.is_prepared = self.must_abort = False

    def _begin(self, ref: ProducerRef) -> None:
        self.ref = ref
        self.sequences = {}
        self.is_open = self.is_prepared = self.must_abort = False


@dataclass(slots=True, eq=False)
class DecidingClient(Client):
    """Ends prepared transactions as it was decided: finds them in the log, as after a crash of all others."""

    decisions: Decisions | None = None

    def plan(self, state: LogState) -> list[Action]:
        """Return the end of one prepared transaction."""
        assert self.decisions is not None
        prepared = [
            name
            for name in sorted(state.undecided)
            if state.transactional_ids[name].status is TransactionStatus.PREPARED
        ]
        if not prepared or self.rng.random() < 0.5:
            return []
        name = self.rng.choice(prepared)
        known = state.transactional_ids[name]
        who = (known.producer_id, known.epoch)
        return [Write(ProducerRef(*who, name), end=self.decisions.of(who))]


@dataclass(slots=True, eq=False)
class CleaningClient(Client):
    """Now and then aborts another client's transaction as an operator; sometimes by force."""

    def plan(self, state: LogState) -> list[Action]:
        """Return the end of one open transaction."""
        if not state.undecided or self.rng.random() < 0.8:
            return []
        name = self.rng.choice(sorted(state.undecided))
        known = state.transactional_ids[name]
        force = self.rng.random() < 0.3
        return [EndTransaction(name, known.producer_id, known.epoch, Cause.OPERATOR, force=force)]
