"""Topic schemas: the canonical types, what is replaced, what is refused, and the JSON form."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from txnformat.columns.arrow_types import COLUMNS_MAX, NESTING_MAX, RESERVED_COLUMNS
from txnformat.core.topics.schema import (
    KAFKA_SCHEMA,
    TopicSchema,
    as_topic_schema,
    fields_from_json,
    fields_to_json,
    from_spark_json,
)
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.reading.rows import output_schema

UTC = pa.timestamp("us", tz="UTC")


def canonical(type_: pa.DataType) -> pa.DataType:
    return TopicSchema(pa.schema([pa.field("c", type_)])).arrow_schema.field("c").type


def problems_of(schema: pa.Schema) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        TopicSchema(schema)
    assert caught.value.kind == "unsupported-schema"
    return caught.value.problems


@pytest.mark.parametrize(
    ("near", "expected"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
        (pa.large_list(pa.uint8()), pa.list_(pa.int16())),
        (pa.list_(pa.int8(), 3), pa.list_(pa.int8())),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.timestamp("ms", "Europe/Paris"), UTC),
        (pa.timestamp("us", "+02:00"), UTC),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.date64(), pa.date32()),
        (pa.time32("s"), pa.time64("us")),
        (pa.duration("ms"), pa.duration("us")),
        (pa.decimal256(38, 38), pa.decimal128(38, 38)),
        (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int16())),
        (pa.struct([("a", pa.uint32())]), pa.struct([("a", pa.int64())])),
    ],
    ids=str,
)
def test_a_near_type_is_replaced_by_one_that_holds_all_its_values(
    near: pa.DataType, expected: pa.DataType
) -> None:
    assert canonical(near) == expected


@pytest.mark.parametrize(
    ("refused", "advice"),
    [
        (pa.timestamp("ns"), 'timestamp("us")'),
        (pa.uint64(), "int64"),
        (pa.time64("ns"), 'time64("us")'),
        (pa.duration("ns"), 'duration("us")'),
        (pa.month_day_nano_interval(), "int32 (months)"),
        (pa.dense_union([pa.field("a", pa.int8())]), "struct"),
        (pa.null(), "give the column the type"),
        (pa.decimal256(39, 0), "decimal128"),
        (pa.decimal128(5, -2), "decimal128"),
        (pa.list_view(pa.int8()), "use list"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "use one of"),
    ],
    ids=str,
)
def test_a_type_that_spark_cannot_carry_is_refused_with_advice(refused: pa.DataType, advice: str) -> None:
    schema = pa.schema(
        [pa.field("ok", pa.int8()), pa.field("s", pa.struct([pa.field("x", pa.list_(refused))]))]
    )
    (problem,) = problems_of(schema)
    assert "'s.x.element'" in problem
    assert str(refused)[:20] in problem
    assert advice in problem


def test_every_problem_of_a_schema_is_listed() -> None:
    found = problems_of(
        pa.schema(
            [
                pa.field("a", pa.uint64()),
                pa.field("A", pa.int8()),
                pa.field("_Offset", pa.int64()),
                pa.field("", pa.int8()),
                pa.field("n" * 250, pa.int8()),
                pa.field("z\0", pa.int8()),
                pa.field("e", pa.struct([])),
                pa.field("d", pa.struct([("x", pa.int8()), ("X", pa.int8())])),
                pa.field("m", pa.map_(pa.struct([("k", pa.map_(pa.int8(), pa.int8()))]), pa.int8())),
            ]
        )
    )
    assert len(found) == 9
    assert problems_of(pa.schema([])) == ["a topic needs at least one column"]


def test_names_of_249_characters_and_reserved_names_inside_structs_are_legal() -> None:
    TopicSchema(pa.schema([("n" * 249, pa.struct([("_offset", pa.int8())]))]))
    assert len(RESERVED_COLUMNS) == 8


def nested(levels: int) -> pa.DataType:
    type_ = pa.int8()
    for _ in range(levels - 1):
        type_ = pa.list_(pa.field("element", type_))
    return type_


def test_nesting_is_capped() -> None:
    deepest = TopicSchema(pa.schema([("c", nested(NESTING_MAX))])).arrow_schema
    assert fields_from_json(fields_to_json(deepest)) == deepest
    assert "deeper than 64" in problems_of(pa.schema([("c", nested(NESTING_MAX + 1))]))[0]
    value: Any = "int8"
    for _ in range(300):
        value = {"list": value}
    with pytest.raises(CorruptDataError, match="deeper than 64"):
        fields_from_json([{"name": "c", "type": value}])


def test_columns_are_capped_with_the_fields_of_structs() -> None:
    """An entry of 127 kB made a topic of 300,000 columns: 266 MiB in each reader."""
    pair = pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int8()))])
    most = [(f"c{number}", pair) for number in range(COLUMNS_MAX // 3)] + [("last", pa.int8())]
    schema = TopicSchema(pa.schema(most)).arrow_schema
    assert fields_from_json(fields_to_json(schema)) == schema
    assert problems_of(pa.schema([*most, ("more", pa.int8())])) == [
        "a topic may have 10,000 columns, with the fields of structs: this schema has more"
    ]
    fields = [*fields_to_json(schema), {"name": "more", "type": "int8"}]
    with pytest.raises(CorruptDataError, match="more than 10,000 columns"):
        fields_from_json(fields)


def test_a_hostile_schema_is_refused_at_once() -> None:
    """Paths are cut where a name is too long for a column, and wrong key columns are named up to twenty."""
    long = {"struct": [{"name": f"c{number}", "type": "int8"} for number in range(5_000)]}
    with pytest.raises(CorruptDataError, match="column 'aaaa") as caught:
        fields_from_json([{"name": "a" * 10_000_000, "type": long}])
    assert len(str(caught.value)) < 10_000
    columns = pa.schema([(f"c{number}", pa.int8()) for number in range(100)])
    with pytest.raises(InvalidInputError) as refused:
        TopicSchema(columns, tuple(f"C{number}" for number in range(100)))
    assert len(refused.value.problems) == 20


def test_children_are_nullable_and_named_as_in_spark_and_metadata_goes() -> None:
    schema = TopicSchema(
        pa.schema(
            [
                pa.field(
                    "l",
                    pa.list_(pa.field("item", pa.int8(), nullable=False)),
                    nullable=False,
                    metadata={"a": "b"},
                ),
                pa.field("m", pa.map_(pa.int8(), pa.field("v", pa.int8(), nullable=False))),
            ],
            metadata={"x": "y"},
        )
    ).arrow_schema
    assert schema.metadata is None
    assert (
        str(schema)
        == "l: list<element: int8>\n  child 0, element: int8\nm: map<int8, int8>\n  child 0, entries: "
        "struct<key: int8 not null, value: int8> not null\n      child 0, key: int8 not null\n      child "
        "1, value: int8"
    )
    assert all(field.nullable and field.metadata is None for field in schema)


BROKEN_FIELDS: list[Any] = [
    None,
    {},
    [],
    [1],
    [{}],
    [{"name": "a"}],
    [{"name": 1, "type": "int8"}],
    [{"name": "a", "type": "int8", "more": 1}],
    [{"name": "a", "type": "uint8"}],
    [{"name": "a", "type": None}],
    [{"name": "a", "type": ["int8"]}],
    [{"name": "a", "type": {"decimal": [39, 0]}}],
    [{"name": "a", "type": {"decimal": [5, 6]}}],
    [{"name": "a", "type": {"decimal": [True, 0]}}],
    [{"name": "a", "type": {"decimal": [5]}}],
    [{"name": "a", "type": {"list": "int8", "x": 1}}],
    [{"name": "a", "type": {"struct": []}}],
    [{"name": "a", "type": {"struct": [{"name": "x\ud800", "type": "int8"}]}}],
    [{"name": "a", "type": {"map": ["int8"]}}],
    [{"name": "a", "type": {"map": [{"map": ["int8", "int8"]}, "int8"]}}],
    [{"name": "a", "type": "int8"}, {"name": "A", "type": "int8"}],
    [{"name": "_topic", "type": "int8"}],
    [{"name": "", "type": "int8"}],
    [{"name": "\ud800", "type": "int8"}],
]


@pytest.mark.parametrize("fields", BROKEN_FIELDS, ids=repr)
def test_a_schema_in_metadata_that_no_writer_makes_is_corrupt(fields: Any) -> None:
    with pytest.raises(CorruptDataError) as caught:
        fields_from_json(fields)
    assert caught.value.kind == "corrupt-schema"
    str(caught.value).encode()


def test_the_json_form_is_plain_and_stable() -> None:
    schema = TopicSchema(
        pa.schema([("d", pa.decimal128(5, 2)), ("m", pa.map_(pa.string(), pa.list_(UTC)))]), ("d",), None
    )
    fields, keys, time = schema.to_json()
    assert json.loads(json.dumps(fields)) == [
        {"name": "d", "type": {"decimal": [5, 2]}},
        {"name": "m", "type": {"map": ["string", {"list": "timestamp"}]}},
    ]
    assert TopicSchema.from_json(json.loads(json.dumps(fields)), list(keys), time) == schema


def test_key_and_timestamp_columns_are_checked_all_at_once() -> None:
    arrow = pa.schema([("f", pa.float64()), ("l", pa.list_(pa.int8())), ("id", pa.int64())])
    with pytest.raises(InvalidInputError) as caught:
        TopicSchema(arrow, ("f", "l", "x", "id", "id"), "id")
    assert caught.value.kind == "invalid-schema"
    assert len(caught.value.problems) == 5
    with pytest.raises(InvalidInputError, match="'t' is not a column"):
        TopicSchema(arrow, (), "t")
    with pytest.raises(InvalidInputError, match="'ID' is not a column; did you mean 'id'\\?"):
        TopicSchema(arrow, ("ID",), None)
    with pytest.raises(CorruptDataError):
        TopicSchema.from_json(fields_to_json(TopicSchema(arrow).arrow_schema), ["x"], None)


def test_the_ready_schema_kafka() -> None:
    assert as_topic_schema("kafka") is not None
    assert as_topic_schema("kafka") == KAFKA_SCHEMA
    assert KAFKA_SCHEMA.key_columns == ("key",)
    assert KAFKA_SCHEMA.timestamp_column == "timestamp"
    assert as_topic_schema("kafka", key_columns=()).key_columns == ()


@pytest.mark.parametrize("schema", ["Kafka", None, 5, [("a", "int")]])
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        as_topic_schema(schema)
    assert "kafka" in str(caught.value)


def test_spark_schemas_equal_what_pyspark_makes_of_them() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    to_arrow_schema = pytest.importorskip("pyspark.sql.pandas.types").to_arrow_schema
    names = ("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "String", "Binary", "Date")
    scalars = [getattr(types, f"{name}Type")() for name in (*names, "Timestamp", "TimestampNTZ")]
    scalars += [types.DecimalType(38, 18), types.DecimalType(10, 0)]
    struct = types.StructType([types.StructField(f"s{i}", scalar) for i, scalar in enumerate(scalars)])
    spark = types.StructType(
        [
            *struct.fields,
            types.StructField("list", types.ArrayType(types.ArrayType(struct))),
            types.StructField(
                "map", types.MapType(types.StringType(), types.MapType(types.LongType(), struct))
            ),
            types.StructField("struct", types.StructType([types.StructField("inner", struct)])),
        ]
    )
    schema = as_topic_schema(spark).arrow_schema
    assert schema.equals(to_arrow_schema(spark, timezone="UTC"), check_metadata=True)
    assert str(schema) == str(to_arrow_schema(spark, timezone="UTC"))


def test_spark_schemas_with_not_null_columns_become_nullable() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    inner = types.ArrayType(types.IntegerType(), containsNull=False)
    spark = types.StructType([types.StructField("a", inner, nullable=False, metadata={"x": 1})])
    expected = pa.schema([("a", pa.list_(pa.field("element", pa.int32())))])
    assert as_topic_schema(spark).arrow_schema.equals(expected, check_metadata=True)


def test_every_unsupported_spark_type_is_listed_with_its_path() -> None:
    field = {"nullable": True, "metadata": {}}
    value = {
        "type": "struct",
        "fields": [
            {"name": "v", "type": "void", **field},
            {"name": "ok", "type": "varchar(10)", **field},
            {"name": "also_ok", "type": "variant", **field},
            {
                "name": "i",
                "type": {"type": "array", "elementType": "interval year to month", "containsNull": True},
            },
            {"name": "u", "type": {"type": "udt", "sqlType": "long"}},
            {"name": "d", "type": "decimal(39,0)"},
        ],
    }
    with pytest.raises(InvalidInputError) as caught:
        from_spark_json(value)
    assert [problem.split("'")[1] for problem in caught.value.problems] == ["v", "i.element", "u", "d"]


@pytest.mark.parametrize(
    "value", [{}, {"type": "struct"}, {"type": "struct", "fields": [3]}, {"type": "long"}]
)
def test_a_malformed_spark_schema_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        from_spark_json(value)


def test_a_name_that_is_there_twice_is_not_called_a_matter_of_letter_case() -> None:
    fields = [("a", pa.int8()), ("a", pa.int8()), ("A", pa.int8())]
    with pytest.raises(InvalidInputError) as caught:
        as_topic_schema(pa.schema(fields))
    assert caught.value.problems == [
        "column 'a' appears twice",
        "column 'A' clashes with 'a': Spark does not distinguish upper and lower case",
    ]


def test_columns_of_a_read_that_are_not_there_or_there_twice() -> None:
    schema = as_topic_schema(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    with pytest.raises(InvalidInputError) as caught:
        output_schema(schema, ["A", "x", "_OFFSET", "b", "b"])
    assert caught.value.problems == [
        "there is no column 'A'; did you mean 'a'?",
        "there is no column 'x'",
        "there is no column '_OFFSET'; did you mean '_offset'?",
        "column 'b' is asked for twice",
    ]
    assert caught.value.kind == "unknown-column"
    with pytest.raises(InvalidInputError, match="'b' is asked for twice") as caught:
        output_schema(schema, ["b", "a", "b"])
    assert caught.value.kind == "repeated-column"


def test_columns_of_a_read_given_as_one_text_are_not_taken_for_a_list_of_letters() -> None:
    schema = as_topic_schema(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
    with pytest.raises(InvalidInputError, match=r"'ab', not a list.*pass \['ab'\]") as caught:
        output_schema(schema, "ab")
    assert caught.value.kind == "unknown-column"
