"""Manifests: which versions of which tables show one entry.

Tables that are read at the versions of one manifest join without a torn transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

from txnformat import keys
from txnformat.arguments import whole
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnformat.file_urls import unescaped
from txnformat.protocol.effects import Steps
from txnformat.protocol.reads import get_object, list_keys
from txnformat.views.delta_actions import corrupt_view
from txnformat.views.delta_log import create_once

__all__ = ["Manifest", "TableAt", "ViewTable", "newest_manifest", "view_tables", "write_manifest"]

NUMBERS_MAX = 1_000


class TableAt(Struct, frozen=True):
    """A topic in a manifest."""

    name: str
    directory: str
    """Directory of the table, relative to the root."""
    version: int
    location: str | msgspec.UnsetType = msgspec.UNSET
    """Where an Iceberg table says it is, with the scheme of its paths."""
    snapshot_id: int | msgspec.UnsetType = msgspec.UNSET
    """The snapshot of an Iceberg table that is current in this version."""


class Manifest(Struct, frozen=True):
    """A publication."""

    format: str
    """"delta", "delta-offsets" or "iceberg"."""
    log_id: str
    entry: int
    timestamp_ms: int
    """The store's time."""
    topics: Mapping[str, TableAt]
    """The tables, by topic id."""


class ViewTable(NamedTuple):
    """A table to read, at a version: of Delta ``versionAsOf`` in Spark, ``version`` in deltalake; of Iceberg
    :attr:`metadata`, or ``snapshot-id`` in Spark.
    """

    topic: str
    topic_id: str
    path: str
    """The table's directory, as a URL."""
    version: int
    entry: int
    """The entry that this version shows."""
    snapshot_id: int | None = None
    """The snapshot of an Iceberg table that is current in this version; None: it is a Delta table."""

    @property
    def metadata(self) -> str:
        """URL of the metadata file that is this version of an Iceberg table.

        InvalidInputError of kind ``unknown-view-format``: it is a Delta table.
        """
        if self.snapshot_id is None:
            raise InvalidInputError(
                f"the table of topic {repr_of(self.topic, 80)} is one of Delta, which has no metadata file",
                kind="unknown-view-format",
                hint='read path and version, or ask for published_tables(format="iceberg")',
            )
        return f"{self.path}/metadata/v{self.version}.metadata.json"


def write_manifest(manifest: Manifest, *, is_likely: bool = False) -> Steps[str]:
    """Write a manifest, unless one at its entry has all of it; return the key. Requests: 1 conditional PUT.

    ``is_likely``: there may well be one, so it is looked for first. Requests: 1 GET, and 1 conditional PUT if
    there is none.
    """
    key = ""
    for number in range(NUMBERS_MAX):
        key = keys.manifest_key(manifest.entry, number, manifest.format)
        data = msgspec.json.encode(manifest)
        known_data = (yield from get_object(key)) if is_likely else None
        found = known_data or (yield from create_once(key, data))
        if found == data:
            return key
        known = _decode(found, key)
        if manifest.topics.items() <= known.topics.items():
            return key
        manifest = msgspec.structs.replace(manifest, topics={**known.topics, **manifest.topics})
    raise corrupt_view(key, "too many manifests of one entry")


def newest_manifest(entry: int | None = None, format_: str = "delta") -> Steps[Manifest]:
    """Return the newest manifest of a format, or the last one of an entry.

    Raises NotFoundError of kind ``not-published``. Requests: 1 LIST, 1 GET.
    """
    if entry is not None:
        whole("entry", entry)
    found = yield from list_keys(keys.manifest_prefix(format_))
    named = [(name, key) for key in found if (name := keys.manifest_name(key)) is not None]
    wanted = [one for one in named if entry is None or one[0].entry == entry]
    if wanted:
        key = max(wanted)[1]
        data = yield from get_object(key)
        if data is not None:
            return _decode(data, key)
    if not named:
        raise NotFoundError(
            f"the log has no tables of format {format_}",
            kind="not-published",
            hint=f"publish first: txnlog publish --format {format_}",
        )
    raise NotFoundError(
        "no such publication",
        kind="not-published",
        hint=f"use an entry that was published, such as {max(named)[0].entry}",
        entry=entry,
    )


def view_tables(manifest: Manifest, url: str) -> dict[str, ViewTable]:
    """Return the tables of a manifest of a root with this URL, by topic."""
    found = {}
    for topic_id, one in manifest.topics.items():
        path = (
            one.location if isinstance(one.location, str) else f"{unescaped(url).rstrip('/')}/{one.directory}"
        )
        snapshot = one.snapshot_id if isinstance(one.snapshot_id, int) else None
        found[one.name] = ViewTable(one.name, topic_id, path, one.version, manifest.entry, snapshot)
    return dict(sorted(found.items()))


def _decode(data: bytes, key: str) -> Manifest:
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise corrupt_view(key, str(error)) from None
