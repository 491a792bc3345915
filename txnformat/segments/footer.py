"""Parquet footers of segment files, decoded without the risk that a decoder in C++ ends the process. Pure.

An attacker may have written all that is read here, behind a hash that fits. So the footer itself never
reaches pyarrow: :func:`decode_footer` checks it, and
:func:`~txnformat.segments.footer_encoding.encode_footer` makes another for the row groups and columns that
are read, of values that were checked. Statistics are decoded here, too.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from operator import ge
from typing import Any, NamedTuple

from txnformat.segments.footer_shape import (
    CHUNK_HEAD,
    CHUNK_TAIL,
    CODECS,
    ENCODINGS,
    NULL_COUNT,
    ROW_GROUP_TAIL,
    Leaf,
    Physical,
    Shape,
    chunk_rest,
    elements_of,
)
from txnformat.segments.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    Struct,
    ThriftError,
    field_header,
    list_header,
    numbers,
    read_field,
    read_list_header,
    read_struct,
    read_value,
    read_varint,
    signed,
    varint,
    zigzag,
)

__all__ = [
    "MAGIC",
    "NO_FOOTER",
    "TAIL_BYTES",
    "Chunk",
    "ChunkStatistics",
    "Footer",
    "FooterError",
    "decode_footer",
]

TAIL_BYTES = 8
"""Size of the end of a Parquet file: the length of its metadata (4 bytes, little-endian) and the magic."""

MAGIC = b"PAR1"

SIZE_END = 1 << 48
"""No column chunk has as many bytes (exclusive)."""

CHUNK_CRC32_KEY = b"txnlog.chunk_crc32"
"""Footer key: 8 hex digits for each column chunk, row group by row group."""

CHECKSUMS = b"\x19\x2c\x18" + bytes([len(CHUNK_CRC32_KEY)]) + CHUNK_CRC32_KEY + b"\x18"
"""The keys and values of a footer, two of them, up to the length of the checksums."""


NO_FOOTER = "the footer of a segment file cannot be parsed"
NO_CHUNK = "a column chunk cannot be parsed"


class FooterError(ValueError):
    """The bytes are no footer of a segment file of this schema."""

    def __init__(self, what: str, expected: object, got: object) -> None:
        super().__init__(what, expected, got)
        self.what = what
        self.expected = expected
        self.got = got


class Chunk(NamedTuple):
    """A column chunk; all numbers are at least 0."""

    start: int
    """First byte in the object (inclusive), at least 4."""
    length: int
    codec: int
    num_values: int
    uncompressed: int
    has_dictionary: bool
    text_bytes: int
    """Bytes of the values of a column without a width, as the writer says; 0 if it does not."""
    metadata: bytes
    """The part of its thrift struct that says this."""
    head: bytes = b""
    """The beginning of ``metadata``: type, encodings and path."""
    data_page: int = 0
    """First byte of the first data page (inclusive)."""

    def moved(self, shift: int) -> bytes:
        """Return ``metadata`` for a file in which the chunk lies ``shift`` bytes further on."""
        parts = [
            self.head,
            b"\x15", zigzag(self.codec), b"\x16", zigzag(self.num_values), b"\x16", zigzag(self.uncompressed),
            b"\x16", zigzag(self.length), b"\x26", zigzag(self.data_page + shift),
        ]  # fmt: skip
        if self.has_dictionary:
            parts += [b"\x26", zigzag(self.start + shift)]
        return b"".join(parts)


class ChunkStatistics(NamedTuple):
    """Statistics of a column chunk."""

    null_count: int | None
    lower: int | float | bytes | None
    """No value is smaller; None with ``upper`` where that is not known."""
    upper: int | float | bytes | None


class _Group(NamedTuple):
    rows: int
    chunks: list[Any]
    """For each leaf: the matches of its patterns, where its statistics begin, bytes of its texts; or its
    metadata as a Struct."""


class Footer:
    """A footer that was checked; chunks are checked when they are asked for."""

    __slots__ = ("_asked", "_begins", "_data", "_end", "_ordered", "groups", "metadata", "rows", "shape")

    def __init__(
        self,
        data: bytes,
        end: int,
        shape: Shape,
        rows: int,
        groups: list[_Group],
        metadata: dict[bytes, bytes],
        *,
        ordered: bool,
    ) -> None:
        self._asked: dict[tuple[int, int], Chunk] = {}
        self._begins: list[int] | None = None
        self._data = data
        self._end = end
        self._ordered = ordered
        self.shape = shape
        self.rows = rows
        self.groups = groups
        self.metadata = metadata
        """The footer's own keys and values, both bytes."""

    def chunk(self, group: int, leaf: int) -> Chunk:
        """Return a column chunk. Raises FooterError: its numbers cannot be."""
        asked = self._asked.get((group, leaf))
        if asked is not None:
            return asked
        found = self.groups[group].chunks[leaf]
        described = self.shape.leaves[leaf]
        text = 0
        if isinstance(found, dict):
            _check_metadata(found, described)
            codec, values, uncompressed, length, data_page = (found[number] for number in (4, 5, 6, 7, 9))
            dictionary = found.get(11)
            text = found.get(16, {}).get(1, 0)
            heading, rest = _encode_metadata(found)
        else:
            head, match, _, hint = found
            # One by one, not in a loop: this runs for every column of every file.
            rest, codec, values, uncompressed, length, data_page, dictionary = match.group(
                1, 2, 3, 4, 5, 6, 7
            )
            heading = head[1] + described.names
            codec, values, uncompressed = codec[0] >> 1, signed(values), signed(uncompressed)
            length, data_page = signed(length), signed(data_page)
            dictionary = None if dictionary is None else signed(dictionary)
            text = 0 if hint is None else signed(hint)
        # As pyarrow does: 0 means that there is no dictionary.
        has_dictionary = dictionary is not None and dictionary > 0
        start = min(data_page, dictionary) if has_dictionary else data_page
        size_is_right = values >= 0 and length >= 0 and 0 <= uncompressed < SIZE_END
        if not size_is_right or not 4 <= start <= data_page <= start + length <= self._end:
            raise FooterError(
                "a column chunk lies outside the data of its file",
                "a range inside",
                (start, length, values, uncompressed),
            )
        rows = self.groups[group].rows
        if values < rows or (values > rows and not described.repeated):
            raise FooterError("a column chunk has another number of values than rows", rows, values)
        asked = Chunk(
            start,
            length,
            codec,
            values,
            uncompressed,
            has_dictionary,
            max(0, text),
            heading + rest,
            heading,
            data_page,
        )
        self._asked[group, leaf] = asked
        return asked

    def row_group_place(self, group: int) -> tuple[int, int]:
        """Return where the chunks of a row group lie: first byte (inclusive) and end (exclusive).

        Raises FooterError: row groups do not follow each other: bytes of a file are decoded for one row group
        only.
        """
        if self._begins is None:
            begins = [self.chunk(number, 0).start for number in range(len(self.groups))]
            if any(map(ge, begins, begins[1:])):
                raise FooterError(
                    "the row groups of a segment file overlap", "one after the other", begins[:9]
                )
            self._begins = [*begins, self._end]
        return self._begins[group], self._begins[group + 1]

    def statistics(self, group: int, leaf: int) -> ChunkStatistics | None:
        """Return the statistics of a column chunk, None where there are none.

        Statistics in an unusual form count as missing.
        """
        found = self.groups[group].chunks[leaf]
        if isinstance(found, dict):
            stats = found.get(12)
        else:
            try:
                stats, _ = read_struct(self._data, found[2])
            except ThriftError as error:
                raise FooterError(
                    "the statistics of a column chunk cannot be parsed", "Parquet", error
                ) from error
        if not isinstance(stats, dict):
            return None
        nulls = stats.get(3)
        described = self.shape.leaves[leaf]
        lower, upper = (_plain(stats.get(number), described) for number in (6, 5))
        if not self._ordered or lower is None or upper is None:
            lower = upper = None
        return ChunkStatistics(nulls if isinstance(nulls, int) and nulls >= 0 else None, lower, upper)


