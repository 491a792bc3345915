"""The checkpoint of a Delta table: all of it as one Parquet file, so that readers need no older version.

Pure.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from txnformat.views.delta_actions import Line, Txn, corrupt_view
from txnformat.views.delta_table import DeltaTable, folded

__all__ = ["decode_checkpoint", "encode_checkpoint", "encode_hint"]

_TEXTS = pa.map_(pa.string(), pa.string())
_LIST = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        (
            "txn",
            pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("extendedFileMetadata", pa.bool_()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", _LIST),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", _LIST),
                    ("writerFeatures", _LIST),
                ]
            ),
        ),
    ]
)
_MAPS = ("partitionValues", "options", "configuration")


def encode_checkpoint(table: DeltaTable, topic_id: str) -> bytes:
    """Return the bytes of a table's checkpoint."""
    rows = [msgspec.to_builtins(line) for line in _lines(table, topic_id)]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="snappy")
    return sink.getvalue()


def _lines(table: DeltaTable, topic_id: str) -> Iterator[Line]:
    yield Line(protocol=table.protocol)
    yield Line(metaData=table.metadata)
    yield Line(txn=Txn(appId=topic_id, version=table.entry, lastUpdated=table.published_ms))
    for add in table.files.values():
        yield Line(add=msgspec.structs.replace(add, dataChange=False))
    for remove in table.removed.values():
        yield Line(remove=msgspec.structs.replace(remove, dataChange=False))


def encode_hint(table: DeltaTable, size: int) -> bytes:
    """Return the bytes of ``_last_checkpoint``. ``size``: of the checkpoint, in bytes."""
    actions = 3 + len(table.files) + len(table.removed)
    return msgspec.json.encode(
        {
            "version": table.version,
            "size": actions,
            "sizeInBytes": size,
            "numOfAddFiles": len(table.files),
        }
    )


def decode_checkpoint(data: bytes, key: str, version: int, topic_id: str) -> DeltaTable:
    """Return the table that a checkpoint holds, also one that another engine wrote.

    Raises CorruptDataError of kind ``corrupt-view``.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        names = [name for name in _SCHEMA.names if name in file.schema_arrow.names]
        rows = file.read(names).to_pylist(maps_as_pydicts="lossy")
        lines = [msgspec.convert(_plain(row), Line) for row in rows]
    except (pa.ArrowException, OSError, ValueError, msgspec.ValidationError) as error:
        raise corrupt_view(key, str(error)) from None
    times = [
        line.txn.lastUpdated or 0 for line in lines if line.txn is not None and line.txn.appId == topic_id
    ]
    table = folded(DeltaTable(), topic_id, [(version, lines)])
    return replace(table, checkpoint=version, published_ms=max(times, default=0))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without the members that are null."""
    return {name: _members(value) for name, value in row.items() if value is not None}


def _members(value: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _members(one) if isinstance(one, dict) and name not in _MAPS else one
        for name, one in value.items()
        if one is not None
    }
