"""The number of rows of a set, and a hash of them that depends neither on their order nor on how they were
cut.

The hash of several sets is the sum of theirs: tasks compute it apart, and a driver adds it up. It is of
values, not of how Arrow holds them: integers, floats and decimals of any width, texts and lists with offsets
of any width, dictionaries, run-ends and slices give what plain arrays give. A null is as good as a column
that is not there, so that a topic to which columns were added, or whose columns were widened, gives what it
gave before. NaNs are equal, and -0.0 is 0.0.

The definition is in the specification, section "Content of a version"; what is stored never changes its
meaning.

    mix(x)      splitmix64's finalizer: a bijection of 64 bits        fold(x)     (x ^ x >> 32) * FOLD
    value       of each value two words, ``first`` and ``second``; of one of at most 64 bits (its bits, 0)
    parts       of what is made of parts the sums, over the parts that are not null, of
                p = mix(first ^ key) and fold(p ^ second), where the key says which part it is

Pure. All arithmetic is modulo 2^64, on whole columns at once.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from txnformat.errors import InternalError

__all__ = ["NO_ROWS", "Multiset", "multiset_of"]

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

BLOCK_ROWS, BLOCK_BYTES = 16_384, 2**20
"""Rows, and about how many bytes of them, that are hashed at a time: what is between stays in the processor's
caches."""

LONG_BYTES = 2**16
"""Texts from here on are hashed one by one, in pieces: their words take several times their bytes."""

ROUND_ROWS_MIN, ROUNDS_MAX = 512, 2
"""So many texts are hashed word by word, while that looks at no more than so many times their words."""

_LISTS = (pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view)
_TEXTS = (pt.is_string, pt.is_large_string, pt.is_string_view)
_BYTES = (*_TEXTS, pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)

_WORD = 2**64
_STEP = np.uint64(0x9E3779B97F4A7C15)
"""The constant that tells the parts of a list or of a text apart: the key of part i, from 0, is (i + 1) times
this."""
_FOLD = np.uint64(0xD6E8FEB86659FD93)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_NULL = np.uint64(0xA0761D6478BD642F)
"""In place of the first word of a null in a list or a map."""
_ENTRY = np.uint64(0xE7037ED1A0B428DB)
"""The key of every entry of a map: their order says nothing."""
_BYTE_MASKS = np.array([2 ** (8 * count) - 1 for count in range(8)] + [_WORD - 1], np.uint64)
"""Masks that keep the lowest bytes of a word; the index is the number of bytes."""


class Multiset(NamedTuple):
    """Rows, without their order."""

    records: int
    first: int
    """First half of the sum, [0, 2^64)."""
    second: int

    def __add__(self, other: object) -> Multiset:
        """Return the rows of both."""
        if not isinstance(other, Multiset):
            return NotImplemented
        return Multiset(
            self.records + other.records,
            (self.first + other.first) % _WORD,
            (self.second + other.second) % _WORD,
        )

    @property
    def hash(self) -> str:
        """Return the sum as 32 hexadecimal digits."""
        return f"{self.first:016x}{self.second:016x}"


NO_ROWS = Multiset(0, 0, 0)


class _Values(NamedTuple):
    """The two words of each value of a column; what they are at nulls means nothing."""

    first: Words
    second: Words | None
    """Second words. If None, all are 0."""
    valid: npt.NDArray[np.bool_] | None
    """Whether each value is not null. If None, no value is null."""


def multiset_of(rows: pa.Table | pa.RecordBatch) -> Multiset:
    """Return the rows of a table. Raises InternalError: a type that no topic has."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    if table.num_rows == 0:
        return NO_ROWS
    if max((column.num_chunks for column in table.columns), default=0) > 1 + table.num_rows // BLOCK_ROWS:
        table = table.combine_chunks()  # many small pieces cost more than one copy
    found = NO_ROWS
    block = max(1, min(BLOCK_ROWS, table.num_rows * BLOCK_BYTES // max(1, table.nbytes)))
    for batch in table.to_batches(max_chunksize=block):
        found += _of_batch(batch)
    return found


def _of_batch(batch: pa.RecordBatch) -> Multiset:
    parts = _Parts(batch.num_rows)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        parts.add(_values(column), _key(name))
    first = _mix(parts.first + _STEP)
    second = _mix(parts.second ^ first)
    return Multiset(batch.num_rows, int(first.sum()), int(second.sum()))


class _Parts:
    """The sums over the parts of each row, struct, list or text."""

    def __init__(self, count: int) -> None:
        self.first = np.zeros(count, np.uint64)
        self.second = np.zeros(count, np.uint64)

    def add(self, values: _Values, key: np.uint64) -> None:
        """Add the part of each that ``key`` tells apart."""
        first, second = _part(values, key)
        if values.valid is not None:
            first *= values.valid
            second *= values.valid
        self.first += first
        self.second += second


def _part(values: _Values, key: np.uint64 | Words) -> tuple[Words, Words]:
    """Return what each value adds to the sums."""
    first = _mix(values.first ^ key)
    return first, _fold(first if values.second is None else first ^ values.second)


def _mix(words: Words) -> Words:
    """Return the words mixed; they are overwritten."""
    shifted = words >> np.uint64(30)
    words ^= shifted
    words *= _MIX_1
    np.right_shift(words, np.uint64(27), out=shifted)
    words ^= shifted
    words *= _MIX_2
    np.right_shift(words, np.uint64(31), out=shifted)
    words ^= shifted
    return words


def _fold(words: Words) -> Words:
    folded = words >> np.uint64(32)
    folded ^= words
    folded *= _FOLD
    return folded


@functools.lru_cache(maxsize=4_096)
def _key(name: str) -> np.uint64:
    """Return the key of a column, or of a struct's field."""
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def _values(column: Any) -> _Values:
    """Return the words of each value of an array."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _values(column.storage)
    if pt.is_dictionary(kind):
        return _of_dictionary(column)
    if pt.is_run_end_encoded(kind):
        return _values(pc.run_end_decode(column))
    if pt.is_null(kind):
        return _Values(np.zeros(len(column), np.uint64), None, np.zeros(len(column), np.bool_))
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    if pt.is_struct(kind):
        parts = _Parts(len(column))
        for index, field in enumerate(kind):
            parts.add(_values(column.field(index)), _key(field.name))
        return _Values(parts.first, parts.second, valid)
    if pt.is_map(kind):
        return _of_list(_entries(column), valid, in_order=False)
    if any(is_one(kind) for is_one in _LISTS):
        return _of_list(column, valid)
    if any(is_one(kind) for is_one in _BYTES):
        return _of_bytes(column, valid)
    if pt.is_decimal(kind):
        return _of_words(_fixed_width(column.cast(pa.decimal256(76, 38)), np.dtype((np.uint64, 4))), valid)
    return _Values(_bits(column), None, valid)


def _of_dictionary(column: Any) -> _Values:
    if len(column.dictionary) == 0:
        return _values(pa.nulls(len(column)))
    values = _values(column.dictionary)
    indices = pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
    valid = (
        None if not column.indices.null_count else column.indices.is_valid().to_numpy(zero_copy_only=False)
    )
    if values.valid is not None:
        there = values.valid[indices]
        valid = there if valid is None else valid & there
    second = None if values.second is None else values.second[indices]
    return _Values(values.first[indices], second, valid)


def _bits(column: Any) -> Words:
    """Return the bits of each number, as wide as its kind's widest type."""
    kind = column.type
    if pt.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signaling NaN is one like any other
            numbers = _fixed_width(column, kind.to_pandas_dtype()).astype(np.float64)
            numbers += 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return cast("Words", numbers.view(np.uint64))
    if pt.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pt.is_date64(kind):
        column = column.cast(pa.date32())
    elif pt.is_time(kind):
        column = column.cast(pa.time64("us"))
    elif pt.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    elif pt.is_duration(kind):
        column = column.cast(pa.duration("us"))
    elif not (pt.is_integer(kind) or pt.is_date(kind)) or pt.is_uint64(kind):
        raise InternalError("rows of a type that no topic has are to be hashed", type=str(kind))
    signed = "u" if pt.is_unsigned_integer(column.type) else "i"
    numbers = _fixed_width(column, np.dtype(f"{signed}{column.type.bit_width // 8}"))
    return cast("Words", numbers.astype(np.int64).view(np.uint64))


def _fixed_width(column: Any, dtype: Any) -> Any:
    """Return the values of an array as they are in its buffer, anything at nulls."""
    data = column.buffers()[1]
    if data is None:
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype, len(column) + column.offset)[column.offset :]


def _of_words(words: Words, valid: npt.NDArray[np.bool_] | None) -> _Values:
    """Return values that are each of the same number of words."""
    parts = _Parts(len(words))
    for index in range(words.shape[1]):
        parts.add(_Values(words[:, index], None, None), _key_of_part(index))
    return _Values(parts.first, parts.second, valid)


def _of_bytes(column: Any, valid: npt.NDArray[np.bool_] | None) -> _Values:
    """Return the values of texts and binaries: their words of 8 bytes are their parts, and the first word has
    the length.
    """
    if len(column) == 0:
        return _Values(np.zeros(0, np.uint64), None, valid)
    if pt.is_string_view(column.type):
        column = column.cast(pa.large_string())
    elif pt.is_binary_view(column.type) or pt.is_fixed_size_binary(column.type):
        column = column.cast(pa.large_binary())
    width = np.int32 if pt.is_string(column.type) or pt.is_binary(column.type) else np.int64
    _, offsets, buffer = column.buffers()
    held = np.frombuffer(offsets, width, column.offset + len(column) + 1)[column.offset :]
    positions = held.astype(np.int64, copy=False)
    data = np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)
    lengths = np.diff(positions)
    begins = positions[:-1]
    short = np.where(lengths < LONG_BYTES, lengths, 0)
    first, second = _of_texts(data[positions[0] : positions[-1]], begins - positions[0], short)
    for index in np.flatnonzero(lengths >= LONG_BYTES).tolist():
        begin, end = int(positions[index]), int(positions[index + 1])
        for start in range(begin, end, LONG_BYTES):
            piece = data[start : min(start + LONG_BYTES, end)]
            before = (start - begin) // 8
            one, other = _of_texts(piece, np.zeros(1, np.int64), np.array([len(piece)]), before)
            first[index : index + 1] += one  # as arrays: their sums may wrap around
            second[index : index + 1] += other
    first += lengths.view(np.uint64)
    return _Values(first, second, valid)


