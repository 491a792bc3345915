"""No value of a row ends the process, is cut, or takes time without bound: one error says what is wrong with
it.

What once crashed Arrow runs in a process of its own, so that a crash is a failure of the test and not its
end.
"""

import datetime
import fractions
import itertools
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest

from tests.unit.columns.forked import ends_well
from txnformat import keys
from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.conform import conform
from txnformat.errors import InvalidInputError
from writers.rows import RowFormat

MONEY = pa.decimal128(10, 2)
COUNTS = map_of(pa.string(), pa.int64())


def sent(value: Any, type_: pa.DataType) -> pa.Table:
    schema = pa.schema([pa.field("x", type_)])
    assert RowFormat(schema).pack({"x": value}) is None
    return conform([{"x": value}], schema)


class Shout(Exception):
    pass


class LongSequence(Sequence[int]):
    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, index: Any) -> Any:
        return 1


class LyingList(list[int]):
    def __len__(self) -> int:
        return 7


class Loud:
    def __repr__(self) -> str:
        raise Shout


class LoudZone(datetime.tzinfo):
    def utcoffset(self, _moment: datetime.datetime | None) -> datetime.timedelta:
        raise ZeroDivisionError

    def dst(self, _moment: datetime.datetime | None) -> datetime.timedelta:
        raise ZeroDivisionError

    def tzname(self, _moment: datetime.datetime | None) -> str:
        raise ZeroDivisionError


class OddRow(Mapping[str, Any]):
    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        raise Shout

    def __getitem__(self, name: str) -> Any:
        return 1


class FarDecimal(Decimal):
    """A decimal whose text is another number, of which Arrow ends the process."""

    def __str__(self) -> str:
        return "1E-999999999"


class FarInt(int):
    def __str__(self) -> str:
        return "1E-999999999"


class SecretDecimal:
    """Tells that it is a decimal, and is none."""

    __class__ = Decimal  # type: ignore[assignment]

    def __str__(self) -> str:
        return "1E-999999999"


