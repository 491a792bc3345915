"""Segment files: the immutable Parquet objects that hold a topic's records, without their offsets."""

from __future__ import annotations

from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import ROW_GROUP_BYTES_MAX, SegmentFileWriter

__all__ = ["ROW_GROUP_BYTES_MAX", "SegmentFileReader", "SegmentFileWriter"]
