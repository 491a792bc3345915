"""Arrow IPC files of flat columns, decoded without Arrow's decoder: integers, and texts in dictionaries.

Pure.

A flatbuffer is a graph: a few bytes may stand for very many fields, or very long names. So a schema is
compared with the expected one while it is read, and Arrow's own decoder never gets one. The places, rows and
decompressed sizes that a file declares are checked before anything is made of them, and nothing is larger
than it declares. Only what the format's own files have is read: one record batch, no nulls.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["ArrowFileError", "check_stream", "decoded_bytes_max", "read_arrow_file"]

MAGIC = b"ARROW1"
CONTINUATION = 0xFFFFFFFF
SCHEMA, DICTIONARY_BATCH, RECORD_BATCH = 1, 2, 3
INT = 2
TEXTS = {5: "string", 19: "large_binary"}
CODECS = {0: "lz4", 1: "zstd"}
FIELDS_MAX = 1_000
"""Columns of a file (inclusive)."""
NAME_BYTES_MAX = 249
"""Longest name of a column (inclusive): many fields may have one and the same long name."""

WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Decompressed bytes of a file (inclusive), unless they are at most RATIO_MAX times as many as the file has.
"""
SCHEMAS_KNOWN_MAX = 64
"""Schemas of files that the process remembers to have compared (inclusive),"""
KNOWN_BYTES_MAX = 16 * 1024
"""none of which has more bytes (inclusive)."""

RATIO_MAX = 64
"""Four times that of real files: a segment list of parts that differ has 16 or less, an ``.index`` 22,
markers 11."""

Columns = Mapping[str, pa.Array]


class ArrowFileError(ValueError):
    """The bytes are no such file."""


class _Table(NamedTuple):
    """A table of a flatbuffer."""

    data: memoryview
    at: int

    def field(self, index: int) -> int | None:
        """Return where a field's value is; None where it has its default."""
        vtable = self.at - _unpack(self.data, "<i", self.at)
        if 4 + 2 * index + 2 > _unpack(self.data, "<H", vtable):
            return None
        offset = _unpack(self.data, "<H", vtable + 4 + 2 * index)
        return self.at + offset if offset else None

    def number(self, index: int, form: str, default: int = 0) -> int:
        at = self.field(index)
        return default if at is None else _unpack(self.data, form, at)

    def table(self, index: int) -> _Table | None:
        at = self.field(index)
        return None if at is None else _Table(self.data, at + _unpack(self.data, "<I", at))

    def vector(self, index: int, size: int) -> tuple[int, int]:
        """Return where the elements of a vector begin, each of ``size`` bytes, and how many there are."""
        at = self.field(index)
        if at is None:
            return 0, 0
        at += _unpack(self.data, "<I", at)
        count = _unpack(self.data, "<I", at)
        if count * size > len(self.data) - at - 4:
            raise ArrowFileError(f"{count} elements of {size} bytes are more than there are")
        return at + 4, count

    def tables(self, index: int) -> Iterator[_Table]:
        at, count = self.vector(index, 4)
        for place in range(at, at + 4 * count, 4):
            yield _Table(self.data, place + _unpack(self.data, "<I", place))

    def text(self, index: int) -> str:
        at, count = self.vector(index, 1)
        if count > NAME_BYTES_MAX:
            raise ArrowFileError(f"a name of {count} bytes")
        return bytes(self.data[at : at + count]).decode("utf-8", "replace")


def _unpack(data: memoryview, form: str, at: int) -> int:
    if not 0 <= at <= len(data) - struct.calcsize(form):
        raise ArrowFileError(f"byte {at} is outside of {len(data)}")
    value: int = struct.unpack_from(form, data, at)[0]
    return value


class _Field(NamedTuple):
    name: str
    nullable: bool
    type: str
    dictionary: int | None
    """Number of its dictionary."""


class _Batch(NamedTuple):
    """A record batch, or a dictionary as one."""

    rows: int
    buffers: list[tuple[memoryview, int]]
    """Stored bytes, and how many they decompress to; -1 where they are not compressed."""
    codec: str | None
    dictionary: int | None


