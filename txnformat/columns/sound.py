"""Arrow data checked against its types: buffers that came from elsewhere may point anywhere, and readers of
them crash.

Text is another module's (:mod:`txnformat.columns.text`): here only the places of its bytes are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from txnformat.columns.arrow_sizes import OfSchema
from txnformat.columns.text import is_sound_text

__all__ = ["has_text_names", "is_plain_and_sound", "unsound_columns"]

_FIXED = frozenset(
    type_.id
    for type_ in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.date64()),
        *(pa.timestamp("us"), pa.duration("us")),
    )
)
"""Types whose values may have any bits."""

_TEXT = pa.string().id
_TEXTS = frozenset((_TEXT, pa.large_string().id))


def unsound_columns(data: Any) -> Iterator[tuple[str, str]]:
    """Yield the name of each column that is not sound, and what is wrong with it."""
    try:
        data.validate()  # all at once: names of columns are looked up where it fails
        is_valid = True
    except (pa.ArrowException, ValueError):
        is_valid = False
    for number, type_ in enumerate(data.schema.types):
        if is_valid and type_.id in _FIXED:
            continue
        column = data.column(number)
        for chunk in column.iterchunks() if isinstance(column, pa.ChunkedArray) else (column,):
            try:
                _check(chunk, type_)
            except (pa.ArrowException, ValueError) as error:
                yield data.schema.names[number], f"{error!s:.200}"
                break


def is_plain_and_sound(table: pa.Table, schema: pa.Schema) -> bool:
    """Return whether a table has nothing but numbers, times and strings, and is sound, all of its texts
    UTF-8: in one quick look.

    False may be a false alarm: :func:`unsound_columns` and :func:`~txnformat.columns.text.bad_texts` find
    what it is, if anything.

    ``schema``: that of the table; best always the same object, for what is known of it is kept.
    """
    texts = _texts_of(schema)
    if texts is None:
        return False
    try:
        table.validate()
    except (pa.ArrowException, ValueError):
        return False
    return all(
        is_sound_text(chunk, type_) for number, type_ in texts for chunk in table.column(number).iterchunks()
    )


def _texts(schema: pa.Schema) -> tuple[tuple[int, pa.DataType], ...] | None:
    """Return number and type of each column of strings; None with columns of other types that must be looked
    at.
    """
    if not {type_.id for type_ in schema.types} <= _FIXED | _TEXTS:
        return None
    return tuple((number, type_) for number, type_ in enumerate(schema.types) if type_.id in _TEXTS)


_texts_of = OfSchema(_texts)


def has_text_names(fields: Any) -> bool:
    """Return whether the names of a schema's columns and of all fields inside are text: Arrow keeps bytes."""
    count = len(fields) if isinstance(fields, pa.Schema) else fields.num_fields
    try:
        return all(
            field.name is not None and has_text_names(field.type) for field in map(fields.field, range(count))
        )
    except UnicodeDecodeError:
        return False


def _check(array: Any, type_: pa.DataType) -> None:
    array.validate()
    kind = type_.id  # compared as a number: this runs for every column of every send
    if kind in _FIXED:
        return
    if kind in _TEXTS:
        _check_places(array, type_)
    elif pt.is_dictionary(type_):
        indices = pc.min_max(array.indices)
        if indices["min"].is_valid and not 0 <= indices["min"].as_py() <= indices["max"].as_py() < len(
            array.dictionary
        ):
            raise ValueError("an index is beyond its dictionary")
        _check(array.dictionary, type_.value_type)
    elif pt.is_struct(type_):
        for number in range(type_.num_fields):
            _check(array.field(number), type_.field(number).type)
    elif pt.is_map(type_):
        _check_places(array, type_)
        _check(array.keys, type_.key_type)
        _check(array.items, type_.item_type)
    elif pt.is_list(type_) or pt.is_large_list(type_):
        _check_places(array, type_)
        _check(array.values, type_.value_type)
    elif pt.is_fixed_size_list(type_):
        _check(array.values, type_.value_type)
    elif pt.is_string_view(type_):
        array.view(pa.binary_view()).validate(full=True)
    else:
        array.validate(full=True)


def _check_places(array: Any, type_: pa.DataType) -> None:
    """Raise ValueError unless no text or list ends before it begins: the first and the last are in bounds."""
    if len(array) < 2:
        return
    is_large = pt.is_large_string(type_) or pt.is_large_list(type_)
    width = 8 if is_large else 4
    bounds: npt.NDArray[Any] = np.frombuffer(
        array.buffers()[1], f"i{width}", len(array) + 1, array.offset * width
    )
    if not (bounds[1:] >= bounds[:-1]).all():
        raise ValueError(f"a {type_} ends before it begins")
