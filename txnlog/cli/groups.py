"""``groups list``, ``describe``, ``reset-offsets``, ``delete``: consumer groups, seen and set from outside.

The columns are those of Kafka's ``kafka-consumer-groups.sh``; a group has one member, so that CONSUMER-ID,
HOST and CLIENT-ID of each partition are MEMBER of the group.
"""

from __future__ import annotations

import csv
import datetime
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

import click

from txnformat.errors import NotFoundError
from txnlog.cli.options import (
    GROUP,
    NUMBER,
    TIMES,
    TOPIC,
    Commands,
    Integer,
    IntegerRange,
    Place,
    amount_of,
    parse_numbers,
    with_place,
)
from txnlog.cli.output import Table, counted, instant, plain_values, print_exact, print_json, say

if TYPE_CHECKING:
    from txnformat.core.groups.listing import GroupDetails, PendingCommit

__all__ = ["groups"]

STATES = ("Stable", "Empty", "Dead")

LISTED = Table(
    "GROUP STATE GENERATION MEMBER LIVE-UNTIL POSITIONS PENDING-TRANSACTIONS LAST-USED",
    live_until=lambda one: instant(one.live_until_ms),
    last_used=lambda one: instant(one.used_ms),
)
DESCRIBED = Table(
    "GROUP STATE GENERATION MEMBER LIVE-UNTIL",
    member=lambda one: one.member and one.member.name,
    live_until=lambda one: one.member and instant(one.member.live_until_ms),
)
_COMMITTED: dict[str, Callable[..., object]] = {
    "pending": lambda part, _: _pending(part.pending),
    "committed_at": lambda part, _: instant(part.committed_ms),
    "metadata": lambda part, _: part.metadata or None,
}
POSITIONS = Table(
    "GROUP TOPIC PARTITION CURRENT-OFFSET LAST-STABLE-OFFSET LOG-END-OFFSET LAG PENDING COMMITTED-ENTRY "
    "COMMITTED-AT METADATA",
    log_end_offset=lambda part, _: part.log_end,
    **_COMMITTED,
)
FOREIGN_POSITIONS = Table("GROUP NAME POSITION PENDING COMMITTED-ENTRY COMMITTED-AT METADATA", **_COMMITTED)
RESET = Table(
    "GROUP TOPIC PARTITION PREVIOUS-OFFSET NEW-OFFSET", new_offset=lambda position, _: position.offset
)

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>[0-9]{1,6})D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]{1,9})H)?(?:(?P<minutes>[0-9]{1,9})M)?(?:(?P<seconds>[0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?"
)


def _duration(text: str) -> datetime.timedelta:
    """Return a duration: as for other options, or in ISO 8601 as Kafka's tool has it: days, hours, minutes
    and seconds.
    """
    known = amount_of(text, TIMES, None)
    if known is not None:
        return datetime.timedelta(milliseconds=known)
    found = _DURATION.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a duration such as 7d, 12h, P7D, PT1H30M or PT0.5S")
    return datetime.timedelta(**{unit: float(count) for unit, count in found.groupdict("0").items()})


def _moment(text: str) -> datetime.datetime:
    """Return a time in ISO 8601; UTC without a zone."""
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-08-01T12:00:00Z") from None


class _Lines(click.File):
    """A file of text, or stdin."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the open file."""
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed: name a file", param, ctx)
        return super().convert(value, param, ctx)


@click.group(cls=Commands)
def groups() -> None:
    """List, describe, set or delete consumer groups."""


@groups.command("list")
@with_place
@click.option(
    "--state",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state; repeat the option.",
)
@click.option("--pattern", metavar="REGEX", help="Only groups whose whole name matches.")
def list_(place: Place, state: tuple[str, ...], pattern: str | None, as_json: bool) -> None:
    """List consumer groups and where each stands.

    Stable: it has a live member. Empty: it has positions, but no live member. Dead: neither.
    """
    with place.open() as log:
        found = log.groups.list(states=state, pattern=pattern)
    LISTED.answer(found, as_json=as_json, name="groups")


@groups.command("describe")
@click.argument("names", type=GROUP, nargs=-1, metavar="[GROUP]...")
@with_place
@click.option("--all-groups", is_flag=True, help="All groups.")
def describe(names: tuple[str, ...], place: Place, all_groups: bool, as_json: bool) -> None:
    """Describe consumer groups: their members, positions and lag.

    LAG counts the records from CURRENT-OFFSET to LAST-STABLE-OFFSET that read_committed shows: neither
    markers nor aborted records. PENDING are positions of undecided transactions, by transactional id: a
    consumer that begins waits for them.
    """
    if bool(names) == all_groups:
        raise click.UsageError("give the names of groups, or --all-groups")
    with place.open() as log:
        found = log.groups.describe_all(names or None)
    if as_json:
        print_json({"groups": [_document(one) for one in found]})
        return
    DESCRIBED.show(found)
    positions = [(part, one) for one in found for part in one.positions]
    foreign = [(position, one) for one in found for position in one.foreign_positions]
    for table, rows in ((POSITIONS, positions), (FOREIGN_POSITIONS, foreign)):
        if rows:
            say("")
            table.show(rows)


def _document(one: GroupDetails) -> dict[str, Any]:
    """Return a description as JSON shows it."""
    document: dict[str, Any] = plain_values(one)
    document["lag"] = one.lag
    for position in (*document["positions"], *document["foreign_positions"]):
        position["committed"] = instant(position["committed_ms"])
    return document


def _pending(found: Iterable[PendingCommit]) -> str | None:
    return ",".join(f"{one.transactional_id}:{one.position}" for one in found) or None


@groups.command("reset-offsets")
@click.argument("group", type=GROUP)
@with_place
@click.option("--topic", type=TOPIC, help="Only this topic; needed when the group has no positions yet.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    callback=parse_numbers,
    help="Only these partitions of the topic: 0,2; repeat the option.",
)
@click.option("--to-earliest", is_flag=True, help="To the log start.")
@click.option("--to-latest", is_flag=True, help="To the last stable offset.")
@click.option("--to-current", is_flag=True, help="Keep the position; the latest where the group has none.")
@click.option("--to-offset", type=IntegerRange(min=0), metavar="OFFSET", help="To this offset.")
@click.option(
    "--to-datetime",
    type=_moment,
    metavar="TIME",
    help="To the first record that is not older, such as 2026-08-01T12:00:00Z; to the latest without one.",
)
@click.option(
    "--by-duration",
    type=_duration,
    metavar="DURATION",
    help="To the first record of this long ago: 7d, 12h, P7D, PT1H30M.",
)
@click.option(
    "--shift-by", type=Integer(), metavar="N", help="Forward by this many offsets; back if negative."
)
@click.option(
    "--from-file",
    type=_Lines(),
    metavar="FILE",
    help="To the offsets in lines topic,partition,offset; - is stdin.",
)
@click.option(
    "--execute", is_flag=True, help="Apply the change. Without this option the command only shows the effect."
)
@click.option("--dry-run", is_flag=True, help="Only show the effect; that is the default.")
@click.option("--export", is_flag=True, help="Print lines topic,partition,offset, for --from-file.")
@click.option(
    "--force", is_flag=True, help="Also when the group has a live member, whose commits are then refused."
)
@click.option("--create", is_flag=True, help="Create the group if it does not exist.")
def reset_offsets(
    group: str,
    place: Place,
    topic: str | None,
    partitions: list[int] | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: datetime.datetime | None,
    by_duration: datetime.timedelta | None,
    shift_by: int | None,
    from_file: TextIO | None,
    execute: bool,
    dry_run: bool,
    export: bool,
    force: bool,
    create: bool,
    as_json: bool,
) -> None:
    """Set positions of GROUP.

    Of a topic, of some of its partitions, or all positions that the group has.

    The command sets all of them in one step, or none when one is out of range. It refuses a group with a live
    member.
    """
    if partitions is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    if execute and dry_run:
        raise click.UsageError("give either --execute or --dry-run, not both")
    if export and as_json:
        raise click.UsageError("give either --export or --json, not both")
    shift = None if shift_by is None else f"shift:{shift_by}"
    if from_file is not None and topic is not None:
        raise click.UsageError("--from-file names topics and partitions itself")
    file = None if from_file is None else _from_file(from_file)
    named = {"earliest": to_earliest, "latest": to_latest, "current": to_current}
    ways: list[Any] = [way for way, given in named.items() if given]
    ways += [way for way in (to_offset, to_datetime, by_duration, shift, file) if way is not None]
    if len(ways) != 1:
        raise click.UsageError(
            "give exactly one target: --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--by-duration, --shift-by or --from-file"
        )
    with place.open() as log:
        try:
            done = log.groups.reset_offsets(
                group, topic, partitions, to=ways[0], dry_run=not execute, force=force, create=create
            )
        except NotFoundError as error:
            if error.kind == "unknown-group":
                topic_too = "" if topic else " and --topic TOPIC"
                error.hint = f"add --create{topic_too} for a new group, or check the name: txnlog groups list"
            raise
    if as_json:
        print_json({**plain_values(done), "dry_run": not execute})
        return
    if export:
        for one in done.offsets:
            print_exact(f"{one.topic},{one.partition},{one.offset}")
        return
    RESET.show((one, done) for one in done.offsets)
    if not execute:
        say("nothing was written: add --execute to do it")


def _from_file(file: TextIO) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    try:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row:
                continue
            topic, partition, offset = (
                (cell.removeprefix("\ufeff").strip() for cell in row) if len(row) == 3 else ("", "", "")
            )
            if not (topic and NUMBER.fullmatch(partition) and NUMBER.fullmatch(offset)):
                raise click.BadParameter(
                    f"line {number} is not topic,partition,offset: {','.join(row)!r:.80}",
                    param_hint="--from-file",
                )
            if (topic, int(partition)) in found:
                raise click.BadParameter(
                    f"line {number} names {topic},{partition} again", param_hint="--from-file"
                )
            found[topic, int(partition)] = int(offset)
    except (UnicodeDecodeError, csv.Error) as error:
        raise click.BadParameter(f"it is not text in lines: {error}", param_hint="--from-file") from None
    if not found:
        raise click.BadParameter("it is empty", param_hint="--from-file")
    return found


@groups.command("delete")
@click.argument("group", type=GROUP)
@with_place
@click.option(
    "--force", is_flag=True, help="Also when the group has a live member, whose commits are then refused."
)
@click.option("--dry-run", is_flag=True, help="Only show the effect; change nothing.")
def delete(group: str, place: Place, force: bool, dry_run: bool, as_json: bool) -> None:
    """Delete GROUP with all its positions.

    The command refuses a group with a live member, or with positions pending in open transactions.
    """
    with place.open() as log:
        done = log.groups.delete(group, force=force, dry_run=dry_run)
    if as_json:
        print_json({**plain_values(done), "dry_run": dry_run})
    elif dry_run:
        say(f"{group}: this would delete the group and {counted(done.positions, 'position')}")
    else:
        say(f"{group}: deleted with {counted(done.positions, 'position')}, in entry {done.entry}")
