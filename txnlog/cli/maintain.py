"""The commands that keep a log small: maintain, vacuum, truncate and compact. Writers seal, take snapshots
and end expired transactions themselves; all else needs these.
"""

from __future__ import annotations

import datetime
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.ending import dry_run_option
from txnlog.cli.failures import CORRUPT
from txnlog.cli.options import (
    TOPIC,
    Bytes,
    Commands,
    Duration,
    FilePath,
    Integer,
    Milliseconds,
    Place,
    with_place,
)
from txnlog.cli.output import Table, counted, instant, print_json, say, show_lines
from txnlog.cli.progress import progress
from txnlog.cli.records.outputs import check_output, writing

if TYPE_CHECKING:
    from txnformat.admin.compaction import CompactedTopic, CompactionProgress
    from txnformat.admin.garbage import VacuumReport
    from txnformat.admin.maintenance import MaintenanceReport
    from txnformat.admin.truncation import TruncationReport
    from txnformat.log import TxnLog
    from txnformat.verify.report import VerifyProgress

__all__ = ["compact", "maintain", "truncate", "vacuum"]

COMPACTED = Table(
    "Topic Partitions SegmentsBefore Segments FilesBefore Files SizeBefore Size RequestsBefore Requests "
    "DirtyRatio RemovedRecords",
    dirty_ratio=lambda row: "-" if row.dirty_ratio is None else f"{row.dirty_ratio:.2f}",
)

VACUUMED = Table("Fate Kind Objects Bytes Why Example", example=lambda row: row.examples[0])


@click.group(cls=Commands)
def maintain() -> None:
    """Keep the log small."""


def _report(task: str, place: Place, as_json: bool, *, dry_run: bool = False) -> MaintenanceReport | None:
    """Do a task of maintenance; return its report, or print it as JSON."""
    with place.open() as log:
        report = log.maintain(task, dry_run=dry_run)
    if not as_json:
        return report
    print_json(report)
    if report.damaged:
        click.get_current_context().exit(CORRUPT)
    return None


ROUND = Table("Task Done", task=lambda task, _: task, done=lambda _, done: done)
LIFTED = Table("Topic Subscription Partition PreviousMark Mark")
REMOVED = Table("Topic Partition PreviousEarliest Earliest")
DAMAGED = Table("Topic Kind Reason")


def _timed_out(report: MaintenanceReport) -> str:
    names = f": {', '.join(report.timed_out)}" if report.timed_out else ""
    return f"ended {counted(len(report.timed_out), 'transaction')}{names}"


def _sealed(report: MaintenanceReport) -> str:
    if not report.segments:
        return "nothing to seal"
    done = (
        f"sealed {counted(report.batches, 'batch')} of {counted(report.partitions, 'partition')} in "
        f"{counted(report.segments, 'segment')}"
    )
    return done if report.dry_run else f"{done}, {counted(report.sidecar_bytes, 'byte')} of sidecars"


def _expired(report: MaintenanceReport) -> str:
    ids = counted(report.expired_transactional_ids, "transactional id")
    return f"forgot {ids} and {counted(report.expired_producers, 'producer')} without one"


def _lifted(report: MaintenanceReport) -> str:
    return f"lifted {counted(len(report.lifted), 'mark')} over offsets without a record"


def _removed(report: MaintenanceReport) -> str:
    return f"removed records of {counted(len(report.removed), 'partition')}"


def _with_damage(report: MaintenanceReport) -> None:
    """Show the damaged topics, and end with exit code 6 if there are some."""
    if report.damaged:
        DAMAGED.show(report.damaged)
        click.get_current_context().exit(CORRUPT)


def _compacted(report: MaintenanceReport) -> str:
    files = sum(one.files_before for one in report.compacted)
    made = sum(one.files for one in report.compacted)
    return f"wrote {counted(files, 'file')} together as {counted(made, 'file')}"


def _published(report: MaintenanceReport) -> str:
    if not report.published:
        return "no topic to publish (setting publish.formats), or an open transaction holds everything back"
    return "; ".join(
        f"published {counted(len(one.topics), 'topic')} as {one.format} at entry {one.entry}, "
        f"{sum(each.is_new for each in one.topics)} of them in a new version"
        for one in report.published
    )


def _vacuumed(report: MaintenanceReport) -> str:
    return "" if report.vacuum is None else _counts(report.vacuum)


def _certified(report: MaintenanceReport) -> str:
    complete = sum(one.is_complete for one in report.erasures)
    left = len(report.erasures) - complete
    return f"{counted(complete, 'erasure')} completed, {left} not complete (`txnlog erase --status`)"


