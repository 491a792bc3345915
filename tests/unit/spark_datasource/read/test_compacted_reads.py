"""Batch reads and streams of Spark over compacted records: the same rows, planned before the compaction or
after it. No session needed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.stream.reader import TxnLogStreamReader
from spark_datasource.worker import logs
from tests.unit.spark_datasource.reading import LIMITED, batch, travelled
from txnformat.log import TxnLog
from txnformat.types import OffsetRange
from txnlog import Producer

Open = Callable[..., TxnLogStreamReader]
NAMES = [
    "n",
    "_partition",
    "_offset",
    "_entry",
    "_commit_entry",
    "_producer_id",
    "_producer_epoch",
    "_timestamp",
]


def fill(log: TxnLog, topic: str = "t") -> None:
    """Write transactions that overlap, in two partitions; every third is aborted."""
    first, second = (Producer(log, name, buffer="inline") for name in ("first", "second"))
    first.init()
    second.init()
    for number in range(0, 36, 3):
        for place, producer in enumerate((first, second)):
            producer.begin()
            for partition in range(2):
                numbers = [100 * place + number, 100 * place + number + partition]
                producer.send(topic, pa.table({"n": numbers}), partition=partition)
            producer.flush()
        (second.abort if number % 9 == 0 else second.commit)()
        first.commit()
    first.close()
    second.close()


def place(row: dict[str, Any]) -> tuple[int, int]:
    """Splits are cut otherwise where small files have become large ones, and Spark has no order among
    splits.
    """
    return row["_partition"], row["_offset"]


@pytest.mark.parametrize("order", ["offset", "commit"])
@pytest.mark.parametrize("limit", [{"maxRowsPerTrigger": 7}, {"maxBytesPerTrigger": 900}, {}])
def test_micro_batches_hold_the_same_rows_before_and_after_a_compaction(
    memory_log: TxnLog, start: Open, order: str, limit: dict[str, int]
) -> None:
    """A batch that was planned before may be repeated after it: from a checkpoint, or by a task that has
    died."""
    fill(memory_log)
    columns = ",".join(NAMES)
    planned = []
    reader = start(order=order, columns=columns, startingOffsets="earliest", **limit)
    begin = travelled(reader.initialOffset())
    while (end := travelled(reader.latestOffset(begin, LIMITED))) != begin:
        rows = batch(start(order=order, columns=columns), memory_log, begin, end)
        planned.append((begin, end, sorted(rows, key=place)))
        begin = end
        begin.pop("began", None)
    assert memory_log.compact(min_lag_ms=0, target_bytes=2_000)[0].segments > 0
    for first, last, expected in planned:
        again = start(order=order, columns=columns)
        assert sorted(batch(again, memory_log, first, last), key=place) == expected
    reader = start(order=order, columns=columns, startingOffsets="earliest", **limit)
    found: list[dict[str, Any]] = []
    begin = travelled(reader.initialOffset())
    sizes = []
    while (end := travelled(reader.latestOffset(begin, LIMITED))) != begin:
        rows = batch(start(order=order, columns=columns), memory_log, begin, end)
        sizes.append(len(rows))
        found += rows
        begin = end
        begin.pop("began", None)

    def key(row: dict[str, Any]) -> tuple[int, int]:
        return row["_partition"], row["_offset"]

    assert sorted(found, key=key) == sorted((row for one in planned for row in one[2]), key=key)
    if "maxRowsPerTrigger" in limit:
        assert max(sizes) <= 8
    assert len(sizes) > 2 or not limit


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"isolation": "read_uncommitted"},
        {"order": "commit"},
        {"where": "n > 50 AND _offset > 4"},
        {"startingOffsets": '{"t":{"0":5,"1":9}}', "endingOffsets": '{"t":{"0":31,"1":24}}'},
        {"maxBytesPerPartition": "500"},
    ],
    ids=lambda options: ",".join(options) or "plain",
)
def test_a_dataframe_shows_the_same_when_it_was_loaded_before_a_compaction(
    log: TxnLog, path: str, options: dict[str, str]
) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64())]), partitions=2)
    fill(log)
    open_ = Producer(log, "open", buffer="inline")
    open_.init()
    open_.begin()
    open_.send("t", pa.table({"n": [1_000]}), partition=0)
    open_.flush()
    source = TxnLogDataSource({"path": path, "topic": "t", "columns": ",".join(NAMES), **options})
    reader = source.reader(source.schema())
    expected = rows(reader)
    assert expected
    open_.commit()
    open_.close()
    assert log.compact(min_lag_ms=0, target_bytes=2_000)[0].segments > 0
    after = rows(reader)
    if options.get("isolation"):  # what was aborted is gone; what was open then is told as undecided
        shown = {(row["_partition"], row["_offset"]) for row in after}
        expected = [row for row in expected if (row["_partition"], row["_offset"]) in shown]
        assert [row["_commit_entry"] for row in after if row["n"] == 1_000] == [None]
    assert after == expected


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_dataframe_goes_on_when_its_topic_gets_a_column_before_a_compaction(
    log: TxnLog, path: str, order: str
) -> None:
    """The new files have the newest version of the schema, which the frame does not know."""
    log.create_topic("t", pa.schema([("n", pa.int64())]), partitions=2)
    fill(log)
    source = TxnLogDataSource({"path": path, "topic": "t", "columns": ",".join(NAMES), "order": order})
    reader = source.reader(source.schema())
    expected = rows(reader)
    log.alter_topic("t", add_columns=pa.schema([("more", pa.string())]))
    assert log.compact(min_lag_ms=0)[0].segments > 0
    assert rows(reader) == expected


def rows(reader: Any) -> list[dict[str, Any]]:
    found = [
        row
        for split in pickle.loads(pickle.dumps(reader.partitions()))
        for part in reader.read(split)
        for row in part.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": "7"}, {"order": "commit"}, {"isolation": "snapshot"}, {"where": "_offset >= 3"}],
)
@pytest.mark.parametrize("knows_sidecars", [False, True])
def test_tasks_whose_files_and_sidecars_are_gone_read_each_record_once(
    log: TxnLog, path: str, options: dict[str, str], knows_sidecars: bool
) -> None:
    log.create_topic("t", pa.schema([("n", pa.int64())]), partitions=2)
    fill(log)
    log.maintain("seal")
    source = TxnLogDataSource({"path": path, "topic": "t", "columns": ",".join(NAMES), **options})
    reader = source.reader(source.schema())
    expected = rows(reader)
    splits = reader.partitions()
    assert log.compact(min_lag_ms=0)[0].segments > 0
    named = {file.key for file in log.state.files}
    state = log.refresh()
    for key, partition in state.partitions.items():
        for part in log.sidecars.segments(state, key, OffsetRange(0, partition.sealed_end)):
            index = log.sidecars.index(part.record.index)
            named |= {part.record.index.key, *(file.key for file in index.files.values())}
    lost = [
        info.key
        for info in log.store.list("t-")
        if info.key.endswith((".parquet", ".index", ".runs")) and info.key not in named
    ]
    for gone in lost:
        log.store.delete(gone)
    assert lost
    if not knows_sidecars:
        logs._sidecars.clear()
    found = [row for split in splits for part in reader.read(split) for row in part.to_pylist()]
    assert sorted(found, key=lambda row: (row["_partition"], row["_offset"])) == expected
