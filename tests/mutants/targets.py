"""What is changed, and what reads it: footers, pages and Arrow files, each behind the right hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.mutants.mutations import every_byte, several
from txnformat.core.entry import sha256_hex
from txnformat.core.records.batch_table import decode_batch_table, encode_batch_table
from txnformat.core.records.state import SEGMENT
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    ListLeaf,
    SegmentPart,
    decode_root,
    decode_segment_list,
    encode_root,
    encode_segment_list,
)
from txnformat.core.sealing.sidecar import (
    INDEX_ROW,
    MARKER_ROW,
    decode_index,
    decode_markers,
    encode_index,
    encode_markers,
)
from txnformat.errors import CorruptDataError
from txnformat.keys import sidecar_key, table_key
from txnformat.persistent import replace
from txnformat.segments.footer import FooterError
from txnformat.segments.footer_schema import decode_schema
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import (
    BatchRecord,
    FileRecord,
    ObjectRecord,
    SegmentListRecord,
    SegmentRecord,
    TopicPartition,
)

__all__ = ["Target", "tables", "targets"]

UUID = "00000000-0000-4000-8000-000000000000"
KEY = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet"


@dataclass(frozen=True, slots=True)
class Target:
    """One object, the bytes of it that are changed, and its reader."""

    name: str
    data: bytes
    start: int
    end: int
    use: Callable[[bytes], object]
    """Returns, or raises a TxnLogError: an AssertionError says that it read something else than was written.
    """
    weight: float = 1.0

    def inputs(self, seed: int, times: int, drawn: int) -> Iterator[bytes]:
        """Yield the object with each byte changed ``times`` times, and ``drawn`` times with several
        changes.
        """
        return chain(
            every_byte(self.data, self.start, self.end, times, seed),
            several(self.data, self.start, self.end, drawn, seed),
        )


def tables() -> dict[str, pa.Table]:
    """Return small tables of every kind of column, by name."""
    rows = 60
    numbers = pa.table(
        {
            "i8": pa.array([number % 100 for number in range(rows)], pa.int8()),
            "i32": pa.array(range(rows), pa.int32()),
            "i64": pa.array([None if number % 3 == 0 else number for number in range(rows)]),
            "f": pa.array([number / 7 for number in range(rows)], pa.float32()),
            "d": pa.array([number / 7 for number in range(rows)]),
            "b": pa.array([number % 2 == 0 for number in range(rows)]),
            "decimal": pa.array([None] * rows, pa.decimal128(20, 3)),
        }
    )
    texts = pa.table(
        {
            "s": pa.array([None if number % 5 == 0 else f"name-{number % 7}" for number in range(rows)]),
            "raw": pa.array([bytes([number]) * number for number in range(rows)]),
            "t": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            "took": pa.array(range(rows), pa.duration("us")),
        }
    )
    element = pa.field("element", pa.string())
    nested = pa.table(
        {
            "l": pa.array([[f"x{number}"] * (number % 4) for number in range(rows)], pa.list_(element)),
            "m": pa.array([[("k", number)] for number in range(rows)], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"a": number, "b": "y"} for number in range(rows)]),
        }
    )
    return {"numbers": numbers, "texts": texts, "nested": nested}


def _record(data: bytes, footer_bytes: int, rows: int) -> FileRecord:
    footer = hashlib.sha256(data[-footer_bytes:]).hexdigest()
    return FileRecord(KEY, len(data), hashlib.sha256(data).hexdigest(), footer_bytes, footer, rows)


def _read(data: bytes, footer_bytes: int, schema: pa.Schema, rows: int) -> pa.Table:
    store = MemoryStore()
    store.put(KEY, data)
    reader = SegmentFileReader(store, _record(data, footer_bytes, rows), schema, threads=1, alone=False)
    groups = range(len(reader.row_group_counts()))
    for name in schema.names:
        reader.statistics(groups, name)
    return pa.Table.from_batches(reader.read(groups, schema.names, 1_000), schema)


def _use_footer(table: pa.Table, data_bytes: int, data: bytes) -> None:
    # Its own length is part of what is changed: the entry says where the footer begins.
    found = _read(data, len(data) - data_bytes, table.schema, table.num_rows)
    if not found.equals(table):
        raise AssertionError("other rows were read than were written")


def _use_pages(schema: pa.Schema, rows: int, footer_bytes: int, data: bytes) -> None:
    found = _read(data, footer_bytes, schema, rows)
    found.validate(full=False)


def _use_schema(data_bytes: int, data: bytes) -> None:
    try:
        decode_schema(data[data_bytes:])
    except FooterError as error:
        raise CorruptDataError(error.what) from error


def _written(table: pa.Table) -> bytes:
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(KEY), KEY, table.schema)
    half = table.num_rows // 2
    for part in (table.slice(0, half), table.slice(half)):
        writer.write_batch(0, part)
    writer.close()
    return store.get(KEY) or b""


def _foreign(table: pa.Table, **options: Any) -> bytes:
    """Return a file of another writer: without checksums, so that changed pages reach the decoder."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **({"compression": "zstd", "store_schema": True} | options))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _parquet_targets() -> Iterator[Target]:
    for name, table in tables().items():
        data = _written(table)
        end = len(data) - int.from_bytes(data[-8:-4], "little") - 8
        yield Target(f"footer-{name}", data, end, len(data), partial(_use_footer, table, end))
        yield Target(f"schema-{name}", data, end, len(data), partial(_use_schema, end))
        foreign = _foreign(table)
        end = len(foreign) - int.from_bytes(foreign[-8:-4], "little") - 8
        yield Target(f"footer-foreign-{name}", foreign, end, len(foreign), partial(_use_footer, table, end))
        kinds: tuple[tuple[str, dict[str, Any]], ...] = (
            ("dictionary", {"use_dictionary": True}),
            ("plain", {"use_dictionary": False}),
            ("pages", {"use_dictionary": True, "data_page_size": 64, "write_batch_size": 8}),
            ("v2", {"use_dictionary": True, "data_page_version": "2.0"}),
            ("stored", {"use_dictionary": True, "compression": "none"}),
        )
        for kind, options in kinds:
            foreign = _foreign(table, **options)
            footer = int.from_bytes(foreign[-8:-4], "little") + 8
            use = partial(_use_pages, table.schema, table.num_rows, footer)
            yield Target(f"{kind}-{name}", foreign, 4, len(foreign) - footer, use)


