"""`make bench-scan`: a topic of many small files before and after compaction: requests of a read of all of
it, and its speed by that of a pyarrow dataset over the compacted files.

Also what reading such files costs where a request takes some time, before they are compacted: GETs for each
file, and seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import LatencyStore

__all__ = ["BENCHMARKS", "FarFigures", "Figures", "measure", "measure_far"]

SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.float64())])


COMPACTED = {"compacted-read-2m": 100, "compacted-read-10m": 500}
"""Commits by row."""
COMPACTED_RECORDS = 20_000
COMPACTED_NOTE = (
    "the reader compares the footer with its hash and every column chunk with its CRC-32 before pyarrow "
    "sees a byte, and looks at the pages; the dataset checks nothing. "
    "The row groups of the file are decoded two at a time, in threads of our own; the dataset has Arrow's "
    "threads. Opening, the plan and the footer take about 3 ms, which weighs most in a short read. "
    "`python -m bench.profile_read` (29 November 2026, 2,000,000 rows, nothing beside): 99.5 ms of the "
    "processor, the dataset 87.6, which is 0.88; of the 99.5 pyarrow's decoder has 81 %, as much as the "
    "dataset takes in all, "
    "copying bytes 5 %, a footer for the decoder 3 %, pages 2 %, CRC-32 2 %, plan and batches 8 %"
)


@dataclass(frozen=True)
class Figures:
    """The measured figures."""

    commits: int
    records: int
    files: int
    """After the compaction."""
    requests_before: int
    """Requests of opening the log and reading all of the topic, by a process that knows nothing of it,"""
    requests: int
    """and after the compaction."""
    fewer: float
    """How many times fewer these are."""
    read_s: float
    """Reading all of the compacted topic; wall, the least of the rounds,"""
    dataset_s: float
    """and its files with a pyarrow dataset."""
    speed: float
    """The reader's speed by that of the dataset: the median of the rounds' ratios."""


@dataclass(frozen=True)
class FarFigures:
    """Reading small files where a request takes some time."""

    files: int
    partitions: int
    """Each file has records of all of them."""
    round_trip_ms: float
    read_gets: float
    """GETs for each file of a read of the whole topic,"""
    read_s: float
    """and its seconds, wall;"""
    consumer_gets: float
    consumer_s: float
    """of a consumer from the beginning;"""
    dataset_gets: float
    dataset_s: float
    """of a pyarrow dataset."""


def _write(store: ObjectStore, commits: int, records: int, partitions: int = 1) -> None:
    random = np.random.default_rng(7)
    with TxnLog.create(store, embedding=False) as log:
        log.create_topic("orders", SCHEMA, partitions=partitions)
        with Producer(log, "bench") as producer:
            for number in range(commits):
                first = number * records
                rows = {
                    "id": np.arange(first, first + records),
                    "customer": random.integers(0, 100_000, records, np.int32),
                    "amount": random.uniform(1, 1_000, records),
                }
                table = pa.table(rows, SCHEMA)
                with producer.transaction() as txn:
                    for partition in range(partitions):
                        share = records // partitions
                        part = table.slice(partition * share, share)
                        txn.send("orders", part, partition=partition)


def _read(store: CountingStore) -> tuple[int, int]:
    """Return rows and requests of a read by a process that knows nothing of the log."""
    with store.measure() as measured, TxnLog.open(store) as log:
        rows = sum(batch.num_rows for batch in log.read("orders"))
    return rows, sum(measured.counts.requests.values())


def _seconds(work: Callable[[], int], rows: int) -> float:
    begun = time.perf_counter()
    if work() != rows:
        raise RuntimeError("rows are missing")
    return time.perf_counter() - begun


def _dataset_rows(files: list[Path]) -> int:
    dataset = ds.dataset([str(file) for file in files])
    return sum(one.num_rows for one in dataset.to_batches(columns=SCHEMA.names))


def measure(commits: int, records: int, rounds: int) -> Figures:
    """Write, read, compact and read again; then take turns with a dataset over the same files, which are
    copied to a local disk.

    Raises
    ------
    RuntimeError
        A read does not give all rows.
    """
    store = CountingStore(MemoryStore())
    _write(store, commits, records)
    rows, before = _read(store)
    small = {info.key for info in store.list("") if info.key.endswith(".parquet")}
    with TxnLog.open(store) as log:
        log.compact("orders", min_lag_ms=0)
    after_rows, after = _read(store)
    if not rows == after_rows == commits * records:
        raise RuntimeError(f"{rows} and {after_rows} rows were read, not {commits * records}")
    with tempfile.TemporaryDirectory() as name:
        root, files = Path(name), []
        for info in store.list(""):
            if info.key not in small:
                path = root / info.key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(store.get(info.key) or b"")
                files += [path] * info.key.endswith(".parquet")
        ours, theirs = [], []
        with TxnLog.open(root) as log:
            for _ in range(rounds):
                ours.append(_seconds(lambda: sum(one.num_rows for one in log.read("orders")), rows))
                theirs.append(_seconds(lambda: _dataset_rows(files), rows))
    ratios = sorted(other / own for own, other in zip(ours, theirs, strict=True))
    return Figures(
        commits,
        rows,
        len(files),
        before,
        after,
        round(before / after, 1),
        round(min(ours), 4),
        round(min(theirs), 4),
        round(ratios[len(ratios) // 2], 2),
    )


def measure_compacted(context: Context) -> list[Measurement]:
    """Return the speed of a read of a compacted topic by that of a pyarrow dataset over its file."""
    found = []
    for key, commits in COMPACTED.items():
        context.tick(f"writing {key}")
        root = context.folder / key
        root.mkdir()
        store = LocalStore(root)
        _write(store, commits, COMPACTED_RECORDS)
        small = {info.key for info in store.list("")}
        with TxnLog.open(root) as log:
            log.compact("orders", min_lag_ms=0)
        files = [
            root / info.key
            for info in store.list("")
            if info.key not in small and info.key.endswith(".parquet")
        ]
        rows = commits * COMPACTED_RECORDS
        with TxnLog.open(root) as log:
            calls = {
                "txnlog": lambda: _seconds(lambda: sum(one.num_rows for one in log.read("orders")), rows),  # noqa: B023  # called at once
                "dataset": lambda: _seconds(lambda: _dataset_rows(files), rows),  # noqa: B023  # called at once
            }
            seconds = take_turns(calls, context, rounds=9)
        medians = {f"{name}_s": round(statistics.median(times), 4) for name, times in seconds.items()}
        found.append(ratio(key, seconds["dataset"], seconds["txnlog"], rows=rows, **medians))
    return found


def _consume(log: TxnLog) -> int:
    rows = 0
    with Consumer(log) as consumer:
        consumer.subscribe(["orders"])
        while (batch := consumer.poll(0)) is not None:
            rows += batch.num_rows
    return rows


def measure_far(files: int, records: int, partitions: int, round_trip_ms: float) -> FarFigures:
    """Read small files through a store whose requests take ``round_trip_ms``.

    ``records``: of each file, a multiple of ``partitions``.

    Raises
    ------
    RuntimeError
        A read does not give all rows.
    """
    inner = MemoryStore()
    _write(inner, files, records, partitions)
    store = CountingStore(LatencyStore(inner, round_trip_ms))
    ways: list[Callable[[TxnLog], int]] = [
        lambda log: sum(batch.num_rows for batch in log.read("orders")),
        _consume,
        lambda log: log.dataset("orders").to_table().num_rows,
    ]
    found: list[float] = []
    for way in ways:
        with TxnLog.open(store) as log, store.measure() as measured:
            seconds = _seconds(lambda: way(log), files * records)  # noqa: B023  # called at once
        found += [round(measured.counts.count(None, KeyClass.DATA) / files, 3), round(seconds, 3)]
    return FarFigures(files, partitions, round_trip_ms, *found)


BENCHMARKS = (
    Benchmark(
        name="compacted-read",
        how=(
            f"Transactions of {COMPACTED_RECORDS:,} records of three columns, compacted into one file; "
            "`log.read(…)`, with its refresh and plan, "
            "against a pyarrow dataset over that file with the same columns; batches are counted and "
            "dropped. From the page cache. The kept figures were taken beside much other work."
        ),
        rows=tuple(
            Row(
                key=key,
                work=f"Python read of a compacted topic, {commits * COMPACTED_RECORDS:,} rows",
                against="pyarrow dataset over the same file",
                figure="times its speed",
                target=0.95,
                note=COMPACTED_NOTE,
            )
            for key, commits in COMPACTED.items()
        ),
        measure=measure_compacted,
        minutes=1.5,
    ),
)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.scan", description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000, help="0: only the reads with a latency")
    parser.add_argument("--records", type=int, default=200, help="of each commit")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--far-files", type=int, default=200, help="read with a latency")
    parser.add_argument("--far-partitions", type=int, default=4)
    parser.add_argument("--round-trip-ms", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    far = measure_far(given.far_files, given.records, given.far_partitions, given.round_trip_ms)
    found = asdict(measure(given.commits, given.records, given.rounds)) if given.commits else {}
    found |= {f"far_{name}": value for name, value in asdict(far).items()}
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):18} {value:>14,}")


if __name__ == "__main__":
    main()
