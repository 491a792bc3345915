"""The command ``alter-topic``."""

from __future__ import annotations

from typing import Any

import click

from txnlog.cli.exchange.schemas import ABOUT_A_FILE, WAYS_TO_GROW, schema_in, with_schema_format
from txnlog.cli.options import TOPIC, Integer, Place, settings_option, with_place
from txnlog.cli.records.columns import parse_columns
from txnlog.cli.topics import show_topic

__all__ = ["alter_topic"]


@click.command("alter-topic")
@click.argument("topic", type=TOPIC)
@with_place
@click.option("--partitions", "-p", type=Integer(), help="The new total of partitions: more than now.")
@click.option(
    "--add-column",
    "added",
    multiple=True,
    metavar="NAME:TYPE",
    help="A new column, null in old records; repeat the option.",
)
@click.option(
    "--widen",
    "widened",
    multiple=True,
    metavar="NAME:TYPE",
    help="A wider type for a column, as in id:int64 for an int32; repeat the option.",
)
@click.option(
    "--rename-column",
    "renamed",
    multiple=True,
    metavar="NAME=NEW",
    help="Another name for a column; repeat the option. A log of an older version needs `txnlog upgrade "
    "--columns` once before.",
)
@click.option(
    "--drop-column",
    "dropped",
    multiple=True,
    metavar="NAME",
    help="A column to drop: readers no longer see it; repeat the option. A log of an older version needs "
    "`txnlog upgrade --columns` once before.",
)
@settings_option
@click.option(
    "--unset", multiple=True, metavar="NAME", help="A setting to reset to its default; repeat the option."
)
@click.option(
    "--schema",
    metavar="FILE",
    help="A file with a newer schema, as for create-topic: its new columns are added, and its wider types "
    "are applied.",
)
@with_schema_format
def alter_topic(
    topic: str,
    place: Place,
    partitions: int | None,
    added: tuple[str, ...],
    widened: tuple[str, ...],
    renamed: tuple[str, ...],
    dropped: tuple[str, ...],
    settings: dict[str, int | str],
    unset: tuple[str, ...],
    schema: str | None,
    schema_format: str | None,
    message: str | None,
    as_json: bool,
) -> None:
    """Change TOPIC in one step: add partitions; add, drop or rename columns; widen types; change settings.

    Existing data is not rewritten. With more partitions, keys go to other partitions than before. A column
    that is added under the name of a dropped one is null in all older records; values of dropped columns stay
    in files until a compaction.
    """
    widths = {field.name: field.type for field in parse_columns(widened)} if widened else {}
    if len(widths) < len(widened):
        raise click.UsageError("--widen names a column twice")
    if schema and (added or widened):
        raise click.UsageError("give either --schema, or --add-column and --widen")
    if not schema and (schema_format or message):
        raise click.UsageError(ABOUT_A_FILE)
    wanted = schema_in(schema, schema_format, message, WAYS_TO_GROW) if schema else None
    with place.open() as log:
        changes: Any = {"add_columns": parse_columns(added) if added else None, "widen": widths or None}
        if wanted is not None:
            from txnlog.schemas import growth

            changes = growth(log.state.topic(topic).schema, wanted)
        log.alter_topic(
            topic,
            partitions=partitions,
            **changes,
            rename=_names(renamed) or None,
            drop=dropped or None,
            settings=settings or None,
            unset=unset or None,
        )
        show_topic(log, topic, as_json)


def _names(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the new name of each column. Raises click.UsageError: a pair has no ``=``, or a column is named
    twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        old, sign, new = pair.partition("=")
        if not (old and sign and new):
            raise click.UsageError(f"--rename-column takes NAME=NEW, not {pair!r:.200}")
        if old in found:
            raise click.UsageError("--rename-column names a column twice")
        found[old] = new
    return found
