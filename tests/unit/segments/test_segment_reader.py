"""What a reader of segment files makes of what Arrow gives it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import CorruptDataError
from txnformat.segments.reader import SegmentFileReader, _Decoding
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord

KEY = "rows-00000000/data/00000000000000000002-00000000-0000-4000-8000-000000000000.parquet"


def write(store: MemoryStore, table: pa.Table) -> FileRecord:
    """Write a file of one batch."""
    writer = SegmentFileWriter(store.open_write(KEY), KEY, table.schema)
    writer.write_batch(0, table)
    return writer.close()


def test_a_lack_of_memory_is_no_damage_of_the_file() -> None:
    store, table = MemoryStore(), pa.table({"n": [1, 2]})
    reader = SegmentFileReader(store, write(store, table), table.schema)
    with pytest.raises(MemoryError), _Decoding(reader):
        raise pa.ArrowMemoryError("malloc of 1 byte failed")
    with pytest.raises(CorruptDataError, match="cannot be decoded"), _Decoding(reader):
        raise pa.ArrowInvalid("of the bytes")


def test_batches_have_the_marks_of_the_readers_schema_whatever_was_read_before() -> None:
    """Schemas that differ in marks alone are equal to Arrow, and the shape of their files is kept once."""
    marked = pa.schema([pa.field("c", VARIANT), pa.field("n", pa.int64())])
    plain = pa.struct([pa.field("value", pa.binary()), pa.field("metadata", pa.binary())])
    unmarked = pa.schema([pa.field("c", plain), pa.field("n", pa.int64())])
    rows = {"c": [{"value": b"v", "metadata": b"m"}], "n": [1]}
    store = MemoryStore()
    file = write(store, pa.table(rows, schema=unmarked))
    for schema in (unmarked, marked, unmarked):
        for columns in (["c", "n"], ["c"]):
            (batch,) = SegmentFileReader(store, file, schema).read([0], columns, 10)
            assert batch.schema.equals(pa.schema([schema.field(name) for name in columns]))
            assert is_variant(batch.schema.field("c").type) == (schema is marked)
