"""The JSON section of a snapshot, declared once: its rows as they stand there.

This module declares the rows that differ from the state's own form.

Each row has ``omit_defaults``: what equals its default is left out, for an earlier version did not have the
field, and the digests of its snapshots must hold. Rows of groups and of subscriptions are in modules of their
own. ``UNSET`` is for what is always written, null too, and may be absent. See
:mod:`txnformat.core.snapshot.codec`.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS, TopicSetting
from txnformat.core.producers.state import AppendedRange
from txnformat.core.records.state import DeleteHorizon, SealedTotals, SpilledRange
from txnformat.core.snapshot.groups import GroupRow
from txnformat.core.snapshot.subscriptions import SubscriptionRow
from txnformat.core.state import DeletedTopic, ProducerIdBlock
from txnformat.core.transactions.state import (
    MAX_TRANSACTION_TIMEOUT_MS,
    LastEnd,
    StagedFlush,
    TransactionStatus,
)
from txnformat.field_types import (
    Count,
    Flag,
    Int32,
    Item,
    LogTime,
    OrMinusOne,
    PartitionCount,
    PartitionNumber,
    Positive,
    ReaderName,
    Sha256,
    Text,
    TimeoutMs,
    TopicName,
    Uuid,
)
from txnformat.types import SegmentListRecord, SegmentRecord

__all__ = [
    "AppVersionRow",
    "FeaturesRow",
    "NumberedRow",
    "OpenRow",
    "PartitionRow",
    "ProducerRow",
    "SealedRow",
    "SegmentRow",
    "SequencesRow",
    "StagedSequencesRow",
    "StartRow",
    "StateRow",
    "SubscriptionKeyRow",
    "TopicRow",
    "TransactionalIdRow",
    "WindowRow",
]


class FeaturesRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """Names of features, sorted."""

    reader: tuple[Item, ...]
    writer: tuple[Item, ...]
    maintenance: tuple[Item, ...]


class TopicRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A topic."""

    created_entry: Count
    create: dict[str, Any]
    """The operation."""
    partitions: PartitionCount | None = None
    """Number of partitions. If None, the topic still has those that it was created with."""
    schemas: tuple[Any, ...] = ()
    settings: tuple[TopicSetting, ...] | None = None
    """The settings. If None, those that the topic was created with."""
    places: tuple[tuple[Int32, ...], ...] = ()
    """Places that the ``alter_topic`` of each of ``schemas`` said. If empty, no version said any."""


class StartRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a transaction begins in a partition."""

    topic_id: Uuid
    partition: PartitionNumber
    first_offset: Count


class StagedSequencesRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The sequences of the records that a transaction has staged in a partition."""

    topic_id: Uuid
    partition: PartitionNumber
    appends: tuple[AppendedRange, ...]


class SubscriptionKeyRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A subscription, by its name."""

    topic_id: Uuid
    subscription: ReaderName


class TransactionalIdRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A transactional id."""

    transactional_id: Text
    producer_id: Count
    epoch: Count
    status: TransactionStatus
    partitions: tuple[StartRow, ...]
    started_entry: Count | UnsetType | None = UNSET
    started_ms: LogTime | UnsetType | None = UNSET
    last_end: LastEnd | UnsetType | None = UNSET
    timeout_ms: TimeoutMs = TIMEOUT_MS
    deferred_timeout_ms: TimeoutMs = DEFERRED_TIMEOUT_MS
    used_entry: Count = 0
    used_ms: LogTime = 0
    abort_only: Flag = 0
    staged: tuple[StagedFlush, ...] = ()
    staged_sequences: tuple[StagedSequencesRow, ...] | UnsetType = UNSET
    """There exactly when ``staged`` is."""
    groups: tuple[Item, ...] = ()
    subscriptions: tuple[SubscriptionKeyRow, ...] = ()


class ProducerRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A producer without a transactional id."""

    producer_id: Count
    entry: Count
    timestamp_ms: LogTime


class AppVersionRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """An application's version."""

    namespace: Text
    app_id: Text
    version: Count
    entry: Count
    instances: tuple[Item, ...] = ()
    topics: tuple[Uuid, ...] = ()
    gone: tuple[TopicName, ...] = ()


class WindowRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """Ids of intents."""

    first: Count
    entries: tuple[tuple[str, ...], ...]


class OpenRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """An open transaction of a partition."""

    producer_id: Count
    epoch: Count
    first_offset: Count


class SequencesRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """The sequences that a partition remembers of a producer."""

    producer_id: Count
    epoch: Count
    appends: tuple[AppendedRange, ...]


class PartitionRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """A partition, and how many rows of the tables are its own."""

    topic_id: Uuid
    partition: PartitionNumber
    log_start: Count
    log_end: Count
    listed_end: Count
    sealed_end: Count
    sealed: SealedTotals
    open: tuple[OpenRow, ...]
    sequences: tuple[SequencesRow, ...]
    extents: Count
    markers: Count
    aborted: Count
    segments: Count
    trimmed_entry: OrMinusOne = -1
    revision: Count = 0
    cleaned_end: Count = 0
    cleaned_entry: OrMinusOne = -1
    horizons: tuple[DeleteHorizon, ...] = ()
    erased_entry: OrMinusOne = -1
    spills: tuple[SpilledRange, ...] = ()


class SegmentRow(SegmentRecord, frozen=True, kw_only=True):
    """A segment that is not in the segment list; its record is that of an entry, which writes null."""

    number: Count


class SealedRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """All of them, and the number that the next one gets."""

    segments: tuple[SegmentRow, ...]
    end: Count


class NumberedRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """How many rows a table of numbered objects has, and the number that the next one gets."""

    rows: Count
    end: Count


class StateRow(Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """The whole section."""

    format: Positive
    log_id: Text
    entry: Count
    entry_sha256: Sha256
    timestamp_ms: LogTime
    features: FeaturesRow
    topics: tuple[TopicRow, ...]
    transactional_ids: tuple[TransactionalIdRow, ...]
    max_transaction_timeout_ms: TimeoutMs = MAX_TRANSACTION_TIMEOUT_MS
    next_producer_id: Count
    blocks: tuple[ProducerIdBlock, ...]
    producers: tuple[ProducerRow, ...] = ()
    retired_below: Count = 0
    groups: tuple[GroupRow, ...] = ()
    subscriptions: tuple[SubscriptionRow, ...] = ()
    retired_generation: Count = 0
    app_versions: tuple[AppVersionRow, ...]
    checkpoints: tuple[dict[str, Any], ...]
    window: WindowRow
    partitions: tuple[PartitionRow, ...]
    sealed: SealedRow
    segment_list: SegmentListRecord | UnsetType | None = UNSET
    """The newest."""
    older_lists: tuple[SegmentListRecord, ...] = ()
    """Oldest first."""
    listed_segments: Count
    files: NumberedRow
    tables: NumberedRow
    vacuum_floor: Count = 0
    truncate_older_than_ms: OrMinusOne = -1
    deleted: tuple[DeletedTopic, ...] = ()
    erasures: tuple[ErasureState, ...] = ()
