"""``txnlog erase``: records vanish for good; and what an erasure lacks until it is complete."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING

import click

from txnformat.errors import TxnLogError
from txnlog.cli.ending import dry_run_option
from txnlog.cli.options import TOPIC, Place, with_place
from txnlog.cli.output import Table, counted, instant, print_json, say, show_lines

if TYPE_CHECKING:
    from txnformat.admin.erasure.call import ErasureReport
    from txnformat.admin.erasure.status import ErasureStatus

__all__ = ["erase"]

KEY_BYTES = 32
REFUSED = (
    *("unknown-topic", "invalid-where", "invalid-requested-by", "erases-all-rows", "upgrade-required"),
    *("chunks-in-erasure", "too-many-erasures"),
)
"""Kinds of errors that come before an erasure begins."""

ERASURES = Table(
    "Erasure Topic Stage RequestedBy Requested Columns Records Files Missing",
    erasure=lambda one: one.erasure_id,
    stage=lambda one: one.stage.value,
    requested_by=lambda one: one.requested_by,
    requested=lambda one: instant(one.timestamp_ms),
    columns=lambda one: ", ".join(one.columns),
    missing=lambda one: "; ".join(one.missing) or None,
)


@click.command()
@click.argument("topic", type=TOPIC, required=False)
@with_place
@click.option("--where", help="SQL condition on the columns of TOPIC: the records to remove.")
@click.option(
    "--requested-by",
    help="Name of the requester, or the ticket; the log keeps it. Optional with --dry-run.",
)
@click.option(
    "--key",
    help="Key of an erasure to continue, or of a new one: 32 random hex digits or more. Default: a random "
    "key. The log never stores it.",
)
@click.option("--all-rows", is_flag=True, help="Allow a condition that matches every committed record.")
@dry_run_option
@click.option(
    "--status",
    "status",
    is_flag=True,
    help="Show the erasures of the log, or the one whose id is given in place of TOPIC, and what each "
    "lacks; also look for objects left over in the store.",
)
@click.option(
    "--abandon",
    is_flag=True,
    help="Abandon the erasure whose id is given in place of TOPIC, because its key is lost: the log "
    "forgets it, without a certificate. Needs --requested-by.",
)
def erase(
    topic: str | None,
    place: Place,
    where: str | None,
    requested_by: str | None,
    key: str | None,
    all_rows: bool,
    dry_run: bool,
    status: bool,
    abandon: bool,
    as_json: bool,
) -> None:
    """Remove the records of TOPIC that a condition matches, for good.

    Files that hold such records are rewritten without them, and readers stop seeing the records at once;
    vacuums delete the old files, and `txnlog maintain all` writes a certificate when nothing is left. Keep
    the key that the command shows first (with --json it is in the answer, so give one that you have kept): if
    open transactions hold the erasure back, or the command was cut short, call it again with the same
    condition and key. A log of an older version needs `txnlog upgrade` once before.
    """
    if status:
        if where is not None or requested_by is not None or key is not None or abandon:
            raise click.UsageError("--status takes only the id of an erasure")
        _show_status(place, topic, as_json)
        return
    if abandon:
        lacking = [
            what
            for what, given in (("the id of the erasure", topic), ("--requested-by", requested_by))
            if not given
        ]
        if topic is None or requested_by is None:
            raise click.UsageError(f"--abandon needs {' and '.join(lacking)}")
        if where is not None:
            raise click.UsageError("--abandon ends an erasure; leave out --where")
        _abandon(place, topic, requested_by, as_json)
        return
    if topic is None or where is None or not where.strip() or (requested_by is None and not dry_run):
        raise click.UsageError("name TOPIC, --where and --requested-by; or use --status")
    shows_key = key is None and not dry_run and not as_json
    if key is None and not dry_run:
        key = secrets.token_hex(KEY_BYTES)
    try:
        with place.open() as log:
            if shows_key:  # before anything is written: with it, a call that was cut short can go on
                show_lines(f"key: {key}", sys.stderr)
            report = log.erase(
                topic,
                where,
                requested_by="dry run" if requested_by is None else requested_by,
                key=key,
                dry_run=dry_run,
                all_rows=all_rows,
            )
    except TxnLogError as error:
        if shows_key and error.kind in REFUSED:
            show_lines("no erasure was started; discard this key", sys.stderr)
        raise
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)


def _show(report: ErasureReport) -> None:
    found = f"{counted(report.rows, 'matching row')} in {counted(len(report.files), 'file')}"
    say(f"read {counted(report.rows_read, 'row')} of {counted(report.files_read, 'file')}: {found}")
    if report.dry_run:
        for key in report.files:
            say(key)
        say("this is the effect; nothing was changed")
        return
    one = report.status
    if one is None:
        return
    begun = "a new erasure" if report.is_new else "the erasure that had begun before"
    say(f"{one.erasure_id}, {begun}: {counted(one.records, 'record')} removed, {one.stage.value}")
    if report.is_new and not report.rows:
        say(
            f"no row matches the condition: if it is wrong, txnlog erase {one.erasure_id} --abandon "
            "abandons the erasure"
        )
    for missing in one.missing:
        say(f"missing: {missing}")


def _abandon(place: Place, erasure_id: str, requested_by: str, as_json: bool) -> None:
    with place.open() as log:
        before = log.abandon_erasure(erasure_id, requested_by=requested_by)
    if as_json:
        print_json({"abandoned": before.to_dict()})
    else:
        say(
            f"erasure {before.erasure_id} is abandoned: {counted(before.records, 'record')} removed, "
            f"{before.stage.value}; it gets no certificate"
        )


def _show_status(place: Place, erasure_id: str | None, as_json: bool) -> None:
    with place.open() as log:
        found: list[ErasureStatus] = log.erasures(look=True)
    if erasure_id is not None:
        found = [one for one in found if one.erasure_id == erasure_id]
        if not found:
            from txnformat.errors import NotFoundError

            raise NotFoundError(
                "no such erasure",
                kind="unknown-erasure",
                hint="--status without an id lists the erasures in the log's state; `txnlog history "
                "--all` shows older ones",
                erasure_id=erasure_id,
            )
    if as_json:
        print_json({"erasures": [one.to_dict() for one in found]})
    elif found:
        ERASURES.show(found)
    else:
        say("the log has no erasure")
