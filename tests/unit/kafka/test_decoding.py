"""Records of Kafka as rows: JSON, Avro and Protobuf, with a registry's head and without, and what does not
decode."""

from __future__ import annotations

import base64
import datetime
import io
import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.kafka.registry import RegistryServer
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.topics.schema import KAFKA_SCHEMA
from txnformat.errors import InvalidInputError, NotFoundError, StorageError
from txnlog.kafka.decoding import Decode, Format, decode_json
from txnlog.kafka.rows import KafkaRecord, Rows, dead_letters
from txnlog.kafka.schemas import Registry, decode_with

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]},
            },
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("sum", pa.decimal128(10, 2)),
        ("note", pa.string()),
        ("tags", pa.map_(pa.string(), pa.int32())),
        ("lines", pa.list_(pa.struct([("n", pa.int32())]))),
        ("key", pa.string()),
        ("kafka_offset", pa.int64()),
    ]
)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC)
KEY = "12345678-1234-5678-1234-567812345678"
ORDER: dict[str, Any] = {
    "id": 7,
    "at": AT,
    "sum": Decimal("12.50"),
    "note": None,
    "tags": {"a": 1},
    "lines": [{"n": 3}],
    "key": KEY,
}


def avro(value: Any, schema: Any = AVRO) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def head(schema_id: int) -> bytes:
    return b"\0" + struct.pack(">I", schema_id)


def record(value: bytes | None, **more: Any) -> KafkaRecord:
    fields: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp_ms": 0,
        "key": None,
        "headers": None,
    }
    return KafkaRecord(**{**fields, "value": value, **more})


def row(decode: Decode, format_: Format, data: bytes, schema: pa.Schema = COLUMNS) -> dict[str, Any]:
    made = Rows(schema, format_, Format.RAW, decode).rows([record(data)])
    assert made.bad == []
    (found,) = made.rows
    pa.Table.from_pylist([found], schema=schema).validate(full=True)
    return dict(found)


def problem(decode: Decode, format_: Format, data: bytes | None, schema: pa.Schema = COLUMNS) -> str:
    made = Rows(schema, format_, Format.RAW, decode).rows([record(data)])
    ((_, why),) = made.bad
    return why


def test_avro_of_a_registry_becomes_columns() -> None:
    with RegistryServer() as server:
        server.add(77, json.dumps(AVRO))
        decode = Registry(server.url).decoder(Format.AVRO)
        found = row(decode, Format.AVRO, head(77) + avro(ORDER))
        assert found == {**ORDER, "tags": [("a", 1)], "kafka_offset": 5}
        row(decode, Format.AVRO, head(77) + avro(ORDER))
    assert len(server.asked) == 1


def test_avro_with_types_of_another_subject() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "int"}]}
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "lines", "type": {"type": "array", "items": "Inner"}}],
    }
    with RegistryServer() as server:
        server.add(1, json.dumps(inner))
        server.add(2, json.dumps(outer), references=[{"name": "Inner", "subject": "inner", "version": 1}])
        server.subjects["inner", 1] = 1
        decode = Registry(server.url).decoder(Format.AVRO)
        whole = {
            "type": "record",
            "name": "Outer",
            "fields": [{"name": "lines", "type": {"type": "array", "items": inner}}],
        }
        assert row(decode, Format.AVRO, head(2) + avro({"lines": [{"n": 4}]}, whole))["lines"] == [{"n": 4}]


def test_avro_by_a_file_has_no_head(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(AVRO))
    decode = decode_with(Format.AVRO, None, path, None)
    assert decode is not None
    assert row(decode, Format.AVRO, avro(ORDER))["id"] == 7
    assert "follow" in problem(decode, Format.AVRO, avro(ORDER) + b"\0")
    assert "not Avro data" in problem(decode, Format.AVRO, avro(ORDER)[:-5])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "wire format"),
        (b"{}", "wire format"),
        (b"\0\0\0", "wire format"),
        (head(5) + b"x", "no schema 5"),
        (head(6) + b"x", "of the type PROTOBUF"),
        (head(8) + b"x", "not an Avro schema"),
    ],
)
def test_what_the_registry_does_not_explain_is_undecodable(data: bytes, words: str) -> None:
    with RegistryServer() as server:
        server.add(6, "syntax", "PROTOBUF")
        server.texts[6, ""] = server.texts[6, "serialized"]
        server.add(8, '{"type": "nonsense"}')
        decode = Registry(server.url).decoder(Format.AVRO)
        assert words in problem(decode, Format.AVRO, data)
        asked = len(server.asked)
        assert words in problem(decode, Format.AVRO, data)
        assert len(server.asked) == asked  # a schema that is not there is asked for once


