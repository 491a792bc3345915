"""``transactions list``, ``describe``, ``describe-producers``, ``find-hanging``: nothing here writes.

The columns are Kafka's, but for CoordinatorId and CoordinatorEpoch: there is no coordinator. The commands
that end transactions are in :mod:`txnlog.cli.ending`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txnlog.cli import ending
from txnlog.cli.failures import NEGATIVE
from txnlog.cli.options import (
    TOPIC,
    TRANSACTIONAL_ID,
    Commands,
    Integer,
    IntegerRange,
    Milliseconds,
    Place,
    with_place,
)
from txnlog.cli.output import Table, instant, plain_values, print_json, say

if TYPE_CHECKING:
    from txnformat.core.transactions.hanging import HangingReport
    from txnformat.core.transactions.listing import TransactionDetails

__all__ = ["transactions"]

STATES = ("Empty", "Ongoing", "Prepared", "CompleteCommit", "CompleteAbort")

LISTED = Table("TransactionalId ProducerId TransactionState", transaction_state=lambda one: one.state)
DESCRIBED = Table(
    "TransactionalId ProducerId ProducerEpoch TransactionState TransactionTimeoutMs "
    "CurrentTransactionStartTimeMs "
    "TransactionDurationMs TopicPartitions Buffer LastEpoch LastOutcome LastCause LastEntry",
    transaction_state=lambda one: one.state,
    transaction_timeout_ms=lambda one: one.timeout_ms,
    current_transaction_start_time_ms=lambda one: one.start_timestamp_ms,
    transaction_duration_ms=lambda one: one.duration_ms,
    topic_partitions=lambda one: (
        ",".join(f"{part.topic}-{part.partition}" for part in one.partitions) or None
    ),
    last_epoch=lambda one: one.last_end and one.last_end.epoch,
    last_outcome=lambda one: one.last_end and one.last_end.outcome.value,
    last_cause=lambda one: one.last_end and one.last_end.cause.value,
    last_entry=lambda one: one.last_end and one.last_end.entry,
)
OPEN = Table(
    "TransactionalId Topic Partition StartOffset StagedRecords LastStableOffset LatestOffset HoldsBack"
)
PRODUCERS = Table(
    "ProducerId ProducerEpoch LastSequence LastTimestamp CurrentTransactionStartOffset TransactionalId",
    last_timestamp=lambda one: one.last_timestamp_ms,
    current_transaction_start_offset=lambda one: (
        "None" if one.current_transaction_start_offset is None else one.current_transaction_start_offset
    ),
)
HANGING = Table(
    "Topic Partition ProducerId ProducerEpoch StartOffset LastTimestamp Duration(min)",
    last_timestamp=lambda one: one.last_timestamp_ms,
    duration_min=lambda one: one.duration_ms // MS_PER_MINUTE,
)
HELD = Table(
    "Topic Partition TransactionalId Cause StartOffset HoldsBack Duration(min)",
    duration_min=lambda one: one.duration_ms // MS_PER_MINUTE,
)

MS_PER_MINUTE = 60_000


class _Transactions(Commands):
    """A group whose ``list`` may be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (
            args[0] not in self.commands and args[0].startswith("-") and args[0] not in ctx.help_option_names
        ):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Transactions)
def transactions() -> None:
    """List, describe or end transactions."""


@transactions.command("list")
@with_place
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only ids in this state; repeat the option.",
)
@click.option(
    "--transactional-id-pattern", "pattern", metavar="REGEX", help="Only ids that match the whole expression."
)
@click.option(
    "--duration-filter",
    "min_duration_ms",
    type=Milliseconds(),
    help="Only transactions that have been open for longer.",
)
@click.option(
    "--producer-id",
    "producer_ids",
    type=Integer(),
    multiple=True,
    help="Only this producer id; repeat the option.",
)
def list_(place: Place, as_json: bool, **wanted: Any) -> None:
    """List transactional ids and where each stands."""
    with place.open() as log:
        found = log.transactions.list(**wanted)
        if as_json:
            described = log.transactions.describe_all(one.transactional_id for one in found)
            print_json({"transactions": [_document(one) for one in described]})
            return
    LISTED.show(found)


@transactions.command("describe")
@click.argument(
    "transactional_ids", type=TRANSACTIONAL_ID, nargs=-1, required=True, metavar="TRANSACTIONAL_ID..."
)
@with_place
def describe(transactional_ids: tuple[str, ...], place: Place, as_json: bool) -> None:
    """Describe transactional ids.

    Shows the open transaction with its first offset in each partition, or the records that it has staged
    there, how many records it holds back from read_committed, and how the last ended transaction ended.
    TransactionDurationMs is up to now, by the store's time.
    """
    with place.open() as log:
        found = log.transactions.describe_all(transactional_ids)
    if as_json:
        print_json({"transactions": [_document(one) for one in found]})
        return
    DESCRIBED.show(found)
    opened = [(part, one) for one in found for part in one.partitions]
    if opened:
        say("")
        OPEN.show(opened)


@transactions.command("describe-producers")
@with_place
@click.option("--topic", type=TOPIC, required=True, help="The partition's topic.")
@click.option("--partition", type=IntegerRange(min=0), required=True, help="Number of the partition.")
def describe_producers(place: Place, topic: str, partition: int, as_json: bool) -> None:
    """Describe the producers that a partition remembers.

    Those without a transactional id, and those with an open transaction that has appended to the partition.
    CurrentTransactionStartOffset is None outside of a transaction.
    """
    with place.open() as log:
        found = log.transactions.describe_producers(topic, partition)
    if as_json:
        print_json({"topic": topic, "partition": partition, "producers": found})
        return
    PRODUCERS.show(found)


@transactions.command("find-hanging")
@with_place
@click.option("--topic", type=TOPIC, help="Only this topic.")
@click.option("--partition", type=IntegerRange(min=0), help="Only this partition of the topic.")
@click.option(
    "--max-transaction-timeout",
    "limit_ms",
    type=Milliseconds("minutes"),
    help="A transaction hangs when it has appended nothing for longer. Default: the longest timeout that "
    "the log "
    "allows.",
)
def find_hanging(
    place: Place, topic: str | None, partition: int | None, limit_ms: int | None, as_json: bool
) -> int:
    """Look for transactions that cannot be ended, and for those that hold readers back.

    A hanging transaction is open in a partition although no transactional id has it there. No writer causes
    that; txnlog verify shows more. Exit code 1 when the command finds one. Late transactions, whose timeout
    is over, and prepared ones hold readers back in the same way: the command lists them with advice, and they
    are not a problem of the log.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    with place.open() as log:
        found = log.transactions.find_hanging(topic, partition, limit_ms)
    if as_json:
        print_json(found)
    else:
        _show_hanging(found)
    return NEGATIVE if found.hanging else 0


def _show_hanging(found: HangingReport) -> None:
    HANGING.show(found.hanging)
    if not found.held:
        return
    say("")
    say("Not hanging, but late or prepared:")
    HELD.show(found.held)
    for advice in dict.fromkeys(one.advice for one in found.held):
        say(advice)


def _document(one: TransactionDetails) -> dict[str, Any]:
    """Return a description as JSON shows it."""
    document: dict[str, Any] = plain_values(one)
    document["start_timestamp"] = instant(one.start_timestamp_ms)
    return document


for _command in ending.COMMANDS:
    transactions.add_command(_command)
