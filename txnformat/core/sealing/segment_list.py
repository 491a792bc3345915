"""The segment list: one object that describes all older sealed segments, so that a state names only the newest. Pure.

An Arrow file with a row per segment and partition: topic, partition, the columns of ``partition.SEGMENT``, and the
sidecars (an empty key: the segment has no such sidecar).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.columns.arrow_file import decode_arrow_file, encode_arrow_file, rows_of
from txnformat.columns.arrow_messages import decoded_bytes_max
from txnformat.core.entry import sha256_hex
from txnformat.core.records.state import SEGMENT
from txnformat.core.wire.document import METADATA_BYTES_MAX
from txnformat.errors import CorruptDataError
from txnformat.types import ObjectRecord, OffsetRange, SegmentRecord, TopicPartition

__all__ = ["ListedSegments", "SegmentPart", "decode_segment_list", "encode_segment_list", "segments_in"]

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
"""Of each partition, its segments in the order of their offsets."""


def segments_in(parts: Sequence[SegmentPart], wanted: OffsetRange) -> list[SegmentPart]:
    """Return the parts that overlap ``wanted``."""
    return [part for part in parts if part.range.start < wanted.end and part.range.end > wanted.start]


def encode_segment_list(segments: ListedSegments) -> bytes | None:
    """Return the bytes of a segment list: the same for the same segments and versions of the libraries.

    None: it would be larger than what readers decode.
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
    batch = pa.record_batch(arrays, schema=SCHEMA)
    data = encode_arrow_file(batch)
    return data if batch.nbytes <= min(decoded_bytes_max(len(data)), METADATA_BYTES_MAX) else None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decode_segment_list(
    data: bytes | None, named: ObjectRecord, directories: Mapping[str, str]
) -> ListedSegments:
    """Return the segments of a list, verified against what the log says first.

    ``directories`` says by topic id where its sidecars must be; nothing is asked of topics that are not there. Raises CorruptDataError: it is
    missing, not the object that was named, not such a file, or names a sidecar of another topic.
    """
    if data is None or len(data) != named.size or sha256_hex(data) != named.sha256:
        raise _corrupt(named, "nothing" if data is None else f"{len(data)} bytes, sha256 {sha256_hex(data)}")
    table = decode_arrow_file(data, SCHEMA, partial(_corrupt, named))
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


def _corrupt(named: ObjectRecord, got: str) -> CorruptDataError:
    return CorruptDataError(
        "a segment list is not the one that the log names",
        kind="corrupt-sidecar",
        hint="restore the object from a copy; offsets that are not listed can be read, and the log be written",
        object=named.key,
        expected=f"{named.size} bytes, sha256 {named.sha256}",
        got=got,
    )
