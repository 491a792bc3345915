"""The operations of a commit entry, each declared once: its fields here are its JSON object's, see
:mod:`txnformat.core.operation_codec`.

An operation says what *happened*, with every offset assigned: folding it needs no decision. Every operation
carries ``intent``: the index, in its entry's list of intents, of the intent that it belongs to, so that
any process that looks for the result of an intent finds it in the entry.

Reserved names (not built yet; an entry that contains one is refused as an unknown feature) are listed in the
specification.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from txnformat.core.app_versions.state import INSTANCE_BYTES_MAX, Content
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
from txnformat.core.subscriptions.operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.field_types import (
    FEATURE,
    LEFT_OUT,
    OLDER_LACK,
    Count,
    Digest16,
    Int32,
    Item,
    OrMinusOne,
    PartitionCount,
    PartitionNumber,
    Positive,
    PositiveInt32,
    SchemaId,
    Sha256,
    Size,
    Text,
    Time,
    TimeoutMs,
    TopicName,
    TransactionalId,
    Uuid,
    bounded,
)
from txnformat.types import (
    BatchRecord,
    FileRecord,
    ObjectRecord,
    Outcome,
    SegmentListRecord,
    SegmentRecord,
    TopicPartition,
)

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
    "GiveUp",
    "InitProducer",
    "Marker",
    "Operation",
    "PendingPartition",
    "PlacedPartition",
    "PrepareTxn",
    "Seal",
    "SealedPartition",
    "SealedSegment",
    "Spill",
    "SpilledPartition",
    "Stage",
    "TopicSetting",
    "Upgrade",
]


TIMEOUT_MS = 60_000
"""Timeout of a transaction with offsets, unless its producer asks for another (Kafka's
transaction.timeout.ms)."""
DEFERRED_TIMEOUT_MS = 24 * 3_600_000
"""Timeout of a transaction whose records have no offsets yet."""

Files = Annotated[tuple[FileRecord, ...], Meta(min_length=1, description="at least one file")]
Instance = Annotated[str, bounded(INSTANCE_BYTES_MAX)]


class Cause(StrEnum):
    """The cause of a transaction's end."""

    PRODUCER = "producer"
    """The producer itself."""
    INIT = "init"
    """A newer instance of its transactional id, when it opened."""
    TIMEOUT = "timeout"
    """Any process, once its time was over."""
    OPERATOR = "operator"
    """An operator with a tool, or a job that cleans up after its predecessor."""


class Marker(Struct, frozen=True, gc=False):
    """One partition's end of a transaction; it takes one offset, as in Kafka."""

    topic_id: Uuid
    partition: PartitionNumber
    offset: Count

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition that the marker is in."""
        return TopicPartition(self.topic_id, self.partition)


class Upgrade(Struct, frozen=True, tag_field="operation", tag="upgrade"):
    """The features that a log needs, as whole lists (entry 0 holds the initial ones)."""

    reader: tuple[Item, ...]
    writer: tuple[Item, ...]
    maintenance: tuple[Item, ...]
    max_transaction_timeout_ms: TimeoutMs | None = None
    """Longest timeout that a producer may ask for, of transactions with offsets. If None, as before."""
    intent: Count = 0
    truncate_older_than_ms: Annotated[OrMinusOne | None, LEFT_OUT] = None
    """Maintenance deletes commit entries older than this; -1: entries are kept; None: no change."""


class TopicSetting(Struct, frozen=True, gc=False):
    """A setting of a topic that is not as it is by default."""

    name: Item
    value: OrMinusOne | Text


class CreateTopic(Struct, frozen=True, gc=False, tag_field="operation", tag="create_topic"):
    """A topic comes to be, with empty partitions 0 to ``partitions`` - 1."""

    topic_id: Uuid
    name: TopicName
    directory: Text
    partitions: PartitionCount
    fields: tuple[Any, ...]
    """The Arrow schema as a JSON list of fields (:mod:`txnformat.core.topics.schema`)."""
    key_columns: tuple[Item, ...]
    timestamp_column: Text | None = None
    intent: Count = 0
    settings: Annotated[tuple[TopicSetting, ...], LEFT_OUT] = ()
    """The settings, by name, ascending."""


class AlterTopic(Struct, frozen=True, tag_field="operation", tag="alter_topic"):
    """A topic has grown or has other settings: more partitions, another version of its schema, settings, or
    several of these.
    """

    topic_id: Uuid
    partitions: PartitionCount
    """All of them, from here on; new ones are empty."""
    schema_id: SchemaId
    """Id of the newest version from here on."""
    fields: tuple[Any, ...] | None = None
    """The schema of that version, if it is new (as in CreateTopic). If None, the schema stays."""
    intent: Count = 0
    settings: Annotated[tuple[TopicSetting, ...] | None, LEFT_OUT] = None
    """All of them from here on, by name, ascending. If None, they stay."""
    places: Annotated[tuple[Int32, ...], LEFT_OUT] = ()
    """The place of each of ``fields``, if columns of the version before are dropped or get other names. If
    empty, all of them stay, and what is behind them is new."""


class InitProducer(Struct, frozen=True, tag_field="operation", tag="init_producer"):
    """A producer opens: its transactional id has this producer id for life, and from here on this epoch."""

    transactional_id: TransactionalId
    producer_id: Count
    epoch: Count
    aborted: tuple[Marker, ...] = ()
    """ABORT markers of the id's transaction that was open, at ``epoch`` - 1; empty when none was."""
    timeout_ms: Annotated[TimeoutMs, OLDER_LACK] = TIMEOUT_MS
    """From a transaction's first append on, any client may end it after this time."""
    deferred_timeout_ms: Annotated[TimeoutMs, OLDER_LACK] = DEFERRED_TIMEOUT_MS
    """Likewise from its last stage on."""
    intent: Count = 0


