"""Topics of every kind to publish, and their tables as other engines read them."""

from __future__ import annotations

import datetime
import decimal
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from txnformat.views.manifests import ViewTable
from txnlog import Producer, TxnLog

__all__ = [
    "CASES",
    "FILTERS",
    "ICEBERG_READERS",
    "READERS",
    "SCHEMA",
    "expected",
    "floats",
    "opened",
    "path_of",
    "row",
    "texts",
    "write",
]

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("text", pa.string()),
        ("real", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("raw", pa.binary()),
    ]
)


def row(n: int) -> dict[str, Any]:
    """Return a record; floats are NaN and -0.0 now and then."""
    return {
        "n": n,
        "text": None if n % 5 == 0 else f"text {n}",
        "real": float("nan") if n % 7 == 0 else -0.0 if n % 7 == 1 else n / 3,
        "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=n),
        "price": decimal.Decimal(n) / 100,
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(days=n),
        "raw": bytes([n % 256]),
    }


def write(
    log: TxnLog,
    rows: list[dict[str, Any]],
    *,
    commit: bool = True,
    topic: str = "t",
    name: str = "p",
    partition: int | None = None,
) -> None:
    """Write rows in a transaction of their own."""
    with Producer(log, name) as producer:
        producer.begin()
        producer.send(topic, rows, partition=partition)
        if commit:
            producer.commit()
        else:
            producer.flush()
            producer.abort()


def _created(root: Path, schema: pa.Schema = SCHEMA, **settings: Any) -> TxnLog:
    log = TxnLog.create(root)
    log.create_topic("t", schema, partitions=3, settings=settings)
    return log


def _empty(root: Path) -> TxnLog:
    return _created(root)


def _committed(root: Path) -> TxnLog:
    log = _created(root)
    for begin in range(0, 100, 10):
        write(log, [row(n) for n in range(begin, begin + 10)])
    return log


def _in_files(root: Path) -> TxnLog:
    log = _created(root, embed="false")
    for begin in range(0, 100, 10):
        write(log, [row(n) for n in range(begin, begin + 10)])
    return log


def _aborted(root: Path) -> TxnLog:
    log = _created(root, embed="false")
    for begin in range(0, 100, 10):
        write(log, [row(n) for n in range(begin, begin + 10)], commit=begin % 30 != 0)
    write(log, [row(n) for n in range(200, 210)], commit=False)
    return log


def _compacted(root: Path) -> TxnLog:
    log = _aborted(root)
    log.compact("t", min_lag_ms=0)
    write(log, [row(n) for n in range(300, 310)])
    return log


def _evolved(root: Path) -> TxnLog:
    log = _aborted(root)
    log.alter_topic("t", add_columns=[pa.field("more", pa.string())])
    write(log, [row(n) | {"more": "more"} for n in range(400, 410)])
    log.alter_topic("t", widen={"n": pa.int64()}, partitions=4)
    write(log, [row(n) | {"more": None, "n": n + 2**40} for n in range(500, 510)])
    return log


def _renamed(root: Path) -> TxnLog:
    """Columns with other names, one that went, and one that came under the name of that: old files have other
    values under it."""
    log = _aborted(root)
    log.alter_topic("t", rename={"text": "label", "n": "number"}, drop=["raw", "real"])
    log.alter_topic("t", add_columns=[pa.field("raw", pa.binary()), pa.field("text", pa.string())])
    columns = {"n": "number", "text": "label", "at": "at", "price": "price", "day": "day"}
    some = [row(n) for n in range(600, 610)]
    made = [{new: one[old] for old, new in columns.items()} | {"raw": b"new", "text": "new"} for one in some]
    write(log, made)
    return log


def _nested(root: Path) -> TxnLog:
    inner = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("one", inner),
            ("many", pa.list_(inner)),
            ("named", pa.map_(pa.string(), pa.int32())),
            ("local", pa.timestamp("us")),
        ]
    )
    log = _created(root, schema)
    for begin in range(0, 60, 10):
        rows = [
            {
                "n": n,
                "one": None if n % 4 == 0 else {"a": n, "b": ["x", None]},
                "many": [] if n % 3 == 0 else [{"a": n, "b": []}, None],
                "named": None if n % 5 == 0 else [("k", n)],
                "local": datetime.datetime(2026, 1, 1, microsecond=n),
            }
            for n in range(begin, begin + 10)
        ]
        write(log, rows, commit=begin != 20)
    return log


