"""``txnlog publish``: topics as tables of other engines, all at one entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from txnlog.cli.options import TOPIC, Place, with_place
from txnlog.cli.output import Table, counted, print_json, say

if TYPE_CHECKING:
    from txnformat.admin.publishing.reports import PublishReport

__all__ = ["publish"]

TABLES = Table("Topic Directory Version New Files Added Removed", new=lambda one: one.is_new)


@click.command()
@click.argument("topics", type=TOPIC, nargs=-1)
@with_place
@click.option(
    "--format",
    "format_",
    type=click.Choice(["delta", "delta-offsets", "iceberg"]),
    default="delta",
    show_default=True,
    help="Format of the tables; delta-offsets shows compacted files only, with the offsets of their "
    "records; iceberg needs the extra of that name.",
)
@click.option(
    "--rebuild",
    is_flag=True,
    help="Rebuild each table completely, in one version; needed after another program has changed it.",
)
def publish(topics: tuple[str, ...], place: Place, format_: str, rebuild: bool, as_json: bool) -> None:
    """Publish TOPICS, or all topics, as tables that other engines read. Records in Parquet files are not
    copied.

    All tables show the same entry of the log: whole transactions, as a read with isolation snapshot. Each is
    in the directory of its topic. The engines that were tried refuse to change it, but pyiceberg's
    purge_table deletes the files that an Iceberg table names: give programs that only read no right to
    delete. The manifest names the version of each table at that entry: tables that are read at these versions
    join without a torn transaction. Any number of processes may publish at the same time.
    """
    with place.open() as log:
        report = log.publish(*topics, format=format_, rebuild=rebuild)
    if as_json:
        print_json(report)
    else:
        _show(report)


def _show(report: PublishReport) -> None:
    TABLES.show(report.topics)
    for topic, reason in report.refused:
        say(f"not published: {topic}: {reason}")
    for one in report.topics:
        if one.superseded_by is not None:
            say(f"another process has published entry {one.superseded_by} of {one.topic} meanwhile")
    for held in report.held_back[:5]:
        say(f"later entries wait for {held.waits_for}: {held.reason} ({held.topic}, {held.file})")
    if report.compacted_parts:
        say(f"rewrote {counted(report.compacted_parts, 'part')} of segments first")
    say(f"entry {report.entry}; manifest {report.manifest or 'of a later entry exists'}")
