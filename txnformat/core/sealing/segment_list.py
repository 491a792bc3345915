"""Segment lists: objects that describe sealed segments, so that a state names only the newest of them. Pure.

An Arrow file with a row per segment and partition: topic, partition, the columns of ``partition.SEGMENT``,
and the sidecars (an empty key: the segment has no such sidecar). Rows ascend by topic, partition and offset.
A large list is divided: its object is the *root*, with a row for each *leaf*, and the leaves have the rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.columns.arrow_file import decode_arrow_file, encode_arrow_file, rows_of
from txnformat.core.entry import difference
from txnformat.core.records.state import SEGMENT
from txnformat.errors import CorruptDataError
from txnformat.types import ObjectRecord, OffsetRange, SegmentListRecord, SegmentRecord, TopicPartition

__all__ = [
    "ROOT_SCHEMA",
    "ListLeaf",
    "ListedSegments",
    "SegmentPart",
    "decode_leaf",
    "decode_root",
    "decode_segment_list",
    "encode_root",
    "encode_segment_list",
    "leaves_of",
    "row_bytes",
    "segments_in",
]

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SIDECARS: dict[str, Callable[[str], keys.ObjectName | None]] = {
    "index": keys.parse_index_key,
    "markers": keys.parse_markers_key,
    "txnindex": keys.parse_txnindex_key,
}
SCHEMA = pa.schema(
    [
        pa.field("topic_id", _TEXT, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *(pa.field(name, pa.from_numpy_dtype(SEGMENT[name]), nullable=False) for name in SEGMENT.names or ()),
        *(
            pa.field(f"{sidecar}_{name}", kind, nullable=False)
            for sidecar in _SIDECARS
            for name, kind in (("key", _TEXT), ("size", pa.int64()), ("sha256", _TEXT))
        ),
    ]
)
_BOUNDS = ("first", "last")
ROOT_SCHEMA = pa.schema(
    [
        *(
            pa.field(f"{bound}_{name}", kind, nullable=False)
            for bound in _BOUNDS
            for name, kind in (("topic_id", _TEXT), ("partition", pa.int32()))
        ),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("key", _TEXT, nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("sha256", _TEXT, nullable=False),
    ]
)


class ListLeaf(NamedTuple):
    """A part of a divided list: the rows of some partitions, or some rows of a partition."""

    first: TopicPartition
    last: TopicPartition
    """Inclusive; another leaf may go on with it."""
    rows: int
    record: ObjectRecord


class SegmentPart(NamedTuple):
    """A partition's part of a sealed segment."""

    record: SegmentRecord
    row: Any
    """One row of dtype ``partition.SEGMENT``."""

    @property
    def range(self) -> OffsetRange:
        """Return its offsets."""
        return OffsetRange(int(self.row["start_offset"]), int(self.row["end_offset"]))


ListedSegments = dict[TopicPartition, tuple[SegmentPart, ...]]
"""The segments of each partition, in the order of their offsets."""


def segments_in(parts: Sequence[SegmentPart], wanted: OffsetRange) -> list[SegmentPart]:
    """Return the parts that overlap ``wanted``. ``parts``: in the order of their offsets."""
    start, end = wanted
    if parts and start <= parts[0].range.start and parts[-1].range.end <= end:
        return [*parts]
    ranges = ((part, part.range) for part in parts)
    return [part for part, within in ranges if within.start < end and within.end > start]


def encode_segment_list(segments: ListedSegments) -> bytes:
    """Return the bytes of a segment list, or of a leaf: the same for the same segments and versions of the
    libraries.
    """
    listed = [(key, part) for key in sorted(segments) for part in segments[key]]
    rows = np.array([part.row for _, part in listed], SEGMENT)
    columns: dict[str, Any] = {
        "topic_id": [key.topic_id for key, _ in listed],
        "partition": [key.partition for key, _ in listed],
        **{name: np.ascontiguousarray(rows[name]) for name in SEGMENT.names or ()},
    }
    for sidecar in _SIDECARS:
        named = [getattr(part.record, sidecar) or ObjectRecord("", 0, "") for _, part in listed]
        columns |= {
            f"{sidecar}_key": [one.key for one in named],
            f"{sidecar}_size": [one.size for one in named],
            f"{sidecar}_sha256": [one.sha256 for one in named],
        }
    arrays = [pa.array(columns[field.name], _plain(field.type)).cast(field.type) for field in SCHEMA]
    return encode_arrow_file(pa.record_batch(arrays, schema=SCHEMA))


