"""Settings of a producer, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from txnformat import keys
from txnformat.arguments import check_settings, is_flag, is_text
from txnformat.core.operations import DEFERRED_TIMEOUT_MS, TIMEOUT_MS
from txnformat.core.transactions.state import DEFERRED_TIMEOUT_MS_MAX
from txnformat.errors import InvalidInputError, repr_of
from writers.upload import ROLL_BYTES

__all__ = [
    "CHUNK_BYTES_MAX",
    "CHUNK_BYTES_MIN",
    "EMBED_BYTES",
    "LINGER_MS_MAX",
    "MIB",
    "Buffer",
    "ProducerSettings",
]

MIB = 1024 * 1024

EMBED_BYTES = 64 * 1024
"""Bytes of segment files that travel in an entry by default."""

CHUNK_BYTES_MIN = 1024
"""Below this the headers would outweigh the value."""
CHUNK_BYTES_MAX = 64 * MIB
"""A row group holds no more, and a reader holds a row group in memory; Arrow's own limit is 2 GiB for a
batch."""


LINGER_MS_MAX = 10**12
"""31 years, which is never; a timer of the system takes no 2**63 ms."""


class Buffer(StrEnum):
    """Where the records of an open transaction are."""

    AUTO = "auto"
    """In files that the log does not know: the commit names all of them in one entry. Large or old ones:
    deferred."""
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
    """Where the records of an open transaction are: ``auto``, ``deferred`` or ``inline``;
    docs/open-transactions.md compares them."""
    transaction_timeout_ms: int = TIMEOUT_MS
    """How long a transaction whose records have offsets may stay open before any client may abort it; 1 to
    what the log allows (15 minutes unless it was created otherwise), which ``init`` checks. Kafka's
    transaction.timeout.ms."""
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
    embed_bytes: int = EMBED_BYTES
    """Size of the segment files of one entry, over all its topics, up to which they travel in the entry
    itself (inclusive), where the log allows it: one request instead of two. 0: never; at most 1 MiB."""
    chunk_bytes: int = 8 * MIB
    """Largest value that is sent as one record; a larger one becomes several. By default it fills a row
    group."""

    def __post_init__(self) -> None:
        """Report all problems at once."""
        problems: list[str] = []
        if self.transactional_id is not None:
            try:
                keys.check_transactional_id(self.transactional_id)
            except InvalidInputError as error:
                problems += [f"{problem}: {error.hint}" for problem in error.problems]
            if is_flag(self.enable_idempotence) and not self.enable_idempotence:
                problems.append("a transactional producer needs idempotence")
        elif is_text(self.buffer) and self.buffer != Buffer.AUTO:
            problems.append(f"buffer={repr_of(self.buffer, 80)} needs a transactional_id")
        bounds: dict[str, tuple[int, int | None]] = {
            "transaction_timeout_ms": (1, None),
            "deferred_timeout_ms": (1, DEFERRED_TIMEOUT_MS_MAX),
            "linger_ms": (0, LINGER_MS_MAX),
            "batch_bytes": (1, None),
            "buffer_bytes": (1, None),
            "roll_bytes": (1, None),
            "embed_bytes": (0, MIB),
            "chunk_bytes": (CHUNK_BYTES_MIN, CHUNK_BYTES_MAX),
        }
        check_settings(self, bounds, {"buffer": Buffer}, problems, ["enable_idempotence"])
        object.__setattr__(self, "buffer", Buffer(self.buffer))

    @property
    def is_transactional(self) -> bool:
        """Whether records are sent in transactions only."""
        return self.transactional_id is not None
