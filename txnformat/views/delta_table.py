"""A Delta table as a value: what its versions come to, and the version that makes it show another entry.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from txnformat.core.state import TopicState
from txnformat.views.delta_actions import (
    ENGINE,
    ENTRY_PROPERTY,
    READ_ONLY,
    Add,
    CommitInfo,
    Format,
    Line,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from txnformat.views.delta_types import DeltaSchema
from txnformat.views.wanted import Wanted, is_rearranged

__all__ = [
    "CHECKPOINT_VERSIONS",
    "Change",
    "DeltaTable",
    "change_of",
    "folded",
    "without_tombstones",
]

CHECKPOINT_VERSIONS = 50
"""Versions from one checkpoint to the next."""
_CENTURY = "interval 36525 days"
_PROPERTIES = {
    "delta.deletedFileRetentionDuration": _CENTURY,
    "delta.logRetentionDuration": _CENTURY,
    "delta.enableExpiredLogCleanup": "false",
}
"""Properties of each table: no other engine deletes a file or a version."""


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table after some version; -1: there is none."""

    version: int = -1
    entry: int = -1
    """The entry that it shows."""
    published_ms: int = 0
    """The store's time at which the version was made."""
    checkpoint: int = -1
    """The newest version with a checkpoint."""
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: Mapping[str, Add] = field(default_factory=dict)
    """The files that it has, by path."""
    removed: Mapping[str, Remove] = field(default_factory=dict)
    """Files that older versions have, by path."""


class _Stats(msgspec.Struct):
    """The statistics of a file, as far as they are read."""

    numRecords: int = -1  # Delta's name


class Change(NamedTuple):
    """The next version of a table."""

    lines: Sequence[Line]
    added: int
    """Files."""
    removed: int


def folded(table: DeltaTable, topic_id: str, versions: Iterable[tuple[int, Sequence[Line]]]) -> DeltaTable:
    """Return the table after some versions, given by number and ascending."""
    files, removed = dict(table.files), dict(table.removed)
    version, entry, published_ms = table.version, table.entry, table.published_ms
    protocol, metadata = table.protocol, table.metadata
    for number, lines in versions:
        version = number
        for line in lines:
            protocol = line.protocol or protocol
            metadata = line.metaData or metadata
            if line.txn is not None and line.txn.appId == topic_id:
                entry = line.txn.version
            if line.commitInfo is not None and line.commitInfo.timestamp is not None:
                published_ms = line.commitInfo.timestamp
            if line.remove is not None:
                files.pop(line.remove.path, None)
                removed[line.remove.path] = line.remove
            if line.add is not None:
                files[line.add.path] = line.add
                removed.pop(line.add.path, None)
    return DeltaTable(version, entry, published_ms, table.checkpoint, protocol, metadata, files, removed)


def without_tombstones(table: DeltaTable, before_ms: int) -> DeltaTable:
    """Return a table that forgets what was removed before a time (exclusive)."""
    kept = {path: one for path, one in table.removed.items() if (one.deletionTimestamp or 0) >= before_ms}
    return replace(table, removed=kept)


def change_of(
    table: DeltaTable,
    topic: TopicState,
    schema: DeltaSchema,
    wanted: Mapping[str, Wanted],
    entry: int,
    now_ms: int,
    *,
    rebuild: bool = False,
) -> Change | None:
    """Return the version that makes a table show ``wanted``, files by path, at an entry; None: it shows just
    that.

    ``rebuild``: state everything again, whatever the table has.
    """
    gone = [path for path in table.files if path not in wanted]
    new = [one for path, one in wanted.items() if rebuild or path not in table.files]
    protocol = _protocol(schema)
    metadata = _metadata(table, topic, schema, entry, now_ms)
    same_schema = table.metadata is not None and table.metadata.schemaString == schema.text
    if not (rebuild or gone or new) and same_schema and table.protocol == protocol:
        return None
    rearranged = is_rearranged(table.entry, sum(map(_records, table.files.values())), wanted.values())
    lines = [
        Line(
            commitInfo=CommitInfo(
                timestamp=now_ms,
                operation="REBUILD" if rebuild else "PUBLISH",
                operationParameters={"entry": str(entry)},
                engineInfo=ENGINE,
                entry=entry,
            )
        ),
        Line(txn=Txn(appId=topic.topic_id, version=entry, lastUpdated=now_ms)),
        Line(metaData=metadata),
    ]
    if table.protocol != protocol or rebuild:
        lines.insert(1, Line(protocol=protocol))
    lines += [
        Line(
            remove=Remove(
                path=path,
                deletionTimestamp=now_ms,
                dataChange=not rearranged,
                extendedFileMetadata=True,
                partitionValues={},
                size=table.files[path].size,
            )
        )
        for path in gone
    ]
    lines += [Line(add=_add(one, table, now_ms, rearranged=rearranged)) for one in new]
    return Change(lines, len(new), len(gone))


def _add(one: Wanted, table: DeltaTable, now_ms: int, *, rearranged: bool) -> Add:
    is_known = one.path in table.files or (rearranged and one.max_entry <= table.entry)
    return Add(
        path=one.path,
        size=one.size,
        modificationTime=now_ms,
        dataChange=not is_known,
        stats=f'{{"numRecords":{one.rows}}}',
    )


def _records(add: Add) -> int:
    """Return how many records a file of a table has; -1: it does not say, as one of another program."""
    try:
        return msgspec.json.decode(add.stats or "{}", type=_Stats).numRecords
    except msgspec.MsgspecError:
        return -1


def _protocol(schema: DeltaSchema) -> Protocol:
    writer = tuple(sorted((*schema.features, READ_ONLY)))
    if schema.features:
        return Protocol(
            minReaderVersion=3, minWriterVersion=7, readerFeatures=schema.features, writerFeatures=writer
        )
    return Protocol(minReaderVersion=1, minWriterVersion=7, writerFeatures=writer)


def _metadata(table: DeltaTable, topic: TopicState, schema: DeltaSchema, entry: int, now_ms: int) -> Metadata:
    known = table.metadata
    return Metadata(
        id=topic.topic_id,
        name=topic.name,
        format=Format(),
        schemaString=schema.text,
        configuration={**_PROPERTIES, ENTRY_PROPERTY: str(entry)},
        createdTime=now_ms if known is None else known.createdTime,
    )
