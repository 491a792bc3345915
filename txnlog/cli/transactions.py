"""``transactions list`` and ``describe``: what the log knows of transactional ids. Nothing here writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from txnformat.errors import NotFoundError
from txnlog.cli.options import Place, json_option, with_place
from txnlog.cli.output import instant, print_json, print_table

if TYPE_CHECKING:
    from txnformat.state import LogState

__all__ = ["transactions"]

STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")

LIST_COLUMNS = ("TransactionalId", "ProducerId", "TransactionState")
DESCRIBE_COLUMNS = (
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
    "LastEpoch",
    "LastOutcome",
    "LastCause",
    "LastEntry",
)
OPEN_COLUMNS = (
    "TransactionalId",
    "Topic",
    "Partition",
    "StartOffset",
    "LastStableOffset",
    "LatestOffset",
    "HoldsBack",
)


class _Transactions(click.Group):
    """A group whose ``list`` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Transactions)
def transactions() -> None:
    """List or describe transactional ids."""


@transactions.command("list")
@with_place
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), multiple=True, help="Only these.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match as a whole.")
@json_option
def list_(place: Place, state: tuple[str, ...], transactional_id_pattern: str | None, as_json: bool) -> None:
    """List transactional ids and where each stands."""
    pattern = _pattern(transactional_id_pattern)
    with place.open() as log:
        found = _documents(log.refresh())
    found = [
        item
        for item in found
        if (not state or item["state"] in state)
        and (pattern is None or pattern.fullmatch(item["transactional_id"]))
    ]
    if as_json:
        print_json({"transactions": found})
        return
    print_table(
        LIST_COLUMNS, [(item["transactional_id"], item["producer_id"], item["state"]) for item in found]
    )


@transactions.command("describe")
@click.argument("transactional_ids", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@with_place
@json_option
def describe(transactional_ids: tuple[str, ...], place: Place, as_json: bool) -> None:
    """Describe transactional ids.

    Shows the open transaction with its first offset in each partition, how many records it holds back from
    read_committed, and how the last ended transaction ended.
    """
    with place.open() as log:
        known = {item["transactional_id"]: item for item in _documents(log.refresh())}
    for name in transactional_ids:
        if name not in known:
            raise NotFoundError(
                "the log knows no such transactional id",
                kind="unknown-transactional-id",
                hint="list them with: txnlog transactions list",
                transactional_id=name,
            )
    found = [known[name] for name in transactional_ids]
    if as_json:
        print_json({"transactions": found})
        return
    print_table(DESCRIBE_COLUMNS, map(_described, found))
    opened = [(item["transactional_id"], *part.values()) for item in found for part in item["partitions"]]
    if opened:
        print()
        print_table(OPEN_COLUMNS, opened)


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except re.error as error:
        raise click.BadParameter(f"{text!r} is not a regular expression: {error}") from None


def _documents(state: LogState) -> list[dict[str, Any]]:
    """Return what a state holds of each transactional id, by id."""
    found = []
    for name, known in sorted(state.transactional_ids.items()):
        partitions = []
        for key, first_offset in sorted(
            known.partitions.items(),
            key=lambda item: (state.topics[item[0].topic_id].name, item[0].partition),
        ):
            partition = state.partition(key)
            # Only the first of the open transactions of a partition holds its last stable offset.
            holds = partition.last_stable_offset == first_offset
            partitions.append(
                {
                    "topic": state.topics[key.topic_id].name,
                    "partition": key.partition,
                    "start_offset": first_offset,
                    "last_stable_offset": partition.last_stable_offset,
                    "latest_offset": partition.log_end,
                    "holds_back": partition.log_end - partition.last_stable_offset if holds else 0,
                }
            )
        end = known.last_end
        found.append(
            {
                "transactional_id": name,
                "producer_id": known.producer_id,
                "producer_epoch": known.epoch,
                "state": known.status.value,
                "start_timestamp": instant(known.started_ms),
                "start_timestamp_ms": known.started_ms,
                "start_entry": known.started_entry,
                "duration_ms": None if known.started_ms is None else state.timestamp_ms - known.started_ms,
                "partitions": partitions,
                "last_end": None
                if end is None
                else {
                    "epoch": end.epoch,
                    "outcome": end.outcome.value,
                    "cause": end.cause.value,
                    "entry": end.entry,
                },
            }
        )
    return found


def _described(item: dict[str, Any]) -> tuple[object, ...]:
    end = item["last_end"] or {}
    return (
        item["transactional_id"],
        item["producer_id"],
        item["producer_epoch"],
        item["state"],
        item["start_timestamp_ms"],
        item["duration_ms"],
        ",".join(f"{part['topic']}-{part['partition']}" for part in item["partitions"]) or None,
        end.get("epoch"),
        end.get("outcome"),
        end.get("cause"),
        end.get("entry"),
    )
