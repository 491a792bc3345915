"""`make demo` without Spark: what it writes, seals and compacts, on a part of its data."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from demo.compacting import compact_and_show
from demo.ingest import HANGING_ID, create_topics, ingest, send_rows
from demo.sealing import seal_and_show
from demo.source import read_flights
from txnlog import Producer, TxnLog


def test_what_the_demo_proves_holds(tmp_path: Path) -> None:
    """As many committed rows as the file has, before and after each step; and the log is sound."""
    rows = 100_000
    flights = read_flights().slice(0, rows)
    console = Console(file=io.StringIO(), width=120)

    def count(log: TxnLog) -> list[int]:
        return [log.read(topic, columns=[]).read_all().num_rows for topic in ("flights", "delays")]

    with TxnLog.create(tmp_path / "log") as log:
        create_topics(log)
        with Progress(console=console) as progress:
            books = ingest(log, flights, progress)
        with Producer(log, HANGING_ID) as producer, producer.transaction():
            start, end = books.hanging
            send_rows(producer, flights.slice(start, end - start))
        assert count(log) == [rows, rows]
        assert seal_and_show(log, "flights", console)
        assert count(log) == [rows, rows]
        assert compact_and_show(log, console)
        assert count(log) == [rows, rows]
        assert log.verify(deep=True).ok
