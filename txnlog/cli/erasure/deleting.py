"""``delete-records`` and ``delete-topic``."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from txnformat.errors import printable
from txnlog.cli.ending import asked, dry_run_option
from txnlog.cli.options import TOPIC, Place, parse_offsets, with_place
from txnlog.cli.output import Table, counted, plain_values, print_json, say

__all__ = ["delete_records", "delete_topic"]

DELETED = Table("Topic Partition PreviousEarliest Earliest")
TOPICS = Table(
    "Topic TopicId Partitions Aborted GivenUp",
    aborted=lambda done: ", ".join(done.aborted) or "-",
    given_up=lambda done: ", ".join(done.given_up) or "-",
)


def _parse_before(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | dict[int, int] | None:
    return -1 if value == "latest" else parse_offsets(context, parameter, value)


@click.command("delete-records")
@click.argument("topic", type=TOPIC)
@with_place
@click.option(
    "--before",
    "offsets",
    required=True,
    metavar="OFFSETS",
    callback=_parse_before,
    help="The first offset that stays: 7 for every partition, 0:7,2:9 for partitions 0 and 2, or latest "
    "(the last stable offset) for every partition.",
)
@dry_run_option
@click.option(
    "--force",
    is_flag=True,
    help="Abort the open transactions that have begun below the offsets; with it, latest is the log end.",
)
@click.option(
    "--prepared",
    multiple=True,
    metavar="TRANSACTIONAL_ID",
    help="Discard this prepared transaction's records in such a partition; implies --force. Repeat the "
    "option for more.",
)
def delete_records(
    topic: str,
    place: Place,
    offsets: int | dict[int, int],
    dry_run: bool,
    force: bool,
    prepared: tuple[str, ...],
    as_json: bool,
) -> None:
    """Remove the oldest records of TOPIC for good.

    The first offsets of partitions move; they never go back. A log of an older version needs `txnlog upgrade`
    once before.
    """
    with place.open() as log:
        done = log.delete_records(topic, offsets, dry_run=dry_run, force=prepared or force)
    if as_json:
        print_json({"partitions": [plain_values(one) for one in done], "dry_run": dry_run})
        return
    DELETED.show(done)
    _say_ended(
        [name for one in done for name in one.aborted], [name for one in done for name in one.given_up]
    )
    if dry_run:
        say("this is the effect; nothing was changed")


@click.command("delete-topic")
@click.argument("topic", type=TOPIC)
@with_place
@dry_run_option
@click.option("--yes", is_flag=True, help="Do not ask for the name again.")
@click.option("--force", is_flag=True, help="Abort the open transactions that touch the topic.")
@click.option(
    "--prepared",
    multiple=True,
    metavar="TRANSACTIONAL_ID",
    help="Discard this prepared transaction's records in the topic; implies --force. Repeat the option "
    "for more.",
)
def delete_topic(
    topic: str, place: Place, dry_run: bool, yes: bool, force: bool, prepared: tuple[str, ...], as_json: bool
) -> None:
    """Delete TOPIC with all its records, subscriptions and positions, for good.

    A topic that is created under the same name afterwards is another one. A log of an older version needs
    `txnlog upgrade` once before.
    """
    with place.open() as log:
        partitions = log.state.topic(topic).partitions
        if not yes and not dry_run:
            _ask_for_name(topic, partitions)
        done = log.delete_topic(topic, force=prepared or force, dry_run=dry_run)
    if as_json:
        print_json(done)
        return
    if dry_run:
        TOPICS.show([done])
        say("this is the effect; nothing was changed")
        return
    say(f"deleted topic {topic} with {counted(done.partitions, 'partition')}")
    _say_ended(done.aborted, done.given_up)


def _say_ended(aborted: Iterable[str], given_up: Iterable[str]) -> None:
    for what, names in (
        ("aborted the open", sorted({*aborted})),
        ("discarded the records of the prepared", sorted({*given_up})),
    ):
        if names:
            say(f"{what} {'transaction' if len(names) == 1 else 'transactions'} {', '.join(names)}")


def _ask_for_name(topic: str, partitions: int) -> None:
    what = f"deletes topic {printable(topic)} with {counted(partitions, 'partition')} for good"
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError(f"this {what}: add --yes to do it")
    if asked(lambda: click.prompt(f"This {what}. Type its name to continue", err=True)) != topic:
        raise click.UsageError("that is not the name of the topic; nothing was deleted")
