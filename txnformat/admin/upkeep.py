"""Maintenance as a service: round after round, and what it has done so far as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from txnformat.admin.garbage import Fate
from txnformat.admin.maintenance import MaintenanceReport
from txnformat.admin.prometheus import Sample, declared, render
from txnformat.admin.truncation import Act, TruncatedKind
from txnformat.clock import Clock, waited_ms
from txnformat.errors import CommitStateUnknownError, ConflictError, StorageError, TxnLogError

__all__ = ["METRICS", "Upkeep"]

METRICS = declared("""
txnlog_maintain_rounds_total counter: Rounds of maintenance that this process has begun.
txnlog_maintain_failures_total counter: Rounds that failed; the next round tries again.
txnlog_maintain_seconds_total counter: Seconds that rounds took.
txnlog_maintain_last_success_timestamp_seconds gauge: When the last round that did not fail ended.
txnlog_maintain_done_total{what} counter: Work that rounds have done: timed_out (transactions), sealed_batches, expired_ids, trimmed_partitions, compacted_files, deleted_objects, deleted_entries.
txnlog_maintain_skipped{task} gauge: 1 for a task that the last round skipped.
txnlog_maintain_damaged_topics gauge: Topics that the last round could not compact, since something of theirs is damaged.
""")
"""By name."""


class Upkeep:
    """Does maintenance again and again. ``maintain``: :meth:`txnformat.log.TxnLog.maintain`."""

    def __init__(self, maintain: Callable[[], MaintenanceReport], clock: Clock) -> None:
        self._maintain, self._clock = maintain, clock
        self.rounds = 0
        self.failure: TxnLogError | None = None
        """Of the last round."""
        self._failures = 0
        self._seconds = 0.0
        self._succeeded_ms: int | None = None
        self._done: Counter[str] = Counter()
        self._skipped: tuple[str, ...] = ()
        self._damaged = 0

    def round(self) -> MaintenanceReport | None:
        """Do a round; None: it failed in a way that the next one may not. Raises TxnLogError about what stays wrong, such as a corrupt log."""
        try:
            return self.once()
        except (StorageError, ConflictError, CommitStateUnknownError) as error:
            self.failure = error
            self._failures += 1
            return None

    def once(self) -> MaintenanceReport:
        """Do a round; errors are raised."""
        self.rounds += 1
        self.failure = None
        start = self._clock.now()
        try:
            report = self._maintain()
        finally:
            now = self._clock.now()
            self._seconds += waited_ms(start, now) / 1_000
        self._succeeded_ms = now.wall_ms
        self._done["timed_out"] += len(report.timed_out)
        self._done["sealed_batches"] += report.batches
        self._done["expired_ids"] += report.expired_transactional_ids + report.expired_producers
        self._done["trimmed_partitions"] += len(report.removed)
        self._done["compacted_files"] += sum(one.files_before for one in report.compacted)
        deleted = 0 if report.vacuum is None else report.vacuum.count(Fate.DELETED)
        self._done["deleted_objects"] += deleted
        truncated = report.truncation
        self._done["deleted_entries"] += (
            0 if truncated is None else truncated.count(Act.DELETED, TruncatedKind.ENTRY)
        )
        self._skipped = tuple(one.task for one in report.skipped)
        self._damaged = len(report.damaged)
        return report

    def to_prometheus(self, log: str) -> str:
        """Return what was done so far in Prometheus' text format; ``log``: the label of that name."""
        own = (("log", log),)
        prefix = "txnlog_maintain_"
        samples = [
            Sample(f"{prefix}rounds_total", own, self.rounds),
            Sample(f"{prefix}failures_total", own, self._failures),
            Sample(f"{prefix}seconds_total", own, self._seconds),
            *(
                Sample(f"{prefix}done_total", (*own, ("what", what)), count)
                for what, count in sorted(self._done.items())
            ),
            Sample(f"{prefix}damaged_topics", own, self._damaged),
            *(Sample(f"{prefix}skipped", (*own, ("task", task)), 1) for task in self._skipped),
        ]
        if self._succeeded_ms is not None:
            samples.append(Sample(f"{prefix}last_success_timestamp_seconds", own, self._succeeded_ms / 1_000))
        return render(METRICS, samples)
