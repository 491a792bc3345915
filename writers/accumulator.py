"""Buffering by (topic, partition): many small sends become few large batches. No IO.

The names are Kafka's: records accumulate until a batch is full, or too much is held in all; sequences are assigned
when batches are drained, not when they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from txnformat.errors import NotFoundError
from txnformat.state import TopicState
from txnformat.types import TopicPartition
from writers.partitioner import assign_partitions, round_robin

__all__ = ["Accumulator", "DrainedBatch", "distribute"]


@dataclass(frozen=True, slots=True)
class DrainedBatch:
    """A batch that is ready to be written."""

    topic: TopicState
    partition: int
    table: pa.Table


@dataclass(slots=True)
class _Buffer:
    topic: TopicState
    tables: list[pa.Table] = field(default_factory=list)
    size: int = 0


class Accumulator:
    """Holds records that are sent and not yet written.

    Parameters
    ----------
    batch_bytes : int
        A partition that holds this much is drained.
    buffer_bytes : int
        When all partitions together hold this much, the largest are drained first.
    """

    def __init__(self, batch_bytes: int, buffer_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._size

    def __bool__(self) -> bool:
        """Return whether anything is held."""
        return bool(self._buffers)

    def add(self, topic: TopicState, partition: int, table: pa.Table) -> None:
        """Hold the records of one send to one partition."""
        buffer = self._buffers.setdefault(TopicPartition(topic.topic_id, partition), _Buffer(topic))
        # At least a byte each: rows of nulls and empty texts must fill a buffer too.
        size = max(table.nbytes, table.num_rows)
        buffer.tables.append(table)
        buffer.size += size
        self._size += size

    def drain_full(self) -> Iterator[DrainedBatch]:
        """Yield what must be written now: full batches, then the largest until enough room is left."""
        for key in [key for key, buffer in self._buffers.items() if buffer.size >= self._batch_bytes]:
            yield from self._drain(key)
        while self._size >= self._buffer_bytes:
            yield from self._drain(max(self._buffers, key=lambda key: self._buffers[key].size))

    def drain_all(self) -> Iterator[DrainedBatch]:
        """Yield everything, by topic and partition."""
        for key in sorted(self._buffers):
            yield from self._drain(key)

    def _drain(self, key: TopicPartition) -> Iterator[DrainedBatch]:
        """Take a partition's records out, cut into batches of about ``batch_bytes``."""
        buffer = self._buffers.pop(key)
        self._size -= buffer.size
        whole = pa.concat_tables(buffer.tables) if len(buffer.tables) > 1 else buffer.tables[0]
        if len(buffer.tables) > 1:
            whole = whole.combine_chunks()
        count = max(1, round(buffer.size / self._batch_bytes))
        rows = -(-whole.num_rows // count)
        for start in range(0, whole.num_rows, rows):
            yield DrainedBatch(buffer.topic, key.partition, whole.slice(start, rows))

    def clear(self) -> None:
        """Forget everything."""
        self._buffers.clear()
        self._size = 0


def distribute(
    topic: TopicState, table: pa.Table, partition: int | None, next_partition: int
) -> tuple[list[tuple[int, pa.Table]], int]:
    """Return which records of one send go to which partition, and whose turn is next.

    Parameters
    ----------
    partition : int or None
        The partition for all; None: by the topic's key columns, else the whole send to the partition whose turn it is.

    Raises
    ------
    NotFoundError
        Kind ``unknown-partition``.
    """
    if partition is not None:
        if type(partition) is not int or not 0 <= partition < topic.partitions:
            raise NotFoundError(
                "no such partition",
                kind="unknown-partition",
                hint=f"the topic has partitions 0 to {topic.partitions - 1}",
                topic=topic.name,
                partition=partition,
            )
        return [(partition, table)], next_partition
    if not topic.schema.key_columns:
        turn, following = round_robin(next_partition, topic.partitions)
        return [(turn, table)], following
    if topic.partitions == 1:
        return [(0, table)], 0
    keys = [table.column(name) for name in topic.schema.key_columns]
    numbers, following = assign_partitions(keys, topic.partitions, next_partition)
    found = np.unique(numbers)
    if len(found) == 1:
        return [(int(found[0]), table)], following
    order = np.argsort(numbers, kind="stable")  # records of one partition keep their order
    bounds = np.searchsorted(numbers[order], found, side="right")
    pieces = np.split(order, bounds[:-1])
    return [(int(number), table.take(piece)) for number, piece in zip(found, pieces, strict=True)], following
