"""Reads of several files that are decoded as one: for small files a call of the decoder takes longer than its
work.

Row groups of a Parquet file stand for themselves. So the fetched and checked row groups of files of one
schema are put together to one file in memory (:mod:`txnformat.segments.merged`), which is decoded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, groupby

import pyarrow as pa

from txnformat.errors import CorruptDataError
from txnformat.segments.merged import Part, merged, parquet_file
from txnformat.segments.pages import whole_values
from txnformat.segments.reader import WHOLE_BYTES_MAX, SegmentRead

__all__ = ["load_together"]

TOGETHER_BYTES = 128 * 1024
"""Stored bytes of a read, on the average, up to which several are decoded together: that copies them."""


def load_together(reads: Sequence[SegmentRead], bytes_max: int) -> None:
    """Do what :meth:`~txnformat.segments.reader.SegmentRead.load` does of several reads, and decode them in
    as few calls of the decoder as possible.

    Row groups of a Parquet file stand for themselves: those of several files are decoded as if they were
    one's. ``bytes_max``: that decode to so many bytes (inclusive), and at least the first; the others are
    decoded when their batches are asked for. Raises as :meth:`~txnformat.segments.reader.SegmentRead.load`.
    """
    for read in reads:
        read.check()
    sizes = accumulate(read.decoded_bytes for read in reads)
    begun = [
        read
        for number, (read, size) in enumerate(zip(reads, sizes, strict=True))
        if size <= bytes_max or not number
    ]
    for alike, found in groupby(begun, SegmentRead.alike):
        several = list(found)
        if (
            alike is None
            or len(several) == 1
            or len(several) * TOGETHER_BYTES < sum(read.stored_bytes for read in several)
            or not _decode_as_one(several)
        ):
            for read in several:
                read.load()


def _decode_as_one(reads: Sequence[SegmentRead]) -> bool:
    """Decode what comes first of reads that are alike.

    False: that failed; decoding one by one finds the file that is to blame.
    """
    columns, first = reads[0].columns, reads[0].reader
    looked = reads[0].first.looked
    parts = []
    for read in reads:
        counts = [read.reader.row_group_rows(group) for group in read.first.groups]
        chunks = [read.reader.chunks(group, columns) for group in read.first.groups]
        parts.append(Part(read.first.ranges, list(zip(counts, chunks, strict=True))))
    whole = merged(parts, first.object.footer().shape.part(columns))
    checks_pages = not all(read.reader.object.has_checksums for read in reads)
    try:
        parquet = parquet_file(pa.BufferReader(whole), None, looked.numbered, checks_pages=checks_pages)
        groups = sum(len(part.groups) for part in parts)
        table = parquet.reader.read_row_groups(list(range(groups)), use_threads=False)
        first.check_decoded(table, sum(part.rows for part in parts), columns, looked)
        done = 0
        for read, part in zip(reads, parts, strict=True):
            rows = table.slice(done, part.rows)
            read.first = whole_values(rows, WHOLE_BYTES_MAX) if looked.numbered else rows
            done += part.rows
    except (pa.ArrowException, OSError, ValueError, CorruptDataError):
        return False
    return True
