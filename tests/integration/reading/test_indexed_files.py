"""Compacted files have a page index and Bloom filters for engines that read them without txnlog, beside the
same rows."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from txnformat import keys
from txnformat.reading.stored_rows import STORED_FIELDS
from txnformat.segments.writer import CAN_FILTER
from txnformat.store.memory import MemoryStore
from txnlog import InvalidInputError, Producer, TxnLog

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
BLOOM = "compact.bloom.columns"


def made(**settings: Any) -> TxnLog:
    log = TxnLog.create(MemoryStore(), embedding=False)
    log.create_topic("t", SCHEMA, partitions=2, settings={BLOOM: "k, n"})
    with Producer(log) as producer:
        for start in range(0, 3_000, 500):
            numbers = range(start, start + 500)
            producer.send("t", [{"k": f"key {n}", "n": n, "x": n / 2} for n in numbers])
            producer.flush()
    return log


def files(log: TxnLog) -> dict[str, bytes]:
    return {
        info.key: log.store.get(info.key) or b""
        for info in log.store.list("t-")
        if keys.parse_data_key(info.key)
    }


def compacted(log: TxnLog) -> bytes:
    before = files(log)
    log.compact(min_lag_ms=0)
    (data,) = (data for key, data in files(log).items() if key not in before)
    return data


def test_a_page_index_is_in_every_column_of_a_compacted_file_and_filters_where_they_are_asked_for() -> None:
    log = made()
    metadata = pq.ParquetFile(io.BytesIO(compacted(log))).metadata
    assert metadata.num_rows == 3_000
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            assert column.has_offset_index
            assert column.has_column_index
            if CAN_FILTER:
                assert (column.bloom_filter_offset is not None) == (column.path_in_schema in ("k", "n"))


def test_files_of_producers_have_neither() -> None:
    for data in files(made()).values():
        column = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0)
        assert not column.has_offset_index
        assert not column.has_column_index


def test_readers_get_the_same_rows_and_everything_is_verified() -> None:
    log = made()
    columns = ["k", "n", "x", "_partition", "_offset"]
    before = log.read("t", columns=columns).read_all()
    data = compacted(log)
    opened = TxnLog.open(log.store)
    assert (
        opened.read("t", columns=columns)
        .read_all()
        .sort_by([("_partition", "ascending"), ("_offset", "ascending")])
        .equals(before.sort_by([("_partition", "ascending"), ("_offset", "ascending")]))
    )
    assert opened.read("t", columns=["n"], where="k = 'key 77'").read_all().to_pylist() == [{"n": 77}]
    assert opened.verify(deep=True).ok
    found = pq.read_table(io.BytesIO(data), filters=[("n", "==", 77)])
    assert found["k"].to_pylist() == ["key 77"]
    assert set(STORED_FIELDS) <= set(found.column_names)


@pytest.mark.skipif(not CAN_FILTER, reason="this version of pyarrow writes no Bloom filters")
def test_a_filter_has_the_size_of_what_is_in_the_file() -> None:
    """1.2 bytes for each value, up to the next power of two, and a header."""
    metadata = pq.ParquetFile(io.BytesIO(compacted(made()))).metadata
    column = metadata.row_group(0).column(0)
    assert metadata.num_row_groups == 2
    assert 1_500 < column.bloom_filter_length < 4 * 3_000


def test_a_column_that_gets_a_type_without_filters_later_is_refused() -> None:
    with TxnLog.create(MemoryStore(), embedding=False) as log:
        log.create_topic("t", pa.schema([("small", pa.float32()), ("n", pa.int32())]), settings={BLOOM: "n"})
        with pytest.raises(InvalidInputError, match="of type float") as caught:
            log.alter_topic("t", settings={BLOOM: "n,small"})
        assert caught.value.kind == "invalid-setting"
        log.alter_topic("t", widen={"n": pa.int64()})
        assert log.state.topics[log.state.topic_ids["t"]].settings[0].value == "n"
