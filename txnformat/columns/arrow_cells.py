"""Arrow arrays and scalars as values of rows: checked before any look at them, since Arrow ends the process
over unsound ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

__all__ = ["REPEATED", "is_arrow", "without_arrow"]

REPEATED = "an array repeats one element without holding it; pass a copy"

COPY_MAX = 4 << 20
"""Bytes and values that a copy of a small array may take; a larger array may take ``COPY_PER_BYTE`` for each
byte that it holds."""

COPY_PER_BYTE = 8

SHARED_VALUE = 8
"""Bytes that count for a value without memory of its own in Arrow: those of a pointer in Python."""

_ARROW = (pa.Array, pa.ChunkedArray, pa.Scalar)


def is_arrow(kind: type) -> bool:
    """Return whether values of a class are Arrow data that rows may hold; asks nothing of the class
    itself.
    """
    return issubclass(kind, _ARROW)


def without_arrow(value: Any) -> Any:
    """Return the values of an Arrow array or scalar as Python's; a value of any other class as it is.

    Raises ValueError: the data is not sound, or repeats so much that a copy would take memory without bound.
    """
    if type(value).__module__.partition(".")[0] == "pandas":
        value = _of_pandas(value)
    if not is_arrow(type(value)):
        return value
    try:
        value.validate(full=True)
    except (pa.ArrowException, ValueError) as error:
        raise ValueError(f"an Arrow value is not sound: {error!s:.200}") from None
    for part in _arrays(value):
        if _copy_size(part) > COPY_MAX + COPY_PER_BYTE * part.get_total_buffer_size():
            raise ValueError(REPEATED)
    return value.as_py() if isinstance(value, pa.Scalar) else value.to_pylist()


def _of_pandas(value: Any) -> Any:
    """Return the Arrow data behind a series or an array of pandas, which shares its memory; others as they
    are.
    """
    is_arrow_backed = type(getattr(value, "dtype", None)).__name__ in ("ArrowDtype", "StringDtype")
    return pa.array(value) if is_arrow_backed and hasattr(value, "__len__") else value


def _arrays(value: Any) -> list[pa.Array]:
    """Return the arrays that a sound Arrow value holds; nothing is copied."""
    if isinstance(value, pa.ChunkedArray):
        return list(value.iterchunks())
    if isinstance(value, pa.Array):
        return [value]
    if not value.is_valid:
        return []
    if isinstance(value, pa.StructScalar):
        return [part for number in range(value.type.num_fields) for part in _arrays(value[number])]
    if isinstance(value, pa.ExtensionScalar | pa.UnionScalar | pa.RunEndEncodedScalar):
        return _arrays(value.value)
    if isinstance(value, pa.DictionaryScalar):
        return _arrays(value.dictionary[value.index.as_py()])
    return [value.values] if pt.is_nested(value.type) else []


def _copy_size(array: Any) -> float:
    """Return about how many values and bytes of text a copy of a sound array has; infinite for unions."""
    type_, count = array.type, len(array)
    if isinstance(type_, pa.BaseExtensionType):
        return _copy_size(array.storage)
    if pt.is_dictionary(type_):
        if _has_lengths(type_.value_type):
            return count + _sum(_lengths(array.dictionary).take(array.indices))
        return count * max(1, _copy_size(array.dictionary))
    if pt.is_run_end_encoded(type_):
        return count * (SHARED_VALUE + _copy_size(array.values))
    if pt.is_list_view(type_) or pt.is_large_list_view(type_):
        if pt.is_primitive(type_.value_type):
            return count + SHARED_VALUE * _sum(array.sizes)
        return count * (1 + _copy_size(array.values))
    if pt.is_map(type_):
        return count + _copy_size(array.keys) + _copy_size(array.items)
    if pt.is_list(type_) or pt.is_large_list(type_) or (pt.is_fixed_size_list(type_) and type_.list_size):
        return count + _copy_size(array.values)
    if pt.is_union(type_):
        return float("inf")
    if _has_lengths(type_):
        return count + _sum(_lengths(array))
    if pt.is_null(type_) or pt.is_nested(type_):
        fields = type_.num_fields if pt.is_struct(type_) else 0
        return SHARED_VALUE * count + sum(_copy_size(array.field(number)) for number in range(fields))
    return count


def _has_lengths(type_: pa.DataType) -> bool:
    return bool(
        pt.is_string(type_)
        or pt.is_binary(type_)
        or pt.is_large_string(type_)
        or pt.is_large_binary(type_)
        or pt.is_string_view(type_)
        or pt.is_binary_view(type_)
    )


def _lengths(array: Any) -> Any:
    """Return how many bytes each text of an array has."""
    if not (pt.is_string_view(array.type) or pt.is_binary_view(array.type)):
        return pc.binary_length(array)
    views = array.buffers()[1]  # sixteen bytes each, of which four are the length
    first = 4 * array.offset
    return pa.array(
        np.frombuffer(views, "i4")[first : first + 4 * len(array) : 4] if len(array) else [], pa.int32()
    )


def _sum(numbers: Any) -> int:
    return pc.sum(pc.cast(numbers, pa.int64())).as_py() or 0
