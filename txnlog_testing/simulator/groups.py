"""Clients of a simulated history that have to do with consumer groups: members, committers, and makers of
output.

Each request may be outdated by the time that it is decided, and often is; the judges know the correct
outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from txnformat.core.groups.operations import NO_OFFSET, JoinGroup, OffsetCommit, PositionCommit
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import (
    Action,
    CommitResult,
    GroupOffsets,
    Intent,
    JoinAsMember,
    LeaveGroup,
    ProducerRef,
    RemoveGroup,
    ResetOffsets,
    Write,
)
from txnformat.core.lifecycle.idle import expirable
from txnformat.core.state import LogState
from txnformat.errors import TxnLogError
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.clients import BulkClient, Client
from txnlog_testing.simulator.ledgers.groups import Claim
from txnlog_testing.simulator.transactions import TIMEOUTS, Decisions, TransactionalClient

__all__ = [
    "GROUP_HITS",
    "KINDS",
    "BatchTransformingClient",
    "CommittingClient",
    "ForgettingClient",
    "PositioningClient",
    "TransformingClient",
    "group_clients",
]

GROUP_HITS = frozenset(
    {
        "answer group-active",
        "answer member-fenced",
        "answer offset-out-of-range",
        "answer offsets-changed",
        "answer offsets-held",
        "answer offsets-pending",
        "group deleted",
        "group expired",
        "group reset",
        "hold broken",
        "member fenced",
        "output and position agree",
        "position committed",
        "position pending",
        "positions ended: abort by init",
        "positions ended: abort by operator",
        "positions ended: abort by timeout",
        "positions ended: commit by producer",
        "transactional id expired",
    }
)
"""Events that histories with groups must have met."""

GROUPS = ("g-0", "g-0", "g-0", "g-1")
"""Groups in which every client acts without regard to the others."""
INPUT, OUTPUT = "orders", "audit"
INPUT_MAX = 4
"""Most offsets that one output is made of."""
RETENTION_MS = 6_000
"""After which idle groups and ids are forgotten here."""

KINDS = (
    ("comparing", "comparing", "batch", "placing", "committing", "forgetting"),
    ("member", "member", "member", "sending"),
    ("placing", "placing", "placing", "committing", "forgetting"),
)
"""The kinds from which the clients of one history are drawn: few kinds each, so that they meet."""

_NONE = GroupState()


def _some_offsets(client: Client, state: LogState, generation: int | None) -> GroupOffsets | None:
    """Return positions that a client commits for one of the common groups; None while there is no topic."""
    rng = client.rng
    topics = sorted(state.topics.values(), key=lambda one: (one.created_entry, one.topic_id))[:2]
    if not topics:
        return None
    name = rng.choice(GROUPS)
    group = state.groups.get(name, _NONE)
    offsets = []
    for topic in topics[: rng.choice((1, 1, 1, 2))]:
        # Few keys, so that transactions meet.
        key = TopicPartition(topic.topic_id, 0)
        partition = state.partition(key)
        offset = rng.choice(
            (0, partition.last_stable_offset, partition.last_stable_offset, partition.log_end)
        )
        expected = rng.choice((*4 * (None,), *3 * (group.value(key),), 1))
        offsets.append(
            OffsetCommit(*key, offset, "", None if expected is None else int(expected))  # of a partition
        )
    positions: tuple[PositionCommit, ...] = ()
    if rng.random() < 0.5:
        before = rng.choice((None, None, str(group.value("elsewhere"))))
        positions = (PositionCommit("elsewhere", str(rng.randint(1, 1_000)), "", before),)
        offsets = offsets[: rng.randint(0, len(offsets))]
    return GroupOffsets(name, tuple(offsets), positions, generation, read_uncommitted=rng.random() < 0.2)


@dataclass(slots=True, eq=False)
class PositioningClient(TransactionalClient):
    """Commits positions of the common groups in transactions, mostly beside records."""

    def beside(self, state: LogState, write: Write) -> Write | None:
        """Return a write with positions, or with nothing else."""
        offsets = _some_offsets(self, state, None)
        if offsets is None or self.rng.random() < 0.2:
            return write
        if self.rng.random() < 0.3:
            write = replace(write, appends=(), deferred=False)
        return replace(write, offsets=(offsets,))

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Go on after a no about positions; mostly without an abort."""
        if error.kind.startswith("offset"):
            self.must_abort = self.is_open and (
                error.kind == "offsets-hold-broken" or self.rng.random() < 0.2
            )
            return
        TransactionalClient.failed(self, intent, error)


