"""Rows that a seal has moved from an entry to a file, compared with those in the entry, for as long as that
is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.keys import own_key
from txnformat.persistent import replace
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.segment_object import read_range
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord
from txnformat.verify.report import ProblemKind, Record

__all__ = ["Copied", "check_copied"]

REPORT = (
    "run no writer on this log before its cause is known, and please report it; the rows as they "
    "were appended are in the entry"
)
ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True, order=True)
class Copied:
    """A batch of an embedded file that a seal has written to another file."""

    row_group: int
    """First row group in that file,"""
    row_group_count: int
    """and how many."""
    source: FileRecord
    """The embedded file."""
    source_group: int
    source_count: int


def check_copied(
    record: Record,
    store: ObjectStore,
    reader: SegmentFileReader,
    key: str,
    copies: Sequence[Copied],
    schema: pa.Schema,
) -> None:
    """Note batches of the file at ``key``, which ``reader`` reads, whose rows differ from those in their
    entries.

    Entries that are gone, or damaged, tell nothing.

    Requests: 1 GET for each entry that the process has not just seen.
    """
    opened: tuple[str, SegmentFileReader] | None = None
    for one in sorted(copies, key=lambda copied: (copied.source.key, copied.row_group)):
        if opened is None or opened[0] != one.source.key:
            try:
                opened = one.source.key, _embedded(store, one.source, schema)
            except (NotFoundError, CorruptDataError):  # that is noted of the entry, or of the embedded file
                opened = None
                continue
        record.checked["copied_batches"] += 1
        wanted = _rows(opened[1], one.source_group, one.source_count, schema)
        got = _rows(reader, one.row_group, one.row_group_count, schema)
        if not _is_same(wanted, got):
            what = (
                f"row groups {one.row_group} to {one.row_group + one.row_group_count - 1} have other "
                "rows than the entry that they were taken from"
            )
            record.add(
                ProblemKind.BATCHES,
                key,
                what,
                f"{wanted.num_rows} rows of {one.source.key}",
                got.num_rows,
                REPORT,
            )


def _embedded(store: ObjectStore, file: FileRecord, schema: pa.Schema) -> SegmentFileReader:
    held = MemoryStore()
    own = replace(file, key=own_key(file.key))
    held.put(own.key, read_range(store, file, 0, file.size))
    return SegmentFileReader(held, own, schema, threads=1)


def _rows(reader: SegmentFileReader, group: int, count: int, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(reader.read(range(group, group + count), schema.names, ROWS_MAX), schema)


def _is_same(wanted: pa.Table, got: pa.Table) -> bool:
    """Return whether rows are the same; NaN is NaN, which Arrow does not say."""
    return bool(wanted.equals(got)) or repr(wanted.to_pylist()) == repr(got.to_pylist())
