"""``python -m bench.lifecycle.payload_formats``: bytes and time of a small batch as Arrow IPC and as Parquet,
both with zstd (docs/internals/adr/0028).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CALLS = 300


def _rows(count: int) -> pa.Table:
    generator = np.random.default_rng(1)
    names = [f"customer-{number}" for number in generator.integers(1_000, size=count)]
    return pa.table({"id": np.arange(count), "amount": generator.random(count), "name": names})


def _arrow(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return out.getvalue()


def _parquet(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", write_page_checksum=True)
    return out.getvalue()


def _microseconds(call: Callable[[], object]) -> float:
    found = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found) * 1e6


def _row(count: int) -> str:
    table = _rows(count)
    arrow, parquet = _arrow(table), _parquet(table)
    cells = [
        (arrow, lambda: _arrow(table), lambda: pa.ipc.open_stream(arrow).read_all()),
        (
            parquet,
            lambda: _parquet(table),
            lambda: pq.ParquetFile(pa.BufferReader(parquet)).read(use_threads=False),
        ),
    ]
    shown = [
        f"{data.size:,} B, {_microseconds(write):.0f} µs, {_microseconds(read):.0f} µs"
        for data, write, read in cells
    ]
    return f"| {count:,}, 3 | {' | '.join(shown)} |"


def main() -> None:
    """Print a row for each number of rows."""
    for count in (3, 100, 1_000):
        print(_row(count))


if __name__ == "__main__":
    main()