def test_a_registry_that_is_down_is_no_fault_of_the_record() -> None:
    with RegistryServer() as server:
        server.status = 503
        decode = Registry({"url": server.url, "max.retries": 0}).decoder(Format.AVRO)
        with pytest.raises(StorageError) as raised:
            problem(decode, Format.AVRO, head(1) + b"x")
        assert (raised.value.kind, raised.value.transient) == ("registry-unavailable", True)
        server.status = None
        server.add(1, json.dumps(AVRO))
        assert row(decode, Format.AVRO, head(1) + avro(ORDER))["id"] == 7  # asked again
    with pytest.raises(StorageError) as raised:
        problem(decode, Format.AVRO, head(2) + b"x")
    assert raised.value.kind == "registry-unavailable"


# --- Protobuf -----------------------------------------------------------------------------------------------


def proto_file() -> descriptor_pb2.FileDescriptorProto:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.add(
        name="x", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
    )
    order = file.message_type.add(name="Order")
    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=one)
    order.field.add(
        name="at", number=2, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=one
    )
    order.field.add(
        name="note", number=3, type=kinds.TYPE_MESSAGE, type_name=".google.protobuf.StringValue", label=one
    )
    order.field.add(name="lines", number=4, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=many)
    order.field.add(name="key", number=5, type=kinds.TYPE_ENUM, type_name=".shop.Colour", label=one)
    order.field.add(
        name="tags", number=6, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=many
    )
    order.nested_type.add(name="Line").field.add(name="n", number=1, type=kinds.TYPE_INT32, label=one)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=one)
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    return file


def files() -> list[descriptor_pb2.FileDescriptorProto]:
    found = []
    for module in (timestamp_pb2, wrappers_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return [*found, proto_file()]


def message(name: str = "shop.Order") -> Any:
    pool = DescriptorPool()
    for file in files():
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(name))


def order() -> bytes:
    found = message()(id=7, key=1, tags={"a": 1}, lines=[{"n": 3}])
    found.at.FromDatetime(AT)
    found.note.value = "hello"
    data: bytes = found.SerializeToString()
    return data


EXPECTED = {
    "id": 7,
    "at": AT,
    "note": "hello",
    "lines": [{"n": 3}],
    "key": "BLUE",
    "tags": [("a", 1)],
    "sum": None,
    "kafka_offset": 5,
}


def test_protobuf_of_a_registry_becomes_columns() -> None:
    with RegistryServer() as server:
        server.add(9, base64.b64encode(proto_file().SerializeToString()).decode(), "PROTOBUF")
        decode = Registry(server.url).decoder(Format.PROTOBUF)
        at_1 = bytes([2, 2])  # one index, 1: the second message of the file
        assert row(decode, Format.PROTOBUF, head(9) + at_1 + order()) == EXPECTED
        line = bytes([4, 2, 0])  # two indexes, 1 and 0: a message within it
        lines = pa.schema([("n", pa.int32())])
        assert row(decode, Format.PROTOBUF, head(9) + line + bytes([8, 5]), lines) == {"n": 5}
        first = pa.schema([("x", pa.int32())])
        assert row(decode, Format.PROTOBUF, head(9) + b"\0" + bytes([8, 9]), first) == {"x": 9}
        assert "no message at" in problem(decode, Format.PROTOBUF, head(9) + bytes([2, 18]) + order())
        assert "middle" in problem(decode, Format.PROTOBUF, head(9) + b"\x80")
        assert "not a message" in problem(decode, Format.PROTOBUF, head(9) + at_1 + b"\xff\xff")


def test_protobuf_by_its_own_file(tmp_path: Path) -> None:
    path = tmp_path / "m.proto"
    path.write_text('syntax = "proto3"; message M { optional int64 id = 1; }')
    decode = decode_with(Format.PROTOBUF, None, path, None)
    assert decode is not None
    assert decode(b"\x08\x05") == {"id": 5}
    path.write_text("message M {")
    with pytest.raises(InvalidInputError, match="compiler refuses the file") as raised:
        decode_with(Format.PROTOBUF, None, path, None)
    assert (raised.value.kind, raised.value.values) == ("invalid-schema", {"file": str(path)})


def test_protobuf_by_a_file_of_descriptors(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=files()).SerializeToString())
    decode = decode_with(Format.PROTOBUF, None, path, "shop.Order")
    assert decode is not None
    assert row(decode, Format.PROTOBUF, order()) == EXPECTED
    assert row(decode, Format.PROTOBUF, b"")["at"] is None
    with pytest.raises(InvalidInputError) as raised:
        decode_with(Format.PROTOBUF, None, path, "shop.Ordr")
    assert "shop.Order" in str(raised.value)
    path.write_bytes(b"\xff\xff")
    with pytest.raises(InvalidInputError):
        decode_with(Format.PROTOBUF, None, path, "shop.Order")
    with pytest.raises(NotFoundError):
        decode_with(Format.PROTOBUF, None, tmp_path / "nowhere", "shop.Order")


