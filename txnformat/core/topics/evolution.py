"""How a topic may change: partitions are added, columns are added, renamed and dropped, types grow, settings
are set.

Pure.

A change is only ever one that old files can be read under: a column that they lack is null, each of their
values has exactly one value of the wider type, and a column is found by its place. So nothing is rewritten,
and writers of an older version go on.
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
from txnformat.core.topics.renaming import as_names, problems_of_names, renamed
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.topics.settings import as_settings, changed_settings, is_setting
from txnformat.errors import InternalError, InvalidInputError, repr_of
from txnformat.field_types import PARTITIONS_MAX, SCHEMAS_MAX

__all__ = ["as_change", "evolve", "next_version"]

KIND = "invalid-alter"


def next_version(schema: TopicSchema, fields: object, places: Sequence[int] = ()) -> TopicSchema | None:
    """Return the version of a schema after ``schema`` that metadata describes; None if it may not follow.

    ``places``: of the columns, where some are dropped or have other names; empty: all columns stay under
    their names.

    Raises CorruptDataError of kind ``corrupt-schema`` when the fields are none.
    """
    old, new = schema.arrow_schema, fields_from_json(list(fields) if isinstance(fields, tuple) else fields)
    if schema.schema_id + 1 >= SCHEMAS_MAX:
        return None
    known = schema.places_of(schema.schema_id)
    free = schema.next_place
    if places:
        wanted = tuple(places)
        kept = sum(place < free for place in wanted)
        is_made = (
            len(wanted) == len(new)
            and wanted[kept:] == tuple(range(free, free + len(new) - kept))
            and set(wanted[:kept]) <= set(known)
            and list(wanted[:kept]) == sorted(set(wanted[:kept]))
        )
    else:
        wanted = (*known, *range(free, free + len(new) - len(old)))
        is_made = len(new) >= len(old) and not new.equals(old)
    if not is_made:
        return None
    names = {}
    before = dict(zip(known, old, strict=True))
    changes = len(before.keys() - set(wanted)) > 0
    for place, after in zip(wanted, new, strict=True):
        field = before.get(place)
        if field is None:
            continue
        names[field.name] = after.name
        changes |= field.name != after.name
        stays = field.type.equals(after.type)
        if not (stays or (is_wider(after.type, field.type) and field.name not in schema.key_columns)):
            return None
    needed = {*schema.key_columns, *([] if schema.timestamp_column is None else [schema.timestamp_column])}
    if changes != bool(places) or not needed <= names.keys():
        return None  # that nothing is dropped or renamed is said in one way only: by no places
    all_places: tuple[tuple[int, ...], ...] = ()
    if places or schema.places:
        all_places = (*(tuple(schema.places_of(number)) for number in range(schema.schema_id + 1)), wanted)
    return replace(
        schema,
        arrow_schema=new,
        key_columns=tuple(names[name] for name in schema.key_columns),
        timestamp_column=None if schema.timestamp_column is None else names[schema.timestamp_column],
        earlier=(*schema.earlier, old),
        places=all_places,
    )


def as_change(
    topic_id: str,
    partitions: int | None,
    add_columns: Any,
    widen: object,
    settings: object = None,
    unset: object = None,
    rename: object = None,
    drop: object = None,
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
    pairs, dropped = as_names(rename, drop, problems)
    if problems:
        raise _invalid(problems)
    wanted = as_settings({} if settings is None else settings)
    both = sorted({one.name for one in wanted} & set(names))
    if both:
        raise _invalid([f"{name} is to be set and unset" for name in both])
    return ChangeTopic(topic_id, partitions, tuple(added), wider, wanted, tuple(names), pairs, dropped)


def evolve(
    schema: TopicSchema,
    partitions: int,
    change: ChangeTopic,
    settings: tuple[TopicSetting, ...] = (),
    erased: Collection[str] = (),
) -> AlterTopic:
    """Return the operation that changes a topic with this newest schema, so many partitions and these
    settings.

    ``erased``: columns that the conditions of its erasures name, of those that are not complete.

    Raises InvalidInputError of kind ``invalid-alter``, with every problem: the topic cannot change like that,
    or would stay as it is.
    """
    problems: list[str] = []
    count = partitions if change.partitions is None else change.partitions
    if change.partitions is not None and not partitions < count <= PARTITIONS_MAX:
        problems.append(
            f"the topic has {partitions} partitions and cannot have {count}: they only grow, to at most "
            f"{PARTITIONS_MAX}"
        )
    sets = bool(change.settings or change.unset)
    names_change = bool(change.rename or change.drop)
    changes = bool(change.add or change.widen) or names_change
    if change.partitions is None and not changes and not sets:
        problems.append(
            "nothing to change: give partitions, add_columns, widen, rename, drop, settings or unset"
        )
    problems += problems_of_names(schema, change, settings, erased)
    if problems and names_change:
        raise _invalid(problems)
    wider = replace(schema, arrow_schema=pa.schema(list(_widened(schema, change.widen, problems).items())))
    left, places = renamed(wider, change, problems)
    if problems and names_change:
        raise _invalid(problems)
    fields = _columns(left, change.add, problems)
    if changes and schema.schema_id + 1 >= SCHEMAS_MAX:
        problems.append(f"the topic has had {SCHEMAS_MAX} schemas, the most that are possible")
    if problems or fields is None:
        raise _invalid(problems)
    found = changed_settings(settings, change.settings, change.unset) if sets else None
    stated = (*places, *range(schema.next_place, schema.next_place + len(change.add))) if names_change else ()
    operation = AlterTopic(
        change.topic_id,
        count,
        schema.schema_id + int(changes),
        tuple(fields_to_json(fields)) if changes else None,
        settings=found,
        places=stated,
    )
    newest = schema if operation.fields is None else next_version(schema, operation.fields, stated)
    if newest is None:
        raise InternalError("a schema does not follow the one before it", schema_id=operation.schema_id)
    if found is not None or names_change:
        check_cleanup(settings if found is None else found, newest, newest.first_columns)
    check_filters(settings if found is None else found, newest)
    return operation


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
                f"column {repr_of(name)} is a key column, whose type decides the partitions of records "
                "and cannot "
                "change"
            )
        elif not is_wider(field.type, types[name]):
            problems.append(
                f"column {repr_of(name)} is {types[name]} and cannot become {wanted}: only int8 to int16 "
                "to int32 to "
                "int64, float32 to float64, and decimals with no fewer digits before and after the point"
            )
        else:
            types[name] = field.type
    return types


def _columns(columns: pa.Schema, add: Iterable[pa.Field], problems: list[str]) -> pa.Schema | None:
    """Return the topic's columns and the added ones."""
    add = tuple(add)
    problems += [
        f"column {field.name!r:.300} cannot be NOT NULL: older records have none"
        for field in add
        if not field.nullable
    ]
    try:
        found = canonical_schema(pa.schema([*columns, *add]))
        check_readable(pa.schema(list(found)[len(columns) :]))
        return found
    except InvalidInputError as error:
        problems += error.problems
        return None