def _truncated(report: MaintenanceReport) -> str:
    if report.truncation is None:
        return "no age is set (alter-log or --truncate-older-than)"
    return _truncation_counts(report.truncation)


SHOWN: dict[str, Callable[[MaintenanceReport], str]] = {
    "timeouts": _timed_out,
    "seal": _sealed,
    "expire": _expired,
    "subscriptions": _lifted,
    "retention": _removed,
    "publish": _published,
    "compact": _compacted,
    "vacuum": _vacuumed,
    "erasures": _certified,
    "truncate": _truncated,
}
"""The line printed for each task that was done."""


@maintain.command("all")
@with_place
@click.option(
    "--watch",
    type=Milliseconds("seconds"),
    help="Repeat with this pause between rounds, until SIGTERM or SIGINT.",
)
@click.option(
    "--metrics-file",
    type=FilePath(),
    help="Write metrics in Prometheus' text format after each round.",
)
@click.option(
    "--truncate-older-than",
    type=Duration(),
    metavar="DURATION",
    help="Delete commit entries older than this (at least 7d), once in 6 hours. Default: the value set by "
    "`txnlog alter-log`; without one, entries stay.",
)
@dry_run_option
def everything(
    place: Place,
    watch: int | None,
    metrics_file: Path | None,
    truncate_older_than: datetime.timedelta | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Do everything that keeps the log small, by its policy: timeouts, seal, expire, retention, once an hour
    marks of subscriptions and compaction, once in 24 hours vacuum, and once in 6 hours truncation if the log
    has an age for it.

    Any number of processes may do this at the same time. A task that removes something is skipped in a log of
    an older version that needs `txnlog upgrade` first. Exit code 6 when something of a topic is damaged:
    records of the other topics are removed and compacted nevertheless. With --dry-run each task shows what it
    would do to the log as it is, without the effects of the tasks before it; tables are not made.
    """
    if dry_run and (watch is not None or metrics_file is not None):
        raise click.UsageError("--dry-run cannot be combined with --watch or --metrics-file")
    if watch is not None and watch < 1_000:
        raise click.UsageError("--watch takes at least 1 second")
    from txnformat.admin.maintenance import Upkeep

    stop = threading.Event()
    if watch is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    if metrics_file is not None:
        check_output(metrics_file)
    with place.open() as log:
        maintain = _round(
            log, is_repeated=watch is not None, truncate_older_than=truncate_older_than, dry_run=dry_run
        )
        upkeep = Upkeep(maintain, log.committer.clock)
        while True:
            report = upkeep.round() if watch is not None else upkeep.once()
            if report is not None:
                _show_round(report, as_json, is_line=watch is not None)
            else:
                show_lines(f"round {upkeep.rounds} failed: {upkeep.failure}", sys.stderr)
            if metrics_file is not None:
                with writing(metrics_file) as file:  # in one step, as a collector of text files wants it
                    file.write(upkeep.to_prometheus(log.url).encode())
            sys.stdout.flush()  # a log of a service has each round when it is done
            if watch is None or stop.wait(watch / 1_000):
                break
    if report is not None and report.damaged:
        click.get_current_context().exit(CORRUPT)


def _round(log: TxnLog, *, is_repeated: bool, **arguments: Any) -> Callable[[], MaintenanceReport]:
    """Return what does a round. One of many first checks that the log is still there."""
    from txnformat.client.identity import check_still_there, explaining

    def done() -> MaintenanceReport:
        with explaining(log.committer):
            if is_repeated:
                check_still_there(log.committer)
            return log.maintain(**arguments)

    return done


def _show_round(report: MaintenanceReport, as_json: bool, *, is_line: bool) -> None:
    if as_json:
        print_json(report, indent=None if is_line else 2)
        return
    left_out = {one.task: f"skipped: {one.reason}" for one in report.skipped}
    left_out |= {task: f"done less than {_rest(task)} ago" for task in report.rested}
    ROUND.show([(task, left_out.get(task) or say_of(report)) for task, say_of in SHOWN.items()])
    if report.removed:
        say("")
        REMOVED.show(report.removed)
    if report.damaged:
        say("")
        DAMAGED.show(report.damaged)
    _say_dry(report)


def _say_dry(report: MaintenanceReport) -> None:
    if report.dry_run:
        say("this is the effect; nothing was changed")


def _rest(task: str) -> str:
    from txnformat.admin.maintenance import TASKS

    return counted(TASKS[task].rest_ms // 3_600_000, "hour")


@maintain.command("timeouts")
@with_place
def timeouts(place: Place, as_json: bool) -> None:
    """End the open transactions whose timeout is over.

    Every commit to the log does this, too; use the command for logs without writes. Prepared transactions
    stay.
    """
    report = _report("timeouts", place, as_json)
    if report is not None:
        say(_timed_out(report))


@maintain.command("seal")
@with_place
def seal(place: Place, as_json: bool) -> None:
    """Move decided batches from the state into sidecars, and merge the lists of these.

    Writers do this themselves once there are enough batches; they leave lists of more than 200,000 rows to
    this command. The command reports what it moved; an empty report is not an error.
    """
    report = _report("seal", place, as_json)
    if report is None:
        return
    say(_sealed(report))
    if report.merged_lists:
        say(f"merged {counted(report.merged_lists, 'segment list')} into larger ones")


@maintain.command("expire")
@with_place
def expire(place: Place, as_json: bool) -> None:
    """Forget transactional ids and producers that have long been unused.

    A transactional id is remembered for 7 days after its last use, a producer without one for a day after its
    last append. Those with an open or prepared transaction stay.
    """
    report = _report("expire", place, as_json)
    if report is not None:
        say(_expired(report))


@maintain.command("subscriptions")
@with_place
def subscriptions(place: Place, as_json: bool) -> None:
    """Lift the marks of subscriptions over removed and aborted records, and markers.

    Acknowledgements of later records do not cover what lies behind the last record, nor what was removed
    below an acknowledged one; else the mark would stay, and hold back records that retention.pinned.ms
    protects. Exit code 6 when something of a topic is damaged.
    """
    report = _report("subscriptions", place, as_json)
    if report is None:
        return
    say(_lifted(report))
    if report.lifted:
        LIFTED.show(report.lifted)
    _with_damage(report)


@maintain.command("retention")
@with_place
@dry_run_option
def retention(place: Place, dry_run: bool, as_json: bool) -> None:
    """Remove the oldest records of topics, as their settings retention.ms and retention.bytes say.

    A log of an older version needs `txnlog upgrade` once before. Exit code 6 when something of a topic is
    damaged: records of the others are removed nevertheless.
    """
    report = _report("retention", place, as_json, dry_run=dry_run)
    if report is None:
        return
    for one in report.skipped:
        say(f"skipped: {one.reason}")
    if report.removed:
        REMOVED.show(report.removed)
    elif not report.skipped and not report.damaged:
        say("nothing to remove")
    _say_dry(report)
    _with_damage(report)


@maintain.command("erasures")
@with_place
def erasures(place: Place, as_json: bool) -> None:
    """Complete the erasures of which vacuums have deleted everything, and say what the others lack.

    A log of an older version needs `txnlog upgrade` once before.
    """
    report = _report("erasures", place, as_json)
    if report is None:
        return
    for skipped in report.skipped:
        say(f"skipped: {skipped.reason}")
    for one in report.erasures:
        say(f"{one.erasure_id} of {one.topic}: {one.stage.value}")
        for missing in one.missing:
            say(f"missing: {missing}")
    if not report.erasures and not report.skipped:
        say("every erasure is complete")


@click.command()
@with_place
@click.option(
    "--grace",
    type=Duration(),
    default="7d",
    show_default=True,
    help="How long readers may use a plan, and writers may take from an upload to its commit: 7d, 12h, 30m.",
)
@dry_run_option
@click.option(
    "--allow-short-grace",
    is_flag=True,
    help="Allow a grace below 2h: reads, uploads and jobs that take longer fail. Nothing of the log is lost.",
)
def vacuum(
    place: Place, grace: datetime.timedelta, dry_run: bool, allow_short_grace: bool, as_json: bool
) -> None:
    """Delete the objects that nothing names any more.

    That is what removed records left, lists that newer ones replace, uploads that never became part of the
    log, and old snapshots. It takes two runs, the grace apart: the first condemns, the second deletes. Run
    the command every day; it may run in several places at once. Objects that txnlog did not make stay. A log
    of an older version needs `txnlog upgrade` once before.
    """
    with progress(wanted=not as_json) as advance, place.open() as log:

        def show(at: VerifyProgress) -> None:
            advance(
                at.done, at.total or None, f"{at.stage} {at.done:,} of {at.total:,}" if at.total else at.stage
            )

        report = log.vacuum(grace, dry_run=dry_run, allow_short_grace=allow_short_grace, progress=show)
    if as_json:
        print_json(report.to_dict())
    else:
        _show_vacuum(report)


def _counts(report: VacuumReport) -> str:
    from txnformat.admin.garbage import Fate

    fates = (Fate.DELETED, Fate.CONDEMNED)
    return ", ".join(f"{counted(report.count(fate), 'object')} {fate.value}" for fate in fates)


def _show_vacuum(report: VacuumReport) -> None:
    VACUUMED.show(report.rows)
    for note in report.notes:
        say(f"note: {note}")
    say(f"{_counts(report)}; floor {report.floor}, entry {report.entry}")
    if report.dry_run:
        say("this is the effect; nothing was changed")


TRUNCATED = Table("Fate Kind Objects Bytes Why Example", example=lambda row: row.examples[0])


@click.command()
@with_place
@click.option(
    "--older-than",
    type=Duration(),
    default="7d",
    show_default=True,
    help="Delete entries that are older: 7d, 30d. At least 7d.",
)
@dry_run_option
def truncate(place: Place, older_than: datetime.timedelta, dry_run: bool, as_json: bool) -> None:
    """Delete old commit entries. No record is deleted with them, and history, outcomes and versions stay
    readable: bundles have them.

    It takes two runs, an hour apart: the first writes a boundary, the second deletes the entries below it.
    Run the command every day; it may run in several places at once. A log of an older version needs
    `txnlog upgrade` once before.
    """
    with progress(wanted=not as_json) as advance, place.open() as log:

        def show(at: VerifyProgress) -> None:
            advance(at.done, at.total or None, f"{at.stage} {at.done:,} of {at.total:,}")

        report = log.truncate(older_than, dry_run=dry_run, progress=show)
    if as_json:
        print_json(report.to_dict())
        return
    TRUNCATED.show(report.rows)
    say(_truncation_counts(report))
    if report.waits_until_ms is not None and report.boundary:
        say(f"a run from {instant(report.waits_until_ms)} on deletes the entries below the boundary")
    say(f"the boundary cannot be higher because of {report.limited_by}")
    if report.dry_run:
        say("this is the effect; nothing was changed")


def _truncation_counts(report: TruncationReport) -> str:
    from txnformat.admin.truncation import Act, TruncatedKind

    gone = counted(report.count(Act.DELETED, TruncatedKind.ENTRY), "entry")
    return f"{gone} deleted; boundary {report.boundary}, entry {report.entry}"


@click.command()
@click.argument("topic", type=TOPIC, required=False)
@with_place
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=Integer(),
    multiple=True,
    help="Only this partition of TOPIC; repeat the option for more.",
)
@click.option(
    "--target-bytes",
    type=Bytes(),
    help="Approximate compressed size of a new file. Default: the topic's compact.target.bytes.",
)
@click.option(
    "--min-lag-ms",
    type=Milliseconds(),
    help="Skip segments with records of a transaction that was aborted within this time; in topics "
    "compacted by key, also records appended within it. Default: the topic's min.compaction.lag.ms.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only show which files would be rewritten, of what is sealed already; change nothing.",
)
@click.option(
    "--spark",
    "with_spark",
    is_flag=True,
    help="Write the files in tasks of Spark, in the session that the environment describes.",
)
def compact(
    topic: str | None,
    place: Place,
    partitions: tuple[int, ...],
    dry_run: bool,
    with_spark: bool,
    as_json: bool,
    **settings: Any,  # target_bytes and min_lag_ms
) -> None:
    """Write small files of old records together, in all topics or in TOPIC. Of topics with
    cleanup.policy=compact, keep only the latest record of each key.

    Readers see what they saw before, with fewer requests, except records of keys that have later ones. The
    command seals first. The old files stay until a vacuum. A log of an older version needs `txnlog upgrade`
    once before.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    with progress(wanted=not as_json) as advance:

        def show(at: CompactionProgress) -> None:
            advance(at.done, at.total, f"{at.topic}: {at.done:,} of {at.total:,} bytes")

        if with_spark and not dry_run:
            done = _compacted_by_spark(place, topic, partitions or None, progress=show, **given)
        else:
            with place.open() as log:
                done = log.compact(topic, partitions or None, dry_run=dry_run, progress=show, **given)
    if as_json:
        print_json({"dry_run": dry_run, "topics": [asdict(one) for one in done]})
    else:
        COMPACTED.show(done)
        if dry_run:
            say(
                "this is the effect on what is sealed now: without --dry-run the command seals the rest first"
            )


def _compacted_by_spark(
    place: Place, topic: str | None, partitions: tuple[int, ...] | None, **settings: Any
) -> list[CompactedTopic]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise click.UsageError("--spark needs PySpark: pip install 'txnlog[spark]'") from None
    from spark_datasource.compact import compact as compact_by_spark

    running = SparkSession.getActiveSession()
    spark = running or SparkSession.builder.appName("txnlog compact").getOrCreate()
    try:
        return compact_by_spark(spark, place.root, topic, partitions, **settings, **place.arguments())
    finally:
        if running is None:
            spark.stop()
