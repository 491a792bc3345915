"""Data as producers may be given it, drawn from a seed: types of topics, and values that fit, nearly fit, or
are made to break."""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import uuid
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from txnformat.columns.arrow_types import list_of, map_of, struct_of

__all__ = ["arrow_data", "drawn_type", "frame", "polars_frame", "rows_of", "schema_of", "unsound"]

SCALARS = (
    *(
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
        pa.binary(),
    ),
    *(pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.time64("us"), pa.duration("us")),
    *(
        pa.decimal128(1, 0),
        pa.decimal128(10, 2),
        pa.decimal128(38, 0),
        pa.decimal128(38, 38),
        pa.decimal128(38, 10),
    ),
)
KEYS = tuple(type_ for type_ in SCALARS if not pa.types.is_floating(type_))


class Text(str):
    """A text of another class."""

    __slots__ = ()


class Shouting:
    """A value of which nothing can be asked."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __eq__(self, _other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        raise RuntimeError

    def __iter__(self) -> Any:
        raise RuntimeError

    def __index__(self) -> int:
        raise RuntimeError

    def __float__(self) -> float:
        raise RuntimeError


class _Failing(type):
    def __hash__(cls) -> int:
        raise RuntimeError

    def __eq__(cls, _other: object) -> bool:
        raise RuntimeError


class Unhashed(metaclass=_Failing):
    """A value of a class that cannot be looked up."""


class Voiceless(list[Any]):
    """Rows whose length cannot be asked for."""

    def __len__(self) -> int:
        raise RuntimeError


class Faceless:
    """A value whose class cannot be asked for."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError


class Lying(list[Any]):
    """A list of another length."""

    def __len__(self) -> int:
        return 3


class Boasting(list[Any]):
    """A list that says it is very long."""

    def __len__(self) -> int:
        return 10**9


