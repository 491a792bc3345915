"""Which partition a record goes to: Kafka's murmur2 of its key, or the partition whose turn it is.

The same key gets the same partition as in Kafka: ``toPositive(murmur2(key bytes)) % partitions``
(``BuiltInPartitioner.partitionForKey``). The key's bytes are
:mod:`txnformat.columns.key_bytes`. A null in a single key column is no key at all: such
records go to the partition whose turn it is, as a null key does in Kafka.

Pure: the turn is the caller's state. It begins at a random partition, and moves on when a batch is full or
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from txnformat.columns.key_bytes import encode_keys
from txnformat.errors import InvalidInputError

__all__ = [
    "NO_PARTITION",
    "assign_partitions",
    "encode_keys",
    "murmur2",
    "murmur2_of_array",
    "partition_for_keys",
    "split_by_partition",
]

NO_PARTITION = -1
"""In place of a partition: the record has no key."""

SEED = 0x9747B28C
"""Kafka's."""

MULTIPLIER = 0x5BD1E995
SHIFT = 24
WORD_BYTES = 4
MASK = 0xFFFFFFFF

KEYS_AT_ONCE_MIN = 16
"""With fewer keys left that have a next word, a loop in Python beats numpy's cost per call."""

Hashes = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


def assign_partitions(
    columns: Sequence[Any], num_partitions: int, turn: int
) -> tuple[npt.NDArray[np.int32], int]:
    """Return the partition of every record of a batch, by key, else the whole batch's turn; and whose turn it
    is next.

    ``columns``: the key columns in the topic's order, of equal length. ``turn``: the partition whose turn it
    is, from the batch before (a random one at first; taken modulo ``num_partitions``). It passes on when a
    record had no key.
    """
    partitions = partition_for_keys(encode_keys(columns), num_partitions)
    keyless = partitions == NO_PARTITION
    if keyless.any():
        partitions[keyless] = turn % num_partitions
        turn = (turn + 1) % num_partitions
    return partitions, turn


def split_by_partition(
    table: Any, key_columns: Sequence[str], num_partitions: int, next_partition: int
) -> tuple[list[tuple[int, Any]], int]:
    """Return the records of a table by partition, ascending, their order kept, and whose turn it is next.

    ``table``: at least one row. ``key_columns``: empty: the whole table takes one turn. ``num_partitions``,
    ``next_partition``: as for :func:`assign_partitions`.
    """
    if not key_columns or num_partitions == 1:
        _check_partitions(num_partitions)
        return [(next_partition % num_partitions, table)], (next_partition + 1) % num_partitions
    keys = [table.column(name) for name in key_columns]
    partitions, next_partition = assign_partitions(keys, num_partitions, next_partition)
    numbers, counts = np.unique(partitions, return_counts=True)
    if len(numbers) == 1:
        return [(int(numbers[0]), table)], next_partition
    rows = table.take(np.argsort(partitions, kind="stable"))
    starts = np.cumsum(counts) - counts
    found = zip(numbers.tolist(), starts.tolist(), counts.tolist(), strict=True)
    return [(number, rows.slice(start, count)) for number, start, count in found], next_partition


