"""The tasks that keep a log small, on request, each by the log's own policy; and as a service, round after
round, with metrics.
"""

from __future__ import annotations

import datetime
import logging
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

from txnformat.admin.compaction import CompactedTopic, compact_topic, seal_and_list
from txnformat.admin.compaction.policy import is_left_alone
from txnformat.admin.erasure.certificate import certify
from txnformat.admin.erasure.status import ErasureStatus
from txnformat.admin.garbage import Fate, VacuumReport
from txnformat.admin.previews import SealPreview, erasures_now, seal_preview, tables_wanted
from txnformat.admin.prometheus import Sample, declared, render
from txnformat.admin.publishing.call import publish_by_settings
from txnformat.admin.publishing.reports import KnownTables, Maintained, PublishReport
from txnformat.admin.retention import AppliedRetention, apply_retention
from txnformat.admin.subscriptions import LiftedMark, LiftedMarks, lift_marks
from txnformat.admin.topics import DamagedTopic, attempt
from txnformat.admin.trimming import DeletedRecords
from txnformat.admin.truncation import (
    Act,
    TruncatedKind,
    TruncationReport,
    checked_age_ms,
    truncate,
    write_needed_snapshots,
)
from txnformat.admin.vacuum import vacuum
from txnformat.arguments import check_flags, is_text
from txnformat.client.committer import Committer
from txnformat.clock import Clock, Instant, waited_ms
from txnformat.core.intents import EndTransaction
from txnformat.core.lifecycle.features import check_maintenance, check_removal
from txnformat.core.lifecycle.truncation import OLDER_THAN
from txnformat.core.operations import Expire, Seal
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.core.topics.cleanup import keeps_latest
from txnformat.errors import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    StorageError,
    TxnLogError,
    repr_of,
)
from txnformat.reading.sealed import SidecarCache

__all__ = [
    "METRICS",
    "TASKS",
    "CompactedTopics",
    "DamagedTopic",
    "MaintenanceReport",
    "SkippedTask",
    "Upkeep",
    "compact_by_settings",
    "maintain",
]

logger = logging.getLogger(__name__)


class CompactedTopics(NamedTuple):
    """The effect of a compaction of all topics by their settings."""

    topics: tuple[CompactedTopic, ...] = ()
    """The topics in which something was written anew, by name."""
    damaged: tuple[DamagedTopic, ...] = ()


def compact_by_settings(
    committer: Committer, sidecars: SidecarCache, *, dry_run: bool = False
) -> CompactedTopics:
    """Compact all topics whose settings allow it.

    The log is sealed and listed once, before the first topic. ``dry_run``: only say what would be written, of
    what is listed.
    """
    state = committer.refresh()
    check_removal(state)
    names = sorted(
        topic.name
        for topic in state.topics.values()
        if not is_left_alone(topic.settings) or keeps_latest(topic.settings)
    )
    if names and not dry_run:
        seal_and_list(committer)
    done: list[CompactedTopic] = []
    damaged: list[DamagedTopic] = []
    for name in names:
        found = attempt(
            committer,
            name,
            "compaction",
            partial(compact_topic, committer, sidecars, name, dry_run=dry_run, when_dirty=True),
        )
        if isinstance(found, DamagedTopic):
            damaged.append(found)
        elif found is not None:
            done.append(found)
    return CompactedTopics(tuple(one for one in done if one.partitions), tuple(damaged))


def _truncate(committer: Committer, older_than: datetime.timedelta) -> TruncationReport:
    write_needed_snapshots(committer, older_than)
    return truncate(committer, older_than)


@dataclass(frozen=True, slots=True)
class SkippedTask:
    """A task that was not done."""

    task: str
    reason: str


def _tables_wanted(state: LogState) -> SkippedTask | Maintained:
    found = tables_wanted(state)
    return Maintained() if found is None else SkippedTask("publish", found)


