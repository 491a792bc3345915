"""The part of a footer that describes the columns of one schema: how it is written, and how it is recognised.

Pure.

A shape is made from a footer that pyarrow writes for the schema, once for a schema and process. Files of the
same schema have the same bytes there, so a reader compares them instead of decoding them. The patterns are
for column chunks as pyarrow writes them: they only save time, for what they do not match is decoded field by
field with the same result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.errors import InternalError
from txnformat.segments.thrift_compact import (
    BINARY,
    STRUCT,
    Struct,
    list_header,
    read_list_header,
    read_struct,
    varint,
    zigzag,
)

__all__ = [
    "CODECS",
    "ENCODINGS",
    "LISTS_BYTES_MAX",
    "LISTS_RATIO_MAX",
    "Leaf",
    "Physical",
    "Shape",
    "elements_of",
    "leaf_count",
    "shape_of",
]

SHAPES_KEPT = 64
"""Schemas of which a process remembers the shape, and parts of each."""

ENCODINGS = frozenset({0, 2, 3, 4, 8})
"""PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, RLE_DICTIONARY: what a segment file may use."""

CODECS = {0: "uncompressed", 1: "snappy", 2: "gzip", 6: "zstd"}
"""Compressions by their numbers in Parquet."""


LISTS_BYTES_MAX = 80 * 1024 * 1024
"""Bytes that the lists of a row group may decode to, all columns together (inclusive), beyond LISTS_RATIO_MAX
times what is stored of each. Lists cannot be read in parts, and decoders need up to half as much again. A
writer keeps to less (:mod:`txnformat.segments.writer`)."""

LISTS_RATIO_MAX = 80


class Physical:
    """Parquet's physical types."""

    BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)


WIDTHS = {
    Physical.BOOLEAN: 1, Physical.INT32: 4, Physical.INT64: 8, Physical.INT96: 12, Physical.FLOAT: 4,
    Physical.DOUBLE: 8,
}  # fmt: skip
"""Bytes of one decoded value."""


class Leaf(NamedTuple):
    """A Parquet column."""

    path: tuple[bytes, ...]
    physical: int
    width: int
    """Bytes of one value; 0 where values have their own lengths."""
    repeated: bool
    """Whether one row may have several values."""
    flat: bool
    """Whether pyarrow can give its values as numbers of a dictionary: a name with a dot would be taken for a
    path."""
    type_: bytes
    """The physical type, as a chunk has it."""
    names: bytes
    """The path, as a chunk has it."""
    level_bytes: int
    """Bytes that a decoder needs for each value besides the value as Parquet has it, or its text: levels and
    marks of nulls of nested columns, offsets of each list that it lies in, the 16 bytes of a decimal."""

    @property
    def repeated_bytes(self) -> int:
        """Bytes that a value of a repeated column takes in all; of a text without the text."""
        return (self.width or 4) + self.level_bytes


class Shape:
    """The footers of files of one schema. ``schema``: canonical."""

    __slots__ = (
        "behind_checksums",
        "columns",
        "elements",
        "head",
        "leaves",
        "orders",
        "parts",
        "schema",
        "tail",
    )

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        footer = _empty_footer(schema)
        fields, at = _elements(footer)
        self.elements = elements_of(fields)
        self.head = footer[:at]
        """All before the number of rows."""
        if footer[at : at + 4] != b"\x16\x00\x19\x0c":
            raise InternalError(
                "pyarrow writes the footer of an empty file otherwise", got=footer[at : at + 4]
            )
        self.tail = footer[at + 4 :]
        """All behind the row groups: the Arrow schema, the writer, the order of values."""
        self.behind_checksums = b"\0" + self.tail[2:] if self.tail[:2] == b"\x19\x1c" else None
        """The same in a file with checksums, behind them."""
        self.leaves = tuple(_leaves(self.elements))
        self.orders = list_header(STRUCT, len(self.leaves)) + b"\x1c\x00\x00" * len(self.leaves)
        """The columns' orders: statistics are those of the types."""
        self.columns: dict[str, range] = {}
        first = 0
        for field in schema:
            self.columns[field.name] = range(first, first := first + leaf_count(field.type))
        if first != len(self.leaves):
            raise InternalError(
                "pyarrow writes a schema with other leaves", expected=first, got=len(self.leaves)
            )
        self.parts: dict[tuple[str, ...], Shape] = {}

    def part(self, names: Sequence[str]) -> Shape:
        """Return the shape of files with only these of the columns, in this order."""
        key = tuple(names)
        found = self.parts.get(key)
        if found is None:
            found = Shape(pa.schema([self.schema.field(name) for name in key]))
            if len(self.parts) >= SHAPES_KEPT:
                self.parts = {}
            self.parts[key] = found
        return found