# --- JSON ---------------------------------------------------------------------------------------------------


def test_json_becomes_columns_without_rounding() -> None:
    text = (
        f'{{"id": 7, "at": "2026-01-02T03:04:05.000006Z", "sum": 12.50, "tags": {{"a": 1}}, "lines": '
        f'[{{"n": 3}}], "key": "{KEY}"}}'
    )
    expected = {**ORDER, "tags": [("a", 1)], "kafka_offset": 5}
    assert row(decode_json, Format.JSON, text.encode()) == expected
    assert row(decode_json, Format.JSON, head(3) + text.encode()) == expected


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"7", "not an object"),
        (b"[]", "not an object"),
        (b'{"id": NaN}', "not a value of JSON"),
        (b'{"id": 1, "id": 2}', "twice"),
        (b'{"id": "7"}', "not a value of int64"),
        (b'{"id": 7.5}', "7.5 is not a value"),
        (b'{"sum": 0.001}', "too many digits"),
        (b'{"lines": [{"m": 3}]}', "no field 'm'"),
        (b'{"ID": 7}', "no column for the field 'ID'"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_json_that_does_not_fit_is_undecodable(data: bytes, words: str) -> None:
    assert words in problem(decode_json, Format.JSON, data)


def test_unknown_fields_are_left_out_when_asked() -> None:
    rows = Rows(COLUMNS, Format.JSON, Format.RAW, decode_json, None, ignores_unknown=True)
    made = rows.rows([record(b'{"id": 1, "more": 2}')])
    assert (made.bad, made.rows[0]["id"]) == ([], 1)


def test_a_record_without_a_value_has_nulls() -> None:
    made = Rows(COLUMNS, Format.JSON, Format.RAW, decode_json).rows([record(None)])
    assert made.rows == [{**dict.fromkeys(COLUMNS.names), "kafka_offset": 5}]


def test_keys_are_decoded_into_their_column() -> None:
    schema = pa.schema([("id", pa.int64()), ("kafka_key", pa.int64())])
    made = Rows(schema, Format.JSON, Format.JSON, decode_json, decode_json).rows(
        [record(b'{"id": 1}', key=b"17"), record(b"{}", key=b"x")]
    )
    assert made.rows == [{"id": 1, "kafka_key": 17}]
    assert len(made.bad) == 1


# --- raw ----------------------------------------------------------------------------------------------------


def test_raw_records_that_no_log_can_hold_are_told() -> None:
    rows = Rows(KAFKA_SCHEMA.arrow_schema, Format.RAW, Format.RAW)
    bad = [
        record(b"v", timestamp_ms=2**62),
        record(b"v", headers=[(CHUNK_HEADER, b"x")]),
        record(b"v", problem="the headers cannot be read"),
    ]
    made = rows.rows([*bad, record(b"good")])
    assert [one.value for one in made.records] == [b"good"]
    assert len(made.bad) == 3
    table = dead_letters(made.bad)
    assert table["value"].to_pylist() == [b"v"] * 3
    assert table["timestamp"].to_pylist()[0] is None


def test_raw_columns_take_what_they_are_named_for() -> None:
    schema = pa.schema(
        [
            *KAFKA_SCHEMA.arrow_schema,
            ("kafka_topic", pa.string()),
            ("kafka_headers", KAFKA_SCHEMA.arrow_schema.field("headers").type),
            ("mine", pa.int8()),
        ]
    )
    records = [
        record(b"a", headers=[("h", None), ("h", b"1")]),
        record(None, headers=[], timestamp_ms=None),
        record(b"", key=b"k"),
    ]
    table = Rows(schema, Format.RAW, Format.RAW).rows(records).rows
    table.validate(full=True)
    assert table["headers"].to_pylist() == [
        [{"key": "h", "value": None}, {"key": "h", "value": b"1"}],
        [],
        None,
    ]
    assert table["kafka_headers"].equals(table["headers"])
    assert table["timestamp"].null_count == 1
    assert table["key"].to_pylist() == [None, None, b"k"]
    assert table["kafka_topic"].to_pylist() == ["t"] * 3
    assert table["mine"].null_count == 3


def test_a_topic_without_a_place_for_values_is_refused() -> None:
    with pytest.raises(InvalidInputError) as raised:
        Rows(COLUMNS, Format.RAW, Format.RAW)
    assert raised.value.kind == "unmappable-schema"
    with pytest.raises(InvalidInputError):
        Rows(pa.schema([("value", pa.string())]), Format.RAW, Format.RAW)
    with pytest.raises(InvalidInputError):
        Rows(pa.schema([("kafka_offset", pa.int64())]), Format.JSON, Format.RAW, decode_json)
