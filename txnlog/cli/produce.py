"""``txnlog produce``: records of a file or of stdin to a topic, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from txnformat.errors import TxnLogError
from txnlog.cli.failures import Interrupted
from txnlog.cli.options import (
    TOPIC,
    TRANSACTIONAL_ID,
    Integer,
    Place,
    binary_option,
    delimiter_option,
    with_place,
)
from txnlog.cli.output import counted, print_json, say
from txnlog.cli.progress import progress

if TYPE_CHECKING:
    from txnformat.log import TxnLog
    from txnlog.cli.records.pieces import Source
    from writers.transaction import CommitInfo

__all__ = ["produce"]

Send = Callable[[Any], None]
Commit = Callable[[], "CommitInfo"]


@click.command()
@click.argument("topic", type=TOPIC)
@click.argument("file", default="-", metavar="[FILE]")
@with_place
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "csv", "parquet"]),
    help="Default: by the file's suffix; for stdin JSON lines.",
)
@click.option(
    "--transactional-id",
    type=TRANSACTIONAL_ID,
    metavar="ID",
    help="Write as this producer: fence older instances with this id, and abort their open transaction.",
)
@click.option(
    "--partition",
    "-p",
    type=Integer(),
    help="Write everything to this partition. Default: by key; records without a key go to partitions in "
    "turn, from "
    "a random one on.",
)
@binary_option("How JSON and CSV hold the bytes of binary columns.")
@delimiter_option
def produce(
    topic: str,
    file: str,
    place: Place,
    format_: str | None,
    transactional_id: str | None,
    partition: int | None,
    binary: str,
    delimiter: str | None,
    as_json: bool,
) -> None:
    """Write records to TOPIC: all, or none.

    The records come from FILE, or from stdin, and enter the log in one step.

    JSON lines: one object per line with the topic's columns; a column that is missing is null, or now for the
    timestamp of a topic with the schema "kafka". CSV has a header and all columns. Bad input is refused, and
    no record is written.
    """
    from txnformat.columns.json_values import Binary
    from txnformat.lookup import now_of
    from txnlog.cli.records.sources import open_source
    from writers.rows import is_kafka

    with place.open() as log:
        schema = log.state.topic(topic).schema
        absent = {"timestamp": lambda: now_of(log).isoformat()} if is_kafka(schema) else {}
        with (
            open_source(file, format_, schema.arrow_schema, Binary(binary), absent, delimiter) as source,
            _writer(log, topic, transactional_id, partition) as (send, commit),
        ):
            rows, info = _run(source, send, commit, show_progress=not as_json)
    offsets = [
        {"partition": number, "base_offset": offset} for (_, number), offset in sorted(info.offsets.items())
    ]
    if as_json:
        print_json(
            {
                "topic": topic,
                "records": rows,
                "entry": info.entry,
                "timestamp_ms": info.timestamp_ms,
                "offsets": offsets,
            }
        )
        return
    where = "no entry: the input is empty" if info.entry is None else f"entry {info.entry}"
    placed = ", ".join(f"partition {item['partition']} from offset {item['base_offset']}" for item in offsets)
    say(f"{counted(rows, 'record')} to {topic}, {where}{'; ' + placed if placed else ''}")


@contextmanager
def _writer(
    log: TxnLog, topic: str, transactional_id: str | None, partition: int | None
) -> Iterator[tuple[Send, Commit]]:
    """Give what takes records and what makes all of them visible; leaving without that writes none."""
    from writers.bulk import BulkAppend
    from writers.producer import Producer

    if transactional_id is None:
        with BulkAppend(log) as append:
            yield lambda data: append.send(topic, data, partition), append.commit
        return
    with Producer(log, transactional_id) as producer:
        producer.begin()
        try:
            yield lambda data: producer.send(topic, data, partition), producer.commit
        except TxnLogError as error:
            error.add_note(
                f"the log holds the opening of producer {transactional_id!r}, which fences older instances"
            )
            raise


def _run(source: Source, send: Send, commit: Commit, *, show_progress: bool) -> tuple[int, CommitInfo]:
    rows = 0
    try:
        with progress(wanted=show_progress) as advance:
            for table, done in source.pieces:
                send(table)
                rows += table.num_rows
                advance(done, source.total, counted(rows, "record"))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; no record was written") from None
    try:
        return rows, commit()
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted during the commit: txnlog offsets shows whether it is in the log"
        ) from None
