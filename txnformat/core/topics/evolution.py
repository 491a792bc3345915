"""How a topic may change: partitions are added, columns are added, types grow, settings are set. Pure.

A change is only ever one that old files can be read under: a column that they lack is null, and each of their values
has exactly one value of the wider type. So nothing is rewritten, and writers of an older version go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txnformat.arguments import items
from txnformat.columns.arrow_types import canonical_schema, check_readable, fields_from_json, fields_to_json
from txnformat.columns.promotions import is_wider
from txnformat.columns.spark_json import from_spark_json
from txnformat.core.intents import ChangeTopic
from txnformat.core.operations import AlterTopic, TopicSetting
from txnformat.core.topics.cleanup import check_cleanup
from txnformat.core.topics.filters import check_filters
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.topics.settings import as_settings, changed_settings, is_setting
from txnformat.errors import InvalidInputError, repr_of
from txnformat.field_types import PARTITIONS_MAX, SCHEMAS_MAX

__all__ = ["as_change", "evolve", "next_version"]

KIND = "invalid-alter"


def next_version(schema: TopicSchema, fields: object) -> TopicSchema | None:
    """Return the version of a schema after ``schema`` that metadata describes; None if it may not follow.

    Raises CorruptDataError of kind ``corrupt-schema`` when the fields are none.
    """
    old, new = schema.arrow_schema, fields_from_json(list(fields) if isinstance(fields, tuple) else fields)
    if len(new) < len(old) or new.equals(old) or schema.schema_id + 1 >= SCHEMAS_MAX:
        return None
    key_columns = frozenset(schema.key_columns)
    for before, after in zip(old, new, strict=False):  # further columns are new
        stays = before.type.equals(after.type)
        if before.name != after.name or not (stays or is_wider(after.type, before.type)):
            return None
        if not stays and before.name in key_columns:
            return None
    return replace(schema, arrow_schema=new, earlier=(*schema.earlier, old))


def as_change(
    topic_id: str,
    partitions: int | None,
    add_columns: Any,
    widen: object,
    settings: object = None,
    unset: object = None,
) -> ChangeTopic:
    """Return the change that a user describes; whether the topic can take it is for :func:`evolve` to say.

    Raises InvalidInputError of kind ``invalid-alter`` about everything that is of the wrong kind.
    """
    problems: list[str] = []
    if partitions is not None and type(partitions) is not int:
        problems.append(f"partitions is {repr_of(partitions, 80)}, not a whole number")
    if hasattr(add_columns, "jsonValue"):
        add_columns = from_spark_json(add_columns.jsonValue())
    added: list[Any] = []
    if isinstance(add_columns, str | bytes | Mapping) or not isinstance(add_columns, Iterable | None):
        problems.append(
            f"add_columns is {repr_of(add_columns, 80)}, not a pyarrow.Schema or a list of pyarrow.field(…)"
        )
    else:
        added = items(() if add_columns is None else add_columns, "add_columns")
        problems += [
            f"add_columns has {repr_of(one, 80)}, not a pyarrow.field(…)"
            for one in added
            if not isinstance(one, pa.Field)
        ]
    if not isinstance(widen, Mapping | None):
        problems.append(f"widen is {repr_of(widen, 80)}, not a mapping of column to pyarrow type")
        widen = None
    wider = tuple((widen or {}).items())
    problems += [
        f"widen has {repr_of(name, 80)}: {repr_of(type_, 80)}, not a column name and its pyarrow type"
        for name, type_ in wider
        if not isinstance(name, str) or not isinstance(type_, pa.DataType)
    ]
    names: list[Any] = []
    if isinstance(unset, str | bytes) or not isinstance(unset, Iterable | None):
        problems.append(f"unset is {repr_of(unset, 80)}, not a list of names of settings")
    else:
        names = items(() if unset is None else unset, "unset")
        problems += [f"there is no setting {repr_of(one, 80)}" for one in names if not is_setting(one)]
    if problems:
        raise _invalid(problems)
    wanted = as_settings({} if settings is None else settings)
    both = sorted({one.name for one in wanted} & set(names))
    if both:
        raise _invalid([f"{name} is to be set and unset" for name in both])
    return ChangeTopic(topic_id, partitions, tuple(added), wider, wanted, tuple(names))


def evolve(
    schema: TopicSchema,
    partitions: int,
    change: ChangeTopic,
    settings: tuple[TopicSetting, ...] = (),
    first: Collection[str] | None = None,
) -> AlterTopic:
    """Return the operation that changes a topic with this newest schema, so many partitions and these settings.

    ``first``: the columns that the topic was created with; None: those of the schema.

    Raises InvalidInputError of kind ``invalid-alter``, with every problem: the topic cannot change like that, or would stay as it is.
    """
    problems: list[str] = []
    count = partitions if change.partitions is None else change.partitions
    if change.partitions is not None and not partitions < count <= PARTITIONS_MAX:
        problems.append(
            f"the topic has {partitions} partitions and cannot have {count}: they only grow, to at most {PARTITIONS_MAX}"
        )
    sets = bool(change.settings or change.unset)
    if change.partitions is None and not change.add and not change.widen and not sets:
        problems.append("nothing to change: give partitions, add_columns, widen, settings or unset")
    fields = _columns(_widened(schema, change.widen, problems), change.add, problems)
    changes = bool(change.add or change.widen)
    if changes and schema.schema_id + 1 >= SCHEMAS_MAX:
        problems.append(f"the topic has had {SCHEMAS_MAX} schemas, the most that are possible")
    if problems or fields is None:
        raise _invalid(problems)
    found = changed_settings(settings, change.settings, change.unset) if sets else None
    newest = replace(schema, arrow_schema=fields)
    if found is not None:
        check_cleanup(found, newest, schema.arrow_schema.names if first is None else first)
    check_filters(settings if found is None else found, newest)
    return AlterTopic(
        change.topic_id,
        count,
        schema.schema_id + int(changes),
        tuple(fields_to_json(fields)) if changes else None,
        settings=found,
    )


def _invalid(problems: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(problems, kind=KIND, hint="nothing was changed; look at the topic with describe")


def _widened(
    schema: TopicSchema, widen: Iterable[tuple[str, pa.DataType]], problems: list[str]
) -> dict[str, pa.DataType]:
    """Return the types of the topic's columns after widening."""
    types = {field.name: field.type for field in schema.arrow_schema}
    for name, wanted in widen:
        if name not in types:
            problems.append(f"there is no column {repr_of(name)} to widen")
            continue
        try:
            (field,) = canonical_schema(pa.schema([pa.field(name, wanted)]))
        except InvalidInputError as error:
            problems += error.problems
            continue
        if name in schema.key_columns:
            problems.append(
                f"column {repr_of(name)} is a key column, whose type decides the partitions of records and cannot "
                "change"
            )
        elif not is_wider(field.type, types[name]):
            problems.append(
                f"column {repr_of(name)} is {types[name]} and cannot become {wanted}: only int8 to int16 to int32 to "
                "int64, float32 to float64, and decimals with no fewer digits before and after the point"
            )
        else:
            types[name] = field.type
    return types


def _columns(
    types: Mapping[str, pa.DataType], add: Iterable[pa.Field], problems: list[str]
) -> pa.Schema | None:
    """Return the topic's columns and the added ones."""
    add = tuple(add)
    problems += [
        f"column {field.name!r:.300} cannot be NOT NULL: older records have none"
        for field in add
        if not field.nullable
    ]
    try:
        found = canonical_schema(pa.schema([*(pa.field(name, type_) for name, type_ in types.items()), *add]))
        check_readable(pa.schema(list(found)[len(types) :]))
        return found
    except InvalidInputError as error:
        problems += error.problems
        return None
