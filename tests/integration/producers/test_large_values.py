"""What is written can be read, also where a reader has to be careful: large values and lists that compress
very well."""

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


def _structs(columns: int, structs: int, lists: int) -> pa.Array:
    """Return lists of structs of integers, of which the first have one."""
    values = pa.StructArray.from_arrays(
        [pa.nulls(structs, pa.int32())] * columns, [f"c{number}" for number in range(columns)]
    )
    return pa.ListArray.from_arrays(np.minimum(np.arange(lists + 1), structs).astype(np.int32), values)


def _deep(levels: int, value: Any, type_: Any = None) -> Any:
    """Return a value or a type in as many lists."""
    found = value if type_ is None else type_
    for _ in range(levels):
        found = [found] if type_ is None else pa.list_(found)
    return found


CASES = {
    "one value of zeros": lambda: pa.array([b"\0" * (100 * MIB)]),
    "values of zeros": lambda: pa.array([b"\0" * MIB] * 100),
    "pages of 64 MiB": lambda: pa.array([b"\0" * 65_532] * 2_100),
    ("a large value among small "
    "ones"): lambda: pa.array([b"s"] * 100_000 + [b"\0" * (90 * MIB)] + [b"t"] * 100_000),
    "one list of zeros": lambda: _lists(np.zeros(20_000_000, np.int64), [0, 20_000_000]),
    "lists of zeros": lambda: _lists(np.zeros(20_000_000, np.int64), range(0, 20_000_001, 20)),
    "lists of truth": lambda: _lists(np.zeros(200_000_000, bool), range(0, 200_000_001, 1_000)),
    "lists of small numbers": lambda: _lists(np.zeros(80_000_000, np.int8), range(0, 80_000_001, 1_000)),
    ("lists of empty "
    "texts"): lambda: _lists(pa.array([""]).take(pa.array(np.zeros(9_000_000, np.int32))), range(0, 9_000_001, 9)),
    "a long text in lists, first": lambda: _long_among_short(first=True),
    "a long text in lists, last": lambda: _long_among_short(first=False),
    "a long text in maps": lambda: pa.array(
        [[("k", "v" * 100), ("text", "y" * 300_000 if row == 5 else "z")] for row in range(100_000)], PAIRS
    ),
    ("one list of "
    "structs"): lambda: pa.array([[{"x": "y" * 1000}] * 100_000], pa.list_(pa.struct([("x", pa.string())]))),
    "lists, empty and null": lambda: pa.array([[], None, ["a", None, ""], [None] * 50] * 50_000, STRINGS),
    "lists of structs of many columns": lambda: _structs(60, 200_000, 400_000),
    "empty lists of structs of many columns": lambda: _structs(300, 0, 400_000),
    "null lists of structs of many columns": lambda: pa.nulls(400_000, _structs(300, 0, 1).type),
    ("lists of null "
    "structs"): lambda: pa.nulls(3_000_000, pa.list_(pa.struct([("a", pa.bool_()), ("b", STRINGS)]))),
    "nulls in lists, many in few rows": lambda: _lists(
        pa.nulls(12_000_000, pa.int8()), [*range(0, 100_000, 10), *range(3_000_000, 12_000_001, 3_000_000)]
    ),
    ("deep lists, empty and "
    "null"): lambda: pa.array([[], None, _deep(47, 1), _deep(20, None)] * 50_000, _deep(47, None, pa.int8())),
    "truths of one row": lambda: _lists(np.arange(24_000_000) % 3 == 0, [0, 24_000_000]),
    "lists of decimals": lambda: _lists(pa.array([1] * 2_000_000, pa.decimal128(9, 2)), range(0, 2_000_001, 5)),
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


@pytest.mark.parametrize("kind", ["struct", "name with a dot", "list"])
def test_one_long_text_among_short_ones_does_not_make_batches_small(kind: str, tmp_path: Path) -> None:
    texts = pa.array([*["abc", "de", "f"] * 66_000, "x" * 500_000])
    column = {
        "struct": lambda: pa.StructArray.from_arrays([texts], ["s"]),
        "name with a dot": lambda: texts,
        "list": lambda: _lists(texts, range(198_002)),
    }[kind]()
    name = "a.b" if kind == "name with a dot" else "n"
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("t", pa.schema([(name, column.type)]))
        with Producer(log) as producer:
            producer.send("t", pa.table({name: column}))
        batches = list(log.read("t"))
    assert len(batches) <= 16
    assert pa.chunked_array([batch.column(name) for batch in batches]).equals(pa.chunked_array([column]))
