"""``txnlog report`` and ``txnlog ui``: look at a log in a browser."""

from __future__ import annotations

import datetime
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txnlog.cli.options import (
    TOPIC,
    Duration,
    FilePath,
    Integer,
    IntegerRange,
    Milliseconds,
    Place,
    named,
    with_place,
)
from txnlog.cli.output import print_json, printable, say, show_lines
from txnlog.cli.records.outputs import check_output, writing

if TYPE_CHECKING:
    from txnformat.looking.timeline import Timeline

__all__ = ["report", "ui"]

PORT = 8642
EVERY_MS_MIN = 100
EVERY_MS_MAX = 86_400_000
"""A day. A timer of a browser goes off at once where it is asked for more than 24 of them."""
LOOK_GETS = 1.5
"""Requests of a look that finds nothing new: every other one also asks whether the log is still there."""
MONTH_MINUTES = 30 * 24 * 60

topic_option = click.option("--topic", type=TOPIC, help="Only this topic.")
entries_option = click.option(
    "--entries",
    type=IntegerRange(1, 20_000),
    default=1_000,
    show_default=True,
    help="Most entries of a window.",
)


@click.command()
@with_place
@topic_option
@click.option(
    "--output",
    "-o",
    type=FilePath(),
    default=Path("report.html"),
    show_default=True,
    help="The file. With the suffix .json it gets the data in place of the page.",
)
@click.option("--version-as-of", type=Integer(), metavar="ENTRY", help="The entry to end with.")
@click.option("--timestamp-as-of", metavar="TIME", help="End with the last entry at or before this time.")
@entries_option
def report(place: Place, as_json: bool, topic: str | None, output: Path, **window: Any) -> None:
    """Write one HTML file that shows the log: transactions over offsets and over time, what holds readers
    back and the command that ends it, groups, files, requests and their cost.

    A slider goes through the states of the window. The file fetches nothing, so it can be sent, and kept.
    """
    check_output(output, whole=False)
    with place.open() as log:
        timeline = log.timeline(topic, **window)
    written = _written(timeline, output)
    shown = timeline.document
    if as_json:
        counts = {"transactions": len(shown.transactions), "open": len(shown.open)}
        names = {"output": str(output), "bytes": written, "first": shown.first, "entry": shown.entry}
        print_json(names | counts)
        return
    for note in shown.notes:
        say(note)
    what = "a log without entries" if shown.entry < 0 else f"entries {shown.first} to {shown.entry}"
    say(f"{output}: {what}, {written:,} bytes")


def _written(timeline: Timeline, output: Path) -> int:
    """Write the file; return its bytes."""
    text = timeline.to_json() if output.suffix.lower() == ".json" else timeline.to_html()
    with writing(output, whole=False) as file:
        return file.write(text.encode())


@click.command()
@with_place
@topic_option
@click.option(
    "--host",
    default="127.0.0.1",
    callback=named,
    show_default=True,
    help="Address to listen at. Machines that reach another address than 127.0.0.1 can read names and "
    "offsets of the log.",
)
@click.option(
    "--port",
    type=IntegerRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="Port to listen at; 0: any that is free.",
)
@click.option(
    "--allow-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach the page, besides --host, localhost, 127.0.0.1 and [::1]; repeat "
    "the option for more.",
)
@click.option(
    "--every",
    type=Milliseconds(least=EVERY_MS_MIN, most=EVERY_MS_MAX),
    default=1_000,
    show_default=True,
    help="How often the page looks for new entries while it follows the log.",
)
@click.option(
    "--for", "duration", type=Duration(), metavar="DURATION", help="End after this time, such as 8h."
)
@entries_option
def ui(
    place: Place,
    as_json: bool,
    topic: str | None,
    host: str,
    port: int,
    allowed: tuple[str, ...],
    every: int,
    duration: datetime.timedelta | None,
    entries: int,
) -> None:
    """Serve a page that follows the log: what txnlog report shows, with any entry to go back to.

    It only reads, and needs the extra ui: pip install 'txnlog[ui]'. Ctrl-C ends it.
    """
    try:
        from txnlog.cli.looking import server
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "anyio", "h11"):
            raise
        raise click.UsageError("txnlog ui needs Starlette and uvicorn: pip install 'txnlog[ui]'") from None
    from txnformat.looking.costs import PRICES
    from txnlog.cli.looking.service import Service

    with place.open() as log:
        service = Service(log, topic, entries, every)
        listening = _listening(host, port)
        with listening:
            bound = listening.getsockname()[1]
            url = f"http://{f'[{host}]' if ':' in host else host}:{bound}/"
            minute = 60_000 / every * LOOK_GETS
            dollars = minute * PRICES["read"] / 1_000
            if as_json:
                print_json({"url": url, "gets_a_minute": minute, "dollars_a_minute": dollars}, indent=None)
            else:
                say(f"{url} shows {printable(log.url)}; Ctrl-C ends it")
                say(
                    f"an open page costs {minute:.0f} GET a minute, ${dollars:.6f} "
                    f"(${dollars * MONTH_MINUTES:.2f} a month at S3's list price)"
                )
            if host not in ("127.0.0.1", "localhost", "::1"):
                show_lines(
                    f"txnlog: note: the page has no password, and listens at {host}: all that can reach "
                    "it can read it",
                    sys.stderr,
                )
            sys.stdout.flush()
            server.serve(
                service, listening, {host, *allowed}, None if duration is None else duration.total_seconds()
            )


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise click.UsageError(
            f"cannot listen at {host}, port {port}: {_reason(error)}; --port 0 takes any free port"
        ) from None


def _reason(error: OSError) -> str:
    """Return the system's words; Python's own have the address once more."""
    return os.strerror(error.errno) if error.errno else str(error)