class Endless(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(1)


class EndlessSet(set[Any]):
    def __iter__(self) -> Iterator[Any]:
        return itertools.repeat(1)


class EndlessDict(dict[str, Any]):
    def items(self) -> Any:
        return itertools.repeat(("a", 1))

    def values(self) -> Any:
        return itertools.repeat(1)

    def keys(self) -> Any:
        return itertools.repeat("a")

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat("a")


class EndlessMapping(Mapping[str, Any]):
    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return itertools.repeat("a")

    def __getitem__(self, name: str) -> Any:
        return 1


class FarZone(datetime.tzinfo):
    """Its offset grows at each call."""

    def __init__(self) -> None:
        self._calls = 0

    def utcoffset(self, _moment: datetime.datetime | None) -> datetime.timedelta:
        self._calls += 1
        return datetime.timedelta(hours=23 if self._calls < 9 else 10**9)

    def dst(self, _moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta()

    def tzname(self, _moment: datetime.datetime | None) -> str:
        return ""


BIG = np.uint64(2**64 - 1)
NANOSECOND = pd.Timestamp("2026-01-31T00:00:00.123456789")
CYCLE: list[Any] = []
CYCLE.append(CYCLE)

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

FAR = Decimal("1E-999999999")

REFUSED = {
    "decimal far below zero": (FAR, MONEY),
    "zero far below": (Decimal("0E-999999999"), MONEY),
    "decimal far above": (Decimal("1E+999999999999"), MONEY),
    "signalling NaN": (Decimal("sNaN123456789"), MONEY),
    "infinity": (Decimal("-Infinity"), MONEY),
    "a million digits": (Decimal("1" * 1_000_000), MONEY),
    "decimal in a list": ([FAR], list_of(MONEY)),
    "decimal in a struct": ({"a": FAR}, struct_of(["a"], [MONEY])),
    "decimal as a key": ({FAR: 1}, map_of(MONEY, pa.int64())),
    "decimal as a date": (Decimal("1E+999999999"), pa.date32()),
    "decimal as a time": (Decimal("1E+999999999"), pa.timestamp("us", tz="UTC")),
    "decimals as times": ([Decimal("1E+999999999")], list_of(pa.timestamp("us"))),
    "no pair of a map": ([None], COUNTS),
    "three in a map": ([("a", 1, 2)], COUNTS),
    "no key of a map": ([(None, 1)], COUNTS),
    "a number for a map": (5, COUNTS),
    "an integer of many digits": (10**5000, pa.int64()),
    "an integer of many digits as a map": (10**5000, COUNTS),
    "an integer of many digits as text": ([10**5000], list_of(pa.string())),
    "a list that has itself inside": (CYCLE, list_of(list_of(pa.int64()))),
    "a list of 100,000 levels": (DEEP, list_of(pa.int64())),
    "a sequence of 2^40": (LongSequence(), list_of(pa.int64())),
    "an array of 2^40": (np.broadcast_to(np.int64(1), (2**40,)), list_of(pa.int64())),
    "an array of one that is many": (np.broadcast_to(np.int64(1), (9,)), list_of(pa.int64())),
    "an array without a dimension": (np.array(5), list_of(pa.int64())),
    "a length that is a lie": (LyingList([1]), list_of(pa.int64())),
    "no end": (itertools.count(), list_of(pa.int64())),
    "a range of 10^18": (range(10**18), list_of(pa.int64())),
    "no repr": (Loud(), pa.int64()),
    "no repr in a list": ([Loud()], list_of(pa.string())),
    "a zone that fails": (datetime.datetime(2026, 1, 1, tzinfo=LoudZone()), pa.timestamp("us", tz="UTC")),
    "a key that is half a pair": ({"\ud800": 1}, COUNTS),
    "a decimal that says it is one": (SecretDecimal(), MONEY),
    "no end of a mapping": (EndlessMapping(), struct_of(["a", "b"], [pa.int64()] * 2)),
    "no end of a mapping of pairs": (EndlessMapping(), map_of(pa.string(), pa.bool_())),
    "large integers in an array": (np.array([BIG]), list_of(pa.float64())),
    "no end of a list": (Endless([1]), list_of(pa.int64())),
    "a zone that fails beside the first year": (
        datetime.datetime(1, 1, 1, tzinfo=LoudZone()),
        pa.timestamp("us", tz="UTC"),
    ),
    "a text that is none": (pa.array([b"\xff"]).view(pa.string())[0], pa.string()),
    "a time of day that none is": (2**62, pa.time64("us")),
    "a date as a time of day": (np.datetime64(2**62, "s"), pa.time64("us")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_is_refused_by_an_error(name: str) -> None:
    ends_well(lambda: sent(*REFUSED[name]))


TIMES = (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))
BEYOND = datetime.datetime(9999, 12, 31, 23, 59, tzinfo=datetime.timezone(datetime.timedelta(hours=-23)))
BEFORE = datetime.datetime(1, 1, 1, tzinfo=FarZone())


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.5, pa.date32()),
        (Decimal("1.5"), pa.date32()),
        (1.5, pa.timestamp("us")),
        (fractions.Fraction(3, 2), pa.timestamp("us", tz="UTC")),
        (Decimal("1E-77"), MONEY),
        (Decimal("12E-44"), pa.decimal128(5, 5)),
        *((value, pa.float32()) for value in (1e308, -1e308, np.float64(3.5e38), BIG)),
        *((value, pa.float64()) for value in (BIG, np.longdouble(1) / 3)),
        *((value, pa.int64()) for value in (BIG, np.datetime64(5, "ns"), np.timedelta64(5, "ns"))),
        (np.datetime64(5, "ns"), pa.int32()),
        *((NANOSECOND, type_) for type_ in TIMES),
        *((np.datetime64("2026-01-31T00:00:00.000000001"), type_) for type_ in TIMES),
        *((pd.Timestamp(np.datetime64("11111-01-01", "s")), type_) for type_ in TIMES),
        *((value, type_) for value in (BEFORE, BEYOND) for type_ in TIMES),
        *((value, type_) for value in (2**62, -(2**62), np.int64(2**62)) for type_ in TIMES),
        *((np.datetime64(value, "us"), pa.timestamp("us")) for value in (2**62, 253_402_300_800_000_000)),
        *((pd.NaT, type_) for type_ in (*TIMES, pa.date32(), MONEY)),
        *((value, pa.date32()) for value in (2**31 - 1, -(2**31), 2_932_897, -719_163)),
        (pd.Timedelta(1500, "ns"), pa.duration("us")),
        (np.timedelta64(2**62, "s"), pa.duration("us")),
    ],
)
def test_a_value_that_arrow_would_cut_is_refused(value: object, type_: pa.DataType) -> None:
    inside = ([value], list_of(type_)), ({"a": value}, struct_of(["a"], [type_]))
    for one, of_type in ((value, type_), *inside, ({"a": value}, map_of(pa.string(), type_))):
        with pytest.raises(
            InvalidInputError, match=r"column 'x', row 0: .* (is not|lies|has|cannot be read|range)"
        ):
            sent(one, of_type)


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[misc, arg-type]


