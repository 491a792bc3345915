"""The metadata file of an Iceberg table (format version 2), declared, and as bytes. Pure.

Names of fields are those of Iceberg's specification, with hyphens. Fields that txnlog does not write are
ignored when a version is read: :func:`is_ours` tells versions that others have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from txnformat.digits import whole
from txnformat.version import __version__
from txnformat.views.delta_actions import ENTRY_PROPERTY, corrupt_view

__all__ = [
    "NAME_MAPPING",
    "NOWHERE",
    "VERSION_PROPERTY",
    "Metadata",
    "Ref",
    "Schema",
    "Snapshot",
    "decode_metadata",
    "encode_metadata",
    "is_ours",
    "properties_of",
    "summary_of",
]

VERSION_PROPERTY = "txnlog.version"
"""Property of a table: the number of its metadata file. A program that copies the properties into another one
has a wrong number there."""
NAME_MAPPING = "schema.name-mapping.default"
"""Iceberg's property: which names of columns in files stand for which ids."""
NOWHERE = "txnlog-read-only://the-table-is-written-by-txnlog-alone"
"""A place that no engine can write to."""
_READ_ONLY = {
    "gc.enabled": "false",
    "write.data.path": NOWHERE,
    "write.metadata.path": NOWHERE,
}
"""Properties of each table: no engine deletes a file, and none has a place for files and metadata of its own.
"""


class Snapshot(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A snapshot of a table."""

    snapshot_id: int
    """The store's time of the publication in milliseconds, or more: ids rise."""
    parent_snapshot_id: int | None = None
    sequence_number: int
    timestamp_ms: int
    manifest_list: str
    summary: Mapping[str, str]
    schema_id: int

    @property
    def entry(self) -> int:
        """The entry that it shows; -1: it does not say."""
        text = self.summary.get(ENTRY_PROPERTY, "")
        found = whole(text, 20)
        return -1 if found is None else found


class Schema(Struct, frozen=True, kw_only=True, rename="kebab"):
    """The columns of a table."""

    type: str = "struct"
    schema_id: int
    fields: tuple[Mapping[str, Any], ...]


class Ref(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A name of a snapshot."""

    snapshot_id: int
    type: str


class Spec(Struct, frozen=True, kw_only=True, rename="kebab"):
    """How a table is divided: not at all."""

    spec_id: int = 0
    fields: tuple[Mapping[str, Any], ...] = ()


class Order(Struct, frozen=True, kw_only=True, rename="kebab"):
    """How a table is sorted: not at all."""

    order_id: int = 0
    fields: tuple[Mapping[str, Any], ...] = ()


class Logged(Struct, frozen=True, kw_only=True, rename="kebab"):
    """When a snapshot became the newest one."""

    snapshot_id: int
    timestamp_ms: int


class Metadata(Struct, frozen=True, kw_only=True, rename="kebab"):
    """A version of a table."""

    format_version: Literal[2] = 2
    table_uuid: str
    """The topic's id."""
    location: str
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    schemas: tuple[Schema, ...]
    current_schema_id: int
    partition_specs: tuple[Spec, ...] = (Spec(),)
    default_spec_id: int = 0
    last_partition_id: int = 999
    sort_orders: tuple[Order, ...] = (Order(),)
    default_sort_order_id: int = 0
    properties: Mapping[str, str]
    current_snapshot_id: int
    snapshots: tuple[Snapshot, ...]
    """Ascending; the last one is current."""
    snapshot_log: tuple[Logged, ...] = ()
    metadata_log: tuple[Mapping[str, Any], ...] = ()
    refs: Mapping[str, Ref] = field(default_factory=dict)

    @property
    def snapshot(self) -> Snapshot | None:
        """The current snapshot."""
        return next((one for one in self.snapshots if one.snapshot_id == self.current_snapshot_id), None)

    @property
    def schema(self) -> Schema | None:
        """The current columns."""
        return next((one for one in self.schemas if one.schema_id == self.current_schema_id), None)


_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Metadata)


def encode_metadata(metadata: Metadata) -> bytes:
    """Return the bytes of a version."""
    return _ENCODER.encode(metadata)


def decode_metadata(data: bytes, key: str) -> Metadata:
    """Return a version. Raises CorruptDataError of kind ``corrupt-view``."""
    try:
        return _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt_view(key, str(error)) from None


def is_ours(metadata: Metadata, version: int, topic_id: str) -> bool:
    """Return whether txnlog wrote a version of a topic's table, of this number."""
    properties, snapshot = metadata.properties, metadata.snapshot
    return (
        metadata.table_uuid == topic_id
        and properties.get(VERSION_PROPERTY) == str(version)
        and snapshot is not None
        and snapshot.entry >= 0
        and properties.get(ENTRY_PROPERTY) == str(snapshot.entry)
    )


def properties_of(
    version: int, entry: int, name: str, mapping: tuple[Mapping[str, Any], ...]
) -> dict[str, str]:
    """Return the properties of a version. ``name``: of the topic."""
    return {
        **_READ_ONLY,
        NAME_MAPPING: msgspec.json.encode(mapping).decode(),
        "txnlog.topic": name,
        VERSION_PROPERTY: str(version),
        ENTRY_PROPERTY: str(entry),
    }


def summary_of(operation: str, entry: int, **counts: int) -> dict[str, str]:
    """Return the summary of a snapshot. ``counts``: Iceberg's own, with underscores for hyphens."""
    return {
        "operation": operation,
        ENTRY_PROPERTY: str(entry),
        "engine-name": "txnlog",
        "engine-version": __version__,
        **{name.replace("_", "-"): str(count) for name, count in counts.items()},
    }
