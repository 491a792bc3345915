"""Arrow files: what they declare is checked before it is decompressed, and only the format's own shape is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.limits.flatbuffers import names_file
from txnformat.columns.arrow_messages import WHOLE_BYTES_MAX, ArrowFileError, read_arrow_file

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        pa.field("k", pa.int32(), nullable=False),
        pa.field("s", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    ]
)


def batch(rows: int = 5, texts: Any = ("a", "bb"), schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    numbers = pa.array(np.arange(rows) % max(1, len(texts)), pa.int32())
    strings = pa.DictionaryArray.from_arrays(numbers, pa.array(texts, pa.string()), safe=False)
    return pa.record_batch([pa.array(np.arange(rows) // 5_000), numbers, strings], schema=schema)


def file_of(*batches: pa.RecordBatch, compression: str | None = "zstd", stream: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for one in batches:
            writer.write_batch(one)
    data: bytes = sink.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("rows", [0, 1, 5, 3_000])
def test_a_file_is_read_as_pyarrow_reads_it(compression: str | None, rows: int) -> None:
    data = file_of(batch(rows), compression=compression)
    found, columns = read_arrow_file(data, SCHEMA)
    assert found == rows
    expected = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    assert pa.table(list(columns.values()), schema=SCHEMA).equals(expected)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no Arrow file"),
        (file_of(batch(), stream=True), "no Arrow file"),
        (file_of(batch(), batch()), "2 batches, more than 1"),
        (file_of(batch(schema=pa.schema([*[*SCHEMA][:2], SCHEMA.field(2).with_nullable(True)]))), "columns"),
        (file_of(batch(schema=pa.schema([SCHEMA.field(0).with_name("m"), *[*SCHEMA][1:]]))), "columns"),
        (file_of(batch().select(["n", "k"])), "columns"),
        (file_of(pa.record_batch([[1], [2.0], ["x"]], names=["n", "k", "s"])), "columns"),
        (file_of(batch(WHOLE_BYTES_MAX // 16 + 1)), "bytes when decompressed"),
        (file_of(batch(texts=["x" * (WHOLE_BYTES_MAX + 1)])), "bytes when decompressed"),
    ],
)  # fmt: skip
def test_another_file_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ArrowFileError, match=message):
        read_arrow_file(data, SCHEMA)


@pytest.mark.parametrize("columns", [len(SCHEMA), 1_000])
def test_a_name_that_many_columns_share_is_not_made_for_each(columns: int) -> None:
    data = names_file(columns, b"x" * 10_000)
    with pytest.raises(
        ArrowFileError, match="a name of 10000 bytes" if columns == 3 else "1000 columns, not 3"
    ):
        read_arrow_file(data, SCHEMA)


def test_a_number_without_a_value_and_a_null_are_refused() -> None:
    texts = pa.array(["a"])
    numbers = pa.array([0, 1], pa.int32())
    strings = pa.DictionaryArray.from_arrays(numbers, texts, safe=False)
    lying = pa.RecordBatch.from_arrays([pa.array([1, 2]), numbers, strings], schema=SCHEMA)
    with pytest.raises(ArrowFileError, match="values that its dictionary does not have"):
        read_arrow_file(file_of(lying), SCHEMA)
    nulls = pa.RecordBatch.from_arrays([pa.array([1, None]), numbers, strings], schema=SCHEMA)
    with pytest.raises(ArrowFileError, match="nulls"):
        read_arrow_file(file_of(nulls), SCHEMA)


def test_a_buffer_that_decompresses_to_other_than_it_declares_is_refused() -> None:
    data = file_of(batch(3_000))
    place = data.index((24_000).to_bytes(8, "little") + b"\x28\xb5\x2f\xfd")
    for declared in (8_000, 24_001, 24_000 - 8, -2, 1 << 62):
        changed = data[:place] + declared.to_bytes(8, "little", signed=True) + data[place + 8 :]
        with pytest.raises(ArrowFileError):
            read_arrow_file(changed, SCHEMA)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = file_of(batch(texts=["abcdefgh"]), compression=None)
    with pytest.raises(ArrowFileError):
        read_arrow_file(data.replace(b"abcdefgh", b"\xff\xfe\xfdabcde"), SCHEMA)