HOURS = {hours: datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-1, 1)}


@pytest.mark.parametrize("zeros", range(-76, 77, 4))
@pytest.mark.parametrize("digits", ["0", "7", "12", "1" * 38, "5000"])
@pytest.mark.parametrize("type_", [MONEY, pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(5, 5)])
def test_a_decimal_is_kept_whole_or_refused(digits: str, zeros: int, type_: pa.DataType) -> None:
    value = Decimal(f"{digits}E{zeros}")
    try:
        table = sent(value, type_)
    except InvalidInputError:
        return
    assert table.column("x")[0].as_py() == value


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        ((1, None), list_of(pa.int64()), [1, None]),
        (np.array([1, 2]), list_of(pa.int64()), [1, 2]),
        (pd.Series([1, 2]), list_of(pa.int64()), [1, 2]),
        (pa.array([1, 2]), list_of(pa.int64()), [1, 2]),
        (range(3), list_of(pa.int64()), [0, 1, 2]),
        ({"a": 1}, COUNTS, [("a", 1)]),
        ([("a", 1), ("b", None)], COUNTS, [("a", 1), ("b", None)]),
        ([{"key": "a", "value": 1}], COUNTS, [("a", 1)]),
        (np.int64(5), pa.int64(), 5),
        (datetime.time(1, 2), pa.time64("us"), datetime.time(1, 2)),
        (86_399_999_999, pa.time64("us"), datetime.time.max),
        (np.uint64(2**53), pa.float64(), 2.0**53),
        (np.array([2**53], np.uint64), list_of(pa.float64()), [2.0**53]),
        (np.array([1.5], np.float32), list_of(pa.float64()), [1.5]),
        (np.array([[1], [2]]), list_of(list_of(pa.int64())), [[1], [2]]),
        *((value, pa.float32(), value) for value in (float("inf"), 3.4028234663852886e38, 1)),
        (np.longdouble(1.5), pa.float64(), 1.5),
        (pd.Timestamp("2026-06-01", tz="Europe/Berlin"), TIMES[1], at(2026, 5, 31, 22)),
        (pd.Timestamp("2026-06-01"), TIMES[0], datetime.datetime(2026, 6, 1)),
        (np.datetime64("2026-06-01T00:00:00.000000"), TIMES[0], datetime.datetime(2026, 6, 1)),
        (datetime.datetime.max, TIMES[0], datetime.datetime.max),
        (253_402_300_799_999_999, TIMES[0], datetime.datetime.max),
        (-62_135_596_800_000_000, TIMES[0], datetime.datetime.min),
        (2_932_896, pa.date32(), datetime.date.max),
        (-719_162, pa.date32(), datetime.date.min),
        (BEFORE.replace(tzinfo=HOURS[-1]), TIMES[1], at(1, 1, 1, 1)),
        (BEYOND.replace(tzinfo=HOURS[1]), TIMES[1], at(9999, 12, 31, 22, 59)),
        (FarDecimal("1.25"), MONEY, Decimal("1.25")),
        ([FarDecimal("1.25")], list_of(MONEY), [Decimal("1.25")]),
        ({"a": FarDecimal("1.25")}, struct_of(["a"], [MONEY]), {"a": Decimal("1.25")}),
        ({FarDecimal("1.25"): 1}, map_of(MONEY, pa.int64()), [(Decimal("1.25"), 1)]),
        (FarInt(5), MONEY, Decimal(5)),
        ([FarInt(5)], list_of(MONEY), [Decimal(5)]),
        (EndlessDict(a=1), COUNTS, [("a", 1)]),
        (EndlessDict(a=1), struct_of(["a"], [pa.int64()]), {"a": 1}),
        (pa.scalar(Decimal("1.50")), MONEY, Decimal("1.5")),
        (pd.Timedelta(2, "us"), pa.duration("us"), datetime.timedelta(microseconds=2)),
    ],
)
def test_what_has_elements_is_taken_as_they_are(value: Any, type_: pa.DataType, expected: Any) -> None:
    schema = pa.schema([pa.field("x", type_)])
    assert conform([{"x": value}], schema).column("x")[0].as_py() == expected


