"""Intents: what a caller wants committed, before anything is decided; and what became of it.

An intent's identity never changes: its id, the slot it was first sent to, and the producer identity,
sequences or application version inside its action. Deciding it again, in any process, gives the original
result or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from txnformat.core.app_versions.state import Content
from txnformat.core.entry import CommitEntry
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    Replace,
    RequestErasure,
    Trim,
)
from txnformat.core.operations import (
    DEFERRED_TIMEOUT_MS,
    TIMEOUT_MS,
    Append,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    Operation,
    PendingPartition,
    Seal,
    Spill,
    TopicSetting,
)
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionKey,
)
from txnformat.errors import TxnLogError
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, Outcome, TopicPartition

__all__ = [
    "Acks",
    "Action",
    "AllocateIds",
    "AppRef",
    "ChangeLog",
    "ChangeTopic",
    "CommitResult",
    "Done",
    "EnableFeatures",
    "EndTransaction",
    "ExpireIdle",
    "FreePartitions",
    "GroupOffsets",
    "Included",
    "Intent",
    "JoinAsMember",
    "LeaveGroup",
    "MarkVacuum",
    "OpenProducer",
    "PendingPartition",
    "ProducerRef",
    "Rejected",
    "RemoveGroup",
    "RemoveTopic",
    "ReplaceSegments",
    "ResetOffsets",
    "SealSegments",
    "SpillExtents",
    "TakeCheckpoint",
    "TopicAppend",
    "TrimTopic",
    "Undecidable",
    "Verdict",
    "Write",
    "first_offsets",
]


@dataclass(frozen=True, slots=True)
class ProducerRef:
    """The producer that appends: its id and epoch."""

    producer_id: int
    epoch: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class AppRef:
    """The application version that a write stands for."""

    namespace: str
    app_id: str
    version: int
    instance: str | None = None
    """Which run of the application it is: one that a newer run has taken over from is refused."""
    is_next: bool = False
    """The version has to be the one after the newest in the log, 0 when that knows none: nothing is missing
    there."""
    content: Content | None = None
    """The content of the write, to compare a repetition with; ids of topics that other writers create
    meanwhile are replaced."""

    @property
    def key(self) -> tuple[str, str]:
        """Return what versions are counted by."""
        return self.namespace, self.app_id

    def is_held_by(self, op: AppVersion) -> bool:
        """Whether an operation sets this version."""
        return (op.namespace, op.app_id, op.version) == (self.namespace, self.app_id, self.version)


@dataclass(frozen=True, slots=True)
class TopicAppend:
    """Uploaded records of one topic."""

    topic_id: str
    partition_count: int
    files: tuple[FileRecord, ...]
    partitions: tuple[PendingPartition, ...]
    batches: tuple[BatchRecord, ...] = ()
    table: ObjectRecord | None = None
    section: int = 0
    payload: tuple[bytes, ...] = ()
    """The bytes of the files, if the entry is to have them; empty: the files are uploaded."""


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Positions that a write commits for a group."""

    group: str
    offsets: tuple[OffsetCommit, ...] = ()
    positions: tuple[PositionCommit, ...] = ()
    generation: int | None = None
    """Generation of the member. If None, the committer is no member, or does not compare it."""
    read_uncommitted: bool = False
    """Offsets may lie beyond the last stable offset: the committer reads what is not decided."""


@dataclass(frozen=True, slots=True)
class Acks:
    """The acknowledgements of a write in a subscription.

    Offsets that hold no visible record (markers, aborted records) need no acknowledgement: an acknowledgement
    of the record at offset o covers everything after the visible record before it, too, but what is
    acknowledged already. So what follows one another becomes one range.
    """

    topic_id: str
    subscription: str
    mode: AckMode
    partitions: tuple[AckedPartition, ...]
    """Each once."""
    gaps: tuple[AckedPartition, ...] = ()
    """Ranges in ``partitions``, or parts of them, that hold no visible record; for individual
    acknowledgements only. The decider leaves out those that are acknowledged or pending by then."""

    @property
    def key(self) -> SubscriptionKey:
        """Return the subscription."""
        return self.topic_id, self.subscription


