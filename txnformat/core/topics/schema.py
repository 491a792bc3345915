"""The schema of a topic: its columns, which of them are the key, and which one is the records' time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Self

import pyarrow as pa
import pyarrow.types as pt

from txnformat.arguments import items, other_case
from txnformat.columns.arrow_types import (
    canonical_schema,
    fields_from_json,
    fields_to_json,
    list_of,
    struct_of,
)
from txnformat.columns.conform import conform
from txnformat.columns.file_columns import FileColumns
from txnformat.columns.spark_json import from_spark_json
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.types import FileRecord

__all__ = [
    "KAFKA_SCHEMA",
    "TopicSchema",
    "as_topic_schema",
    "conform",
    "fields_from_json",
    "fields_to_json",
    "from_spark_json",
]


PROBLEMS_MAX = 20
"""Most wrong key columns that one error names."""


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The schema of a topic's records.

    Raises InvalidInputError, with every problem: ``unsupported-schema`` (the Arrow schema is not canonical),
    ``invalid-schema`` (key or timestamp columns do not fit it).
    """

    arrow_schema: pa.Schema
    """Canonical (:mod:`txnformat.columns.arrow_types`); near types are replaced."""
    key_columns: tuple[str, ...] = ()
    """Records with equal values here go to the same partition; empty: partitions take turns."""
    timestamp_column: str | None = None
    """The column that is the records' time. If None, the time of the append."""
    earlier: tuple[pa.Schema, ...] = field(default=(), repr=False)
    """The versions before this one, by schema id: their files are read as if they had this schema."""
    later: tuple[pa.Schema, ...] = field(default=(), repr=False, compare=False)
    """Versions after this one that a compaction may have given to old records; see :meth:`beside`."""
    places: tuple[tuple[int, ...], ...] = field(default=(), repr=False)
    """The places of the columns of each version up to this one: of which column, in the order of first
    appearance, counted from 0, each is. If empty, no column was ever dropped or renamed: the places of each
    version are 0, 1, …"""
    later_places: tuple[tuple[int, ...], ...] = field(default=(), repr=False, compare=False)
    """Likewise, of those after this one."""

    @property
    def schema_id(self) -> int:
        """Number of this version; a topic begins with 0."""
        return len(self.earlier)

    @property
    def first_columns(self) -> tuple[str, ...]:
        """Those that the topic began with and still has, by their names in this version; further ones are
        null in older records.
        """
        count = len(self.version(0))
        names = self.arrow_schema.names
        return tuple(
            name for name, place in zip(names, self.places_of(self.schema_id), strict=True) if place < count
        )

    @property
    def added(self) -> frozenset[str]:
        """Columns that the topic did not begin with: who does not know of them leaves them out."""
        return frozenset(self.arrow_schema.names) - frozenset(self.first_columns)

    @property
    def next_place(self) -> int:
        """The place that the next new column gets: no column has or had it."""
        return 1 + max(max(self.places_of(number)) for number in range(self.schema_id + 1))

    def stated_places(self) -> tuple[tuple[int, ...], ...]:
        """Return the places that the ``alter_topic`` of each version after the first said.

        Empty: no version said any.
        """
        if not self.places:
            return ()
        names = [
            dict(zip(places, self.version(number).names, strict=True))
            for number, places in enumerate(self.places)
        ]
        stays = [before.items() <= after.items() for before, after in pairwise(names)]
        return tuple(() if one else places for one, places in zip(stays, self.places[1:], strict=True))

    def first_names(self) -> list[str]:
        """Return the name that the place of each column had first.

        Where an earlier place began with the same one, a NUL and the number of the place follow, which no
        name has.

        So a sum of rows (:mod:`txnformat.columns.multiset`) stays the same when a column gets another name.
        """
        found: dict[int, str] = {}
        taken: set[str] = set()
        for number in range(self.schema_id + 1):
            for place, name in zip(self.places_of(number), self.version(number).names, strict=True):
                if place not in found:
                    found[place] = f"{name}\0{place}" if name in taken else name
                    taken.add(name)
        return [found[place] for place in self.places_of(self.schema_id)]

    def dropped(self) -> list[tuple[int, pa.Field]]:
        """Return the places that are empty by now, each with the column that it had last, ascending."""
        found: dict[int, pa.Field] = {}
        for number in range(self.schema_id + 1):
            found |= dict(zip(self.places_of(number), self.version(number), strict=True))
        left = set(self.places_of(self.schema_id))
        return sorted((place, field) for place, field in found.items() if place not in left)

    def version(self, schema_id: int) -> pa.Schema:
        """Return the columns of a version, up to this one."""
        return (*self.earlier, self.arrow_schema)[schema_id]

    def places_of(self, schema_id: int) -> Sequence[int]:
        """Return the places of the columns of a version, up to the latest that is known."""
        later = schema_id - self.schema_id - 1
        found = self.places if later < 0 else self.later_places
        return found[schema_id if later < 0 else later] if found else range(len(self._known(schema_id)))

    def _known(self, schema_id: int) -> pa.Schema:
        return (*self.earlier, self.arrow_schema, *self.later)[schema_id]

    def of_version(self, schema_id: int) -> FileColumns:
        """Return the columns of a version, each of them under the name that it has in this one: the same
        column is the same place.

        This is the one rule by which a file is read under a version that is not its own: no reader compares
        names of two versions.
        """
        stored = self._known(schema_id)
        if not (self.places or self.later_places):
            names = self.arrow_schema.names[: len(stored)]
            return FileColumns(stored, dict(zip(names, names, strict=True)))
        mine = dict(zip(self.places_of(self.schema_id), self.arrow_schema.names, strict=True))
        theirs = zip(self.places_of(schema_id), stored.names, strict=True)
        return FileColumns(stored, {mine[place]: name for place, name in theirs if place in mine})

    def of_file(self, file: FileRecord) -> FileColumns:
        """Return the columns of a segment file. Raises CorruptDataError: the topic has no such version."""
        newest = self.schema_id + len(self.later)
        if not 0 <= file.schema_id <= newest:
            raise CorruptDataError(
                "a segment file has a version of its topic's schema that does not exist",
                hint="run no writer on this log before its cause is known",
                object=file.key,
                expected=f"0 to {newest}",
                got=file.schema_id,
            )
        return self.of_version(file.schema_id)

    def dropped_in(self, schema_id: int) -> frozenset[str]:
        """Return the names of columns of this version that an earlier one than ``schema_id`` had, and that
        one does not have any more.
        """
        if schema_id <= self.schema_id or not self.later_places:
            return frozenset()
        mine = zip(self.places_of(self.schema_id), self.arrow_schema.names, strict=True)
        theirs = frozenset(self.places_of(schema_id))
        return frozenset(name for place, name in mine if place not in theirs)

    def beside(self, newest: TopicSchema) -> TopicSchema:
        """Return this version for reads of files that may have any version up to the newest one: a compaction
        writes old records with that.
        """
        behind = self.schema_id + 1
        return replace(
            self,
            later=(*newest.earlier, newest.arrow_schema)[behind:],
            later_places=newest.places[behind:],
        )

    def at_version(self, schema_id: int) -> TopicSchema:
        """Return an earlier version."""
        columns = self.of_version(schema_id)
        return replace(
            self,
            arrow_schema=columns.stored,
            key_columns=tuple(columns.names[name] for name in self.key_columns),
            timestamp_column=None if self.timestamp_column is None else columns.names[self.timestamp_column],
            earlier=self.earlier[:schema_id],
            later=(),
            places=self.places[: schema_id + 1],
            later_places=(),
        )

    def carried(self, table: pa.Table, schema_id: int) -> pa.Table:
        """Return rows of a version as far as this one has their columns, under the names that these have
        here.
        """
        columns = self.of_version(schema_id)
        return table.select(list(columns.names.values())).rename_columns(list(columns.names))

    def __post_init__(self) -> None:
        """Replace near types and check the columns that are named."""
        object.__setattr__(self, "arrow_schema", canonical_schema(self.arrow_schema))
        object.__setattr__(self, "key_columns", tuple(self.key_columns))
        problems = _role_problems(self)
        if problems:
            raise InvalidInputError(
                problems,
                kind="invalid-schema",
                hint=f"the columns are {', '.join(self.arrow_schema.names)}",
            )

    def to_json(self) -> tuple[tuple[object, ...], tuple[str, ...], str | None]:
        """Return fields, key columns and timestamp column as metadata stores them."""
        return tuple(fields_to_json(self.arrow_schema)), self.key_columns, self.timestamp_column

    @classmethod
    def from_json(
        cls, fields: Sequence[object], key_columns: Sequence[str], timestamp_column: str | None
    ) -> Self:
        """Return the schema that metadata describes.

        Raises CorruptDataError of kind ``corrupt-schema`` about what no writer makes; every problem is named.
        """
        arrow_schema = fields_from_json(list(fields))
        try:
            return cls(arrow_schema, tuple(key_columns), timestamp_column)
        except InvalidInputError as error:
            raise CorruptDataError(
                "a topic schema violates the format",
                kind="corrupt-schema",
                expected="key and timestamp columns that fit the fields",
                problems="; ".join(error.problems),
            ) from error


