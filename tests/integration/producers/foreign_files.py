"""Parquet files of other writers: some that a log takes as they are, and some that it does not."""

from __future__ import annotations

import datetime
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog

ROWS = 20_000
UTC = datetime.UTC
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("ratio", pa.float64()),
        ("text", pa.string()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)

Write = Callable[[pa.Table, Path], Path]


def some_rows(rows: int = ROWS, seed: int = 7, first: int = 0) -> pa.Table:
    """Return rows of which each column has nulls, the floats NaN and zeros of both signs."""
    draw = random.Random(seed)
    odd = [None, float("nan"), -0.0, 0.0, float("inf")]
    start = datetime.datetime(2026, 1, 1, tzinfo=UTC)
    columns: list[list[Any]] = [
        [first + one for one in range(rows)],
        [draw.choice([None, draw.randrange(-(2**31), 2**31)]) for _ in range(rows)],
        [draw.choice([draw.choice(odd), draw.random()]) for _ in range(rows)],
        [draw.choice([None, f"text é {draw.randrange(10**9)}"]) for _ in range(rows)],
        [draw.choice([None, True, False]) for _ in range(rows)],
        [draw.choice([None, datetime.date(2026, 1, 1 + draw.randrange(28))]) for _ in range(rows)],
        [draw.choice([None, start + datetime.timedelta(seconds=draw.randrange(10**6))]) for _ in range(rows)],
    ]
    return pa.table(columns, schema=SCHEMA)


def by_pyarrow(table: pa.Table, folder: Path, **options: Any) -> Path:
    path = folder / "file.parquet"
    pq.write_table(table, path, **options)
    return path


def by_deltalake(table: pa.Table, folder: Path) -> Path:
    deltalake.write_deltalake(str(folder / "table"), table)
    return next((folder / "table").glob("*.parquet"))


def by_polars(table: pa.Table, folder: Path) -> Path:
    polars.from_arrow(table).write_parquet(folder / "file.parquet", row_group_size=7_000)  # type: ignore[union-attr]
    return folder / "file.parquet"


def with_gzip(table: pa.Table, folder: Path) -> Path:
    return by_pyarrow(table, folder, compression="gzip", row_group_size=3_000, write_page_index=True)


def _patched(table: pa.Table, folder: Path, old: bytes, new: bytes) -> Path:
    """Write a file without a compression, and change bytes of its footer."""
    path = by_pyarrow(table, folder, compression="none", use_dictionary=False, store_schema=False)
    return patched_file(path, old, new)