@dataclass(frozen=True, slots=True)
class Write:
    """Append, end a transaction, or both, over any number of topics, in one atomic step."""

    producer: ProducerRef | None = None
    appends: tuple[TopicAppend, ...] = ()
    end: Outcome | None = None
    app: AppRef | None = None
    create: tuple[CreateTopic, ...] = ()
    """Topics that the write creates if they are missing; if another one exists and fits, that is used."""
    apps_beside: tuple[AppRef, ...] = ()
    """Versions that the write sets besides ``app``, which alone says whether it is done; each must grow."""
    deferred: bool = False
    """Stage what is appended: it gets its offsets when the transaction commits. Every append has a batch
    table then."""
    follows: int | None = None
    """Last entry of the transaction that the writer knew; it is done if the log has a later one of the
    transaction.

    For a process that stages on the producer's behalf, and may be started twice: no other stages before it
    has answered.
    """
    prepare: bool = False
    """Let the transaction wait for an outcome that is decided elsewhere; excludes ``end``."""
    offsets: tuple[GroupOffsets, ...] = ()
    """At most one of each group; in the transaction of ``producer`` if that has a transactional id, else at
    once."""
    acks: tuple[Acks, ...] = ()
    """Acknowledgements in order; in the transaction of ``producer`` if that has a transactional id, else at
    once. A seek is always at once."""

    @property
    def payload_bytes(self) -> int:
        """Bytes of the files that the entry is to have."""
        return sum(len(data) for append in self.appends for data in append.payload)


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """Fence older instances of a transactional id, abort what they left open, and get an identity."""

    transactional_id: str
    timeout_ms: int = TIMEOUT_MS
    """Timeout of transactions with offsets."""
    deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS
    """Timeout of transactions whose records have no offsets yet."""


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Abort another producer's transaction: its time is over, or an operator says so.

    With cause TIMEOUT exactly one of the two must show that its time is over: ``store_time_ms`` says so now,
    or ``observed_entry`` is still the entry that its timeout counts from, and the actor has seen it open
    since then for at least the timeout, by a clock of its own that does not jump.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    cause: Cause
    store_time_ms: int | None = None
    """The store's time when the actor looked."""
    observed_entry: int | None = None
    force: bool = False
    """Also when it is prepared (cause OPERATOR only)."""


@dataclass(frozen=True, slots=True)
class AllocateIds:
    """Get a block of producer ids."""

    owner: str
    count: int = 1_000


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Name a snapshot that was written and read back."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class ChangeTopic:
    """Let a topic grow, or set something of it.

    Relative to what the topic is when it is decided: others may have changed it meanwhile.
    """

    topic_id: str
    partitions: int | None = None
    """How many there shall be in all."""
    add: tuple[pa.Field, ...] = ()
    widen: tuple[tuple[str, pa.DataType], ...] = ()
    """(column, its new type)."""
    settings: tuple[TopicSetting, ...] = ()
    """The settings to set."""
    unset: tuple[str, ...] = ()
    """Names of settings that shall be as by default."""
    rename: tuple[tuple[str, str], ...] = ()
    """(column, its new name)."""
    drop: tuple[str, ...] = ()
    """Names of columns."""
    schema_id: int | None = None
    """The version in which the columns to rename and drop have these names. If None, the newest."""


@dataclass(frozen=True, slots=True)
class SealSegments:
    """Name segments whose sidecars were written."""

    seal: Seal


@dataclass(frozen=True, slots=True)
class SpillExtents:
    """Name an object that takes extents above last stable offsets, and was written."""

    spill: Spill


@dataclass(frozen=True, slots=True)
class ExpireIdle:
    """Forget what the operation names, but what was used since."""

    expire: Expire
    cutoff_ms: int
    """Log time up to which producers and blocks must have been left alone (inclusive)."""
    id_cutoff_ms: int
    """Likewise transactional ids."""
    group_cutoff_ms: int = -1
    """Likewise groups."""


@dataclass(frozen=True, slots=True)
class EnableFeatures:
    """Let readers, writers and maintenance need features besides those that they need already."""

    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """Change settings of the whole log."""

    truncate_older_than_ms: int
    """Maintenance deletes commit entries older than this; -1: entries are kept."""


@dataclass(frozen=True, slots=True)
class TrimTopic:
    """Move log starts."""

    trim: Trim
    seen: tuple[int, ...]
    """The log starts that the numbers of the trim were counted from, one for each of its partitions."""
    unpinned: tuple[int, ...] | None = None
    """For each of its partitions the offset below which readers hold nothing back. If None, they hold nothing
    back anywhere."""
    revisions: tuple[int, ...] = ()
    """Likewise the revisions; empty: of partitions that were never compacted."""


@dataclass(frozen=True, slots=True)
class FreePartitions:
    """End what undecided transactions have below some offsets of a topic, so that these can be sealed and
    removed.
    """

    topic_id: str
    ends: tuple[tuple[int, int], ...]
    """(partition, offset below which (exclusive) no undecided transaction may begin), ascending; at most the
    log end."""
    prepared: tuple[str, ...] = ()
    """Transactional ids of prepared transactions that may be among them: they lose what they have appended to
    the partition."""