@dataclass(slots=True, eq=False)
class CommittingClient(Client):
    """A member of the common groups, or an operator: joins, leaves, commits outside of transactions, resets,
    deletes.
    """

    now_ms: Callable[[], int] = int
    """Returns the store's time."""
    joined: dict[str, int] = field(default_factory=dict)
    """Generation by group."""

    def plan(self, state: LogState) -> list[Action]:
        """Return one of these."""
        name = self.rng.choice(GROUPS)
        generation = self.joined.get(name)
        choice = self.rng.random()
        force = self.rng.random() < 0.2
        if choice < 0.15:
            return [JoinAsMember(name, f"member {self.rng.randint(0, 9)}", self.rng.choice((500, 10_000)))]
        if choice < 0.2 and generation is not None:
            return [LeaveGroup(name, generation)]
        if choice < 0.27:
            return [RemoveGroup(name, self.now_ms(), force=force)]
        offsets = _some_offsets(self, state, None)
        if offsets is None:
            return []
        if choice < 0.35:
            offsets = replace(
                offsets,
                offsets=tuple(replace(one, expected=None) for one in offsets.offsets),
                read_uncommitted=False,
            )
            return [ResetOffsets(offsets, self.now_ms(), force=force)]
        if choice < 0.6:
            offsets = replace(offsets, generation=self.joined.get(offsets.group))
        return [Write(offsets=(offsets,))] if choice < 0.9 else []

    def succeeded(self, intent: Intent, result: CommitResult) -> None:
        """Note the generation."""
        for op in result.operations:
            if isinstance(op, JoinGroup) and op.member is not None:
                self.joined[op.group] = op.generation

    def crashed(self) -> None:
        """Forget the generations: a process that starts anew is no member."""
        Client.crashed(self)
        self.joined = {}


@dataclass(slots=True, eq=False)
class ForgettingClient(Client):
    """Forgets what was idle for long, as maintenance does."""

    now_ms: Callable[[], int] = int

    def plan(self, state: LogState) -> list[Action]:
        """Return what is idle; the view may be an old one."""
        if self.rng.random() < 0.4:
            return []
        wanted = expirable(
            state,
            self.now_ms(),
            producer_retention_ms=RETENTION_MS,
            transactional_id_retention_ms=RETENTION_MS,
            group_retention_ms=RETENTION_MS,
        )
        if wanted is None:
            return []
        # Output made of the input of the others' groups would be made once more.
        groups = tuple(name for name in wanted.expire.groups if name in GROUPS)
        wanted = replace(wanted, expire=replace(wanted.expire, groups=groups))
        return [wanted] if any((groups, wanted.expire.transactional_ids, wanted.expire.producers)) else []


@dataclass(slots=True, eq=False)
class TransformingClient(TransactionalClient):
    """Consumes, transforms, produces: what it makes of its input, and how far that goes, in one transaction.

    Other instances do the same for the same group: those with its transactional id fence it, the others are
    kept out by comparing positions, or by the generation of the group's one member.
    """

    group: str = "made"
    is_member: bool = False
    """Whether it is safe by the group's generation, else by comparing."""
    claim: Callable[[str, Claim], None] | None = None
    """Tells the judge what a record is made of."""
    generation: int | None = None
    key: TopicPartition | None = None
    """The input of the open transaction."""
    base: int = NO_OFFSET
    """The committed position that it began with."""
    position: int = 0
    """How far its records go."""
    owed: bool = False
    """Whether the position is still to be sent."""
    asked: tuple[TopicPartition, int, int] | None = None
    """The write that waits: its input partition, the committed position, and the end of its input."""

    def plan(self, state: LogState) -> list[Action]:
        """Join if it must; send the position that it owes; else what transactional producers do."""
        usable = self.ref is not None and not self.must_abort and not self.is_prepared
        if (
            usable
            and self.is_member
            and not self.is_open
            and (self.generation is None or self.rng.random() < 0.03)
        ):
            return [JoinAsMember(self.group, self.transactional_id, 5_000)]
        if usable and self.owed and self.key is not None:
            self.asked = (self.key, self.base, self.position)
            end = Outcome.COMMIT if self.rng.random() < 0.7 else None
            return [Write(self.ref, end=end, offsets=(self._offsets(*self.asked),))]
        return TransactionalClient.plan(self, state)

    def _some_partitions(self, state: LogState) -> list[TopicPartition]:
        return [TopicPartition(state.topic_ids[OUTPUT], 0)] if OUTPUT in state.topic_ids else []

    def _offsets(self, key: TopicPartition, base: int, end: int) -> GroupOffsets:
        expected = None if self.is_member else base
        return GroupOffsets(self.group, (OffsetCommit(*key, end, "", expected),), (), self.generation)

    def beside(self, state: LogState, write: Write) -> Write | None:
        """Return a write of what is made of more input, with the position after it, or a part of both."""
        found = self._more(state)
        if found is None:
            return None
        key, base, start, end = found
        (append,) = write.appends
        (part,) = append.partitions
        assert self.claim is not None
        self.claim(part.digest, Claim(self.group, key, start, end))
        self.asked = (key, base, end)
        if write.end is None and not write.prepare and self.rng.random() < 0.4:
            return write  # the position follows
        return replace(write, offsets=(self._offsets(key, base, end),))

    def _more(self, state: LogState) -> tuple[TopicPartition, int, int, int] | None:
        """Return what to read: (partition, committed position, from here, to there); None: nothing is to be
        read.
        """
        if self.is_open and self.key is not None:
            key, base, start = self.key, self.base, self.position
        else:
            if INPUT not in state.topic_ids:
                return None
            key = TopicPartition(state.topic_ids[INPUT], self.rng.randint(0, 1))
            group = state.groups.get(self.group, _NONE)
            # A stable read: a client with a pending position there may still move it.
            if group.pending_in(key) or (self.is_member and group.generation != self.generation):
                return None
            base = int(group.value(key))
            start = max(base, 0)
        stable = state.partition(key).last_stable_offset
        if stable <= start:
            return None
        return key, base, start, self.rng.randint(start + 1, min(stable, start + INPUT_MAX))

    def succeeded(self, intent: Intent, result: CommitResult) -> None:
        """Note how far it has come, and the generation."""
        action = intent.action
        if isinstance(action, JoinAsMember):
            for op in result.operations:
                if isinstance(op, JoinGroup):
                    self.generation = op.generation
            return
        TransactionalClient.succeeded(self, intent, result)
        if not isinstance(action, Write) or action.end is not None or self.asked is None:
            return
        if action.appends or action.offsets:
            self.key, self.base, self.position = self.asked
            self.owed = not action.offsets

    def failed(self, intent: Intent, error: TxnLogError) -> None:
        """Go on: who is no member any more joins again; who has lost the race aborts, and reads the position
        again.
        """
        if error.kind == "member-fenced":
            self.generation = None
        if error.kind in (
            "member-fenced",
            "offsets-changed",
            "offsets-held",
            "offsets-pending",
            "offsets-hold-broken",
        ):
            self.must_abort = self.is_open
            return
        TransactionalClient.failed(self, intent, error)

    def crashed(self) -> None:
        """Forget everything; the next instance reads the committed position."""
        TransactionalClient.crashed(self)
        self.generation, self.asked = None, None

    def _begin(self, ref: ProducerRef) -> None:
        TransactionalClient._begin(self, ref)
        self.key, self.base, self.position, self.owed = None, NO_OFFSET, 0, False


