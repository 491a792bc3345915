"""``txnlog export kafka``: topics of the log into Kafka, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.exchange.kafka_options import POSITIONS, parse_partitions, parse_topics, with_brokers
from txnlog.cli.failures import Interrupted
from txnlog.cli.options import IntegerRange, Place, with_place
from txnlog.cli.output import counted, print_json, say
from txnlog.cli.progress import progress

if TYPE_CHECKING:
    from txnlog.kafka.exporting import ExportProgress, ExportReport

__all__ = ["export_kafka"]


@click.command("kafka")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC[=OTHER]...", callback=parse_topics)
@with_place
@with_brokers
@click.option(
    "--group",
    default="kafka-export",
    show_default=True,
    help="Name of the export: Kafka keeps its positions, and the group of this name has copies of them.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Go on for ever. Default: end where the partitions ended when the command began.",
)
@click.option(
    "--partitions",
    default="same",
    show_default=True,
    callback=parse_partitions,
    metavar="same|key|N:M,…",
    help="Keep each record's partition, go by key, or send partition N to partition M of Kafka.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest", "group"]),
    help="Where to begin when Kafka has no positions of the export; group: at their copies in the log. Default of a new one: earliest.",
)
@click.option(
    "--on-lost",
    type=click.Choice(["stop", "continue"]),
    default="stop",
    show_default=True,
    help="If the log has removed records that were not exported yet: an error, or go on behind them.",
)
@click.option(
    "--create", is_flag=True, help="Create topics that Kafka does not have, with as many partitions as here."
)
@click.option(
    "--position-topic",
    metavar="TOPIC",
    help="Topic in Kafka that keeps the positions. Default: txnlog-export.GROUP.",
)
@click.option(
    "--batch-records",
    type=IntegerRange(min=1),
    default=10_000,
    show_default=True,
    help="About how many records a transaction has at most.",
)
def export_kafka(
    topics: dict[str, str], place: Place, kafka: dict[str, str], as_json: bool, **settings: Any
) -> None:
    """Export TOPICs of the log to Kafka, each committed record exactly once.

    Records are sent in Kafka transactions, together with the positions behind them: the command can be stopped or die anywhere, and goes on when it is called again with the same --group.
    TOPIC=OTHER gives the topic another name in Kafka.
    """
    from txnlog.kafka.exporting import export_topics

    try:
        with place.open() as log, progress(wanted=not as_json) as advance:

            def show(at: ExportProgress) -> None:
                advance(at.done, at.total, f"{at.records:,} records")

            report = export_topics(log, kafka, topics, progress=show, **settings)
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; what was committed stays, and the same command goes on behind it"
        ) from None
    if as_json:
        print_json(report)
    else:
        _show(report)


def _show(report: ExportReport) -> None:
    POSITIONS.show(
        (topic, partition, offset)
        for topic, positions in sorted(report.positions.items())
        for partition, offset in sorted(positions.items())
    )
    for name in report.created:
        say(f"created topic {name} in Kafka")
    say(f"exported {counted(report.records, 'record')} in {counted(report.commits, 'transaction')} of Kafka")
