"""Messages of Protobuf become columns that hold what is decoded of them; the compiler is Protobuf's own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, json_format, message_factory

from txnformat.columns.arrow_types import COLUMNS_MAX, list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT
from txnformat.errors import InvalidInputError, UnsupportedFeatureError
from txnlog.kafka.decoding import proto_value
from txnlog.schemas import export_schema, parse_schema, protoc, read_schema
from txnlog.schemas.parsing import message_in

UTC = pa.timestamp("us", tz="UTC")
EVERYTHING = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/duration.proto";
import "places.proto";
enum Size { SMALL = 0; LARGE = 1; }
message Order {
  bool a = 1; float b = 2; double c = 3; string d = 4; bytes e = 5;
  int32 f = 6; sint32 g = 7; sfixed32 h = 8; int64 i = 9; uint32 j = 10; uint64 k = 11; fixed64 l = 12;
  Size m = 13;
  google.protobuf.Timestamp n = 14;
  google.protobuf.Int64Value o = 15;
  google.protobuf.Duration p = 16;
  Place q = 17;
  repeated string r = 18;
  repeated Line s = 19;
  map<string, Place> t = 20;
  oneof u { int32 v = 21; string w = 22; }
  message Line { optional int64 id = 1; }
}
message Other { int32 x = 1; }
"""
PLACE = struct_of(["x", "y"], [pa.float64(), pa.float64()])
ORDER = pa.schema(
    [
        *zip("abcde", [pa.bool_(), pa.float32(), pa.float64(), pa.string(), pa.binary()], strict=True),
        *zip("fgh", [pa.int32()] * 3, strict=True),
        ("i", pa.int64()),
        ("j", pa.int64()),
        ("k", pa.decimal128(20, 0)),
        ("l", pa.decimal128(20, 0)),
        ("m", pa.string()),
        ("n", UTC),
        ("o", pa.int64()),
        ("p", struct_of(["seconds", "nanos"], [pa.int64(), pa.int32()])),
        ("q", PLACE),
        ("r", list_of(pa.string())),
        ("s", list_of(struct_of(["id"], [pa.int64()]))),
        ("t", map_of(pa.string(), PLACE)),
        ("v", pa.int32()),
        ("w", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("protos")
    (found / "places.proto").write_text('syntax = "proto3"; message Place { double x = 1; double y = 2; }')
    (found / "@orders=1.proto").write_text(EVERYTHING)
    return found


def test_every_type_has_its_column_and_a_set_says_the_same(folder: Path) -> None:
    path = folder / "@orders=1.proto"  # the compiler gives @ and = a meaning
    assert read_schema(path, message="shop.Order") == ORDER
    (folder / "orders.desc").write_bytes(protoc.compiled(path))
    assert read_schema(folder / "orders.desc", message="shop.Order") == ORDER
    assert read_schema(folder / "places.proto").names == ["x", "y"]


def test_what_is_decoded_fits_the_columns(folder: Path) -> None:
    message = message_factory.GetMessageClass(
        message_in(protoc.compiled(folder / "@orders=1.proto"), "shop.Order")
    )()
    json_format.ParseDict(
        {
            "k": 2**64 - 1,
            "m": "LARGE",
            "n": "2026-01-02T03:04:05Z",
            "o": 7,
            "p": "3s",
            "q": {"x": 1},
            "w": "w",
        }
        | {"r": ["a"], "s": [{"id": 5}, {}], "j": 2**32 - 1},
        message,
    )
    row = proto_value(message)
    table = pa.Table.from_pylist([row], schema=ORDER)
    assert table.to_pylist()[0]["s"] == [{"id": 5}, {"id": None}]
    assert (table["m"][0].as_py(), table["o"][0].as_py(), int(table["k"][0].as_py())) == (
        "LARGE",
        7,
        2**64 - 1,
    )


def test_one_of_several_messages_has_to_be_named(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"2 messages; say which: shop.Order, shop.Other") as caught:
        read_schema(folder / "@orders=1.proto")
    assert (caught.value.kind, caught.value.values["file"]) == (
        "invalid-schema",
        str(folder / "@orders=1.proto"),
    )
    with pytest.raises(InvalidInputError, match=r"no message 'shop.None'; it has .*shop.Order"):
        read_schema(folder / "@orders=1.proto", message="shop.None")


def a_set(*fields: dict[str, Any], more: list[dict[str, Any]] | None = None) -> bytes:
    """Return a set of descriptors with the message M, made without the compiler."""
    text = {
        "name": "m.proto",
        "syntax": "proto3",
        "messageType": [{"name": "M", "field": list(fields)}, *(more or [])],
    }
    found = json_format.ParseDict({"file": [text]}, descriptor_pb2.FileDescriptorSet())
    return bytes(found.SerializeToString())


def a_field(name: str, type_name: str, number: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "number": number,
        "type": "TYPE_MESSAGE",
        "typeName": type_name,
        "label": "LABEL_OPTIONAL",
    }


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (a_set(a_field("m", ".M")), "field 'm' contains itself: M"),
        (a_set(a_field("e", ".E"), more=[{"name": "E"}]), "field 'e' is the message E, which has no fields"),
        (
            a_set(a_field("n", ".N"), more=[{"name": "N", "field": [a_field("m", ".M")]}]),
            "field 'n.m' contains itself: M",
        ),
    ],
)
def test_a_field_that_cannot_be_a_column_is_named(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(data, "protobuf", message="M")
    assert (caught.value.kind, [problem in one for one in caught.value.problems]) == (
        "unsupported-schema",
        [True],
    )


def test_few_bytes_do_not_become_very_many_columns() -> None:
    more = [
        {"name": f"N{level}", "field": [a_field("a", f".N{level + 1}"), a_field("b", f".N{level + 1}", 2)]}
        for level in range(40)
    ]
    with pytest.raises(InvalidInputError, match=f"more than {COLUMNS_MAX:,} fields"):
        parse_schema(a_set(a_field("n", ".N0"), more=[*more, {"name": "N40"}]), "protobuf", message="M")


@pytest.mark.parametrize("data", [b"\xff\xff", b"no descriptors", b""])
def test_what_is_no_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_schema(data, "protobuf")
    assert caught.value.kind == "invalid-schema"


def test_a_set_may_have_its_own_version_of_a_file_that_all_may_import() -> None:
    seconds = {"name": "seconds", "number": 1, "type": "TYPE_INT64", "label": "LABEL_OPTIONAL"}
    own = {
        "name": "google/protobuf/timestamp.proto",
        "package": "google.protobuf",
        "messageType": [{"name": "Timestamp", "field": [seconds]}],
    }
    user = {
        "name": "m.proto",
        "dependency": [own["name"], "google/protobuf/wrappers.proto"],  # that one is not in the set
        "messageType": [
            {
                "name": "M",
                "field": [
                    a_field("t", ".google.protobuf.Timestamp"),
                    a_field("w", ".google.protobuf.BoolValue", 2),
                ],
            }
        ],
    }
    found = json_format.ParseDict({"file": [own, user]}, descriptor_pb2.FileDescriptorSet())
    data = bytes(found.SerializeToString())
    assert parse_schema(data, "protobuf") == pa.schema([("t", UTC), ("w", pa.bool_())])


def test_messages_of_fields_have_names_that_no_field_has(tmp_path: Path) -> None:
    struct = struct_of(["x"], [pa.int64()])
    schema = pa.schema([("a", struct), ("AFields", pa.int64()), ("AFields2", struct)])
    (tmp_path / "m.proto").write_bytes(export_schema(schema, "protobuf"))
    assert read_schema(tmp_path / "m.proto") == schema


def test_what_the_compiler_says_is_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.proto"
    path.write_text('syntax = "proto3"; message M { int32 x = ; }')
    with pytest.raises(InvalidInputError, match=r"compiler refuses the file: bad.proto:1:") as caught:
        read_schema(path)
    assert (caught.value.kind, caught.value.values["file"]) == ("invalid-schema", str(path))


def test_modules_beside_the_file_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text('syntax = "proto3"; message M { int32 x = 1; }')
    for name in ("grpc_tools", "enum", "pathlib"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w')\n")
    assert read_schema(tmp_path / "m.proto").names == ["x"]
    assert not (tmp_path / "ran").exists()


def test_without_a_compiler_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.proto").write_text('syntax = "proto3"; message M { int32 x = 1; }')
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedFeatureError) as caught:
        read_schema(tmp_path / "m.proto")
    assert caught.value.kind == "missing-package"
    assert "txnlog[schemas]" in str(caught.value.hint)


def test_the_number_of_a_field_is_the_place_of_its_column() -> None:
    before = pa.schema([("b", pa.int64()), ("a", struct_of(["y", "x"], [UTC, pa.string()]))])
    grown = before.append(pa.field("c", list_of(pa.bool_())))
    assert export_schema(grown, "protobuf", name="my-topic").decode().split("\n") == [
        'syntax = "proto3";',
        "",
        'import "google/protobuf/timestamp.proto";',
        "",
        "message my_topic {",
        "  optional int64 b = 1;",
        "  message AFields {",
        "    optional .google.protobuf.Timestamp y = 1;",
        "    optional string x = 2;",
        "  }",
        "  optional AFields a = 2;",
        "  repeated bool c = 3;",
        "}",
        "",
    ]


def test_what_protobuf_does_not_have_is_named_by_its_path() -> None:
    schema = pa.schema(
        [
            ("a_b", pa.int64()),
            ("aB", pa.int64()),
            ("1", pa.int64()),
            ("d", pa.decimal128(9, 2)),
            ("l", list_of(list_of(pa.int64()))),
            ("m", map_of(pa.float64(), pa.int64())),
            pa.field("v", VARIANT),
            ("s", struct_of(["t"], [pa.date32()])),
            ("MEntry", pa.int64()),
        ]
    )
    with pytest.raises(InvalidInputError) as caught:
        export_schema(schema, "protobuf")
    assert caught.value.kind == "unsupported-schema"
    assert sorted({problem.split("'")[1] for problem in caught.value.problems}) == [
        "1",
        "MEntry",
        "aB",
        "d",
        "l.element",
        "m",
        "s.t",
        "v",
    ]
