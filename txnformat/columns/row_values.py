"""Values of rows, checked without arithmetic before Arrow sees them.

Arrow converts objects of Python in C++. Some of them end the process there, some are cut to something else,
and some take memory or time without bound. Here each is found by its type and by its shape alone: a decimal
by its digits and exponent, a list by its declared length. Any other sequence or mapping is first copied into
a list or a dict, and a value of a derived class into its plain one. Arrow then converts exactly what was
checked: it calls methods of some values, and those of a derived class may return anything.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections import OrderedDict, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.arrow_cells import REPEATED, is_arrow, without_arrow
from txnformat.columns.far_times import DATE_MAX, DATE_MIN, INSTANT_US_MAX, INSTANT_US_MIN
from txnformat.errors import is_printable, repr_of, type_name

__all__ = ["checked_values", "is_exact_decimal", "shown", "uninferable"]

DECIMAL_EXPONENT_MAX = 76
"""Largest exponent of a decimal that Arrow is given, and the largest below zero (inclusive); Arrow crashes
far beyond it."""

DECIMAL_DIGITS_MAX = 76
"""Most digits of a decimal that Arrow is given: those of its widest type."""

ELEMENTS_MAX = 2**31 - 1
"""Most elements of a list: its offsets are of 32 bits."""

DEPTH_MAX = 64
"""Deepest list of which Arrow is asked to find out the type."""

DAY_US = 86_400_000_000

FLOAT32_END = (2.0 - 2.0**-24) * 2.0**127
"""From here on (inclusive) a float becomes infinite in 32 bits."""

INT64_END = 2**63
"""From here on (inclusive) Arrow takes numpy's unsigned integers for negative ones."""

_NEVER_CUT = frozenset({type(None), str, bytes, bool, datetime.date, datetime.timedelta})

_DICTS = frozenset({dict, OrderedDict, defaultdict})

_SETS = frozenset({set, frozenset})

_SEQUENCES = (list, tuple)

_FLOATS = frozenset({float, np.float64})

_INFERABLE = frozenset({type(None), str, bytes, bool, int, float, datetime.date})


def shown(value: object) -> str:
    """Return a value for a message, at most 80 characters; never fails."""
    return repr_of(value, 80)


def checked_values(values: list[Any], type_: pa.DataType) -> tuple[list[Any], list[str]]:
    """Return a column's values as Arrow may convert them, and what is wrong with others, by row."""
    if not pt.is_nested(type_):
        return _checked_leaves(values, type_)
    copies: list[Any] = []
    problems: list[str] = []
    for number, value in enumerate(values):
        try:
            copies.append(_copied(value, type_))
        except _BadValue as error:
            problems.append(f"row {number}: {error}")
        except Exception as error:  # noqa: BLE001 - the value's own methods
            problems.append(f"row {number}: {shown(value)} cannot be read ({type_name(error)})")
    return copies, problems


class _EveryClass:
    """All classes, none of which is looked up."""

    def __contains__(self, kind: object) -> bool:
        return True


def _checked_leaves(values: list[Any], type_: pa.DataType) -> tuple[list[Any], list[str]]:
    # A set of Python types first: most columns hold one or two, and the rows need no second look.
    suspects: Container[type]
    try:
        suspects = {kind for kind in set(map(type, values)) if _is_suspect(kind, type_)}
    except Exception:  # noqa: BLE001 - of a class whose own class fails: each value gets a look
        suspects = _EveryClass()
    if not suspects:
        return values, []
    copies = values.copy()
    problems: list[str] = []
    is_instant = pt.is_timestamp(type_)
    for number, value in enumerate(values):
        kind = type(value)
        if kind not in suspects:
            continue
        if is_instant and kind is datetime.datetime and value.tzinfo is datetime.UTC:
            continue  # most times are these
        try:
            copies[number] = _leaf(value, type_)
        except _BadValue as error:
            problems.append(f"row {number}: {error}")
        except Exception as error:  # noqa: BLE001 - the value's own methods
            problems.append(f"row {number}: {shown(value)} cannot be read ({type_name(error)})")
    return copies, problems