def read_arrow_file(data: bytes, schema: pa.Schema) -> tuple[int, Columns]:
    """Return number of rows and columns of a file.

    ``schema``: int32, int64, and dictionaries of strings with int32 numbers, none nullable. Raises
    ArrowFileError: the bytes are not such a file with one record batch, or are too large when decompressed.
    """
    view = memoryview(data)
    if data[:8] != MAGIC + b"\0\0" or data[-6:] != MAGIC or len(data) < 18:
        raise ArrowFileError("no Arrow file")
    size = int.from_bytes(data[-10:-6], "little")
    if size > len(data) - 18:
        raise ArrowFileError(f"a footer of {size} bytes in {len(data)}")
    footer_data = view[len(data) - 10 - size : len(data) - 10]
    footer = _Table(footer_data, _unpack(footer_data, "<I", 0))
    fields = _known_fields(footer.table(1), schema)
    numbered = {field.dictionary for field in fields if field.dictionary is not None}
    body_end = len(data) - 10 - size
    batches = [_batch(view[:body_end], *block) for block in _blocks(footer, 3, 1)]
    dictionaries = [_batch(view[:body_end], *block) for block in _blocks(footer, 2, len(numbered))]
    if len(batches) != 1 or batches[0].dictionary is not None:
        raise ArrowFileError(f"{len(batches)} record batches, not one")
    if {each.dictionary for each in dictionaries} != numbered or len(dictionaries) != len(numbered):
        raise ArrowFileError("dictionaries that do not match the columns that need them")
    declared = sum(
        max(length, len(stored)) for each in (*batches, *dictionaries) for stored, length in each.buffers
    )
    allowed = decoded_bytes_max(len(data))
    if declared > allowed:
        raise ArrowFileError(f"{declared} bytes when decompressed, more than {allowed}")
    values = {each.dictionary: _texts(each) for each in dictionaries}
    return batches[0].rows, _columns(batches[0], fields, schema, values)


def decoded_bytes_max(stored: int) -> int:
    """Return how many bytes a file of ``stored`` bytes may decompress to (inclusive)."""
    return max(WHOLE_BYTES_MAX, RATIO_MAX * stored)


def check_stream(data: memoryview, schema: pa.Schema, stored: int, others: int = 0) -> tuple[int, int]:
    """Return where the record batch of an Arrow IPC stream begins, and what it declares to be when
    decompressed, bytes.

    ``data``: of bytes: the stream of ``schema`` and one record batch. Nothing is decompressed. ``stored``:
    bytes of the object that it is a part of. ``others``: bytes that its other parts declare: they count, too.
    Raises ArrowFileError: it declares more than WHOLE_BYTES_MAX and RATIO_MAX times ``stored``, has nulls, or
    is no such stream.
    """
    schema_length, found = _message(data, 0, SCHEMA)
    _known_fields(found.table(2), schema)
    if found.number(3, "<q"):
        raise ArrowFileError("a schema with a body")
    length, found = _message(data, schema_length, RECORD_BATCH)
    batch = _batch(data, schema_length, length, found.number(3, "<q"))
    declared = sum(max(size, len(buffer)) for buffer, size in batch.buffers)
    allowed = decoded_bytes_max(stored)
    if others + declared > allowed:
        raise ArrowFileError(f"{others + declared} bytes when decompressed, more than {allowed}")
    return schema_length, declared


def _message(data: memoryview, at: int, kind: int) -> tuple[int, _Table]:
    """Return a message of a stream, and its length without its body."""
    length = _unpack(data, "<i", at + 4)
    if _unpack(data, "<I", at) != CONTINUATION or not 0 < length <= len(data) - at - 8:
        raise ArrowFileError(f"no message at byte {at}")
    message = data[at + 8 : at + 8 + length]
    found = _Table(message, _unpack(message, "<I", 0))
    if found.number(1, "<B") != kind or found.vector(4, 4)[1]:
        raise ArrowFileError(f"a message of another kind at byte {at}, or one with metadata of its own")
    return 8 + length, found