def row_bytes(part: SegmentPart, known: set[str]) -> int:
    """Return about how many bytes a row takes, decoded; ``known``: keys of the ``.index`` of rows before it,
    to which its own is added.
    """
    size = SEGMENT.itemsize + 8 * len(_SIDECARS)
    if part.record.index.key not in known:
        known.add(part.record.index.key)
        size += len(_SIDECARS) * (len(part.record.index.key) + 64)
    return size


def encode_root(leaves: Sequence[ListLeaf]) -> bytes:
    """Return the bytes of the root of a divided list; its leaves in the order of their rows."""
    columns: dict[str, Any] = {
        **{f"{bound}_topic_id": [getattr(leaf, bound).topic_id for leaf in leaves] for bound in _BOUNDS},
        **{f"{bound}_partition": [getattr(leaf, bound).partition for leaf in leaves] for bound in _BOUNDS},
        "rows": [leaf.rows for leaf in leaves],
        **{name: [getattr(leaf.record, name) for leaf in leaves] for name in ("key", "size", "sha256")},
    }
    arrays = [pa.array(columns[field.name], _plain(field.type)).cast(field.type) for field in ROOT_SCHEMA]
    return encode_arrow_file(pa.record_batch(arrays, schema=ROOT_SCHEMA))


def decode_root(data: bytes | None, named: SegmentListRecord) -> tuple[ListLeaf, ...]:
    """Return the leaves of a divided list, verified against what the log says first.

    Raises CorruptDataError as :func:`decode_segment_list`.
    """
    table = decode_arrow_file(_verified(data, named), ROOT_SCHEMA, partial(_corrupt, named))
    if table.num_rows != named.leaves:
        raise _corrupt(named, f"{table.num_rows} leaves")
    columns = {name: _values(table, name) for name in ROOT_SCHEMA.names}
    first, last = (
        list(map(TopicPartition, columns[f"{bound}_topic_id"], columns[f"{bound}_partition"]))
        for bound in _BOUNDS
    )
    bounds = [bound for pair in zip(first, last, strict=True) for bound in pair]
    if any(later < earlier for earlier, later in pairwise(bounds)):
        raise _corrupt(named, "leaves that are not in the order of topics and partitions")
    if sum(columns["rows"]) != named.rows:
        raise _corrupt(named, f"leaves with {sum(columns['rows'])} rows")
    try:
        records = [
            msgspec.convert({"key": key, "size": size, "sha256": sha256}, ObjectRecord)
            for key, size, sha256 in zip(columns["key"], columns["size"], columns["sha256"], strict=True)
        ]
    except msgspec.ValidationError as error:
        raise _corrupt(named, f"a leaf is none: {error}") from None
    for record in records:
        keys.check_key(record.key, keys.parse_table_key, where=named.key)
    if len({record.key for record in records}) < len(records):
        raise _corrupt(named, "two leaves with one key")
    return tuple(map(ListLeaf, first, last, columns["rows"], records))


def decode_leaf(data: bytes | None, leaf: ListLeaf, directories: Mapping[str, str]) -> ListedSegments:
    """Return the segments of a leaf, verified against what the root says first.

    Raises CorruptDataError as :func:`decode_segment_list`.
    """
    found = decode_segment_list(data, leaf.record, directories)
    rows = sum(map(len, found.values()))
    if rows != leaf.rows or (rows and (min(found) != leaf.first or max(found) != leaf.last)):
        raise _corrupt(leaf.record, f"{rows} rows, not the {leaf.rows} of its partitions that the root names")
    return found