def is_exact_decimal(value: decimal.Decimal, precision: int, scale: int) -> bool:
    """Return whether a decimal type holds a value of at most 76 digits; told by its shape, without
    arithmetic.

    Zero fits always.
    """
    _, digits, exponent = decimal.Decimal.as_tuple(value)
    if not isinstance(exponent, int):
        return False
    zeros = next((zeros for zeros, digit in enumerate(reversed(digits)) if digit), None)
    if zeros is None:
        return True
    fits = -exponent - zeros <= scale and len(digits) + exponent <= precision - scale
    return fits and len(digits) <= DECIMAL_DIGITS_MAX


def is_far_decimal(value: decimal.Decimal) -> bool:
    """Return whether a decimal is none that Arrow may see: no number, too many digits, or an exponent far
    off.
    """
    _, digits, exponent = decimal.Decimal.as_tuple(value)
    return (
        not isinstance(exponent, int)
        or len(digits) > DECIMAL_DIGITS_MAX
        or not -DECIMAL_EXPONENT_MAX <= exponent <= DECIMAL_EXPONENT_MAX
    )


def uninferable(values: Iterable[Any]) -> str | None:
    """Return what in a column of objects Arrow must not be asked to find the type of; None when there is
    nothing.
    """
    kinds = set(map(type, values))
    if kinds <= _INFERABLE:
        return None
    if np.ndarray in kinds and _mixes_times(values):
        return "times of numpy beside other arrays; pass lists of datetime"
    for number, value in enumerate(values):
        if type(value) not in _INFERABLE and (problem := _uninferable(value, 0)) is not None:
            return f"row {number}: {problem}"
    return None


def _mixes_times(values: Iterable[Any]) -> bool:
    """Return whether arrays of numpy's times are beside anything else: Arrow crashes over some of these."""
    dtypes = {getattr(one, "dtype", None) for one in values if one is not None}
    return len(dtypes) > 1 and any(isinstance(one, np.dtype) and one.kind in "mM" for one in dtypes)


def _uninferable(value: Any, depth: int) -> str | None:
    kind = type(value)
    if isinstance(value, decimal.Decimal):
        if kind is not decimal.Decimal:
            return f"{shown(value)} is a decimal of a class of its own; pass decimal.Decimal"
        is_missing = value.is_qnan()  # pandas writes so what is not there
        return None if is_missing or not is_far_decimal(value) else f"{shown(value)} is out of range"
    is_numpy_time = isinstance(value, np.datetime64 | np.timedelta64)
    if isinstance(value, int | np.integer | datetime.datetime | datetime.timedelta) and not is_numpy_time:
        return _inexact(value)
    if isinstance(value, np.ndarray) and (problem := _unfit_array(value)) is not None:
        return problem
    if isinstance(value, datetime.time) and datetime.time.tzinfo.__get__(value) is not None:
        return f"{shown(value)} has a zone, which a time column cannot hold"
    if depth and (is_numpy_time or (isinstance(value, np.ndarray) and value.dtype.kind in "mM")):
        return f"{shown(value)} is a time of numpy inside a list; pass one of datetime"
    if (is_numpy_time or isinstance(value, np.ndarray)) and _has_no_unit(value.dtype):
        return f"{shown(value)} is a time of numpy without a unit"
    if (problem := _unfit_class(value)) is not None:
        return problem
    if is_arrow(kind) and (problem := _unfit_arrow(value)) is not None:
        return problem
    if (parts := _parts(value)) is None:
        return None if is_arrow(kind) or is_printable(value) else f"{shown(value)} has no type in Arrow"
    if depth == DEPTH_MAX:
        return f"{shown(value)} is nested deeper than {DEPTH_MAX} levels"
    return next((found for part in parts if (found := _uninferable(part, depth + 1)) is not None), None)


def _unfit_class(value: Any) -> str | None:
    kind = type(value)
    if (isinstance(value, dict) and kind not in _DICTS) or (
        isinstance(value, set | frozenset) and kind not in _SETS
    ):
        return (
            f"a value of the class {type_name(value)}, which Arrow may iterate without end; pass a "
            "dict or a set"
        )
    if _has_own_length(kind):
        return (
            f"a value of the class {type_name(value)}, whose length Arrow takes for that of a list; "
            "pass a list"
        )
    return None


