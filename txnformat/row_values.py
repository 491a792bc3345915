"""Values of rows, checked without arithmetic before Arrow sees them.

Arrow converts objects of Python in C++. Some of them end the process there, some are cut to something else, and some take memory
or time without bound. Here each is found by its type and by its shape alone: a decimal by its digits and exponent, a list by
its declared length. What is neither a list, a tuple nor a dict is copied into one first, so that Arrow converts what was checked.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

__all__ = ["checked_values", "is_exact_decimal", "is_far_decimal", "shown", "uninferable"]

DECIMAL_EXPONENT_MAX = 76
"""Largest exponent of a decimal that Arrow is given, and the largest below zero (inclusive); Arrow crashes far beyond it."""

DECIMAL_DIGITS_MAX = 76
"""Most digits of a decimal that Arrow is given: those of its widest type."""

ELEMENTS_MAX = 2**31 - 1
"""Most elements of a list: its offsets are of 32 bits."""

DEPTH_MAX = 64
"""Deepest list of which Arrow is asked to find out the type."""

REPEATED = "an array repeats one element without holding it; pass a copy"

DAY_US = 86_400_000_000

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80

_NEVER_CUT = frozenset({type(None), str, bytes, bool})

_INFERABLE = frozenset({type(None), str, bytes, bool, int, float, datetime.date, datetime.datetime})


def shown(value: object) -> str:
    """Return a value for a message, at most 80 characters; never fails, whatever the value's own ``repr`` does."""
    try:
        return _SHORT.repr(value)[:80]
    except Exception:  # noqa: BLE001 - a value of another's class, or an integer of more digits than Python prints
        return f"a value of the type {type(value).__name__:.60}"


def checked_values(values: list[Any], type_: pa.DataType) -> tuple[list[Any], list[str]]:
    """Return a column's values as Arrow may convert them, and what is wrong with others, by row."""
    if not pt.is_nested(type_):
        # A set of Python types first: most columns hold one or two, and the rows need no second look.
        suspects = tuple(kind for kind in set(map(type, values)) if _is_suspect(kind, type_))
        if not suspects:
            return values, []
        bad = [
            (number, value)
            for number, value in enumerate(values)
            if isinstance(value, suspects) and not _is_exact(value, type_)
        ]
        return values, [f"row {number}: {shown(value)} is not a value of {type_}" for number, value in bad]
    copies: list[Any] = []
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            copies.append(_copied(value, type_))
        except _BadValue as error:
            problems.append(f"row {number}: {error}")
        except Exception as error:  # noqa: BLE001 - the value's own methods
            problems.append(f"row {number}: {shown(value)} cannot be read ({type(error).__name__})")
    return copies, problems


def is_exact_decimal(value: decimal.Decimal, precision: int, scale: int) -> bool:
    """Return whether a decimal type holds a value of at most 76 digits; told by its shape, without arithmetic. Zero fits always."""
    _, digits, exponent = decimal.Decimal.as_tuple(value)
    if not isinstance(exponent, int):
        return False
    zeros = next((zeros for zeros, digit in enumerate(reversed(digits)) if digit), None)
    if zeros is None:
        return True
    fits = -exponent - zeros <= scale and len(digits) + exponent <= precision - scale
    return fits and len(digits) <= DECIMAL_DIGITS_MAX


def is_far_decimal(value: decimal.Decimal) -> bool:
    """Return whether a decimal is none that Arrow may see: no number, too many digits, or an exponent far off."""
    _, digits, exponent = decimal.Decimal.as_tuple(value)
    return (
        not isinstance(exponent, int)
        or len(digits) > DECIMAL_DIGITS_MAX
        or not -DECIMAL_EXPONENT_MAX <= exponent <= DECIMAL_EXPONENT_MAX
    )


def uninferable(values: Iterable[Any]) -> str | None:
    """Return what in a column of objects Arrow must not be asked to find the type of; None when there is nothing."""
    kinds = set(map(type, values))
    if kinds <= _INFERABLE:
        return None
    for number, value in enumerate(values):
        if type(value) not in _INFERABLE and (problem := _uninferable(value, 0)) is not None:
            return f"row {number}: {problem}"
    return None


def _uninferable(value: Any, depth: int) -> str | None:
    if isinstance(value, decimal.Decimal):
        is_missing = value.is_nan()  # pandas writes so what is not there
        return None if is_missing or not is_far_decimal(value) else f"{shown(value)} is out of range"
    if isinstance(value, np.ndarray) and 0 in value.strides and value.size > 1:
        return REPEATED
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset) or (
        isinstance(value, np.ndarray) and value.dtype == object and value.ndim
    ):
        parts = value
    else:
        return None
    if depth == DEPTH_MAX:
        return f"{shown(value)} is nested deeper than {DEPTH_MAX} levels"
    return next((found for part in parts if (found := _uninferable(part, depth + 1)) is not None), None)


