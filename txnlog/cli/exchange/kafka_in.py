"""``txnlog import kafka``: topics of Kafka into the log, each record once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.exchange.kafka_options import POSITIONS, transfer, with_course
from txnlog.cli.options import Bytes, FilePath, IntegerRange, Milliseconds, Place, parse_pairs
from txnlog.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from txnlog.kafka.importing import ImportReport

__all__ = ["import_kafka"]

FORMATS = click.Choice(["raw", "text", "json", "avro", "protobuf"])
FILE = FilePath()


@click.command("kafka")
@with_course(
    group="kafka-import",
    group_help="Name of the import: its positions are those of this group.",
    partitions_help="Keep each record's partition, choose it by key, or send partition N of Kafka to "
    "partition M.",
    lost_help="If Kafka has removed records before they were imported: fail, or skip the gap.",
    batch_records=50_000,
    batch_help="Maximum number of records in a transaction.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Leave out what was aborted, or take everything.",
)
@click.option(
    "--start",
    type=click.Choice(["earliest", "latest"]),
    help="Where to begin without a position, if the topic of the log has records already.",
)
@click.option(
    "--value-format",
    type=FORMATS,
    default="raw",
    show_default=True,
    help="Form of the values; fields of a decoded value go to columns of their names.",
)
@click.option("--key-format", type=FORMATS, default="raw", show_default=True, help="Form of the keys.")
@click.option("--registry", metavar="URL", help="Schema registry of Avro and Protobuf.")
@click.option(
    "--registry-config",
    multiple=True,
    callback=parse_pairs,
    metavar="KEY=VALUE|@FILE",
    help="A property of the registry's client, such as basic.auth.user.info=…; as --config.",
)
@click.option(
    "--value-schema",
    type=FILE,
    help="File with the Avro schema, or the .proto file or Protobuf descriptors, of values, in place of a "
    "registry.",
)
@click.option(
    "--value-message",
    metavar="NAME",
    help="Full name of the Protobuf message in --value-schema, if that has several.",
)
@click.option("--key-schema", type=FILE, help="As --value-schema, of keys.")
@click.option("--key-message", metavar="NAME", help="As --value-message, of keys.")
@click.option(
    "--ignore-unknown-fields",
    is_flag=True,
    help="Leave out fields that the topic has no column for. Default: such a record is not imported.",
)
@click.option(
    "--dead-letter-topic",
    metavar="TOPIC",
    help="Topic of the log for records that cannot be imported. Default: such a record stops the import.",
)
@click.option("--no-create", is_flag=True, help="Do not create topics that the log does not have.")
@click.option("--records-per-second", type=IntegerRange(min=1), help="Limit of the rate.")
@click.option("--bytes-per-second", type=Bytes(1), help="Limit of the rate.")
@click.option(
    "--commit-interval-ms",
    type=Milliseconds(least=1),
    default=5_000,
    show_default=True,
    help="Longest time from one commit to the next, if records come.",
)
def import_kafka(
    topics: dict[str, str],
    place: Place,
    kafka: dict[str, str],
    no_create: bool,
    registry: str | None,
    registry_config: dict[str, str],
    as_json: bool,
    **settings: Any,
) -> None:
    """Import TOPICs of Kafka into the log, each record exactly once.

    The next offset of each partition is committed together with its records: the command can be stopped or
    killed at any time; call it again with the same --group to continue. TOPIC=OTHER gives the topic another
    name in the log.
    """
    from txnlog.kafka.importing import import_topics

    client = None if registry is None and not registry_config else dict(registry_config)
    if client is not None and registry is not None:
        client["url"] = registry
    with transfer(place, shown=not as_json) as (log, show):
        report = import_topics(
            log, kafka, topics, registry=client, create=not no_create, progress=show, **settings
        )
    if as_json:
        print_json(report)
    else:
        _show(report)


def _show(report: ImportReport) -> None:
    rows = [
        (topic, partition, offset)
        for topic, positions in sorted(report.positions.items())
        for partition, offset in sorted(positions.items())
    ]
    POSITIONS.show(rows)
    for name in report.created:
        say(f"created topic {name}")
    for lost in report.lost:
        say(
            f"skipped offsets {lost.first} to {lost.end - 1} of {lost.topic}, partition {lost.partition}: "
            "Kafka has removed them"
        )
    if report.dead_letters:
        say(
            f"{counted(report.dead_letters, 'record')} could not be imported, and went to the topic of "
            "dead letters"
        )
    say(f"imported {counted(report.records, 'record')} in {counted(report.commits, 'commit')}")
