"""Arrow files: what they declare is checked before it is decompressed, and only the format's own shape is
read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.limits.flatbuffers import names_file
from txnformat.columns import arrow_messages
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


# --- schemas that are remembered ----------------------------------------------------------------------------


def two_fields(names: tuple[str, str], types: tuple[Any, Any] = (pa.int64(), pa.int32())) -> pa.Schema:
    return pa.schema([pa.field(n, t, nullable=False) for n, t in zip(names, types, strict=True)])


def test_what_is_remembered_of_one_schema_is_said_of_no_other() -> None:
    """Files of schemas that differ in one name, one type, in order, nullability or the numbers of
    dictionaries, read as each of them, again and again."""
    arrow_messages._remembered.cache_clear()
    text = pa.dictionary(pa.int32(), pa.string())
    schemas = [
        two_fields(("a", "b")),
        two_fields(("a", "c")),
        two_fields(("b", "a")),
        two_fields(("a", "b"), (pa.int32(), pa.int64())),
        two_fields(("a", "b"), (pa.int64(), pa.int64())),
        two_fields(("a", "b"), (text, pa.int32())),
        two_fields(("a", "b"), (pa.int32(), text)),
        two_fields(("a", "b"), (text, text)),
        pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int32(), nullable=False)]),
    ]
    values = {
        schema: [
            pa.array(["x", "y", "x"], pa.string()).dictionary_encode()
            if pa.types.is_dictionary(field.type)
            else pa.array([1, 2, 3], field.type)
            for field in schema
        ]
        for schema in schemas
    }
    files = {schema: file_of(pa.record_batch(values[schema], schema=schema)) for schema in schemas}
    for _ in range(3):
        for written in schemas:
            for asked in schemas:
                if written == asked and not asked.field(0).nullable:
                    rows, columns = read_arrow_file(files[written], asked)
                    assert rows == 3
                    expected = pa.ipc.open_file(pa.BufferReader(files[written])).read_all()
                    assert pa.table(list(columns.values()), schema=asked).equals(expected)
                elif written != asked:
                    with pytest.raises(ArrowFileError):
                        read_arrow_file(files[written], asked)
    assert arrow_messages._remembered.cache_info().hits


@pytest.mark.parametrize("stream", [False, True])
def test_no_byte_of_a_schema_changes_what_another_file_is_taken_for(stream: bool) -> None:
    """Each byte of a small file is changed: with a memory of the file as it was, the answer is that of a
    process that never saw it."""
    schema = two_fields(("a", "b"))
    data = file_of(pa.record_batch([[1, 2], pa.array([3, 4], pa.int32())], schema=schema), stream=stream)

    def answer(changed: bytes) -> Any:
        try:
            if stream:
                return arrow_messages.check_stream(memoryview(changed), schema, len(changed))
            rows, columns = read_arrow_file(changed, schema)
        except ArrowFileError as error:
            return str(error)
        return rows, {name: column.to_pylist() for name, column in columns.items()}

    for at in range(len(data)):
        for bit in (1, 16, 128):
            changed = data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :]
            arrow_messages._remembered.cache_clear()
            alone = answer(changed)
            arrow_messages._remembered.cache_clear()
            answer(data)
            assert answer(changed) == alone, at


def test_a_schema_that_refers_to_bytes_before_it_is_not_remembered() -> None:
    """Its vtables may lie among what differs from file to file: a name or a type there is read anew each
    time."""
    arrow_messages._remembered.cache_clear()
    schema = two_fields(("a", "b"))
    data = file_of(pa.record_batch([[1, 2], pa.array([3, 4], pa.int32())], schema=schema), stream=True)
    length = int.from_bytes(data[4:8], "little")
    message = bytearray(data[8 : 8 + length])
    found = arrow_messages._message(memoryview(data), 0, arrow_messages.SCHEMA)[1].table(2)
    assert found is not None
    # The vtable of the first field goes to the message's first bytes, behind the place of its root.
    (first, _) = found.tables(1)
    vtable = first.at - int.from_bytes(message[first.at : first.at + 4], "little", signed=True)
    size = int.from_bytes(message[vtable : vtable + 2], "little")
    moved = bytearray(message[:4]) + message[vtable : vtable + size] + bytes(-size % 8 + 4) + message[4:]
    shift = len(moved) - len(message)
    moved[:4] = (int.from_bytes(message[:4], "little") + shift).to_bytes(4, "little")
    at = first.at + shift
    moved[at : at + 4] = (at - 4).to_bytes(4, "little", signed=True)
    table = arrow_messages._Table(memoryview(bytes(moved)), found.at + shift)
    for _ in range(2):
        assert [field.name for field in arrow_messages._known_fields(table, schema)] == ["a", "b"]
    assert arrow_messages._remembered.cache_info()[::3] == (0, 0), "no hit, nothing kept"
    moved[4:6] = (4).to_bytes(2, "little")  # a vtable without any field: all have their defaults
    other = arrow_messages._Table(memoryview(bytes(moved)), found.at + shift)
    with pytest.raises(ArrowFileError, match="another schema"):
        arrow_messages._known_fields(other, schema)


def test_what_is_remembered_is_bounded() -> None:
    arrow_messages._remembered.cache_clear()
    for number in range(arrow_messages.SCHEMAS_KNOWN_MAX + 40):
        schema = two_fields((f"a{number}", "b"))
        assert (
            read_arrow_file(
                file_of(pa.record_batch([[1], pa.array([2], pa.int32())], schema=schema)), schema
            )[0]
            == 1
        )
    assert arrow_messages._remembered.cache_info().currsize == arrow_messages.SCHEMAS_KNOWN_MAX
    wide = pa.schema([pa.field(f"column {number:0100}", pa.int32(), nullable=False) for number in range(200)])
    arrow_messages._remembered.cache_clear()
    data = file_of(pa.record_batch([pa.array([1], pa.int32())] * 200, schema=wide))
    assert read_arrow_file(data, wide)[0] == 1
    assert not arrow_messages._remembered.cache_info().currsize, "it has more bytes than are remembered"
