"""Any schema and any rows that fit it survive the way through metadata and segment files; any damage is found."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from hypothesis import example, given
from hypothesis import strategies as st

from txnformat.columns.arrow_types import list_of, map_of, struct_of
from txnformat.columns.variants import VARIANT, is_variant
from txnformat.core.topics.schema import TopicSchema, conform, fields_from_json
from txnformat.errors import CorruptDataError
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord

UTC = pa.timestamp("us", tz="UTC")
SCALARS = [
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(38, 10), pa.decimal128(1, 1), pa.decimal128(18, 0)),
    *(pa.string(), pa.binary(), pa.date32(), UTC, pa.timestamp("us")),
    *(pa.time64("us"), pa.duration("us"), VARIANT),
]
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)


LONGEST = datetime.timedelta(days=106_751_991)
"""Whole days of microseconds that fit 64 bits; longer ones are bad input."""


def structs(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    names = st.lists(NAMES, min_size=1, max_size=3, unique_by=str.lower)
    return names.flatmap(
        lambda found: st.tuples(*(types for _ in found)).map(lambda kinds: struct_of(found, kinds))
    )


TYPES = st.recursive(
    st.sampled_from(SCALARS),
    lambda types: st.one_of(
        types.map(list_of),
        structs(types),
        st.builds(map_of, st.sampled_from([pa.string(), pa.int32()]), types),
    ),
    max_leaves=5,
)
SCHEMAS = structs(TYPES).map(
    lambda type_: pa.schema([field for field in type_ if not field.name.startswith("_")])
)
SCHEMAS = SCHEMAS.filter(lambda schema: len(schema) > 0)


def values(type_: pa.DataType) -> st.SearchStrategy[Any]:
    return st.none() | present(type_)


def present(type_: pa.DataType) -> st.SearchStrategy[Any]:
    if pt.is_map(type_):
        pairs = st.tuples(present(type_.key_type), values(type_.item_type))
        return st.lists(pairs, max_size=3)
    if is_variant(type_):
        return st.fixed_dictionaries({"value": st.binary(max_size=3), "metadata": st.binary(max_size=3)})
    if pt.is_struct(type_):
        return st.fixed_dictionaries({field.name: values(field.type) for field in type_})
    if pt.is_list(type_):
        return st.lists(values(type_.value_type), max_size=3)
    if pt.is_integer(type_):
        return st.integers(-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
    if pt.is_decimal(type_):
        digits = 10**type_.precision - 1
        # As many decimal places as the type has: pyarrow refuses to scale up what then has too many digits.
        return st.integers(-digits, digits).map(lambda units: Decimal(f"{units}e-{type_.scale}"))
    if pt.is_floating(type_):
        return st.floats(width=type_.bit_width, allow_nan=False)
    if pt.is_timestamp(type_):
        zone = st.just(datetime.UTC) if type_.tz else st.none()
        return st.datetimes(timezones=zone)
    if pt.is_time(type_):
        return st.times()
    if pt.is_duration(type_):
        return st.timedeltas(-LONGEST, LONGEST)
    if pt.is_date(type_):
        return st.dates()
    if pt.is_boolean(type_):
        return st.booleans()
    return st.binary(max_size=9) if pt.is_binary(type_) else st.text(st.characters(exclude_categories=["Cs"]))


def rows(schema: pa.Schema) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
    return st.lists(row, min_size=1, max_size=8)


TABLES = SCHEMAS.flatmap(lambda schema: rows(schema).map(lambda found: (schema, found)))


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
