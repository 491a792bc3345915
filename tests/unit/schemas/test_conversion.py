"""Files say their form by name, first bytes or content; every error has the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog import TxnLog
from txnlog.schemas import conversion, export_schema, parse_schema, read_schema
from txnlog.schemas.formats import SchemaFormat

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.field("element", pa.string())))])
SUFFIXES = {
    "avro": ".avsc",
    "json-schema": ".json",
    "protobuf": ".proto",
    "arrow": ".arrows",
    "parquet": ".parquet",
    "spark": ".json",
    "ddl": ".sql",
}


@pytest.mark.parametrize("form", [*SchemaFormat])
def test_what_is_written_is_read_by_its_name(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"orders{SUFFIXES[form].upper()}" if form != "protobuf" else tmp_path / "orders.proto"
    path.write_bytes(export_schema(SCHEMA, form))
    assert read_schema(path) == SCHEMA
    if form != "protobuf":
        path = path.rename(tmp_path / "nameless")
        assert read_schema(str(path), form) == SCHEMA


def test_arrow_files_and_parquet_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    feather.write_feather(SCHEMA.empty_table(), path, compression="uncompressed")
    assert read_schema(path) == SCHEMA
    pq.write_table(SCHEMA.empty_table(), path)
    assert read_schema(path) == SCHEMA
    path.write_bytes(bytes(SCHEMA.serialize()))
    assert read_schema(path, "arrow") == SCHEMA


def test_near_types_are_replaced_and_others_named(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(bytes(pa.schema([("a", pa.large_string()), ("b", pa.uint8())]).serialize()))
    assert read_schema(path) == pa.schema([("a", pa.string()), ("b", pa.int16())])
    path.write_bytes(bytes(pa.schema([("a", pa.uint64()), ("b", pa.month_day_nano_interval())]).serialize()))
    with pytest.raises(InvalidInputError) as caught:
        read_schema(path)
    assert (caught.value.kind, len(caught.value.problems)) == ("unsupported-schema", 2)
    assert caught.value.values["file"] == str(path)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("x.csv", b"id,name\n", "invalid-file"),
        ("x", b"", "invalid-file"),
        ("x.json", b"{}", "invalid-schema"),
        ("x.json", b'["null", "int"]', "invalid-schema"),
        ("x.json", b"\xff\xfe", "invalid-schema"),
        ("x.json", b'{"type": "record", "fields": 3}', "invalid-schema"),
        ("x.avsc", b"no", "invalid-schema"),
        ("x.sql", b"select 1", "invalid-schema"),
        ("x.arrow", b"ARROW1 no file", "invalid-file"),
        ("x.arrow", b"", "invalid-file"),
        ("x.parquet", b"PAR1", "invalid-file"),
        ("x.desc", b"\xff", "invalid-schema"),
        (
            "x.json",
            b'{"type": "record", "name": "r", "fields": [{"name": "_offset", "type": "int"}]}',
            "unsupported-schema",
        ),
        ("x.sql", b"a int, A int", "unsupported-schema"),
    ],
)
def test_a_file_that_is_none_is_one_error_with_its_name(
    tmp_path: Path, name: str, data: bytes, kind: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InvalidInputError) as caught:
        read_schema(path)
    assert (caught.value.kind, caught.value.values["file"]) == (kind, str(path))


def test_no_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        read_schema(tmp_path / "none.avsc")
    assert caught.value.kind == "no-file"
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_schema(tmp_path)


def test_a_file_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "SCHEMA_BYTES_MAX", 10)
    path = tmp_path / "x.sql"
    path.write_text("a int" + " " * 6)
    with pytest.raises(InvalidInputError, match="more than 10 bytes"):
        read_schema(path)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: parse_schema("a int", "xml"), "not one of avro"),
        (lambda: parse_schema(5, "ddl"), "neither text nor bytes"),  # type: ignore[arg-type]
        (lambda: parse_schema(b"", "arrow"), "is read from a file"),
        (lambda: export_schema(SCHEMA, "xml"), "not one of avro"),
    ],
)
def test_arguments_of_the_wrong_kind(call: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem) as caught:
        call()
    assert caught.value.kind == "invalid-argument"


def test_the_ready_schema_goes_out_in_every_form() -> None:
    assert json.loads(export_schema("kafka", "avro", name="events"))["name"] == "events"
    for form in SchemaFormat:
        assert export_schema("kafka", form)


def test_a_topic_is_created_from_a_file_and_exported(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text("id BIGINT NOT NULL, tags ARRAY<STRING>")
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("orders", read_schema(tmp_path / "orders.sql"), key_columns=["id"])
        topic = log.state.topic("orders").schema
    assert topic.arrow_schema == SCHEMA
    assert export_schema(topic, "ddl") == b"`id` BIGINT,\n`tags` ARRAY<STRING>\n"
