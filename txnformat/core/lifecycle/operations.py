"""The operations that remove records, or write them together anew: plain values.

See :mod:`txnformat.core.operations`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from txnformat.field_types import (
    LEFT_OUT,
    Count,
    Item,
    OrMinusOne,
    PartitionNumber,
    Positive,
    Sha256,
    Text,
    Time,
    Uuid,
)
from txnformat.types import ObjectRecord, SegmentListRecord

__all__ = [
    "AbandonErasure",
    "AdvanceErasure",
    "CleanedPartition",
    "CompactedRange",
    "CompactedSegment",
    "CompleteErasure",
    "DeleteTopic",
    "Erased",
    "ErasedPartition",
    "KeptVersions",
    "PartitionEnd",
    "Replace",
    "ReplacedList",
    "RequestErasure",
    "Trim",
    "TrimmedPartition",
    "VacuumMark",
]


class TrimmedPartition(Struct, frozen=True, gc=False):
    """A partition whose log start moves, and the segments that lie below the new log start and did not lie
    below the old one.
    """

    partition: PartitionNumber
    log_start: Positive
    """The new log start (inclusive); at most the sealed end."""
    commit_entry: OrMinusOne
    """Largest entry that committed a record of the segments between the two log starts, below the new one;
    -1: none was committed."""
    records: Count
    """Number of records of those segments; a segment that the log start cuts counts as a whole, later."""
    size: Count
    """Compressed bytes of the records."""
    aborted_records: Count
    aborted_size: Count


class Trim(Struct, frozen=True, tag_field="operation", tag="trim"):
    """The oldest records of a topic can be read no more; their offsets are not given again."""

    topic_id: Uuid
    partitions: Annotated[
        tuple[TrimmedPartition, ...], Meta(min_length=1, description="at least one partition")
    ]
    intent: Count = 0


class VacuumMark(Struct, frozen=True, tag_field="operation", tag="vacuum_mark"):
    """From here on no operation names an object that was born below the floor, so what nothing names there is
    garbage for good.
    """

    floor: Positive
    """Number of an entry; objects born in it or later may still be named."""
    intent: Count = 0


class DeleteTopic(Struct, frozen=True, tag_field="operation", tag="delete_topic"):
    """A topic leaves the state with all that is its own.

    Its name may be given again, to a topic with another id.
    """

    topic_id: Uuid
    prepared: Annotated[tuple[Item, ...], LEFT_OUT] = ()
    """Transactional ids, ascending, of the prepared transactions that touched the topic: they lose what they
    have in it, and keep the rest."""
    intent: Count = 0


class CompactedRange(Struct, frozen=True, gc=False):
    """Offsets [start_offset, end_offset) of a partition: whole parts of listed segments, in whose place a
    compacted segment comes.
    """

    partition: PartitionNumber
    start_offset: Count
    end_offset: Count
    """Exclusive; at most the end of what segment lists describe."""
    revision: Count
    """Revision of the partition before this operation."""
    runs: Count
    """Rows of the .runs."""
    records: Count
    size: Count
    """Compressed bytes of the records."""
    min_timestamp_ms: Time
    max_timestamp_ms: Time
    old_records: Count
    """Sums over the parts that are replaced; they leave the totals of the partition."""
    old_size: Count
    old_aborted_records: Count
    old_aborted_size: Count


class CompactedSegment(Struct, frozen=True):
    """A segment whose records were written together, and its partitions in the order in which its .runs holds
    them.
    """

    index: ObjectRecord
    """The .runs."""
    partitions: Annotated[
        tuple[CompactedRange, ...], Meta(min_length=1, description="at least one partition")
    ]


class ReplacedList(Struct, frozen=True, gc=False):
    """A segment list, and what takes its place."""

    replaced: Text
    """Key of the list before."""
    segment_list: SegmentListRecord
    """It describes the same segments, and begins where the list before began."""


class CleanedPartition(Struct, frozen=True, gc=False):
    """A partition in which a ``replace`` keeps only the latest record of each key: some records of its ranges
    are gone.
    """

    partition: PartitionNumber
    cleaned_end: Count
    """Records below were compared with all later ones below it (exclusive); not below the old one."""
    swept_end: Count
    """Below here (exclusive) is no tombstone."""
    commit_entry: OrMinusOne
    """At least the largest entry that committed a record that is gone, or the later record of its key; -1:
    none is gone."""


class ErasedPartition(Struct, frozen=True, gc=False):
    """A partition in which a ``replace`` leaves out records that are to be erased, or rewrites a file that
    holds some for another partition.
    """

    partition: PartitionNumber
    commit_entry: OrMinusOne
    """Largest entry that committed a record that is gone; -1: none is gone."""


class Erased(Struct, frozen=True):
    """An erasure that a ``replace`` is part of."""

    erasure_id: Uuid
    records: Count
    """Committed records that are gone."""
    files: Count
    """Files that are named no more, or by fewer segments."""
    partitions: Annotated[
        tuple[ErasedPartition, ...], Meta(min_length=1, description="at least one partition")
    ]
    """Ascending."""


class Replace(Struct, frozen=True, tag_field="operation", tag="replace"):
    """Listed segments of a topic are replaced by compacted ones: what committed readers see stays the same,
    but in ``cleaned`` partitions.
    """

    topic_id: Uuid
    segments: Annotated[tuple[CompactedSegment, ...], Meta(min_length=1, description="at least one segment")]
    lists: Annotated[tuple[ReplacedList, ...], Meta(min_length=1, description="at least one list")]
    intent: Count = 0
    cleaned: Annotated[tuple[CleanedPartition, ...], LEFT_OUT] = ()
    """Ascending by partition."""
    erased: Annotated[Erased | None, LEFT_OUT] = None


class PartitionEnd(Struct, frozen=True, gc=False):
    """An offset of a partition."""

    partition: PartitionNumber
    end_offset: Count
    """Exclusive."""


class KeptVersions(StrEnum):
    """Whether the store keeps old versions of objects that are deleted."""

    NO = "no"
    YES = "yes"
    """The bucket has versions: with the right to read them, what was erased can be read, until they are
    deleted."""
    UNKNOWN = "unknown"
    """The store did not say."""


class RequestErasure(Struct, frozen=True, tag_field="operation", tag="request_erasure"):
    """Records of a topic that a condition matches are to vanish for good.

    The condition itself is in no entry.
    """

    erasure_id: Uuid
    topic_id: Uuid
    columns: tuple[Item, ...]
    """The columns that the condition names, ascending."""
    condition: Sha256
    """Keyed hash of the condition."""
    requested_by: Text
    intent: Count = 0


class AdvanceErasure(Struct, frozen=True, tag_field="operation", tag="advance_erasure"):
    """How far an erasure has come: below these offsets no live segment names a file with records that are to
    be erased.
    """

    erasure_id: Uuid
    partitions: tuple[PartitionEnd, ...] = ()
    """Ascending; at most the end of what segment lists describe."""
    intent: Count = 0


class CompleteErasure(Struct, frozen=True, tag_field="operation", tag="complete_erasure"):
    """The certificate of an erasure: a vacuum has deleted every object that had its records."""

    erasure_id: Uuid
    topic_id: Uuid
    entry: Count
    """Entry that holds the request."""
    columns: tuple[Item, ...]
    condition: Sha256
    requested_by: Text
    records: Count
    files: Count
    replaced_entry: OrMinusOne
    rewritten_entry: Count
    floor: Positive
    """Floor of the vacuum: at least the entry from which on nothing live had anything of it."""
    kept_versions: KeptVersions
    intent: Count = 0


class AbandonErasure(Struct, frozen=True, tag_field="operation", tag="abandon_erasure"):
    """An erasure that is not complete leaves the state without a certificate: the key is lost, say, so no
    call can go on with it.
    """

    erasure_id: Uuid
    requested_by: Text
    """The person or system that asked for the abandonment."""
    intent: Count = 0