class _BadValue(Exception):
    """What is wrong with a value inside a nested one."""


def _is_suspect(kind: type, type_: pa.DataType) -> bool:
    """Return whether Arrow may cut values of ``kind``, or fail beyond an error, so that each needs a look."""
    if kind in _NEVER_CUT or (kind is int and not pt.is_time(type_)):
        return False
    if pt.is_decimal(type_):
        return issubclass(kind, decimal.Decimal)
    if pt.is_integer(type_) or pt.is_temporal(type_):
        fractions = issubclass(kind, numbers.Number) and not issubclass(kind, numbers.Integral)
        if fractions:
            return True
        if pt.is_time(type_):
            return issubclass(kind, datetime.time | numbers.Integral | np.datetime64 | np.timedelta64)
        return pt.is_date(type_) and issubclass(kind, datetime.datetime)
    return False


def _is_exact(value: Any, type_: pa.DataType) -> bool:
    """Return whether Arrow keeps a suspect value whole."""
    if pt.is_decimal(type_):
        return not is_far_decimal(value) and is_exact_decimal(value, type_.precision, type_.scale)
    if pt.is_time(type_):
        if isinstance(value, datetime.time):
            return value.tzinfo is None
        if isinstance(value, numbers.Integral):
            return 0 <= int(value) < DAY_US
    return False


def _copied(value: Any, type_: pa.DataType) -> Any:
    """Return a value with lists, tuples and dicts of Python in place of all other containers."""
    if value is None:
        return None
    if pt.is_struct(type_):
        return _fields(value, type_)
    if pt.is_map(type_):
        return [(_key(key, type_), _copied(item, type_.item_type)) for key, item in _pairs(value, type_)]
    if pt.is_list(type_):
        inner = type_.value_type
        elements = _elements(value, type_)
        if not pt.is_nested(inner):
            suspects = tuple(kind for kind in set(map(type, elements)) if _is_suspect(kind, inner))
            for element in elements if suspects else ():
                if isinstance(element, suspects) and not _is_exact(element, inner):
                    raise _BadValue(f"{shown(element)} is not a value of {inner}")
            return elements
        return [_copied(element, inner) for element in elements]
    if _is_suspect(type(value), type_) and not _is_exact(value, type_):
        raise _BadValue(f"{shown(value)} is not a value of {type_}")
    return value


def _fields(value: Any, type_: pa.DataType) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _BadValue(f"{shown(value)} is not a dict, as {str(type_)!r:.100} asks for")
    found = value if type(value) is dict else dict(value)
    if found.keys() != {field.name for field in type_}:
        keys = sorted(map(shown, islice(found, 20)))
        raise _BadValue(f"the keys {keys!r:.100} are not the fields of {str(type_)!r:.100}")
    return {field.name: _copied(found[field.name], field.type) for field in type_}


def _key(key: Any, type_: pa.DataType) -> Any:
    if key is None:
        raise _BadValue(f"a key is None, which {str(type_)!r:.100} cannot hold")
    return _copied(key, type_.key_type)


def _pairs(value: Any, type_: pa.DataType) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    pairs: list[tuple[Any, Any]] = []
    for pair in _elements(value, type_):
        if isinstance(pair, tuple | list) and len(pair) == 2:
            pairs.append((pair[0], pair[1]))
        elif isinstance(pair, Mapping) and pair.keys() == {"key", "value"}:
            pairs.append((pair["key"], pair["value"]))
        else:
            raise _BadValue(f"{shown(pair)} is not a pair of key and value")
    return pairs


def _elements(value: Any, type_: pa.DataType) -> list[Any]:
    """Return the elements of what is iterable and has a length, as many as that says."""
    if type(value) is list or type(value) is tuple:
        return list(value)
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not hasattr(value, "__iter__"):
        raise _BadValue(f"{shown(value)} is not a list, as {str(type_)!r:.100} asks for")
    is_sized = isinstance(value, Sequence) or hasattr(value, "__len__")
    count = len(value) if is_sized else -1
    if not 0 <= count <= ELEMENTS_MAX:
        raise _BadValue(f"{shown(value)} is not a list of at most {ELEMENTS_MAX} elements")
    if isinstance(value, np.ndarray) and 0 in value.strides and value.size > 1:
        raise _BadValue(REPEATED)
    elements = list(islice(value, count + 1))
    if len(elements) != count:
        raise _BadValue(f"{shown(value)} has not the length that it tells, {count}")
    return elements
