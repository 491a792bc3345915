"""A user's data brought to a topic's schema: nothing is lost, and every problem is named."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.variants import VARIANT, as_spark_type, contains_variant, is_variant
from txnformat.core.topics.schema import TopicSchema, conform
from txnformat.errors import InvalidInputError

UTC = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", UTC)])


def problems_of(data: Any, schema: pa.Schema = SCHEMA) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        conform(data, schema)
    assert caught.value.kind == "schema-mismatch"
    return caught.value.problems


def test_a_table_of_the_same_schema_is_taken_as_it_is() -> None:
    table = SCHEMA.empty_table()
    assert conform(table, SCHEMA) is table
    assert conform(table.replace_schema_metadata({"pandas": "x"}), SCHEMA).schema.metadata is None


def test_column_order_is_free_and_near_types_are_cast() -> None:
    table = pa.table(
        {
            "at": pa.array([0, None], pa.timestamp("ms", "Europe/Paris")),
            "id": pa.array([1, None], pa.uint16()),
            "name": pa.array(["a", None]).dictionary_encode(),
        }
    )
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    rows = [{"id": 1, "name": "a", "at": epoch}, {"id": None, "name": None, "at": None}]
    for data in (table, table.combine_chunks().to_batches()[0], rows):
        found = conform(data, SCHEMA)
        assert found.schema.equals(SCHEMA, check_metadata=True)
        assert found.to_pylist() == rows


def test_every_difference_is_listed() -> None:
    table = pa.table({"id": pa.array(["1"]), "at": pa.array([0], pa.timestamp("us")), "x": [1], "y": [2]})
    assert problems_of(table) == [
        "column 'name' is missing",
        "column 'x' is not in the topic",
        "column 'y' is not in the topic",
        "column 'id' has the type string, expected int64",
        "column 'at' has the type timestamp[us], expected timestamp[us, tz=UTC]",
    ]
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["id", "id"])
    assert problems_of(twice, pa.schema([("id", pa.int64())])) == ["column 'id' appears twice"]


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array([300]), pa.int8()),
        (pa.array([2**63], pa.uint64()), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([Decimal("1.25")]), pa.decimal128(5, 1)),
        (pa.array([1], pa.date64()), pa.date32()),
        (pa.array([2**50], pa.timestamp("s")), pa.timestamp("us")),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_an_error_that_names_the_column(
    array: pa.Array, type_: pa.DataType
) -> None:
    (problem,) = problems_of(pa.table({"c": array}), pa.schema([("c", type_)]))
    assert problem.startswith("column 'c' has a value that")


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (pa.array(["1"]), pa.int64()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([1.5]), pa.float32()),
        (pa.array([1]), pa.string()),
        (pa.array([b"a"]), pa.string()),
        (pa.array([1]), pa.bool_()),
        (pa.array([1]), UTC),
        (pa.array([[1]], pa.list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array([{"a": 1}]), pa.struct([("b", pa.int64())])),
        (pa.array([{"a": 1}]), pa.struct([("a", pa.int64()), ("b", pa.int64())])),
        (pa.array([[1.5]]), pa.list_(pa.int64())),
    ],
    ids=str,
)
def test_a_type_of_another_meaning_is_refused(array: pa.Array, type_: pa.DataType) -> None:
    (problem,) = problems_of(pa.table({"c": array}), pa.schema([("c", type_)]))
    assert f"has the type {array.type}, expected {type_}" in problem


def test_nested_near_types_are_cast() -> None:
    expected = pa.schema(
        [
            (
                "c",
                pa.list_(
                    pa.field(
                        "element", pa.struct([("a", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))])
                    )
                ),
            )
        ]
    )
    near = pa.large_list(pa.struct([("m", pa.map_(pa.large_string(), pa.int8())), ("a", pa.string_view())]))
    rows: list[Any] = [{"c": [{"a": "x", "m": [("k", 1)]}, None]}, {"c": None}, {"c": []}]
    table = pa.table({"c": pa.array([row["c"] for row in rows], near)})
    assert conform(table, expected).to_pylist() == rows
    assert conform(rows, expected).to_pylist() == rows


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.5, pa.int64()),
        (Decimal("1.5"), pa.int32()),
        (2**40, pa.int32()),
        (10**30, pa.int64()),
        ("x", pa.int64()),
        (1, pa.string()),
        (datetime.datetime(2020, 1, 1, 5), pa.date32()),
        (Decimal("1.25"), pa.decimal128(5, 1)),
        ("\ud800", pa.string()),
        ([1.5], pa.list_(pa.int64())),
        ({"a": 1, "b": 2}, pa.struct([("a", pa.int64())])),
        ({}, pa.struct([("a", pa.int64())])),
        ([("k", 1.5)], pa.map_(pa.string(), pa.int64())),
        ([(None, 1)], pa.map_(pa.string(), pa.int64())),
    ],
    ids=repr,
)
def test_a_bad_value_in_a_row_names_row_and_column(value: Any, type_: pa.DataType) -> None:
    rows = [{"c": None}, {"c": value}, {"c": None}]
    (problem,) = problems_of(rows, pa.schema([("c", type_)]))
    assert problem.startswith("column 'c', row 1: ")


@pytest.mark.parametrize(
    "data", [pa.table({"ID": [1], "Name": ["a"], "at": [None]}), [{"ID": 1, "Name": "a", "at": None}]]
)
def test_a_name_that_differs_only_by_case_is_answered_with_the_right_one(data: Any) -> None:
    found = [problem for problem in problems_of(data) if "not in the topic" in problem]
    assert [problem.partition(": ")[2] or problem for problem in found] == [
        "column 'ID' is not in the topic; did you mean 'id'?",
        "column 'Name' is not in the topic; did you mean 'name'?",
    ]
    both = pa.schema([("id", pa.int64()), ("Id", pa.int64())])
    assert "column 'ID' is not in the topic" in problems_of(pa.table({"ID": [1]}), both)
    assert "row 0: column 5 is not in the topic" in problems_of([{5: 1}])


def test_rows_with_missing_and_extra_columns_are_named_and_a_flood_is_cut() -> None:
    found = problems_of([{"id": 1, "name": "a", "at": None}, {"id": 1, "x": 2}, 5])
    assert found == [
        "row 1: column 'at' is missing",
        "row 1: column 'name' is missing",
        "row 1: column 'x' is not in the topic",
        "row 2 is of the type int; pass a list of dicts",
    ]
    assert problems_of([{}] * 100)[-1] == "and 280 more"


@pytest.mark.parametrize("data", [5, "rows", b"rows", None, {"id": [1]}])
def test_what_is_no_data_is_refused(data: Any) -> None:
    assert "is not data" in problems_of(data)[0]


def test_pandas_and_arrow_streams_are_taken() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"id": [1, 2], "name": ["a", None], "at": pandas.to_datetime([0, 1], unit="s", utc=True)}
    )
    found = conform(frame, SCHEMA)
    assert found.column("name").to_pylist() == ["a", None]
    reader = pa.RecordBatchReader.from_batches(SCHEMA, found.to_batches())
    assert conform(reader, SCHEMA).equals(found)


# --- times, durations, variants -----------------------------------------------------------------------------

WHOLE = {"value": b"\x0c\x01", "metadata": b"\x01\0\0"}


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.time64("us"), datetime.time(1, tzinfo=datetime.UTC)),
        (pa.time64("us"), 1.5),
        (pa.time64("us"), datetime.datetime(2026, 1, 1, 2)),
        (pa.duration("us"), 1.5),
        (pa.duration("us"), "1 day"),
        (VARIANT, {"value": b""}),
        (VARIANT, b""),
        (VARIANT, {"value": b"", "metadata": None}),
        (VARIANT, {"value": None, "metadata": b""}),
    ],
)
def test_what_is_no_time_duration_or_variant_is_named(type_: pa.DataType, value: Any) -> None:
    for kind, wrapped in (
        (type_, value),
        (pa.list_(type_), [value]),
        (pa.struct([("s", type_)]), {"s": value}),
        (pa.map_(pa.string(), type_), {"k": value}),
    ):
        schema = TopicSchema(pa.schema([("c", kind)])).arrow_schema
        (problem,) = problems_of([{"c": wrapped}], schema)
        assert problem.startswith("column 'c'")


def test_times_and_durations_of_other_units_are_cast_when_nothing_is_lost() -> None:
    schema = pa.schema([("t", pa.time64("us")), ("d", pa.duration("us"))])
    near = pa.table({"t": pa.array([2], pa.time32("s")), "d": pa.array([3_000], pa.duration("ns"))})
    found = conform(near, schema).to_pylist()
    assert found == [{"t": datetime.time(0, 0, 2), "d": datetime.timedelta(microseconds=3)}]
    assert (
        conform([{"t": datetime.time(0, 0, 2), "d": datetime.timedelta(microseconds=3)}], schema).to_pylist()
        == found
    )
    lossy = pa.table({"t": pa.array([1], pa.time64("ns")), "d": pa.array([1], pa.duration("ns"))})
    assert len(problems_of(lossy, schema)) == 2
    assert len(problems_of(pa.table({"t": [1], "d": [1]}), schema)) == 2


def spark_variant(mark: str = "variant") -> pa.DataType:
    """The type that Spark gives a variant: parts NOT NULL, and the mark."""
    parts = [pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False, {mark: "true"})]
    return pa.struct(parts)


def test_only_a_marked_struct_of_two_binaries_is_a_variant() -> None:
    assert is_variant(VARIANT)
    assert is_variant(spark_variant())
    assert TopicSchema(pa.schema([("c", spark_variant())])).to_json()[0] == (
        {"name": "c", "type": "variant"},
    )
    shredded = pa.struct([*spark_variant(), pa.field("typed_value", pa.int64())])
    for other in (spark_variant("other"), shredded, pa.struct(list(spark_variant())[::-1]), pa.binary()):
        assert not contains_variant(pa.list_(pa.struct([("x", other)])))


@pytest.mark.parametrize("start", [0, 1, 3])
def test_variants_become_what_spark_wants_also_where_they_are_null_and_in_slices(start: int) -> None:
    values = [WHOLE, None, WHOLE, None, WHOLE]
    cases: dict[str, Any] = {
        "plain": (lambda type_: type_, values),
        "list": (pa.list_, [[value, None, value] if value else None for value in values]),
        "struct": (
            lambda type_: pa.struct([("n", pa.time64("ns" if type_ != VARIANT else "us")), ("v", type_)]),
            [{"n": datetime.time(1), "v": value} if number else None for number, value in enumerate(values)],
        ),
        "map": (lambda type_: pa.map_(pa.string(), type_), [[("k", value)] for value in values]),
        "deep": (
            lambda type_: pa.list_(pa.map_(pa.string(), type_)),
            [[[("k", value)], None] for value in values],
        ),
    }
    for wrap, rows in cases.values():
        array = pa.array(rows, wrap(VARIANT)).slice(start)
        found = as_spark_type(array, wrap(spark_variant()))
        found.validate(full=True)
        assert found.type == wrap(spark_variant())
        assert found.to_pylist() == rows[start:]
        back = conform(pa.table({"c": found}), pa.schema([("c", wrap(VARIANT))]))
        assert back.column("c").to_pylist() == rows[start:]