class AllocateProducerIds(Struct, frozen=True, tag_field="operation", tag="allocate_producer_ids"):
    """A block of producer ids for one process; ids are never given twice."""

    owner: Text
    first: Count
    """Inclusive."""
    last: Count
    """Inclusive."""
    intent: Count = 0


class PendingPartition(Struct, frozen=True, gc=False):
    """The part of an append or a stage in one partition; an entry gives it its offsets."""

    partition: PartitionNumber
    records: Positive
    batch_count: PositiveInt32
    base_sequence: Count
    """Sequence of the first record; -1 without a producer."""
    digest: Digest16
    """16 hex digits over the content (files and row groups): tells a repeat from a fork."""
    size: Size
    """Compressed bytes of the batches."""
    min_timestamp_ms: Time
    max_timestamp_ms: Time


class AppendedPartition(PendingPartition, frozen=True, gc=False, kw_only=True):
    """The part of an append in one partition: ``records`` offsets from ``base_offset`` on."""

    base_offset: Count
    base_sequence: OrMinusOne


class Append(Struct, frozen=True, tag_field="operation", tag="append", kw_only=True):
    """Records of one topic get their offsets.

    ``batches`` are in log order: within a partition, a batch's base offset is the partition's ``base_offset``
    plus the records of the batches before it. A batch of a partition that ``partitions`` does not name is not
    part of the log (earlier versions appended the rest of an append that was known in part). When there are
    many batches, ``batches`` is empty, and ``table`` with ``section`` says which rows of which object hold
    them.
    """

    topic_id: Uuid
    producer_id: OrMinusOne
    """-1: a bulk append without a producer."""
    epoch: OrMinusOne
    transactional_id: TransactionalId | None = None
    partition_count: PartitionCount
    """Number of partitions that the writer hashed with."""
    files: Files
    partitions: tuple[AppendedPartition, ...]
    batches: Annotated[tuple[BatchRecord, ...], LEFT_OUT] = ()
    table: Annotated[ObjectRecord | None, LEFT_OUT] = None
    section: Annotated[Int32, LEFT_OUT] = 0
    intent: Count = 0


class Stage(Struct, frozen=True, tag_field="operation", tag="stage"):
    """Uploaded records of one topic belong to a transaction that is open, without offsets: no reader waits
    for them.

    Rows ``section`` of the batch table ``table`` are its batches. Those of partitions that ``partitions``
    does not name are not part of the log, as in an append.
    """

    topic_id: Uuid
    producer_id: Count
    epoch: Count
    transactional_id: TransactionalId
    partition_count: PartitionCount
    """Number of partitions that the writer hashed with."""
    files: Files
    partitions: Annotated[
        tuple[PendingPartition, ...], Meta(min_length=1, description="at least one partition")
    ]
    table: ObjectRecord
    section: Int32 = 0
    intent: Count = 0


class PlacedPartition(Struct, frozen=True, gc=False):
    """Where a commit puts all that its transaction has staged for one partition: in the order of the
    stages.
    """

    topic_id: Uuid
    partition: PartitionNumber
    base_offset: Count
    records: Positive

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic_id, self.partition)


class PrepareTxn(Struct, frozen=True, tag_field="operation", tag="prepare_txn"):
    """The open transaction waits for an outcome that is decided elsewhere; nothing joins it any more."""

    transactional_id: TransactionalId
    producer_id: Count
    epoch: Count
    intent: Count = 0


class EndTxn(Struct, frozen=True, tag_field="operation", tag="end_txn"):
    """A transaction ends; the id's next epoch is ``epoch`` + 1."""

    transactional_id: TransactionalId
    producer_id: Count
    epoch: Count
    outcome: Outcome
    cause: Annotated[Cause, FEATURE]
    markers: tuple[Marker, ...]
    placed: Annotated[tuple[PlacedPartition, ...], LEFT_OUT] = ()
    """Offsets of what was staged; empty when nothing was, and when it aborts."""
    intent: Count = 0


class GiveUp(Struct, frozen=True, tag_field="operation", tag="give_up"):
    """A prepared transaction loses all that it has appended to some partitions, and keeps the rest; it stays
    prepared.
    """

    transactional_id: TransactionalId
    producer_id: Count
    epoch: Count
    markers: Annotated[tuple[Marker, ...], Meta(min_length=1, description="at least one marker")]
    """ABORT markers, one for each of the partitions."""
    intent: Count = 0