_kept: tuple[Shape, ...] = ()


def shape_of(schema: pa.Schema) -> Shape:
    """Return the shape of a schema's files; the last SHAPES_KEPT are remembered."""
    global _kept
    shapes = _kept
    for shape in shapes:
        if shape.schema is schema or shape.schema.equals(schema):
            return shape
    shape = Shape(schema)
    _kept = (shape, *shapes[: SHAPES_KEPT - 1])  # in one step: other threads may do the same
    return shape


def leaf_count(type_: pa.DataType) -> int:
    """Return the number of Parquet columns that hold a column of this type."""
    if type_.num_fields == 0:
        return 1
    return sum(leaf_count(type_.field(index).type) for index in range(type_.num_fields))


def _empty_footer(schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="zstd", store_schema=True):
        pass
    data: bytes = sink.getvalue().to_pybytes()
    return data[4:-8]


def _elements(footer: bytes) -> tuple[list[Struct], int]:
    """Return the schema elements of a footer that pyarrow wrote, and where they end."""
    if footer[2:3] != b"\x19":
        raise InternalError("pyarrow writes an unexpected footer", got=footer[:3])
    _, count, at = read_list_header(footer, 3)
    fields = []
    for _ in range(count):
        element, at = read_struct(footer, at)
        fields.append(element)
    return fields, at


# --- schema elements ----------------------------------------------------------------------------------------

TYPE, LENGTH, REPETITION, NAME, CHILDREN, CONVERTED, SCALE, PRECISION, FIELD_ID, LOGICAL = range(1, 11)

_CONVERTED: dict[int, Struct] = {
    0: {1: {}}, 1: {2: {}}, 3: {3: {}}, 6: {6: {}}, 8: {7: {1: True, 2: {2: {}}}},
    10: {8: {1: True, 2: {2: {}}}}, 15: {10: {1: 8, 2: True}}, 16: {10: {1: 16, 2: True}},
    17: {10: {1: 32, 2: True}},
    18: {10: {1: 64, 2: True}},
}  # fmt: skip
"""Older annotations as the newer ones that say the same."""


