"""The page about schemas says what the code does: formats, files, types that may get wider."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.meta.markdown import codes, section, tables
from tests.meta.pages import page
from txnformat.columns.arrow_types import fields_from_json
from txnformat.columns.promotions import is_wider, is_wider_in_delta, is_wider_in_iceberg
from txnformat.errors import InvalidInputError
from txnlog.cli.exchange.schemas import READ_FORMATS
from txnlog.cli.records.columns import parse_column
from txnlog.schemas import export_schema
from txnlog.schemas.formats import BY_SUFFIX, SchemaFormat

PAGE = section(page("docs/produce.md"), "## Schemas")
FORMATS, TYPES = tables(PAGE)[:2]
(WIDER,) = tables(section(PAGE, "### Wider types"))


def type_of(text: str) -> pa.DataType:
    return parse_column(f"a:{text}").type


def test_all_formats_and_suffixes_are_listed() -> None:
    assert [codes(row[0])[0] for row in FORMATS.rows] == [*SchemaFormat] == [*READ_FORMATS]
    listed = {code for row in FORMATS.rows for code in codes(row[1]) if code.startswith(".")}
    assert listed == set(BY_SUFFIX)


@pytest.mark.parametrize("row", WIDER.rows, ids=lambda row: "-".join(row[:2]))
def test_a_promotion_is_as_the_table_says(row: list[str]) -> None:
    old, new = type_of(codes(row[0])[0]), type_of(codes(row[1])[0])
    assert is_wider(new, old) == (row[2] == "yes")
    assert is_wider_in_delta(new, old) == (row[3] == "yes")
    assert is_wider_in_iceberg(new, old) == (row[4] == "yes")


def test_what_is_refused_is_as_the_table_says() -> None:
    forms = {"Avro": "avro", "JSON Schema": "json-schema", "Protobuf": "protobuf", "Spark": "ddl"}
    samples = {
        "decimal(p,s)": "decimal(9,2)",
        "list": "list<int64>",
        "map": "map<string,int64>",
        "struct": "struct<x:int64>",
    }
    heads = TYPES.header
    for row in TYPES.rows:
        for name in codes(row[0]):
            schema = pa.schema([parse_column(f"a:{samples.get(name, name)}")])
            for title, form in forms.items():
                try:
                    export_schema(schema, form)
                    is_refused = False
                except InvalidInputError:
                    is_refused = True
                assert is_refused == (row[heads.index(title)] == "refused"), (name, form)
    known = {*(code for row in TYPES.rows for code in codes(row[0]))} - {*samples}
    assert {
        field.name for field in fields_from_json([{"name": name, "type": name} for name in known - {"date"}])
    }
