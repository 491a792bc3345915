"""What a producer is told once, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from txnformat import keys
from txnformat.arguments import is_text
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS
from txnformat.core.transactions.state import DEFERRED_TIMEOUT_MS_MAX
from txnformat.errors import InvalidInputError, repr_of
from writers.upload import ROLL_BYTES

__all__ = ["CHUNK_BYTES_MAX", "CHUNK_BYTES_MIN", "MIB", "Buffer", "ProducerSettings"]

MIB = 1024 * 1024

CHUNK_BYTES_MIN = 1024
"""Below this the headers would outweigh the value."""
CHUNK_BYTES_MAX = 64 * MIB
"""A row group holds no more, and a reader holds a row group in memory; Arrow's own limit is 2 GiB for a batch."""


class Buffer(StrEnum):
    """Where the records of an open transaction are."""

    AUTO = "auto"
    """In files that the log does not know: the commit names all of them in one entry. Large or old ones: deferred."""
    DEFERRED = "deferred"
    """In files that the log knows, without offsets: the commit gives them all (Pulsar's PIP-31)."""
    INLINE = "inline"
    """In the log, with offsets, flush by flush; a marker decides them (Kafka's way)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a :class:`~writers.producer.Producer`.

    Raises
    ------
    InvalidInputError
        Kind ``invalid-settings``: every problem found.
    """

    transactional_id: str | None = None
    """Stable name of the producer: fences older instances of it, and allows transactions."""
    enable_idempotence: bool = True
    """Number the records, so that a repeat is never appended twice. Transactions need it."""
    buffer: Buffer = Buffer.AUTO
    """Where the records of an open transaction are: ``auto``, ``deferred`` or ``inline``; docs/buffers.md compares them."""
    transaction_timeout_ms: int = TIMEOUT_MS
    """How long a transaction whose records have offsets may stay open before anybody may abort it; 1 to what the log
    allows (15 minutes unless it was created otherwise), which ``init`` checks. Kafka's transaction.timeout.ms."""
    deferred_timeout_ms: int = DEFERRED_TIMEOUT_MS
    """The same for one whose records have none yet, from its last flush; 1 to 7 days."""
    linger_ms: int = 5
    """How long a record that is sent outside transactions may wait for others, before a thread flushes it."""
    batch_bytes: int = 8 * MIB
    """Arrow bytes of one partition at which its records leave the buffer: the size of a row group."""
    buffer_bytes: int = 64 * MIB
    """Arrow bytes over all partitions that may be buffered, besides those of the latest send."""
    roll_bytes: int = ROLL_BYTES
    """Size at which a segment file is closed and the next one begun."""
    chunk_bytes: int = 8 * MIB
    """Largest value that is sent as one record; a larger one becomes several. By default it fills a row group."""

    def __post_init__(self) -> None:
        """Report all problems at once."""
        problems: list[str] = []
        if self.transactional_id is not None:
            try:
                keys.check_transactional_id(self.transactional_id)
            except InvalidInputError as error:
                problems += [f"{problem}: {error.hint}" for problem in error.problems]
            if self.enable_idempotence is False:
                problems.append("a transactional producer cannot do without idempotence")
        elif is_text(self.buffer) and self.buffer != Buffer.AUTO:
            problems.append(f"buffer={str(self.buffer)!r} needs a transactional_id")
        if self.buffer not in tuple(Buffer):
            problems.append(f"buffer is {repr_of(self.buffer)}, not one of {', '.join(Buffer)}")
        minima: dict[str, tuple[Any, int]] = {
            "transaction_timeout_ms": (self.transaction_timeout_ms, 1),
            "deferred_timeout_ms": (self.deferred_timeout_ms, 1),
            "linger_ms": (self.linger_ms, 0),
            "batch_bytes": (self.batch_bytes, 1),
            "buffer_bytes": (self.buffer_bytes, 1),
            "roll_bytes": (self.roll_bytes, 1),
        }
        problems += [
            f"{name} is {repr_of(value)}, not a whole number from {minimum} on"
            for name, (value, minimum) in minima.items()
            if type(value) is not int or value < minimum
        ]
        if type(self.chunk_bytes) is not int or not CHUNK_BYTES_MIN <= self.chunk_bytes <= CHUNK_BYTES_MAX:
            problems.append(
                f"chunk_bytes is {repr_of(self.chunk_bytes)}, not a whole number from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX}"
            )
        if type(self.deferred_timeout_ms) is int and self.deferred_timeout_ms > DEFERRED_TIMEOUT_MS_MAX:
            problems.append(
                f"deferred_timeout_ms is {self.deferred_timeout_ms}, more than seven days ({DEFERRED_TIMEOUT_MS_MAX})"
            )
        if problems:
            raise InvalidInputError(problems, kind="invalid-settings")
        object.__setattr__(self, "buffer", Buffer(self.buffer))

    @property
    def is_transactional(self) -> bool:
        """Whether records are sent in transactions only."""
        return self.transactional_id is not None
