"""The table of ADR 0031: the bits of a float column after ``-(-x)`` and ``x * 1.0D``, and whether conditions on them reach Spark's Parquet reader."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark.session import session

__all__ = ["main"]

BITS = (0x7FF8000000000000, 0x7FF0000000000001, 0xFFF8000000000123, 0x8000000000000000, 0x0)


def main() -> None:
    """Print a line for each expression."""
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-") as name, session(Path(name)) as spark:
        pq.write_table(pa.table({"x": np.array(BITS, np.uint64).view(np.float64)}), f"{name}/x.parquet")
        frame = spark.read.parquet(f"{name}/x.parquet")
        for expression in ("x", "x * 1.0D", "-(-x)"):
            column = frame.selectExpr(f"{expression} AS x")
            found = column.toArrow().column("x").combine_chunks().view(pa.uint64()).to_pylist()
            kept = column.where("x > 5").count()
            print(f"{expression:10} bits {[f'{bits:016x}' for bits in found]}; x > 5 keeps {kept} of 3 NaN")


if __name__ == "__main__":
    main()
