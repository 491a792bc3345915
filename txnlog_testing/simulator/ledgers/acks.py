"""The judge of subscriptions in a simulated history: who has acknowledged each single record, and what was
made of it.

Kept by the rules of the specification alone, offset by offset: an offset is free, pending in one transaction,
or acknowledged by one caller for good. Nothing here knows of marks or ranges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionKey,
)
from txnformat.types import TopicPartition
from txnlog_testing.simulator.world import HistoryViolation

__all__ = ["AckClaim", "AckLedger"]

Transaction = tuple[int, int]
"""Producer id and epoch."""


class AckClaim(NamedTuple):
    """The origin that a record names: it was made of these records, which its transaction acknowledges."""

    subscription: SubscriptionKey
    partition: int
    offsets: tuple[int, ...]


@dataclass(slots=True)
class _Partition:
    acked: set[int] = field(default_factory=set)
    pending: dict[int, Transaction] = field(default_factory=dict)
    positions: dict[Transaction, int] = field(default_factory=dict)
    """Positions of cumulative acknowledgements that are pending."""


class AckLedger:
    """Every subscription of one history.

    Parameters
    ----------
    outcome_of : callable
        Returns what became of the data with a digest: ``plain``, ``open``, ``commit`` or ``abort``; None: not
        there.
    stable : callable
        Returns a partition's last stable offset and its log end, at this moment of an entry.
    hits : Counter
        Counts what happened.
    """

    def __init__(
        self,
        outcome_of: Callable[[str], str | None],
        stable: Callable[[TopicPartition], tuple[int, int]],
        hits: Counter[str],
    ) -> None:
        self._outcome_of = outcome_of
        self._stable = stable
        self._hits = hits
        self._subscriptions: dict[SubscriptionKey, dict[int, _Partition]] = {}
        self._touched: set[SubscriptionKey] = set()
        self.claims: dict[str, AckClaim] = {}
        """Claims by digest of the data, from any sender."""

    def on_operation(self, op: CreateSubscription | DeleteSubscription | Ack) -> None:
        """Judge an operation."""
        self._touched.add(op.key)
        match op:
            case CreateSubscription():
                if op.key in self._subscriptions:
                    raise HistoryViolation(f"{op} creates what is there")
                made = self._subscriptions[op.key] = {}
                for start in op.starts:
                    self._check_stable(op.topic_id, start.partition, start.offset)
                    made[start.partition] = _Partition(set(range(start.offset)))
            case DeleteSubscription():
                if any(part.pending for part in self._subscriptions.pop(op.key).values()):
                    raise HistoryViolation(f"{op} deletes pending acknowledgements")
                self._hits["subscription deleted"] += 1
            case Ack():
                who = None if op.transactional_id is None else (op.producer_id, op.epoch)
                for part in op.partitions:
                    self._ack(op, part, who)

    def _check_stable(self, topic_id: str, partition: int, end: int) -> None:
        stable, _ = self._stable(TopicPartition(topic_id, partition))
        if end > stable:
            raise HistoryViolation(f"{end} of partition {partition} is acknowledged, the LSO is {stable}")

    def _ack(self, op: Ack, part: AckedPartition, who: Transaction | None) -> None:
        held = self._subscriptions[op.key].setdefault(part.partition, _Partition())
        wanted = {offset for start, end in part.ranges for offset in range(start, end)}
        self._check_stable(op.topic_id, part.partition, max(wanted, default=-1) + 1)
        if part.position is not None:
            self._check_stable(op.topic_id, part.partition, part.position)
        self._hits[f"acknowledged: {op.mode}{'' if who is None else ' in a transaction'}"] += 1
        if op.mode is AckMode.SEEK:
            if held.pending or part.position is None or who is not None:
                raise HistoryViolation(f"{op} seeks beside {held.pending}")
            held.acked = set(range(part.position))
            return
        if part.position is not None:
            below = set(range(part.position))
            if below <= held.acked or (who is not None and held.positions.get(who, 0) >= part.position):
                raise HistoryViolation(f"{op} acknowledges nothing that was not")
            mine = {offset for offset, holder in held.pending.items() if holder == who}
            wanted = below - held.acked - mine
            if who is not None:
                held.positions[who] = part.position
        if wanted & held.acked or wanted & held.pending.keys():
            raise HistoryViolation(f"{op} acknowledges what is acknowledged or pending: {held}")
        if who is None:
            held.acked |= wanted
        else:
            held.pending |= dict.fromkeys(wanted, who)

    def ended(self, who: Transaction, outcome: str) -> None:
        """Note the end of a transaction (outcome ``commit`` or ``abort``); it need not have acknowledged
        anything.
        """
        for key, parts in self._subscriptions.items():
            for part in parts.values():
                mine = {offset for offset, holder in part.pending.items() if holder == who}
                if not mine and who not in part.positions:
                    continue
                self._touched.add(key)
                part.positions.pop(who, None)
                part.pending = {one: holder for one, holder in part.pending.items() if holder != who}
                if outcome == "commit":
                    part.acked |= mine
                self._hits[f"acknowledgements ended: {outcome}"] += 1

    def check(self, after: LogState) -> None:
        """Compare the subscriptions that the entry concerned with what the log says of them, and all claims
        with them.
        """
        for key in sorted(self._touched):
            shown, known = after.subscriptions.get(key), self._subscriptions.get(key)
            if (shown is None) != (known is None):
                raise HistoryViolation(f"subscription {key} is {shown}, not {known}")
            for number, part in (known or {}).items():
                if shown is None:
                    continue
                acks = shown.partition(number)
                told = [_offsets(one.pairs()) for one in (acks.whole(), acks.held())]
                if told != [part.acked, set(part.pending)]:
                    raise HistoryViolation(f"{key} has {told} of partition {number}, not {part}")
        self._touched.clear()
        self._check_claims()

    def _check_claims(self) -> None:
        """Check that each record is in the committed output of one transaction iff it is acknowledged."""
        made: dict[tuple[SubscriptionKey, int], Counter[int]] = {}
        for digest, claim in self.claims.items():
            counts = made.setdefault((claim.subscription, claim.partition), Counter())
            if self._outcome_of(digest) == "commit":
                counts.update(claim.offsets)
        for (key, number), counts in made.items():
            part = self._subscriptions.get(key, {}).get(number, _Partition())
            if counts != Counter(part.acked):
                raise HistoryViolation(
                    f"{key} made {counts} of partition {number}, acknowledged {part.acked}"
                )
            self._hits["output and acknowledgements agree"] += bool(counts)


def _offsets(pairs: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in pairs for offset in range(start, end)}