_FORMATS = {
    Physical.INT32: struct.Struct("<i"), Physical.INT64: struct.Struct("<q"),
    Physical.FLOAT: struct.Struct("<f"), Physical.DOUBLE: struct.Struct("<d"),
    Physical.BOOLEAN: struct.Struct("<?"),
}  # fmt: skip


def _plain(value: Any, leaf: Leaf) -> Any:
    """Return a statistic as a value; None when it is none."""
    if not isinstance(value, bytes) or (leaf.width and len(value) != leaf.width):
        return None
    form = _FORMATS.get(leaf.physical)
    return value if form is None else form.unpack(value)[0]


def decode_footer(data: bytes, shape: Shape, end: int) -> Footer:
    """Return what a footer says.

    ``data``: the end of the file: metadata, its length, magic; the hash was compared. ``shape``: of the
    schema that the file must have. ``end``: where the file's data ends (exclusive) and the footer begins.
    Raises FooterError: it is not such a footer.
    """
    if (
        len(data) < TAIL_BYTES
        or data[-4:] != MAGIC
        or int.from_bytes(data[-8:-4], "little") != len(data) - TAIL_BYTES
    ):
        raise FooterError(NO_FOOTER, "its length and PAR1 at its end", data[-8:])
    try:
        return _decode(data[:-TAIL_BYTES], shape, end)
    except ThriftError as error:
        raise FooterError(NO_FOOTER, "Parquet", error) from error


