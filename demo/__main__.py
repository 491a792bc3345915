"""Run the demo: ``make demo`` in a directory, ``make demo-s3``, ``make demo-azure`` and ``make demo-gcs`` in
a store of a server that it starts and stops.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.compacting import compact_and_show
from demo.ingest import HANGING_ID, Ingested, create_topics, ingest, send_rows
from demo.picture import draw
from demo.place import bucket, container, directory, google_bucket
from demo.proof import Fingerprint, fingerprint, read_topic, spark_session, table_frame
from demo.sealing import seal_and_show
from demo.source import DELAY_COLUMNS, read_flights
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LogState
from txnformat.errors import TxnLogError
from txnlog import Producer, TxnLog
from txnlog_testing.temporary import own_temporary_directory

OUTPUT = Path("demo-output")
console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120, soft_wrap=True)


def main(arguments: list[str]) -> int:
    """Run the demo where the arguments say; 0 when all proofs hold."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--s3", action="store_true", help="in a bucket of a SeaweedFS server")
    where.add_argument("--azure", action="store_true", help="in a container of an Azurite server")
    where.add_argument("--gcs", action="store_true", help="in a bucket of moto, which stands in for Google")
    given = parser.parse_args(arguments)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir()
    if given.s3:
        place = bucket()
    elif given.azure:
        place = container()
    else:
        place = google_bucket() if given.gcs else directory(OUTPUT / "log")
    try:
        with place as path:
            return run(path)
    except TxnLogError as error:
        print(f"txnlog: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("txnlog: the demo was interrupted", file=sys.stderr)
        return 130


def run(path: str) -> int:
    """Run every step on a log at ``path``; 0 when all proofs hold."""
    began = time.monotonic()
    flights = read_flights()
    console.rule("1. Real data, written in transactions")
    with TxnLog.create(path) as log:
        create_topics(log)
        books = _write(log, flights)
        before = log.refresh()
        console.print(
            f"{flights.num_rows:,} flights of 2013: {books.transactions} transactions committed to the "
            "topics flights and "
            f"delays at once, {books.aborted} aborted, 1 left open by a producer that was killed (kill -9)."
        )
        console.rule("2. Where the log stands")
        _show_offsets(log)
        console.rule("3. Read with Spark, every isolation level")
        spark = spark_session()
        ok = _prove_open(spark, path, flights, books, before)
        console.rule("4. Resolve the open transaction: init() with the same id")
        after = _resolve(log, flights, books)
        _show_offsets(log)
        console.rule("5. Seal: an abort index, byte for byte Kafka's")
        ok &= _check(
            "the .txnindex has every aborted transaction", seal_and_show(log, "flights", console), True
        )
        console.rule("6. Read the sealed log: read_committed is the source file")
        ok &= _prove_whole(spark, path, flights)
        console.rule("7. Compact: the same records in few files")
        ok &= _check(
            "the same records in fewer bytes; where there were several files, fewer files and requests",
            compact_and_show(log, console),
            True,
        )
        ok &= _prove_whole(spark, path, flights)
        picture = OUTPUT / "transactions.png"
        draw(before, after, "flights", _held_partition(before), picture)
        report = log.timeline().save(OUTPUT / "report.html")
        console.print(f"\nPicture: [bold]{picture}[/]   log: {path}   took {time.monotonic() - began:.0f} s")
        console.print(f"Open in a browser, with a slider over the log's states: [bold]{report}[/]")
        spark.stop()
    console.print("[bold green]every proof holds[/]" if ok else "[bold red]A PROOF FAILED[/]")
    return 0 if ok else 1


def _write(log: TxnLog, flights: pa.Table) -> Ingested:
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        return ingest(log, flights, progress)


def _show_offsets(log: TxnLog) -> None:
    table = Table("topic", "partition", "LSO", "log end", "aborted", "held back by")
    for topic in log.topics():
        for row in log.offsets(topic):
            holder = row.held_by
            table.add_row(
                row.topic,
                str(row.partition),
                f"{row.last_stable_offset:,}",
                f"{row.log_end:,}",
                str(row.aborted_transactions),
                (
                    f"{holder.transactional_id} (producer {holder.producer_id}, since entry "
                    f"{holder.started_entry})"
                )
                if holder
                else "-",
            )
    console.print(table)


def _prove_open(spark: SparkSession, path: str, flights: pa.Table, books: Ingested, state: LogState) -> bool:
    """While a transaction is open: read_committed is exactly the committed rows below each partition's
    LSO.
    """
    uncommitted = read_topic(spark, path, "flights", "read_uncommitted").count()
    appended = sum(part.log_end - len(part.markers) for part in _partitions(state))
    ok = _check("read_uncommitted sees every record: committed, aborted and open", uncommitted, appended)
    # The books know which rows were committed by which entry; the log says which of them lie below the LSO.
    meta = read_topic(spark, path, "flights", "read_committed", columns="_partition,_offset,_commit_entry")
    outside = meta.filter(" OR ".join(_beyond_lso(state))).count()
    ok &= _check("read_committed rows at or beyond the LSO", outside, 0)
    held = [
        number for number, part in enumerate(_partitions(state)) if part.last_stable_offset < part.log_end
    ]
    free = [number for number in range(len(_partitions(state))) if number not in held]
    console.print(f"partitions held back: {held}; flowing freely: {free or 'none'}")
    hanging = flights.slice(books.hanging[0], books.hanging[1] - books.hanging[0])
    early = pa.concat_tables(
        [
            flights.slice(start, end - start)
            for start, end, entry in books.commits
            if entry < _hung_entry(state)
        ]
    )
    # The open transaction has records in every partition, so read_committed ends everywhere where it began.
    seen = fingerprint(read_topic(spark, path, "flights", "read_committed"))
    ok &= _same(
        "read_committed is what was committed before the open transaction", spark, seen, early, "early"
    )
    console.print(f"rows of the open transaction, not shown by read_committed: {hanging.num_rows:,}")
    return ok


def _partitions(state: LogState) -> list[PartitionState]:
    topic = state.topic("flights")
    return [part for key, part in sorted(state.partitions.items()) if key.topic_id == topic.topic_id]


def _beyond_lso(state: LogState) -> list[str]:
    return [
        f"(_partition = {number} AND _offset >= {part.last_stable_offset})"
        for number, part in enumerate(_partitions(state))
    ]


def _hung_entry(state: LogState) -> int:
    entry = state.transactional_ids[HANGING_ID].started_entry
    if entry is None:
        raise RuntimeError("the hanging transaction is not open")
    return entry


def _held_partition(state: LogState) -> int:
    """Return the partition with the most records behind its LSO: the most telling picture."""
    behind = [part.log_end - part.last_stable_offset for part in _partitions(state)]
    return behind.index(max(behind))


def _resolve(log: TxnLog, flights: pa.Table, books: Ingested) -> LogState:
    start, end = books.hanging
    # Opening the producer fences the dead instance and aborts what it left.
    with Producer(log, HANGING_ID) as producer, producer.transaction():
        send_rows(producer, flights.slice(start, end - start))
    console.print(f"aborted by init; its {end - start:,} rows sent again and committed")
    return log.refresh()


def _prove_whole(spark: SparkSession, path: str, flights: pa.Table) -> bool:
    ok = True
    for topic, expected in (("flights", flights), ("delays", flights.select(list(DELAY_COLUMNS)))):
        seen = fingerprint(read_topic(spark, path, topic, "read_committed"))
        ok &= _same(f"{topic}: read_committed against the file", spark, seen, expected, topic)
    uncommitted = read_topic(spark, path, "flights", "read_uncommitted").count()
    console.print(f"read_uncommitted sees {uncommitted - flights.num_rows:,} aborted records besides")
    mean = pc.mean(flights["dep_delay"]).as_py()
    rows = read_topic(spark, path, "delays", "read_committed").selectExpr("avg(dep_delay)").first()
    return ok & _check(
        "average departure delay, Spark on the log against Arrow on the file",
        rows and round(rows[0], 9),
        round(mean, 9),
    )


def _same(what: str, spark: SparkSession, seen: Fingerprint, expected: pa.Table, name: str) -> bool:
    wanted = fingerprint(table_frame(spark, expected, OUTPUT / f"{name}.parquet"))
    differing = [column for column in wanted.columns if wanted.columns[column] != seen.columns.get(column)]
    ok = _check(f"{what}: rows", seen.rows, wanted.rows)
    return ok & _check(
        f"{what}: columns whose checksum differs, of {len(wanted.columns)}", differing or "none", "none"
    )


def _check(what: str, got: object, expected: object) -> bool:
    ok = got == expected
    sign = "[green]✓[/]" if ok else "[red]✗[/]"
    if isinstance(got, bool):
        console.print(f"{sign} {what}")
        return ok
    shown = f"{got:,}" if isinstance(got, int) else str(got)
    console.print(f"{sign} {what}: {shown}" + ("" if ok else f" (expected {expected})"))
    return ok


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main(sys.argv[1:]))
