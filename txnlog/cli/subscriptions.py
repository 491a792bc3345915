"""``subscriptions list``, ``describe``, ``create``, ``seek``, ``delete``: what Pulsar's
``pulsar-admin topics`` does with them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.options import TOPIC, Commands, Place, parse_offsets, with_place
from txnlog.cli.output import Table, instant, plain_values, print_json, say

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["subscriptions"]

LISTED = Table(
    "TOPIC SUBSCRIPTION PENDING-TRANSACTIONS CREATED-ENTRY LAST-USED",
    pending_transactions=lambda one: ",".join(one.pending_transactions) or None,
    last_used=lambda one: instant(one.used_ms or None),
)
BACKLOG = Table("PARTITION MARK LAST-STABLE-OFFSET RANGES UNACKNOWLEDGED PENDING")


@click.group(cls=Commands)
def subscriptions() -> None:
    """List, describe, create, move or delete subscriptions."""


@subscriptions.command("list")
@with_place
@click.option("--topic", type=TOPIC, help="Only subscriptions of this topic.")
def list_(place: Place, topic: str | None, as_json: bool) -> None:
    """List subscriptions, by topic and name."""
    with place.open() as log:
        found = log.subscriptions.list(topic)
    LISTED.answer(found, as_json=as_json, name="subscriptions")


@subscriptions.command("describe")
@click.argument("topic", type=TOPIC)
@click.argument("name")
@with_place
def describe(topic: str, name: str, place: Place, as_json: bool) -> None:
    """Describe subscription NAME of TOPIC: its backlog in each partition.

    Below MARK every record is acknowledged; above it, RANGES of offsets are. UNACKNOWLEDGED counts the
    committed records that are not acknowledged; PENDING counts those of them that an open transaction
    acknowledges.
    """
    with place.open() as log:
        found = log.subscriptions.describe(topic, name)
    if as_json:
        document: dict[str, Any] = plain_values(found)
        document["partitions"] = [one._asdict() for one in found.partitions]
        print_json({**document, "unacknowledged": found.unacknowledged})
        return
    BACKLOG.show(found.partitions)


def _with_start(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a start, passed on as ``start``; None: none of them was given."""

    @functools.wraps(function)
    def start(*arguments: Any, to_earliest: bool, to_latest: bool, to_offset: Any, **others: Any) -> Any:
        ways = [way for way, given in (("earliest", to_earliest), ("latest", to_latest)) if given]
        ways += [] if to_offset is None else [to_offset]
        if len(ways) > 1:
            raise click.UsageError("give only one target: --to-earliest, --to-latest or --to-offset")
        return function(*arguments, start=ways[0] if ways else None, **others)

    for option in (
        click.option("--to-offset", callback=parse_offsets, metavar="OFFSETS", help="An offset, or 0:7,2:9."),
        click.option("--to-latest", is_flag=True, help="Begin at the last stable offset."),
        click.option("--to-earliest", is_flag=True, help="Begin at the log start."),
    ):
        start = option(start)
    return start


@subscriptions.command("create")
@click.argument("topic", type=TOPIC)
@click.argument("name")
@with_place
@_with_start
@click.option("--if-not-exists", is_flag=True, help="Keep a subscription that exists already.")
def create(topic: str, name: str, place: Place, start: Any, if_not_exists: bool, as_json: bool) -> None:
    """Create subscription NAME of TOPIC. By default it begins at the earliest record."""
    with place.open() as log:
        log.subscriptions.create(
            topic, name, start="earliest" if start is None else start, exist_ok=if_not_exists
        )
    _done(topic, name, "is there" if if_not_exists else "created", as_json)


@subscriptions.command("seek")
@click.argument("topic", type=TOPIC)
@click.argument("name")
@with_place
@_with_start
def seek(topic: str, name: str, place: Place, start: Any, as_json: bool) -> None:
    """Move subscription NAME of TOPIC: all records below the new start are acknowledged, no others."""
    if start is None:
        raise click.UsageError("give a target: --to-earliest, --to-latest or --to-offset")
    with place.open() as log:
        log.subscriptions.seek(topic, name, start)
    _done(topic, name, "moved", as_json)


@subscriptions.command("delete")
@click.argument("topic", type=TOPIC)
@click.argument("name")
@with_place
def delete(topic: str, name: str, place: Place, as_json: bool) -> None:
    """Delete subscription NAME of TOPIC, unless an open transaction has acknowledged records in it."""
    with place.open() as log:
        log.subscriptions.delete(topic, name)
    _done(topic, name, "deleted", as_json)


def _done(topic: str, name: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"topic": topic, "subscription": name, "done": what})
    else:
        say(f"{topic}/{name}: {what}")