def _decode(data: bytes, shape: Shape, end: int) -> Footer:
    fields: Struct = {}
    groups: list[_Group] | None = None
    ordered = False
    at = number = 0
    if data.startswith(shape.head):
        at, number = len(shape.head), 2
        fields[2] = None
    metadata: dict[bytes, bytes] | None = None
    while True:
        if number == 4 and data.startswith(CHECKSUMS, at):
            # As this version of pyarrow writes it: behind the checksums all files of the schema are the same.
            length, start = read_varint(data, at + len(CHECKSUMS))
            if data[start + length :] == shape.behind_checksums:
                metadata, ordered = {CHUNK_CRC32_KEY: data[start : start + length]}, True
                break
        number, kind, at = read_field(data, at, number)
        if not kind:
            break
        if number in fields:
            raise ThriftError(f"field {number} twice")
        fields[number] = None
        if number == 2:
            elements, at = read_value(data, at, kind)
            _check_elements(elements, shape)
        elif number == 4 and kind == LIST:
            groups, at = _row_groups(data, at, shape)
        elif number == 7 and kind == LIST and data.startswith(shape.orders, at):
            ordered, at = True, at + len(shape.orders)
        else:
            fields[number], at = read_value(data, at, kind)
    rows = fields.get(3)
    if 2 not in fields or groups is None or not isinstance(rows, int) or 8 in fields:
        raise FooterError(
            NO_FOOTER,
            "schema, number of rows, row groups",
            sorted(fields),
        )
    if sum(group.rows for group in groups) != rows:
        raise FooterError(
            "the row groups of a segment file do not sum to its number of rows", rows, "another sum"
        )
    return Footer(data, end, shape, rows, groups, metadata or _key_values(fields.get(5)), ordered=ordered)


def _check_elements(elements: Any, shape: Shape) -> None:
    if not isinstance(elements, list) or not all(isinstance(element, dict) for element in elements):
        raise FooterError(NO_FOOTER, "a list of schema elements", type(elements))
    found = elements_of(elements)
    if found != shape.elements:
        raise FooterError("a segment file has another schema", shape.schema, _shown(found))


def _shown(elements: Sequence[tuple[Any, ...]]) -> str:
    names = (
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name, *_ in elements[1:]
    )
    return ", ".join(names)


def _key_values(found: Any) -> dict[bytes, bytes]:
    pairs: dict[bytes, bytes] = {}
    for pair in found if isinstance(found, list) else ():
        if (
            not isinstance(pair, dict)
            or not isinstance(pair.get(1), bytes)
            or not isinstance(pair.get(2, b""), bytes)
        ):
            raise FooterError(NO_FOOTER, "keys and values", pair)
        pairs.setdefault(pair[1], pair.get(2, b""))
    return pairs


def _row_groups(data: bytes, at: int, shape: Shape) -> tuple[list[_Group], int]:
    kind, count, at = read_list_header(data, at)
    if count and kind != STRUCT:
        raise ThriftError("row groups that are not structs")
    groups = []
    for _ in range(count):
        group, at = _row_group(data, at, shape)
        groups.append(group)
    return groups, at


def _row_group(data: bytes, at: int, shape: Shape) -> tuple[_Group, int]:
    chunks: list[Any] | None = None
    fields: Struct = {}
    number = 0
    while True:
        if number == 1 and chunks is not None:
            match = ROW_GROUP_TAIL.match(data, at)
            if match is not None:
                return _checked_group(signed(match[1]), chunks, shape), match.end()
        number, kind, at = read_field(data, at, number)
        if not kind:
            return _checked_group(fields.get(3), chunks, shape), at
        if number in fields or (number == 1 and chunks is not None):
            raise ThriftError(f"field {number} twice")
        if number == 1 and kind == LIST:
            chunks, at = _chunks(data, at, shape)
        else:
            fields[number], at = read_value(data, at, kind)


