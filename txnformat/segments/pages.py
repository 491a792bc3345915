"""The pages of a fetched column chunk, looked at before a decoder gets them: what they will take in memory.

Pure.

A chunk of a few kilobytes may hold a page of gigabytes, or a dictionary of one large value that every row
repeats. The sizes in the headers are checked against the chunk and its footer; the rest is arithmetic on
them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.segments.footer import Chunk, FooterError
from txnformat.segments.footer_shape import (
    CODECS,
    ENCODINGS,
    LISTS_BYTES_MAX,
    LISTS_RATIO_MAX,
    Leaf,
    chunk_statistics,
)
from txnformat.segments.thrift_compact import ThriftError, read_struct, read_varint, signed

__all__ = [
    "PAGE_BYTES_MAX",
    "Effort",
    "Lists",
    "Pages",
    "check_lists",
    "decoded_bytes",
    "look",
    "repeats",
    "whole_values",
    "with_values",
]

PAGE_BYTES_MAX = 72 * 1024 * 1024
"""Largest decompressed page (inclusive), unless it is at most RATIO_MAX times as large as what is stored of
it. A writer's largest row group, which may be one page, has 64 MiB, and a little more in Parquet."""

RUNS_MAX = 1_000_000
"""Runs of equal or packed numbers of a dictionary that are counted of row groups that are looked at together,
or of the lists of one; or one for each byte that is stored."""

PACKED = 65_536
"""Packed numbers of a dictionary that are looked at at once."""

RATIO_MAX = 100
"""Beyond this, what cannot be read in parts and is large is refused."""

NUMBERED_MAX = 1_000_000
"""Likewise of values of dictionaries of which each is looked at. pyarrow's dictionaries end at 1 MiB, where
each value has 4 bytes or more."""

HEADER_BYTES_MAX = 64 * 1024
"""Longest page header: it may have the smallest and the largest value."""

DATA, INDEX, DICTIONARY, DATA_V2 = range(4)
DICTIONARY_ENCODINGS = frozenset({2, 8})

VIEW_BYTES = 16
"""A decoder's pointer to a value of a dictionary, and its length."""

CRUDE_BYTES_MAX = 8 * 1024 * 1024
"""Up to this, a dictionary counts with the largest value that it could have; beyond it is looked at."""


class Pages(NamedTuple):
    """Contents of the pages of a chunk."""

    plain_bytes: int
    """Decompressed, of data pages that have their values themselves."""
    plain_width: int
    """Most bytes a value of them, on the average of a page."""
    encoded: int
    """Values that are numbers of a dictionary."""
    dictionary: tuple[int, int, int, int] | None
    """Where its body begins, the bytes of that, decompressed, and its values."""
    numbered: tuple[tuple[int, int, int, int], ...] = ()
    """Data pages of numbers of a dictionary: as ``dictionary``."""
    largest: int = 0
    """Bytes of the largest data page, decompressed."""

    def at_once(self, leaf: Leaf) -> int:
        """Return the bytes that a decoder holds of the pages at a time, even if it reads few rows: its
        dictionary, and a data page.
        """
        if self.dictionary is None:
            return self.largest
        _, _, size, values = self.dictionary
        return self.largest + size + (0 if leaf.width else VIEW_BYTES * values)


