"""The Iceberg table of a topic in the store: read it, create its next version, let the hint name it, remove
old versions.

Steps without IO of their own.

A version exists once its metadata file does, which one conditional request creates. Manifests come before;
their names have the hash of their bytes, so those of a publisher that loses a version are never another
one's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from txnformat import keys
from txnformat.digits import whole
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.protocol.effects import PutObject, Steps
from txnformat.protocol.reads import get_object, list_keys
from txnformat.views.delta_actions import corrupt_view
from txnformat.views.delta_log import create_once
from txnformat.views.iceberg_manifests import Manifest, checked, decode_list, decode_manifest
from txnformat.views.iceberg_metadata import Metadata, decode_metadata, is_ours
from txnformat.views.iceberg_table import IcebergTable, IcebergVersion, key_of

__all__ = ["IcebergFound", "create_iceberg", "follow_iceberg", "old_iceberg_keys", "write_hint"]


class IcebergFound(NamedTuple):
    """A table as it was found in the store."""

    table: IcebergTable
    problem: ConflictError | CorruptDataError | None = None
    """Why the newest version is not one that txnlog published, or cannot be read; the table then has its
    number, and its files if they can be read."""


def follow_iceberg(
    known: IcebergTable, directory: str, topic_id: str, *, strict: bool = True
) -> Steps[IcebergFound]:
    """Return a table as it is now. ``known``: as this process saw it last; ``IcebergTable()`` at first.

    ``strict``: raise about a newest version that another program wrote, ConflictError of kind
    ``view-changed``, and about one that cannot be decoded, CorruptDataError of kind ``corrupt-view``.
    Requests: 1 LIST for each 1,000 versions; if there is a new one 1 GET for it, 1 for its manifest list, and
    1 for each manifest that is not known.
    """
    found = yield from list_keys(f"{keys.iceberg_prefix(directory)}v")
    names = [name for key in found if (name := keys.iceberg_name(key)) is not None]
    newest = max((name.version for name in names if name.is_metadata), default=0)
    if newest == known.version:
        return IcebergFound(known)
    if newest == 0:
        return IcebergFound(IcebergTable())
    key = keys.iceberg_version_key(directory, newest)
    table = IcebergTable(newest)
    problem: ConflictError | CorruptDataError | None = None
    try:
        data = yield from get_object(key)
        if data is None:
            raise _changed(key, topic_id, "the version is gone")
        metadata = decode_metadata(data, key)
        if not is_ours(metadata, newest, topic_id):
            problem = _changed(key, topic_id, "another program wrote the version")
        manifests = yield from _manifests(known, metadata, directory)
        table = IcebergTable(newest, _entry(metadata), metadata, manifests)
    except (ConflictError, CorruptDataError) as error:
        problem = problem or error
    if strict and problem is not None:
        raise problem
    return IcebergFound(table, problem)


def _entry(metadata: Metadata) -> int:
    """Return the entry that a version says it shows."""
    snapshot = metadata.snapshot
    return -1 if snapshot is None else snapshot.entry


def _manifests(known: IcebergTable, metadata: Metadata, directory: str) -> Steps[tuple[Manifest, ...]]:
    snapshot = metadata.snapshot
    if snapshot is None:
        return ()
    data = yield from _needed(snapshot.manifest_list, metadata, directory)
    by_path = {one.listed.path: one for one in known.manifests}
    found = []
    for listed in decode_list(data, snapshot.manifest_list):
        manifest = by_path.get(listed.path)
        if manifest is None:
            data = yield from _needed(listed.path, metadata, directory)
            manifest = decode_manifest(data, listed, listed.path)
            for path in (*manifest.files, *manifest.gone):
                key_of(path, metadata.location, directory)
        found.append(manifest)
    return tuple(found)


def _needed(path: str, metadata: Metadata, directory: str) -> Steps[bytes]:
    key = key_of(path, metadata.location, directory)
    data = yield from get_object(key)
    if data is None:
        raise corrupt_view(key, "no such object")
    return checked(data, key)


def _changed(key: str, topic_id: str, got: str) -> ConflictError:
    return ConflictError(
        "the published view was changed by another program",
        kind="view-changed",
        hint="the log is not affected; publish with rebuild=True (--rebuild) to rebuild the whole table",
        object=key,
        topic_id=topic_id,
        got=got,
    )


def create_iceberg(directory: str, version: IcebergVersion) -> Steps[bool]:
    """Create a version of a table; return False if another process was faster.

    Requests: 1 conditional PUT, and 1 for each manifest and manifest list.
    """
    for key, data in version.objects:
        if (yield from create_once(key, data)) != data:
            raise corrupt_view(key, "other bytes under a name with the hash of the bytes")
    key = keys.iceberg_version_key(directory, version.table.version)
    return (yield from create_once(key, version.data)) == version.data


def write_hint(directory: str, table: IcebergTable, *, is_new: bool) -> Steps[IcebergTable]:
    """Let the hint name a version.

    ``is_new``: this process has just made it; else the hint is looked at first, and not set back from a later
    version.

    Requests: 1 PUT; if the version is not new 1 GET, and 1 more if the hint names a later one.
    """
    key = keys.iceberg_hint_key(directory)
    named = 0
    if not is_new:
        text = (yield from get_object(key)) or b""
        named = whole(text.decode("ascii", "replace"), 18) or 0
    if named > table.version and (yield from get_object(keys.iceberg_version_key(directory, named))) is None:
        named = 0
    if named < table.version:
        yield PutObject(key, str(table.version).encode())
    return replace(table, is_hinted=True)


def old_iceberg_keys(directory: str, topic_id: str, before_ms: int) -> Steps[list[str]]:
    """Return the objects that only readers of old versions need: of versions below the newest one that was
    made before a time.

    Versions from that one on can be read. Metadata files come first, ascending. Requests: 1 LIST for each
    1,000 objects, 2 GETs.
    """
    found = yield from list_keys(keys.iceberg_prefix(directory))
    names = {key: name for key in found if (name := keys.iceberg_name(key)) is not None}
    made: dict[int, int] = {}
    for name in names.values():
        if name.snapshot:
            made[name.version] = max(name.snapshot, made.get(name.version, 0))
    there = {name.version for name in names.values() if name.is_metadata}
    first = max((version for version in there if 0 < made.get(version, 0) < before_ms), default=0)
    if not first:
        return []
    key = keys.iceberg_version_key(directory, first)
    data = yield from get_object(key)
    metadata = None if data is None else decode_metadata(data, key)
    snapshot = None if metadata is None else metadata.snapshot
    if metadata is None or snapshot is None or not is_ours(metadata, first, topic_id):
        return []  # it does not say what it needs
    # A manifest is in the lists of consecutive versions: if this version does not list it, no later one does.
    listed = decode_list((yield from _needed(snapshot.manifest_list, metadata, directory)), key)
    needed = {key_of(one.path, metadata.location, directory) for one in listed}
    old = [(name, key) for key, name in names.items() if 0 < name.version < first and key not in needed]
    old.sort(key=lambda one: (not one[0].is_metadata, one[0].version))
    return [key for _, key in old]