@dataclass(slots=True, eq=False)
class BatchTransformingClient(Client):
    """Consumes, transforms, produces without transactions: records and compared position are one entry."""

    group: str = "made"
    claim: Callable[[str, Claim], None] | None = None

    def plan(self, state: LogState) -> list[Action]:
        """Return what is made of some input, with the position after it."""
        if INPUT not in state.topic_ids or OUTPUT not in state.topic_ids:
            return []
        key = TopicPartition(state.topic_ids[INPUT], self.rng.randint(0, 1))
        base = int(state.groups.get(self.group, _NONE).value(key))
        start, stable = max(base, 0), state.partition(key).last_stable_offset
        if stable <= start:
            return []
        end = self.rng.randint(start + 1, min(stable, start + INPUT_MAX))
        append = self._append(state, [TopicPartition(state.topic_ids[OUTPUT], 0)], lambda _: -1)
        assert self.claim is not None
        self.claim(append.partitions[0].digest, Claim(self.group, key, start, end))
        commit = OffsetCommit(*key, end, "", base)
        return [Write(appends=(append,), offsets=(GroupOffsets(self.group, (commit,)),))]


def group_clients(
    rng: random.Random,
    new_id: Callable[[], str],
    decisions: Decisions,
    put: Callable[[str, bytes], None],
    claims: dict[str, Claim],
    now_ms: Callable[[], int],
    kinds: tuple[str, ...],
) -> list[Client]:
    """Return what one process has to do with groups: some clients of these kinds."""
    timeouts = TIMEOUTS[2:]

    def transforming(name: str, *, is_member: bool) -> TransformingClient:
        return TransformingClient(
            rng, new_id, [], False, f"{name}-{rng.randint(0, 1)}", decisions, put, timeouts=timeouts,
            group=f"{name}-group", is_member=is_member, claim=claims.__setitem__,
        )  # fmt: skip

    found: list[Client] = []
    for _ in range(rng.randint(2, 4)):
        match rng.choice(kinds):
            case "comparing":
                found.append(transforming("comparing", is_member=False))
            case "member":
                found.append(transforming("member", is_member=True))
            case "batch":
                found.append(
                    BatchTransformingClient(rng, new_id, group="comparing-group", claim=claims.__setitem__)
                )
            case "sending":
                found.append(BulkClient(rng, new_id, app_id=new_id()))
            case "placing":
                name = f"placing-{rng.randint(0, 2)}"
                found.append(
                    PositioningClient(
                        rng,
                        new_id,
                        [],
                        False,
                        name,
                        decisions,
                        put,
                        timeouts=timeouts,
                        one_shots=0.2,
                        ends=0.4,
                    )
                )
            case "forgetting":
                found.append(ForgettingClient(rng, new_id, now_ms=now_ms))
            case _:
                found.append(CommittingClient(rng, new_id, now_ms=now_ms))
    return found