class Rows(Sequence[Any]):
    def __init__(self, length: int, rows: list[Any]) -> None:
        self._length, self._rows = length, rows

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]


SCHEMA = pa.schema([pa.field("x", pa.int64())])


class FailingStream:
    def __arrow_c_stream__(self, _schema: object = None) -> object:
        raise Shout


class NoStream:
    def __arrow_c_stream__(self, _schema: object = None) -> object:
        return 5


class BrokenArrow:
    """A table whose buffers point anywhere, as C code can make it."""

    @staticmethod
    def text(offsets: list[int], data: bytes) -> pa.Array:
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)

    @staticmethod
    def lists(offsets: list[int]) -> pa.Array:
        buffers = [None, pa.py_buffer(np.array(offsets, np.int32))]
        values = pa.array([1, 2, 3])
        return pa.Array.from_buffers(list_of(pa.int64()), len(offsets) - 1, buffers, children=[values])


DATA = {
    "too long": (Rows(7, [{"x": 1}]), SCHEMA),
    "no rows, and many": (range(10**18), SCHEMA),
    "negative length": (Rows(-1, [{"x": 1}]), SCHEMA),
    "a row whose keys fail": ([OddRow()], SCHEMA),
    "a column name whose repr fails": ([{"x": 1, Loud(): 2}], SCHEMA),
    "a stream that fails": (FailingStream(), SCHEMA),
    "no stream": (NoStream(), SCHEMA),
    "pandas: a list with itself inside": (pd.DataFrame({"x": [CYCLE]}), SCHEMA),
    "pandas: 100,000 levels": (pd.DataFrame({"x": [DEEP]}), SCHEMA),
    "pandas: an array of 2^40": (
        pd.DataFrame({"x": [np.broadcast_to(np.int64(1), (2**40,)), None]}),
        pa.schema([pa.field("x", list_of(pa.int64()))]),
    ),
    "pandas: decimal": (pd.DataFrame({"x": [FAR]}), SCHEMA),
    "pandas: decimal in a list": (pd.DataFrame({"x": [[FAR]]}), SCHEMA),
    "pandas: decimal category": (pd.DataFrame({"x": pd.Categorical([FAR])}), SCHEMA),
    "pandas: a decimal that tells another": (pd.DataFrame({"x": [FarDecimal(1)]}), SCHEMA),
    "pandas: a decimal in a list that tells another": (pd.DataFrame({"x": [[FarDecimal(1)]]}), SCHEMA),
    "pandas: an integer that tells a far decimal": (
        pd.DataFrame({"x": pd.Series([Decimal(1), FarInt(3)], dtype=object)}),
        pa.schema([pa.field("x", MONEY)]),
    ),
    "pandas: a list without end": (pd.DataFrame({"x": [Endless([1])]}), SCHEMA),
    "pandas: a set without end": (pd.DataFrame({"x": [EndlessSet([1])]}), SCHEMA),
    "pandas: a mapping without end": (pd.DataFrame({"x": [EndlessMapping()]}), SCHEMA),
    "pandas: a dict without end": (pd.DataFrame({"x": [EndlessDict(a=1)]}), SCHEMA),
    "pandas: signalling NaN": (
        pd.DataFrame({"x": [Decimal("sNaN"), Decimal(1)]}),
        pa.schema([pa.field("x", MONEY)]),
    ),
    "pandas: a large integer beside a float": (
        pd.DataFrame({"x": pd.Series([BIG, 1.5], dtype=object)}),
        pa.schema([pa.field("x", pa.float64())]),
    ),
    "pandas: nanoseconds": (
        pd.DataFrame({"x": pd.Series([NANOSECOND], dtype=object)}),
        pa.schema([pa.field("x", TIMES[0])]),
    ),
    "pandas: beyond the last year": (
        pd.DataFrame({"x": pd.Series([BEYOND], dtype=object)}),
        pa.schema([pa.field("x", TIMES[1])]),
    ),
    "a row without end": ([EndlessMapping()], pa.schema([*SCHEMA, pa.field("y", pa.int64())])),
    "pandas: an integer of many digits": (pd.DataFrame({"x": [10**5000]}), SCHEMA),
    "pandas: half a pair": (pd.DataFrame({"x": ["\ud800"]}, dtype=object), SCHEMA),
    "pandas: half a pair as a name": (
        pd.DataFrame([[1]], columns=pd.Index(["\ud800"], dtype=object)),
        SCHEMA,
    ),
    "pandas: an array with a mask": (
        pd.DataFrame({"x": pd.Series([np.ma.array([1, 424242], mask=[False, True]), [3]], dtype=object)}),
        pa.schema([pa.field("x", list_of(pa.int64()))]),
    ),
    "pandas: a time with a zone": (
        pd.DataFrame({"x": pd.Series([datetime.time(1, 2, tzinfo=datetime.UTC)], dtype=object)}),
        pa.schema([pa.field("x", pa.time64("us"))]),
    ),
    "pandas: a time with a zone in a list": (
        pd.DataFrame({"x": [[datetime.time(1, 2, tzinfo=datetime.UTC)]]}),
        pa.schema([pa.field("x", list_of(pa.time64("us")))]),
    ),
    "pandas: an interval": (pd.DataFrame({"x": pd.interval_range(0, 2)}), SCHEMA),
    "polars: a decimal too fine": (pl.DataFrame({"x": [1]}, schema={"x": pl.Int128}), SCHEMA),
    "polars: addresses": (
        pl.DataFrame({"x": [object()]}, schema={"x": pl.Object}),
        pa.schema([pa.field("x", pa.binary())]),
    ),
    "text beyond its bytes": (
        pa.table({"x": BrokenArrow.text([0, 100_000_000, 3], b"abc")}),
        pa.schema([pa.field("x", pa.string())]),
    ),
    "text that ends before its bytes": (
        pa.table({"x": BrokenArrow.text([0, -100_000_000, 3], b"abc")}),
        pa.schema([pa.field("x", pa.string())]),
    ),
    "list beyond its elements": (
        pa.table({"x": BrokenArrow.lists([0, 1_000_000_000, 3])}),
        pa.schema([pa.field("x", list_of(pa.int64()))]),
    ),
    "a name that is no text": (
        pyarrow.csv.read_csv(pa.BufferReader(b"x\xed\n1\n")),
        SCHEMA,
    ),
    "dictionary beyond its values": (
        pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([5_000_000], pa.int32()), ["a"], safe=False)}),
        pa.schema([pa.field("x", pa.string())]),
    ),
}


@pytest.mark.parametrize("name", DATA)
def test_data_is_refused_by_an_error(name: str) -> None:
    ends_well(lambda: conform(*DATA[name]))


@pytest.mark.parametrize("parse", [keys.parse_entry_key, keys.parse_boundary_key, keys.parse_snapshot_key])
def test_digits_of_keys_are_ascii(parse: Any) -> None:
    number, uuid = "1" * 20, "12345678-1234-1234-1234-123456789abc"
    key = {
        keys.parse_entry_key: keys.entry_key(int(number)),
        keys.parse_boundary_key: keys.boundary_key(int(number)),
        keys.parse_snapshot_key: keys.snapshot_key(int(number), uuid),
    }[parse]
    assert parse(key) is not None
    assert parse(key.replace(number, "\N{ARABIC-INDIC DIGIT ONE}" * 20)) is None


def test_the_error_says_what_is_wrong_inside() -> None:
    with pytest.raises(InvalidInputError, match="row 0: a key is None"):
        sent([(None, 1)], COUNTS)
    with pytest.raises(InvalidInputError, match=r"row 0: .* is nested deeper than 64 levels"):
        conform(pd.DataFrame({"x": [CYCLE]}), SCHEMA)