class AppVersion(Struct, frozen=True, tag_field="operation", tag="app_version"):
    """An application's version: the exactly-once key of a batch engine."""

    namespace: Text
    app_id: Text
    version: Count
    intent: Count = 0
    instance: Annotated[Instance | None, LEFT_OUT] = None
    """Which run of the application it was. If None, it does not say."""
    content: Annotated[Content | None, LEFT_OUT] = None
    """The content of the write. If None, the writer does not say. No part of the state: a repetition reads
    the entry."""
    topics: Annotated[tuple[Uuid, ...], LEFT_OUT] = ()
    """Ids, ascending, of the topics that it was written to, in logs whose topics may be deleted."""


class Checkpoint(Struct, frozen=True, tag_field="operation", tag="checkpoint"):
    """A snapshot of the state after ``entry`` exists and was read back."""

    entry: Count
    key: Text
    size: Positive
    sha256: Sha256
    digest: Sha256
    """sha256 of the canonical uncompressed state."""
    intent: Count = 0


class SealedPartition(Struct, frozen=True, gc=False):
    """The part of a sealed segment in one partition: offsets [start_offset, end_offset)."""

    partition: PartitionNumber
    start_offset: Count
    """Where the partition's sealed part has ended so far."""
    end_offset: Count
    """Exclusive; at most the last stable offset."""
    batches: Count
    """Rows of the .index."""
    markers: Count
    """Rows of .markers."""
    aborted: Count
    """Entries of .txnindex: aborted transactions that overlap the offsets."""
    records: Count
    size: Count
    """Compressed bytes of the records."""
    aborted_records: Count
    aborted_size: Count
    min_timestamp_ms: Time
    max_timestamp_ms: Time


class SealedSegment(SegmentRecord, frozen=True, kw_only=True):
    """A segment and its partitions, in the order in which its sidecars hold them."""

    partitions: tuple[SealedPartition, ...]

    @property
    def record(self) -> SegmentRecord:
        """Return what stays of it in the state."""
        return SegmentRecord(self.topic_id, self.index, self.markers, self.txnindex)


class Seal(Struct, frozen=True, tag_field="operation", tag="seal"):
    """Offset ranges move from the state into sidecars; what only their extents needed leaves the state.

    With ``segment_list``, that object describes the segments from its ``first`` on, below
    ``listed_segments``. They leave the state as well, and so do the lists that described some of them:
    ``replaced_lists`` by key, oldest first.
    """

    segments: tuple[SealedSegment, ...]
    segment_list: SegmentListRecord | None = None
    listed_segments: Count = 0
    intent: Count = 0
    replaced_lists: Annotated[tuple[Text, ...], LEFT_OUT] = ()
    """Empty when the list begins where the newest one ends; also when an earlier version wrote a list of all
    segments."""


class SpilledPartition(Struct, frozen=True, gc=False):
    """The part of a spill in one partition: offsets [start_offset, end_offset), of which none is below the
    last stable offset.
    """

    topic_id: Uuid
    partition: PartitionNumber
    start_offset: Count
    """Where the partition's extents in the state begin, or one of its spills that is taken in."""
    end_offset: Count
    """Exclusive."""
    extents: Count
    batches: Count
    """Batches that the extents stand for."""
    markers: Count
    aborted: Count
    """Abort index entries whose marker is in the range."""
    records: Count
    size: Count
    """Compressed bytes of the records."""
    replaced: Annotated[tuple[Text, ...], LEFT_OUT] = ()
    """Keys of the spills that are taken in, ascending by offset."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Return the partition."""
        return TopicPartition(self.topic_id, self.partition)


class Spill(Struct, frozen=True, tag_field="operation", tag="spill"):
    """Extents, markers and abort index entries above last stable offsets move from the state into an
    object.
    """

    table: ObjectRecord
    partitions: Annotated[
        tuple[SpilledPartition, ...], Meta(min_length=1, description="at least one partition")
    ]
    intent: Count = 0


class Expire(Struct, frozen=True, tag_field="operation", tag="expire"):
    """Removes idle ids from the state: transactional ids, producers without one, blocks of ids."""

    transactional_ids: tuple[Item, ...]
    producers: tuple[Count, ...]
    """Ids of producers without a transactional id, ascending."""
    blocks: tuple[Count, ...]
    """First ids of blocks, ascending. Ids that were not handed out yet stay good; only whose they are is
    forgotten."""
    groups: Annotated[tuple[Item, ...], LEFT_OUT] = ()
    intent: Count = 0


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
    | GiveUp
    | AppVersion
    | Checkpoint
    | Seal
    | Spill
    | Expire
    | Trim
    | VacuumMark
    | DeleteTopic
    | Replace
    | RequestErasure
    | AdvanceErasure
    | CompleteErasure
    | AbandonErasure
    | JoinGroup
    | CommitOffsets
    | DeleteGroup
    | CreateSubscription
    | DeleteSubscription
    | Ack
)