class Policy(NamedTuple):
    """The settings of a run of maintenance that are not settings of topics."""

    truncate_older_than: datetime.timedelta | None
    """Entries older than this are removed. None: no entry goes, unless the caller names the task."""
    tables: KnownTables
    """Published tables as this process saw them last."""

    @classmethod
    def of(
        cls,
        state: LogState,
        truncate_older_than: datetime.timedelta | None,
        tables: KnownTables,
    ) -> Self:
        """Return the policy of a log. The caller's value takes precedence."""
        if truncate_older_than is None and state.truncate_older_than_ms >= 0:
            truncate_older_than = datetime.timedelta(milliseconds=state.truncate_older_than_ms)
        return cls(truncate_older_than, tables)


class Task(NamedTuple):
    """Something that can be done."""

    run: Callable[[Committer, SidecarCache, Policy], Any]
    """Does it; what it returns becomes part of the report."""
    preview: Callable[[Committer, SidecarCache, Policy], Any]
    """Says what it would do, in the same form. A SkippedTask: a dry run does not tell."""
    is_lossy: bool = False
    """It removes or replaces something: only in logs that allow it."""
    rest_ms: int = 0
    """A process that is asked for all tasks does it again after this time: it costs more than the others."""
    is_wanted: Callable[[Policy], bool] = lambda _: True
    """Whether it is one of all tasks."""


MARKS_REST_MS = 3_600_000
"""A look at marks reads the sidecar that each of them is in."""
COMPACT_REST_MS = 3_600_000
"""A compaction looks at every list of segments."""
VACUUM_REST_MS = 24 * 3_600_000
"""A vacuum lists the whole root, and reads every sidecar that is in use."""
TRUNCATE_REST_MS = 6 * 3_600_000
"""A truncation lists all entries; of two in a row the second deletes."""

TASKS: dict[str, Task] = {
    "timeouts": Task(
        lambda committer, *_: committer.end_expired(), lambda committer, *_: committer.expired()
    ),
    "seal": Task(
        lambda committer, *_: committer.seal(merge=True),
        lambda committer, *_: seal_preview(committer.refresh()),
    ),
    "expire": Task(lambda committer, *_: committer.expire(), lambda committer, *_: committer.expirable()),
    "subscriptions": Task(
        lambda committer, sidecars, _: lift_marks(committer, sidecars),
        lambda committer, sidecars, _: lift_marks(committer, sidecars, dry_run=True),
        rest_ms=MARKS_REST_MS,
    ),
    "retention": Task(
        lambda committer, sidecars, _: apply_retention(committer, sidecars),
        lambda committer, sidecars, _: apply_retention(committer, sidecars, dry_run=True),
        is_lossy=True,
    ),
    "publish": Task(
        lambda committer, sidecars, policy: publish_by_settings(committer, sidecars, policy.tables),
        lambda committer, *_: _tables_wanted(committer.state),
    ),
    "compact": Task(
        lambda committer, sidecars, _: compact_by_settings(committer, sidecars),
        lambda committer, sidecars, _: compact_by_settings(committer, sidecars, dry_run=True),
        is_lossy=True,
        rest_ms=COMPACT_REST_MS,
    ),
    "vacuum": Task(
        lambda committer, *_: vacuum(committer),
        lambda committer, *_: vacuum(committer, dry_run=True),
        is_lossy=True,
        rest_ms=VACUUM_REST_MS,
    ),
    "erasures": Task(
        lambda committer, *_: tuple(certify(committer)),
        lambda committer, *_: erasures_now(committer),
        is_lossy=True,
        rest_ms=COMPACT_REST_MS,
    ),
    "truncate": Task(
        lambda committer, _, policy: _truncate(committer, policy.truncate_older_than or OLDER_THAN),
        lambda committer, _, policy: truncate(
            committer, policy.truncate_older_than or OLDER_THAN, dry_run=True
        ),
        is_lossy=True,
        rest_ms=TRUNCATE_REST_MS,
        is_wanted=lambda policy: policy.truncate_older_than is not None,
    ),
}
"""The tasks by name, in the order in which they run: ended transactions can be sealed, sealed segments can be
removed, and the rest can be written together."""


