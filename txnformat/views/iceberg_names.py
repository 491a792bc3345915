"""Ids of an Iceberg table for a topic whose columns were renamed or dropped: a column's id is its place's,
whatever it is called.

Pure.

Segment files have no ids, so engines find columns by the name mapping, which has one for all snapshots. A
name in it stands for the column that is called so now; else for the only place that ever had the name. Where
a name gets to stand for another column than in the version before, older snapshots could not be read any
more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from txnformat.core.topics.schema import TopicSchema
from txnformat.digits import whole
from txnformat.views.iceberg_metadata import NAME_MAPPING, Metadata
from txnformat.views.iceberg_types import STORED_IDS, Path, ids_of, mapping_of

__all__ = ["SCHEMA_PROPERTY", "KnownColumns", "known_columns", "moves_names"]

SCHEMA_PROPERTY = "txnlog.schema"
"""Property of a table: the version of the topic's schema that it has. A table lacks it whose topic has had no
column renamed or dropped."""
DROPPED_IDS = STORED_IDS + 1_000
"""The first id of columns that were dropped before the table had them."""


class KnownColumns(NamedTuple):
    """The columns of a topic as a table has them, by the names of the topic's newest version."""

    ids: Mapping[Path, int]
    """Ids that the table has given."""
    aliases: Mapping[str, tuple[str, ...]]
    """Further names that a column has had, and no other one."""
    others: tuple[Mapping[str, Any], ...]
    """The mapping of columns that were dropped."""


def known_columns(schema: TopicSchema, table: Metadata | None) -> KnownColumns:
    """Return what a published table (None: there is none) has of a topic's columns."""
    published = None if table is None else table.schema
    if not schema.places:
        return KnownColumns({} if published is None else ids_of(published.fields), {}, ())
    version = 0 if table is None else _version(schema, table)
    names = dict(zip(schema.places_of(schema.schema_id), schema.arrow_schema.names, strict=True))
    then = _places(schema, version)
    ids = {
        (names[then[path[0]]], *path[1:]): id_
        for path, id_ in ({} if published is None else ids_of(published.fields)).items()
        if then.get(path[0]) in names
    }
    owners = _owners(schema)
    aliases = {
        name: tuple(
            sorted(
                other
                for other, owner in owners.items()
                if owner == place and other != name and "." not in other
            )
        )
        for place, name in names.items()
    }
    return KnownColumns(
        ids, aliases, tuple(_others(schema, owners, version, () if table is None else _mapping(table)))
    )


def moves_names(table: Metadata, mapping: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a name of a published table's mapping stands for another column in this one, or for
    none.
    """
    ids = {name: one["field-id"] for one in mapping for name in one["names"]}
    return any(ids.get(name) != one["field-id"] for one in _mapping(table) for name in one["names"])


def _version(schema: TopicSchema, table: Metadata) -> int:
    """Return the version of the topic's schema by whose names a table was published: without the property any
    one before the first in which a name changed.
    """
    stated = whole(table.properties.get(SCHEMA_PROPERTY, ""), 4)
    if stated is not None and stated <= schema.schema_id:
        return stated
    return next(number for number, places in enumerate(schema.stated_places()) if places)


def _mapping(table: Metadata) -> tuple[Mapping[str, Any], ...]:
    try:
        return tuple(msgspec.json.decode(table.properties.get(NAME_MAPPING, "[]"), type=list[dict[str, Any]]))
    except msgspec.MsgspecError:  # of another program, whose version is refused or stated anew
        return ()


def _places(schema: TopicSchema, version: int) -> dict[str, int]:
    return dict(zip(schema.version(version).names, schema.places_of(version), strict=True))


def _owners(schema: TopicSchema, version: int | None = None) -> dict[str, int]:
    """Return the place that each name stands for in a version (None: the newest): that of the column which is
    called so, letter case aside; else the only one that ever was; else one that is empty by now.
    """
    last = schema.schema_id if version is None else version
    now = _places(schema, last)
    current = {name.casefold(): place for name, place in now.items()}
    ever: dict[str, set[int]] = {}
    for number in range(last + 1):
        for name, place in _places(schema, number).items():
            ever.setdefault(name, set()).add(place)
    folded: dict[str, set[int]] = {}
    for name, places in ever.items():
        folded.setdefault(name.casefold(), set()).update(places)
    found = {}
    for name in ever:
        places = folded[name.casefold()]
        empty = sorted(places - set(now.values()))
        if name in now:
            found[name] = now[name]
        elif name.casefold() in current:
            if places == {current[name.casefold()]}:
                found[name] = current[name.casefold()]
        elif len(places) == 1:
            (found[name],) = places
        elif empty:
            found[name] = empty[0]
    return found


def _others(
    schema: TopicSchema, owners: Mapping[str, int], version: int, mapping: Iterable[Mapping[str, Any]]
) -> Iterable[Mapping[str, Any]]:
    """Yield the mapping of columns that were dropped: engines want an id for every column of a file."""
    then = _owners(schema, version)
    known = {then[name]: one for one in mapping for name in one["names"] if name in then}
    last = max([DROPPED_IDS - 1, *(id_ for one in mapping for id_ in _ids_in(one))])
    for place, field in schema.dropped():
        names = sorted(name for name, owner in owners.items() if owner == place)
        if not names:
            continue
        if place in known:
            yield {**known[place], "names": names}
        else:
            made, last = mapping_of(field, last)
            yield {**made, "names": names}


def _ids_in(mapping: Mapping[str, Any]) -> Iterable[int]:
    yield mapping["field-id"]
    for one in mapping.get("fields", ()):
        yield from _ids_in(one)
