"""An Iceberg table as a value, and the version that makes it show another entry. Pure.

A version is a metadata file with one snapshot more, or two: where files were only written together, a
snapshot says so, and newer records come with the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from txnformat import keys
from txnformat.core.state import TopicState
from txnformat.errors import ConflictError, InvalidInputError
from txnformat.file_urls import unescaped
from txnformat.views.delta_actions import corrupt_view
from txnformat.views.iceberg_manifests import (
    DataFile,
    Manifest,
    RemovedFile,
    digest_of,
    encode_list,
    encode_manifest,
)
from txnformat.views.iceberg_metadata import (
    Logged,
    Metadata,
    Ref,
    Schema,
    Snapshot,
    encode_metadata,
    properties_of,
    summary_of,
)
from txnformat.views.iceberg_names import SCHEMA_PROPERTY, known_columns, moves_names
from txnformat.views.iceberg_types import iceberg_schema
from txnformat.views.wanted import Wanted, is_rearranged

__all__ = [
    "MANIFESTS_MAX",
    "SNAPSHOTS_MAX",
    "IcebergTable",
    "IcebergVersion",
    "key_of",
    "location_of",
    "next_version",
    "without_old",
]

MANIFESTS_MAX = 20
"""Manifests of a version, as a rule: then small ones are written together."""
MANIFEST_FILES = 5_000
"""A manifest with as many files is large."""
SNAPSHOTS_MAX = 200
"""Snapshots that a metadata file names. Older ones are the current ones of older metadata files."""


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table after some version; 0: there is none."""

    version: int = 0
    entry: int = -1
    """The entry that it shows."""
    metadata: Metadata | None = None
    """Metadata of the newest version; None: there is no version, or it cannot be decoded."""
    manifests: tuple[Manifest, ...] = ()
    is_hinted: bool = False
    """This process has seen that the hint names the version."""

    @property
    def files(self) -> dict[str, DataFile]:
        """The files that the table has, by path."""
        return {path: one for manifest in self.manifests for path, one in manifest.files.items()}

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot."""
        return None if self.metadata is None else self.metadata.snapshot


class IcebergVersion(NamedTuple):
    """The next version of a table."""

    objects: tuple[tuple[str, bytes], ...]
    """The objects that have to be there before the metadata file, by key: manifests and manifest lists."""
    data: bytes
    """The metadata file."""
    table: IcebergTable
    """The table after it."""
    added: int
    """Files."""
    removed: int


class _Step(NamedTuple):
    """A snapshot to be made."""

    operation: str
    added: Sequence[Wanted]
    removed: Collection[str]
    """Paths."""
    entry: int
    """The entry that it shows."""


SCHEMES = {"": "", "file": "file", "s3": "s3", "s3a": "s3"}
"""Schemes that paths may have, each with that of the roots which it fits; the empty one fits all."""


def location_of(url: str, scheme: str, directory: str, topic: str) -> str:
    """Return the location of a topic's table, in a root with this URL.

    ``scheme``: that of its paths; empty: the root's own.

    Raises InvalidInputError of kind ``wrong-view-scheme``: other engines cannot reach the root, or not by
    this scheme.
    """
    own, _, path = unescaped(url).partition("://")
    if own not in ("file", "s3") or SCHEMES[scheme] not in ("", own):
        raise InvalidInputError(
            f"paths of an Iceberg table cannot begin with {scheme or own}:// in a root with the URL {url}",
            kind="wrong-view-scheme",
            hint="Iceberg tables are for roots on a local disk (publish.iceberg.scheme unset or file) and "
            "on S3 (unset, s3 or s3a); else publish as delta",
            topic=topic,
        )
    return f"{scheme or own}://{path.rstrip('/')}/{keys.iceberg_location(directory)}"


def key_of(path: str, location: str, directory: str) -> str:
    """Return the key of an object that a table names; CorruptDataError of kind ``corrupt-view`` if it is not
    one of its topic.
    """
    base = location.removesuffix(keys.iceberg_location(directory))
    key = path.removeprefix(base)
    data = keys.parse_data_key(key)
    if base == location or key == path or not key.startswith(f"{directory}/"):
        raise corrupt_view(path, "an object that is not in the directory of the topic")
    if data is None and keys.iceberg_name(key) is None:
        raise corrupt_view(path, "an object that no table of txnlog has")
    return key


def next_version(
    table: IcebergTable,
    topic: TopicState,
    location: str,
    wanted: Collection[Wanted],
    entry: int,
    now_ms: int,
    hold_ms: int,
    *,
    rebuild: bool = False,
) -> IcebergVersion | None:
    """Return the version that makes a table show files at an entry; None: it shows just that.

    ``hold_ms``: how long snapshots and removed files are remembered. ``rebuild``: state everything again,
    whatever the table has. Raises ConflictError of kind ``view-elsewhere``: the table was published for a
    root in another place.
    """
    known = table.metadata
    base = location.removesuffix(keys.iceberg_location(topic.directory)) + f"{topic.directory}/"
    paths = {base + one.path: one for one in wanted}
    files = table.files
    new = [one for path, one in paths.items() if path not in files]
    gone = [path for path in files if path not in paths]
    schema = None if known is None else known.schema
    had = known_columns(topic.schema, known)
    columns = iceberg_schema(
        topic.schema.arrow_schema,
        topic.name,
        had.ids,
        0 if known is None else known.last_column_id,
        had.aliases,
        had.others,
    )
    moved = known is not None and known.location != location
    if known is not None and moved and not rebuild:
        _check_same_place(known.location, location, topic)
    same_schema = schema is not None and schema.fields == columns.fields
    restated = rebuild or moved or known is None or moves_names(known, columns.name_mapping)
    tombstones: list[RemovedFile] = []
    if restated:
        old = base if known is None else known.location.removesuffix("_iceberg")
        tombstones = _remembered(table, old, base, paths)
        steps = [_Step("append" if table.version == 0 else "overwrite", list(wanted), (), entry)]
        table = replace(table, manifests=())
    elif not gone and not new and same_schema:
        return None
    else:
        steps = _steps(table, wanted, new, gone, entry)
    build = _Build(table, topic, location, columns.fields, now_ms, now_ms - hold_ms, is_restated=restated)
    for step in steps:
        build.snapshot(step, tombstones)
        tombstones = []
    version = table.version + 1
    properties = properties_of(version, entry, topic.name, columns.name_mapping)
    if topic.schema.places:
        properties[SCHEMA_PROPERTY] = str(topic.schema.schema_id)
    metadata = build.metadata(columns.last_id, properties)
    after = IcebergTable(version, entry, metadata, tuple(build.manifests))
    added = sum(len(step.added) for step in steps)
    return IcebergVersion(tuple(build.objects), encode_metadata(metadata), after, added, len(gone))


def _check_same_place(known: str, location: str, topic: TopicState) -> None:
    if known.partition("://")[2] != location.partition("://")[2]:
        raise ConflictError(
            "the Iceberg table was published for a root in another place, and its paths are absolute",
            kind="view-elsewhere",
            hint="publish where the root was, or with rebuild=True (--rebuild) to rebuild the whole table "
            "for this place",
            topic=topic.name,
            published=known,
            here=location,
        )


def _steps(
    table: IcebergTable, wanted: Collection[Wanted], new: Sequence[Wanted], gone: Sequence[str], entry: int
) -> list[_Step]:
    """Return the snapshots that lead to the wanted files."""
    if not gone:
        return [_Step("append", new, (), entry)]
    records = sum(one.rows for one in table.files.values())
    if not is_rearranged(table.entry, records, wanted):
        return [_Step("overwrite" if new else "delete", new, gone, entry)]
    newer = [one for one in new if one.max_entry > table.entry]
    together = [one for one in new if one.max_entry <= table.entry]
    if not newer:
        return [_Step("replace", together, gone, entry)]
    return [_Step("replace", together, gone, table.entry), _Step("append", newer, (), entry)]


def _remembered(table: IcebergTable, old: str, base: str, paths: Collection[str]) -> list[RemovedFile]:
    """Return what is to be remembered of a table that is stated anew with ``paths``; 0 as the snapshot that
    removes a file: the next one.

    ``old``, ``base``: what its paths and those of the new one begin with.
    """
    found = [one for manifest in table.manifests for one in manifest.gone.values()]
    found += [RemovedFile(file, 0) for manifest in table.manifests for file in manifest.files.values()]
    moved = [
        one._replace(file=one.file._replace(path=base + one.file.path.removeprefix(old))) for one in found
    ]
    return [one for one in moved if one.file.path not in paths]


def without_old(table: IcebergTable, before_ms: int) -> set[str]:
    """Return the paths of the files that a table has, or had at a time or later."""
    return {
        path
        for manifest in table.manifests
        for path in (
            *manifest.files,
            *(path for path, one in manifest.gone.items() if one.snapshot >= before_ms),
        )
    }


class _Build:
    """A version in the making."""

    def __init__(
        self,
        table: IcebergTable,
        topic: TopicState,
        location: str,
        fields: tuple[Mapping[str, object], ...],
        now_ms: int,
        old_ms: int,
        *,
        is_restated: bool,
    ) -> None:
        """Begin. ``is_restated``: with a history of its own."""
        known = table.metadata
        self._version = table.version + 1
        self._topic, self._location, self._old_ms = topic, location, old_ms
        self._root = location.removesuffix(keys.iceberg_location(topic.directory))
        schema = None if known is None else known.schema
        self._schemas = () if known is None else known.schemas
        if schema is None or schema.fields != fields:
            last = max((one.schema_id for one in self._schemas), default=-1)
            schema = Schema(schema_id=last + 1, fields=fields)
            self._schemas = (*self._schemas, schema)
        self._schema = schema
        snapshots = () if known is None else known.snapshots
        is_new = is_restated or known is None
        self._parent = None if is_new or known is None else known.current_snapshot_id
        self._snapshots = [] if is_new else [one for one in snapshots if one.timestamp_ms >= old_ms]
        self._sequence = 0 if known is None else known.last_sequence_number
        self._ms = max(now_ms, 1 + max((one.snapshot_id for one in snapshots), default=0))
        self.manifests: list[Manifest] = list(table.manifests)
        self.objects: list[tuple[str, bytes]] = []

    def snapshot(self, step: _Step, tombstones: Sequence[RemovedFile]) -> None:
        """Add a snapshot with its manifests."""
        id_, self._sequence = self._ms, self._sequence + 1
        self._ms += 1
        removed = set(step.removed)
        manifests = [kept for one in self.manifests for kept in self._kept(one, removed, id_)]
        small = [one for one in manifests if sum(one.listed.files) < MANIFEST_FILES]
        if len(manifests) >= MANIFESTS_MAX and len(small) > 1:
            large = [one for one in manifests if sum(one.listed.files) >= MANIFEST_FILES]
            manifests = large + self._together(small, id_)
        base = f"{self._root}{self._topic.directory}/"
        added = [DataFile(base + one.path, one.size, one.rows, id_, self._sequence) for one in step.added]
        gone = [one._replace(snapshot=one.snapshot or id_) for one in tombstones]
        manifests += self._made(id_, added=added, gone=self._recent(gone))
        self.manifests = manifests
        live = [file for one in manifests for file in one.files.values()]
        snapshot = Snapshot(
            snapshot_id=id_,
            parent_snapshot_id=self._parent,
            sequence_number=self._sequence,
            timestamp_ms=id_,
            manifest_list="",
            summary=summary_of(
                step.operation,
                step.entry,
                added_data_files=len(added),
                added_records=sum(one.rows for one in added),
                deleted_data_files=len(removed) + sum(one.snapshot == 0 for one in tombstones),
                total_data_files=len(live),
                total_records=sum(one.rows for one in live),
                total_files_size=sum(one.size for one in live),
                total_delete_files=0,
                total_position_deletes=0,
                total_equality_deletes=0,
            ),
            schema_id=self._schema.schema_id,
        )
        data = encode_list(snapshot, manifests)
        key = keys.iceberg_list_key(self._topic.directory, id_, self._version, digest_of(data))
        self.objects.append((key, data))
        self._snapshots.append(msgspec.structs.replace(snapshot, manifest_list=self._root + key))
        self._parent = id_

    def _kept(self, one: Manifest, removed: set[str], id_: int) -> list[Manifest]:
        """Return what becomes of a manifest: itself, another one without the removed files, or nothing."""
        recent = self._recent(one.gone.values())
        hit = sorted(removed & one.files.keys())
        if not hit:
            return [one] if one.files or recent else []
        left = [file for path, file in one.files.items() if path not in removed]
        return self._made(
            id_, existing=left, gone=[*recent, *(RemovedFile(one.files[path], id_) for path in hit)]
        )

    def _together(self, manifests: Sequence[Manifest], id_: int) -> list[Manifest]:
        """Return manifests written together."""
        return self._made(
            id_,
            existing=[file for one in manifests for file in one.files.values()],
            gone=self._recent(last for one in manifests for last in one.gone.values()),
        )

    def _recent(self, gone: Iterable[RemovedFile]) -> list[RemovedFile]:
        return [one for one in gone if one.snapshot >= self._old_ms]

    def _made(
        self,
        id_: int,
        *,
        added: Sequence[DataFile] = (),
        existing: Sequence[DataFile] = (),
        gone: Sequence[RemovedFile] = (),
    ) -> list[Manifest]:
        if not (added or existing or gone):
            return []
        data, made = encode_manifest(
            self._schema, id_, self._sequence, added=added, existing=existing, gone=gone
        )
        key = keys.iceberg_manifest_key(self._topic.directory, self._version, digest_of(data))
        self.objects.append((key, data))
        return [replace(made, listed=made.listed._replace(path=self._root + key))]

    def metadata(self, last_column_id: int, properties: Mapping[str, str]) -> Metadata:
        """Return the version."""
        snapshots = tuple(self._snapshots[-SNAPSHOTS_MAX:])
        used = {one.schema_id for one in snapshots} | {self._schema.schema_id}
        tags = {f"entry-{one.entry}": Ref(snapshot_id=one.snapshot_id, type="tag") for one in snapshots}
        return Metadata(
            table_uuid=self._topic.topic_id,
            location=self._location,
            last_sequence_number=self._sequence,
            last_updated_ms=snapshots[-1].timestamp_ms,
            last_column_id=last_column_id,
            schemas=tuple(one for one in self._schemas if one.schema_id in used),
            current_schema_id=self._schema.schema_id,
            properties=properties,
            current_snapshot_id=snapshots[-1].snapshot_id,
            snapshots=snapshots,
            snapshot_log=tuple(
                Logged(snapshot_id=one.snapshot_id, timestamp_ms=one.timestamp_ms) for one in snapshots
            ),
            refs={"main": Ref(snapshot_id=snapshots[-1].snapshot_id, type="branch"), **tags},
        )
