"""The footer of a Parquet file that is sent as it is: nothing of the file's own is passed on, and its types
are the topic's."""

from __future__ import annotations

import datetime
import decimal
import io
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.producers.foreign_files import (
    LIARS,
    ROWS,
    Write,
    by_pyarrow,
    patched_file,
    some_rows,
    topic_log,
    varint,
    with_gzip,
)
from txnlog import Producer, TxnLog


def _told(path: Path | io.BytesIO) -> list[Any]:
    """Return what a footer tells of each column of each row group; zeros of both signs are two values
    here.
    """
    metadata = pq.read_metadata(path)
    return [
        (
            found.physical_type,
            found.path_in_schema,
            None if one is None else (repr(one.min_raw), repr(one.max_raw), one.null_count),
        )
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
        for found in [metadata.row_group(group).column(column)]
        for one in [found.statistics]
    ]


def _wanted(path: Path) -> list[Any]:
    """Return what the log's own footer of a file has to tell: what pyarrow tells, but no bounds of floats
    with NaN or -0.0."""
    told = _told(path)
    with pq.ParquetFile(path) as file:
        columns = file.metadata.num_columns
        for place, (kind, name, statistics) in enumerate(told):
            if kind in ("FLOAT", "DOUBLE") and statistics is not None:
                values = file.read_row_group(place // columns, columns=[name])[name].drop_null().to_pylist()
                if any(math.isnan(one) or (one == 0 and math.copysign(1, one) < 0) for one in values):
                    told[place] = (kind, name, ("None", "None", statistics[2]))
    return told


def _stored(log: TxnLog) -> io.BytesIO:
    (file,) = log.state.files
    data = log.store.get(file.key, file.size)
    assert data is not None
    return io.BytesIO(data)


@pytest.mark.parametrize("write", [by_pyarrow, with_gzip])
def test_its_statistics_are_those_that_pyarrow_computes(write: Write, tmp_path: Path) -> None:
    log, path = topic_log(), write(some_rows(), tmp_path)
    with Producer(log) as producer:
        assert producer.send_file("t", path)
    assert _told(_stored(log)) == _wanted(path)


def test_statistics_of_every_type_that_has_some(tmp_path: Path) -> None:
    draw = random.Random(5)
    whole = [None, *(draw.randrange(-100, 100) for _ in range(ROWS - 1))]
    columns: dict[str, Any] = {
        "tiny": pa.array(whole, pa.int8()),
        "short": pa.array(whole, pa.int16()),
        "ratio": pa.array([None if one is None else one / 7 for one in whole], pa.float32()),
        "price": pa.array(whole, pa.decimal128(12, 2)),
        "large": pa.array(
            [None if one is None else decimal.Decimal(one) * 10**33 for one in whole], pa.decimal128(38, 1)
        ),
        "bytes": pa.array([None if one is None else bytes([one + 100]) for one in whole]),
        "local": pa.array(whole, pa.int64()).cast(pa.timestamp("us")),
        "hour": pa.array([None if one is None else one + 100 for one in whole], pa.int64()).cast(
            pa.time64("us")
        ),
        "took": pa.array(whole, pa.int64()).cast(pa.duration("us")),
        "nothing": pa.array([None] * ROWS, pa.string()),
        "nan": pa.array([float("nan")] * ROWS),
        "zero": pa.array([0.0, -0.0] * (ROWS // 2)),
        "above": pa.array([0.0] * ROWS),
        "below": pa.array([-0.0] * ROWS),
        "long": pa.array(["x" * 5_000] * ROWS),
    }
    table = pa.table(columns)
    log, path = topic_log(schema=table.schema), by_pyarrow(table, tmp_path)
    with Producer(log) as producer:
        assert producer.send_file("t", path)
    assert _told(_stored(log)) == _wanted(path)


@pytest.mark.parametrize("what", LIARS)
def test_what_its_footer_says_is_not_passed_on(what: str, tmp_path: Path) -> None:
    """Readers of the log, and engines that read published tables, would skip rows by it."""
    log, table = topic_log(), some_rows()
    (tmp_path / "honest").mkdir()
    honest = by_pyarrow(table, tmp_path / "honest")
    path = LIARS[what](table, tmp_path)
    with Producer(log) as producer:
        assert producer.send_file("t", path)
    stored = _stored(log)
    assert _told(stored) == _wanted(honest)
    assert "field_id=-1 id" in str(pq.read_metadata(stored).schema)
    largest = max(table["text"].drop_null().to_pylist())
    for where in (f"id = {ROWS - 1}", f"text = '{largest}'"):
        assert log.read("t", where=where).read_all().num_rows == 1


@pytest.mark.parametrize("nulls", [0, ROWS])
def test_a_wrong_number_of_nulls_is_put_right(nulls: int, tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    table = pa.table([pa.array([None if nulls else "one"] * ROWS, pa.string())], schema=schema)
    path = by_pyarrow(table, tmp_path, compression="none", use_dictionary=False)
    told = _told(path)
    patched_file(path, b"<6" + varint(nulls), b"<6" + varint(ROWS - nulls))
    log = topic_log(schema=schema)
    with Producer(log, embed_bytes=0) as producer:
        assert producer.send_file("t", path)
    assert _told(_stored(log)) == told
    assert log.read("t", where="text IS NULL").read_all().num_rows == nulls


DAYS = pa.array([datetime.timedelta(days=day) for day in range(ROWS)], pa.duration("us"))


@pytest.mark.parametrize(
    ("column", "topic"),
    [
        (DAYS.cast(pa.duration("ms")), pa.duration("us")),
        (DAYS.cast(pa.int64()), pa.duration("us")),
        (DAYS, pa.int64()),
        (pa.ListArray.from_arrays(range(ROWS + 1), DAYS.cast(pa.duration("s"))), pa.list_(pa.duration("us"))),
        (
            pa.StructArray.from_arrays([DAYS.cast(pa.duration("s"))], ["x"]),
            pa.struct([("x", pa.duration("us"))]),
        ),
        (
            pa.MapArray.from_arrays(range(ROWS + 1), pa.array(range(ROWS)), DAYS.cast(pa.duration("s"))),
            pa.map_(pa.int64(), pa.duration("us")),
        ),
        (pa.array([True] * ROWS).cast(pa.int8()).cast(pa.bool8().storage_type), pa.bool_()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else str(value.type),
)
def test_the_same_bytes_of_another_type_are_not_taken(
    column: pa.Array, topic: pa.DataType, tmp_path: Path
) -> None:
    """Parquet stores durations of every unit as numbers; a send converts them, or refuses."""
    log = topic_log(schema=pa.schema([("x", topic)]))
    path = by_pyarrow(pa.table({"x": column}), tmp_path, compression="none", use_dictionary=False)
    with Producer(log, embed_bytes=0) as producer:
        assert not producer.send_file("t", path)


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_texts_are_texts_whatever_holds_them_in_memory(kind: pa.DataType, tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.string())])
    log, texts = topic_log(schema=schema), [f"text {number}" for number in range(ROWS)]
    path = by_pyarrow(pa.table({"x": pa.array(texts, pa.string()).cast(kind)}), tmp_path)
    with Producer(log) as producer:
        assert producer.send_file("t", path)
    assert log.read("t").read_all()["x"].to_pylist() == texts
