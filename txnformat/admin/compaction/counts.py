"""Segments, files, bytes and requests of a compaction, before and after: as it counts them, and as users get
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from txnformat.admin.compaction.cleaning import Cleaned
from txnformat.persistent import Rows
from txnformat.reading.compacting import Source
from txnformat.reading.sealed import SidecarCache
from txnformat.segments.segment_object import SMALL_FILE_BYTES
from txnformat.types import FileRecord

__all__ = ["CompactedTopic", "CompactionProgress", "Counts"]


@dataclass(frozen=True, slots=True)
class CompactedTopic:
    """The effect of a compaction on a topic: before, and afterwards, of what was written anew."""

    topic: str
    partitions: int
    """Partitions with records that were written anew."""
    segments_before: int
    """Parts of sealed segments."""
    segments: int
    files_before: int
    files: int
    size_before: int
    """Compressed bytes of the records; aborted ones are not counted."""
    size: int
    requests_before: int
    """Requests of one read of all of it, about: an index for each part of a segment, a footer and the data
    for each file, together if it is small."""
    requests: int
    dirty_ratio: float | None = None
    """Largest fraction of a partition's bytes whose keys were not compared with later ones before. If None,
    the topic keeps all records of a key."""
    removed_records: int = 0
    """Records that went, for their keys have later ones, and tombstones that were due."""


@dataclass(frozen=True, slots=True)
class CompactionProgress:
    """How far a compaction has come, in compressed bytes of records."""

    topic: str
    done: int
    total: int


@dataclass(slots=True)
class Counts:
    """Segments, files and bytes before and after, of one topic or of some of its partitions."""

    partitions: set[int] = field(default_factory=set)
    segments_before: int = 0
    segments: int = 0
    files_before: dict[str, int] = field(default_factory=dict)
    """Requests of each, by key."""
    files: int = 0
    files_requests: int = 0
    size_before: int = 0
    size: int = 0
    indexes_before: set[str] = field(default_factory=set)
    indexes: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of other partitions."""
        self.partitions |= other.partitions
        self.files_before |= other.files_before
        self.indexes_before |= other.indexes_before
        for name in (
            "segments_before",
            "segments",
            "files",
            "files_requests",
            "size_before",
            "size",
            "indexes",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def replaced(
        self,
        sidecars: SidecarCache,
        sources: Sequence[Source],
        files: Mapping[int, FileRecord],
        runs: Sequence[Rows],
    ) -> None:
        """Count sources that gave way to files with runs of records; without runs, that would."""
        for source in sources:
            self.partitions.add(source.key.partition)
            self.segments_before += len(source.parts)
            self.size_before += source.size
            for part in source.parts:
                index = sidecars.index(part.record.index)
                rows = index.rows_of(source.key.partition, part.range)
                rows = rows if index.is_compacted else rows[rows["commit_entry"] >= 0]
                for file in set(rows["file"].tolist()):
                    self.files_before[index.files[file].key] = _requests(index.files[file].size)
                self.indexes_before.add(part.record.index.key)
        self.segments += len(sources)
        self.indexes += 1
        size = sum(int(one["size"].sum()) for one in runs) if runs else sum(s.size for s in sources)
        sizes = [file.size for file in files.values()] if runs else [size]
        self.files += len(sizes)
        self.files_requests += sum(map(_requests, sizes))
        self.size += size

    def report(self, topic: str, cleaned: Cleaned) -> CompactedTopic:
        """Return the counts as users get them."""
        return CompactedTopic(
            topic,
            len(self.partitions),
            self.segments_before,
            self.segments,
            len(self.files_before),
            self.files,
            self.size_before,
            self.size,
            len(self.indexes_before) + sum(self.files_before.values()),
            self.indexes + self.files_requests,
            cleaned.dirty_ratio,
            cleaned.removed,
        )


def _requests(file_bytes: int) -> int:
    """Return the requests of a read of a file, about."""
    return 1 if file_bytes <= SMALL_FILE_BYTES else 2
