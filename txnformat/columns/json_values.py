"""Values of columns as JSON, and back without loss: ``produce`` takes the output of ``consume``.

==============================  =====================================================================
column                          JSON
==============================  =====================================================================
bool, integers, string          as they are
float                           number, or "NaN", "Infinity", "-Infinity"
decimal                         text, "12.50"; a number is taken, too
binary                          text: the bytes as UTF-8, or as base64 or hex with ``--binary``
date, timestamp, time           ISO 8601, "2026-11-21", "2026-11-21T08:00:00.000001Z"
list, struct                    array, object
map                             object when the keys are strings, else an array of [key, value]
==============================  =====================================================================
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from txnformat.columns.row_values import is_exact_decimal
from txnformat.columns.variants import any_type
from txnformat.digits import special_float
from txnformat.errors import InvalidInputError

__all__ = ["Binary", "decoder", "encoded", "encoder", "has_decimal", "shown"]

Convert = Callable[[Any], Any]

_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST_FLOATS = {16: 65504.0, 32: float.fromhex("0x1.fffffep127"), 64: sys.float_info.max}
"""The largest float, by the bits of the column."""
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TOO_FINE = re.compile(r"[.,]\d{7}")


class Binary(StrEnum):
    """How bytes are written as text."""

    UTF8 = "utf8"
    BASE64 = "base64"
    HEX = "hex"


def has_decimal(type_: pa.DataType) -> bool:
    """Return whether a type holds decimals, so that JSON numbers must not become floats."""
    return any_type(type_, pt.is_decimal)


# --- JSON -> column -----------------------------------------------------------------------------------------


def decoder(type_: pa.DataType, binary: Binary) -> Convert:
    """Return what makes a column's value of a JSON value; it raises ValueError about one that does not
    fit.
    """
    convert = _nested_decoder(type_, binary) if pt.is_nested(type_) else _scalar_decoder(type_, binary)
    return lambda value: None if value is None else convert(value)


def _scalar_decoder(type_: pa.DataType, binary: Binary) -> Convert:
    if pt.is_boolean(type_):
        return lambda value: _checked(value, bool, type_)
    if pt.is_integer(type_):
        low, high = -(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1)
        return lambda value: _integer(value, low, high, type_)
    if pt.is_floating(type_):
        largest = _LARGEST_FLOATS[type_.bit_width]
        return lambda value: _float(value, largest, type_)
    if pt.is_decimal(type_):
        return lambda value: _decimal(value, type_)
    if pt.is_string(type_):
        return lambda value: _text(value, type_)
    if pt.is_binary(type_):
        return lambda value: _bytes(_text(value, type_), binary)
    if pt.is_date(type_):
        return lambda value: _iso(datetime.date.fromisoformat, value, type_)
    if pt.is_timestamp(type_):
        return lambda value: _timestamp(value, type_)
    if pt.is_time(type_):
        return lambda value: _iso(datetime.time.fromisoformat, value, type_)
    raise ValueError(f"a column of type {type_} cannot come from JSON; use Parquet")


def _nested_decoder(type_: pa.DataType, binary: Binary) -> Convert:
    if pt.is_map(type_):
        key, item = decoder(type_.key_type, binary), decoder(type_.item_type, binary)
        return lambda value: [(key(name), item(element)) for name, element in _pairs(value, type_)]
    if pt.is_struct(type_):
        fields = {field.name: decoder(field.type, binary) for field in type_}
        return lambda value: _struct(value, fields, type_)
    if pt.is_list(type_):
        element = decoder(type_.value_type, binary)
        return lambda value: [element(item) for item in _checked(value, list, type_)]
    raise ValueError(f"a column of type {type_} cannot come from JSON; use Parquet")


def _unfit(value: Any, type_: pa.DataType, why: str = "") -> ValueError:
    return ValueError(f"{shown(value):.80} is not a value of {str(type_)!s:.80}{why}")


def shown(value: Any) -> str:
    """Return a JSON value for a message: as JSON, whatever Python holds it in; a text that is no part of
    another value in single quotes.
    """
    if isinstance(value, str):
        return repr(value)
    try:
        return _as_json(value)
    except RecursionError:
        return "a value of deeply nested arrays or objects"


def _as_json(value: Any) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return json.dumps(value, ensure_ascii=not value.isprintable())
        case dict():
            return "{" + ", ".join(f"{_as_json(name)}: {_as_json(one)}" for name, one in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_as_json, value)) + "]"
        case float() if not math.isfinite(value):
            return special_float(value)
        case _:
            return str(value)


def _checked(value: Any, kind: type, type_: pa.DataType) -> Any:
    if not isinstance(value, kind):
        raise _unfit(value, type_)
    return value


def _integer(value: Any, low: int, high: int, type_: pa.DataType) -> int:
    if type(value) is not int:
        raise _unfit(value, type_)
    if not low <= value < high:
        raise _unfit(value, type_, ": out of range")
    return value


def _float(value: Any, largest: float, type_: pa.DataType) -> float:
    if isinstance(value, str) and value in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _unfit(value, type_)
    if value > largest or value < -largest:  # 1e999 would become infinity, which the input does not say
        raise _unfit(value, type_, ': out of range; infinity is written "Infinity"')
    return float(value)


def _decimal(value: Any, type_: pa.DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise _unfit(value, type_)
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip(" \t")):
        raise _unfit(value, type_)  # Decimal takes 1_0, and digits of other scripts
    try:
        number = Decimal(value)
    except InvalidOperation:
        raise _unfit(value, type_) from None
    if not number.is_finite():
        raise _unfit(value, type_)
    if not is_exact_decimal(number, type_.precision, type_.scale):
        raise _unfit(value, type_, ": too many digits")
    return number if any(number.as_tuple().digits) else Decimal(0)


def _text(value: Any, type_: pa.DataType) -> str:
    text: str = _checked(value, str, type_)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _unfit(value, type_, ": half a surrogate pair") from None
    return text


def _bytes(text: str, binary: Binary) -> bytes:
    try:
        match binary:
            case Binary.BASE64:
                return base64.b64decode(text, validate=True)
            case Binary.HEX:
                return bytes.fromhex(text)
            case Binary.UTF8:
                return text.encode()
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r:.80} is not {binary}") from None


def _iso(parse: Convert, value: Any, type_: pa.DataType) -> Any:
    text = _checked(value, str, type_)
    if _TOO_FINE.search(text):
        raise _unfit(value, type_, ": finer than a microsecond")
    try:
        return parse(text)
    except ValueError:
        raise _unfit(value, type_, "; write ISO 8601") from None


def _timestamp(value: Any, type_: pa.DataType) -> datetime.datetime:
    time: datetime.datetime = _iso(datetime.datetime.fromisoformat, value, type_)
    if type_.tz is None:
        if time.tzinfo is not None:
            raise _unfit(value, type_, ", which has no zone")
        return time
    return time.replace(tzinfo=datetime.UTC) if time.tzinfo is None else time


def _pairs(value: Any, type_: pa.DataType) -> Any:
    if isinstance(value, dict) and pt.is_string(type_.key_type):
        return value.items()
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        if any(pair[0] is None for pair in value):
            raise _unfit(value, type_, ": a key is null")
        return value
    raise _unfit(value, type_)


def _struct(value: Any, fields: dict[str, Convert], type_: pa.DataType) -> dict[str, Any]:
    members = _checked(value, dict, type_)
    unknown = sorted(members.keys() - fields.keys())
    if unknown:
        raise _unfit(value, type_, f": it has no field {unknown[0]!r:.80}")
    return {name: convert(members.get(name)) for name, convert in fields.items()}


# --- column -> JSON -----------------------------------------------------------------------------------------


def encoder(type_: pa.DataType, binary: Binary) -> Convert:
    """Return what makes JSON of ``to_pylist`` values; ValueError: bytes that are not UTF-8
    (``Binary.UTF8``).
    """
    convert = _encoder(type_, binary)
    return lambda value: None if value is None else convert(value)


def encoded(values: Iterable[Any], field: pa.Field, binary: Binary) -> list[Any]:
    """Return a column's values as JSON.

    Raises InvalidInputError of kind ``not-utf8``: see :func:`encoder`.
    """
    encode = encoder(field.type, binary)
    try:
        return [encode(value) for value in values]
    except ValueError as error:
        raise InvalidInputError(
            f"column {field.name!r:.300}: {error}", kind="not-utf8", hint="add --binary base64, or hex"
        ) from None


def _encoder(type_: pa.DataType, binary: Binary) -> Convert:
    if pt.is_map(type_):
        key, item = encoder(type_.key_type, binary), encoder(type_.item_type, binary)
        if pt.is_string(type_.key_type):
            return lambda pairs: {key(name): item(value) for name, value in pairs}
        return lambda pairs: [[key(name), item(value)] for name, value in pairs]
    if pt.is_struct(type_):
        fields = {field.name: encoder(field.type, binary) for field in type_}
        return lambda value: {name: convert(value[name]) for name, convert in fields.items()}
    if pt.is_list(type_):
        element = encoder(type_.value_type, binary)
        return lambda values: [element(value) for value in values]
    if pt.is_floating(type_):
        return _float_json
    if pt.is_binary(type_):
        return lambda value: _bytes_json(value, binary)
    if pt.is_timestamp(type_):
        return lambda value: value if type(value) is str else value.isoformat().replace("+00:00", "Z")
    if pt.is_date(type_) or pt.is_time(type_):  # text: a time that Python has not
        return lambda value: value if type(value) is str else value.isoformat()
    if pt.is_decimal(type_):
        return lambda value: format(value, "f")
    if pt.is_boolean(type_) or pt.is_integer(type_) or pt.is_string(type_):
        return lambda value: value
    return str


def _float_json(value: float) -> float | str:
    return value if math.isfinite(value) else special_float(value)


def _bytes_json(value: bytes, binary: Binary) -> str:
    match binary:
        case Binary.BASE64:
            return base64.b64encode(value).decode()
        case Binary.HEX:
            return value.hex()
        case Binary.UTF8:
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise ValueError(f"{value!r:.80} is not UTF-8") from None