def _has_own_length(kind: type) -> bool:
    """Return whether a class is a list or a tuple with a length of its own, whatever its metaclass tells:
    Arrow reads so many elements.
    """
    if kind in _SEQUENCES or not issubclass(kind, _SEQUENCES):
        return False
    for base in type.__dict__["__mro__"].__get__(kind):
        if base in _SEQUENCES:
            return False
        if "__len__" in type.__dict__["__dict__"].__get__(base):
            return True
    return False


def _unfit_arrow(value: Any) -> str | None:
    if not isinstance(value, pa.Scalar):
        return f"{shown(value)}, which Arrow does not take for a list; pass a list"
    try:
        without_arrow(value)
    except Exception as error:  # noqa: BLE001 - also a time that Python has not
        return f"{shown(value)}: {error!s:.300}"
    return None


def _unfit_array(value: np.ndarray[Any, Any]) -> str | None:
    if value.ndim != 1:
        return f"an array of {value.ndim} dimensions; pass lists"
    if 0 in value.strides and value.size > 1:
        return REPEATED
    if np.ma.is_masked(value):
        return (
            "an array with masked elements, whose values would be stored; pass a list with None in "
            "their places"
        )
    return None


def _has_no_unit(dtype: np.dtype[Any]) -> bool:
    """Return whether times of a dtype have no unit: beside arrays of two dimensions Arrow crashes over
    them.
    """
    return dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic"


def _inexact(value: Any) -> str | None:
    """Return what is wrong with a number or a time of which Arrow would make another one."""
    kind = type(value)
    if issubclass(kind, np.integer):
        return f"{shown(value)} is out of range" if np.generic.item(value) >= INT64_END else None
    if issubclass(kind, int):  # beside decimals Arrow takes the text of an integer
        is_plain = kind.__str__ is int.__repr__ or (
            kind.__str__ is object.__str__ and kind.__repr__ is int.__repr__
        )
        return None if is_plain else f"an integer of the class {type_name(value)} with a text of its own"
    if kind.__name__ == "NaTType" and kind.__module__.partition(".")[0] == "pandas":
        return None
    try:
        plain = _plain(value)
        if isinstance(plain, datetime.datetime):
            _instant(plain)
    except _BadValue as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the value's own methods
        return f"{shown(value)} cannot be read ({type_name(error)})"
    return None


def _parts(value: Any) -> Iterable[Any] | None:
    """Return what is inside a value as Arrow sees it, whatever a derived class tells; None when Arrow looks
    for nothing there.
    """
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    for kind in kinds:
        if isinstance(value, kind):
            inside: Iterable[Any] = kind.__iter__(value)
            return inside
    if isinstance(value, dict):
        return dict.values(value)
    if isinstance(value, Mapping):
        return islice(value.values(), len(value) + 1)
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim:
        return np.ndarray.__iter__(value)
    return None


class _BadValue(Exception):
    """A problem with a value inside a nested one."""


def _is_suspect(kind: type, type_: pa.DataType) -> bool:
    """Return whether Arrow may cut values of ``kind``, or fail beyond an error, so that each needs a look."""
    if kind in _NEVER_CUT:
        return False
    if kind is int:
        return bool(pt.is_time(type_) or pt.is_date(type_) or pt.is_timestamp(type_))
    if kind in _FLOATS:
        return bool(pt.is_float32(type_) or pt.is_integer(type_) or pt.is_temporal(type_))
    return True


def _leaf(value: Any, type_: pa.DataType) -> Any:
    """Return what Arrow is given for a value that is no container."""
    plain = _plain(_without_arrow(value))
    if not _is_exact(plain, type_) or not is_printable(plain):  # what Arrow refuses it prints
        raise _BadValue(f"{shown(value)} is not a value of {type_}")
    return _instant(plain) if type(plain) is datetime.datetime else plain


def _without_arrow(value: Any) -> Any:
    try:
        return without_arrow(value)
    except ValueError as error:
        raise _BadValue(str(error)) from None


