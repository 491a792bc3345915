"""The judge of a simulated history: one fold of the true chain, and what every answer must mean.

The true chain is what was created first in each slot. Everything else is measured against it:

* each entry that lands keeps the invariants, holds no intent, no sequence and no application version that the
  chain holds already, and was written by a writer whose clocks allowed it;
* each answer is true: a result names what the chain holds; what was denied is not in the chain and never gets
  there; a rejection is what the rules say of some state since the call began;
* each view that a call returns is the true fold at its entry, and a process's views never go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from txnformat.core.assemble import CLOCK_SKEW_MS_MAX, assemble
from txnformat.core.decide import decide
from txnformat.core.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import CommitResult, EndTransaction, Included, Intent, RemoveTopic, Write
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.operations import (
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    RequestErasure,
)
from txnformat.core.operations import Append, AppVersion, Cause, EndTxn, InitProducer, PrepareTxn
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.state import LogState
from txnformat.errors import CommitStateUnknownError, StorageError, TxnLogError
from txnformat.protocol.view import View
from txnformat.reading.sealed import SidecarCache
from txnformat.segments.payload import head_of
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.ledgers.ledger import Ledger
from txnlog_testing.simulator.world import HistoryViolation, Sender

__all__ = ["Oracle", "is_definite"]

Answer = CommitResult | TxnLogError


def is_definite(answer: Answer) -> bool:
    """Return whether the caller knows after this answer what became of its intent."""
    if isinstance(answer, CommitStateUnknownError):
        return answer.kind == "commit-too-old"
    return not isinstance(answer, StorageError)


class Oracle:
    """Knows the truth about one history.

    Parameters
    ----------
    empty : LogState
        The log before entry 0.
    ledger : Ledger
        Judges what becomes of the records.
    now_ms : callable
        Returns true time.
    hits : Counter
        Counts verdicts and outcomes.
    """

    def __init__(
        self, empty: LogState, ledger: Ledger, now_ms: Callable[[], int], hits: Counter[str]
    ) -> None:
        self.ledger = ledger
        self._now_ms = now_ms
        self.states = [empty]
        """``states[n + 1]`` is the state after entry n."""
        self.entries: list[CommitEntry] = []
        self.senders: dict[bytes, Sender] = {}
        self.recreated: list[int] = []
        """Slots that were deleted, and that a writer has created again."""
        self._hits = hits
        self._landed: dict[str, int] = {}
        self._placed: dict[str, tuple[int, TopicPartition, int]] = {}
        """Places by digest of the data: entry, partition, first offset."""
        self._sequences: set[tuple[TopicPartition, int, int, int]] = set()
        self._denied: dict[str, str] = {}
        self._in_doubt: set[str] = set()
        self._digests: dict[int, str] = {}
        self._calls: dict[str, Sequence[Intent]] = {}
        """The last request of each process."""

    @property
    def state(self) -> LogState:
        """Return the state at the tip of the true chain."""
        return self.states[-1]

    def adopt(self, entry: CommitEntry, state: LogState) -> None:
        """Take over an entry of a history that was checked before."""
        self.entries.append(entry)
        self.states.append(state)
        self._landed |= dict.fromkeys(entry.intents, entry.entry)
        self.ledger.adopt(entry.timestamp_ms)

    def on_entry(self, slot: int, data: bytes) -> None:
        """Judge bytes that have just been created in a slot."""
        before = self.state
        if slot <= before.entry:
            self._hits["deleted slot created again"] += 1
            self.recreated.append(slot)
            return  # not part of the chain: no client may take it for a part of it
        if slot != before.entry + 1:
            raise HistoryViolation(f"entry {slot} was created while the tip was {before.entry}")
        entry = decode_entry(data, slot)
        after = apply(before, entry, sha256_hex(head_of(data)))
        problems = check_state(before, entry, after)
        if problems:
            raise HistoryViolation(f"entry {slot} breaks invariants: {problems}")
        self._check_clocks(entry, data)
        self._check_order(entry, self._calls.get(self.senders[data].process, ()))
        for intent in entry.intents:
            if intent in self._landed:
                raise HistoryViolation(f"intent {intent} is in entries {self._landed[intent]} and {slot}")
            if intent in self._denied:
                raise HistoryViolation(
                    f"intent {intent} is in entry {slot}, but was answered {self._denied[intent]}"
                )
            self._landed[intent] = slot
        for operation in entry.operations:
            if isinstance(operation, Append):
                self._place(operation, slot)
        self.ledger.on_entry(entry, after, self.senders[data], self._now_ms())
        self.entries.append(entry)
        self.states.append(after)

    def _check_clocks(self, entry: CommitEntry, data: bytes) -> None:
        sender = self.senders[data]
        if sender.is_skewed:
            raise HistoryViolation(f"entry {entry.entry} comes from {sender.process}, whose clock is far off")
        previous = self.state.timestamp_ms
        if not any(entry.timestamp_ms == max(now, previous + 1) for now in sender.store_times):
            raise HistoryViolation(
                f"entry {entry.entry} has log time {entry.timestamp_ms}: not max(now, previous + 1)"
            )
        only_ends = all(
            isinstance(op, EndTxn) and op.cause in (Cause.TIMEOUT, Cause.OPERATOR) for op in entry.operations
        )
        if entry.timestamp_ms > max(sender.store_times) + CLOCK_SKEW_MS_MAX and not only_ends:
            raise HistoryViolation(f"entry {entry.entry} is more than 30 s ahead of its writer's store time")

    def _check_order(self, entry: CommitEntry, group: Sequence[Intent]) -> None:
        """Check that no producer is timed out by the very process, and in the very entry, that could have
        held its commit.
        """
        ended = {
            (op.producer_id, op.epoch)
            for op in entry.operations
            if isinstance(op, EndTxn) and op.cause is Cause.TIMEOUT
        }
        # Each after those who wait before it, which may be why it is refused: a topic that grows, a position
        # that it holds.
        verdicts = (
            assemble(self.state, group, store_time_ms=entry.timestamp_ms, write_id=entry.write_id).verdicts
            if ended
            else {}
        )
        for intent in group:
            write = intent.action
            if (
                isinstance(write, Write)
                and write.end is Outcome.COMMIT
                and write.producer is not None
                and (write.producer.producer_id, write.producer.epoch) in ended
                and isinstance(verdicts.get(intent.intent_id), Included)
            ):
                raise HistoryViolation(
                    f"{_brief(intent)} waited, and entry {entry.entry} ends its transaction"
                )

    def _place(self, operation: Append, slot: int) -> None:
        for part in operation.partitions:
            key = TopicPartition(operation.topic_id, part.partition)
            if part.digest in self._placed:
                raise HistoryViolation(
                    f"data {part.digest} is in the log twice: {self._placed[part.digest]}, {slot}"
                )
            self._placed[part.digest] = (slot, key, part.base_offset)
            sequence = (key, operation.producer_id, operation.epoch, part.base_sequence)
            if part.base_sequence >= 0 and sequence in self._sequences:
                raise HistoryViolation(f"sequence {sequence} is in the log twice")
            self._sequences.add(sequence)

    def called(self, process: str, intents: Sequence[Intent]) -> int:
        """Note that a process asks to commit ``intents``; returns what :meth:`answered` wants as
        ``since``.
        """
        self._calls[process] = intents
        for intent in intents:
            self.ledger.called(intent)
            self._denied.pop(
                intent.intent_id, None
            )  # denied for this call's predecessor only: an IO error, a refusal
        return len(self.states) - 1

    def abandoned(self, intent: Intent) -> None:
        """Note that the client that waited for an answer is gone."""
        self._in_doubt.add(intent.intent_id)

    def answered(self, intent: Intent, answer: Answer, since: int) -> None:
        """Judge the answer to an intent; ``since`` is what :meth:`called` returned."""
        intent_id = intent.intent_id
        match answer:
            case CommitResult():
                self._hits["verdict Done" if answer.repeated else "verdict Included"] += 1
                self._check_result(intent, answer)
                self.ledger.acknowledged(intent)
                return
            case CommitStateUnknownError(kind="commit-too-old"):
                self._hits["verdict Undecidable"] += 1
                return
            case CommitStateUnknownError():
                self._hits["slot unknown"] += 1
                self._in_doubt.add(intent_id)
                return
            case StorageError():
                self._hits[f"answer {answer.kind}"] += 1
                if intent_id in self._in_doubt:
                    return  # says nothing about the attempts before
            case _:
                self._hits[f"answer {answer.kind}"] += 1
                if answer.kind != "commit-contention":
                    self._hits["verdict Rejected"] += 1
                    self._check_rejection(intent, answer, since)
        if intent_id in self._landed:
            raise HistoryViolation(
                f"{_brief(intent)} is in entry {self._landed[intent_id]}, but was answered {answer!r}"
            )
        self._denied[intent_id] = repr(answer)

    def _check_rejection(self, intent: Intent, answer: TxnLogError, since: int) -> None:
        if all(isinstance(decide(state, intent), Included) for state in self.states[since:]):
            raise HistoryViolation(
                f"{_brief(intent)} was rejected, but fits every state since the call began: {answer!r}"
            )

    def _check_result(self, intent: Intent, result: CommitResult) -> None:
        if not 0 <= result.entry < len(self.entries):
            raise HistoryViolation(
                f"{_brief(intent)} was answered with entry {result.entry}, which is not in the chain"
            )
        entry = self.entries[result.entry]
        if intent.intent_id in entry.intents and result.timestamp_ms is None and not result.offsets:
            is_true = (
                result.repeated and not result.operations
            )  # the entry is deleted; the window still knows it
        elif intent.intent_id in entry.intents:
            expected = CommitResult.of(entry, intent.intent_id, repeated=result.repeated)
            is_true = result.offsets == expected.offsets and (not result.operations or result == expected)
        else:
            is_true = self._holds(entry, intent, result)
        if not is_true:
            raise HistoryViolation(f"{_brief(intent)} was answered {result}, but the chain holds {entry}")

    def _holds(self, entry: CommitEntry, intent: Intent, result: CommitResult) -> bool:
        """Return whether an entry holds, under another intent's id, what makes ``intent`` done."""
        if isinstance(intent.action, EndTransaction):
            return _is_ended_in(entry, intent.action)
        if isinstance(intent.action, RemoveTopic):
            return any(
                isinstance(op, DeleteTopic) and op.topic_id == intent.action.topic_id
                for op in entry.operations
            )
        if isinstance(intent.action, RequestErasure | AdvanceErasure | CompleteErasure):
            return self._is_erased_in(entry, intent.action)
        write = intent.action
        if not isinstance(write, Write):
            return False
        app, producer = write.app, write.producer
        for op in entry.operations:
            if (
                isinstance(op, AppVersion)
                and app
                and (op.namespace, op.app_id, op.version) == (app.namespace, app.app_id, app.version)
            ):
                return True
            if (
                isinstance(op, EndTxn)
                and producer
                and (op.producer_id, op.epoch, op.outcome)
                == (producer.producer_id, producer.epoch, write.end)
            ):
                return True
            if (
                isinstance(op, PrepareTxn)
                and write.prepare
                and producer
                and (op.producer_id, op.epoch) == (producer.producer_id, producer.epoch)
            ):
                return True
        if write.deferred:
            return not result.offsets and self.ledger.has_all(write)
        placed = {
            TopicPartition(append.topic_id, part.partition): self._placed.get(part.digest)
            for append in write.appends
            for part in append.partitions
        }
        found = {key: where[2] for key, where in placed.items() if where is not None}
        return bool(placed) and found == result.offsets

    def _is_erased_in(
        self, entry: CommitEntry, action: RequestErasure | AdvanceErasure | CompleteErasure
    ) -> bool:
        """Return whether another process was faster with an erasure."""
        match action:
            case RequestErasure():
                return any(
                    isinstance(op, RequestErasure)
                    and (op.topic_id, op.condition) == (action.topic_id, action.condition)
                    for op in entry.operations
                )
            case AdvanceErasure():
                known = self.states[entry.entry + 1].erasures[action.erasure_id]
                return known.rewritten_entry == entry.entry
            case CompleteErasure():
                return any(
                    isinstance(op, CompleteErasure) and op.erasure_id == action.erasure_id
                    for op in entry.operations
                )

    def seen(self, process: str, before: View | None, view: View, *, deep: bool) -> None:
        """Judge a view that a call has returned; ``deep`` compares the whole state."""
        state = view.state
        if state.entry > self.state.entry:
            raise HistoryViolation(f"{process} sees entry {state.entry}, the tip is {self.state.entry}")
        if before is not None and state.entry < before.state.entry:
            raise HistoryViolation(f"{process} went back from entry {before.state.entry} to {state.entry}")
        truth = self.states[state.entry + 1]
        if state.entry_sha256 != truth.entry_sha256:
            raise HistoryViolation(f"{process} follows another chain at entry {state.entry}")
        if deep:
            if state.entry not in self._digests:
                self._digests[state.entry] = state_digest(truth)
            if state_digest(state) != self._digests[state.entry]:
                raise HistoryViolation(f"{process} has another state than the fold at entry {state.entry}")

    def check_end(self, sidecars: SidecarCache) -> None:
        """Derive the whole final state again, and read what is sealed."""
        self.ledger.check_end(self.state, sidecars)
        problems = check_whole(self.state)
        if problems:
            raise HistoryViolation(f"the final state breaks invariants: {problems}")


def _is_ended_in(entry: CommitEntry, action: EndTransaction) -> bool:
    """Return whether an entry aborts a transaction, for any cause."""
    who = (action.producer_id, action.epoch)
    for op in entry.operations:
        if isinstance(op, EndTxn) and (op.producer_id, op.epoch) == who:
            return op.outcome is Outcome.ABORT
        if isinstance(op, InitProducer) and (op.producer_id, op.epoch - 1) == who:
            return True
    return False


def _brief(intent: Intent) -> str:
    return f"{type(intent.action).__name__} {intent.intent_id[:8]} (first slot {intent.first_slot})"