def _of_texts(
    data: npt.NDArray[np.uint8],
    begins: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    before: int = 0,
) -> tuple[Words, Words]:
    """Return the sums over the words of texts that lie in ``data``; ``before`` are words of each that came
    before.
    """
    # The last word of a text is read whole, and cut afterwards.
    held = np.zeros(len(data) + 8, np.uint8)
    held[: len(data)] = data
    word_at = np.ndarray((len(data) + 1,), np.dtype("<u8"), held, strides=(1,))
    counts = (lengths + 7) >> 3
    if len(counts) >= ROUND_ROWS_MIN and len(counts) * int(counts.max()) <= ROUNDS_MAX * int(counts.sum()):
        return _in_rounds(word_at, begins, lengths, before)
    ends = np.cumsum(counts)
    starts = ends - counts
    index = np.arange(int(ends[-1])) - np.repeat(starts, counts)  # of each word in its text
    words = word_at[np.repeat(begins, counts) + 8 * index].astype(np.uint64, copy=False)
    words &= _BYTE_MASKS[np.minimum(np.repeat(lengths, counts) - 8 * index, 8)]
    keys = (index + (before + 1)).view(np.uint64)
    keys *= _STEP
    return _summed(_part(_Values(words, None, None), keys), starts, ends)


def _in_rounds(word_at: Words, begins: Positions, lengths: Positions, before: int) -> tuple[Words, Words]:
    """Return what :func:`_of_texts` does: the first word of all texts, then the second, …; quicker where they
    are about as long.
    """
    first, second = np.zeros(len(lengths), np.uint64), np.zeros(len(lengths), np.uint64)
    shortest = int(lengths.min())
    for start in range(0, int(lengths.max()), 8):
        words = word_at[np.minimum(begins + start, len(word_at) - 1)].astype(np.uint64, copy=False)
        if shortest < start + 8:
            words &= _BYTE_MASKS[np.clip(lengths - start, 0, 8)]
        one, other = _part(_Values(words, None, None), _key_of_part(before + start // 8))
        if shortest <= start:
            there = lengths > start
            one *= there
            other *= there
        first += one
        second += other
    return first, second


def _key_of_part(index: int) -> np.uint64:
    return np.uint64((index + 1) * int(_STEP) % _WORD)


def _entries(column: Any) -> Any:
    """Return maps as lists of structs of ``key`` and ``value``, whatever the array calls them."""
    # Children of maps are whole, whatever slice of them the array is: buffers and offset stay.
    entries = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
    buffers = column.buffers()[:2]
    return pa.Array.from_buffers(
        pa.list_(entries.type), len(column), buffers, column.null_count, column.offset, [entries]
    )


def _of_list(column: Any, valid: npt.NDArray[np.bool_] | None, *, in_order: bool = True) -> _Values:
    """Return the values of lists: their elements are their parts, and the first word has the length."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    elements = _values(column.flatten())
    if elements.valid is not None:
        elements = _Values(
            np.where(elements.valid, elements.first, _NULL),
            None if elements.second is None else elements.second * elements.valid,
            None,
        )
    keys: np.uint64 | Words = _ENTRY
    if in_order:
        keys = (np.arange(len(elements.first)) - np.repeat(starts, lengths) + 1).view(np.uint64)
        keys *= _STEP
    first, second = _summed(_part(elements, keys), starts, ends)
    first += lengths.view(np.uint64)
    return _Values(first, second, valid)


def _summed(parts: tuple[Words, Words], starts: Positions, ends: Positions) -> tuple[Words, Words]:
    """Return the sums of the parts [start, end) of each value."""

    def summed(words: Words) -> Words:
        running = np.zeros(len(words) + 1, np.uint64)
        np.cumsum(words, out=running[1:])
        return cast("Words", running[ends] - running[starts])

    return summed(parts[0]), summed(parts[1])