def _blocks(footer: _Table, index: int, count_max: int) -> list[tuple[int, int, int]]:
    """Return start, length of metadata and length of body of messages."""
    at, count = footer.vector(index, 24)
    if count > count_max:
        raise ArrowFileError(f"{count} batches, more than {count_max}")
    return [
        (
            _unpack(footer.data, "<q", place),
            _unpack(footer.data, "<i", place + 8),
            _unpack(footer.data, "<q", place + 16),
        )
        for place in range(at, at + 24 * count, 24)
    ]


def _known_fields(found: _Table | None, schema: pa.Schema) -> Sequence[_Field]:
    """Return the fields of a schema that is ``schema``: as :func:`_fields`, which takes a millisecond, or as
    that did for the same bytes before.

    Writers put a schema behind what refers to it, and what differs from file to file before it: so the bytes
    from it on are the same in most files.
    """
    if found is None:
        return _fields(found, schema)
    start = max(0, min(found.at, found.at - _unpack(found.data, "<i", found.at)))
    if len(found.data) - start > KNOWN_BYTES_MAX:
        return _fields(found, schema)
    try:
        return _remembered(bytes(found.data[start:]), found.at - start, schema)
    except ArrowFileError:
        return _fields(found, schema)  # it is not the schema; or it is, and refers to bytes before it


@lru_cache(SCHEMAS_KNOWN_MAX)
def _remembered(data: bytes, at: int, schema: pa.Schema) -> tuple[_Field, ...]:
    """Return the fields of a schema at ``at``, which nothing says but these bytes."""
    return tuple(_fields(_Table(memoryview(data), at), schema))


def _fields(found: _Table | None, schema: pa.Schema) -> list[_Field]:
    """Return the fields of a schema that is ``schema``."""
    if found is None or found.number(0, "<h") != 0:
        raise ArrowFileError("no schema, or one of big-endian values")
    _, count = found.vector(1, 4)
    if count != len(schema):
        raise ArrowFileError(f"{count} columns, not {len(schema)}")
    fields = []
    for expected, table in zip(schema, found.tables(1), strict=True):
        dictionary = table.table(4)
        number = None
        kind = _type(table.number(2, "<B"), table.table(3))
        if dictionary is not None:
            number = dictionary.number(0, "<q")
            kind = f"dictionary<values={kind}, indices={_type(INT, dictionary.table(1))}, ordered=0>"
        field = _Field(table.text(0), bool(table.number(1, "<B")), kind, number)
        if field[:3] != (expected.name, expected.nullable, str(expected.type)):
            raise ArrowFileError(f"columns of another schema: {field.name!r} of type {kind}")
        fields.append(field)
    return fields


def _type(kind: int, type_: _Table | None) -> str:
    if kind == INT and type_ is not None:
        return f"{'' if type_.number(1, '<B') else 'u'}int{type_.number(0, '<i')}"
    return TEXTS.get(kind, f"type {kind}")


def _batch(data: memoryview, start: int, length: int, body_length: int) -> _Batch:
    """Return the batch of a message: its places and declared sizes, all within the file."""
    if not 8 <= start <= len(data) or not 8 <= length <= len(data) - start or body_length < 0:
        raise ArrowFileError(f"a message at {start} of {length} and {body_length} bytes")
    body = data[start + length :]
    if body_length > len(body):
        raise ArrowFileError(f"a body of {body_length} bytes, more than there are")
    body = body[:body_length]
    message = data[start : start + length]
    if _unpack(message, "<I", 0) == CONTINUATION:
        message = message[4:]
    message = message[4:]
    root = _Table(message, _unpack(message, "<I", 0))
    kind = root.number(1, "<B")
    header = root.table(2)
    dictionary = None
    if kind == DICTIONARY_BATCH and header is not None:
        dictionary = header.number(0, "<q")
        if header.number(2, "<B"):
            raise ArrowFileError("a dictionary in several parts")
        header = header.table(1)
    elif kind != RECORD_BATCH:
        raise ArrowFileError(f"a message of kind {kind}")
    if header is None:
        raise ArrowFileError("a message without a batch")
    compression = header.table(3)
    codec = None if compression is None else CODECS.get(compression.number(0, "<b"), "unknown")
    if codec == "unknown" or (compression is not None and compression.number(1, "<b")):
        raise ArrowFileError("an unknown compression")
    rows = header.number(0, "<q")
    at, count = header.vector(1, 16)
    for place in range(at, at + 16 * count, 16):
        if _unpack(message, "<q", place) != rows or _unpack(message, "<q", place + 8):
            raise ArrowFileError("nulls, or a column of another length")
    at, buffers = header.vector(2, 16)
    if rows < 0 or count > FIELDS_MAX or buffers > 3 * FIELDS_MAX:
        raise ArrowFileError(f"{rows} rows of {count} columns in {buffers} buffers")
    return _Batch(
        rows,
        [_buffer(message, place, body, codec) for place in range(at, at + 16 * buffers, 16)],
        codec,
        dictionary,
    )


