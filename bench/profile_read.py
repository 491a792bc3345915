"""`python -m bench.profile_read`: where the processor time of reads goes, against a pyarrow dataset over the
same rows.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from zlib_ng import zlib_ng

from bench import shapes
from txnformat.reading import open_files
from txnformat.segments import joint_reads, reader, segment_object
from txnformat.segments.merged import merged, parquet_file
from txnlog import Producer, TxnLog

__all__ = ["main"]

FILES = 35
COMPACTED_ROWS = 2_000_000
REPEATS = 15
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.int32()), ("amount", pa.float64())])


class _Shares:
    """Processor time of functions, of all threads.

    The time of one within another counts for the inner one alone.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._inner = threading.local()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, which notes its own time under a name."""

        def call(*arguments: Any, **named: Any) -> Any:
            outer = getattr(self._inner, "seconds", 0.0)
            self._inner.seconds = 0.0
            start = time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                all_in_all = time.thread_time() - start
                with self._lock:
                    self.seconds[name] += all_in_all - self._inner.seconds
                self._inner.seconds = outer + all_in_all

        return call


class _Decoder:
    """pyarrow's reader of a file, whose calls are timed."""

    def __init__(self, shares: _Shares, parquet: Any) -> None:
        self.reader = SimpleNamespace(
            read_row_groups=shares.timed("pyarrow's decoder", parquet.reader.read_row_groups)
        )


@contextmanager
def _watched() -> Iterator[_Shares]:
    """Time the steps of all reads."""
    shares = _Shares()
    segment, file = segment_object.SegmentObject, reader.SegmentFileReader
    steps = [
        (segment_object, "zlib_ng", SimpleNamespace(crc32=shares.timed("CRC-32 of chunks", zlib_ng.crc32))),
        (
            segment,
            "footer",
            shares.timed("footer: its hash, its check; small files: their bytes", segment.footer),
        ),
        (segment, "fetch_chunks", shares.timed("bytes of chunks", segment.fetch_chunks)),
        (file, "_look", shares.timed("look at pages", file._look)),
        (file, "_opened", shares.timed("a footer for the decoder", file._opened)),
        (joint_reads, "merged", shares.timed("a file of several for the decoder", merged)),
        (open_files.OpenFiles, "open", shares.timed("opening files", open_files.OpenFiles.open)),
    ]

    def decoder(*arguments: Any, **named: Any) -> _Decoder:
        return _Decoder(shares, parquet_file(*arguments, **named))

    with ExitStack() as stack:
        for owner, name, function in steps:
            stack.enter_context(patch.object(owner, name, function))
        for module in (reader, joint_reads):
            stack.enter_context(patch.object(module, "parquet_file", decoder))
        yield shares


def _processor(call: Callable[[], object]) -> tuple[float, float]:
    """Return the median seconds of the processor, and of the clock."""
    call()
    processor, clock = [], []
    for _ in range(REPEATS):
        start, begun = time.process_time(), time.perf_counter()
        call()
        processor.append(time.process_time() - start)
        clock.append(time.perf_counter() - begun)
    return statistics.median(processor), statistics.median(clock)


def _profile(what: str, read: Callable[[], object], dataset: Callable[[], object]) -> None:
    whole, clock = _processor(read)
    other, other_clock = _processor(dataset)
    print(f"\n{what}: {1e3 * whole:.1f} ms of the processor, {1e3 * clock:.1f} ms of the clock")
    print(
        f"  pyarrow dataset: {1e3 * other:.1f} ms of the processor, {1e3 * other_clock:.1f} ms of the clock"
    )
    with _watched() as shares:
        read()
        shares.seconds.clear()
        start = time.process_time()
        for _ in range(REPEATS):
            read()
        watched = time.process_time() - start
    for step, seconds in shares.seconds.most_common():
        print(f"  {100 * seconds / watched:5.1f} %  {step}")
    print(f"  {100 * (watched - shares.seconds.total()) / watched:5.1f} %  the rest: plan, batches, threads")


def main() -> None:
    """Print the shares of each read."""
    with tempfile.TemporaryDirectory() as name:
        _small_files(Path(name) / "flights", "flights shape", shapes.flights, "dep_delay")
        _small_files(Path(name) / "narrow", "144-byte rows", shapes.narrow, "value")
        with TxnLog.create(Path(name) / "compacted") as log:
            _compacted(log, Path(name) / "compacted")


def _small_files(folder: Path, what: str, blocks: Callable[[int], Iterator[pa.Table]], column: str) -> None:
    shapes.write_log(folder / "log", blocks(FILES * shapes.BLOCK_ROWS))
    shapes.write_parquet(folder / "parquet", blocks(FILES * shapes.BLOCK_ROWS))

    def read(columns: list[str] | None) -> list[int]:
        return [one.num_rows for one in log.read("rows", columns=columns)]

    def dataset(columns: list[str] | None) -> list[int]:
        return [one.num_rows for one in ds.dataset(folder / "parquet").to_batches(columns=columns)]

    with TxnLog.open(folder / "log") as log:
        for which, columns in (("all columns", None), ("one column", [column])):
            _profile(f"{FILES} files, {what}, {which}", partial(read, columns), partial(dataset, columns))


def _compacted(log: TxnLog, root: Path) -> None:
    log.create_topic("rows", SCHEMA)
    random = np.random.default_rng(7)
    with Producer(log, "bench") as producer:
        for start in range(0, COMPACTED_ROWS, shapes.BLOCK_ROWS):
            rows = {
                "id": np.arange(start, start + shapes.BLOCK_ROWS),
                "customer": random.integers(0, 100_000, shapes.BLOCK_ROWS, np.int32),
                "amount": random.uniform(1, 1_000, shapes.BLOCK_ROWS),
            }
            with producer.transaction() as transaction:
                transaction.send("rows", pa.table(rows, SCHEMA))
    log.compact("rows", min_lag_ms=0)
    files = [str(root / file.key) for file in log.plan("rows").files.values()]
    _profile(
        f"compacted: {COMPACTED_ROWS:,} rows in {len(files)} file",
        lambda: [one.num_rows for one in log.read("rows")],
        lambda: [one.num_rows for one in ds.dataset(files).to_batches(columns=SCHEMA.names)],
    )


if __name__ == "__main__":
    main()
