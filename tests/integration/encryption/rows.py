"""The rows of tests of encrypted logs, and the objects of such a log as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.errors import TxnLogError
from txnlog import Producer, TxnLog

CANARY = "canaryword"
TOPIC = pa.schema([("n", pa.int64()), (f"{CANARY}_column", pa.string())])
CLEAR = (keys.FORMAT_KEY, keys.KEYS_PREFIX, keys.PROBE_PREFIX)


def rows(first: int, count: int) -> pa.Table:
    texts = [f"{CANARY}-{number}" for number in range(first, first + count)]
    return pa.table({"n": range(first, first + count), f"{CANARY}_column": texts}, schema=TOPIC)


def send(log: TxnLog, first: int, count: int = 1, **settings: object) -> None:
    with Producer(log, **settings) as producer:  # type: ignore[arg-type]  # settings of a producer
        producer.send("t", rows(first, count))


def numbers(log: TxnLog) -> list[int]:
    return sorted(log.read("t", columns=["n"]).read_all()["n"].to_pylist())


def stored(root: Path) -> dict[str, bytes]:
    """Return the objects of a root as they are on the disk."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def kind_of(call: Callable[[], object]) -> str:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind


def generation(data: bytes) -> int:
    return int.from_bytes(data[8:12], "big")
