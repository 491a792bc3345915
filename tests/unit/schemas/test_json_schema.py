"""JSON Schemas become columns; what cannot be one is named by its path."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.arrow_types import COLUMNS_MAX, list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT
from txnformat.errors import InvalidInputError
from txnlog.schemas import export_schema, parse_schema

TEXT = {"type": "string"}


def of(field: Any, **more: Any) -> pa.Schema:
    return parse_schema(json.dumps({"type": "object", "properties": {"f": field}, **more}), "json-schema")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "boolean"}, pa.bool_()),
        ({"type": "integer"}, pa.int64()),
        ({"type": "integer", "format": "int8"}, pa.int8()),
        ({"type": "integer", "format": "uint64"}, pa.decimal128(20, 0)),
        ({"type": "integer", "format": ["odd"]}, pa.int64()),
        ({"type": "number"}, pa.float64()),
        ({"type": "number", "format": "float"}, pa.float32()),
        ({"type": "number", "format": "decimal", "precision": 9, "scale": 2}, pa.decimal128(9, 2)),
        (TEXT, pa.string()),
        ({"type": "string", "format": "email"}, pa.string()),
        ({"type": "string", "contentEncoding": "base64"}, pa.binary()),
        ({"type": "string", "format": "date"}, pa.date32()),
        ({"type": "string", "format": "date-time"}, pa.timestamp("us", tz="UTC")),
        ({"type": "string", "format": "time"}, pa.time64("us")),
        ({"enum": ["a", "b", None]}, pa.string()),
        ({"const": 3}, pa.int64()),
        ({"type": ["string", "null"]}, pa.string()),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, pa.int64()),
        ({"oneOf": [{"const": None}, TEXT]}, pa.string()),
        ({"allOf": [TEXT]}, pa.string()),
        ({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity", None]}]}, pa.float64()),
        ({"type": "array", "items": {"type": "integer"}}, list_of(pa.int64())),
        ({"type": "object", "additionalProperties": TEXT}, map_of(pa.string(), pa.string())),
        ({"properties": {"x": TEXT}}, struct_of(["x"], [pa.string()])),
        (
            {
                "type": "array",
                "format": "map",
                "items": {"type": "array", "prefixItems": [{"type": "integer"}, TEXT]},
            },
            map_of(pa.int64(), pa.string()),
        ),
    ],
)
def test_a_schema_has_its_column(schema: Any, expected: pa.DataType) -> None:
    assert of(schema) == pa.schema([("f", expected)])


def test_references_within_the_file_are_followed() -> None:
    place = {"type": "object", "properties": {"x": {"$ref": "#/definitions/n~1m"}}}
    found = of(
        {"$ref": "#/$defs/a%20place"},
        **{"$defs": {"a place": place}, "definitions": {"n/m": {"type": "number"}}},
    )
    assert found == pa.schema([("f", struct_of(["x"], [pa.float64()]))])
    root = {"$ref": "#/$defs/row", "$defs": {"row": {"type": "object", "properties": {"x": TEXT}}}}
    assert parse_schema(json.dumps(root), "json-schema").names == ["x"]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (True, "field 'f' has the schema True, any value; give it a type"),
        ({}, "field 'f' has no type"),
        ({"type": ["string", "integer"]}, "field 'f' has the types string, integer"),
        ({"anyOf": [TEXT, {"type": "integer"}]}, "has 2 schemas to choose from"),
        ({"anyOf": [TEXT, {"enum": ["NaN"]}]}, "has 2 schemas to choose from"),
        ({"anyOf": [{"type": "number"}, {"enum": ["much"]}]}, "has 2 schemas to choose from"),
        ({"properties": {"\ud800": TEXT}}, "has a field whose name is not text"),
        ({"enum": [1, "a"]}, "has the types integer, string"),
        ({"type": "array"}, "array of any values"),
        ({"type": "array", "prefixItems": [TEXT]}, "is a tuple"),
        ({"type": "array", "items": [TEXT]}, "is a tuple"),
        ({"type": "object"}, "object of any properties"),
        ({"type": "object", "additionalProperties": True}, "object of any properties"),
        ({"type": "string", "format": "decimal"}, 'write "precision": 10, "scale": 2'),
        ({"type": "odd"}, "has the type 'odd'"),
        ({"$ref": "other.json#/x"}, "refers to 'other.json#/x', which is not in the file"),
        ({"$ref": "#/$defs/none"}, "which is not in the file"),
        ({"$ref": 5}, "which is not in the file"),
        ({"$ref": "#"}, "field 'f.f' contains itself"),
        ({"type": "array", "items": {"type": "array", "items": {}}}, "field 'f.element.element' has no type"),
        ({"properties": {"x.y": {}}}, "field 'f.x.y' has no type"),
    ],
)
def test_a_schema_that_cannot_be_a_column_is_named(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        of(schema)
    assert caught.value.kind == "unsupported-schema"
    (found,) = caught.value.problems
    assert problem in found


def test_a_circle_of_references_ends() -> None:
    defs = {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}
    with pytest.raises(InvalidInputError, match="contains itself"):
        of({"$ref": "#/$defs/a"}, **{"$defs": defs})
    with pytest.raises(InvalidInputError, match="contains itself"):
        parse_schema(json.dumps({"$ref": "#/$defs/a", "$defs": defs}), "json-schema")


def test_few_bytes_do_not_become_very_many_columns() -> None:
    defs: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, 40):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        defs[f"d{level}"] = {"type": "object", "properties": {"a": below, "b": below}}
    with pytest.raises(InvalidInputError, match=f"more than {COLUMNS_MAX:,} fields"):
        of({"$ref": "#/$defs/d39"}, **{"$defs": defs})


def test_a_type_nested_too_deep_is_named() -> None:
    schema: dict[str, Any] = TEXT
    for _ in range(700):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidInputError, match="nested deeper than 64 levels"):
        of(schema)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"type": "string"}', '{"type": "object"}', "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(text, "json-schema")
    assert caught.value.kind == "invalid-schema"


def test_what_rows_of_json_do_not_have_is_named() -> None:
    schema = pa.schema([("d", list_of(pa.duration("us"))), pa.field("v", VARIANT)])
    with pytest.raises(InvalidInputError) as caught:
        export_schema(schema, "json-schema")
    assert [problem[:17] for problem in caught.value.problems] == ["field 'd.element'", "field 'v' is a va"]
