"""``txnlog maintain``: the work that keeps a log small, now. Writers do it themselves as they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txnlog.cli.options import Place, with_place
from txnlog.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from txnformat.client.maintenance import MaintenanceReport

__all__ = ["maintain"]


@click.group()
def maintain() -> None:
    """Keep the log small."""


def _report(task: str, place: Place, as_json: bool) -> MaintenanceReport | None:
    """Do a task of maintenance; return its report, or print it as JSON."""
    with place.open() as log:
        report = log.maintain(task)
    if not as_json:
        return report
    print_json(report)
    return None


@maintain.command("timeouts")
@with_place
def timeouts(place: Place, as_json: bool) -> None:
    """End the open transactions whose timeout is over.

    Every commit to the log does this, too; use the command for logs without writes. Prepared transactions stay.
    """
    report = _report("timeouts", place, as_json)
    if report is not None:
        names = f": {', '.join(report.timed_out)}" if report.timed_out else ""
        say(f"ended {counted(len(report.timed_out), 'transaction')}{names}")


@maintain.command("seal")
@with_place
def seal(place: Place, as_json: bool) -> None:
    """Move decided batches from the state into sidecars, and merge the lists of these.

    Writers do this themselves once there are enough batches; they leave lists of more than 200,000 rows to this command. The command reports what it moved; an empty report is no error.
    """
    report = _report("seal", place, as_json)
    if report is None:
        return
    if report.segments:
        say(
            f"sealed {counted(report.batches, 'batch')} of {counted(report.partitions, 'partition')} in "
            f"{counted(report.segments, 'segment')}, {counted(report.sidecar_bytes, 'byte')} of sidecars"
        )
    else:
        say("nothing to seal")
    if report.merged_lists:
        say(f"merged {counted(report.merged_lists, 'segment list')} into larger ones")


@maintain.command("expire")
@with_place
def expire(place: Place, as_json: bool) -> None:
    """Forget transactional ids and producers that have long been unused.

    A transactional id is remembered for 7 days after its last use, a producer without one for a day after its last
    append. Those with an open or prepared transaction stay.
    """
    report = _report("expire", place, as_json)
    if report is not None:
        say(
            f"forgot {counted(report.expired_transactional_ids, 'transactional id')} and "
            f"{counted(report.expired_producers, 'producer')} without one"
        )