def partition_for_keys(keys: Any, num_partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, NO_PARTITION for a null.

    ``keys``: encoded keys (:func:`encode_keys`); of any width of offsets, views and fixed-size included.
    ``num_partitions``: at least 1. Returns ndarray, shape (n,), int32: in [0, num_partitions), or
    NO_PARTITION.
    """
    _check_partitions(num_partitions)
    positive = murmur2_of_array(keys) & np.int32(0x7FFFFFFF)
    partitions = positive % np.int32(num_partitions)
    if keys.null_count:
        partitions[pc.is_null(keys).to_numpy(zero_copy_only=False)] = NO_PARTITION
    return partitions


def _check_partitions(num_partitions: int) -> None:
    if not 1 <= num_partitions < 2**31:
        raise InvalidInputError("the number of partitions must be at least 1", num_partitions=num_partitions)


# --- murmur2 ------------------------------------------------------------------------------------------------


def murmur2(key: bytes) -> int:
    """Return Kafka's hash of a key (``Utils.murmur2``): a signed 32-bit integer."""
    state = _after_words((SEED ^ len(key)) & MASK, key)
    tail = key[len(key) // WORD_BYTES * WORD_BYTES :]
    if tail:
        state = ((state ^ int.from_bytes(tail, "little")) * MULTIPLIER) & MASK
    state ^= state >> 13
    state = (state * MULTIPLIER) & MASK
    state ^= state >> 15
    return state - 2**32 if state >= 2**31 else state


def _after_words(state: int, data: bytes) -> int:
    """Return the state after all whole words of ``data``."""
    for position in range(0, len(data) - WORD_BYTES + 1, WORD_BYTES):
        word = (int.from_bytes(data[position : position + WORD_BYTES], "little") * MULTIPLIER) & MASK
        word ^= word >> SHIFT
        state = ((state * MULTIPLIER) ^ (word * MULTIPLIER)) & MASK
    return state


def murmur2_of_array(keys: Any) -> npt.NDArray[np.int32]:
    """Return :func:`murmur2` of each key; the values at nulls mean nothing.

    Returns: ndarray, shape (n,), int32.
    """
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    hashes = [_murmur2_of_chunk(chunk.cast(pa.large_binary())) for chunk in chunks if len(chunk)]
    return np.concatenate(hashes) if hashes else np.empty(0, np.int32)


def _murmur2_of_chunk(keys: Any) -> npt.NDArray[np.int32]:
    """Return the hashes of a large_binary array.

    Keys are sorted by length, longest first: those with an i-th word come first, and one step hashes them all
    at once.
    """
    offsets, data = _offsets_and_data(keys)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    starts = offsets[:-1][order]
    state: Hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    _mix_words(state, data, starts, lengths // WORD_BYTES)
    _mix_tails(state, data, starts, lengths)
    state ^= state >> np.uint32(13)
    state *= np.uint32(MULTIPLIER)
    state ^= state >> np.uint32(15)
    hashes = np.empty(len(state), np.int32)
    hashes[order] = state.view(np.int32)
    return hashes


def _mix_words(state: Hashes, data: Bytes, starts: Positions, words: Positions) -> None:
    """Mix the whole words of every key into ``state``, in place; ``words`` (how many) descends."""
    longest = int(words[0])
    if longest == 0:
        return
    # Words begin at any byte: a view with a stride of one byte reads each with one gather.
    word_at = np.ndarray((len(data) - WORD_BYTES + 1,), np.dtype("<u4"), data, strides=(1,))
    ascending = -words
    for index in range(longest):
        count = int(np.searchsorted(ascending, -index, "left"))  # of keys with more than ``index`` words
        if count < KEYS_AT_ONCE_MIN:
            for key in range(count):
                begin, end = int(starts[key]) + WORD_BYTES * index, int(starts[key] + WORD_BYTES * words[key])
                state[key] = _after_words(int(state[key]), data[begin:end].tobytes())
            return
        word = word_at[starts[:count] + WORD_BYTES * index].astype(np.uint32, copy=False)
        word *= np.uint32(MULTIPLIER)
        word ^= word >> np.uint32(SHIFT)
        word *= np.uint32(MULTIPLIER)
        state[:count] *= np.uint32(MULTIPLIER)
        state[:count] ^= word


def _mix_tails(state: Hashes, data: Bytes, starts: Positions, lengths: Positions) -> None:
    """Mix the last one to three bytes of every key that has them into ``state``, in place."""
    tails = lengths % WORD_BYTES
    ends = starts + lengths - tails
    for position in range(WORD_BYTES - 1):
        keys = np.flatnonzero(tails > position)
        state[keys] ^= data[ends[keys] + position].astype(np.uint32) << np.uint32(8 * position)
    state[tails > 0] *= np.uint32(MULTIPLIER)


def _offsets_and_data(keys: Any) -> tuple[Positions, Bytes]:
    """Return the offsets, shape (n + 1,), and the bytes of a large_binary array, without a copy."""
    _, offsets, data = keys.buffers()
    positions = np.frombuffer(offsets, np.int64, len(keys) + 1, keys.offset * 8)
    return positions, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
