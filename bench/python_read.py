"""Reading a topic of which 30 % were aborted, in Python, against a pyarrow dataset of only the committed
rows.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds

from bench import shapes
from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from txnlog import TxnLog

__all__ = ["BENCHMARKS"]

ROWS = 5_000_000
ABORTED_OF_TEN = 3
ROUNDS = 9
SHAPES = {"flights": (shapes.flights, "dep_delay"), "narrow": (shapes.narrow, "value")}


def _ours(log: TxnLog, columns: list[str] | None) -> int:
    return sum(batch.num_rows for batch in log.read("rows", columns=columns))


def _theirs(folder: Path, columns: list[str] | None) -> int:
    return sum(batch.num_rows for batch in ds.dataset(folder).to_batches(columns=columns))


def measure(context: Context) -> list[Measurement]:
    """Return our speed by that of the dataset, for all columns and for one."""
    found = []
    for name, (blocks, column) in SHAPES.items():
        context.tick(f"writing {name}")
        folder = context.folder / name
        committed = shapes.write_log(folder / "log", blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
        shapes.write_parquet(folder / "parquet", blocks(ROWS), aborted_of_ten=ABORTED_OF_TEN)
        with TxnLog.open(folder / "log") as log:
            for width, columns in (("all", None), ("one", [column])):
                if not _ours(log, columns) == _theirs(folder / "parquet", columns) == committed:
                    raise RuntimeError("the two do not hold the same number of rows")
                calls = {
                    "txnlog": partial(_ours, log, columns),
                    "dataset": partial(_theirs, folder / "parquet", columns),
                }
                seconds = take_turns(calls, context, rounds=ROUNDS)
                medians = {f"{who}_s": round(statistics.median(times), 4) for who, times in seconds.items()}
                key = f"python-read-{name}-{width}"
                found.append(ratio(key, seconds["dataset"], seconds["txnlog"], rows=committed, **medians))
    return found


def _rows() -> tuple[Row, ...]:
    return tuple(
        Row(
            key=f"python-read-{name}-{width}",
            work=f"Python read, 30 % aborted, {shape}, {text}",
            against="pyarrow dataset over only the committed rows",
            figure="times its speed",
            target=0.95,
            note=NOTES[width],
        )
        for name, shape in (("flights", "flights shape"), ("narrow", "144-byte rows"))
        for width, text in (("all", "all columns"), ("one", "one column"))
    )


NOTES = {
    "all": (
        "a reader of txnlog checks the footer's hash and every chunk's CRC-32, and looks at the pages, "
        "before it decodes; the dataset checks nothing and lets Arrow's threads read the files. "
        "Arrow's threads are kept off files that Python feeds, because they may let go of them while "
        "Python ends and abort the process; columns are decoded side by side in "
        "threads of our own instead. `python -m bench.profile_read` (29 November 2026, 35 files of "
        "144-byte rows, nothing beside): 850 ms of the processor, the dataset 778; of the 850 pyarrow's "
        "decoder has 75 %, "
        "copying bytes 10 %, CRC-32 6 %, footers and pages 4 %, plan and batches 5 %"
    ),
    "one": (
        "the time is that of the files, not of the bytes: one column of a file of 100,000 rows is a chunk "
        "of 88 KB. `python -m bench.profile_read` (29 November 2026, 35 files, flights shape, nothing "
        "beside): "
        "64 ms of the processor, the dataset 52; of the 64 pyarrow's decoder has 40 %, footers 13 %, "
        "bytes 5 %, a footer for the decoder 5 %, pages 3 %, CRC-32 less than 1 %, and the rest, about 30 "
        "%, is "
        "Python around files: plan, batches, threads, dictionaries put in place of numbers. On the clock "
        "it is 49 ms against 30: threads of Python take turns where Arrow's do not. Larger files amortise it"
    ),
}

BENCHMARKS = (
    Benchmark(
        name="python-read",
        how=(
            f"{ROWS:,} rows in transactions of {shapes.BLOCK_ROWS:,}, each a file of one row group; three "
            "of ten were aborted after "
            "they had reached the log. `log.read(…)`, with its refresh and plan, against "
            "`dataset(folder).to_batches(…)` of "
            "Parquet files with the committed rows alone, of the same sizes, compressed alike; batches "
            "are counted and "
            "dropped. From the page cache."
        ),
        rows=_rows(),
        measure=measure,
        minutes=1.5,
    ),
)
