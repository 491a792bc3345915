"""Writing many rows in one transaction, against pyarrow's write_table of the same rows with the same
settings.
"""

from __future__ import annotations

import os
import shutil
import statistics
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import shapes
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from txnformat.segments.column_values import columns_that_repeat
from txnlog import Producer, TxnLog

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
SHAPES = {"flights": shapes.flights, "narrow": shapes.narrow}


class _Folders:
    """Gives a new name at every call, and removes what the one before it names: a disk is not for five of
    these.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir()
        self._parent = parent
        self._count = 0

    @property
    def last(self) -> Path:
        """The name given last."""
        return self._parent / str(self._count)

    def __call__(self) -> Path:
        shutil.rmtree(self.last, ignore_errors=True)
        self._count += 1
        return self.last


def _write_log(fresh: _Folders, table: pa.Table) -> None:
    with TxnLog.create(fresh()) as log:
        log.create_topic("rows", table.schema)
        with Producer(log, "bench") as producer, producer.transaction() as transaction:
            transaction.send("rows", table)


def _row_group_rows(folder: Path) -> int:
    """Return the rows of the first row group of a log: what write_table is given too."""
    with TxnLog.open(folder) as log:
        files = log.plan("rows").files
        path = folder / next(iter(files.values())).key
    rows: int = pq.read_metadata(path).row_group(0).num_rows
    return rows


def _write_table(fresh: _Folders, table: pa.Table, row_group_rows: int, *, sync: bool) -> None:
    folder = fresh()
    folder.mkdir()
    path = folder / "rows.parquet"
    pq.write_table(
        table,
        path,
        row_group_size=row_group_rows,
        compression="zstd",
        compression_level=1,
        use_dictionary=columns_that_repeat(table),
        write_page_checksum=True,
        store_schema=True,
    )
    if sync:
        with path.open("rb+") as file:
            os.fsync(file.fileno())


def measure(context: Context) -> list[Measurement]:
    """Return our rate by that of write_table."""
    found = []
    for name, blocks in SHAPES.items():
        context.tick(f"making {name}")
        table = pa.concat_tables(blocks(ROWS)).combine_chunks()
        fresh = _Folders(context.folder / name)
        _write_log(fresh, table)
        group = _row_group_rows(fresh.last)
        calls = {
            "txnlog": partial(_write_log, fresh, table),
            "synced": partial(_write_table, fresh, table, group, sync=True),
            "unsynced": partial(_write_table, fresh, table, group, sync=False),
        }
        seconds = take_turns(calls, context, sync=True)
        medians = {f"{who}_s": round(statistics.median(times), 3) for who, times in seconds.items()}
        found += [
            ratio(
                f"ingest-{name}-{other}", seconds[other], seconds["txnlog"], row_group_rows=group, **medians
            )
            for other in ("synced", "unsynced")
        ]
    return found


NOTE = (
    "txnlog syncs its files before it answers and digests every byte of them (sha256, and a CRC-32 of "
    "each column chunk), "
    "which pyarrow does not; against a file that is synced as well the target is met. The digest runs in "
    "a thread beside "
    "the encoder, and on two cores the encoder's own threads pay for it. `make bench BENCH=ingest` gives both"
)

BENCHMARKS = (
    Benchmark(
        name="ingest",
        how=(
            f"{ROWS:,} rows in memory into a new log, in one transaction of one send, against "
            "`write_table` of the same table into "
            "one file with the same codec, level, dictionaries, page checksums and rows of a row group. "
            "txnlog syncs what it "
            "wrote before it answers; pyarrow is timed with an fsync of its file and without. The system "
            "is synced, untimed, "
            "before each."
        ),
        rows=tuple(
            Row(
                key=f"ingest-{name}-{other}",
                work=f"bulk ingest of {ROWS:,} rows, {shape}",
                against=f"pyarrow write_table, same settings, {how}",
                figure="times its rate",
                target=0.9,
                note=NOTE,
            )
            for name, shape in (("flights", "flights shape"), ("narrow", "144-byte rows"))
            for other, how in (("synced", "file synced"), ("unsynced", "file left in the page cache"))
        ),
        measure=measure,
        minutes=3,
    ),
)