def look(data: memoryview, chunk: Chunk, leaf: Leaf) -> Pages:
    """Return what the pages of a chunk hold.

    ``data``: the chunk; its checksum was compared, if it has one. Raises FooterError: the headers are no
    headers, do not add up to the chunk, or claim a page that is too large.
    """
    at, end = 0, len(data)
    plain = width = encoded = count = largest = 0
    numbered: list[tuple[int, int, int, int]] = []
    dictionary: tuple[int, int, int, int] | None = None
    match_data = _data_pattern(leaf.width).match
    while at < end:
        match = match_data(data, at)
        body = -1 if match is None else match.end()
        if match is not None and not leaf.width and match[5] is not None:
            body = _past_texts(data, body + match[5][0])
        if match is not None and body >= 0:
            size, stored, values = signed(match[1]), signed(match[2]), signed(match[3])
            at, kind, encoding = body, DATA, match[4][0] >> 1
        elif (match := _DICTIONARY_PAGE.match(data, at)) is not None:
            size, stored, values = signed(match[1]), signed(match[2]), signed(match[3])
            at, kind, encoding = match.end(), DICTIONARY, 0
        else:
            at, kind, size, stored, values, encoding = _header(
                bytes(data[at : at + HEADER_BYTES_MAX]), at, leaf
            )
        if size < 0 or stored < 0 or values < 0 or stored > end - at or (chunk.codec == 0 and size != stored):
            raise FooterError(
                "a page claims bytes that its column chunk does not have", end - at, (size, stored, values)
            )
        if size > PAGE_BYTES_MAX and size > RATIO_MAX * stored:
            raise FooterError(
                "a page of a segment file is too large when decompressed",
                f"at most {PAGE_BYTES_MAX} bytes, or {RATIO_MAX} times what is stored",
                f"{size} bytes of {stored}",
            )
        if kind == DICTIONARY:
            if dictionary is not None or count or values * (leaf.width or 4) > size:
                raise FooterError("a dictionary is out of place or has other values than bytes", size, values)
            dictionary = (at, stored, size, values)
        else:
            count += values
            largest = max(largest, size)
            if encoding not in DICTIONARY_ENCODINGS:
                plain += size
                width = max(width, -(-size // max(1, values)))
            elif dictionary is None:
                raise FooterError(
                    "a page needs a dictionary that its column chunk does not have", "a dictionary", at
                )
            else:
                encoded += values
                numbered.append((at, stored, size, values) if kind == DATA else (at, stored, -1, values))
        at += stored
    if count != chunk.num_values or (dictionary is not None) != chunk.has_dictionary:
        raise FooterError(
            "the pages of a column chunk do not have as many values as its footer says",
            chunk.num_values,
            count,
        )
    return Pages(plain, width, encoded, dictionary, tuple(numbered), largest)


def repeats(pages: Pages) -> bool:
    """Tell whether all values are numbers of a dictionary that is small against them: it pays to decode the
    numbers.
    """
    return pages.dictionary is not None and not pages.plain_bytes and 4 * pages.dictionary[3] <= pages.encoded


class Effort:
    """The rest of the budget for counting texts: a small file can have many chunks that take long to count.

    ``stored``: bytes of the chunks that are counted.
    """

    __slots__ = ("bytes_left", "runs_left", "values_left")

    def __init__(self, stored: int, bytes_left: int = PAGE_BYTES_MAX) -> None:
        self.bytes_left = bytes_left
        """Bytes of decompressed pages."""
        self.runs_left = max(RUNS_MAX, stored)
        self.values_left = max(NUMBERED_MAX, stored)
        """Values of dictionaries."""


class _TooMuchEffortError(Exception):
    """There are more runs than may be counted."""


def decoded_bytes(
    data: memoryview, chunk: Chunk, leaf: Leaf, pages: Pages, left: Effort, *, as_numbers: bool
) -> tuple[int, int]:
    """Return what a chunk decodes to at most, and what one of its values does about, in bytes.

    ``left``: texts are counted as far as it goes; beyond it each counts as the longest. ``as_numbers``: it is
    decoded as numbers of a dictionary.

    Whether it may be so large is another question: :func:`check_lists`.
    """
    if leaf.width:
        size, width = chunk.num_values * leaf.width, leaf.width
    elif as_numbers:
        size, width = 4 * chunk.num_values + (pages.dictionary or (0, 0, 0, 0))[2], 4
    else:
        longest = _value_bytes_max(data, chunk, pages, left)
        size, width = (
            4 * chunk.num_values + pages.plain_bytes + pages.encoded * longest,
            max(pages.plain_width, longest),
        )
        if size > PAGE_BYTES_MAX and _can_be_counted(chunk, pages, left):
            # One long value among short ones, perhaps: count what each number stands for.
            with suppress(_TooMuchEffortError):
                counted = _numbered_bytes(data, chunk, leaf, pages, left)
                size = 4 * chunk.num_values + pages.plain_bytes + counted
    return size + chunk.num_values * leaf.level_bytes, width + leaf.level_bytes


class Lists(NamedTuple):
    """A chunk of a repeated column of one row group."""

    data: memoryview
    chunk: Chunk
    leaf: Leaf
    pages: Pages
    size: int
    """Most bytes that it decodes to: :func:`decoded_bytes`."""


def check_lists(columns: Sequence[Lists]) -> None:
    """Raise FooterError about the repeated columns of a row group, which cannot be read in parts, if they are
    too large.

    A row group that can be read can also be read with fewer of the columns: each adds what is beyond its own
    share.
    """
    if _beyond(columns) <= LISTS_BYTES_MAX:
        return
    # One long value among short ones, perhaps: count what each number stands for, unless it is too much
    # without that.
    least = [one._replace(size=one.chunk.num_values * one.leaf.repeated_bytes) for one in columns]
    left = Effort(
        sum(one.chunk.length for one in columns),
        sum(size for one in columns for _, _, size, _ in one.pages.numbered),
    )
    counted = least if _beyond(least) > LISTS_BYTES_MAX else [_counted(one, left) for one in columns]
    if _beyond(counted) > LISTS_BYTES_MAX:
        raise FooterError(
            "lists of a segment file are too large when decoded",
            f"at most {LISTS_BYTES_MAX} bytes in a row group beyond {LISTS_RATIO_MAX} times what is stored",
            f"up to {sum(one.size for one in counted)} bytes of {sum(one.chunk.length for one in counted)}",
        )


def _counted(one: Lists, left: Effort) -> Lists:
    if one.leaf.width or not one.pages.encoded:
        return one
    try:
        texts = _numbered_bytes(one.data, one.chunk, one.leaf, one.pages, left)
    except _TooMuchEffortError:
        raise FooterError(
            "lists of a segment file have too many runs of numbers, or values of dictionaries, for what "
            "is stored",
            f"at most {RUNS_MAX}, or one for each byte",
            "more",
        ) from None
    return one._replace(size=one.chunk.num_values * one.leaf.repeated_bytes + one.pages.plain_bytes + texts)


def _beyond(columns: Sequence[Lists]) -> int:
    return sum(max(0, one.size - LISTS_RATIO_MAX * one.chunk.length) for one in columns)


def _value_bytes_max(data: memoryview, chunk: Chunk, pages: Pages, left: Effort) -> int:
    """Return a length that no value in the dictionary of a column without a width exceeds."""
    if pages.dictionary is None:
        return 0
    at, stored, size, values = pages.dictionary
    crude = size - 4 * values  # all others are empty
    if pages.encoded * crude <= CRUDE_BYTES_MAX or size > left.bytes_left:
        return crude
    left.bytes_left -= size
    return _longest(data[at : at + stored], chunk.codec, size, values)


_NUMBER = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_DICTIONARY_PAGE = re.compile(
    rb"\x15\x04\x15(%b)\x15(%b)(?:\x15%b\x3c|\x4c)\x15(%b)\x15[\x00\x04][\x11\x12]?\x00\x00"
    % ((_NUMBER,) * 4)
)
_patterns: dict[int, re.Pattern[bytes]] = {}


def _data_pattern(width: int) -> re.Pattern[bytes]:
    """Return what matches the header of a data page as pyarrow writes it: sizes, values, encoding."""
    found = _patterns.get(width)
    if found is None:
        parts = (
            rb"\x15\x00\x15(%b)\x15(%b)(?:\x15%b\x1c|\x2c)\x15(%b)\x15([\x00\x04\x10])\x15\x06\x15\x06"
            % ((_NUMBER,) * 4)
        )
        statistics = chunk_statistics(width) if width else rb"\x36%b(?:\x28([\x00-\x7f])|\x00)" % _NUMBER
        ends = rb"(?:\x1c%b)?\x00\x00" if width else rb"(?:\x1c%b(?(5)|\x00\x00)|\x00\x00)"
        found = _patterns[width] = re.compile(parts + ends % statistics, re.DOTALL)
    return found


def _past_texts(data: memoryview, at: int) -> int:
    """Return the end of a header whose statistics have their largest value up to ``at``."""
    rest = bytes(data[at : at + 2])
    at += 2 + (rest[1] if len(rest) == 2 else 0)
    flags = bytes(data[at : at + 5]).lstrip(b"\x11\x12")
    if rest[:1] != b"\x18" or rest[1:] > b"\x7f" or not flags.startswith(b"\0\0\0"):
        return -1
    return at + bytes(data[at : at + 5]).index(b"\0\0\0") + 3


def _header(data: bytes, start: int, leaf: Leaf) -> tuple[int, int, int, int, int, int]:
    """Return end, kind, bytes, stored bytes, values and encoding of any page header, which begins at
    ``start``.
    """
    try:
        header, length = read_struct(data, 0)
    except ThriftError as error:
        raise FooterError("a page header cannot be parsed", "Parquet", error) from error
    kind = header.get(1)
    inner = header.get({DATA: 5, DICTIONARY: 7, DATA_V2: 8}.get(kind, 0)) if type(kind) is int else None
    if (
        not isinstance(inner, dict)
        or not set(header) <= {1, 2, 3, 4, 5, 7, 8}
        or len(set(header) & {5, 7, 8}) != 1
    ):
        raise FooterError("a page is of a kind that segment files do not have", "data or dictionary", kind)
    fields: list[Any] = [header.get(2), header.get(3), inner.get(1), inner.get(4 if kind == DATA_V2 else 2)]
    if kind == DATA_V2:
        fields += [inner.get(number) for number in (2, 3, 5, 6)]
    elif kind == DATA:
        fields += [inner.get(3), inner.get(4)]
    if any(type(value) is not int or value < 0 for value in fields) or fields[3] not in ENCODINGS:
        raise FooterError(
            "a page header cannot be parsed", "sizes, values and encodings of segment files", fields
        )
    if kind == DATA_V2 and (
        max(fields[4:6]) > fields[2] or fields[6] + fields[7] > min(fields[0], fields[1])
    ):
        raise FooterError(
            "a page header claims more or fewer bytes of levels than the page has", fields[1], fields[4:]
        )
    # Levels of lists are skipped by their length (_bytes_of_numbers), which BIT_PACKED does not have.
    if kind == DATA and not {fields[4], fields[5]} <= ({3} if leaf.repeated else {3, 4}):
        raise FooterError(
            "a page has levels in an encoding that segment files do not have",
            "RLE, and BIT_PACKED without lists",
            fields[4:],
        )
    return start + length, int(kind or 0), fields[0], fields[1], fields[2], fields[3]


WALKED_MAX = 100_000
"""Values of a dictionary that are looked at one by one, where nothing faster tells the longest."""


def _longest(stored: memoryview, codec: int, size: int, values: int) -> int:
    """Return a length that no value of a dictionary of values with lengths exceeds: the longest, if that is
    told quickly.
    """
    data = _decompressed(stored, codec, size)
    bound = size - 4 * values
    if not values:
        return bound
    first = int.from_bytes(data[:4], "little")
    # All as long as the first?
    if (first + 4) * values == size and (np.ndarray((values,), "<u4", data, 0, (first + 4,)) == first).all():
        return first
    if size > CRUDE_BYTES_MAX:  # what follows takes many times as much
        return bound if values > WALKED_MAX else _longest_of_walk(data, values, bound)
    # Lengths below 256 end in three zeros; text has no others. The chain of lengths shows whether these are
    # they.
    octets = np.frombuffer(data, np.uint8)
    zero = octets == 0
    places = np.flatnonzero(zero[1:-2] & zero[2:-1] & zero[3:])
    if len(places) == values and places[0] == 0:
        lengths = octets[places]
        if (places[:-1] + lengths[:-1] + 4 == places[1:]).all() and places[-1] + lengths[-1] + 4 == size:
            return int(lengths.max())
    return bound if values > WALKED_MAX else _longest_of_walk(data, values, bound)


def _longest_of_walk(data: bytes, values: int, bound: int) -> int:
    longest = at = 0
    read = struct.Struct("<I").unpack_from
    for _ in range(values):
        if at + 4 > len(data):
            return bound
        (length,) = read(data, at)
        longest = max(longest, length)
        at += 4 + length
    return min(bound, longest)


# --- texts that are numbers of a dictionary -----------------------------------------------------------------


def _can_be_counted(chunk: Chunk, pages: Pages, left: Effort) -> bool:
    """Return whether it is possible to count the texts of a chunk, pays, and is not too much."""
    return (
        pages.dictionary is not None
        and pages.dictionary[3] <= left.values_left
        and all(size >= 0 for _, _, size, _ in pages.numbered)
        and 4 * chunk.num_values + pages.plain_bytes <= PAGE_BYTES_MAX
        and sum(size for _, _, size, _ in pages.numbered) <= left.bytes_left
    )


def _numbered_bytes(data: memoryview, chunk: Chunk, leaf: Leaf, pages: Pages, left: Effort) -> int:
    """Return how many bytes the values of a column have that are numbers of a dictionary; exact but for
    padding.
    """
    if pages.dictionary is None:
        return 0
    at, stored, size, values = pages.dictionary
    left.values_left -= values
    if left.values_left < 0:
        raise _TooMuchEffortError
    lengths = _lengths(_decompressed(data[at : at + stored], chunk.codec, size), values)
    found = 0
    for at, stored, size, values in pages.numbered:
        if size < 0:
            raise FooterError("lists of a segment file are in pages of another kind", "data pages 1.0", "2.0")
        left.bytes_left -= size
        body = _decompressed(data[at : at + stored], chunk.codec, size)
        found += _bytes_of_numbers(body, 1 + leaf.repeated, lengths, values, left)
    return found


def _decompressed(stored: memoryview, codec: int, size: int) -> bytes:
    name = CODECS[codec]
    try:
        data = bytes(stored) if codec == 0 else pa.Codec(name).decompress(stored, size, asbytes=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FooterError("a page of a column chunk cannot be decompressed", name, error) from error
    if len(data) != size:
        raise FooterError("a page of a column chunk differs in size from its header", size, len(data))
    return data


def _lengths(data: bytes, values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the lengths of the values of a dictionary."""
    found = np.empty(values, np.int64)
    at = 0
    read = struct.Struct("<I").unpack_from
    for number in range(values):
        if at + 4 > len(data):
            raise FooterError("a dictionary of a column chunk ends too early", values, number)
        (found[number],) = read(data, at)
        at += 4 + int(found[number])
    return found


def _bytes_of_numbers(
    data: bytes, levels: int, lengths: np.ndarray[Any, np.dtype[np.int64]], values: int, left: Effort
) -> int:
    """Return the bytes of the values of a page: Parquet's hybrid of runs and packed numbers, behind its
    levels.
    """
    at = 0
    for _ in range(levels):  # repetition if it repeats, and definition, each with its length before it
        at += 4 + int.from_bytes(data[at : at + 4], "little")
    width = data[at] if at < len(data) else 33
    if width > 32:
        raise FooterError("a page of numbers cannot be parsed", "a width of at most 32 bits", width)
    at += 1
    found = 0
    try:
        while at < len(data) and values > 0:
            left.runs_left -= 1
            if left.runs_left < 0:
                raise _TooMuchEffortError
            header, at = read_varint(data, at)
            if header & 1:
                octets = min((header >> 1) * width, len(data) - at)
                before = values
                for numbers in _packed(data[at : at + octets], width, min((header >> 1) * 8, values)):
                    found += int(lengths[numbers].sum())
                    values -= len(numbers)
                at += octets
                if values == before:
                    break
            else:
                octets = -(-width // 8)
                count = min(header >> 1, values)
                found += count * int(lengths[int.from_bytes(data[at : at + octets], "little")])
                values -= count
                at += octets
    except (IndexError, ThriftError) as error:
        raise FooterError("a page of numbers cannot be parsed", "numbers of its dictionary", error) from error
    return found


def _packed(data: bytes, width: int, count: int) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Yield numbers of ``width`` bits, the lowest bit first; at most ``count``, and PACKED at once, for their
    bits take a byte each.
    """
    octets = PACKED // 8 * width
    weights = 1 << np.arange(width, dtype=np.int64)
    for start in range(0, count, PACKED):
        rest = min(PACKED, count - start)
        if not width:
            yield np.zeros(rest, np.int64)
            continue
        part = data[start // 8 * width : start // 8 * width + octets]
        bits = np.unpackbits(np.frombuffer(part, np.uint8), bitorder="little")
        whole = len(bits) // width
        numbers = (bits[: whole * width].reshape(whole, width) @ weights)[:rest]
        yield numbers
        if len(numbers) < rest:
            return


# --- values of dictionaries ---------------------------------------------------------------------------------


def whole_values(table: pa.Table, bytes_max: int) -> pa.Table:
    """Return a table with values in place of numbers of a dictionary, unless they would take more than
    ``bytes_max``.
    """
    numbered = [index for index, type_ in enumerate(table.schema.types) if pa.types.is_dictionary(type_)]
    if sum(_values_bytes(table.column(index)) for index in numbered) > bytes_max:
        return table
    for index in numbered:
        column = table.column(index)
        chunks = [chunk.dictionary.take(chunk.indices) for chunk in column.chunks]
        values = pa.chunked_array(chunks, column.type.value_type)
        table = table.set_column(index, table.schema.names[index], values)
    return table


def _values_bytes(column: pa.ChunkedArray) -> int:
    lengths = (
        pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() for chunk in column.chunks
    )
    return sum(length or 0 for length in lengths)


def with_values(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch with values in place of numbers of dictionaries, in pieces of about ``bytes_max``
    bytes.
    """
    numbered = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    if not numbered:
        yield batch
        return
    width = sum(pc.max(pc.binary_length(column.dictionary)).as_py() or 0 for column in numbered)
    rows = max(1, bytes_max // max(1, width))
    for start in range(0, batch.num_rows, rows):
        part = batch.slice(start, rows)
        columns = [
            column.dictionary.take(column.indices) if pa.types.is_dictionary(column.type) else column
            for column in part.columns
        ]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