def leaves_of(leaves: Sequence[ListLeaf], key: TopicPartition) -> Sequence[ListLeaf]:
    """Return the leaves that may have rows of a partition."""
    begin = bisect_left(leaves, key, key=lambda leaf: leaf.last)
    return leaves[begin : bisect_right(leaves, key, key=lambda leaf: leaf.first)]


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decode_segment_list(
    data: bytes | None, named: ObjectRecord, directories: Mapping[str, str]
) -> ListedSegments:
    """Return the segments of a list, verified against what the log says first.

    ``directories`` says by topic id where its sidecars must be; nothing is asked of topics that are not
    there. Raises CorruptDataError: it is missing, not the object that was named, not such a file, or names a
    sidecar of another topic.
    """
    table = decode_arrow_file(_verified(data, named), SCHEMA, partial(_corrupt, named))
    rows = rows_of(table, SEGMENT)
    records = _records(table, named, directories)
    found: dict[TopicPartition, list[SegmentPart]] = {}
    ends: dict[TopicPartition, int] = {}
    columns = (table.column(name).to_pylist() for name in ("partition", "start_offset", "end_offset"))
    for record, row, topic_id, partition, start, end in zip(
        records, rows, _values(table, "topic_id"), *columns, strict=True
    ):
        key = TopicPartition(topic_id, partition)
        if ends.setdefault(key, start) != start:
            raise _corrupt(named, f"a gap before offset {start} of {topic_id}/{partition}")
        ends[key] = end
        found.setdefault(key, []).append(SegmentPart(record, row))
    if any(later < earlier for earlier, later in pairwise(found)):
        raise _corrupt(named, "rows that are not in the order of topics and partitions")
    return {key: tuple(parts) for key, parts in found.items()}


def _records(table: pa.Table, named: ObjectRecord, directories: Mapping[str, str]) -> list[SegmentRecord]:
    # A list may have very many rows with few values: each is made once.
    topic_ids = _values(table, "topic_id")
    sidecars = []
    for sidecar, parse in _SIDECARS.items():
        columns = [_values(table, f"{sidecar}_{name}") for name in ("key", "size", "sha256")]
        objects: dict[str, ObjectRecord] = {}
        one: list[ObjectRecord | None] = []
        for key, size, sha256 in zip(*columns, strict=True):
            record = objects.get(key)
            if record is None and key:
                record = objects[key] = ObjectRecord(key, size, sha256)
            elif record is not None and (record.size != size or record.sha256 != sha256):
                raise _corrupt(named, f"two sizes or hashes of {key}")
            one.append(record)
        for key in objects:
            keys.check_key(key, parse, where=named.key)
        for topic_id, key in {
            (topic, record.key) for topic, record in zip(topic_ids, one, strict=True) if record
        }:
            if topic_id in directories:
                keys.check_topics_sidecar(key, directories[topic_id], where=named.key)
        sidecars.append(one)
    known: dict[str, SegmentRecord] = {}
    found = []
    for topic_id, index, markers, txnindex in zip(topic_ids, *sidecars, strict=True):
        if index is None:
            raise _corrupt(named, "a segment without an .index")
        segment = known.get(index.key)
        if segment is None:
            segment = known[index.key] = SegmentRecord(topic_id, index, markers, txnindex)
        elif (
            segment.topic_id != topic_id or segment.markers is not markers or segment.txnindex is not txnindex
        ):
            raise _corrupt(named, f"two segments with {index.key}")
        found.append(segment)
    return found


def _values(table: pa.Table, name: str) -> list[Any]:
    """Return a column as Python's values, those of a dictionary made once each."""
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        found: list[Any] = column.to_pylist()
        return found
    values: list[Any] = []
    for chunk in column.chunks:
        texts = chunk.dictionary.to_pylist()
        values += [texts[index] for index in chunk.indices.to_pylist()]
    return values


def _verified(data: bytes | None, named: ObjectRecord) -> bytes:
    got = difference(data, named)
    if data is None or got is not None:
        raise _corrupt(named, str(got))
    return data


def _corrupt(named: ObjectRecord, got: str) -> CorruptDataError:
    return CorruptDataError(
        "a segment list differs from the one that the log names",
        kind="corrupt-sidecar",
        hint="restore the object from a copy; offsets that are not listed can be read, and the log be "
        "written",
        object=named.key,
        expected=f"{named.size} bytes, sha256 {named.sha256}",
        got=got,
    )