def _role_problems(schema: TopicSchema) -> list[str]:
    types = {field.name: field.type for field in schema.arrow_schema}
    problems: list[str] = []
    for name in schema.key_columns:
        if len(problems) == PROBLEMS_MAX:
            break
        if name not in types:
            problems.append(f"key column {repr_of(name)} is not a column{other_case(name, types)}")
        elif not _is_key_type(types[name]):
            problems.append(
                f"key column {repr_of(name)} has the type {types[name]}; "
                "use a boolean, integer, decimal, string, binary, date, time, duration or timestamp column"
            )
    if len(set(schema.key_columns)) < len(schema.key_columns):
        problems.append("a key column is named twice")
    time = schema.timestamp_column
    if time is not None and time not in types:
        problems.append(f"timestamp column {repr_of(time)} is not a column{other_case(time, types)}")
    elif time is not None and not pt.is_timestamp(types[time]):
        problems.append(
            f"timestamp column {repr_of(time)} has the type {types[time]}; use a timestamp column"
        )
    return problems


def _is_key_type(type_: pa.DataType) -> bool:
    # Equal floats may differ in bytes (0.0 and -0.0, the NaNs), so they cannot be hashed to a partition.
    return not pt.is_nested(type_) and not pt.is_floating(type_)


KAFKA_SCHEMA = TopicSchema(
    pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", list_of(struct_of(("key", "value"), (pa.string(), pa.binary())))),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        ]
    ),
    ("key",),
    "timestamp",
)
"""The ready schema ``"kafka"``: what a Kafka record carries."""