def _trimmed(root: Path) -> TxnLog:
    log = _created(root, embed="false")
    for begin in range(0, 60, 10):
        write(log, [row(n) for n in range(begin, begin + 10)], partition=begin % 20 // 10)
    log.committer.seal()
    log.delete_records("t", {0: 5})
    return log


CASES: dict[str, Callable[[Path], TxnLog]] = {
    "empty": _empty,
    "all committed, small": _committed,
    "all committed, in files": _in_files,
    "30 % aborted": _aborted,
    "compacted": _compacted,
    "evolved schema": _evolved,
    "nested": _nested,
    "renamed columns": _renamed,
    "trimmed inside a file": _trimmed,
}


FILTERS = ("real > 5", "real > 7", "real = 0", "real < 0", "real >= 0", "small > 5", "small = 0")
"""Conditions that statistics of NaN and -0.0 can answer wrongly."""

_FLOATS: list[list[float | None]] = [
    [1.0, math.nan],
    [-0.0],
    [-0.0, -1.0],
    [0.0, 1.0],
    [math.nan],
    [None, 7.0],
    [-5.0, 2.0],
    [math.nan, -0.0],
    [1.0, -0.0] * 60,
]


def floats(root: Path) -> TxnLog:
    """Create a log with NaN, -0.0 and plain values in columns of both types of floats: in files of their own,
    one of which has dictionaries."""
    schema = pa.schema([("n", pa.int64()), ("real", pa.float64()), ("small", pa.float32())])
    log = TxnLog.create(root)
    log.create_topic("t", schema, settings={"embed": "false"})
    for number, values in enumerate(_FLOATS):
        write(log, [{"n": number, "real": one, "small": one} for one in values])
    return log


def path_of(table: ViewTable) -> str:
    """Return where a table is on the local disk."""
    return table.path.removeprefix("file://")


def _deltalake(table: ViewTable) -> list[str]:
    return texts(DeltaTable(path_of(table), version=table.version).to_pyarrow_table())


def _polars(table: ViewTable) -> list[str]:
    return texts(polars.scan_delta(path_of(table), version=table.version).collect().to_arrow())


def _datafusion(table: ViewTable) -> list[str]:
    from deltalake import QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(path_of(table), version=table.version))
    return texts(pa.table(found.execute("SELECT * FROM t")))


READERS: dict[str, Callable[[ViewTable], list[str]]] = {
    "deltalake": _deltalake,
    "polars": _polars,
    "deltalake's SQL": _datafusion,
}


def opened(table: ViewTable, options: dict[str, str] | None = None) -> StaticTable:
    """Return an Iceberg table as pyiceberg opens it."""
    return StaticTable.from_metadata(table.metadata, options or {})


def _pyiceberg(table: ViewTable) -> list[str]:
    return texts(opened(table).scan().to_arrow())


def _polars_iceberg(table: ViewTable) -> list[str]:
    os.environ["POLARS_ICEBERG_PLANNER"] = (
        "pyiceberg"  # its own is another package; without this Polars warns
    )
    return texts(polars.scan_iceberg(table.metadata).collect().to_arrow())


ICEBERG_READERS: dict[str, Callable[[ViewTable], list[str]]] = {
    "pyiceberg": _pyiceberg,
    "polars": _polars_iceberg,
}


def texts(table: pa.Table) -> list[str]:
    """Return the rows as texts, which are equal for every NaN and differ for 0.0 and -0.0."""
    return sorted(repr(one) for one in table.to_pylist(maps_as_pydicts="lossy"))


def expected(log: TxnLog, table: ViewTable) -> list[str]:
    """Return the rows of the log at the entry of a table."""
    return texts(log.read(table.topic, isolation="snapshot", version_as_of=table.entry).read_all())