@dataclass(frozen=True, slots=True)
class MaintenanceReport:
    """The effect of :meth:`TxnLog.maintain`."""

    segments: int
    """Sealed segments: one for each topic that had something to seal, and 1,000 partitions."""
    partitions: int
    """Number of partitions over all segments."""
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
    removed: tuple[DeletedRecords, ...] = ()
    """Partitions whose oldest records were removed by the settings of their topic."""
    skipped: tuple[SkippedTask, ...] = ()
    """Tasks that were not done, and why."""
    compacted: tuple[CompactedTopic, ...] = ()
    """Topics whose small files were written together."""
    vacuum: VacuumReport | None = None
    """The effect of a vacuum with the grace of 7 days. If None, the caller did not ask for it, or this
    process has done it in the last 24 hours."""
    damaged: tuple[DamagedTopic, ...] = ()
    """Topics of which a task met something damaged; the others were done."""
    truncation: TruncationReport | None = None
    """The report of the truncation. If None, neither the log nor the caller says an age, or this process has
    done it in the last 6 hours."""
    erasures: tuple[ErasureStatus, ...] = ()
    """Erasures that were not complete before, and what they lack now; empty when this process has looked in
    the last hour."""
    lifted: tuple[LiftedMark, ...] = ()
    """Marks of subscriptions that had nothing but removed and aborted records and markers before them."""
    published: tuple[PublishReport, ...] = ()
    """The publications of the topics whose settings ask for one, in each format, all at one entry. If empty,
    there is no such topic, or an open transaction holds everything back."""
    rested: tuple[str, ...] = ()
    """Tasks that were left out, since this process has done them a short time ago: their part of the report
    is empty."""
    dry_run: bool = False
    """True: nothing was changed, and this is what would come of it."""

    @classmethod
    def of(
        cls,
        seals: Sequence[Seal] = (),
        expired: Sequence[Expire] = (),
        ended: Sequence[EndTransaction] = (),
        retention: AppliedRetention = AppliedRetention(),  # noqa: B008  # it is immutable
        skipped: Sequence[SkippedTask] = (),
        compacted: CompactedTopics = CompactedTopics(),  # noqa: B008  # it is immutable
        vacuum: VacuumReport | None = None,
        truncation: TruncationReport | None = None,
        erasures: tuple[ErasureStatus, ...] = (),
        marks: LiftedMarks = LiftedMarks(),  # noqa: B008  # it is immutable
        publication: Maintained = Maintained(),  # noqa: B008  # it is immutable
        rested: Sequence[str] = (),
        preview: SealPreview | None = None,
    ) -> Self:
        """Return the report of some seals, expiries, ends, removals and compactions, of a vacuum and a
        truncation.

        ``preview``: of a dry run; then there are no seals.
        """
        segments = [segment for seal in seals for segment in seal.segments]
        objects = [named for segment in segments for named in segment.record.objects()]
        parts = [part for segment in segments for part in segment.partitions]
        numbers = SealPreview(len(segments), len(parts), sum(part.batches for part in parts))
        return cls(
            *(numbers if preview is None else preview),
            sum(one.size for one in objects),
            sum(len(one.transactional_ids) for one in expired),
            sum(len(one.producers) for one in expired),
            tuple(one.transactional_id for one in ended),
            sum(len(seal.replaced_lists) for seal in seals),
            retention.removed,
            tuple(skipped),
            compacted.topics,
            vacuum,
            tuple(
                dict.fromkeys([*marks.damaged, *retention.damaged, *publication.damaged, *compacted.damaged])
            ),
            truncation,
            erasures,
            marks.lifted,
            publication.reports,
            tuple(rested),
            preview is not None,
        )


