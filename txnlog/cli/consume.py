"""``txnlog consume``: records of a topic as JSON lines, CSV, a table, or a Parquet file; with ``--follow``
also those to come.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from txnformat.errors import NotFoundError
from txnformat.types import TopicPartition
from txnlog.cli.options import (
    GROUP,
    TOPIC,
    FilePath,
    Integer,
    IntegerRange,
    Place,
    binary_option,
    delimiter_option,
    parse_numbers,
    parse_offsets,
    with_place,
)
from txnlog.cli.output import (
    TerminalBytes,
    counted,
    is_terminal,
    print_table,
    printable_json,
    printable_lines,
)
from txnlog.cli.records.file_formats import format_of
from txnlog.cli.records.outputs import check_output, writing

if TYPE_CHECKING:
    import pyarrow as pa

    from txnformat.log import TxnLog

__all__ = ["consume"]

logger = logging.getLogger("txnlog")

METADATA = ("_partition", "_offset", "_timestamp")
TABLE_ROWS = 100
FORMATS = ("json", "csv", "table", "parquet")

Batches = Iterator["pa.RecordBatch"]


@click.command()
@click.argument("topic", type=TOPIC)
@with_place
@click.option(
    "--from",
    "start",
    callback=parse_offsets,
    metavar="OFFSETS",
    help="First offset: 7 for every partition, or partition:offset as in 0:7,2:9. Default: earliest.",
)
@click.option(
    "--to", "end", callback=parse_offsets, metavar="OFFSETS", help="End offset, exclusive. Default: latest."
)
@click.option(
    "--partition",
    "-p",
    "partitions",
    multiple=True,
    callback=parse_numbers,
    help="Only these partitions; repeat the option, or give a list: 0,2.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted", "snapshot"]),
    help="read_uncommitted also shows open and aborted transactions; snapshot shows all committed "
    "records, also "
    "behind open transactions. Default: read_committed.",
)
@click.option(
    "--version-as-of",
    type=Integer(),
    metavar="ENTRY",
    help="The snapshot at this entry of the log (txnlog history shows them). Default: the newest.",
)
@click.option(
    "--timestamp-as-of",
    metavar="TIME",
    help="The snapshot at the last entry up to this time: ISO 8601, UTC without a zone, or ms since the "
    "epoch.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help='Only records for which this SQL condition is true, such as "amount > 10 AND note IS NOT NULL"; '
    "metadata "
    "columns work, too.",
)
@click.option(
    "--columns", metavar="NAMES", help="Columns, as in id,amount,_offset. Default: the topic's own."
)
@click.option("--metadata", is_flag=True, help=f"Also {', '.join(METADATA)}.")
@click.option("--limit", type=IntegerRange(min=0), help="At most this many records.")
@click.option(
    "--follow",
    "-f",
    "follows",
    is_flag=True,
    help="Wait for more records when there are none left, until Ctrl-C. Partitions take turns.",
)
@click.option(
    "--group",
    "-g",
    type=GROUP,
    metavar="GROUP",
    help="Read as this consumer group: begin where it has committed, and commit what is printed every 5 s "
    "and at the "
    "end. Another consumer of the group is fenced, unless -p names partitions.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(FORMATS),
    help="Default: by the suffix of the -o file; else json, one object per line. "
    f"A table ends after {TABLE_ROWS} records without --limit.",
)
@click.option(
    "--output",
    "-o",
    type=FilePath(),
    help="Write to a file, which appears when it is complete; a device or a FIFO is written to as records "
    "come. Its suffix sets the format: .json, .jsonl, .ndjson, "
    ".csv or .parquet.",
)
@binary_option("How JSON, CSV and tables show the bytes of binary columns.")
@delimiter_option
@click.option(
    "--no-formulas",
    is_flag=True,
    help="CSV only: put ' before text that a spreadsheet would take for a formula: text that begins with "
    "=, +, -, "
    "@, a tab or a line break.",
)
@click.option(
    "--end-expired",
    is_flag=True,
    help="First end the open transactions whose timeout is over; without the permission to write, read "
    "without that.",
)
def consume(
    topic: str,
    place: Place,
    columns: str | None,
    metadata: bool,
    limit: int | None,
    format_: str | None,
    output: Path | None,
    binary: str,
    delimiter: str | None,
    no_formulas: bool,
    follows: bool,
    group: str | None,
    as_json: bool,
    **read: Any,  # arguments of log.read, by their names
) -> None:
    """Read the records of TOPIC.

    Reads the topic as it is now, partition by partition, each in offset order;
    with --follow also what comes later.
    """
    chosen = _format(format_, output, as_json)
    consuming = "--follow" if follows else "--group" if group is not None else None
    if consuming is not None:
        _check_consuming(consuming, group, chosen, output, read)
    for option, given in (("--no-formulas", no_formulas), ("--delimiter", delimiter is not None)):
        if given and chosen != "csv":
            raise click.UsageError(f"{option} needs --format csv")
    delimiter = delimiter or ","
    if output is not None:
        check_output(output)
    with place.open() as log:
        own = log.state.topic(topic).schema.arrow_schema.names
        names = _columns(columns, metadata, own)
        if consuming is not None:
            from txnlog.cli.records.following import Following, followed

            if read["end_expired"]:
                log.transactions.end_expired_if_permitted()
            wanted = Following(
                topic=topic,
                group=group,
                waits=follows,
                isolation=read["isolation"] or "read_committed",
                start=read["start"],
                partitions=read["partitions"],
                # CSV has one header: columns that the topic gets later have no place in it.
                columns=own if names is None and chosen == "csv" else names,
                where=read["where"],
                limit=limit,
            )
            with _target(None, chosen) as file, followed(log, wanted) as (schema, batches):
                _write(chosen, batches, schema, file, binary, delimiter=delimiter, no_formulas=no_formulas)
            return
        try:
            reader = log.read(topic, columns=names, **read)
        except NotFoundError as error:
            if error.kind == "unknown-partition" and not read["partitions"]:
                error.hint = f"{error.hint}; --from and --to take partition:offset"
            raise
        if chosen == "table":
            _show_table(iter(reader), reader.schema, limit, binary)
        else:
            batches = _limited(iter(reader), limit)
            with _target(output, chosen) as file:
                _write(
                    chosen, batches, reader.schema, file, binary, delimiter=delimiter, no_formulas=no_formulas
                )
        if read["end"] is None and read["isolation"] in (None, "read_committed"):
            _note_held_back(log, topic, read)


def _note_held_back(log: TxnLog, topic: str, read: Mapping[str, Any]) -> None:
    """Say on stderr which offsets open transactions hold back: without that a reader sees nothing, and does
    not know why.
    """
    if read["version_as_of"] is not None or read["timestamp_as_of"] is not None:
        return
    state = log.state
    known = state.topic(topic)
    numbers = read["partitions"] or range(known.partitions)
    parts = [state.partition(TopicPartition(known.topic_id, number)) for number in numbers]
    held = sum(part.log_end - part.last_stable_offset for part in parts)
    if held:
        logger.warning(
            "%s of %s held back by open transactions; txnlog offsets %s says by which",
            counted(held, "offset"),
            topic,
            topic,
        )


def _check_consuming(
    option: str, group: str | None, chosen: str, output: Path | None, read: Mapping[str, Any]
) -> None:
    """Refuse what a consumer does not do: it reads what is there and what comes, to the standard output."""
    if chosen in ("table", "parquet") or output is not None:
        what = "--output" if output is not None else f"--format {chosen}"
        raise click.UsageError(
            f"{option} prints JSON lines or CSV as records come, so {what} cannot be combined with it"
        )
    for name in ("end", "version_as_of", "timestamp_as_of"):
        if read[name] is not None:
            shown = "--to" if name == "end" else f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{shown} reads only existing records; it cannot be combined with {option}"
            )
    if read["isolation"] == "snapshot":
        raise click.UsageError(
            f"a snapshot does not grow, so --isolation snapshot cannot be combined with {option}"
        )
    if group is not None and read["start"] is not None:
        raise click.UsageError(
            "--group begins where the group has committed, so --from cannot be combined with it; "
            "txnlog groups reset-offsets moves the group"
        )


def _write(
    chosen: str,
    batches: Batches,
    schema: pa.Schema,
    file: BinaryIO,
    binary: str,
    *,
    delimiter: str,
    no_formulas: bool,
) -> None:
    if chosen == "csv":
        from txnformat.columns.json_values import Binary
        from txnlog.cli.records.csv_output import write_csv

        write_csv(batches, schema, file, Binary(binary), delimiter=delimiter, no_formulas=no_formulas)
    else:
        _WRITERS[chosen](batches, schema, file, binary)


def _format(format_: str | None, output: Path | None, as_json: bool) -> str:
    if as_json and format_ not in (None, "json"):
        raise click.UsageError(f"give either --json or --format {format_}, not both")
    by_name = None if output is None else format_of(output)
    chosen = format_ or ("json" if as_json else by_name or "json")
    if chosen == "parquet" and output is None:
        raise click.UsageError("--format parquet needs a file: add -o FILE")
    if chosen == "table" and output is not None:
        raise click.UsageError("--format table is for the terminal; use json, csv or parquet with -o")
    if output is not None and by_name not in (None, chosen):
        option = f"--format {format_}" if format_ else "--json"
        raise click.UsageError(
            f"{option} writes {chosen}, but the file name {output.name!r:.100} says {by_name}: "
            f"leave out {option}, or give the file another suffix"
        )
    return chosen


def _columns(columns: str | None, metadata: bool, own: Sequence[str]) -> list[str] | None:
    if columns is None and not metadata:
        return None
    names = list(own) if columns is None else [name.strip() for name in columns.split(",")]
    return [*(name for name in METADATA if metadata and name not in names), *names]


def _limited(batches: Batches, limit: int | None) -> Batches:
    """Yield at most ``limit`` rows; nothing is fetched beyond them."""
    left = limit
    while left is None or left > 0:
        batch = next(batches, None)
        if batch is None:
            return
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows


@contextmanager
def _target(output: Path | None, format_: str) -> Iterator[BinaryIO]:
    """Give stdout, or a file that takes its name only when everything went well."""
    if output is None:
        sys.stdout.flush()
        if is_terminal(sys.stdout):
            show = printable_json if format_ == "json" else printable_lines
            yield cast(BinaryIO, TerminalBytes(sys.stdout.buffer, show))
        else:
            yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with writing(output) as file:
        yield file


def _write_json(batches: Batches, schema: pa.Schema, file: BinaryIO, binary: str) -> None:
    rows = _rows(batches, binary)
    file.writelines(
        json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for row in rows
    )


def _rows(batches: Batches, binary: str) -> Iterator[dict[str, Any]]:
    from txnformat.columns.json_values import Binary, encoded
    from txnformat.columns.pylist import column_values

    for batch in batches:
        columns = [encoded(column_values(batch, field.name), field, Binary(binary)) for field in batch.schema]
        for row in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, row, strict=True))


def _write_parquet(batches: Batches, schema: pa.Schema, file: BinaryIO, binary: str) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _show_table(batches: Batches, schema: pa.Schema, limit: int | None, binary: str) -> None:
    wanted = _limited(batches, TABLE_ROWS + 1 if limit is None else limit)
    nested = (list, dict)
    rows = [
        [json.dumps(one, ensure_ascii=False) if isinstance(one, nested) else one for one in row.values()]
        for row in _rows(wanted, binary)
    ]
    has_more = limit is None and len(rows) > TABLE_ROWS
    print_table(schema.names, rows[:TABLE_ROWS] if has_more else rows)
    if has_more:
        sys.stdout.flush()
        logger.warning(
            "there are more than %d records: set --limit, or show all with --format json or csv",
            TABLE_ROWS,
        )


_WRITERS = {"json": _write_json, "parquet": _write_parquet}
