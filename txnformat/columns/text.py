"""Text columns checked for UTF-8: Arrow takes any bytes for text, and Python's readers then fail.

Cheap where it passes: ASCII is seen in one pass over the bytes, other text by Arrow's own validation of all
of them. Which row is at fault is looked up only when there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["BadText", "bad_texts", "is_sound_text", "without_hidden_texts"]

FIRST_OF_A_CHARACTER = -64
"""As signed bytes, those below are the second to fourth of a character in UTF-8."""

_TEXT = pa.string().id
_TEXTS = frozenset(type_.id for type_ in (pa.string(), pa.large_string(), pa.string_view()))

VALUES_AT_ONCE = 16_384
"""Values whose first bytes are looked at together: few enough for the processor's cache."""


class BadText(NamedTuple):
    """A value that is no UTF-8, or has such a text inside."""

    column: str
    row: int
    """Number of the row, from 0, in the rows that were looked at."""
    value: bytes | None
    """The bytes of the text. If None, the text is inside a list, a map or a struct."""

    def __str__(self) -> str:
        """Return what is wrong, without column and row."""
        return "a text in it is not UTF-8" if self.value is None else f"{self.value!r:.80} is not UTF-8"


def bad_texts(data: Any) -> Iterator[BadText]:
    """Yield every value that is not the text that its type says, column by column, by row."""
    for number, type_ in enumerate(data.schema.types):
        if not _holds_text(type_):
            continue
        column = data.column(number)
        first = 0
        for chunk in column.iterchunks() if isinstance(column, pa.ChunkedArray) else (column,):
            if not _is_sound(chunk, type_):
                for row, value in _bad_rows(chunk, type_):
                    yield BadText(data.schema.names[number], first + row, value)
            first += len(chunk)


def without_hidden_texts(data: pa.Table) -> pa.Table:
    """Return a table that has no bad texts, without those that lie in nested values which are null: Arrow's
    checks see them, no reader does.
    """
    for number, type_ in enumerate(data.schema.types):
        if not type_.num_fields or not _holds_text(type_):
            continue
        chunks = data.column(number).chunks
        if not all(_is_sound(chunk, type_) for chunk in chunks):
            shown = pa.chunked_array([_shown(chunk) for chunk in chunks], type_)
            data = data.set_column(number, data.schema.field(number), shown)
    return data


def _shown(array: Any) -> Any:
    type_ = array.type
    if pt.is_struct(type_):
        parts = [_shown(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, fields=list(type_), mask=array.is_null())
    # Of lists and maps: none that are null have values.
    array = array.take(pa.array(range(len(array)), pa.int64()))
    if pt.is_list(type_) or pt.is_large_list(type_):
        kind = pa.ListArray if pt.is_list(type_) else pa.LargeListArray
        return kind.from_arrays(array.offsets, _shown(array.values), type=type_, mask=array.is_null())
    if pt.is_fixed_size_list(type_):
        return pa.FixedSizeListArray.from_arrays(_shown(array.values), type=type_, mask=array.is_null())
    if pt.is_map(type_):
        keys, items = _shown(array.keys), _shown(array.items)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=type_, mask=array.is_null())
    return array


def _holds_text(type_: pa.DataType) -> bool:
    """Return whether values of a type are text, or have some inside."""
    if type_.id in _TEXTS:
        return True
    if pt.is_dictionary(type_):
        return _holds_text(type_.value_type)
    return any(_holds_text(type_.field(number).type) for number in range(type_.num_fields))


def _is_flat(type_: pa.DataType) -> bool:
    return bool(pt.is_string(type_) or pt.is_large_string(type_))


def _is_sound(array: Any, type_: pa.DataType) -> bool:
    """Return whether an array is sound; False may be a false alarm: what lies outside of a slice, or no text
    at all.
    """
    if not len(array):
        return True
    if _is_flat(type_):
        _, offsets, data = array.buffers()
        if data is None or not data.size or _is_sound_together(_bounds(array, offsets, type_), data):
            return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def is_sound_text(array: Any, type_: pa.DataType) -> bool:
    """Return whether a column of strings that Arrow's quick validation has passed is sound: no value ends
    before it begins, each is UTF-8.

    Its places are looked at once. False may be a false alarm: :func:`bad_texts` and
    :mod:`txnformat.columns.sound` tell what it is.
    """
    if not len(array):
        return True
    _, offsets, data = array.buffers()
    if offsets is None or data is None:
        return False
    bounds = _bounds(array, offsets, type_)
    return not np.logical_or.reduce(bounds[1:] < bounds[:-1]) and _is_sound_together(bounds, data)


def _bounds(array: Any, offsets: Any, type_: pa.DataType) -> npt.NDArray[Any]:
    dtype, width = (np.int32, 4) if type_.id == _TEXT else (np.int64, 8)
    bounds: npt.NDArray[Any] = np.frombuffer(offsets, dtype, len(array) + 1, array.offset * width)
    return bounds


def _is_sound_together(bounds: npt.NDArray[Any], data: Any) -> bool:
    """Return whether all bytes together are UTF-8 and no value begins inside a character; quick, but nulls
    may hide bytes.
    """
    start, end = int(bounds[0]), int(bounds[-1])
    if start == end:
        return True
    values = np.frombuffer(data, np.int8)
    if np.minimum.reduce(values[start:end]) >= 0:
        return True  # ASCII
    whole = [None, pa.py_buffer(np.array([0, end - start])), data.slice(start, end - start)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, whole).validate(full=True)
    except pa.ArrowInvalid:
        return False
    for first in range(0, len(bounds) - 1, VALUES_AT_ONCE):
        begins: npt.NDArray[Any] = np.take(values, bounds[:-1][first : first + VALUES_AT_ONCE], mode="clip")
        if begins.min() < FIRST_OF_A_CHARACTER:
            return False
    return True


def _bad_rows(array: Any, type_: pa.DataType) -> Iterator[tuple[int, bytes | None]]:
    is_flat = _is_flat(type_)
    values = array.view(pa.binary() if pt.is_string(type_) else pa.large_binary()) if is_flat else array
    for row, scalar in enumerate(values):
        value = None
        try:
            value = scalar.as_py()
            if is_flat and value is not None:
                value.decode()
        except UnicodeDecodeError:
            yield row, value
        except (OverflowError, ValueError):  # a time that Python has not, of which Arrow makes no value
            if not _is_sound(array.take(pa.array([row])), type_):
                yield row, None