def maintain(
    committer: Committer,
    sidecars: SidecarCache,
    tasks: Sequence[str],
    last_done: MutableMapping[str, Instant],
    truncate_older_than: datetime.timedelta | None = None,
    tables: KnownTables | None = None,
    dry_run: bool = False,
) -> MaintenanceReport:
    """Do the named tasks, or all of them when none is named; see :meth:`txnformat.log.TxnLog.maintain`.

    ``last_done``: when each task ended last, by name; each task that is done here gets its time. ``tables``:
    published ones as last seen; changed likewise.
    """
    unknown = [task for task in tasks if not is_text(task) or task not in TASKS]
    if unknown:
        raise InvalidInputError(
            [f"{repr_of(task)} is not a maintenance task" for task in unknown],
            kind="unknown-task",
            hint=f"use {', '.join(TASKS)}",
        )
    check_flags(dry_run=dry_run)
    if truncate_older_than is not None:
        checked_age_ms(truncate_older_than)
    check_maintenance(committer.state)
    policy = Policy.of(committer.state, truncate_older_than, KnownTables() if tables is None else tables)
    done: dict[str, Any] = {}
    skipped = []
    rested = []
    for name, task in TASKS.items():
        if name not in tasks if tasks else not task.is_wanted(policy):
            continue
        if task.is_lossy and committer.state.lacks(LIFECYCLE):
            skipped.append(SkippedTask(name, "the log does not allow removals; run txnlog upgrade"))
            continue
        last = last_done.get(name)
        if not tasks and last is not None and waited_ms(last, committer.clock.now()) < task.rest_ms:
            rested.append(name)
            continue
        if dry_run:
            found = task.preview(committer, sidecars, policy)
            if isinstance(found, SkippedTask):
                skipped.append(found)
            else:
                done[name] = found
            continue
        done[name] = task.run(committer, sidecars, policy)
        last_done[name] = committer.clock.now()
    preview = done.pop("seal", SealPreview()) if dry_run else None
    return MaintenanceReport.of(
        done.get("seal", ()),
        done.get("expire", ()),
        done.get("timeouts", ()),
        done.get("retention", AppliedRetention()),
        skipped,
        done.get("compact", CompactedTopics()),
        done.get("vacuum"),
        done.get("truncate"),
        done.get("erasures", ()),
        done.get("subscriptions", LiftedMarks()),
        done.get("publish", Maintained()),
        rested,
        preview,
    )


METRICS = declared("""
txnlog_maintain_rounds_total counter: Rounds of maintenance that this process has begun.
txnlog_maintain_failures_total counter: Rounds that failed; the next round tries again.
txnlog_maintain_seconds_total counter: Seconds that rounds took.
txnlog_maintain_last_success_timestamp_seconds gauge: When the last round that did not fail ended.
txnlog_maintain_done_total{what} counter: Work that rounds have done: timed_out (transactions), sealed_batches, lifted_marks, expired_ids, trimmed_partitions, published_versions, compacted_files, deleted_objects, deleted_entries, completed_erasures.
txnlog_maintain_skipped{task} gauge: 1 for a task that the last round skipped.
txnlog_maintain_damaged_topics gauge: Topics of which retention or compaction met something damaged in the last round.
""")  # noqa: E501  # one metric a line
"""The metrics by name."""


class Upkeep:
    """Does maintenance again and again. ``maintain``: :meth:`txnformat.log.TxnLog.maintain`."""

    def __init__(self, maintain: Callable[[], MaintenanceReport], clock: Clock) -> None:
        self._maintain, self._clock = maintain, clock
        self.rounds = 0
        self.failure: TxnLogError | None = None
        """Report of the last round."""
        self._failures = 0
        self._seconds = 0.0
        self._succeeded_ms: int | None = None
        self._done: Counter[str] = Counter()
        self._skipped: tuple[str, ...] = ()
        self._damaged = 0

    def round(self) -> MaintenanceReport | None:
        """Do a round; None: it failed in a way that the next one may not.

        Raises TxnLogError about what stays wrong, such as a corrupt log.
        """
        try:
            return self.once()
        except (StorageError, ConflictError, CommitStateUnknownError) as error:
            if error.kind == "log-replaced":
                raise
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
        self._done["lifted_marks"] += len(report.lifted)
        self._done["expired_ids"] += report.expired_transactional_ids + report.expired_producers
        self._done["trimmed_partitions"] += len(report.removed)
        published = (one for each in report.published for one in each.topics)
        self._done["published_versions"] += sum(one.is_new for one in published)
        self._done["compacted_files"] += sum(one.files_before for one in report.compacted)
        deleted = 0 if report.vacuum is None else report.vacuum.count(Fate.DELETED)
        self._done["deleted_objects"] += deleted
        truncated = report.truncation
        self._done["deleted_entries"] += (
            0 if truncated is None else truncated.count(Act.DELETED, TruncatedKind.ENTRY)
        )
        self._done["completed_erasures"] += sum(one.is_complete for one in report.erasures)
        self._skipped = tuple(one.task for one in report.skipped)
        self._damaged = len({one.topic for one in report.damaged})
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