def _checked_group(rows: Any, chunks: list[Any] | None, shape: Shape) -> _Group:
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0 or chunks is None:
        raise FooterError(
            "a row group of a segment file cannot be parsed", "columns and a number of rows", rows
        )
    if len(chunks) != len(shape.leaves):
        raise FooterError("a row group has another number of columns", len(shape.leaves), len(chunks))
    return _Group(rows, chunks)


def _chunks(data: bytes, at: int, shape: Shape) -> tuple[list[Any], int]:
    kind, count, at = read_list_header(data, at)
    if kind != STRUCT or count != len(shape.leaves):
        raise FooterError("a row group has another number of columns", len(shape.leaves), count)
    chunks: list[Any] = []
    for leaf in shape.leaves:
        head = CHUNK_HEAD.match(data, at)
        if head is not None and head[2] == leaf.type_ and data.startswith(leaf.names, head.end()):
            match = chunk_rest(leaf.width).match(data, head.end() + len(leaf.names))
            if match is not None:
                if leaf.width:
                    chunks.append((head, match, match.start(8), match[9]))
                    at = match.end()
                    continue
                tail = _text_tail(data, match.end())
                if tail is not None:
                    chunks.append((head, match, match.end(), tail[1]))
                    at = tail.end()
                    continue
        chunk, at = read_struct(data, at)
        if chunk.get(1) is not None or not isinstance(chunk.get(3), dict):
            raise FooterError(NO_CHUNK, "metadata, and no path of another file", sorted(chunk))
        chunks.append(chunk[3])
    return chunks, at


def _text_tail(data: bytes, at: int) -> re.Match[bytes] | None:
    """Return the match of what is behind the statistics that begin at ``at``; None where they are unusual."""
    match = NULL_COUNT.match(data, at)
    if match is None:
        return None
    at = match.end()
    if match[1] is not None:
        length, at = read_varint(data, at)
        at += length
        if data[at : at + 1] != b"\x18":
            return None
        length, at = read_varint(data, at + 1)
        at += length
        while data[at : at + 1] in (b"\x11", b"\x12"):
            at += 1
    return CHUNK_TAIL.match(data, at + 1) if data[at : at + 1] == STOP else None


def _check_metadata(found: Struct, leaf: Leaf) -> None:
    """Raise FooterError about a chunk that was decoded field by field and is not as the patterns ask for."""
    wanted = {1: leaf.physical, 3: list(leaf.path)}
    for number, value in wanted.items():
        if found.get(number) != value:
            raise FooterError("a column chunk is not that of its column", value, found.get(number))
    if type(found.get(4)) is not int or found[4] not in CODECS:
        raise FooterError("a column chunk has an unknown compression", sorted(CODECS.values()), found.get(4))
    encodings = found.get(2)
    if not isinstance(encodings, list) or not 0 < len(encodings) <= 8 or not ENCODINGS.issuperset(
        each if isinstance(each, int) else -1 for each in encodings
    ):  # fmt: skip
        raise FooterError(
            "a column chunk has an encoding that segment files do not have", sorted(ENCODINGS), encodings
        )
    for number in (5, 6, 7, 9):
        if type(found.get(number)) is not int:
            raise FooterError(NO_CHUNK, f"a number in field {number}", found.get(number))
    if (
        type(found.get(11, 0)) is not int
        or not isinstance(found.get(16, {}), dict)
        or 8 in found
        or 10 in found
    ):
        raise FooterError(NO_CHUNK, "no other fields than the format has", sorted(found))
    if type(found.get(16, {}).get(1, 0)) is not int:
        raise FooterError(NO_CHUNK, "sizes that are numbers", found[16])


def _encode_metadata(found: Struct) -> tuple[bytes, bytes]:
    """Return type, encodings and path, and the numbers behind them."""
    path = found[3]
    head = [
        numbers([(I32, 1, found[1])]),
        field_header(LIST, 2, 1), list_header(I32, len(found[2])), *(zigzag(each) for each in found[2]),
        field_header(LIST, 3, 2), list_header(BINARY, len(path)),
        *(varint(len(name)) + name for name in path),
    ]  # fmt: skip
    parts = [field_header(I32, 4, 3), zigzag(found[4])]
    before = 4
    for number in (5, 6, 7, 9, 11):
        if number in found:
            parts += [field_header(I64, number, before), zigzag(found[number])]
            before = number
    return b"".join(head), b"".join(parts)