def patched_file(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    start = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    assert old in data[start:-8]
    footer = data[start:-8].replace(old, new)
    path.write_bytes(data[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return path


def _other_statistics(which: str) -> Write:
    """The largest id, or text, of the file is smaller than its values, or there are nulls where it says that
    there are none."""

    def write(table: pa.Table, folder: Path) -> Path:
        if which == "numbers":
            return _patched(table, folder, struct.pack("<q", ROWS - 1), struct.pack("<q", ROWS - 2))
        texts = table.column("text").drop_null().to_pylist()
        return _patched(table, folder, max(texts).encode(), min(texts).encode()[: len(max(texts).encode())])

    return write


def _bad_text(table: pa.Table, folder: Path) -> Path:
    bad = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    return by_pyarrow(table.set_column(3, "text", bad), folder, use_dictionary=False)


def _required(table: pa.Table, folder: Path) -> Path:
    fields = [field.with_nullable(field.name != "id") for field in table.schema]
    return by_pyarrow(table.cast(pa.schema(fields)), folder)


def _cut(table: pa.Table, folder: Path) -> Path:
    path = by_pyarrow(table, folder)
    data = bytearray(path.read_bytes())
    data[1_000:1_100] = bytes(100)
    path.write_bytes(data)
    return path


def _empty_group(table: pa.Table, folder: Path) -> Path:
    with pq.ParquetWriter(folder / "file.parquet", SCHEMA) as writer:
        for part in (table.slice(0, 0), table):
            writer.write_table(part)
    assert pq.read_metadata(folder / "file.parquet").row_group(0).num_rows == 0
    return folder / "file.parquet"


def _bad_arrow_schema(table: pa.Table, folder: Path) -> Path:
    path = by_pyarrow(table, folder)
    data = path.read_bytes()
    place = data.rindex(b"ARROW:schema") + 30
    path.write_bytes(data[:place] + b"/" * 200 + data[place + 200 :])
    with pytest.raises(OSError, match="flatbuffers"):
        pq.read_schema(path)
    return path


def _no_groups(table: pa.Table, folder: Path) -> Path:
    with pq.ParquetWriter(folder / "file.parquet", SCHEMA):
        pass
    assert pq.read_metadata(folder / "file.parquet").num_row_groups == 0
    return folder / "file.parquet"


def _unordered(table: pa.Table, folder: Path) -> Path:
    """Write a file that does not say in which order its bounds are: the last field of its footer is gone."""
    path = by_pyarrow(table, folder)
    data = path.read_bytes()
    columns = len(SCHEMA)
    field = b"\x19" + bytes([columns << 4 | 0xC]) + columns * b"\x1c\0\0"
    assert data[:-8].endswith(field + b"\0")
    footer = int.from_bytes(data[-8:-4], "little") - len(field)
    path.write_bytes(data[: -9 - len(field)] + b"\0" + footer.to_bytes(4, "little") + b"PAR1")
    assert pq.read_table(path).num_rows == len(table)
    return path


def _with_ids(table: pa.Table, folder: Path) -> Path:
    """Write ids of fields, as Iceberg's writers do: they would be those of another table."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(10 + number)})
        for number, field in enumerate(table.schema)
    ]
    return by_pyarrow(table.cast(pa.schema(fields)), folder)


def _overlapping(table: pa.Table, folder: Path) -> Path:
    """Write a file whose first row group begins where the second does: readers decode bytes for one column
    only."""
    path = by_pyarrow(table, folder, compression="none", use_dictionary=False, row_group_size=ROWS // 2)
    first, second = (pq.read_metadata(path).row_group(group).column(0).data_page_offset for group in (0, 1))
    return patched_file(path, b"\x26" + varint(second), b"\x26" + varint(first))


def varint(number: int) -> bytes:
    """Return a number as Thrift's compact protocol has it."""
    number, found = 2 * number, bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _text_file(table: pa.Table, folder: Path) -> Path:
    (folder / "file.parquet").write_bytes(b"PAR1" + b"no Parquet" * 50_000 + b"PAR1")
    return folder / "file.parquet"


OTHERS: dict[str, Write] = {
    "another order": lambda table, folder: by_pyarrow(table.select(SCHEMA.names[::-1]), folder),
    "a column less": lambda table, folder: by_pyarrow(table.drop_columns(["ok"]), folder),
    "a column more": lambda table, folder: by_pyarrow(table.append_column("more", table["ok"]), folder),
    "durations of another unit": lambda table, folder: by_pyarrow(
        table.set_column(0, "id", table["id"].cast(pa.duration("ns"))), folder
    ),
    "a narrower type": lambda table, folder: by_pyarrow(
        table.set_column(0, "id", table["id"].cast(pa.int32())), folder
    ),
    "times of 96 bits": lambda table, folder: by_pyarrow(table, folder, use_deprecated_int96_timestamps=True),
    "delta encodings": lambda table, folder: by_pyarrow(
        table, folder, use_dictionary=False, column_encoding={"id": "DELTA_BINARY_PACKED"}
    ),
    "LZ4": lambda table, folder: by_pyarrow(table, folder, compression="lz4"),
    "a required column": _required,
    "no rows": lambda table, folder: by_pyarrow(table.slice(0, 0), folder),
    "a damaged Arrow schema": _bad_arrow_schema,
    "no row groups": _no_groups,
    "a row group without rows": _empty_group,
    "row groups that overlap": _overlapping,
    "text that is no UTF-8": _bad_text,
    "damaged pages": _cut,
    "no Parquet": _text_file,
}


LIARS: dict[str, Write] = {
    "bounds of numbers": _other_statistics("numbers"),
    "bounds of texts": _other_statistics("texts"),
    "no order of bounds": _unordered,
    "ids of fields": _with_ids,
}
"""Files whose footers say what is not so, or what no segment file says; their values are sound."""


def topic_log(store: ObjectStore | None = None, schema: pa.Schema = SCHEMA, **topic: Any) -> TxnLog:
    log = TxnLog.create(MemoryStore() if store is None else store)
    log.create_topic("t", schema, **topic)
    return log
