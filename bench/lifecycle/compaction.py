"""`make bench-compaction`: bytes of the metadata columns of a compacted file, and the compactor's speed by
that of pyarrow alone.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.table import ROUNDS, Benchmark, Context, Measurement, Row
from txnformat.reading.stored_rows import STORED_FIELDS
from txnlog import Producer, TxnLog

__all__ = ["BENCHMARKS", "Figures", "measure"]

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.float64())])
COMPRESSION: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
"""As compacted files have it."""


TRANSACTIONS = 400
RECORDS = 2_000
NOTE = (
    "the compactor opens each small file in Python: its footer is compared with its hash and decoded, its "
    "chunks with their checksums, and its pages are looked at, before pyarrow decodes many files in one "
    "call; then it writes page indexes, digests what it writes and syncs it. pyarrow alone opens and "
    'decodes a file of 2,000 records in less time than that takes. `make bench-compaction ARGS="--profile '
    'FILE"` shows the parts'
)


@dataclass(frozen=True)
class Figures:
    """The measured figures; seconds are of CPU, of all threads, the least of the rounds."""

    transactions: int
    records: int
    files_before: int
    files: int
    bytes_per_record: float
    """Compressed, with the metadata columns."""
    metadata_bytes_per_record: float
    """Compressed, of the metadata columns."""
    offset_bytes_per_record: float
    """Bytes of these for the column `_offset`."""
    compaction_s: float
    rewrite_s: float
    """pyarrow reads the small files, puts the same metadata columns beside their rows, and writes one file,
    with the compaction's compression and dictionaries."""
    copy_s: float
    """pyarrow reads the compacted file and writes it again in the same way."""
    rewrite_speed: float
    """The compactor's speed by that of the rewrite,"""
    copy_speed: float
    """and by that of the copy."""


def _written(root: Path, transactions: int, records: int) -> None:
    """Write transactions of three columns into one partition."""
    random = np.random.default_rng(7)
    with TxnLog.create(root, embedding=False) as log:
        log.create_topic("orders", SCHEMA, partitions=1)
        with Producer(log, "bench") as producer:
            for number in range(transactions):
                producer.begin()
                producer.send("orders", _rows(random, number * records, records))
                producer.commit()
        log.maintain("seal")


def _rows(random: np.random.Generator, first: int, count: int) -> pa.Table:
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "customer": random.integers(0, 100_000, count, np.int32),
            "amount": random.uniform(1, 1_000, count),
        },
        SCHEMA,
    )


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _rewrite(small: Sequence[Path], compacted: pa.Table, file: Path, dictionaries: list[str]) -> None:
    table = pa.concat_tables([pq.ParquetFile(one).read(use_threads=False) for one in small])
    for name in STORED_FIELDS:
        table = table.append_column(STORED_FIELDS[name], compacted.column(name))
    pq.write_table(table, file, use_dictionary=dictionaries, **COMPRESSION)


def _copy(files: Sequence[Path], file: Path, dictionaries: list[str]) -> None:
    table = pa.concat_tables([pq.ParquetFile(one).read(use_threads=False) for one in files])
    pq.write_table(table, file, use_dictionary=dictionaries, **COMPRESSION)


def _sizes(files: Sequence[Path]) -> tuple[int, dict[str, int], list[str]]:
    """Return rows, compressed bytes by column, and the columns with dictionaries."""
    rows = 0
    sizes: dict[str, int] = {}
    numbered: set[str] = set()
    for file in files:
        metadata = pq.read_metadata(file)
        rows += metadata.num_rows
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                name = chunk.path_in_schema
                sizes[name] = sizes.get(name, 0) + chunk.total_compressed_size
                if chunk.has_dictionary_page:
                    numbered.add(name)
    return rows, sizes, sorted(numbered)


