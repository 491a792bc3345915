"""Key compaction, the reading side: which record of each key is the latest, and which records stay.

The first look reads keys from the first record that was not compared yet, as far as the map has room; the
second one holds every record below that against the map. Keys are known by a hash of 128 bits that is keyed
anew in each run.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.columns.key_bytes import encode_keys
from txnformat.core.lifecycle.offset_map import OffsetMap
from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.cleanup import tombstones
from txnformat.core.topics.schema import KAFKA_SCHEMA, TopicSchema
from txnformat.errors import ConflictError
from txnformat.persistent import Rows
from txnformat.reading.plan import plan_range
from txnformat.reading.rows import read_rows
from txnformat.reading.sealed import SidecarCache
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Kept", "Latest", "Look", "may_have_chunks"]

HASH_BYTES = 16


class Kept(NamedTuple):
    """The records of a range that stay, counted."""

    removed: int
    first_tombstone: int
    """Offset of the first tombstone that stays and was compared; none: the end of what was compared."""


class Look(NamedTuple):
    """The committed records of a partition, read for their keys."""

    sidecars: SidecarCache
    state: LogState
    topic: TopicState
    key: TopicPartition
    tombstone_column: str | None
    seed: bytes
    """Seed of the hashes: at most 64 bytes, different in each run."""

    def batches(self, within: OffsetRange, *columns: str) -> Iterator[pa.RecordBatch]:
        """Yield the keys, the tombstone column, ``columns`` and the offsets of a range."""
        plan = plan_range(self.sidecars, self.state, self.key, within)
        schema = self.topic.schema
        wanted = dict.fromkeys([*schema.key_columns, *columns, "_offset"])
        if self.tombstone_column is not None:
            wanted[self.tombstone_column] = None
        yield from read_rows(
            self.sidecars.store,
            self.topic.name,
            schema,
            self.key.partition,
            plan.partitions[0].rows,
            plan.files.__getitem__,
            list(wanted),
        )

    def latest(self, within: OffsetRange, slots_max: int, due_end: int) -> Latest:
        """Return the latest records of a range, or of its beginning when there are more keys than
        ``slots_max``.

        ``due_end``: tombstones below may go. Raises ConflictError of kind ``chunks-in-compacted-topic``.
        """
        found = OffsetMap(slots_max)
        headers = ("headers",) if may_have_chunks(self.topic.schema) else ()
        for batch in self.batches(within, *headers) if within.start < within.end else ():
            if headers:
                _check_chunks(batch, self.topic.name, self.key.partition)
            offsets, hashes, has_key = self.keys(batch)
            taken = found.put(hashes, offsets[has_key])
            if taken < len(hashes):
                return Latest(self, found, int(offsets[has_key][taken]), due_end)
        return Latest(self, found, within.end, due_end)

    def keys(self, batch: pa.RecordBatch) -> tuple[Rows, Rows, Rows]:
        """Return the offsets, the hashes of the keys that are there, and whether each is there."""
        keys = encode_keys([batch.column(name) for name in self.topic.schema.key_columns])
        has_key: Rows = keys.is_valid().to_numpy(zero_copy_only=False)
        digests = b"".join(
            blake2b(key, digest_size=HASH_BYTES, key=self.seed).digest()
            for key in keys.to_pylist()
            if key is not None
        )
        hashes: Rows = np.frombuffer(digests, "<u8").astype(np.uint64).reshape(-1, 2)
        return batch.column("_offset").to_numpy(), hashes, has_key


class Latest:
    """Which records of a partition stay."""

    def __init__(self, look: Look, found: OffsetMap, end: int, due_end: int) -> None:
        self._look = look
        self._found = found
        self.end = end
        """Records from here on stay (inclusive): the map does not know their keys."""
        self._due_end = due_end

    def at(self, state: LogState) -> Latest:
        """Return the same for a later state."""
        topic = state.topics[self._look.key.topic_id]
        return Latest(self._look._replace(state=state, topic=topic), self._found, self.end, self._due_end)

    def keep(self, batch: pa.RecordBatch) -> Rows:
        """Return a mask of the records that stay; the batch has the keys, the tombstone column and the
        offsets.
        """
        return self._verdict(batch)[0]

    def _verdict(self, batch: pa.RecordBatch) -> tuple[Rows, Rows]:
        offsets, hashes, has_key = self._look.keys(batch)
        latest = np.full(len(offsets), -1, np.int64)
        latest[has_key] = self._found.latest(hashes)
        keep = offsets >= latest  # the winner is by offset
        column = self._look.tombstone_column
        if column is None:
            return keep, np.zeros(len(offsets), bool)
        deletes = tombstones(batch.column(column)).to_numpy(zero_copy_only=False) & has_key
        keep &= ~(deletes & (offsets < self._due_end))
        return keep, deletes & keep & (offsets < self.end)

    def count(self, within: OffsetRange) -> Kept:
        """Read a range, and count what goes."""
        removed, first = 0, self.end
        for batch in self._look.batches(within):
            keep, deletes = self._verdict(batch)
            removed += len(keep) - int(np.count_nonzero(keep))
            if deletes.any():
                first = min(first, int(batch.column("_offset").to_numpy()[deletes][0]))
        return Kept(removed, first)


def may_have_chunks(schema: TopicSchema) -> bool:
    """Return whether a topic can have values in several records: its schema has the headers of the schema
    ``kafka``.
    """
    names = schema.arrow_schema.names
    type_ = KAFKA_SCHEMA.arrow_schema.field("headers").type
    return "headers" in names and bool(schema.arrow_schema.field("headers").type.equals(type_))


def _check_chunks(batch: pa.RecordBatch, topic: str, partition: int) -> None:
    names: Any = pc.struct_field(pc.list_flatten(batch.column("headers")), "key")
    if pc.any(pc.equal(names, CHUNK_HEADER)).as_py():
        raise ConflictError(
            "the topic has values in several records, of which the latest record of a key is only a part: "
            "its keys are not compacted",
            kind="chunks-in-compacted-topic",
            hint="set cleanup.policy=delete, or remove the records with delete-records; nothing was removed",
            topic=topic,
            partition=partition,
        )
