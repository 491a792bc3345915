"""Dates and instants of any year: shown as Python shows its own, and the others as ISO 8601 has them."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.conform import conform
from txnformat.columns.far_times import far_columns, far_times, has_near_times
from txnformat.columns.json_values import Binary, encoder
from txnformat.columns.pylist import column_values, to_pylist
from txnformat.errors import InvalidInputError
from txnformat.moments import iso_date, iso_time
from txnlog.cli.output import instant
from txnlog.cli.records.csv_output import write_csv

EPOCH = datetime.date(1970, 1, 1).toordinal()


def test_days_of_python_are_shown_as_python_shows_them() -> None:
    for ordinal in [*range(1, 3_652_060, 997), 3_652_059, *range(730_000, 731_500)]:
        assert iso_date(ordinal - EPOCH) == datetime.date.fromordinal(ordinal).isoformat()


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (2_932_897, "+010000-01-01"),
        (-719_163, "0000-12-31"),
        (-719_529, "-000001-12-31"),
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_other_days(day: int, text: str) -> None:
    assert iso_date(day) == text


def test_instants() -> None:
    assert iso_time(-1, 1_000_000, 6) == "1969-12-31T23:59:59.999999"
    assert iso_time(2**63 - 1, 1_000_000, 6) == "+294247-01-10T04:00:54.775807"
    assert iso_time(0, 1, 0) == "1970-01-01T00:00:00"


@pytest.mark.parametrize("ms", [2**53, 253_402_300_800_000, 2**63 - 1, -(2**63), 2**64])
def test_log_time_of_any_number_is_shown(ms: int) -> None:
    assert str(instant(ms)).endswith("Z")


def test_log_time_is_shown_as_before() -> None:
    assert instant(None) is None
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert instant(1_795_424_267_622) == "2026-11-23T08:57:47.622Z"


DATE, UTC, NTZ = pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us")
FAR: list[tuple[pa.DataType, int, int, str]] = [
    (DATE, 0, 2_932_897, "+010000-01-01"),
    (DATE, 0, -719_163, "0000-12-31"),
    (UTC, 0, 253_402_300_800_000_000, "+010000-01-01T00:00:00.000000Z"),
    (UTC, 0, -62_135_596_800_000_001, "0000-12-31T23:59:59.999999Z"),
    (NTZ, 0, 2**63 - 1, "+294247-01-10T04:00:54.775807"),
]
"""Type, a number that Python has, one that it has not, and how that is shown."""


def numbers(values: Sequence[int | None], type_: pa.DataType) -> Any:
    return pa.array(values, pa.int32() if type_.bit_width == 32 else pa.int64()).view(type_)


def nested(array: Any) -> list[Any]:
    """Return columns of lists, maps, structs, and structs of lists, with the values of an array inside."""
    count = len(array)
    each = pa.array(range(count + 1), pa.int32())
    lists = pa.ListArray.from_arrays(each, array, type=list_of(array.type))
    texts = pa.array([str(number) for number in range(count)])
    maps = pa.MapArray.from_arrays(each, texts, array, type=map_of(pa.string(), array.type))
    structs = pa.StructArray.from_arrays([array], fields=list(struct_of(["f"], [array.type])))
    return [lists, maps, structs, pa.StructArray.from_arrays([lists], names=["g"])]


@pytest.mark.parametrize(("type_", "near", "far", "text"), FAR)
@pytest.mark.parametrize("check_text", [True, False])
def test_what_python_has_not_is_refused_with_its_column_and_row(
    type_: pa.DataType, near: int, far: int, text: str, check_text: bool
) -> None:
    array = numbers([near, None, far], type_)
    for column in (array, pa.chunked_array([array[:1], array[1:]]), *nested(array)):
        schema = pa.schema([("v", column.type)])
        with pytest.raises(InvalidInputError, match="column 'v', row 2: ") as caught:
            conform(pa.table({"v": column}, schema), schema, check_text=check_text)
        assert text in str(caught.value)
        assert caught.value.kind == "schema-mismatch"
        conform(pa.table({"v": column[:2]}, schema), schema)  # what lies behind a slice is not sent


@pytest.mark.parametrize(("type_", "near", "far", "text"), FAR)
def test_what_lies_behind_a_null_is_no_value(type_: pa.DataType, near: int, far: int, text: str) -> None:
    array = numbers([near, far], type_)
    hidden = pa.Array.from_buffers(type_, 2, [pa.py_buffer(b"\x01"), array.buffers()[1]])
    schema = pa.schema([("v", type_)])
    assert conform(pa.table({"v": hidden}, schema), schema).column("v").null_count == 1


def test_an_error_names_a_few_rows() -> None:
    schema = pa.schema([("v", DATE)])
    with pytest.raises(InvalidInputError, match="and more") as caught:
        conform(pa.table({"v": numbers([2**31 - 1] * 1_000, DATE)}, schema), schema)
    assert len(caught.value.problems) == 21


@pytest.mark.parametrize(("type_", "near", "far", "text"), FAR)
def test_what_is_stored_is_shown(type_: pa.DataType, near: int, far: int, text: str) -> None:
    array = numbers([near, None, far], type_)
    first = array[0].as_py()
    batch = pa.record_batch({"v": array})
    assert to_pylist(batch) == [{"v": first}, {"v": None}, {"v": text}]
    assert column_values(pa.table({"v": array}), "v") == [first, None, text]
    lists, maps, structs, inner = nested(array)
    assert [to_pylist(pa.table({"v": one}))[2]["v"] for one in (lists, maps, structs, inner)] == [
        [text],
        [("2", text)],
        {"f": text},
        {"g": [text]},
    ]
    for column in (array, lists, maps, structs, inner):
        encode = encoder(column.type, Binary.UTF8)
        assert text in str([encode(value) for value in column_values(pa.table({"v": column}), "v")])


@pytest.mark.parametrize(("type_", "near", "far", "text"), FAR)
def test_csv_shows_it(type_: pa.DataType, near: int, far: int, text: str) -> None:
    batches = [
        pa.record_batch({"n": [1, 2], "v": numbers(values, type_)})
        for values in ([near, near], [near, far], [near, None])
    ]
    file = io.BytesIO()
    write_csv(iter(batches), batches[0].schema, file, Binary.UTF8, no_formulas=False)
    lines = file.getvalue().decode().splitlines()
    shown = lines[1].partition(",")[2]
    assert lines == ['"n","v"', f"1,{shown}", f"2,{shown}", f'1,"{shown}"', f'2,"{text}"', f"1,{shown}", "2,"]


@pytest.mark.parametrize("type_", [pa.timestamp("us", tz="UTC"), pa.date32()], ids=str)
def test_a_buffer_may_have_padding_of_any_length(type_: pa.DataType) -> None:
    column = pa.Array.from_buffers(type_, 2, [None, pa.py_buffer(b"\0" * (type_.bit_width // 4 + 3))])
    schema = pa.schema([("at", type_)])
    for one in (column, column.slice(1), column.slice(0, 0), pa.Array.from_buffers(type_, 0, [None, None])):
        table = pa.table({"at": one})
        assert has_near_times(table, schema)
        assert list(far_times(table, schema)) == []
        assert (
            far_columns(
                table.combine_chunks().to_batches()[0] if len(one) else pa.record_batch([one], ["at"])
            )
            == []
        )