@dataclass(frozen=True, slots=True)
class ReplaceSegments:
    """Put compacted segments into the place of listed ones."""

    replace: Replace
    log_starts: Mapping[int, int]
    """The log start of each partition, as its sums were counted."""


@dataclass(frozen=True, slots=True)
class MarkVacuum:
    """Let no operation name an object any more that was born below an entry."""

    floor: int


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """Delete a topic that no undecided transaction touches."""

    topic_id: str
    force: bool = False
    """Abort the open transactions that touch it."""
    prepared: tuple[str, ...] = ()
    """Transactional ids of prepared transactions that may touch it: they lose what they have in the topic."""


@dataclass(frozen=True, slots=True)
class JoinAsMember:
    """Become the one member of a group, and fence the member before."""

    group: str
    member: str
    session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Be a group's member no more."""

    group: str
    generation: int


@dataclass(frozen=True, slots=True)
class ResetOffsets:
    """Set positions of a group that has no live member."""

    offsets: GroupOffsets
    store_time_ms: int
    """The store's time when the actor looked."""
    force: bool = False
    """Also when it has one, which is then fenced."""


@dataclass(frozen=True, slots=True)
class RemoveGroup:
    """Delete a group without a live member and without pending positions."""

    group: str
    store_time_ms: int
    """The store's time when the actor looked."""
    force: bool = False
    """Also when it has a live member, which is then fenced."""


Action = (
    ExpireIdle
    | EnableFeatures
    | ChangeLog
    | TrimTopic
    | FreePartitions
    | MarkVacuum
    | RemoveTopic
    | ReplaceSegments
    | RequestErasure
    | AdvanceErasure
    | CompleteErasure
    | AbandonErasure
    | JoinAsMember
    | LeaveGroup
    | ResetOffsets
    | RemoveGroup
    | Write
    | OpenProducer
    | EndTransaction
    | AllocateIds
    | TakeCheckpoint
    | SealSegments
    | SpillExtents
    | CreateTopic
    | ChangeTopic
    | CreateSubscription
    | DeleteSubscription
)


@dataclass(frozen=True, slots=True)
class Intent:
    """One thing to commit."""

    intent_id: str
    first_slot: int
    """The first slot that it is sent to: older entries cannot hold it."""
    action: Action


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of an intent; the same from every process and at every time."""

    entry: int
    """Entry that holds it."""
    timestamp_ms: int | None
    """That entry's log time; None when only the window answered."""
    operations: tuple[Operation, ...]
    """Its operations in that entry; empty when only the window answered."""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """First offset of what it gave offsets to in each partition."""
    repeated: bool = False
    """True when it had been committed before this call."""

    @classmethod
    def of(cls, entry: CommitEntry, intent_id: str, *, repeated: bool) -> CommitResult:
        """Return the result of an intent that ``entry`` holds."""
        index = entry.intents.index(intent_id)
        operations = tuple(op for op in entry.operations if op.intent == index)
        return cls(entry.entry, entry.timestamp_ms, operations, first_offsets(operations), repeated)

    @property
    def end(self) -> EndTxn | None:
        """Return the transaction's end among the operations, if it is there."""
        return next((op for op in self.operations if isinstance(op, EndTxn)), None)


def first_offsets(operations: Iterable[Operation]) -> dict[TopicPartition, int]:
    """Return the first offset that operations give records in each partition."""
    offsets: dict[TopicPartition, int] = {}
    for op in operations:
        if isinstance(op, Append):
            for part in op.partitions:
                offsets.setdefault(TopicPartition(op.topic_id, part.partition), part.base_offset)
        elif isinstance(op, EndTxn):
            for placed in op.placed:
                offsets.setdefault(placed.topic_partition, placed.base_offset)
    return offsets


@dataclass(frozen=True, slots=True)
class Included:
    """The intent's operations are in the entry under construction."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """The log holds it already; the result is the original one."""

    entry: int
    offsets: dict[TopicPartition, int] | None = None
    """First offsets, when the sequence window knows them; else the entry is read."""
    intent_id: str | None = None
    """The id under which the entry holds it, when that is known."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """It can never be applied as it is."""

    error: TxnLogError


@dataclass(frozen=True, slots=True)
class Undecidable:
    """The window no longer reaches back to its first slot: whether it landed is not known."""

    window_first: int


Verdict = Included | Done | Rejected | Undecidable
