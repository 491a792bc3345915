"""State of one partition: offsets, open and aborted transactions, extents, sealed segments. Pure values.

An *extent* is a run of offsets whose records lie in one run of row groups of one file (or, when an append has
very many batches, in the rows of a batch table). Sealed segments, then extents and markers together, tile
[log start, log end).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from txnformat.core.producers.state import SequenceWindow
from txnformat.core.records.visibility import last_stable_offset
from txnformat.field_types import Count
from txnformat.persistent import Columns, first_value, replace, without_key
from txnformat.types import FileRecord

__all__ = [
    "ABORTED",
    "EXTENT",
    "MARKER",
    "SEGMENT",
    "DeleteHorizon",
    "PartitionState",
    "SealedTotals",
    "SpilledRange",
    "Transaction",
    "newest_schema",
]

Transaction = tuple[int, int]
"""(producer id, epoch): names exactly one transaction."""

EXTENT: np.dtype[Any] = np.dtype(
    [
        ("base_offset", "<i8"),
        ("records", "<i8"),
        ("producer_id", "<i8"),  # -1: no producer
        ("epoch", "<i8"),
        ("base_sequence", "<i8"),  # -1: no producer
        ("entry", "<i8"),  # the append's entry
        ("timestamp_ms", "<i8"),  # log time of that entry
        ("min_timestamp_ms", "<i8"),  # of the records (log time when the topic declares no timestamp)
        ("max_timestamp_ms", "<i8"),
        ("size", "<i8"),  # compressed bytes
        ("file", "<i8"),  # index into LogState.files; -1: look in the table. In a table's rows: of the append
        ("table", "<i8"),  # index into LogState.tables; -1: none
        ("first_file", "<i8"),  # index into LogState.files of the append's file 0
        ("section", "<i4"),  # of the table
        ("row_group", "<i4"),
        ("row_group_count", "<i4"),
        ("batch_count", "<i4"),  # 1, or the rows of the table that this extent stands for
        ("transactional", "<i4"),
        ("file_count", "<i4"),  # files of the append
    ]
)

MARKER: np.dtype[Any] = np.dtype(
    [
        ("offset", "<i8"),
        ("producer_id", "<i8"),
        ("epoch", "<i8"),
        ("commit", "<i4"),  # 1 commit, 0 abort (Kafka's control types)
        ("reserved", "<i4"),
        ("entry", "<i8"),
        ("timestamp_ms", "<i8"),
    ]
)

ABORTED: np.dtype[Any] = np.dtype(
    [
        ("producer_id", "<i8"),
        ("epoch", "<i8"),
        ("first_offset", "<i8"),
        ("last_offset", "<i8"),  # the marker's offset
        ("last_stable_offset", "<i8"),
        ("entry", "<i8"),
    ]
)

_MARKER_ROW, _ABORTED_ROW = struct.Struct("<3q2i2q"), struct.Struct("<6q")
"""One row each: packing it is faster than a table of one row."""

SEGMENT: np.dtype[Any] = np.dtype(
    [
        ("start_offset", "<i8"),
        ("end_offset", "<i8"),  # exclusive
        ("segment", "<i8"),  # number in LogState.segments
        ("batches", "<i8"),  # rows of the .index
        ("markers", "<i8"),  # rows of .markers
        ("first_aborted", "<i8"),  # of the entries in .txnindex, from 0
        ("aborted", "<i8"),  # entries in .txnindex; 0: nothing in the range was aborted
        ("records", "<i8"),
        ("size", "<i8"),  # compressed bytes of the records
        ("aborted_records", "<i8"),
        ("aborted_size", "<i8"),
        ("min_timestamp_ms", "<i8"),  # of the records; 0 when there are none
        ("max_timestamp_ms", "<i8"),
    ]
)
"""A partition's part of a sealed segment."""


class SealedTotals(msgspec.Struct, frozen=True, gc=False):
    """Totals of a partition's sealed segments, but for those below its log start.

    A snapshot has them as they are.
    """

    records: Count
    size: Count
    """Compressed bytes of the records."""
    aborted_records: Count
    aborted_size: Count
    aborted_transactions: Count
    """ABORT markers below the sealed end of transactions with data, also those below the log start."""


class DeleteHorizon(msgspec.Struct, frozen=True, gc=False):
    """When tombstones below an offset, from the horizon before on, were first compared with other records.

    A snapshot has it as it is.
    """

    end_offset: Count
    """Exclusive."""
    timestamp_ms: Count
    """Time of the entry."""


