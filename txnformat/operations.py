"""The operations of a commit entry: plain values. Their JSON form is in :mod:`txnformat.operation_codec`.

An operation says what *happened*, with every offset assigned: folding it needs no decision. Every operation
carries ``intent``: the index, in its entry's list of intents, of the intent that it belongs to, so that
whoever looks for the result of an intent finds it in the entry, from any process.

Reserved names (not built yet; an entry that contains one is refused as an unknown feature) are listed in the
specification.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnformat.ack_operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.app_versions import Content
from txnformat.group_operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, Outcome, SegmentRecord, TopicPartition

__all__ = [
    "AllocateProducerIds",
    "AlterTopic",
    "AppVersion",
    "Append",
    "AppendedPartition",
    "Cause",
    "Checkpoint",
    "CreateTopic",
    "EndTxn",
    "Expire",
    "InitProducer",
    "Marker",
    "Operation",
    "PendingPartition",
    "PlacedPartition",
    "PrepareTxn",
    "Seal",
    "SealedPartition",
    "SealedSegment",
    "Stage",
    "Upgrade",
]


TIMEOUT_MS = 60_000
"""Timeout of a transaction with offsets, unless its producer asks for another (Kafka's transaction.timeout.ms)."""
DEFERRED_TIMEOUT_MS = 24 * 3_600_000
"""Timeout of a transaction whose records have no offsets yet."""


class Cause(StrEnum):
    """Who ended a transaction."""

    PRODUCER = "producer"
    """The producer itself."""
    INIT = "init"
    """A newer instance of its transactional id, when it opened."""
    TIMEOUT = "timeout"
    """Anybody, once its time was over."""
    OPERATOR = "operator"
    """Somebody who was asked to: a person with a tool, or a job that cleans up after its predecessor."""


@dataclass(frozen=True, slots=True)
class Marker:
    """One partition's end of a transaction; it takes one offset, as in Kafka."""

    topic_id: str
    partition: int
    offset: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition that the marker is in."""
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The features that a log needs, as whole lists (entry 0 holds the initial ones)."""

    reader: tuple[str, ...]
    writer: tuple[str, ...]
    maintenance: tuple[str, ...]
    max_transaction_timeout_ms: int | None = None
    """Longest timeout that a producer may ask for, of transactions with offsets; None: as before."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic comes to be, with empty partitions 0 to ``partitions`` - 1."""

    topic_id: str
    name: str
    directory: str
    partitions: int
    fields: tuple[object, ...]
    """The Arrow schema as a JSON list of fields (:mod:`txnformat.schema`)."""
    key_columns: tuple[str, ...]
    timestamp_column: str | None
    intent: int = 0


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """A topic has grown: more partitions, another version of its schema, or both."""

    topic_id: str
    partitions: int
    """All of them, from here on; new ones are empty."""
    schema_id: int
    """Of the newest version from here on."""
    fields: tuple[object, ...] | None
    """That version, if it is new (as in CreateTopic); None: the schema stays."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class InitProducer:
    """A producer opens: its transactional id has this producer id for life, and from here on this epoch."""

    transactional_id: str
    producer_id: int
    epoch: int
    aborted: tuple[Marker, ...] = ()
    """ABORT markers of the id's transaction that was open, at ``epoch`` - 1; empty when none was."""
    timeout_ms: int = TIMEOUT_MS
    """From a transaction's first append on, anybody may end it after this time."""
    deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS
    """Likewise from its last stage on."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A block of producer ids for one process; ids are never given twice."""

    owner: str
    first: int
    """Inclusive."""
    last: int
    """Inclusive."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class AppendedPartition:
    """What an append adds to one partition: ``records`` offsets from ``base_offset`` on."""

    partition: int
    base_offset: int
    records: int
    batch_count: int
    base_sequence: int
    """Sequence of the first record; -1 without a producer."""
    digest: str
    """16 hex digits over the content (files and row groups): tells a repeat from a fork."""
    size: int
    """Compressed bytes of the batches."""
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Append:
    """Records of one topic get their offsets.

    ``batches`` are in log order: within a partition, a batch's base offset is the partition's ``base_offset``
    plus the records of the batches before it. A batch of a partition that ``partitions`` does not name is not
    part of the log (a repeated append, of which that partition was known already). When there are many
    batches, ``batches`` is empty, and ``table`` with ``section`` says which rows of which object hold them.
    """

    topic_id: str
    producer_id: int
    """-1: a bulk append without a producer."""
    epoch: int
    transactional_id: str | None
    partition_count: int
    """Number of partitions that the writer hashed with."""
    files: tuple[FileRecord, ...]
    partitions: tuple[AppendedPartition, ...]
    batches: tuple[BatchRecord, ...] = ()
    table: ObjectRecord | None = None
    section: int = 0
    intent: int = 0


@dataclass(frozen=True, slots=True)
class PendingPartition:
    """What an append or a stage brings for one partition; an entry gives it its offsets."""

    partition: int
    records: int
    batch_count: int
    base_sequence: int
    """Sequence of the first record; -1 without a producer."""
    digest: str
    """As in AppendedPartition."""
    size: int
    """Compressed bytes of the batches."""
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Uploaded records of one topic belong to a transaction that is open, without offsets: nobody waits for them.

    Rows ``section`` of the batch table ``table`` are its batches. Those of partitions that ``partitions`` does not name
    are not part of the log, as in an append.
    """

    topic_id: str
    producer_id: int
    epoch: int
    transactional_id: str
    partition_count: int
    """Number of partitions that the writer hashed with."""
    files: tuple[FileRecord, ...]
    partitions: tuple[PendingPartition, ...]
    table: ObjectRecord
    section: int = 0
    intent: int = 0


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """Where a commit puts all that its transaction has staged for one partition: in the order of the stages."""

    topic_id: str
    partition: int
    base_offset: int
    records: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class PrepareTxn:
    """The open transaction waits for an outcome that is decided elsewhere; nothing joins it any more."""

    transactional_id: str
    producer_id: int
    epoch: int
    intent: int = 0


@dataclass(frozen=True, slots=True)
class EndTxn:
    """A transaction ends; the id's next epoch is ``epoch`` + 1."""

    transactional_id: str
    producer_id: int
    epoch: int
    outcome: Outcome
    cause: Cause
    markers: tuple[Marker, ...]
    placed: tuple[PlacedPartition, ...] = ()
    """Offsets of what was staged; empty when nothing was, and when it aborts."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class AppVersion:
    """An application's version: the exactly-once key of a batch engine."""

    namespace: str
    app_id: str
    version: int
    intent: int = 0
    instance: str | None = None
    """Which run of the application it was; None: it does not say."""
    content: Content | None = None
    """What it wrote; None: it does not say. No part of the state: a repetition reads the entry."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A snapshot of the state after ``entry`` exists and was read back."""

    entry: int
    key: str
    size: int
    sha256: str
    digest: str
    """sha256 of the canonical uncompressed state."""
    intent: int = 0


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """What a segment holds of one partition: offsets [start_offset, end_offset)."""

    partition: int
    start_offset: int
    """Where the partition's sealed part has ended so far."""
    end_offset: int
    """Exclusive; at most the last stable offset."""
    batches: int
    """Rows of the .index."""
    markers: int
    """Rows of .markers."""
    aborted: int
    """Entries of .txnindex: aborted transactions that overlap the offsets."""
    records: int
    size: int
    """Compressed bytes of the records."""
    aborted_records: int
    aborted_size: int
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment and its partitions, in the order in which its sidecars hold them."""

    record: SegmentRecord
    partitions: tuple[SealedPartition, ...]


@dataclass(frozen=True, slots=True)
class Seal:
    """Offset ranges move from the state into sidecars; what only their extents needed leaves the state.

    With ``segment_list``, that object describes all segments numbered below ``listed_segments``, and those leave the
    state as well.
    """

    segments: tuple[SealedSegment, ...]
    segment_list: ObjectRecord | None = None
    listed_segments: int = 0
    intent: int = 0


@dataclass(frozen=True, slots=True)
class Expire:
    """What nobody has used for long leaves the state: transactional ids, producers without one, blocks of ids."""

    transactional_ids: tuple[str, ...]
    producers: tuple[int, ...]
    """Ids of producers without a transactional id, ascending."""
    blocks: tuple[int, ...]
    """First ids of blocks, ascending. Ids that were not handed out yet stay good; only whose they are is forgotten."""
    groups: tuple[str, ...] = ()
    intent: int = 0


Operation = (
    Upgrade
    | CreateTopic
    | AlterTopic
    | InitProducer
    | AllocateProducerIds
    | Append
    | Stage
    | PrepareTxn
    | EndTxn
    | AppVersion
    | Checkpoint
    | Seal
    | Expire
    | JoinGroup
    | CommitOffsets
    | DeleteGroup
    | CreateSubscription
    | DeleteSubscription
    | Ack
)