def _plain(value: Any) -> Any:
    """Return a number, a text or a time in its plain class, as it is and not as a derived class tells; others
    unchanged.
    """
    kind = type(value)
    if kind in _PLAIN or issubclass(kind, np.datetime64 | np.timedelta64):
        return value
    if issubclass(kind, np.integer):
        return np.generic.item(value)
    if issubclass(kind, np.floating):
        found = float(value)
        if found != value and not np.isnan(value):
            raise _BadValue(f"{shown(value)} is not a number of 64 bits")
        return found
    for base, copy in _PLAIN.items():
        if issubclass(kind, base):
            return copy(value)
    if isinstance(value, tuple(_PLAIN)):
        raise _BadValue(f"{shown(value)} has a __class__ that is not its type")
    return value


def _plain_datetime(value: Any) -> datetime.datetime:
    kind = datetime.datetime
    date = tuple(part.__get__(value) for part in (kind.year, kind.month, kind.day))
    time = (kind.hour, kind.minute, kind.second, kind.microsecond, kind.tzinfo)
    # Of pandas: nanoseconds, years that Python has not, and what is no time at all.
    if getattr(value, "nanosecond", 0) != 0 or (value.year, value.month, value.day) != date:
        raise _BadValue(f"{shown(value)} has nanoseconds, or lies outside of the years 1 to 9999")
    return kind(*date, *(part.__get__(value) for part in time), fold=kind.fold.__get__(value))


def _plain_timedelta(value: Any) -> datetime.timedelta:
    kind = datetime.timedelta
    parts = tuple(part.__get__(value) for part in (kind.days, kind.seconds, kind.microseconds))
    if getattr(value, "nanoseconds", 0) != 0 or value.days != parts[0]:
        raise _BadValue(f"{shown(value)} has nanoseconds, or is too long")
    return kind(*parts)


def _plain_date(value: Any) -> datetime.date:
    kind = datetime.date
    return kind(*(part.__get__(value) for part in (kind.year, kind.month, kind.day)))


def _plain_time(value: Any) -> datetime.time:
    kind = datetime.time
    parts = (kind.hour, kind.minute, kind.second, kind.microsecond, kind.tzinfo)
    return kind(*(part.__get__(value) for part in parts), fold=kind.fold.__get__(value))


_PLAIN: dict[type, Any] = {
    str: str.__str__,
    bytes: bytes.__bytes__,
    bool: bool,
    int: int.__index__,
    float: float.__float__,
    decimal.Decimal: decimal.Decimal,
    datetime.datetime: _plain_datetime,
    datetime.date: _plain_date,
    datetime.time: _plain_time,
    datetime.timedelta: _plain_timedelta,
}
"""Classes of Python that Arrow converts, and what copies a value of a derived one."""


def _instant(value: datetime.datetime) -> datetime.datetime:
    """Return a time that Arrow keeps: its instant is in the years 1 to 9999, and its zone is one of Python's
    own.
    """
    zone = value.tzinfo
    if zone is None or zone is datetime.UTC:
        return value
    if type(zone) in (datetime.timezone, ZoneInfo) and 1 < value.year < 9999:
        return value
    if value.utcoffset() is None:
        raise _BadValue(f"{shown(value)} has a zone without an offset")
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError:
        raise _BadValue(f"{shown(value)} lies outside of the years 1 to 9999 in UTC") from None


def _is_exact(value: Any, type_: pa.DataType) -> bool:
    """Return whether Arrow keeps a plain value whole, or refuses it itself."""
    kind = type(value)
    if pt.is_decimal(type_):
        if kind is decimal.Decimal:
            return not is_far_decimal(value) and is_exact_decimal(value, type_.precision, type_.scale)
        return kind in _PLAIN or value is None
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _is_exact_numpy(value, type_)
    if pt.is_float32(type_):
        return kind is not float or not FLOAT32_END <= abs(value) < float("inf")
    is_fraction = isinstance(value, numbers.Number) and not isinstance(value, numbers.Integral)
    if is_fraction and (pt.is_integer(type_) or pt.is_temporal(type_)):
        return False
    if pt.is_time(type_):
        return (kind is datetime.time and value.tzinfo is None) or (kind is int and 0 <= value < DAY_US)
    if pt.is_date(type_):
        return kind is not datetime.datetime and (kind is not int or DATE_MIN <= value <= DATE_MAX)
    if pt.is_timestamp(type_):
        return kind is not int or INSTANT_US_MIN <= value <= INSTANT_US_MAX
    return True


