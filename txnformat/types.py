"""Values that every layer shares: pure data, no behaviour beyond checks of themselves."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from txnformat import keys
from txnformat.field_types import (
    INT64_MAX,
    Count,
    Int32,
    PartitionNumber,
    Positive,
    PositiveInt32,
    SchemaId,
    Sha256,
    Size,
    Text,
    Time,
    Uuid,
)

__all__ = [
    "IDEMPOTENT_EPOCH",
    "LEAVES_MAX",
    "NO_EPOCH",
    "NO_PRODUCER",
    "NO_TIMESTAMP_MS",
    "BatchRecord",
    "FileRecord",
    "IsolationLevel",
    "ObjectRecord",
    "OffsetRange",
    "Outcome",
    "SegmentListRecord",
    "SegmentRecord",
    "TopicPartition",
]

NO_PRODUCER = -1
"""Producer id of a batch that was appended without a producer (an atomic bulk append)."""

NO_EPOCH = -1
"""Producer epoch of a batch that was appended without a producer."""

IDEMPOTENT_EPOCH = 0
"""The one epoch of producers without a transactional id."""

NO_TIMESTAMP_MS = -(2**63)
"""Record timestamp of a batch whose topic declares none, or that holds only nulls there."""


class TopicPartition(NamedTuple):
    """One partition of one topic. The topic is named by its id: a re-created topic is another topic."""

    topic_id: str
    partition: int


class OffsetRange(NamedTuple):
    """Offsets ``[start, end)``: start inclusive, end exclusive."""

    start: int
    end: int


class IsolationLevel(StrEnum):
    """Which records a reader sees (the first two are Kafka's)."""

    READ_COMMITTED = "read_committed"
    """Up to the last stable offset, aborted transactions skipped."""
    READ_UNCOMMITTED = "read_uncommitted"
    """Up to the log end, open and aborted transactions included."""
    SNAPSHOT = "snapshot"
    """All that one entry and those before it committed, over all topics and partitions; also above the last
    stable offset."""


class Outcome(StrEnum):
    """How a transaction ended."""

    COMMIT = "commit"
    ABORT = "abort"


FooterBytes = Annotated[int, Meta(ge=8, le=INT64_MAX)]


class ObjectRecord(Struct, frozen=True, gc=False):
    """An immutable object as an entry names it."""

    key: Text
    """Relative key."""
    size: Positive
    """Bytes."""
    sha256: Sha256
    """SHA-256 of the whole object, lower-case hex."""


LEAVES_MAX = 50_000
"""Objects that a segment list is divided into (inclusive)."""


class SegmentListRecord(ObjectRecord, frozen=True, gc=False, omit_defaults=True):
    """A segment list as an entry names it: what it describes, and how."""

    first: Count = 0
    """Number of the first segment that it describes (inclusive); it ends where the next list begins."""
    rows: Count = 0
    """Parts of partitions that it describes; 0: its writer did not say."""
    leaves: Annotated[int, Meta(ge=0, le=LEAVES_MAX)] = 0
    """Objects that it is divided into, by topic and partition; 0: it is not divided, and has the rows itself.
    """


class FileRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A segment file (Parquet) as an entry names it: an object, or a part of the entry's payload."""

    key: Text
    """Relative key of the object; of an embedded file with the place of its bytes."""
    size: Positive
    """Bytes of the whole file."""
    sha256: Sha256
    """SHA-256 of the whole file, lower-case hex."""
    footer_bytes: FooterBytes
    """Bytes from the start of the Parquet footer to the end of the file (metadata, length, magic)."""
    footer_sha256: Sha256
    """SHA-256 of the last ``footer_bytes`` bytes."""
    rows: Count
    """Records in the file."""
    schema_id: SchemaId = 0
    """Version of the topic's schema that it was written under."""

    @property
    def place(self) -> keys.Place | None:
        """Where the bytes are; None: the file is an object."""
        return keys.place_of(self.key)


class SegmentRecord(Struct, frozen=True):
    """The sidecars of a sealed segment: offset ranges of any number of partitions of one topic."""

    topic_id: Uuid
    index: ObjectRecord
    """A row per batch."""
    markers: ObjectRecord | None = None
    """A row per marker; None when there is none."""
    txnindex: ObjectRecord | None = None
    """Kafka's abort index, partition after partition; None when no aborted transaction overlaps."""

    def objects(self) -> list[ObjectRecord]:
        """Return the sidecars that there are, the index first."""
        return [one for one in (self.index, self.markers, self.txnindex) if one is not None]


class BatchRecord(Struct, frozen=True, gc=False):
    """A batch: consecutive records of one partition in one run of row groups of one file."""

    partition: PartitionNumber
    file: Count
    """Index into the list of files of the same append (zero-based)."""
    row_group: Int32
    """First row group of the run (zero-based)."""
    row_group_count: PositiveInt32
    """Row groups in the run (at least 1)."""
    records: Positive
    """Rows in the run (at least 1)."""
    size: Size
    """Compressed bytes of the run's column chunks: what a full read of the batch transfers."""
    min_timestamp_ms: Time
    """Smallest record timestamp (inclusive), ms since the epoch; NO_TIMESTAMP_MS when there is none."""
    max_timestamp_ms: Time
    """Largest record timestamp (inclusive), ms since the epoch; NO_TIMESTAMP_MS when there is none."""
