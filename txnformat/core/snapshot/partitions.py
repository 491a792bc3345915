"""Partitions in the JSON section of a snapshot, and their rows in its tables.

Pure. See :mod:`txnformat.core.snapshot.state`.
"""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from txnformat.core.records.state import PartitionState
from txnformat.core.snapshot.rows import OpenRow, PartitionRow, SequencesRow
from txnformat.core.wire.typed import fail
from txnformat.persistent import Columns, Rows
from txnformat.types import FileRecord, ObjectRecord, TopicPartition

__all__ = ["Tables", "decode_partitions", "encode_partition"]


class Tables(NamedTuple):
    """The large tables of a state, of all partitions together."""

    extents: Rows
    markers: Rows
    aborted: Rows
    segments: Rows
    files: list[tuple[int, FileRecord]]
    """Number and record."""
    tables: list[tuple[int, ObjectRecord]]


def encode_partition(key: TopicPartition, partition: PartitionState) -> PartitionRow:
    """Return the row of a partition."""
    return PartitionRow(
        *key,
        partition.log_start,
        partition.log_end,
        partition.listed_end,
        partition.sealed_end,
        partition.sealed,
        tuple(OpenRow(*opened, first) for opened, first in sorted(partition.open.items())),
        tuple(SequencesRow(*known, window) for known, window in sorted(partition.sequences.items())),
        len(partition.extents),
        len(partition.markers),
        len(partition.aborted),
        len(partition.segments),
        partition.trimmed_entry,
        partition.revision,
        partition.cleaned_end,
        partition.cleaned_entry,
        partition.horizons,
        partition.erased_entry,
        partition.spills,
    )


class _Cutter:
    """Hands out the rows of a table, one partition's after the other's."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.rows = rows
        self.position = 0

    def take(self, count: int, path: str) -> Columns:
        end = self.position + count
        if end > len(self.rows):
            fail(path, self.name, f"at most {len(self.rows) - self.position} rows that are left", count)
        cut = self.rows[self.position : end]
        self.position = end
        return Columns(self.rows.dtype, (cut,) if len(cut) else ())


def decode_partitions(
    rows: tuple[PartitionRow, ...], tables: Tables, name: str
) -> dict[TopicPartition, PartitionState]:
    """Return the partitions that the rows and the tables of snapshot ``name`` say."""
    extents = _Cutter("extents", tables.extents)
    markers = _Cutter("markers", tables.markers)
    aborted = _Cutter("aborted", tables.aborted)
    segments = _Cutter("segments", tables.segments)
    partitions = {}
    for index, row in enumerate(rows):
        path = f"{name}.partitions[{index}]"
        if any(known.base_offset < 0 for one in row.sequences for known in one.appends):
            fail(path, "base_offset", "offset from 0 on", -1)
        if not all(one.appends for one in row.sequences):
            fail(path, "appends", "at least one append", ())
        if not row.listed_end <= row.sealed_end <= row.log_end:
            fail(path, "sealed_end", f"from {row.listed_end} to {row.log_end}", row.sealed_end)
        if row.log_start > row.sealed_end:
            fail(path, "log_start", f"at most {row.sealed_end}", row.log_start)
        bounds = [
            row.sealed_end,
            *(bound for one in row.spills for bound in (one.start_offset, one.end_offset)),
        ]
        if (
            bounds[1::2] != bounds[0:-1:2]
            or any(one.end_offset <= one.start_offset for one in row.spills)
            or bounds[-1] > row.log_end
        ):
            fail(
                path,
                "spills",
                f"ranges that follow each other from {row.sealed_end} to at most {row.log_end}",
                bounds,
            )
        if row.cleaned_end > row.listed_end:
            fail(path, "cleaned_end", f"at most {row.listed_end}", row.cleaned_end)
        partitions[TopicPartition(row.topic_id, row.partition)] = PartitionState(
            log_start=row.log_start,
            log_end=row.log_end,
            listed_end=row.listed_end,
            sealed_end=row.sealed_end,
            sealed=row.sealed,
            trimmed_entry=row.trimmed_entry,
            revision=row.revision,
            cleaned_end=row.cleaned_end,
            cleaned_entry=row.cleaned_entry,
            horizons=row.horizons,
            erased_entry=row.erased_entry,
            spills=row.spills,
            open={
                (one.producer_id, one.epoch): one.first_offset
                for one in sorted(row.open, key=attrgetter("first_offset"))
            },
            sequences={(one.producer_id, one.epoch): one.appends for one in row.sequences},
            extents=extents.take(row.extents, path),
            markers=markers.take(row.markers, path),
            aborted=aborted.take(row.aborted, path),
            segments=segments.take(row.segments, path),
        )
    for cutter in (extents, markers, aborted, segments):
        if cutter.position != len(cutter.rows):
            fail(name, "partitions", f"{len(cutter.rows)} rows of {cutter.name} in all", cutter.position)
    return partitions