class OddZone(datetime.tzinfo):
    """A zone that is none."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def utcoffset(self, _moment: datetime.datetime | None) -> Any:
        if self._answer is None:
            raise ZeroDivisionError
        return self._answer

    def dst(self, _moment: datetime.datetime | None) -> Any:
        return self._answer

    def tzname(self, _moment: datetime.datetime | None) -> Any:
        return self._answer


CYCLE: list[Any] = []
CYCLE.append(CYCLE)
CYCLIC: dict[str, Any] = {}
CYCLIC["a"] = CYCLIC


def drawn_type(rng: Random, depth: int = 0) -> pa.DataType:
    """Return a canonical type of at most four levels."""
    if depth == 3 or rng.randrange(3):
        return rng.choice(SCALARS)
    match rng.randrange(3):
        case 0:
            return list_of(drawn_type(rng, depth + 1))
        case 1:
            return map_of(rng.choice(KEYS), drawn_type(rng, depth + 1))
        case _:
            names = "abc"[: rng.randrange(1, 4)]
            return struct_of(names, [drawn_type(rng, depth + 1) for _ in names])


def schema_of(rng: Random) -> pa.Schema:
    """Return one to three columns."""
    return pa.schema([pa.field(name, drawn_type(rng)) for name in "xyz"[: rng.randrange(1, 4)]])


def _decimal(rng: Random) -> decimal.Decimal:
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice((1, 2, 10, 38, 39, 80))))
    exponent = rng.choice(
        (0, -2, 5, -38, 38, -76, 77, -77, rng.randrange(-100, 100), -(10**9), 10**9, 10**17, -(10**17))
    )
    return decimal.Decimal(f"{rng.choice(('', '-'))}{digits}E{exponent}")


def odd(rng: Random, depth: int = 0) -> Any:
    """Return a value that may be anything."""
    choice = rng.randrange(24 if depth < 3 else 18)
    match choice:
        case 0:
            return _decimal(rng)
        case 1:
            return decimal.Decimal(
                rng.choice(("NaN", "sNaN", "-NaN123", "Infinity", "-Infinity", "-0", "0E-999999999"))
            )
        case 2:
            return rng.choice(
                (0, -1, 2**31, 2**63, -(2**63) - 1, 2**127, 2**128, 10**38, 10**77, 10**5000, True)
            )
        case 3:
            return rng.choice((0.0, -0.0, 1.5, math.nan, math.inf, 1e308, 5e-324))
        case 4:
            return rng.choice(("", "a", "\ud800", "\0", Text("é"), "\u0663", "x" * 1000, "\U0001f600"))
        case 5:
            return rng.choice(
                (b"", b"\xff", bytearray(b"a"), memoryview(b"abcdef")[::2], np.bytes_(b"x"), np.void(b"abc"))
            )
        case 6:
            zone = rng.choice(
                (None, datetime.UTC, OddZone(None), OddZone("x"), OddZone(datetime.timedelta(hours=99)))
            )
            return rng.choice(
                (datetime.datetime.min, datetime.datetime.max, datetime.datetime(2026, 1, 31))
            ).replace(tzinfo=zone)
        case 7:
            return rng.choice(
                (
                    datetime.date.min,
                    datetime.date.max,
                    datetime.time.max,
                    datetime.time(1, tzinfo=OddZone(None)),
                )
            )
        case 8:
            return rng.choice(
                (datetime.timedelta.min, datetime.timedelta.max, datetime.timedelta(microseconds=1))
            )
        case 9:
            numbers = (
                np.int64(5),
                np.uint64(2**64 - 1),
                np.float16(1),
                np.longdouble(1),
                np.complex128(1),
                np.bool_(True),
            )
            return rng.choice(numbers)
        case 10:
            times = (
                np.datetime64("NaT"),
                np.datetime64("2020", "Y"),
                np.datetime64(2**62, "s"),
                np.timedelta64(2**62, "D"),
            )
            return rng.choice(times)
        case 11:
            return rng.choice(
                (pd.Timestamp("2026"), pd.NaT, pd.NA, pd.Timedelta(5), pd.Period("2026"), pd.Interval(1, 2))
            )
        case 12:
            scalars = (
                pa.scalar(5),
                pa.scalar(None),
                pa.scalar("x"),
                pa.scalar([1]),
                pa.scalar({"a": 1}),
                pa.scalar(b"x"),
            )
            return rng.choice(scalars)
        case 13:
            arrays = (
                np.array([1, 2]),
                np.array([[1, 2]]),
                np.array(5),
                np.array([CYCLE, None], dtype=object),
                np.array([1j]),
            )
            return rng.choice(
                (
                    *arrays,
                    np.broadcast_to(np.int64(1), (2**40,)),
                    np.arange(9)[::-2],
                    np.array(["2026"], "M8[D]"),
                )
            )
        case 14:
            return rng.choice(
                (object(), int, len, ..., 1j, uuid.UUID(int=5), fractions.Fraction(1, 3), Shouting())
            )
        case 15:
            return rng.choice(
                (
                    CYCLE,
                    CYCLIC,
                    range(3),
                    range(10**18),
                    iter(range(3)),
                    {1, 2},
                    frozenset(),
                    (),
                    Lying([1]),
                    Boasting([1]),
                )
            )
        case 16:
            return rng.choice(
                (
                    pd.Series([1, 2]),
                    pl.Series([1, 2]),
                    pa.array([1, None]),
                    pd.array([1, None], dtype="Int64"),
                )
            )
        case 17:
            return rng.choice((None, Unhashed(), unsound(rng)))
        case 18 | 19:
            return [odd(rng, depth + 1) for _ in range(rng.randrange(3))]
        case 20:
            return [(odd(rng, depth + 1), odd(rng, depth + 1)) for _ in range(rng.randrange(3))]
        case 21:
            return tuple(odd(rng, depth + 1) for _ in range(rng.randrange(4)))
        case _:
            return {name: odd(rng, depth + 1) for name in "abc"[: rng.randrange(4)]}


def unsound(rng: Random) -> Any:
    """Return an Arrow array, or a scalar of one, that points outside of its memory or repeats one range of
    it."""
    views = pa.py_buffer(np.array([rng.choice((3, 100)), 0, rng.choice((0, 1 << 20)), 0], np.int32))
    text = pa.Array.from_buffers(pa.string_view(), 1, [None, views, pa.py_buffer(b"abc")])
    large = pa.py_buffer(np.array([0, rng.choice((1, 1 << 40)), 1], np.int64))
    match rng.randrange(6):
        case 0:
            return text
        case 1:
            offsets = pa.py_buffer(np.array([0, 1], np.int32))
            lists = pa.Array.from_buffers(pa.list_(pa.string_view()), 1, [None, offsets], children=[text])
            return rng.choice((lists, lists[0], [lists], {"a": lists[0]}))
        case 2:
            return pa.Array.from_buffers(
                pa.large_list(pa.int64()), 2, [None, large], children=[pa.array([1, 2])]
            )
        case 3:
            indices = pa.array([rng.choice((0, 1 << 30))], pa.int32())
            return pa.DictionaryArray.from_arrays(indices, pa.array(["x"]), safe=False)
        case 4:
            count = 30_000
            sizes = pa.array(np.full(count, count, np.int32))
            starts = pa.array(np.zeros(count, np.int32))
            return pa.ListViewArray.from_arrays(starts, sizes, pa.array(np.zeros(count, np.int8)))
        case _:
            return pd.Series(text, dtype=pd.ArrowDtype(pa.string_view()))


_FITTING = (
    (pa.types.is_boolean, (True, False, None)),
    (pa.types.is_floating, (0.5, -0.0, math.nan, 3)),
    (pa.types.is_binary, (b"", b"a", b"\xff" * 50)),
    (pa.types.is_date, (datetime.date.min, datetime.date.max)),
    (pa.types.is_time, (datetime.time.min, datetime.time.max, 5)),
    (pa.types.is_duration, (datetime.timedelta(1), datetime.timedelta(-1), 2**62)),
    (
        pa.types.is_timestamp,
        (datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC), datetime.datetime.max, -(2**62), None),
    ),
)


def value(rng: Random, type_: pa.DataType) -> Any:
    """Return a value that mostly has the shape of a type, and is odd somewhere."""
    if rng.randrange(12) == 0:
        return odd(rng) if rng.randrange(3) else unsound(rng)
    if pa.types.is_decimal(type_) and rng.randrange(4):
        return decimal.Decimal(rng.randrange(10)).scaleb(-type_.scale)
    if pa.types.is_list(type_):
        return [value(rng, type_.value_type) for _ in range(rng.randrange(3))]
    if pa.types.is_map(type_):
        return [(value(rng, type_.key_type), value(rng, type_.item_type)) for _ in range(rng.randrange(3))]
    if pa.types.is_struct(type_):
        return {field.name: value(rng, field.type) for field in type_}
    if pa.types.is_decimal(type_):
        return _decimal(rng)
    if pa.types.is_integer(type_):
        return rng.randrange(-200, 200)
    if pa.types.is_string(type_):
        return rng.choice(("a", "é", "b" * 100, "a", "\ud800"))
    fitting = next((values for fits, values in _FITTING if fits(type_)), None)
    return odd(rng) if fitting is None else rng.choice(fitting)


def rows_of(rng: Random, schema: pa.Schema) -> Any:
    """Return rows in dicts, or what pretends to be."""
    rows: list[Any] = [
        {field.name: value(rng, field.type) for field in schema} for _ in range(rng.randrange(1, 4))
    ]
    match rng.randrange(12):
        case 0:
            rows[0][rng.choice(("w", "\ud800", 5, None))] = 1
        case 1:
            rows.append(odd(rng))
        case 2:
            return Lying(rows)
        case 3:
            return odd(rng)
        case 4:
            return rng.choice((Voiceless(rows), Faceless(), unsound(rng)))
        case _:
            pass
    return rows


def frame(rng: Random, schema: pa.Schema) -> Any:
    """Return a pandas frame with odd columns."""
    count = rng.randrange(1, 4)
    columns = {}
    for field in schema:
        match rng.randrange(6):
            case 0:
                columns[field.name] = pd.Series(
                    pd.Categorical([rng.choice(("a", "b")) for _ in range(count)])
                )
            case 1:
                columns[field.name] = pd.Series(
                    np.arange(count), dtype=rng.choice(("int8", "uint64", "float16", "complex128"))
                )
            case 2:
                values = [None if rng.randrange(2) else "2026-01-31" for _ in range(count)]
                columns[field.name] = pd.Series(values, dtype="datetime64[s]")
            case _:
                kept = np.empty(count, dtype=object)
                for number in range(count):
                    kept[number] = value(rng, field.type)
                columns[field.name] = pd.Series(kept, dtype=object)
    return pd.DataFrame(columns)


def polars_frame(rng: Random, schema: pa.Schema) -> Any:
    """Return a polars frame, whose columns of objects hold anything."""
    kinds = (
        pl.Object,
        pl.Int128,
        pl.Categorical,
        pl.UInt64,
        pl.Null,
        pl.Time,
        pl.Duration("ns"),
        pl.Decimal(38, 10),
    )
    columns = []
    for field in schema:
        kind = rng.choice(kinds)
        values = [value(rng, field.type)] if kind is pl.Object else [None if rng.randrange(2) else 0]
        try:
            columns.append(pl.Series(field.name, values, dtype=kind, strict=False))
        except BaseException:  # noqa: BLE001 - polars itself refuses it
            columns.append(pl.Series(field.name, [None]))
    return pl.DataFrame(columns)


def arrow_data(rng: Random, schema: pa.Schema) -> Any:
    """Return a table whose buffers are partly those of another one: offsets and indices point anywhere."""
    count = rng.randrange(1, 40)
    return pa.table([_array(rng, field.type, count, top=True) for field in schema], names=schema.names)


def _array(rng: Random, type_: pa.DataType, count: int, *, nulls: bool = True, top: bool = False) -> Any:
    bits = pa.py_buffer(rng.randbytes(count // 8 + 1)) if nulls and rng.randrange(2) else None
    if pa.types.is_struct(type_):
        return pa.Array.from_buffers(
            type_, count, [bits], children=[_array(rng, field.type, count) for field in type_]
        )
    if pa.types.is_map(type_):  # with nulls among its entries pyarrow itself ends the process
        parts = [_array(rng, field.type, count, nulls=False) for field in type_.field(0).type]
        entries = pa.StructArray.from_arrays(parts, fields=list(type_.field(0).type))
        return pa.Array.from_buffers(type_, count, [bits, _offsets(rng, count)], children=[entries])
    if pa.types.is_list(type_):
        child = type_.field(0).type
        return pa.Array.from_buffers(
            type_, count, [bits, _offsets(rng, count)], children=[_array(rng, child, count)]
        )
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return pa.Array.from_buffers(
            type_, count, [bits, _offsets(rng, count), pa.py_buffer(rng.randbytes(count))]
        )
    if top and rng.randrange(8) == 0:
        indices = pa.Array.from_buffers(pa.int32(), count, [bits, _offsets(rng, count)])
        return pa.DictionaryArray.from_arrays(indices, pa.array([None], type_), safe=False)
    width = -(-type_.bit_width * count // 8)
    size = max(0, width + rng.choice((0, 0, 0, -1, 8)))
    return pa.Array.from_buffers(type_, count, [bits, pa.py_buffer(rng.randbytes(size))])


def _offsets(rng: Random, count: int) -> Any:
    offsets = np.sort(np.array([rng.randrange(count + 1) for _ in range(count + 1)], np.int32))
    if rng.randrange(2):
        offsets[rng.randrange(count + 1)] = rng.choice((-1, 2**31 - 1, -(2**31), 10**6, 0))
    return pa.py_buffer(offsets[: rng.choice((count + 1, count + 1, count))].copy())
