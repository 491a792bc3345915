"""Sequence numbers of one producer in one partition: what is new, what is a repeat, what is out of order.

Rules (Kafka's ProducerAppendInfo and ProducerStateEntry, with 64-bit numbers that never wrap): the next
sequence is last + 1, the first is 0; the last five append operations are remembered, and an exact match of
one of them is a repeat. Remembering a digest of the content besides finds two processes that share one
identity (a fork, a cloned machine), which Kafka cannot see.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from txnformat.field_types import Count, Digest16, OrMinusOne

__all__ = ["WINDOW_APPENDS", "AppendedRange", "SequenceVerdict", "SequenceWindow", "classify", "record"]

WINDOW_APPENDS = 5
"""Append operations remembered per producer and partition (Kafka's NUM_BATCHES_TO_RETAIN)."""


class AppendedRange(Struct, frozen=True, gc=False):
    """One remembered append of a producer to a partition."""

    first_sequence: Count
    """Inclusive."""
    last_sequence: Count
    """Inclusive."""
    digest: Digest16
    base_offset: OrMinusOne
    """-1 of one that is staged."""
    entry: Count


SequenceWindow = tuple[AppendedRange, ...]
"""The last appends, oldest first; empty for a producer that the partition does not know."""


class SequenceVerdict(Enum):
    """The result of comparing an append's sequence numbers with the state."""

    NEW = "new"
    REPEAT = "repeat"
    FORK = "fork"
    """Known numbers with other content."""
    UNKNOWN_PRODUCER = "unknown-producer"
    """The partition does not know the producer, and the sequence does not start at 0."""
    OUT_OF_ORDER = "out-of-order"
    """A gap, a partial overlap, or older than the window."""


def classify(
    window: SequenceWindow, base_sequence: int, records: int, digest: str
) -> tuple[SequenceVerdict, AppendedRange | None]:
    """Judge an append's sequence numbers (``base_sequence`` inclusive, ``records`` >= 1); for a REPEAT or
    FORK also return the range it meets.
    """
    last_sequence = base_sequence + records - 1
    for known in reversed(window):
        if (known.first_sequence, known.last_sequence) == (base_sequence, last_sequence):
            return (SequenceVerdict.REPEAT if known.digest == digest else SequenceVerdict.FORK), known
    if not window:
        return (SequenceVerdict.NEW if base_sequence == 0 else SequenceVerdict.UNKNOWN_PRODUCER), None
    expected = window[-1].last_sequence + 1
    return (SequenceVerdict.NEW if base_sequence == expected else SequenceVerdict.OUT_OF_ORDER), None


def record(window: SequenceWindow, appended: AppendedRange) -> SequenceWindow:
    """Return the window with ``appended`` remembered and the oldest forgotten."""
    return (*window, appended)[-WINDOW_APPENDS:]
