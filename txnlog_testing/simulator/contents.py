"""Real files with real records for the clients of a simulated history: what keys, erasures and readers are
judged by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from txnformat import keys
from txnformat.core.operations import CreateTopic
from txnformat.core.state import TopicState
from txnformat.core.topics.creation import new_topic
from txnformat.persistent import replace
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.base import ObjectStore
from txnformat.store.uploads import HeldWriter
from txnformat.types import BatchRecord, FileRecord

__all__ = ["DELETE_RETENTION_MS", "KEYS", "Contents", "Row", "keyed_topic"]

KEYS = 4
"""Different keys of a topic."""
DELETE_RETENTION_MS = 3_600_000
"""So long tombstones stay."""
_SCHEMA = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), pa.field("k", pa.int64()), pa.field("gone", pa.bool_())]
)
_SETTINGS: dict[str, int | str] = {
    "cleanup.policy": "compact,delete",
    "min.compaction.lag.ms": 0,
    "delete.retention.ms": DELETE_RETENTION_MS,
    "tombstone.column": "gone",
}


def keyed_topic(name: str, partitions: int, topic_id: str) -> CreateTopic:
    """Return the operation that creates a topic with a key column; all but ``audit`` keep the latest record
    of each key.
    """
    settings = {} if name == "audit" else _SETTINGS
    return new_topic(name, _SCHEMA, topic_id, partitions=partitions, key_columns=["k"], settings=settings)


class Row(NamedTuple):
    """One record that a client has uploaded."""

    n: int
    """No other record has it."""
    k: int
    gone: bool
    """A tombstone."""


class Uploaded(NamedTuple):
    """A file that was written."""

    file: FileRecord
    batches: tuple[BatchRecord, ...]
    payload: tuple[bytes, ...]
    """Its bytes, if it is for an entry; empty: it is in the store."""


class Contents:
    """Writes files, and knows what is in them.

    Parameters
    ----------
    store : ObjectStore
        Without faults: an upload that fails is no part of what is simulated.
    tip : callable
        Returns the newest entry.
    """

    def __init__(
        self, rng: Random, new_id: Callable[[], str], store: ObjectStore, tip: Callable[[], int]
    ) -> None:
        self._rng = rng
        self._new_id = new_id
        self._store = store
        self._tip = tip
        self._numbers = count()
        self.rows: dict[str, tuple[Row, ...]] = {}
        """Rows of each batch, by its digest."""
        self.batch_of: dict[int, str] = {}
        """Digest of the batch that has a number."""
        self.uploaded: dict[str, int] = {}
        """The newest entry when a batch was uploaded, by digest."""

    def upload(
        self,
        topic: TopicState,
        born: int,
        schema_id: int,
        records: Sequence[tuple[int, int, str]],
        *,
        is_embedded: bool,
    ) -> Uploaded:
        """Write one file. ``records``: partition, number of records, and digest of each batch."""
        key = keys.data_key(topic.directory, born, self._new_id())
        digest = "0" * 64
        schema = topic.schema.of_file(FileRecord(key, 1, digest, 1, digest, 1, schema_id=schema_id)).stored
        held = HeldWriter()
        writer = SegmentFileWriter(
            held if is_embedded else self._store.open_write(key), key, schema, is_small=True
        )
        batches = []
        for partition, number, name in records:
            rows = tuple(
                Row(next(self._numbers), self._rng.randrange(KEYS), self._rng.random() < 0.2)
                for _ in range(number)
            )
            self.rows[name] = rows
            self.uploaded[name] = self._tip()
            self.batch_of |= dict.fromkeys((row.n for row in rows), name)
            batches.append(writer.write_batch(partition, _table(rows, schema)))
        file = replace(writer.close(), schema_id=schema_id)
        return Uploaded(file, tuple(batches), (held.data() or b"",) if is_embedded else ())


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    values: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in Row._fields}
    columns = [
        pa.array(values[field.name], field.type) if field.name in values else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
