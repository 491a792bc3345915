"""``log.subscriptions``: subscriptions made, listed, moved and deleted; what each has before it.

And maintenance of their marks, over offsets that no reader gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from txnformat.admin.topics import DamagedTopic, attempt
from txnformat.arguments import check_flags, is_text
from txnformat.client.committer import Committer
from txnformat.core.intents import Acks, Write
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.state import LogState, TopicState
from txnformat.core.subscriptions import backlog
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.core.subscriptions.state import PartitionAcks, SubscriptionState
from txnformat.core.transactions.listing import named_partition
from txnformat.errors import ConflictError, InvalidInputError, repr_of
from txnformat.keys import check_reader_name
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.visible import Visible, visible_offsets
from txnformat.types import OffsetRange, TopicPartition

__all__ = [
    "Backlog",
    "LiftedMark",
    "LiftedMarks",
    "SubscriptionDetails",
    "SubscriptionListing",
    "Subscriptions",
    "backlog_of",
    "lift_marks",
]

Where = int | str | Mapping[int, int]
"""An offset for every partition, "earliest" or "latest" (the last stable offset), or an offset for some
partitions."""


class Backlog(NamedTuple):
    """The records of one partition that a subscription has not acknowledged."""

    partition: int
    mark: int
    """Every record below is acknowledged (exclusive)."""
    last_stable_offset: int
    """Records that can be received lie below (exclusive)."""
    ranges: int
    """Separate ranges of offsets above the mark that are acknowledged."""
    unacknowledged: int
    """Visible records that are not acknowledged, pending ones included."""
    pending: int
    """How many of them wait, acknowledged, for the end of a transaction."""


@dataclass(frozen=True, slots=True)
class SubscriptionListing:
    """A subscription, at a glance."""

    topic: str
    subscription: str
    created_entry: int
    used_ms: int
    """Log time of the last entry that acknowledged something, ms since the epoch; 0 when none did."""
    pending_transactions: tuple[str, ...]
    """Transactional ids whose open transactions have acknowledged something."""


@dataclass(frozen=True, slots=True)
class SubscriptionDetails(SubscriptionListing):
    """A subscription, and what it has before it."""

    partitions: tuple[Backlog, ...]

    @property
    def unacknowledged(self) -> int:
        """Visible records that are not acknowledged, in all partitions."""
        return sum(one.unacknowledged for one in self.partitions)


def backlog_of(
    sidecars: SidecarCache,
    state: LogState,
    topic: TopicState,
    known: SubscriptionState,
    number: int,
    visible: Visible,
) -> Backlog:
    """Return what a subscription has before it in a partition.

    Requests: 1 GET for each sealed segment behind the mark that was not looked at before.
    """
    acks = state.acks(known, TopicPartition(topic.topic_id, number))
    found = backlog.backlog_of(acks, visible.follow(sidecars, state, acks.mark))
    return Backlog(
        number,
        acks.mark,
        state.partition(TopicPartition(topic.topic_id, number)).last_stable_offset,
        len(acks.acked),
        found.records,
        found.pending,
    )


class Subscriptions:
    """Subscriptions of a log. Got as ``log.subscriptions``.

    Every call follows the log first. Requests: 1 GET when nothing is new; what changes a subscription 1
    entry.
    """

    def __init__(self, committer: Committer, sidecars: SidecarCache) -> None:
        self._committer = committer
        self._sidecars = sidecars

    def create(self, topic: str, name: str, *, start: Where = "earliest", exist_ok: bool = False) -> None:
        """Create a subscription.

        Parameters
        ----------
        start : int, str or mapping of int to int
            The first offset that it wants: "earliest", "latest" (what is committed later), one for every
            partition, or one for each of some partitions (the others: earliest). Partitions that the topic
            gets later begin at their earliest.
        exist_ok : bool
            It may exist; then it stays as it is.

        Raises
        ------
        ConflictError
            Kind ``subscription-exists``.
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
            No such topic, partition or offset; no such name.
        """
        check_flags(exist_ok=exist_ok)
        check_reader_name(name, "subscription")
        state = self._committer.refresh()
        found = state.topic(topic)
        if exist_ok and (found.topic_id, name) in state.subscriptions:
            return
        starts = tuple(
            SubscriptionStart(number, offset)
            for number, offset in _offsets(state, found, start).items()
            if offset
        )
        try:
            self._committer.commit(self._committer.intend(CreateSubscription(found.topic_id, name, starts)))
        except ConflictError as error:
            if not exist_ok or error.kind != "subscription-exists":
                raise

    def delete(self, topic: str, name: str) -> None:
        """Delete a subscription, with all that it has acknowledged.

        Raises
        ------
        NotFoundError
            Kind ``unknown-subscription``.
        AckConflictError
            Kind ``ack-pending``: a transaction that has not ended has acknowledged something.
        """
        state = self._committer.refresh()
        found, _ = self._known(state, topic, name)
        self._committer.commit(self._committer.intend(DeleteSubscription(found.topic_id, name)))

    def seek(self, topic: str, name: str, to: Where) -> None:
        """Let a subscription go on from an offset: below it everything is acknowledged, from it on nothing
        is.

        Parameters
        ----------
        to : int, str or mapping of int to int
            As ``start`` of :meth:`create`; a mapping leaves other partitions as they are.

        Raises
        ------
        NotFoundError, OffsetOutOfRangeError, InvalidInputError
            No such subscription, partition or offset.
        AckConflictError
            Kind ``ack-pending``: a transaction that has not ended has acknowledged something there.
        """
        state = self._committer.refresh()
        found, _ = self._known(state, topic, name)
        parts = tuple(
            AckedPartition(number, position=offset) for number, offset in _offsets(state, found, to).items()
        )
        acks = Acks(found.topic_id, name, AckMode.SEEK, parts)
        self._committer.commit(self._committer.intend(Write(acks=(acks,))))

    def list(self, topic: str | None = None) -> tuple[SubscriptionListing, ...]:
        """List subscriptions, of one topic or of all, by topic and name."""
        state = self._committer.refresh()
        only = None if topic is None else state.topic(topic).topic_id
        found = [
            _listing(state.topics[topic_id], name, known)
            for (topic_id, name), known in state.subscriptions.items()
            if only in (None, topic_id)
        ]
        return tuple(sorted(found, key=lambda one: (one.topic, one.subscription)))

    def describe(self, topic: str, name: str) -> SubscriptionDetails:
        """Return a subscription and what it has before it, counted from metadata alone.

        Raises
        ------
        NotFoundError
            Kinds ``unknown-topic``, ``unknown-subscription``.
        """
        state = self._committer.refresh()
        found, known = self._known(state, topic, name)
        partitions = tuple(
            backlog_of(
                self._sidecars, state, found, known, number, Visible(TopicPartition(found.topic_id, number))
            )
            for number in range(found.partitions)
        )
        short = _listing(found, name, known)
        return SubscriptionDetails(
            short.topic, name, short.created_entry, short.used_ms, short.pending_transactions, partitions
        )

    def _known(self, state: LogState, topic: str, name: str) -> tuple[TopicState, SubscriptionState]:
        found = state.topic(topic)
        return found, state.subscription(found.topic_id, name)


def _listing(topic: TopicState, name: str, known: SubscriptionState) -> SubscriptionListing:
    return SubscriptionListing(
        topic.name, name, known.created_entry, known.used_ms, tuple(sorted(known.holders()))
    )


def _offsets(state: LogState, topic: TopicState, where: Where) -> dict[int, int]:
    """Return the offset that is meant for each partition."""
    numbers = range(topic.partitions)
    if isinstance(where, Mapping):
        problems = [
            f"{repr_of(number, 80)}: {repr_of(offset, 80)} is not a partition and an offset from 0 on"
            for number, offset in where.items()
            if type(number) is not int or type(offset) is not int or offset < 0
        ]
        if problems or not where:
            raise InvalidInputError(problems or "no partition is named", kind="invalid-offset")
        for number in where:
            named_partition(state, topic.name, number)
        return dict(where)
    partitions = {number: state.partition(TopicPartition(topic.topic_id, number)) for number in numbers}
    if is_text(where) and where == "earliest":
        return {number: partition.log_start for number, partition in partitions.items()}
    if is_text(where) and where == "latest":
        return {number: partition.last_stable_offset for number, partition in partitions.items()}
    if type(where) is int and where >= 0:
        return dict.fromkeys(numbers, where)
    raise InvalidInputError(
        f"{repr_of(where, 80)} is not a place in a topic",
        kind="invalid-offset",
        hint='give "earliest", "latest", an offset from 0 on, or a mapping of partition to offset',
    )


class LiftedMark(NamedTuple):
    """A subscription whose mark in a partition is higher now."""

    topic: str
    subscription: str
    partition: int
    previous_mark: int
    mark: int
    """Every record below is acknowledged (exclusive), and at it is one that is not."""


class LiftedMarks(NamedTuple):
    """The effect of a look at all subscriptions."""

    lifted: tuple[LiftedMark, ...] = ()
    damaged: tuple[DamagedTopic, ...] = ()


def lift_marks(committer: Committer, sidecars: SidecarCache, *, dry_run: bool = False) -> LiftedMarks:
    """Acknowledge the offsets from each mark on that no reader gets.

    ``dry_run``: only say what would come of it.

    Requests: 1 GET for the sealed segment or batch table that a mark is in, and for those that it passes,
    unless they are kept; 1 entry for each subscription whose mark moves.
    """
    state = committer.refresh()
    lifted: list[LiftedMark] = []
    damaged: list[DamagedTopic] = []
    for topic_id, name in sorted(state.subscriptions):
        topic = state.topics[topic_id]
        found = attempt(
            committer, topic.name, "subscription", partial(_lift, committer, sidecars, topic, name, dry_run)
        )
        if isinstance(found, DamagedTopic):
            damaged.append(found)
        else:
            lifted += found or ()
    return LiftedMarks(tuple(lifted), tuple(damaged))


def _lift(
    committer: Committer, sidecars: SidecarCache, topic: TopicState, name: str, dry_run: bool
) -> tuple[LiftedMark, ...]:
    state = committer.state
    state.topic_of(topic.topic_id, "a subscription")
    if (topic.topic_id, name) not in state.subscriptions:
        return ()
    before, wanted, after = {}, [], {}
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        acks = state.acks(state.subscription(topic.topic_id, name), key)
        gap = _gap_at_mark(sidecars, state, key, acks)
        if len(gap):
            before[number] = acks.mark
            after[number] = acks.acknowledged(gap).mark
            wanted.append(AckedPartition(number, tuple(gap.pairs())))
    if dry_run:
        return tuple(
            LiftedMark(topic.name, name, number, mark, after[number]) for number, mark in before.items()
        )
    if not wanted:
        return ()
    acks_of_all = Acks(topic.topic_id, name, AckMode.INDIVIDUAL, tuple(wanted), tuple(wanted))
    committer.commit(committer.intend(Write(acks=(acks_of_all,))))
    state = committer.state
    known = state.subscription(topic.topic_id, name)
    return tuple(
        LiftedMark(
            topic.name, name, number, mark, state.acks(known, TopicPartition(topic.topic_id, number)).mark
        )
        for number, mark in before.items()
    )


def _gap_at_mark(sidecars: SidecarCache, state: LogState, key: TopicPartition, acks: PartitionAcks) -> Ranges:
    """Return the offsets from the mark on that are not acknowledged, up to the first one that a reader gets,
    or that is pending.
    """
    stable = state.partition(key).last_stable_offset
    held = acks.held()
    gap, position = NO_RANGES, acks.mark
    while position < stable:
        end = _end_of_segment(sidecars, state, key, position, stable)
        seen = visible_offsets(sidecars, state, key, OffsetRange(position, end)) - acks.acked
        left = (seen | held).above(position)
        stop = min(left.first_start, end) if len(left) else end
        gap |= Ranges.of([(position, stop)]) - acks.acked
        if stop < end:
            break
        position = end
    return gap


def _end_of_segment(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, offset: int, stable: int
) -> int:
    """Return the end of the sealed segment that an offset is in, or the last stable offset: so far one look
    goes.
    """
    partition = state.partition(key)
    if offset >= partition.sealed_end:
        return stable
    (part,) = sidecars.segments(state, key, OffsetRange(offset, offset + 1))
    return min(part.range.end, stable)
