"""``txnlog history``: what each commit entry did, newest first."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from txnlog.cli.options import IntegerRange, Place, with_place
from txnlog.cli.output import Table, instant, print_json, show_lines

if TYPE_CHECKING:
    from txnformat.admin.history import GroupChange, HistoryEntry

__all__ = ["history"]

COLUMNS = Table(
    "Entry Timestamp Engine Operations Records Transactions Groups",
    timestamp=lambda entry: instant(entry.timestamp_ms),
    operations=lambda entry: ", ".join(
        name if count == 1 else f"{name} x{count}" for name, count in Counter(entry.operations).items()
    ),
    records=lambda entry: ", ".join(f"{change.topic} +{change.rows}" for change in entry.topics) or None,
    transactions=lambda entry: (
        ", ".join(
            [
                *(f"{end.transactional_id} {end.outcome.value}" for end in entry.transactions),
                *(f"{one.transactional_id} without {one.topic}/{one.partition}" for one in entry.given_up),
            ]
        )
        or None
    ),
    groups=lambda entry: ", ".join(map(_words, entry.groups)) or None,
)


@click.command()
@with_place
@click.option(
    "--limit",
    "-n",
    type=IntegerRange(min=1),
    default=20,
    show_default=True,
    help="Show at most this many entries.",
)
@click.option("--all", "everything", is_flag=True, help="All entries.")
@click.option("--start", type=IntegerRange(min=0), metavar="ENTRY", help="The newest entry to show.")
def history(place: Place, limit: int, everything: bool, start: int | None, as_json: bool) -> None:
    """Show what happened to the log, newest first.

    With --json one line per entry. Where an entry is deleted, and its bundle is lost, the newer ones are
    shown, and the command ends with the error history-gone and exit code 3; at an entry that is damaged,
    likewise with exit code 6.
    """
    with place.open() as log:
        entries = log.history(None if everything else limit, start)
        if as_json:
            for entry in entries:
                print_json({**entry.to_dict(), "timestamp": instant(entry.timestamp_ms)}, indent=None)
            return
        oldest = 0

        def noted() -> Iterator[HistoryEntry]:
            nonlocal oldest
            for entry in entries:
                oldest = entry.entry
                yield entry

        COLUMNS.show(noted())
        if oldest and not everything:
            show_lines(
                f"older entries are not shown: --start {oldest - 1} shows the next ones, --all shows all",
                sys.stderr,
            )


def _words(change: GroupChange) -> str:
    """Return what happened to a group, in words."""
    match change.kind:
        case "committed":
            noun = "position" if change.positions == 1 else "positions"
            within = "" if change.transactional_id is None else f" in {change.transactional_id}"
            return f"{change.group} +{change.positions} {noun}{within}"
        case "joined":
            return f"{change.group} joined by {change.member} as generation {change.generation}"
        case "left":
            return f"{change.group} without a member from generation {change.generation} on"
        case _:
            return f"{change.group} {change.kind}"
