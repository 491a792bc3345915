"""Schemas of topics go to other systems and come back, and the other systems' own readers take them, and the
rows."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pyarrow.types as pt
from grpc_tools import protoc
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from tests.property.schemas import SCALARS, SCHEMAS, rows, schemas_of
from tests.rounds import rounds
from txnformat.columns.json_values import Binary, encoder
from txnformat.columns.variants import VARIANT, is_variant
from txnformat.errors import InvalidInputError
from txnlog.schemas import export_schema, parse_schema
from txnlog.schemas.formats import SchemaFormat

UTC = pa.timestamp("us", tz="UTC")
PLAIN_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,6}", fullmatch=True)
PLAIN = [type_ for type_ in SCALARS if not is_variant(type_) and type_ != pa.duration("us")]
OF_PROTOBUF = [pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), UTC]
SMALL = settings(max_examples=rounds(30, 300))


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error that refuses its input."""
    try:
        return call()
    except InvalidInputError as error:
        return error


def is_schema_or_refused(data: str | bytes, form: str) -> bool:
    found = outcome(lambda: parse_schema(data, form))
    if isinstance(found, InvalidInputError):
        return found.kind in ("invalid-schema", "unsupported-schema")
    return isinstance(found, pa.Schema) and len(found) > 0


@given(SCHEMAS)
def test_spark_ddl_and_json_lose_nothing(schema: pa.Schema) -> None:
    for form in ("spark", "ddl"):
        found = parse_schema(export_schema(schema, form), form)
        assert found.equals(schema, check_metadata=True), form
    document = json.loads(export_schema(schema, "spark"))
    assert json.loads(StructType.fromJson(document).json()) == document


@SMALL
@given(SCHEMAS, st.sampled_from(SchemaFormat), st.text(max_size=5))
def test_any_schema_is_exported_or_refused_by_name(schema: pa.Schema, form: str, name: str) -> None:
    found = outcome(lambda: export_schema(schema, form, name=name))
    if isinstance(found, InvalidInputError):
        assert found.kind == "unsupported-schema"
        assert all(problem.startswith("field ") for problem in found.problems)
        assert form in ("avro", "json-schema", "protobuf")


WITH_ROWS = schemas_of(PLAIN, [pa.string()], PLAIN_NAMES).flatmap(
    lambda schema: rows(schema).map(lambda found: (schema, found))
)


def decoded(value: Any, type_: pa.DataType) -> Any:
    """Return a value with its maps as Avro has them."""
    if value is None:
        return None
    if pt.is_map(type_):
        return {key: decoded(item, type_.item_type) for key, item in value}
    if pt.is_struct(type_):
        return {field.name: decoded(value[field.name], field.type) for field in type_}
    if pt.is_list(type_):
        return [decoded(one, type_.value_type) for one in value]
    return value


@SMALL
@given(WITH_ROWS)
def test_fastavro_writes_and_reads_rows_with_what_avro_gets(
    table: tuple[pa.Schema, list[dict[str, Any]]],
) -> None:
    schema, found = table
    text = export_schema(schema, "avro")
    assert parse_schema(text, "avro") == schema
    avro = fastavro.parse_schema(json.loads(text))
    struct = pa.struct(list(schema))
    for row in found:
        row = decoded(row, struct)
        data = io.BytesIO()
        fastavro.schemaless_writer(data, avro, row)
        data.seek(0)
        assert fastavro.schemaless_reader(data, avro, None) == row


ALSO_OTHER_KEYS = schemas_of(PLAIN, [pa.string(), pa.int32()]).flatmap(
    lambda schema: rows(schema).map(lambda found: (schema, found))
)


@SMALL
@given(ALSO_OTHER_KEYS)
def test_rows_of_json_are_valid_by_their_schema_and_others_are_not(
    table: tuple[pa.Schema, list[dict[str, Any]]],
) -> None:
    schema, found = table
    text = export_schema(schema, "json-schema")
    assert parse_schema(text, "json-schema") == schema
    document = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(document)
    validator = jsonschema.Draft202012Validator(
        document, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    convert = encoder(pa.struct(list(schema)), Binary.BASE64)
    for row in pa.Table.from_pylist(found, schema=schema).to_pylist():
        value = json.loads(json.dumps(convert(row)))
        validator.validate(value)
        assert not validator.is_valid({**value, schema.names[0]: {"of": "no column"}, "more": 1})


def compiled(text: bytes) -> bytes:
    """Return what Protobuf's compiler makes of a file; in this process, which is faster."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m.proto").write_bytes(text)
        common = Path(protoc.__file__).parent / "_proto"
        status = protoc.main(
            [
                "",
                f"-I{folder}",
                f"-I{common}",
                "--include_imports",
                f"--descriptor_set_out={folder}/set",
                "m.proto",
            ]
        )
        assert status == 0, text.decode()
        return Path(folder, "set").read_bytes()


@SMALL
@given(
    schemas_of(OF_PROTOBUF, [pa.string(), pa.int32(), pa.int64(), pa.bool_()], PLAIN_NAMES),
    st.text(max_size=4),
)
def test_protobufs_compiler_takes_what_it_gets(schema: pa.Schema, name: str) -> None:
    text = outcome(lambda: export_schema(schema, "protobuf", name=name))
    if isinstance(text, InvalidInputError):
        assert all("Protobuf" in problem for problem in text.problems)
    else:
        assert parse_schema(compiled(text), "protobuf") == schema


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.sampled_from(
        [
            "record",
            "array",
            "map",
            "struct",
            "object",
            "string",
            "number",
            "null",
            "int",
            "r",
            "#/$defs/a",
            "decimal",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "symbols",
                    "size",
                    "logicalType",
                    "precision",
                    "scale",
                    "properties",
                    "anyOf",
                    "$ref",
                    "$defs",
                    "a",
                    "enum",
                    "format",
                    "additionalProperties",
                    "prefixItems",
                    "elementType",
                    "keyType",
                    "valueType",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(JSON, st.sampled_from(["avro", "json-schema", "spark"]))
def test_any_json_is_a_schema_or_refused(value: Any, form: str) -> None:
    whole = {
        "avro": {"type": "record", "name": "r", "fields": [{"name": "a", "type": value}]},
        "json-schema": {"type": "object", "properties": {"a": value}, "$defs": {"a": value}},
        "spark": {"type": "struct", "fields": [{"name": "a", "type": value}]},
    }[form]
    for document in (whole, value):
        assert is_schema_or_refused(json.dumps(document), form)


WORDS = [
    "a",
    "b",
    "int",
    "bigint",
    "decimal",
    "array",
    "map",
    "struct",
    "<",
    ">",
    "(",
    ")",
    ",",
    ":",
    ";",
    "10",
    "not",
    "null",
    "comment",
    "'x'",
    "`",
    "`q`",
    "create",
    "table",
    "timestamp",
    "interval",
    "day",
    "to",
    "--",
    "\n",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=20))
def test_any_text_is_ddl_or_refused(text: str) -> None:
    assert is_schema_or_refused(text, "ddl")


@given(st.binary(max_size=40))
def test_any_bytes_are_a_set_of_descriptors_or_refused(data: bytes) -> None:
    assert is_schema_or_refused(data, "protobuf")


def test_the_types_that_a_topic_has_are_all_tried() -> None:
    assert {str(type_) for type_ in [*PLAIN, pa.duration("us"), VARIANT]} == {str(type_) for type_ in SCALARS}
