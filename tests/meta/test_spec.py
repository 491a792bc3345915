"""The specification says what the code does: its examples are decoded, its tables name what the encoders write."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
import zlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.meta.markdown import ROOT, Table, blocks, codes, section, tables
from txnformat import abort_index, keys, operation_codec, snapshot
from txnformat.arrow_types import RESERVED_COLUMNS, fields_from_json, fields_to_json
from txnformat.batch_table import TABLE_ROW
from txnformat.document import Document, encode_json
from txnformat.entry import CommitEntry, decode_entry, encode_entry, sha256_hex
from txnformat.errors import TxnLogError, UnsupportedFeatureError
from txnformat.evolution import next_version
from txnformat.follow import empty_state, parse_hint
from txnformat.operation_codec import decode_operation, encode_operation
from txnformat.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    InitProducer,
    Marker,
    Operation,
    Upgrade,
)
from txnformat.partition import ABORTED, EXTENT, MARKER, PartitionState
from txnformat.producer_state import AppendedRange
from txnformat.reader import METADATA_FIELDS
from txnformat.schema import TopicSchema
from txnformat.segment_writer import CHUNK_CRC32_KEY, SegmentFileWriter
from txnformat.snapshot_state import encode_state
from txnformat.state import FEATURES, IntentWindow, LogState, ProducerIdBlock, TopicState, VersionAt
from txnformat.store.memory import MemoryStore
from txnformat.transactions import LastEnd, TransactionalIdState, TransactionStatus
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, Outcome, TopicPartition
from writers.partitioner import encode_keys, murmur2, partition_for_keys

SPEC = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
OPERATIONS = section(SPEC, "## 5. Operations")
JSON_BLOCKS = [block for block in blocks(SPEC) if block.info.startswith("json")]

UUID = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
SHA = "ab" * 32
FILE = FileRecord(keys.data_key("orders-9a6f2a90", 1, UUID), 100, SHA, 20, SHA, 5, 1)
BATCH = BatchRecord(0, 0, 0, 1, 5, 80, 1, 2)
PARTITION = AppendedPartition(0, 0, 5, 1, 0, "0123456789abcdef", 80, 1, 2)
TABLE = ObjectRecord(keys.table_key(1, UUID), 100, SHA)
MARKER_AT_5 = Marker(UUID, 0, 5)
TOPIC = CreateTopic(UUID, "orders", "orders-9a6f2a90", 1, ({"name": "id", "type": "int64"},), ("id",), None)
CHECKPOINT = Checkpoint(1, keys.snapshot_key(1, UUID), 100, SHA, SHA)
APPEND = Append(
    topic_id=UUID,
    producer_id=0,
    epoch=0,
    transactional_id="etl",
    partition_count=1,
    files=(FILE,),
    partitions=(PARTITION,),
    batches=(BATCH,),
)
SAMPLES: list[Operation] = [
    Upgrade(("base-1",), ("base-1",), ("base-1",)),
    TOPIC,
    InitProducer("etl", 0, 1, (MARKER_AT_5,)),
    AllocateProducerIds("a process", 0, 999),
    APPEND,
    dataclasses.replace(APPEND, batches=(), table=TABLE, section=3),
    EndTxn("etl", 0, 0, Outcome.COMMIT, Cause.PRODUCER, (MARKER_AT_5,)),
    AppVersion("spark-batch", "nightly", 7),
    CHECKPOINT,
    AlterTopic(UUID, 2, 1, (*TOPIC.fields, {"name": "note", "type": "string"})),
]
"""Every operation, in every form that it has."""


def _one(text: str, first_cell: str) -> Table:
    """Return the only table whose header begins with ``first_cell``."""
    (found,) = [table for table in tables(text) if table.header[0] == first_cell]
    return found


def _named(table: Table, column: int = 0) -> list[str]:
    return [name for row in table.rows for name in codes(row[column])]


def _fields_of_operations() -> dict[str, list[str]]:
    return {codes(row[0])[0]: codes(row[1]) for row in _one(OPERATIONS, "operation").rows}


def _document(value: dict[str, Any]) -> Document:
    return Document(json.loads(json.dumps(value)), "sample")


# --- examples --------------------------------------------------------------------------------------------------------


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
    assert kinds == {"entry", "format", "latest", "fields", "aborted", "keys"}


# --- documents and operations ----------------------------------------------------------------------------------------


def test_the_table_of_operations_names_exactly_those_of_the_codec() -> None:
    assert set(_fields_of_operations()) == set(operation_codec._CODECS)
    assert {encode_operation(sample)["operation"] for sample in SAMPLES} == set(operation_codec._CODECS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(encode_operation(sample)["operation"]))
def test_the_samples_are_what_the_decoder_accepts(sample: Operation) -> None:
    assert decode_operation(_document(encode_operation(sample)), 1) == sample


@pytest.mark.parametrize("name", sorted(operation_codec._CODECS))
def test_the_spec_names_exactly_the_fields_of_every_operation(name: str) -> None:
    written = {
        field
        for encoded in map(encode_operation, SAMPLES)
        if encoded["operation"] == name
        for field in encoded.keys() - {"operation", "intent"}
    }
    named = _fields_of_operations()[name]
    assert len(named) == len(set(named))
    assert set(named) == written


@pytest.mark.parametrize("name", ["files", "partitions", "batches", "table", "markers"])
def test_the_spec_names_exactly_the_fields_of_what_operations_hold(name: str) -> None:
    written = {
        tuple(item)
        for encoded in map(encode_operation, SAMPLES)
        if name in encoded
        for item in (encoded[name] if isinstance(encoded[name], list) else [encoded[name]])
        if isinstance(item, dict)
    }
    assert written == {tuple(_named(_one(OPERATIONS, f"`{name}`: field")))}


def test_the_markers_of_an_opening_producer_are_those_of_an_end() -> None:
    opened, ended = encode_operation(SAMPLES[2]), encode_operation(SAMPLES[6])
    assert opened["aborted"][0].keys() == ended["markers"][0].keys()


def test_the_spec_names_exactly_the_fields_of_entries_format_and_hint() -> None:
    entry = CommitEntry(
        entry=1,
        log_id=UUID,
        write_id=UUID,
        previous=SHA,
        timestamp_ms=1,
        engine="test",
        intents=(UUID,),
        operations=tuple(SAMPLES),
    )
    assert set(_named(_one(section(SPEC, "## 4. Commit entries"), "field"))) == set(
        json.loads(encode_entry(entry))
    )
    layout = _one(section(SPEC, "## 2. Layout of a root"), "field")
    (example,) = [block for block in JSON_BLOCKS if block.info == "json format"]
    assert _named(layout) == list(json.loads(example.text))


def _reserved() -> list[str]:
    match = re.search(r"The names `([^`]+)` are reserved", " ".join(OPERATIONS.split()))
    assert match is not None
    return match[1].split()


@pytest.mark.parametrize("name", [*_reserved(), "never-heard-of"])
def test_reserved_operations_are_refused_as_unknown_features(name: str) -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        decode_operation(_document({"operation": name, "intent": 0}), 1)
    assert caught.value.values["operation"] == name


def test_no_operation_is_reserved_and_described() -> None:
    assert not set(_reserved()) & set(_fields_of_operations())


# --- layout ----------------------------------------------------------------------------------------------------------


def test_the_layout_is_what_the_keys_module_builds() -> None:
    born = "0" * 19 + "7"
    built = [
        keys.FORMAT_KEY,
        keys.entry_key(7),
        keys.snapshot_key(7, UUID),
        keys.table_key(7, UUID),
        keys.LATEST_KEY,
        keys.boundary_key(7),
        keys.probe_key(UUID),
        keys.data_key(keys.topic_directory("orders", UUID), 7, UUID),
    ]
    drawn = [
        line.split("  ")[0] for line in blocks(section(SPEC, "## 2. Layout of a root"))[0].text.splitlines()
    ]
    words = {"<entry>": born, "<born>": born, "<uuid>": UUID, "<name>": "orders"}
    words["<first 8 hex of topic id>"] = UUID[:8]
    for word, value in words.items():
        drawn = [line.replace(word, value) for line in drawn]
    assert drawn == built
    assert keys.topic_directory("n" * 249, UUID) == "n" * 240 + f"-{UUID[:8]}"


# --- schemas and metadata columns ------------------------------------------------------------------------------------


def test_the_spec_names_exactly_the_types_of_columns() -> None:
    from txnformat import arrow_types

    texts = " ".join(row[0] for row in _one(section(SPEC, "### 6.2 Topic schemas"), "type").rows)
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
    # As the spec tells readers to find and check them: from byte 4 on, chunk after chunk, each with its CRC-32.
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
    table = _one(section(SPEC, "### 6.3 Metadata columns"), "column")
    assert set(_named(table)) == set(METADATA_FIELDS) == RESERVED_COLUMNS
    types = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    types["timestamp, UTC"] = pa.timestamp("us", tz="UTC")
    assert {codes(row[0])[0]: types[row[1]] for row in table.rows} == {
        name: field.type for name, field in METADATA_FIELDS.items()
    }


@pytest.mark.parametrize("type_", ["string", "binary", "int8", "int16", "int32", "int64", "bool", "date32"])
@pytest.mark.parametrize("column", ["key", "value"])
def test_types_of_keys_are_those_that_a_schema_allows(type_: str, column: str) -> None:
    named = _named(_one(section(SPEC, "### 6.4 Keys"), "type of the column"))
    assert type_ in named
    schema = TopicSchema(fields_from_json([{"name": column, "type": type_}]), (column,))
    assert schema.key_columns == (column,)


def test_other_types_are_refused_as_keys() -> None:
    from txnformat import arrow_types

    named = set(_named(_one(section(SPEC, "### 6.4 Keys"), "type of the column")))
    refused = set()
    for name in arrow_types._SCALARS:
        try:
            TopicSchema(fields_from_json([{"name": "k", "type": name}]), ("k",))
        except TxnLogError:
            refused.add(name)
    assert set(arrow_types._SCALARS) - refused == named - {"decimal"}


# --- batch tables and snapshots --------------------------------------------------------------------------------------


def _dtype_in_words(dtype: np.dtype[Any]) -> str:
    return " ".join(
        f"`{name}`" + ("(int32)" if dtype[name] == np.int32 else "") for name in dtype.names or ()
    )


def test_the_spec_names_the_columns_of_a_batch_table_in_order() -> None:
    match = re.search(
        r"in this order: ((?:`\w+` )+)\(int32\) ((?:`\w+` )+)\(int64\)", " ".join(OPERATIONS.split())
    )
    assert match is not None
    names = TABLE_ROW.names or ()
    assert codes(match[1]) == [name for name in names if TABLE_ROW[name] == np.int32]
    assert codes(match[2]) == [name for name in names if TABLE_ROW[name] == np.int64]
    assert codes(match[1]) + codes(match[2]) == list(names)


SNAPSHOTS = section(SPEC, "## 10. Snapshots")


def test_the_spec_names_the_sections_of_a_snapshot_and_their_columns_in_order() -> None:
    sections = _one(SNAPSHOTS, "section").rows
    assert [name for row in sections for name in codes(row[0])] == list(snapshot._SECTIONS)
    assert codes(sections[-2][1].replace("(int32)", "")) == list(snapshot._FILES)
    assert [name for name, kind in snapshot._FILES.items() if kind == pa.int32()] == ["schema_id"]
    assert codes(sections[-1][1]) == list(snapshot._TABLES)
    columns = {codes(row[0])[0]: row[1] for row in _one(SNAPSHOTS, "table").rows}
    assert columns == {
        "extents": _dtype_in_words(EXTENT),
        "markers": _dtype_in_words(MARKER),
        "aborted": _dtype_in_words(ABORTED),
    }


def _sample_state() -> dict[str, Any]:
    """Return the JSON section of a state in which nothing is empty."""
    key = TopicPartition(UUID, 0)
    first = TopicSchema.from_json(TOPIC.fields, TOPIC.key_columns, None)
    schema = next_version(first, SAMPLES[-1].fields)  # type: ignore[union-attr]
    assert schema is not None
    opened = PartitionState(
        log_end=5, open={(0, 0): 0}, sequences={(0, 0): (AppendedRange(0, 4, "0123456789abcdef", 0, 1),)}
    )
    ongoing = TransactionalIdState(
        0, 1, TransactionStatus.ONGOING, {key: 0}, 1, 2, LastEnd(0, Outcome.COMMIT, Cause.PRODUCER, 1)
    )
    return encode_state(
        LogState(
            log_id=UUID,
            entry=2,
            entry_sha256=SHA,
            timestamp_ms=3,
            features=FEATURES,
            topics={UUID: TopicState(UUID, "orders", TOPIC.directory, 2, schema, TOPIC, 1)},
            topic_ids={"orders": UUID},
            partitions={key: opened},
            transactional_ids={"etl": ongoing},
            next_producer_id=1001,
            blocks=(ProducerIdBlock("a process", 1, 1000, 1),),
            app_versions={("spark-batch", "nightly"): VersionAt(7, 2)},
            checkpoints=(CHECKPOINT,),
            window=IntentWindow(0, ((UUID,),)),
        )
    )


def test_the_spec_names_exactly_the_fields_of_a_snapshot_s_state() -> None:
    state = _sample_state()
    rows = {tuple(codes(row[0])): row[1] for row in _one(SNAPSHOTS, "`state`: field").rows}
    assert sorted(name for names in rows for name in names) == sorted(state)
    notes = {name: text for names, text in rows.items() for name in names}
    for name in ("features", "blocks", "app_versions", "partitions", "transactional_ids", "window", "topics"):
        value = state[name][0] if isinstance(state[name], list) else state[name]
        extra = {"entry", "create_topic", "fields"} if name in ("window", "topics") else set()
        assert set(codes(notes[name])) - extra - set(value) == set(), name
        assert set(value) <= set(codes(notes[name])), name
    words = " ".join(SNAPSHOTS.split())
    (known,), (partition,) = state["transactional_ids"], state["partitions"]
    for item in (
        known["partitions"][0],
        known["last_end"],
        partition["open"][0],
        partition["sequences"][0],
        partition["sequences"][0]["appends"][0],
    ):
        names = re.escape(" ".join(f"`{name}`" for name in item)).replace("\\ ", r"(?: \([^)]*\))? ")
        assert re.search(names, words), list(item)


def test_the_states_of_a_transactional_id_are_named() -> None:
    match = re.search(r"`status` is ([^.]+)\.", " ".join(SNAPSHOTS.split()))
    assert match is not None
    assert set(codes(match[1])) == set(TransactionStatus)


def test_the_features_of_this_version_are_named() -> None:
    match = re.search(r"This version knows `([\w-]+)`", " ".join(SPEC.split()))
    assert match is not None
    assert [frozenset({match[1]})] * 3 == list(FEATURES)


def test_documents_are_as_the_spec_says_they_are_written() -> None:
    assert encode_json({"b": 1, "a": ["ü"]}) == '{"a":["ü"],"b":1}'.encode()
    assert encode_json({"a": "x" * 16 * 1024})[:4].hex(" ") == "28 b5 2f fd"
    assert "`28 b5 2f fd`" in SPEC