class SpilledRange(msgspec.Struct, frozen=True, gc=False):
    """Offsets above the last stable offset whose extents, markers and abort index entries are in an object.

    A snapshot has it as it is.
    """

    start_offset: Count
    """Where the spill before it ends, or the sealed part."""
    end_offset: Count
    """Exclusive."""
    table: Count
    """Number of the object in LogState.tables."""
    extents: Count
    batches: Count
    """Batches that the extents stand for."""
    markers: Count
    aborted: Count
    """Abort index entries whose marker is in the range."""
    records: Count
    size: Count
    """Compressed bytes of the records."""


_NOTHING_SEALED = SealedTotals(0, 0, 0, 0, 0)


class PartitionState(msgspec.Struct, frozen=True):
    """One partition after some entry.

    Offsets from ``log_start`` to ``listed_end`` are in segments of the segment list, those up to
    ``sealed_end`` in ``segments``, those up to ``spilled_end`` in objects that ``spills`` name, and from
    there to ``log_end`` extents and markers are in the state.
    """

    log_start: int = 0
    """First offset that can be read (inclusive)."""
    log_end: int = 0
    """Offset of the next record (exclusive end)."""
    listed_end: int = 0
    """End of what the segment list describes (exclusive)."""
    sealed_end: int = 0
    """End of the sealed segments (exclusive); at most the last stable offset."""
    segments: Columns = msgspec.field(default_factory=lambda: Columns(SEGMENT))
    """Sealed segments that are not in the segment list, ascending."""
    sealed: SealedTotals = _NOTHING_SEALED
    trimmed_entry: int = -1
    """Largest entry that committed a record below the log start; -1: none did. A version below it is no
    longer whole."""
    revision: int = 0
    """How often sealed segments were replaced: sums over them that were counted at another revision are
    counted anew."""
    cleaned_end: int = 0
    """Key compaction has compared all records below (exclusive)."""
    cleaned_entry: int = -1
    """Largest entry of the records that key compaction removed, or compared them with; a version below it is
    no longer whole; -1: it removed none."""
    horizons: tuple[DeleteHorizon, ...] = ()
    """Where tombstones may be below ``cleaned_end``, ascending."""
    erased_entry: int = -1
    """Largest entry that committed a record which an erasure removed; a version below it is no longer whole;
    -1: none was removed."""
    open: Mapping[Transaction, int] = msgspec.field(default_factory=dict)
    """First offset of each undecided transaction, ascending."""
    sequences: Mapping[Transaction, SequenceWindow] = msgspec.field(default_factory=dict)
    """Windows of producers without a transactional id, and of open transactions."""
    extents: Columns = msgspec.field(default_factory=lambda: Columns(EXTENT))
    markers: Columns = msgspec.field(default_factory=lambda: Columns(MARKER))
    aborted: Columns = msgspec.field(default_factory=lambda: Columns(ABORTED))
    """In order of their markers; those with a marker below ``sealed_end`` are in sidecars only, those with
    one below ``spilled_end`` in spills."""
    spills: tuple[SpilledRange, ...] = ()
    """Spills that tile [sealed end, spilled end), ascending."""

    @property
    def spilled_end(self) -> int:
        """Return where extents and markers in the state begin (inclusive): the end of the spills, or the
        sealed end.
        """
        return self.spills[-1].end_offset if self.spills else self.sealed_end

    @property
    def aborted_transactions(self) -> int:
        """Return how many transactions with data in the partition were aborted."""
        spilled = sum(one.aborted for one in self.spills)
        return self.sealed.aborted_transactions + spilled + len(self.aborted)

    @property
    def last_stable_offset(self) -> int:
        """Return the offset that read_committed ends at (exclusive)."""
        return last_stable_offset(self.log_start, self.log_end, islice(self.open.values(), 1))

    def with_marker(
        self, transaction: Transaction, commit: bool, entry: int, timestamp_ms: int
    ) -> PartitionState:
        """Return the partition after the end of one of its transactions: one more offset, the marker's.

        For an abort the index entry's last_stable_offset is, as in Kafka, the first offset of the oldest
        transaction still open among the others, else the offset after the marker.
        """
        producer_id, epoch = transaction
        offset = self.log_end
        first = self.open.get(transaction)
        others = without_key(self.open, transaction)
        sequences = without_key(self.sequences, transaction)
        markers = self.markers.append_bytes(
            _MARKER_ROW.pack(offset, producer_id, epoch, int(commit), 0, entry, timestamp_ms)
        )
        aborted = self.aborted
        if not commit and first is not None:
            stable = first_value(others, offset + 1)
            row = _ABORTED_ROW.pack(producer_id, epoch, first, offset, stable, entry)
            aborted = aborted.append_bytes(row)
        return replace(
            self, log_end=offset + 1, open=others, sequences=sequences, markers=markers, aborted=aborted
        )


def newest_schema(files: Iterable[FileRecord]) -> int:
    """Return the newest schema that files have, which their topic must have; 0 without files."""
    return max((file.schema_id for file in files), default=0)
