"""`python -m bench.profile_read`: what reading one column of one small file costs, step by step, in processor time."""

from __future__ import annotations

import hashlib
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from bench import shapes
from txnlog import TxnLog

__all__ = ["main"]

COLUMN = "dep_delay"
FILES = 30
REPEATS = 7


def _microseconds(call: Callable[[], object]) -> float:
    """Return the least processor time of a call for all files, in µs per file."""
    least = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        least = min(least, time.process_time() - start)
    return least / FILES * 1e6


def main() -> None:
    """Print the steps."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shapes.write_log(folder / "log", shapes.flights(FILES * shapes.BLOCK_ROWS))
        shapes.write_parquet(folder / "parquet", shapes.flights(FILES * shapes.BLOCK_ROWS))
        with TxnLog.open(folder / "log") as log:
            plan = log.plan("rows")
            files = [(folder / "log" / file.key, file) for file in plan.files.values()]
            footers = [path.read_bytes()[-file.footer_bytes :] for path, file in files]
            parsed = [pq.read_metadata(pa.BufferReader(footer)) for footer in footers]
            index = plan.topic.schema.arrow_schema.names.index(COLUMN)
            chunks = [data.row_group(0).column(index).total_compressed_size for data in parsed]
            data = bytes(max(chunks))
            opened = [
                pq.ParquetFile(path, metadata=known) for (path, _), known in zip(files, parsed, strict=True)
            ]
            steps: dict[str, Callable[[], object]] = {
                "hash of the footer": lambda: [hashlib.sha256(footer).hexdigest() for footer in footers],
                "parsing the footer": lambda: [
                    pq.read_metadata(pa.BufferReader(footer)) for footer in footers
                ],
                "checksum of the column chunk": lambda: [zlib.crc32(data) for _ in files],
                "decoding, by pyarrow": lambda: [
                    file.reader.read_row_groups([0], column_indices=[index], use_threads=False)
                    for file in opened
                ],
                "txnlog, all in all": lambda: [
                    batch.num_rows for batch in log.read("rows", columns=[COLUMN])
                ],
                "pyarrow dataset, all in all": lambda: [
                    batch.num_rows for batch in ds.dataset(folder / "parquet").to_batches(columns=[COLUMN])
                ],
            }
            print(
                f"processor time in µs per file of {shapes.BLOCK_ROWS:,} rows, one column of {chunks[0]:,} bytes"
            )
            for step, call in steps.items():
                print(f"{step:30} {_microseconds(call):8.0f}")


if __name__ == "__main__":
    main()
