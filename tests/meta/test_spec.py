"""The specification says what the code does: its examples are decoded, its tables name what the encoders
write."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import zlib
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.meta.markdown import blocks, codes, section, tables
from tests.meta.spec_samples import (
    FILE,
    JSON_BLOCKS,
    OPERATIONS,
    SAMPLES,
    SHA,
    SPEC,
    UUID,
    decoded,
    fields_of_operations,
    names_in,
    one_table,
)
from txnformat import keys
from txnformat.columns.arrow_types import RESERVED_COLUMNS, fields_from_json, fields_to_json
from txnformat.core.entry import CommitEntry, decode_entry, encode_entry, sha256_hex
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.lifecycle.operations import (
    CleanedPartition,
    CompactedRange,
    CompactedSegment,
    Erased,
    ReplacedList,
    TrimmedPartition,
)
from txnformat.core.operation_codec import OPERATIONS as DECLARED
from txnformat.core.operation_codec import encode_operation
from txnformat.core.operations import (
    AppendedPartition,
    CreateTopic,
    Marker,
    Operation,
    PlacedPartition,
    SealedPartition,
    SealedSegment,
    SpilledPartition,
)
from txnformat.core.state import KNOWN_FEATURES
from txnformat.core.subscriptions.operations import AckedPartition
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.transactions import abort_index
from txnformat.core.wire.bundle import (
    BUNDLE_ENTRIES,
    PAYLOAD_SIZES,
    decode_bundle,
    decode_payloads,
    encode_bundle,
    encode_payloads,
)
from txnformat.core.wire.document import encode_json
from txnformat.core.wire.entry_bytes import encode_stored
from txnformat.core.wire.small_documents import (
    CondemnedDocument,
    FormatDocument,
    LatestDocument,
    decode_condemned,
)
from txnformat.errors import TxnLogError, UnsupportedFeatureError
from txnformat.protocol.follow import empty_state, parse_hint
from txnformat.reading.rows import METADATA_FIELDS
from txnformat.segments.payload import PayloadRecord
from txnformat.segments.writer import CHUNK_CRC32_KEY, SegmentFileWriter
from txnformat.store.encrypted.documents import ring_key
from txnformat.store.memory import MemoryStore
from txnformat.types import BatchRecord, FileRecord, ObjectRecord
from writers.partitioner import encode_keys, murmur2, partition_for_keys

# --- examples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", JSON_BLOCKS, ids=lambda block: f"{block.info} line {block.line}")
def test_every_example_is_accepted_by_the_code(block: Any) -> None:
    kind, _, number = block.info.removeprefix("json ").partition(" ")
    data = block.text.encode()
    match kind:
        case "entry":
            entry = decode_entry(data, int(number))
            assert entry == decode_entry(encode_entry(entry), int(number))
            for operation in entry.operations:
                if isinstance(operation, CreateTopic):
                    TopicSchema.from_json(operation.fields, operation.key_columns, operation.timestamp_column)
        case "format":
            state = empty_state(data)
            assert state.log_id == json.loads(data)["log_id"]
            assert state.entry_sha256 == sha256_hex(data)
        case "latest":
            assert parse_hint(data) == (json.loads(data)["entry"], json.loads(data)["key"])
        case "bundle":
            values = json.loads(data)
            entries = [b"{}"] * BUNDLE_ENTRIES
            written = encode_bundle(entries)
            assert written is not None
            assert values["entries"] == f"a hundred times the two bytes {entries[0].hex()}"
            assert sha256_hex(written) == values["sha256"]
            assert decode_bundle(written, values["key"]) == entries
            assert keys.parse_bundle_key(values["key"]) == (
                values["from"],
                values["from"] + BUNDLE_ENTRIES - 1,
            )
        case "payloads":
            values = json.loads(data)
            entries = [b"{}"] * PAYLOAD_SIZES[-1]
            written = encode_payloads(entries)
            assert written is not None
            assert values["entries"] == f"ten times the two bytes {entries[0].hex()}"
            assert sha256_hex(written) == values["sha256"]
            assert decode_payloads(written, values["key"], len(entries)) == entries
            assert keys.parse_payloads_key(values["key"]) == (values["from"], values["from"] + 9)
        case "checksum":
            values = json.loads(data)
            assert encode_stored(values["plain"].encode()).decode() == values["document"]
            stored = bytes.fromhex(values["stored"])
            assert (values["frame"], len(values["frame"])) == (
                f"572a4d1820000000{sha256_hex(stored)}",
                2 * 40,
            )
        case "condemned":
            values = json.loads(data)
            key = keys.condemned_key(values["entry"], UUID)
            assert list(decode_condemned(data, key, values["log_id"]).keys) == values["keys"]
        case "fields":
            fields = json.loads(data)
            assert fields_to_json(fields_from_json(fields)) == fields
        case "aborted":
            values = json.loads(data)
            (entry_,) = abort_index.decode(bytes.fromhex(values.pop("bytes")))
            assert dataclasses.asdict(entry_) == values
        case "keys":
            for example in json.loads(data):
                _check_key(example)
        case _:
            pytest.fail(f"no test knows blocks marked {block.info!r}")


def _check_key(example: dict[str, Any]) -> None:
    schema = fields_from_json(example["fields"])
    columns = [
        pa.array([_parsed(value, field.type)], field.type)
        for value, field in zip(example["record"], schema, strict=True)
    ]
    encoded = encode_keys(columns)
    assert encoded[0].as_py().hex() == example["key"]
    assert murmur2(encoded[0].as_py()) == example["murmur2"]
    assert partition_for_keys(encoded, 10).tolist() == [example["of_10"]]
    assert (example["murmur2"] & 0x7FFFFFFF) % 10 == example["of_10"]


def _parsed(value: Any, type_: pa.DataType) -> Any:
    """Return what a text stands for in columns of types that JSON has no values of."""
    if pa.types.is_decimal(type_):
        return Decimal(value)
    if pa.types.is_date(type_):
        return datetime.date.fromisoformat(value)
    return datetime.datetime.fromisoformat(value) if pa.types.is_timestamp(type_) else value


def test_every_kind_of_example_is_there() -> None:
    kinds = {block.info.split()[1] for block in JSON_BLOCKS}
    assert kinds == {
        "entry",
        "format",
        "latest",
        "bundle",
        "payloads",
        "fields",
        "aborted",
        "keys",
        "checksum",
        "condemned",
    }


# --- documents and operations -------------------------------------------------------------------------------


def test_the_table_of_operations_names_exactly_those_of_the_codec() -> None:
    assert set(fields_of_operations()) == set(DECLARED)
    assert {encode_operation(sample)["operation"] for sample in SAMPLES} == set(DECLARED)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(encode_operation(sample)["operation"]))
def test_the_samples_are_what_the_decoder_accepts(sample: Operation) -> None:
    assert decoded(encode_operation(sample)) == sample


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_the_spec_names_exactly_the_fields_of_every_operation(name: str) -> None:
    declared = [field for field in DECLARED[name].__struct_fields__ if field != "intent"]
    assert sorted(fields_of_operations()[name]) == sorted(declared)


HELD: dict[str, type[msgspec.Struct]] = {
    "`files`": FileRecord,
    "`partitions`": AppendedPartition,
    "`batches`": BatchRecord,
    "`table`": ObjectRecord,
    "`markers`": Marker,
    "`placed`": PlacedPartition,
    "`segments`": SealedSegment,
    "`offsets`": OffsetCommit,
    "`positions`": PositionCommit,
    "`partitions` of an `ack`": AckedPartition,
    "`partitions` of a `trim`": TrimmedPartition,
    "`segments` of a `replace`": CompactedSegment,
    "`partitions` of a `replace`": CompactedRange,
    "`lists` of a `replace`": ReplacedList,
    "`cleaned` of a `replace`": CleanedPartition,
    "`erased` of a `replace`": Erased,
    "`partitions` of a `spill`": SpilledPartition,
}


@pytest.mark.parametrize("name", HELD)
def test_the_spec_names_exactly_the_fields_of_what_operations_hold(name: str) -> None:
    assert sorted(names_in(one_table(OPERATIONS, f"{name}: field"))) == sorted(HELD[name].__struct_fields__)


def test_every_table_of_fields_has_its_declaration() -> None:
    headers = [table.header[0] for table in tables(OPERATIONS)]
    assert {header.removesuffix(": field") for header in headers if header.endswith(": field")} == HELD.keys()


def test_the_spec_names_exactly_the_fields_of_a_sealed_partition() -> None:
    (row,) = [
        one for one in one_table(OPERATIONS, "`segments`: field").rows if codes(one[0]) == ["partitions"]
    ]
    assert tuple(codes(row[1])) == SealedPartition.__struct_fields__


def test_the_spec_names_exactly_the_fields_of_entries_format_and_hint() -> None:
    entry = CommitEntry(
        entry=1,
        log_id=UUID,
        write_id=UUID,
        previous=SHA,
        timestamp_ms=1,
        engine="test",
        intents=(UUID,),
        operations=(SAMPLES[0],),
        payload=PayloadRecord(1, SHA),
    )
    names = names_in(one_table(section(SPEC, "## 4. Commit entries"), "field"))
    assert set(names) == set(json.loads(encode_entry(entry)))
    assert names == ["format", *CommitEntry.__struct_fields__, "x_sha256"]
    layout = one_table(section(SPEC, "## 2. Layout of a root"), "field")
    (example,) = [block for block in JSON_BLOCKS if block.info == "json format"]
    assert names_in(layout) == list(json.loads(example.text)) == list(FormatDocument.__struct_fields__)
    (hint,) = [block for block in JSON_BLOCKS if block.info == "json latest"]
    assert list(json.loads(hint.text)) == list(LatestDocument.__struct_fields__)
    condemned = one_table(section(SPEC, "### 5.14 Deleting objects"), "field")
    assert names_in(condemned) == list(CondemnedDocument.__struct_fields__)


def _reserved() -> list[str]:
    match = re.search(r"The names `([^`]+)` are reserved", " ".join(OPERATIONS.split()))
    assert match is not None
    return match[1].split()


@pytest.mark.parametrize("name", [*_reserved(), "never-heard-of"])
def test_reserved_operations_are_refused_as_unknown_features(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        decoded({"operation": name, "intent": 0})
    assert caught.value.values["operation"] == name


def test_no_operation_is_reserved_and_described() -> None:
    assert not set(_reserved()) & set(fields_of_operations())


# --- layout -------------------------------------------------------------------------------------------------


def test_the_layout_is_what_the_keys_module_builds() -> None:
    born = "0" * 19 + "7"
    built = [
        keys.FORMAT_KEY,
        keys.entry_key(7),
        keys.bundle_key(7, 7),
        keys.payloads_key(7, 7),
        keys.snapshot_key(7, UUID),
        keys.table_key(7, UUID),
        keys.LATEST_KEY,
        keys.boundary_key(7),
        keys.probe_key(UUID),
        keys.condemned_key(7, UUID),
        ring_key(7, 7).replace(f"{7:010d}", born),
        keys.data_key(keys.topic_directory("orders", UUID), 7, UUID),
        keys.sidecar_key(keys.topic_directory("orders", UUID), 7, UUID, "{index,runs,markers,txnindex}"),
    ]
    drawn = [
        line.split("  ")[0] for line in blocks(section(SPEC, "## 2. Layout of a root"))[0].text.splitlines()
    ]
    words = {
        "<entry>": born,
        "<born>": born,
        "<from>": born,
        "<to>": born,
        "<uuid>": UUID,
        "<generation>": born,
        "<wrapping>": born,
        "<name>": "orders",
    }
    words["<first 8 hex of topic id>"] = UUID[:8]
    for word, value in words.items():
        drawn = [line.replace(word, value) for line in drawn]
    assert drawn == built
    assert keys.topic_directory("n" * 249, UUID) == "n" * 240 + f"-{UUID[:8]}"


# --- schemas and metadata columns ---------------------------------------------------------------------------


def test_the_spec_names_exactly_the_types_of_columns() -> None:
    from txnformat.columns import arrow_types

    texts = " ".join(row[0] for row in one_table(section(SPEC, "### 6.2 Topic schemas"), "type").rows)
    named = {*arrow_types._SCALARS, "variant"}
    assert set(re.findall(r'`"(\w+)"`', texts)) == named
    composite = {"decimal", "list", "map", "struct"}
    assert set(re.findall(r'`\{"(\w+)"', texts)) == composite
    (example,) = [block for block in JSON_BLOCKS if block.info == "json fields"]
    used = json.dumps(json.loads(example.text))
    unused = [name for name in named | composite if f'"{name}"' not in used]
    assert not unused


def test_parquet_files_have_the_types_of_the_spec() -> None:
    (example,) = [block for block in JSON_BLOCKS if block.info == "json fields"]
    schema = fields_from_json(json.loads(example.text))
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write(FILE.key), FILE.key, schema)
    writer.write_batch(0, pa.Table.from_pylist([{}], schema))
    writer.close()
    data = store.get(FILE.key)
    assert data is not None
    metadata = pq.read_metadata(pa.BufferReader(data))
    leaves = {leaf.path: leaf for leaf in map(metadata.schema.column, range(metadata.num_columns))}
    found = {name: f"{leaf.physical_type} {leaf.logical_type}" for name, leaf in leaves.items()}
    assert found == {
        "id": "INT64 None",
        "ok": "BOOLEAN None",
        "tiny": "INT32 Int(bitWidth=8, isSigned=true)",
        "small": "INT32 Int(bitWidth=16, isSigned=true)",
        "medium": "INT32 None",
        "ratio": "FLOAT None",
        "exact_ratio": "DOUBLE None",
        "text": "BYTE_ARRAY String",
        "blob": "BYTE_ARRAY None",
        "day": "INT32 Date",
        "moment": "INT64 Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, "
        "is_from_converted_type=false, force_set_converted_type=false)",
        "local": "INT64 Timestamp(isAdjustedToUTC=false, timeUnit=microseconds, "
        "is_from_converted_type=false, force_set_converted_type=false)",
        "hour": "INT64 Time(isAdjustedToUTC=false, timeUnit=microseconds)",
        "took": "INT64 None",
        "extra.value": "BYTE_ARRAY None",
        "extra.metadata": "BYTE_ARRAY None",
        "price": "FIXED_LEN_BYTE_ARRAY Decimal(precision=12, scale=2)",
        "tags.list.element": "BYTE_ARRAY String",
        "counts.key_value.key": "BYTE_ARRAY String",
        "counts.key_value.value.list.element": "INT64 None",
        "place.lat": "DOUBLE None",
        "place.lon": "DOUBLE None",
    }
    # As the spec tells readers to find and check them: from byte 4 on, chunk after chunk, each with its
    # CRC-32.
    position, checksums = 4, metadata.metadata[CHUNK_CRC32_KEY].decode()
    assert f"`{CHUNK_CRC32_KEY.decode()}`" in SPEC
    for number in range(metadata.num_columns):
        length = metadata.row_group(0).column(number).total_compressed_size
        expected = f"{zlib.crc32(data[position : position + length]):08x}"
        assert checksums[8 * number : 8 * number + 8] == expected
        position += length
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    assert position + footer_bytes == len(data)


def test_the_spec_names_exactly_the_metadata_columns() -> None:
    table = one_table(section(SPEC, "### 6.3 Metadata columns"), "column")
    assert set(names_in(table)) == set(METADATA_FIELDS) == RESERVED_COLUMNS
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    types["timestamp, UTC"] = pa.timestamp("us", tz="UTC")
    assert {codes(row[0])[0]: types[row[1]] for row in table.rows} == {
        name: field.type for name, field in METADATA_FIELDS.items()
    }


@pytest.mark.parametrize("type_", ["string", "binary", "int8", "int16", "int32", "int64", "bool", "date32"])
@pytest.mark.parametrize("column", ["key", "value"])
def test_types_of_keys_are_those_that_a_schema_allows(type_: str, column: str) -> None:
    named = names_in(one_table(section(SPEC, "### 6.4 Keys"), "type of the column"))
    assert type_ in named
    schema = TopicSchema(fields_from_json([{"name": column, "type": type_}]), (column,))
    assert schema.key_columns == (column,)


def test_other_types_are_refused_as_keys() -> None:
    from txnformat.columns import arrow_types

    named = set(names_in(one_table(section(SPEC, "### 6.4 Keys"), "type of the column")))
    refused = set()
    for name in arrow_types._SCALARS:
        try:
            TopicSchema(fields_from_json([{"name": "k", "type": name}]), ("k",))
        except TxnLogError:
            refused.add(name)
    assert set(arrow_types._SCALARS) - refused == named - {"decimal"}


# --- features and documents ---------------------------------------------------------------------------------


def test_the_features_of_this_version_are_named() -> None:
    match = re.search(r"This version knows ([^.]+)\.", " ".join(SPEC.split()))
    assert match is not None
    assert [frozenset(re.findall(r"`([\w-]+)`", match[1]))] * 3 == list(KNOWN_FEATURES)


def test_documents_are_as_the_spec_says_they_are_written() -> None:
    assert encode_json({"b": 1, "a": ["ü"]}) == '{"a":["ü"],"b":1}'.encode()
    assert encode_json({"a": "x" * 16 * 1024})[:4].hex(" ") == "28 b5 2f fd"
    assert "`28 b5 2f fd`" in SPEC
