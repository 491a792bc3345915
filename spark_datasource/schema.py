"""Between a topic's schema and Spark's: which columns a read gives, and whether a DataFrame fits a topic."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from spark_datasource.options.names import matched
from txnformat.columns.conform import conform
from txnformat.columns.variants import as_spark_type, is_variant
from txnformat.core.topics.schema import TopicSchema, as_topic_schema
from txnformat.errors import InvalidInputError
from txnformat.reading.rows import METADATA_FIELDS, output_schema

__all__ = ["Projection", "check_frame", "common_schema", "frame_names", "project", "spark_schema"]

# From pyspark 4.2 on the zone has to be named; 4.1 has no such parameter, and takes UTC.
_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


@dataclass(frozen=True, slots=True)
class Projection:
    """Which columns a read gives, under which names."""

    columns: tuple[str, ...]
    """As the topic, or the list of metadata columns, calls them."""
    schema: StructType
    """Spark's schema: the same columns in the same order, their names possibly in other letter case."""

    def cast(self, batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
        """Return ``batch`` (of ``columns``) with exactly the schema that Spark checks it against."""
        if batch.schema.equals(expected):
            return batch
        arrays = [
            as_spark_type(column, field.type) for column, field in zip(batch.columns, expected, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=expected)

    def arrow_schema(self) -> pa.Schema:
        """Return what this version of Spark checks batches against."""
        return to_arrow_schema(self.schema, **_IN_UTC)


def spark_schema(
    schema: TopicSchema, columns: Sequence[str] | None, *, case_sensitive: bool = False
) -> StructType:
    """Return the Spark schema of a read of ``columns`` (None: all of the topic's own); all are nullable.

    Names match as in Spark, and columns are then called as they were asked for. Raises InvalidInputError of
    kind ``unknown-column``: unknown names; kind ``repeated-column``: only repeated ones.
    """
    names = columns
    if columns is not None:
        known = (*schema.arrow_schema.names, *METADATA_FIELDS)
        names = matched(columns, known, case_sensitive=case_sensitive)
    found = from_arrow_schema(output_schema(schema, names), prefer_timestamp_ntz=True)
    if columns is None:
        return found
    pairs = zip(columns, found.fields, strict=True)
    return StructType([StructField(name, field.dataType, field.nullable) for name, field in pairs])


def common_schema(
    schemas: Mapping[str, TopicSchema], columns: Sequence[str] | None, *, case_sensitive: bool = False
) -> StructType:
    """Return the Spark schema of a read of several topics, by name: that of the first one.

    Raises InvalidInputError of kind ``unknown-column``; kind ``schema-mismatch``: the topics differ in what
    is read.
    """
    (first, schema), *others = schemas.items()
    common = _schema_of(first, schema, columns, case_sensitive=case_sensitive)
    expected = {field.name: field.dataType for field in common.fields}
    problems = []
    for name, other in others:
        fields = _schema_of(name, other, columns, case_sensitive=case_sensitive).fields
        found = {field.name: field.dataType for field in fields}
        problems += [
            f"column {column!r:.300} is {_type(expected, column)} in {first}, {_type(found, column)} in "
            f"{name}"
            for column in {**expected, **found}
            if expected.get(column) != found.get(column)
        ]
    if problems:
        raise InvalidInputError(
            problems,
            kind="schema-mismatch",
            hint="topics that are read together have columns of the same names and types: choose them "
            "with option columns",
        )
    return common


def _schema_of(
    topic: str, schema: TopicSchema, columns: Sequence[str] | None, *, case_sensitive: bool
) -> StructType:
    """Return what :func:`spark_schema` does; of several topics the error has to say which one lacks a
    column.
    """
    try:
        return spark_schema(schema, columns, case_sensitive=case_sensitive)
    except InvalidInputError as error:
        raise InvalidInputError(
            error.problems, kind=error.kind, hint=error.hint, topic=topic, **error.values
        ) from None


def _type(types: Mapping[str, DataType], column: str) -> str:
    return types[column].simpleString() if column in types else "missing"


def project(topic: str, schema: TopicSchema, columns: Sequence[str] | None, wanted: StructType) -> Projection:
    """Return which columns to read for the schema that Spark expects.

    ``columns``: the option of that name. ``wanted``: what :func:`spark_schema` gave, or what the user passed
    to ``.schema()``: a choice of the topic's own and metadata columns, each with its type. Names match as in
    Spark, in any letter case. Raises InvalidInputError of kind ``schema-mismatch``: every column that is
    unknown, of another type, or declared NOT NULL.
    """
    if columns is not None and [name.lower() for name in wanted.names] != [name.lower() for name in columns]:
        raise InvalidInputError(
            "option columns and .schema() name different columns",
            kind="schema-mismatch",
            hint="use one of them",
        )
    known = {name.lower(): name for name in (*schema.arrow_schema.names, *METADATA_FIELDS)}
    problems = [f"there is no column {name!r:.300}" for name in wanted.names if name.lower() not in known]
    if not wanted.names:
        problems.append("there is no column to read")
    names = [known[name.lower()] for name in wanted.names if name.lower() in known]
    problems += [
        f"column {name!r:.300} appears twice" for name in sorted(set(names)) if names.count(name) > 1
    ]
    if not problems:
        for field, offered in zip(wanted.fields, spark_schema(schema, names).fields, strict=True):
            if field.dataType != offered.dataType:
                problems.append(
                    f"column {field.name!r:.300} is {offered.dataType.simpleString()}, "
                    f"not {field.dataType.simpleString()}{_null_note(field.dataType, offered.dataType)}"
                )
            elif not field.nullable:
                problems.append(
                    f"column {field.name!r:.300} cannot be NOT NULL: a topic's columns may hold nulls"
                )
    if problems:
        raise InvalidInputError(
            problems,
            kind="schema-mismatch",
            hint=f"leave .schema() out, or choose from {', '.join(known.values())}",
            topic=topic,
        )
    return Projection(tuple(names), wanted)


def _null_note(got: Any, offered: Any) -> str:
    same_text = got.simpleString() == offered.simpleString()
    return " with parts that are NOT NULL" if same_text else ""


def frame_names(schema: TopicSchema, names: Sequence[str]) -> tuple[str, ...]:
    """Return a DataFrame's column names in the topic's letter case; names that the topic lacks stay."""
    known = {name.lower(): name for name in schema.arrow_schema.names}
    return tuple(known.get(name.lower(), name) for name in names)


def check_frame(topic: str, schema: TopicSchema, frame: StructType) -> None:
    """Check that a DataFrame's columns fit an existing topic, in any order.

    Raises InvalidInputError of kind ``unsupported-schema`` or ``schema-mismatch``: every difference.
    """
    found = as_topic_schema(frame).arrow_schema
    renamed = pa.schema(
        [
            pa.field(name, field.type)
            for name, field in zip(frame_names(schema, found.names), found, strict=True)
        ]
    )
    try:
        conform(renamed.empty_table(), schema.arrow_schema, schema.added)
    except InvalidInputError as error:
        raise InvalidInputError(
            error.problems,
            kind=error.kind,
            hint=f"nothing was written; select and cast to the topic's "
            f"columns{_growing(topic, schema, renamed)}",
            topic=topic,
        ) from None


def _growing(topic: str, schema: TopicSchema, frame: pa.Schema) -> str:
    """Return the call that gives a topic the columns which only a DataFrame has; empty when there are
    none.
    """
    fields = [
        f"pa.field({field.name!r}, {arrow_code(field.type)})"
        for field in frame
        if field.name not in schema.arrow_schema.names
    ]
    if not fields:
        return ""
    return (
        f", or add the missing columns first: log.alter_topic({topic!r}, add_columns=[{', '.join(fields)}])"
    )


def arrow_code(type_: pa.DataType) -> str:
    """Return Python that makes a type of a topic."""
    if is_variant(type_):
        return "txnformat.columns.variants.VARIANT"
    if pt.is_struct(type_):
        fields = ", ".join(f"({field.name!r}, {arrow_code(field.type)})" for field in type_)
        return f"pa.struct([{fields}])"
    if pt.is_map(type_):
        return f"pa.map_({arrow_code(type_.key_type)}, {arrow_code(type_.item_type)})"
    if pt.is_list(type_):
        return f"pa.list_({arrow_code(type_.value_type)})"
    if pt.is_decimal(type_):
        return f"pa.decimal128({type_.precision}, {type_.scale})"
    if pt.is_timestamp(type_):
        return 'pa.timestamp("us")' if type_.tz is None else 'pa.timestamp("us", "UTC")'
    names = {"bool": "bool_", "float": "float32", "double": "float64", "date32[day]": "date32"}
    text = str(type_)
    match = re.fullmatch(r"(time64|duration)\[us\]", text)
    return f'pa.{match[1]}("us")' if match else f"pa.{names.get(text, text)}()"
