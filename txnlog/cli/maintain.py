"""``txnlog maintain``: what keeps a log small, now. Writers do it by themselves as they go."""

from __future__ import annotations

import click

from txnlog.cli.options import Place, with_place
from txnlog.cli.output import print_json, say

__all__ = ["maintain"]


@click.group()
def maintain() -> None:
    """Keep the log small."""


@maintain.command("timeouts")
@with_place
def timeouts(place: Place, as_json: bool) -> None:
    """End the open transactions whose time is over.

    Every commit to the log does it, too; use this for logs without writes. Prepared transactions stay.
    """
    with place.open() as log:
        report = log.maintain("timeouts")
    if as_json:
        print_json(report)
    else:
        say(
            f"ended {len(report.timed_out)} transactions{': ' if report.timed_out else ''}"
            + ", ".join(report.timed_out)
        )


@maintain.command("seal")
@with_place
def seal(place: Place, as_json: bool) -> None:
    """Move what is decided from the state into sidecars.

    Writers do it by themselves once there is enough of it. The command reports what it moved; an empty report is no error.
    """
    with place.open() as log:
        report = log.maintain("seal")
    if as_json:
        print_json(report)
    elif not report.segments:
        say("nothing to seal")
    else:
        say(
            f"sealed {report.batches} batches of {report.partitions} partitions in {report.segments} segments, "
            f"{report.sidecar_bytes} bytes of sidecars"
        )


@maintain.command("expire")
@with_place
def expire(place: Place, as_json: bool) -> None:
    """Forget transactional ids and producers that have long been unused.

    A transactional id is remembered for 7 days after its last use, a producer without one for a day after its last
    append. Those with an open or prepared transaction stay.
    """
    with place.open() as log:
        report = log.maintain("expire")
    if as_json:
        print_json(report)
    else:
        say(
            f"forgot {report.expired_transactional_ids} transactional ids and {report.expired_producers} producers "
            "without one"
        )
