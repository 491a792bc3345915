"""What is written can be read, also where a reader has to be careful: large values and lists that compress very well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txnlog import Producer, TxnLog

MIB = 1024 * 1024
STRINGS = pa.list_(pa.string())
PAIRS = pa.map_(pa.string(), pa.string())


def _lists(values: Any, ends: Any) -> pa.Array:
    return pa.ListArray.from_arrays(np.array(ends, np.int32), pa.array(values))


def _long_among_short(first: bool) -> pa.Array:
    short, long = ["abc", "de", "f"] * 300_000, ["x" * 600_000]
    return _lists([*long, *short] if first else [*short, *long], range(0, 900_002, 5))


CASES = {
    "one value of zeros": lambda: pa.array([b"\0" * (100 * MIB)]),
    "values of zeros": lambda: pa.array([b"\0" * MIB] * 100),
    "pages of 64 MiB": lambda: pa.array([b"\0" * 65_532] * 2_100),
    "a large value among small ones": lambda: pa.array([b"s"] * 100_000 + [b"\0" * (90 * MIB)] + [b"t"] * 100_000),
    "one list of zeros": lambda: _lists(np.zeros(20_000_000, np.int64), [0, 20_000_000]),
    "lists of zeros": lambda: _lists(np.zeros(20_000_000, np.int64), range(0, 20_000_001, 20)),
    "lists of truth": lambda: _lists(np.zeros(200_000_000, bool), range(0, 200_000_001, 1_000)),
    "lists of small numbers": lambda: _lists(np.zeros(80_000_000, np.int8), range(0, 80_000_001, 1_000)),
    "lists of empty texts": lambda: _lists(pa.array([""]).take(pa.array(np.zeros(9_000_000, np.int32))), range(0, 9_000_001, 9)),
    "a long text in lists, first": lambda: _long_among_short(first=True),
    "a long text in lists, last": lambda: _long_among_short(first=False),
    "a long text in maps": lambda: pa.array(
        [[("k", "v" * 100), ("text", "y" * 300_000 if row == 5 else "z")] for row in range(100_000)], PAIRS
    ),
    "one list of structs": lambda: pa.array([[{"x": "y" * 1000}] * 100_000], pa.list_(pa.struct([("x", pa.string())]))),
    "lists, empty and null": lambda: pa.array([[], None, ["a", None, ""], [None] * 50] * 50_000, STRINGS),
    "no values": lambda: pa.nulls(10_000_000, pa.string()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_comes_back(name: str, tmp_path: Path) -> None:
    table = pa.table({"n": CASES[name]()})
    small = pa.table({"n": table["n"].slice(0, 1)})
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("t", table.schema)
        with Producer(log, "p") as producer, producer.transaction() as transaction:
            for data in (small, table, small):  # files are compressed again afterwards
                transaction.send("t", data)
                transaction.flush()
        found = log.read("t").read_all().column("n")
    assert found.equals(pa.chunked_array([*small["n"].chunks, *table["n"].chunks, *small["n"].chunks]))
