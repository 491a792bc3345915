"""Any schema and any rows that fit it survive the way through metadata and segment files; any damage is
found."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from tests.property.schemas import SCHEMAS, TABLES
from txnformat.core.topics.schema import TopicSchema, conform, fields_from_json
from txnformat.errors import CorruptDataError
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord


def written(table: pa.Table, batches: int = 1) -> tuple[bytes, FileRecord]:
    store = MemoryStore()
    writer = SegmentFileWriter(store.open_write("k"), "k", table.schema)
    for _ in range(batches):
        writer.write_batch(0, table)
    file = writer.close()
    return store.get("k") or b"", file


def read(data: bytes, file: FileRecord, schema: pa.Schema, groups: list[int]) -> pa.Table:
    store = MemoryStore()
    store.put("k", data)
    return pa.Table.from_batches(
        SegmentFileReader(store, file, schema).read(groups, schema.names, 100), schema=schema
    )


@given(SCHEMAS)
def test_a_schema_survives_its_json_form(schema: pa.Schema) -> None:
    topic = TopicSchema(schema)
    assert topic.arrow_schema.equals(schema, check_metadata=True)
    fields, keys, time = json.loads(json.dumps(topic.to_json()))
    assert TopicSchema.from_json(fields, keys, time) == topic
    assert str(TopicSchema.from_json(fields, keys, time).arrow_schema) == str(schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 40) | st.sampled_from(["int8", "string", "decimal", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "type", "list", "map", "struct", "decimal"]), inner, max_size=2
        )
    ),
    max_leaves=12,
)


@example([{"name": "a", "type": {"map": [None, None]}}])
@given(
    JSON
    | st.lists(st.fixed_dictionaries({"name": st.sampled_from(["a", "b", "A"]), "type": JSON}), max_size=3)
)
def test_any_json_is_a_schema_or_corrupt(value: Any) -> None:
    try:
        schema = fields_from_json(value)
    except CorruptDataError:
        return
    assert TopicSchema(schema).arrow_schema.equals(schema)


@given(TABLES, st.integers(1, 3))
def test_rows_survive_the_way_through_a_segment_file(
    case: tuple[pa.Schema, list[dict[str, Any]]], batches: int
) -> None:
    schema, records = case
    table = conform(records, schema)
    data, file = written(table, batches)
    found = read(data, file, schema, list(range(batches)))
    assert found.equals(pa.concat_tables([table] * batches))
    assert found.schema.equals(schema, check_metadata=True)


@given(TABLES, st.randoms(use_true_random=False))
def test_a_damaged_file_is_corrupt_or_the_same_and_never_other_rows(
    case: tuple[pa.Schema, list[dict[str, Any]]], source: random.Random
) -> None:
    schema, records = case
    table = conform(records, schema)
    data, file = written(table)
    changed = bytearray(data)
    for _ in range(source.randint(1, 8)):
        match source.randrange(3):
            case 0:
                changed[source.randrange(len(changed))] = source.randrange(256)
            case 1:
                start = source.randrange(len(changed))
                changed[start : start + source.randint(1, 9)] = source.randbytes(source.randint(0, 9))
            case _:
                del changed[source.randrange(len(changed) // 2, len(changed)) :]
        if len(changed) < 8:
            break
    try:
        found = read(bytes(changed), file, schema, [0])
    except CorruptDataError:
        return
    assert found.equals(table)  # only bytes that carry nothing were hit, such as the magic at the start