def _buffer(message: memoryview, place: int, body: memoryview, codec: str | None) -> tuple[memoryview, int]:
    at, length = _unpack(message, "<q", place), _unpack(message, "<q", place + 8)
    if not 0 <= at <= len(body) or not 0 <= length <= len(body) - at:
        raise ArrowFileError(f"a buffer of {length} bytes at {at}, outside of {len(body)}")
    stored = body[at : at + length]
    if codec is None or not length:
        return stored, -1
    declared = _unpack(stored, "<q", 0)
    if declared < -1:
        raise ArrowFileError(f"a buffer of {declared} bytes")
    return stored[8:], declared


def _content(batch: _Batch, index: int, size: int) -> Any:
    """Return the first ``size`` bytes of a buffer, decompressed."""
    if index >= len(batch.buffers):
        raise ArrowFileError(f"{len(batch.buffers)} buffers, too few")
    stored, declared = batch.buffers[index]
    if size > (len(stored) if declared < 0 else declared):
        raise ArrowFileError(f"a buffer of {max(declared, len(stored))} bytes, fewer than {size}")
    if declared < 0 or not size:
        return stored[:size]
    try:
        found = memoryview(pa.Codec(batch.codec).decompress(pa.py_buffer(stored), declared))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArrowFileError(str(error)) from error
    if len(found) != declared:
        raise ArrowFileError(f"a buffer of {len(found)} bytes that declares {declared}")
    return found[:size]


def _texts(batch: _Batch) -> pa.Array:
    """Return the values of a dictionary of strings."""
    ends = np.frombuffer(_content(batch, 1, 4 * (batch.rows + 1) if batch.rows else 0), "<i4")
    if not len(ends):
        return pa.array([], pa.string())
    if ends[0] != 0 or (np.diff(ends) < 0).any():
        raise ArrowFileError("texts that end before they begin")
    texts = _content(batch, 2, int(ends[-1]))
    found = pa.Array.from_buffers(pa.string(), batch.rows, [None, pa.py_buffer(ends), pa.py_buffer(texts)])
    try:
        found.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise ArrowFileError(str(error)) from error
    return found


def _columns(
    batch: _Batch, fields: Sequence[_Field], schema: pa.Schema, values: Mapping[int | None, pa.Array]
) -> Columns:
    """Return the columns of a batch: two buffers each, validity and values."""
    if len(batch.buffers) != 2 * len(fields):
        raise ArrowFileError(f"{len(batch.buffers)} buffers of {len(fields)} columns")
    found = {}
    for index, field in enumerate(fields):
        type_ = schema.field(index).type
        kind = np.dtype("<i4" if field.dictionary is not None or type_ == pa.int32() else "<i8")
        numbers = np.frombuffer(_content(batch, 2 * index + 1, kind.itemsize * batch.rows), kind)
        array = pa.array(numbers)
        if field.dictionary is not None:
            texts = values[field.dictionary]
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(texts):
                raise ArrowFileError(f"column {field.name!r} names values that its dictionary does not have")
            array = pa.DictionaryArray.from_arrays(array, texts, safe=False)
        found[field.name] = array
    return found
