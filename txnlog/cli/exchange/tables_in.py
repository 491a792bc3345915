"""``txnlog import delta`` and ``txnlog import parquet``: tables of other systems into the log, each row
once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.failures import IMPORT_INTERRUPTED, Interrupted
from txnlog.cli.options import IntegerRange, Milliseconds, Place, parse_pairs, with_place
from txnlog.cli.output import counted, print_json, say
from txnlog.cli.progress import progress

if TYPE_CHECKING:
    from txnlog.tables.importing import TableImport, TableProgress

__all__ = ["import_delta", "import_parquet"]

_GROUP = click.option(
    "--group", help="Name of the import: its position is that of this group. Default: the topic's name."
)
_OPTIONS = [
    click.option(
        "--poll-ms",
        type=Milliseconds(least=1),
        default=10_000,
        show_default=True,
        help="How often --follow looks for more.",
    ),
    click.option(
        "--start",
        type=click.Choice(["earliest", "latest"]),
        help="Where to begin without a position, if the topic has records already.",
    ),
    click.option(
        "--rewrite",
        is_flag=True,
        help="Encode all rows again. Default: copy a file's bytes unchanged where possible.",
    ),
    click.option("--no-create", is_flag=True, help="Do not create the topic if the log does not have it."),
    click.option(
        "--partitions",
        type=IntegerRange(min=1),
        default=1,
        show_default=True,
        help="Partitions of a topic that is created.",
    ),
    click.option(
        "--key",
        "key_columns",
        multiple=True,
        metavar="COLUMN",
        help="Key column of a topic that is created; repeat the option for more.",
    ),
]


def _with_options(follow: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that both have. ``follow``: what ``--follow`` does."""
    options = [_GROUP, click.option("--follow", is_flag=True, help=follow), *_OPTIONS]
    return lambda command: reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


@click.command("delta")
@click.argument("table")
@click.argument("topic")
@with_place
@click.option(
    "--version", type=IntegerRange(min=0), help="Import up to this version of the table. Default: the newest."
)
@click.option(
    "--changes",
    is_flag=True,
    help="Import versions that change or remove rows, too: as rows with the columns change_type and "
    "table_version.",
)
@click.option(
    "--table-option",
    "storage_options",
    multiple=True,
    callback=parse_pairs,
    metavar="KEY=VALUE|@FILE",
    help="An option of the table's store, as the package deltalake names it; repeat the option for more. "
    "@FILE reads lines KEY=VALUE, or a JSON object: put secrets into a file.",
)
@_with_options("Follow the table. Default: stop at the version that was newest at the start.")
def import_delta(place: Place, as_json: bool, table: str, **settings: Any) -> None:
    """Import the Delta table TABLE into TOPIC, each row exactly once.

    The first call copies the rows of one version. Later calls, or --follow, bring what newer versions have
    added: each version in one transaction. The command can be stopped or killed at any time; call it again to
    continue.
    """
    from txnlog.tables import importing

    _run(place, as_json, settings, lambda log, **more: importing.import_delta(log, table, **more))


@click.command("parquet")
@click.argument("path")
@click.argument("topic")
@with_place
@_with_options("Follow the directory. Default: stop after the files that existed at the start.")
def import_parquet(place: Place, as_json: bool, path: str, **settings: Any) -> None:
    """Import the Parquet files of PATH into TOPIC, each row exactly once.

    PATH is a file or a directory, or a URL such as s3://bucket/files. Files are taken in the order of their
    paths; later calls, or --follow, bring files whose paths sort behind.
    """
    from txnlog.tables import importing

    _run(place, as_json, settings, lambda log, **more: importing.import_parquet(log, path, **more))


def _run(place: Place, as_json: bool, settings: dict[str, Any], call: Callable[..., TableImport]) -> None:
    settings["create"] = not settings.pop("no_create")
    settings["key_columns"] = list(settings["key_columns"]) or None
    try:
        with place.open() as log, progress(wanted=not as_json) as advance:

            def show(at: TableProgress) -> None:
                advance(at.done, at.total, counted(at.rows, "row"))

            report = call(log, progress=show, **settings)
    except KeyboardInterrupt:
        raise Interrupted(IMPORT_INTERRUPTED) from None
    if as_json:
        print_json(report)
        return
    if report.created:
        say(f"created topic {report.topic}")
    at = report.position.get("version", report.position.get("after"))
    what = "version " if "version" in report.position else ""
    end = "" if at in (None, "") else f", up to {what}{at}"  # a single file has no name below its folder
    whole = f" ({report.as_they_are} as they are)" if report.as_they_are else ""
    say(
        f"imported {counted(report.rows, 'row')} of {counted(report.files, 'file')}{whole} in "
        f"{counted(report.commits, 'commit')}{end}"
    )
