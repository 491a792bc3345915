"""What a task of a batch write does: records to partitions, partitions to batches, batches to uploaded files."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa

from txnformat.conform import conform
from txnformat.schema import TopicSchema
from writers.partitioner import split_by_partition

__all__ = ["BATCH_BYTES", "BUFFER_BYTES", "Rechunker", "distribute"]

BATCH_BYTES = 8 * 2**20
"""Arrow bytes from which on buffered records of a partition become a batch."""

BUFFER_BYTES = 64 * 2**20
"""Arrow bytes of all partitions together from which on the largest one becomes a batch early."""


class Rechunker:
    """Buffers tables by partition until each makes a batch worth having: Spark's own are often small.

    Parameters
    ----------
    emit : callable
        Takes (partition, table): one batch.
    """

    def __init__(
        self,
        emit: Callable[[int, pa.Table], None],
        *,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self._emit = emit
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._tables: dict[int, list[pa.Table]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, partition: int, table: pa.Table) -> None:
        """Take records of one partition; their order is kept."""
        if not table.num_rows:
            return
        self._tables.setdefault(partition, []).append(table)
        self._sizes[partition] = self._sizes.get(partition, 0) + table.nbytes
        if self._sizes[partition] >= self._batch_bytes:
            self._flush(partition)
        while sum(self._sizes.values()) > self._buffer_bytes:
            self._flush(max(self._sizes, key=lambda number: (self._sizes[number], -number)))

    def finish(self) -> None:
        """Emit what is left, by partition."""
        for partition in sorted(self._tables):
            self._flush(partition)

    def _flush(self, partition: int) -> None:
        table = pa.concat_tables(self._tables.pop(partition)).combine_chunks()
        size = self._sizes.pop(partition)
        # Records vary in size, so pieces are about equal in rows, not exactly in bytes.
        pieces = min(max(1, size // self._batch_bytes), table.num_rows)
        bounds = [table.num_rows * piece // pieces for piece in range(pieces + 1)]
        for start, end in itertools.pairwise(bounds):
            self._emit(partition, table.slice(start, end - start))


def distribute(
    batches: Iterator[pa.RecordBatch],
    names: tuple[str, ...],
    schema: TopicSchema,
    partition_count: int,
    first_turn: int,
    sink: Rechunker,
) -> None:
    """Send the records of a task to their partitions.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        As Spark gives them.
    names : tuple of str
        Column names to take in place of Spark's.
    first_turn : int
        Partition that the first records without a key go to: tasks begin at different ones, so that many small
        tasks do not all fill partition 0.

    Raises
    ------
    InvalidInputError
        Kind ``schema-mismatch``: a value that the topic's type cannot hold.
    """
    turn = first_turn
    for batch in batches:
        table = conform(pa.Table.from_batches([batch]).rename_columns(list(names)), schema.arrow_schema)
        if not table.num_rows:
            continue
        parts, turn = split_by_partition(table, schema.key_columns, partition_count, turn)
        for partition, part in parts:
            sink.add(partition, part)