def as_topic_schema(
    schema: Any, *, key_columns: Sequence[str] | None = None, timestamp_column: str | None = None
) -> TopicSchema:
    """Return the topic schema that a user's description means.

    ``schema``: a pyarrow.Schema, a Spark StructType (anything with ``jsonValue()``), a TopicSchema, or
    "kafka". None for key or timestamp columns keeps what ``schema`` itself says ("kafka": key, timestamp),
    else none. Raises InvalidInputError (``unsupported-schema``, ``invalid-schema``) with every problem.
    """
    base: TopicSchema | None = None
    if isinstance(schema, TopicSchema):
        base = schema
    elif isinstance(schema, str) and schema == "kafka":
        base = KAFKA_SCHEMA
    elif isinstance(schema, pa.Schema):
        base = TopicSchema(schema)
    elif hasattr(schema, "jsonValue"):
        value = schema.jsonValue()
        base = TopicSchema(from_spark_json(value if isinstance(value, Mapping) else {"type": value}))
    if base is None:
        raise InvalidInputError(
            "this is not a schema",
            kind="invalid-schema",
            hint='pass a pyarrow.Schema, a Spark StructType, or "kafka"',
            got=repr_of(schema, 100),
        )
    key_columns = items(key_columns, "key_columns")
    if isinstance(key_columns, str):
        key_columns = (key_columns,)
    _check_names(key_columns, timestamp_column)
    return TopicSchema(
        base.arrow_schema,
        base.key_columns if key_columns is None else tuple(key_columns),
        base.timestamp_column if timestamp_column is None else timestamp_column,
    )


def _check_names(key_columns: Any, timestamp_column: Any) -> None:
    """Refuse what no column is named by: it may not even be one that can be looked up."""
    names = key_columns if isinstance(key_columns, list | tuple) else []
    problems = [f"key column {repr_of(name)} is not a name" for name in names if not isinstance(name, str)]
    if key_columns is not None and names is not key_columns:
        problems.append(f"key_columns is {repr_of(key_columns)}, not a list of names")
    if timestamp_column is not None and not isinstance(timestamp_column, str):
        problems.append(f"timestamp column {repr_of(timestamp_column)} is not a name")
    if problems:
        raise InvalidInputError(problems, kind="invalid-schema", hint='name columns as in ["id"]')