def _is_exact_numpy(value: Any, type_: pa.DataType) -> bool:
    """Return whether a time of numpy has the unit of its column, and is one of Python's."""
    fits = pt.is_timestamp(type_) if isinstance(value, np.datetime64) else pt.is_duration(type_)
    if not fits or np.datetime_data(value.dtype) != (type_.unit, 1):
        return False
    is_held = pt.is_duration(type_) or INSTANT_US_MIN <= int(value.view(np.int64)) <= INSTANT_US_MAX
    return bool(np.isnat(value)) or is_held


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
            suspects = {kind for kind in set(map(type, elements)) if _is_suspect(kind, inner)}
            if not suspects:
                return elements
            return [_leaf(one, inner) if type(one) in suspects else one for one in elements]
        return [_copied(element, inner) for element in elements]
    return _leaf(value, type_) if _is_suspect(type(value), type_) else value


def _fields(value: Any, type_: pa.DataType) -> dict[str, Any]:
    if type(value) is not dict:
        value = _without_arrow(value)
    if not isinstance(value, Mapping):
        raise _BadValue(f"{shown(value)} is not a dict, as {str(type_)!r:.100} asks for")
    found = value if type(value) is dict else dict(islice(_items(value), len(value) + 1))
    if found.keys() != {field.name for field in type_}:
        keys = sorted(map(shown, islice(found, 20)))
        raise _BadValue(f"the keys {keys!r:.100} are not the fields of {str(type_)!r:.100}")
    return {field.name: _copied(found[field.name], field.type) for field in type_}


def _key(key: Any, type_: pa.DataType) -> Any:
    if key is None:
        raise _BadValue(f"a key is None, which {str(type_)!r:.100} cannot hold")
    return _copied(key, type_.key_type)


def _pairs(value: Any, type_: pa.DataType) -> list[tuple[Any, Any]]:
    if type(value) is not dict and type(value) is not list:
        value = _without_arrow(value)
    if isinstance(value, Mapping):
        return [(pair[0], pair[1]) for pair in islice(_items(value), len(value) + 1)]
    pairs: list[tuple[Any, Any]] = []
    for pair in _elements(value, type_):
        if type(pair) is not tuple:
            pair = _without_arrow(pair)
        if isinstance(pair, tuple | list) and len(pair) == 2:
            pairs.append((pair[0], pair[1]))
        elif isinstance(pair, Mapping) and pair.keys() == {"key", "value"}:
            pairs.append((pair["key"], pair["value"]))
        else:
            raise _BadValue(f"{shown(pair)} is not a pair of key and value")
    return pairs


def _items(value: Any) -> Iterable[Any]:
    return dict.items(value) if isinstance(value, dict) else value.items()


def _elements(value: Any, type_: pa.DataType) -> list[Any]:
    """Return the elements of what is iterable and has a length, as many as that says."""
    if type(value) is list or type(value) is tuple:
        return list(value)
    value = _without_arrow(value)
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping) or not hasattr(value, "__iter__"):
        raise _BadValue(f"{shown(value)} is not a list, as {str(type_)!r:.100} asks for")
    is_sized = isinstance(value, Sequence) or hasattr(value, "__len__")
    count = len(value) if is_sized else -1
    if not 0 <= count <= ELEMENTS_MAX:
        raise _BadValue(f"{shown(value)} is not a list of at most {ELEMENTS_MAX} elements")
    if isinstance(value, np.ndarray) and 0 in value.strides and value.size > 1:
        raise _BadValue(REPEATED)
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in "iuf" and value.itemsize <= 8:
        plain: list[Any] = value.tolist()  # numbers of Python, which need no look
        return plain
    elements = list(islice(value, count + 1))
    if len(elements) != count:
        raise _BadValue(f"{shown(value)}: its len(), {count}, differs from its number of elements")
    return elements
