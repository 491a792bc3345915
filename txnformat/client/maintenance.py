"""What keeps a log small, on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from txnformat.arguments import is_text
from txnformat.client.committer import Committer
from txnformat.core.intents import EndTransaction
from txnformat.core.operations import Expire, Seal
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["MaintenanceReport", "maintain"]

TASKS = ("timeouts", "seal", "expire")
"""Names of what can be done, in the order in which it is: what has ended can be sealed."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """What :meth:`TxnLog.maintain` has done."""

    segments: int
    """Sealed segments: one for each topic that had something to seal, and 1,000 partitions."""
    partitions: int
    """Of all segments."""
    batches: int
    sidecar_bytes: int
    expired_transactional_ids: int = 0
    """Forgotten, since they were idle for long."""
    expired_producers: int = 0
    """Likewise, without a transactional id."""
    timed_out: tuple[str, ...] = ()
    """Transactional ids whose open transactions were ended, since their time was over."""
    merged_lists: int = 0
    """Segment lists that a new one took in."""

    @classmethod
    def of(
        cls, seals: Sequence[Seal], expired: Sequence[Expire] = (), ended: Sequence[EndTransaction] = ()
    ) -> Self:
        """Return the report of some seals, expiries and ends."""
        segments = [segment for seal in seals for segment in seal.segments]
        objects = [
            named
            for segment in segments
            for named in (segment.record.index, segment.record.markers, segment.record.txnindex)
            if named is not None
        ]
        parts = [part for segment in segments for part in segment.partitions]
        return cls(
            len(segments),
            len(parts),
            sum(part.batches for part in parts),
            sum(one.size for one in objects),
            sum(len(one.transactional_ids) for one in expired),
            sum(len(one.producers) for one in expired),
            tuple(one.transactional_id for one in ended),
            sum(len(seal.replaced_lists) for seal in seals),
        )


def maintain(committer: Committer, tasks: Sequence[str]) -> MaintenanceReport:
    """Do the named tasks, or all of them when none is named; see :meth:`txnformat.log.TxnLog.maintain`."""
    unknown = [task for task in tasks if not is_text(task) or task not in TASKS]
    if unknown:
        raise InvalidInputError(
            [f"{repr_of(task)} is not a maintenance task" for task in unknown],
            kind="unknown-task",
            hint=f"use {', '.join(TASKS)}",
        )
    wanted = tasks or TASKS
    ended = committer.end_expired() if "timeouts" in wanted else ()
    seals = committer.seal(merge=True) if "seal" in wanted else ()
    return MaintenanceReport.of(seals, committer.expire() if "expire" in wanted else (), ended)
