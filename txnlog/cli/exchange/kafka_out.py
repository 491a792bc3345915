"""``txnlog export kafka``: topics of the log into Kafka, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.exchange.kafka_options import POSITIONS, transfer, with_course
from txnlog.cli.options import Place
from txnlog.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from txnlog.kafka.exporting import ExportReport

__all__ = ["export_kafka"]


@click.command("kafka")
@with_course(
    group="kafka-export",
    group_help="Name of the export: Kafka keeps its positions, and the group of this name has copies of "
    "them.",
    partitions_help="Keep each record's partition, choose it by key, or send partition N to partition M "
    "of Kafka.",
    lost_help="If the log has removed records before they were exported: fail, or skip the gap.",
    batch_records=10_000,
    batch_help="About how many records a transaction has at most.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest", "group"]),
    help="Where to begin when Kafka has no positions of the export; group: at their copies in the log. "
    "Default of a new one: earliest.",
)
@click.option(
    "--create", is_flag=True, help="Create topics that Kafka does not have, with as many partitions as here."
)
@click.option(
    "--position-topic",
    metavar="TOPIC",
    help="Topic in Kafka that keeps the positions. Default: txnlog-export.GROUP.",
)
def export_kafka(
    topics: dict[str, str], place: Place, kafka: dict[str, str], as_json: bool, **settings: Any
) -> None:
    """Export TOPICs of the log to Kafka, each committed record exactly once.

    Records are sent in Kafka transactions, together with the positions behind them: the command can be
    stopped or killed at any time; call it again with the same --group to continue. TOPIC=OTHER gives the
    topic another name in Kafka.
    """
    from txnlog.kafka.exporting import export_topics

    with transfer(place, shown=not as_json) as (log, show):
        report = export_topics(log, kafka, topics, progress=show, **settings)
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
