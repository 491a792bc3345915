"""The judge of ends in a simulated history: whether the client that ended a transaction may do so, and was
asked for just this end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from txnformat.core.entry import CommitEntry
from txnformat.core.intents import EndTransaction, FreePartitions, Intent, ProducerRef, RemoveTopic, Write
from txnformat.core.operations import Cause, EndTxn
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.world import HistoryViolation, Sender

__all__ = ["Data", "EndJudge", "Transaction"]

Transaction = tuple[int, int]
"""Producer id and epoch."""


@dataclass(slots=True)
class Data:
    """The records that one append or stage brought for one partition."""

    digest: str
    key: TopicPartition
    sequence: int
    records: int
    who: Transaction
    base: int | None
    """First offset; None while staged, and for good when that was aborted."""
    outcome: str
    """``plain``, ``open``, ``commit`` or ``abort``; ``gone``: it was open in a prepared transaction when its
    topic was deleted."""
    commit_entry: int = -1
    given_up: bool = False
    """An operator took it from a prepared transaction."""


class EndJudge:
    """The judge of ends: a part of the ledger, with the fields that it reads there."""

    _hits: Counter[str]
    _of: dict[Transaction, list[Data]]
    _prepared: set[Transaction]
    _intents: dict[str, Intent]
    _timed: dict[Transaction, tuple[int, int, bool]]
    _timeouts: dict[int, tuple[int, int]]
    _landed_ms: list[int]
    decisions: dict[Transaction, Outcome]

    def _check_end(self, op: EndTxn, entry: CommitEntry, sender: Sender) -> None:
        """Check that a sender who may end the transaction asked for just this end."""
        who = (op.producer_id, op.epoch)
        was_prepared = who in self._prepared
        intent = self._intents.get(entry.intents[op.intent])
        action = intent.action if intent is not None else None
        self._hits[f"ended by {op.cause}"] += 1
        if op.cause is Cause.PRODUCER:
            ref = ProducerRef(*who, op.transactional_id)
            if not isinstance(action, Write) or (action.producer, action.end) != (ref, op.outcome):
                raise HistoryViolation(f"{op} is the doing of {action}")
            if was_prepared:
                self._hits["ended what was prepared"] += 1
                if self.decisions.get(who) is not op.outcome:
                    raise HistoryViolation(f"{op}, but it was decided: {self.decisions.get(who)}")
        elif op.cause is Cause.OPERATOR and isinstance(action, RemoveTopic | FreePartitions):
            if was_prepared or not self._is_in_the_way(who, action):
                raise HistoryViolation(f"{op} is the doing of {action}")
        elif op.cause is Cause.OPERATOR:
            if not isinstance(action, EndTransaction) or action.cause is not Cause.OPERATOR:
                raise HistoryViolation(f"{op} is the doing of {action}")
            if was_prepared and not action.force:
                raise HistoryViolation(f"{op} ends what is prepared without force")
            self._hits["ended by force"] += was_prepared
        elif was_prepared:
            raise HistoryViolation(f"{op} ends what is prepared")
        else:
            self._check_timeout(op, entry, sender)

    def _is_in_the_way(self, who: Transaction, action: RemoveTopic | FreePartitions) -> bool:
        """Return whether a removal by force may end an open transaction."""
        here = [one for one in self._of.get(who, ()) if one.key.topic_id == action.topic_id]
        if isinstance(action, RemoveTopic):
            self._hits["ended by the deletion of a topic"] += 1
            return action.force and bool(here)
        self._hits["ended by a removal by force"] += 1
        ends = dict(action.ends)
        return any(one.base is not None and one.base < ends.get(one.key.partition, 0) for one in here)

    def _check_timeout(self, op: EndTxn, entry: CommitEntry, sender: Sender) -> None:
        """Check one of the two proofs by true clocks."""
        who = (op.producer_id, op.epoch)
        if who not in self._timed:
            raise HistoryViolation(f"{op} ends what is not open")
        timed_entry, since_ms, stages = self._timed[who]
        allowed = self._timeouts[op.producer_id][stages]
        # A clock that jumped back after it was read is no proof against what it said then.
        by_store = sender.latest_ms >= since_ms + allowed
        landed_ms = self._landed_ms[timed_entry]
        by_watching = sender.counts_suspended_time and sender.sent_ms - landed_ms >= allowed
        if not by_store and not by_watching:
            raise HistoryViolation(
                f"{op} comes before its time: {allowed} ms from {since_ms}, which landed at {landed_ms}; "
                f"{sender}"
            )
        self._hits["timed out by the store's time" if by_store else "timed out by watching"] += 1
        self._hits["staged records timed out"] += stages
        self._hits["timed out in a log whose time ran ahead"] += (
            entry.timestamp_ms > max(sender.store_times) + 30_000
        )
