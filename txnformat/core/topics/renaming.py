"""Columns of a topic that are renamed or dropped: which may be, and what the topic has afterwards. Pure.

A column is its place, so a name may change and a place may become empty without a change of any file. A name
that is free again belongs to another place, later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from txnformat.arguments import is_text, items
from txnformat.core.intents import ChangeTopic
from txnformat.core.operations import TopicSetting
from txnformat.core.topics.cleanup import is_like_kafka
from txnformat.core.topics.schema import KAFKA_SCHEMA, TopicSchema
from txnformat.core.topics.settings import SETTINGS
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["as_names", "problems_of_names", "renamed"]


def as_names(
    rename: object, drop: object, problems: list[str]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return what a user wants to rename, each (name, new name), and to drop; what is of the wrong kind goes
    to ``problems``.
    """
    if not isinstance(rename, Mapping | None):
        problems.append(f"rename is {repr_of(rename, 80)}, not a mapping of a column to its new name")
        rename = None
    pairs: tuple[tuple[Any, Any], ...] = tuple((rename or {}).items())
    problems += [
        f"rename has {repr_of(old, 80)}: {repr_of(new, 80)}, not the name of a column and its new one"
        for old, new in pairs
        if not is_text(old) or not is_text(new)
    ]
    names: list[Any] = []
    if isinstance(drop, str | bytes) or not isinstance(drop, Iterable | None):
        problems.append(f"drop is {repr_of(drop, 80)}, not a list of names of columns")
    else:
        names = items(() if drop is None else drop, "drop")
        problems += [f"drop has {repr_of(one, 80)}, not a name" for one in names if not is_text(one)]
    return pairs, tuple(names)


def problems_of_names(
    schema: TopicSchema,
    change: ChangeTopic,
    settings: Sequence[TopicSetting],
    erased: Collection[str],
) -> Iterable[str]:
    """Yield why columns cannot be renamed or dropped as a change says.

    ``settings``: of the topic before. ``erased``: columns that the conditions of its erasures name, of those
    that are not complete.
    """
    if not change.rename and not change.drop:
        return
    gone = (*(name for name, _ in change.rename), *change.drop)
    for name in dict.fromkeys(gone):
        if gone.count(name) > 1:
            yield f"column {repr_of(name)} is to be renamed or dropped twice"
        if name in schema.arrow_schema.names:
            yield from _holders(schema, change, settings, erased, name)
        else:
            yield f"there is no column {repr_of(name)} to rename or drop"
    yield from _problems_of_dropping(schema, change)
    yield from _problems_of_new_names(schema, change, gone)


def _holders(
    schema: TopicSchema,
    change: ChangeTopic,
    settings: Sequence[TopicSetting],
    erased: Collection[str],
    name: str,
) -> Iterable[str]:
    """Yield what needs a column under its name."""
    shown = repr_of(name)
    if change.schema_id is not None and _was_another(schema, change.schema_id, name):
        yield f"another client has given the name {shown} to another column meanwhile"
    if _is_of_kafka(schema, name):
        yield f'column {shown} is one of the schema "kafka", which says what its columns are called'
    if name in erased:
        yield (
            f"column {shown} is in the condition of an erasure that is not complete; complete or "
            "abandon it first"
        )
    if setting := _setting_of(name, settings, change):
        yield f"column {shown} is named by {setting}; set or unset that in the same call"


def _problems_of_dropping(schema: TopicSchema, change: ChangeTopic) -> Iterable[str]:
    for name in dict.fromkeys(change.drop):
        if name in schema.key_columns:
            yield f"column {repr_of(name)} is a key column and cannot be dropped"
        elif name == schema.timestamp_column:
            yield f"column {repr_of(name)} is the timestamp column and cannot be dropped"
        elif name in dict(change.widen):
            yield f"column {repr_of(name)} is to be widened and dropped"
    if set(schema.arrow_schema.names) <= set(change.drop):
        yield "a topic has at least one column, and all are to be dropped"


def _problems_of_new_names(schema: TopicSchema, change: ChangeTopic, gone: Sequence[str]) -> Iterable[str]:
    new = [name for _, name in change.rename]
    for name in dict.fromkeys(new):
        if name in schema.arrow_schema.names:
            yield f"column {repr_of(name)} exists, so no other one can get this name"
        elif new.count(name) > 1:
            yield f"two columns are to be called {repr_of(name)}"
    for field in change.add:
        if field.name in gone:
            yield (
                f"the name {repr_of(field.name)} is free for a new column only after this change: add "
                "it in a second call"
            )


def _was_another(schema: TopicSchema, schema_id: int, name: str) -> bool:
    """Return whether a name stood for another column in an earlier version, or for none."""
    return schema.of_version(schema_id).names.get(name) != name


def _is_of_kafka(schema: TopicSchema, name: str) -> bool:
    kafka = KAFKA_SCHEMA.arrow_schema
    return name in kafka.names and schema.version(0).equals(kafka)


def _setting_of(name: str, settings: Sequence[TopicSetting], change: ChangeTopic) -> str | None:
    """Return the setting that names a column, and stays."""
    changed = {one.name for one in change.settings} | set(change.unset)
    for one in settings:
        known = SETTINGS.get(one.name)
        if known is None or one.name in changed or not (known.is_column or known.is_columns):
            continue
        if name in {part.strip() for part in str(one.value).split(",")} or name == one.value:
            return one.name
    return None


def renamed(
    schema: TopicSchema, change: ChangeTopic, problems: list[str]
) -> tuple[pa.Schema, tuple[int, ...]]:
    """Return the topic's columns without those that are dropped, the others under their new names, and the
    places of these.

    Of a change for which :func:`problems_of_names` has found nothing.
    """
    names = dict(change.rename)
    pairs = [
        (field.with_name(names.get(field.name, field.name)), place)
        for field, place in zip(schema.arrow_schema, schema.places_of(schema.schema_id), strict=True)
        if field.name not in change.drop
    ]
    time = schema.timestamp_column
    columns = pa.schema([field for field, _ in pairs])
    places = tuple(place for _, place in pairs)
    if not change.rename and not change.drop:
        return columns, places
    try:
        found = TopicSchema(
            columns,
            tuple(names.get(name, name) for name in schema.key_columns),
            None if time is None else names.get(time, time),
        )
    except InvalidInputError as error:
        problems += error.problems
        return columns, places
    if change.rename and is_like_kafka(found) and not is_like_kafka(schema):
        problems.append(
            'the columns would be those of the schema "kafka", in which a null value deletes a record'
        )
    return columns, places
