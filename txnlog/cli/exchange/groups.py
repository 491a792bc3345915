"""``txnlog import`` and ``txnlog export``: the groups of their commands."""

from __future__ import annotations

import click

from txnlog.cli.exchange.kafka_in import import_kafka
from txnlog.cli.exchange.kafka_out import export_kafka
from txnlog.cli.exchange.tables_in import import_delta, import_parquet
from txnlog.cli.options import Commands

__all__ = ["export_group", "import_group"]


@click.group("import", cls=Commands)
def import_group() -> None:
    """Bring topics and tables of other systems into the log."""


@click.group("export", cls=Commands)
def export_group() -> None:
    """Send topics of the log to other systems."""


for command in (import_kafka, import_delta, import_parquet):
    import_group.add_command(command)
export_group.add_command(export_kafka)