def _use_named(decode: Callable[[bytes, ObjectRecord], object], data: bytes) -> None:
    decode(data, ObjectRecord("t-00000000/index/x", len(data), sha256_hex(data)))


def _listed() -> ListedSegments:
    listed: ListedSegments = {}
    for number in range(20):
        row = np.zeros(1, SEGMENT)[0]
        row["end_offset"] = 1
        named = [sidecar_key(KEY.partition("/")[0], number, UUID, kind) for kind in ("index", "markers")]
        record = SegmentRecord(UUID, *(ObjectRecord(key, 9, "0" * 64) for key in named))
        listed[TopicPartition(UUID, number)] = (SegmentPart(record, row),)
    return listed


def _leaves() -> list[ListLeaf]:
    return [
        ListLeaf(
            TopicPartition(UUID, number),
            TopicPartition(UUID, number),
            5,
            ObjectRecord(table_key(number, UUID), 9, "0" * 64),
        )
        for number in range(20)
    ]


def _decode_root(data: bytes, named: ObjectRecord) -> object:
    return decode_root(data, SegmentListRecord(named.key, named.size, named.sha256, 0, 100, 20))


def _arrow_targets() -> Iterator[Target]:
    count = 50
    index = np.zeros(count, INDEX_ROW)
    index["base_offset"] = np.arange(count)
    index["records"] = index["row_group_count"] = 1
    index["file"] = np.arange(count) % 3
    record = FileRecord(KEY, 1_000, "0" * 64, 100, "1" * 64, 50)
    files = {number: replace(record, size=1_000 + number) for number in range(3)}
    markers = np.zeros(count, MARKER_ROW)
    markers["offset"] = np.arange(count)
    batches = [BatchRecord(0, 0, number, 1, 10, 100, 0, 0) for number in range(count)]
    kinds: tuple[tuple[str, bytes, Callable[[bytes, ObjectRecord], object]], ...] = (
        ("index", encode_index(index, files), decode_index),
        ("markers", encode_markers(markers), decode_markers),
        ("batch-table", encode_batch_table([(0, batches)]), decode_batch_table),
        ("segment-list", encode_segment_list(_listed()), partial(decode_segment_list, directories={})),
        ("segment-root", encode_root(_leaves()), _decode_root),
    )
    for name, data, decode in kinds:
        yield Target(name, data, 0, len(data), partial(_use_named, decode))


@cache
def targets() -> tuple[Target, ...]:
    """Return all targets."""
    return (*_parquet_targets(), *_arrow_targets())