def measure(transactions: int, records: int, rounds: int, profile: Path | None = None) -> Figures:
    """Compact the same log several times, each time from the beginning, beside pyarrow with the same rows."""
    done = [_round(transactions, records, None) for _ in range(rounds - 1)]
    done.append(_round(transactions, records, profile))
    last = done[-1]
    rows = last.rows
    compaction, rewrite, copy = (min(times) for times in zip(*(one.seconds for one in done), strict=True))
    return Figures(
        transactions,
        rows,
        last.files_before,
        last.files,
        round(sum(last.sizes.values()) / rows, 2),
        round(sum(last.sizes[name] for name in STORED_FIELDS) / rows, 2),
        round(last.sizes["_offset"] / rows, 2),
        round(compaction, 3),
        round(rewrite, 3),
        round(copy, 3),
        round(rewrite / compaction, 2),
        round(copy / compaction, 2),
    )


class _Round(NamedTuple):
    rows: int
    files_before: int
    files: int
    sizes: dict[str, int]
    """Compressed bytes by column."""
    seconds: tuple[float, float, float]
    """Seconds of the compaction, the rewrite and the copy."""


def _round(transactions: int, records: int, profile: Path | None) -> _Round:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _written(folder / "log", transactions, records)
        small = _data_files(folder)
        with TxnLog.open(folder / "log") as log:
            profiler = cProfile.Profile()
            if profile is not None:
                profiler.enable()
            compaction = _seconds(lambda: log.compact("orders", min_lag_ms=0))
            profiler.disable()
            if profile is not None:
                profiler.dump_stats(profile)
        files = sorted(set(_data_files(folder)) - set(small))
        rows, sizes, numbered = _sizes(files)
        if rows != transactions * records:
            raise RuntimeError(f"{rows} records were written together, not {transactions * records}")
        compacted = pa.concat_tables([pq.read_table(file) for file in files])
        rewrite = _seconds(lambda: _rewrite(small, compacted, folder / "rewrite.parquet", numbered))
        copy = _seconds(lambda: _copy(files, folder / "copy.parquet", numbered))
        return _Round(rows, len(small), len(files), sizes, (compaction, rewrite, copy))


def _data_files(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("orders-*/data/*.parquet"))


def measure_rows(context: Context) -> list[Measurement]:
    """Return the compactor's speed by that of pyarrow, in processor time."""
    rounds = []
    for number in range(ROUNDS):
        context.tick(f"{number + 1}/{ROUNDS}")
        rounds.append(_round(TRANSACTIONS, RECORDS, None).seconds)
    speeds = tuple(rewrite / compaction for compaction, rewrite, _ in rounds)
    names = ("compaction_s", "rewrite_s", "copy_s")
    medians = {
        name: round(statistics.median(times), 3)
        for name, times in zip(names, zip(*rounds, strict=True), strict=True)
    }
    return [Measurement("compaction", speeds, medians)]


BENCHMARKS = (
    Benchmark(
        name="compaction",
        how=(
            f"{TRANSACTIONS} transactions of {RECORDS:,} records of three columns, sealed, compacted into "
            "one file; against pyarrow, which reads the same small files, puts the same metadata columns "
            "beside their rows, and writes one file with the same compression and dictionaries. Processor "
            "time of all threads; local disk. The kept figures were taken beside much other work."
        ),
        rows=(
            Row(
                key="compaction",
                work=f"compaction of {TRANSACTIONS} files of {RECORDS:,} records",
                against="pyarrow that reads the same files and writes one",
                figure="times its speed",
                target=0.6,
                note=NOTE,
            ),
        ),
        measure=measure_rows,
        minutes=1,
    ),
)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.compaction", description=__doc__)
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    parser.add_argument("--records", type=int, default=RECORDS, help="of each transaction")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--profile", type=Path, help="file for a profile of the last compaction, for pstats")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = asdict(measure(given.transactions, given.records, given.rounds, given.profile))
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):26} {value:>12,}")


if __name__ == "__main__":
    main()
