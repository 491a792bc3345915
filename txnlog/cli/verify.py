"""``txnlog verify``: derives the whole state of a log again from its objects."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from txnlog.cli.failures import NEGATIVE
from txnlog.cli.options import Place, with_place
from txnlog.cli.output import counted, print_json, say
from txnlog.cli.progress import progress

if TYPE_CHECKING:
    from txnformat.verify.report import VerifyProgress, VerifyReport

__all__ = ["verify"]


@click.command()
@with_place
@click.option("--deep", is_flag=True, help="Also read every data file completely.")
def verify(place: Place, deep: bool, as_json: bool) -> int:
    """Check the log against itself.

    Derives the chain, offsets, visibility, snapshots and references to files again from the objects, and
    reports every difference. Exit code 1 when something is wrong. The command writes nothing.
    """
    from txnformat.verify.log import verify_log

    with progress(wanted=not as_json) as advance:

        def show(at: VerifyProgress) -> None:
            advance(at.done, at.total, f"{at.stage} {at.done:,} of {at.total:,}")

        # Not through TxnLog.open: a log that cannot be opened needs the check most.
        report = verify_log(place.store(), deep=deep, progress=show)
    if as_json:
        print_json(report.to_dict())
    else:
        _show(report)
    return 0 if report.ok else NEGATIVE


def _named(name: str, count: int) -> str:
    """Return what was counted, such as ``row_groups``, in words."""
    words = name.replace("_", " ")
    return re.sub(r"(ie)?s\b", lambda end: "y" if end[1] else "", words, count=1) if count == 1 else words


def _show(report: VerifyReport) -> None:
    for problem in report.problems:
        say(f"problem  {problem.kind.value}  {problem}")
    for note in report.notes:
        examples = f", such as {note.examples[0]}" if note.examples else ""
        say(f"note     {note.kind}  {note.what}: {note.count} ({counted(note.bytes, 'byte')}{examples})")
    checked = ", ".join(f"{count} {_named(name, count)}" for name, count in report.checked.items())
    verdict = "ok" if report.ok else counted(len(report.problems), "problem")
    say(f"{verdict}: entries {report.first_entry} to {report.last_entry} of {report.url}; checked {checked}")