def elements_of(fields: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return schema elements in one way of saying the same: name, repetition, type, length, children,
    annotation.
    """
    found = []
    for index, element in enumerate(fields):
        logical = element.get(LOGICAL)
        converted = element.get(CONVERTED)
        if logical is None and converted == 5:
            logical = {5: {1: element.get(SCALE, 0), 2: element.get(PRECISION, 0)}}
        elif logical is None and converted is not None:
            logical = _CONVERTED.get(converted) if type(converted) is int else None
            logical = {0: converted} if logical is None else logical
        found.append(
            (
                element.get(NAME) if index else b"",
                element.get(REPETITION) if index else None,
                element.get(TYPE),
                element.get(LENGTH, 0) if element.get(TYPE) == Physical.FIXED else 0,
                element.get(CHILDREN, 0),
                logical,
            )
        )
    return found


def _leaves(elements: Sequence[tuple[Any, ...]]) -> list[Leaf]:
    found: list[Leaf] = []
    open_: list[tuple[int, tuple[bytes, ...], int]] = [(elements[0][4], (), 0)]  # children left, path, lists
    for name, repetition, type_, length, children, _ in elements[1:]:
        left, path, lists = open_[-1]
        open_[-1] = (left - 1, path, lists)
        path, lists = (*path, name), lists + (repetition == 2)
        if type_ is None:
            open_.append((children, path, lists))
        else:
            width = length if type_ == Physical.FIXED else WIDTHS.get(type_, 0)
            names = (
                b"\x19" + list_header(BINARY, len(path)) + b"".join(varint(len(each)) + each for each in path)
            )
            flat = type_ == Physical.BYTE_ARRAY and len(path) == 1 and b"." not in name
            marks = len(path) // 8 + 1
            if lists:
                more = 4 + 4 * lists + marks + (16 if type_ == Physical.FIXED else 0)
            else:
                more = (2 + marks if len(path) > 1 else 0) + (
                    max(0, 16 - width) if type_ == Physical.FIXED else 0
                )
            found.append(Leaf(path, type_, width, lists > 0, flat, zigzag(type_), names, more))
        while open_ and open_[-1][0] == 0:
            open_.pop()
    return found


# --- patterns -----------------------------------------------------------------------------------------------

_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_ENCODING = rb"[\x00\x04\x06\x08\x10]"
_HISTOGRAM = b"(?:\x06|" + b"|".join(
    re.escape(bytes([count << 4 | 6])) + b"(?:%b){%d}" % (_NUMBER, count) for count in range(1, 8)
) + b")"  # fmt: skip
_COUNTED = rb"\x15%b\x15%b\x15%b\x00" % (_NUMBER, _NUMBER, _NUMBER)

TAIL = (
    rb"\x19(?:\x1c%b|\x2c(?:%b){2}|\x3c(?:%b){3}|\x4c(?:%b){4})" % ((_COUNTED,) * 4)
    + rb"(?:\x3c|\x16%b\x15%b\x1c)(?:\x16(%b))?(?:[\x19\x29]%b)?(?:[\x19\x29\x39]%b)?\x00\x00"
    % (_NUMBER, _NUMBER, _NUMBER, _HISTOGRAM, _HISTOGRAM)
    + rb"(?:\x16%b\x15%b(?:\x16%b\x15%b)?)?\x00" % ((_NUMBER,) * 4)
)  # fmt: skip
"""A column chunk from the end of its statistics to its own, with the places of a Bloom filter and of page
indexes where it has them."""

CHUNK_TAIL = re.compile(TAIL, re.DOTALL)
NULL_COUNT = re.compile(rb"\x36%b(\x28)?" % _NUMBER, re.DOTALL)
"""Statistics of a column whose values have their own lengths, up to the largest."""
ROW_GROUP_TAIL = re.compile(rb"\x16%b\x16(%b)\x26%b\x16%b\x14%b\x00" % ((_NUMBER,) * 5))
"""A row group behind its columns, with the number of its rows."""


ENCODINGS_PART = b"|".join(
    re.escape(bytes([count << 4 | 5])) + b"%b{%d}" % (_ENCODING, count) for count in range(1, 5)
)
CHUNK_HEAD = re.compile(rb"\x26%b\x1c(\x15([\x00-\x0e])\x19(?:%b))" % (_NUMBER, ENCODINGS_PART), re.DOTALL)
"""A column chunk up to its path, with its physical type."""


@cache
def chunk_rest(width: int) -> re.Pattern[bytes]:
    """Return what matches a chunk behind its path, up to its statistics; of columns with a width, all of it.

    Groups: 1 the rest of the metadata, 2 codec, 3 to 7 numbers, 8 with a width the statistics, 9 bytes of all
    texts.
    """
    rest = b"".join(
        (
            rb"(\x15([\x00\x02\x04\x0c])",
            rb"\x16(%b)\x16(%b)\x16(%b)\x26(%b)" % ((_NUMBER,) * 4),
            rb"(?:\x26(%b)(?=\x1c)|(?=\x3c)))[\x1c\x3c]" % _NUMBER,
        )
    )
    if width:
        rest += b"(%b)%b" % (chunk_statistics(width), TAIL)
    return re.compile(rest, re.DOTALL)


def chunk_statistics(width: int) -> bytes:
    """Return the pattern of statistics of values of a width: nulls, smallest and largest twice, both once, or
    neither.
    """
    value = re.escape(varint(width)) + b".{%d}" % width
    bounds = (value, value, _NUMBER, value, value)
    return rb"(?:\x18%b\x18%b\x16|\x36)%b(?:\x28%b\x18%b[\x11\x12]{0,2})?\x00" % bounds
