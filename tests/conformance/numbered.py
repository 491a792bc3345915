"""An idempotent producer whose sequences a test chooses."""

from __future__ import annotations

from txnformat.core.intents import AllocateIds, CommitResult, ProducerRef, Write
from txnformat.core.operations import AllocateProducerIds
from txnlog import (
    TxnLog,
)
from txnlog_testing.strategies import make_append

__all__ = ["Numbered"]


class Numbered:
    """An idempotent producer of appends with chosen sequences, without data."""

    def __init__(self, log: TxnLog) -> None:
        self.log = log
        (allocated,) = log.committer.commit(log.committer.intend(AllocateIds("traps", 1))).operations
        assert isinstance(allocated, AllocateProducerIds)
        self.ref = ProducerRef(allocated.first, 0)

    def append(self, first: int, count: int, log: TxnLog | None = None) -> CommitResult:
        """Append ``count`` records from sequence ``first``, as a request of its own."""
        log = log or self.log
        append = make_append(
            log.refresh().topic("t").created,
            {0: (first, count)},
            content=f"{self.ref.producer_id} {first} {count}",
            records_per_batch=count,
        )
        return log.committer.commit(log.committer.intend(Write(self.ref, (append,))))
