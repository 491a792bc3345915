"""Avro records become columns that hold what fastavro decodes; what cannot be a column is named by its
path.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.arrow_types import COLUMNS_MAX, list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT
from txnformat.errors import InvalidInputError
from txnlog.schemas import export_schema, parse_schema

UTC, NTZ, TIME = pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.time64("us")


def record(*fields: Any, name: str = "r", **more: Any) -> str:
    listed = [{"name": f"f{number}", "type": type_} for number, type_ in enumerate(fields)]
    return json.dumps({"type": "record", "name": name, "fields": listed, **more})


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ({"type": "int", "connect.type": "int8"}, pa.int8()),
        ({"type": "int", "connect.type": "int16"}, pa.int16()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("string", pa.string()),
        ("bytes", pa.binary()),
        ({"type": "fixed", "name": "x", "size": 4}, pa.binary()),
        ({"type": "enum", "name": "x", "symbols": ["A", "B"]}, pa.string()),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, pa.decimal128(10, 2)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38}, pa.decimal128(38, 0)),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, TIME),
        ({"type": "long", "logicalType": "time-micros"}, TIME),
        ({"type": "long", "logicalType": "timestamp-millis"}, UTC),
        ({"type": "long", "logicalType": "timestamp-micros"}, UTC),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, NTZ),
        ({"type": "long", "logicalType": "my-own"}, pa.int64()),
        (["null", "long"], pa.int64()),
        (["long", "null"], pa.int64()),
        (["string"], pa.string()),
        ({"type": "array", "items": ["null", "int"]}, list_of(pa.int32())),
        ({"type": "map", "values": "double"}, map_of(pa.string(), pa.float64())),
        (
            {"type": "record", "name": "x", "fields": [{"name": "a", "type": "int"}]},
            struct_of(["a"], [pa.int32()]),
        ),
    ],
)
def test_a_type_has_its_column(avro: Any, expected: pa.DataType) -> None:
    assert parse_schema(record(avro), "avro") == pa.schema([("f0", expected)])


def test_a_named_type_is_found_again_by_its_name() -> None:
    place = {
        "type": "record",
        "name": "Place",
        "namespace": "geo",
        "fields": [{"name": "x", "type": "double"}],
    }
    found = parse_schema(
        record(place, ["null", "geo.Place"], {"type": "array", "items": "geo.Place"}), "avro"
    )
    struct = struct_of(["x"], [pa.float64()])
    assert found.types == [struct, struct, list_of(struct)]


def test_a_record_may_be_called_record() -> None:
    inner = {"type": "record", "name": "array", "fields": [{"name": "a", "type": "int"}]}
    found = parse_schema(record(inner, {"type": "array", "items": "array"}, name="record"), "avro")
    assert found.types == [struct_of(["a"], [pa.int32()]), list_of(struct_of(["a"], [pa.int32()]))]


@pytest.mark.parametrize(
    ("avro", "problem"),
    [
        (
            ["int", "string"],
            "field 'f0' is a union of int, string; use one type, or a record with a field for each",
        ),
        ("null", "field 'f0' has the type null"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "use timestamp-micros"),
        ({"type": "fixed", "name": "x", "size": 12, "logicalType": "duration"}, "use a record with months"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39},
            "a column has a precision from 1 to 38",
        ),
        ({"type": "record", "name": "x", "fields": []}, "field 'f0' is a record without fields"),
        (
            {"type": "array", "items": {"type": "map", "values": ["int", "long"]}},
            "field 'f0.element.value' is a",
        ),
        (["null", "r"], "field 'f0' contains itself: r"),
    ],
)
def test_a_type_that_cannot_be_a_column_is_named(avro: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(record(avro), "avro")
    assert caught.value.kind == "unsupported-schema"
    (found,) = caught.value.problems
    assert problem in found


def test_every_problem_is_named_and_no_more_than_twenty() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(record(*["null"] * 30), "avro")
    assert len(caught.value.problems) == 20


@pytest.mark.parametrize(
    "text",
    [
        '"int"',
        '{"type": "array", "items": "int"}',
        "[]",
        "{",
        "null",
        record("unknown"),
        '{"type": "record"}',
        "\x00",
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(text, "avro")
    assert caught.value.kind == "invalid-schema"


@pytest.mark.parametrize("name", ["\ud800", ""])
def test_a_name_that_no_column_can_have_is_named(name: str) -> None:
    text = json.dumps({"type": "record", "name": "r", "fields": [{"name": name, "type": "int"}]})
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(text, "avro")
    assert (caught.value.kind, len(caught.value.problems)) == ("unsupported-schema", 1)


def test_a_member_twice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="a name twice"):
        parse_schema('{"type": "record", "name": "a", "name": "b", "fields": []}', "avro")


def test_few_bytes_do_not_become_very_many_columns() -> None:
    inner: Any = "int"
    for level in range(40):
        fields = [
            {"name": "a", "type": inner},
            {"name": "b", "type": inner if level == 0 else f"r{level - 1}"},
        ]
        inner = {"type": "record", "name": f"r{level}", "fields": fields}
    with pytest.raises(InvalidInputError, match=f"more than {COLUMNS_MAX:,} fields"):
        parse_schema(record(inner), "avro")


def test_a_type_nested_too_deep_is_named() -> None:
    inner: Any = "int"
    for _ in range(70):
        inner = {"type": "array", "items": inner}
    with pytest.raises(InvalidInputError, match="nested deeper than 64 levels"):
        parse_schema(record(inner), "avro")


def test_what_avro_does_not_have_is_named_by_its_path() -> None:
    schema = pa.schema(
        [
            pa.field("a b", pa.int64()),
            pa.field("s", struct_of(["d", "v"], [pa.duration("us"), VARIANT])),
            pa.field("m", map_of(pa.int32(), pa.int64())),
        ]
    )
    with pytest.raises(InvalidInputError) as caught:
        export_schema(schema, "avro")
    assert caught.value.kind == "unsupported-schema"
    assert [problem.split(" has ")[0].split(" is ")[0] for problem in caught.value.problems] == [
        "field 'a b'",
        "field 's.d'",
        "field 's.v'",
        "field 'm'",
    ]


def test_names_of_records_are_unique_and_plain() -> None:
    struct = struct_of(["x"], [pa.int32()])
    schema = pa.schema([("a_b", struct_of(["c"], [struct])), ("a", struct_of(["b_c"], [struct]))])
    text = export_schema(schema, "avro", name="1 topic.v2").decode()
    assert json.loads(text)["name"] == "_1_topic_v2"
    assert parse_schema(text, "avro") == schema
