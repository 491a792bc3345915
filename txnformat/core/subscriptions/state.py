"""The state of a subscription in a log: the acknowledged and the pending offsets, and the rules for conflicts
with them.

Values.

Nothing is acknowledged or pending twice. So of two consumers, or two transactions, that acknowledge one
record one wins, and there is no lease on records that were handed out: the acknowledgement decides. Pulsar's
pending acknowledgements are the model, but for two things: a cumulative acknowledgement is compared with
individual ones that are pending below it (Pulsar does not look at them, so that two transactions may both win
one record), and a plain acknowledgement of what is pending is an error (Pulsar drops it silently).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.subscriptions.operations import AckedPartition, AckMode
from txnformat.persistent import put, update, without

__all__ = [
    "ACK_PENDING",
    "ACK_RANGES_MAX",
    "ALREADY_ACKNOWLEDGED",
    "REMOVED_RANGES_MAX",
    "AckConflict",
    "PartitionAcks",
    "PendingAcks",
    "SubscriptionState",
]

ACK_RANGES_MAX = 10_000
"""Most separate ranges per partition, acknowledged and pending together (Pulsar's
managedLedgerMaxUnackedRangesToPersist)."""

REMOVED_RANGES_MAX = 100
"""Most separate ranges of removed records that a partition keeps from one acknowledgement to the next. More
join the mark, from the lowest on."""

ACK_PENDING = "ack-pending"
"""Kind of a conflict: a transaction that is not decided has acknowledged the record."""
ALREADY_ACKNOWLEDGED = "already-acknowledged"
"""Kind of a conflict: the record is acknowledged."""


class AckConflict(NamedTuple):
    """Why something cannot be acknowledged."""

    kind: str
    """ACK_PENDING or ALREADY_ACKNOWLEDGED."""
    offset: int
    """The first offset in conflict."""
    transactional_id: str | None = None
    """The transactional id whose transaction holds it."""


@dataclass(frozen=True, slots=True)
class PendingAcks:
    """The acknowledgements of one undecided transaction in a partition."""

    ranges: Ranges = NO_RANGES
    """Not below ``position``. Like that, it may lie below the mark, once a trim has removed the records and
    many ranges of such records have joined the mark."""
    position: int | None = None
    """Everything below that was neither acknowledged nor pending (exclusive). If None, nothing cumulative."""


@dataclass(frozen=True, slots=True)
class PartitionAcks:
    """A subscription in one partition."""

    mark: int = 0
    """Everything below is acknowledged (exclusive), and the offset at the mark is not."""
    acked: Ranges = NO_RANGES
    """The acknowledged offsets above the mark."""
    pending: Mapping[str, PendingAcks] = field(default_factory=dict)
    """Pending acknowledgements by transactional id. No offset is in two of them, or in one and acknowledged.
    """
    _held: tuple[Ranges, int] | None = field(default=None, compare=False, repr=False)
    """The offsets that all of them hold, and the number of their ranges: kept from one operation to the next.
    """

    def held_together(self) -> tuple[Ranges, int]:
        """Return what is pending, with everything below a position, and in how many ranges of
        transactions.
        """
        if not self.pending:
            return NO_RANGES, 0
        if self._held is None:
            bounds = [pair for held in self.pending.values() for pair in held.ranges.pairs()]
            below = [(0, held.position) for held in self.pending.values() if held.position]
            alone = next(iter(self.pending.values())).ranges if len(self.pending) == 1 else None
            together = Ranges.of(bounds + below) if alone is None or below else alone
            found = (together, len(bounds))
            object.__setattr__(self, "_held", found)
            return found
        return self._held

    def range_count(self) -> int:
        """Return how many ranges there are, acknowledged and pending: an end of a transaction never makes it
        more.
        """
        return len(self.acked) + (self.held_together()[1] if self.pending else 0)

    def conflict(self, ranges: Ranges) -> AckConflict | None:
        """Return the first reason why ranges cannot be acknowledged, by any client: also the own transaction
        twice.
        """
        found: list[AckConflict] = []
        if len(ranges) and ranges.first_start < self.mark:
            found.append(AckConflict(ALREADY_ACKNOWLEDGED, ranges.first_start))
        offset = self.acked.first_common(ranges)
        if offset is not None:
            found.append(AckConflict(ALREADY_ACKNOWLEDGED, offset))
        if not self.pending or self.held_together()[0].first_common(ranges) is None:
            return min(found, key=lambda one: one.offset) if found else None
        for name, held in self.pending.items():
            offset = held.ranges.first_common(ranges)
            if offset is not None:
                found.append(AckConflict(ACK_PENDING, offset, name))
            if held.position is not None and len(ranges) and ranges.first_start < held.position:
                found.append(AckConflict(ACK_PENDING, ranges.first_start, name))
        return min(found, key=lambda one: one.offset, default=None)

    def conflict_below(self, position: int, transactional_id: str | None) -> AckConflict | None:
        """Return the first reason why everything below a position (exclusive) cannot be acknowledged.

        Offsets below it that are acknowledged already are no conflict, as long as some are not; nor are
        offsets that the same transaction holds individually.
        """
        if position <= self.mark:
            return AckConflict(ALREADY_ACKNOWLEDGED, position - 1)
        if not self.pending:
            return None
        own = self.pending.get(transactional_id or "", PendingAcks())
        its = own.ranges.offsets_below(position) + (own.position or 0)
        is_further = own.position is None or position > own.position
        if is_further and self.held_together()[0].offsets_below(position) == its:
            return None  # nothing but its own
        found: list[AckConflict] = []
        for name, held in self.pending.items():
            if name == transactional_id:
                if held.position is not None and position <= held.position:
                    found.append(AckConflict(ACK_PENDING, position - 1, name))
                continue
            if held.position is not None:
                found.append(AckConflict(ACK_PENDING, self.mark, name))
            if len(held.ranges) and held.ranges.first_start < position:
                found.append(AckConflict(ACK_PENDING, held.ranges.first_start, name))
        return min(found, key=lambda one: one.offset, default=None)

    def after(
        self, mode: AckMode, part: AckedPartition, transactional_id: str | None
    ) -> PartitionAcks | AckConflict:
        """Return the partition once ``part`` is acknowledged, at once or in a transaction, or why it cannot
        be.
        """
        if mode is AckMode.SEEK:
            return self.first_pending() or PartitionAcks(part.position or 0)
        ranges = Ranges.of(part.ranges)
        if part.position is None:
            conflict = self.conflict(ranges)
        else:
            conflict = self.conflict_below(part.position, transactional_id)
        if conflict is not None:
            return conflict
        if transactional_id is None:
            return self.acknowledged(ranges, part.position or 0)
        return self.with_pending(transactional_id, ranges, part.position)

    def first_pending(self) -> AckConflict | None:
        """Return the first offset that is pending, None if nothing is."""
        found = [
            AckConflict(
                ACK_PENDING, self.mark if held.position is not None else held.ranges.first_start, name
            )
            for name, held in self.pending.items()
        ]
        return min(found, key=lambda one: one.offset, default=None)

    def acknowledged(self, ranges: Ranges, position: int = 0) -> PartitionAcks:
        """Return the partition with more that is acknowledged: ranges, and everything below a position
        (exclusive).
        """
        mark = max(self.mark, position)
        acked = (self.acked | ranges).above(mark)
        if len(acked) and acked.first_start == mark:
            mark = acked.first_end
            acked = acked.above(mark)
        return PartitionAcks(mark, acked, self.pending, self._held)

    def from_log_start(self, log_start: int) -> PartitionAcks:
        """Return the partition as readers see it, whose records below the log start are gone: nothing of them
        is left to receive.
        """
        return self if self.mark >= log_start else self.acknowledged(NO_RANGES, log_start)

    def kept(self, log_start: int) -> PartitionAcks:
        """Return the partition as acknowledgements see it: a removed record that was received before can be
        acknowledged, once.

        Of the acknowledged ranges below the log start the highest are kept, REMOVED_RANGES_MAX of them.
        """
        if self.mark >= log_start or len(self.acked) <= REMOVED_RANGES_MAX:
            return self
        more = len(self.acked.below(log_start)) - REMOVED_RANGES_MAX
        return self.acknowledged(NO_RANGES, int(self.acked.ends[more - 1])) if more > 0 else self

    def with_pending(
        self, transactional_id: str, ranges: Ranges, position: int | None = None
    ) -> PartitionAcks:
        """Return the partition with more that a transaction holds."""
        held = self.pending.get(transactional_id, PendingAcks())
        position = held.position if position is None else position
        # Offsets that it holds individually below its own position are part of that position.
        more = PendingAcks((held.ranges | ranges).above(position or 0), position)
        together, count = self.held_together()
        # Ranges that only this transaction holds are merged already.
        is_alone = together is held.ranges and not position
        together = more.ranges if is_alone else together | ranges
        if position:
            together |= Ranges.of([(0, position)])
        count += len(more.ranges) - len(held.ranges)
        pending = put(self.pending, transactional_id, more)
        return PartitionAcks(self.mark, self.acked, pending, (together, count))

    def ended(self, transactional_id: str, *, commit: bool) -> PartitionAcks:
        """Return the partition after the end of a transaction: what it holds is acknowledged, or free
        again.
        """
        held = self.pending[transactional_id]
        together, count = self.held_together()
        # No other transaction holds anything below its position.
        still = (together.above(held.position or 0) - held.ranges, count - len(held.ranges))
        rest = PartitionAcks(self.mark, self.acked, without(self.pending, (transactional_id,)), still)
        return rest.acknowledged(held.ranges, held.position or 0) if commit else rest

    def whole(self) -> Ranges:
        """Return everything that is acknowledged, also below the mark."""
        return Ranges.of([(0, self.mark)]) | self.acked

    def held(self) -> Ranges:
        """Return everything that is pending."""
        found = NO_RANGES
        for held in self.pending.values():
            below = Ranges.of([(self.mark, held.position or 0)]) - self.acked
            found = found | held.ranges | below
        return found


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """One subscription."""

    partitions: Mapping[int, PartitionAcks] = field(default_factory=dict)
    """The partitions in which any offset is acknowledged or pending."""
    created_entry: int = 0
    used_entry: int = 0
    """Last entry that had an operation of the subscription, or ended a transaction that did."""
    used_ms: int = 0
    """Log time of that entry."""

    def partition(self, number: int) -> PartitionAcks:
        """Return what is known of a partition; of one that nothing is known of everything is wanted."""
        return self.partitions.get(number, _UNTOUCHED)

    def with_partitions(self, changed: Mapping[int, PartitionAcks]) -> SubscriptionState:
        """Return the subscription with some partitions replaced."""
        untouched = [number for number, acks in changed.items() if not acks.mark and acks == _UNTOUCHED]
        partitions = update(self.partitions, changed)
        return replace(self, partitions=without(partitions, untouched) if untouched else partitions)

    def holders(self) -> frozenset[str]:
        """Return the transactional ids whose transactions hold something."""
        return frozenset(name for acks in self.partitions.values() for name in acks.pending)


_UNTOUCHED = PartitionAcks()
