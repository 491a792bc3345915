"""Spark reads a log that was compacted: batches, versions, conditions, and streams in both orders."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from tests.maintenance.future import FEATURE, ask_for_more
from tests.spark.histories import NUMBERS, Transactions, numbers
from txnformat.admin.compaction import CompactionProgress, seal_and_list
from txnformat.log import TxnLog
from txnformat.types import Outcome, TopicPartition
from txnlog import ConflictError, InvalidInputError, Producer, UnsupportedFeatureError, compact
from txnlog.cli.app import application

Read = Callable[..., DataFrame]
COLUMNS = "n,_partition,_offset,_commit_entry,_producer_id"


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, frame.collect()))


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """Topic "t": 20 transactions in two partitions, of which every fourth was aborted."""
    log.create_topic("t", NUMBERS, partitions=2)
    for number in range(20):
        one = Transactions(log, f"p-{number}")
        one.send(
            "t", {0: [numbers(10 * number, 10 * number + 3)], 1: [numbers(1_000 + number, 1_001 + number)]}
        )
        one.end(Outcome.ABORT if number % 4 == 0 else Outcome.COMMIT)
    return log


def test_reads_and_streams_show_what_they_showed_before(
    busy: TxnLog, read: Read, spark: SparkSession, path: str, tmp_path: Path
) -> None:
    options: list[dict[str, str]] = [
        {},
        {"order": "commit"},
        {"versionAsOf": str(busy.state.entry // 2)},
        {"where": "n > 50 AND _offset < 40"},
    ]
    before = [rows(read("t", columns=COLUMNS, **one)) for one in options]
    pinned = read("t", columns=COLUMNS)
    (found,) = busy.compact(min_lag_ms=0)
    assert (found.files_before, found.files) == (15, 1)
    assert rows(pinned) == before[0]
    assert [rows(read("t", columns=COLUMNS, **one)) for one in options] == before
    for order in ("offset", "commit"):
        stream = spark.readStream.format("txnlog").options(
            path=path, topic="t", columns="n", order=order, startingOffsets="earliest", maxRowsPerTrigger="9"
        )
        query = (
            stream.load()
            .writeStream.format("memory")
            .queryName(f"compacted_{order}")
            .option("checkpointLocation", str(tmp_path / order))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        assert rows(spark.table(f"compacted_{order}")) == sorted((row[0],) for row in before[0])


def test_spark_writes_the_files_of_a_compaction(
    busy: TxnLog, read: Read, spark: SparkSession, path: str
) -> None:
    before = rows(read("t", columns=COLUMNS))
    seen: list[CompactionProgress] = []
    (found,) = compact(spark, path, min_lag_ms=0, target_bytes=1, progress=seen.append)
    assert (found.topic, found.partitions, found.files_before, found.files) == ("t", 2, 15, 2)
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].done == seen[-1].total
    assert rows(read("t", columns=COLUMNS)) == before
    busy.refresh()
    report = busy.verify(deep=True)
    assert report.ok, report.problems
    (again,) = compact(spark, path, "t", [0], min_lag_ms=0, target_bytes=1)
    assert again.partitions == 0, "parts of the size are left alone"


def test_a_task_that_fails_leaves_the_log_as_it_was(
    busy: TxnLog, read: Read, spark: SparkSession, path: str
) -> None:
    before = rows(read("t", columns=COLUMNS))
    busy.maintain("seal")
    (*_, data) = sorted(Path(path).glob("t-*/data/*.parquet"))
    held = data.read_bytes()
    data.unlink()
    with pytest.raises(Exception, match=data.name):
        compact(spark, path, min_lag_ms=0)
    data.write_bytes(held)
    assert rows(read("t", columns=COLUMNS)) == before
    assert compact(spark, path, min_lag_ms=0)[0].files == 1
    assert rows(read("t", columns=COLUMNS)) == before


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"root": ""}, "invalid-compaction"),
        ({"spark": None}, "invalid-compaction"),
        ({"target_bytes": 0}, "invalid-target-bytes"),
        ({"partitions": [0]}, "invalid-partitions"),
    ],
)
def test_wrong_arguments_are_refused_before_a_job(
    busy: TxnLog, spark: SparkSession, path: str, arguments: dict[str, Any], kind: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        compact(**{"spark": spark, "root": path, **arguments})
    assert caught.value.kind == kind


def test_the_command_lets_spark_write(busy: TxnLog, read: Read, spark: SparkSession, path: str) -> None:
    before = rows(read("t", columns=COLUMNS))
    arguments = ["compact", "--root", path, "--spark", "--min-lag-ms", "0", "--json"]
    answer = CliRunner().invoke(application, arguments, catch_exceptions=False)
    (found,) = json.loads(answer.output)["topics"]
    assert (found["files_before"], found["files"]) == (15, 1)
    assert rows(read("t", columns=COLUMNS)) == before, "the session goes on"


@pytest.fixture
def keyed(log: TxnLog) -> TxnLog:
    """Topic "t" keeps the latest record of each "n"; 5 records of 4 keys in each of 5 transactions."""
    settings: dict[str, int | str] = {"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
    log.create_topic("t", NUMBERS, key_columns=["n"], settings=settings)
    for number in range(5):
        one = Transactions(log, f"p-{number}")
        one.send("t", {0: [numbers(0, 4)]})
        one.end(Outcome.COMMIT)
    return log


@pytest.mark.parametrize("order", ["offset", "commit"])
def test_a_stream_goes_on_over_records_that_lost_their_key_to_later_ones(
    keyed: TxnLog, spark: SparkSession, path: str, tmp_path: Path, order: str
) -> None:
    def run() -> list[int]:
        stream = spark.readStream.format("txnlog").options(
            path=path,
            topic="t",
            columns="n",
            order=order,
            startingOffsets="earliest",
            maxRowsPerTrigger="6",
        )
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        return [row[0] for row in rows(spark.read.parquet(str(tmp_path / "out")))]

    before = run()
    assert len(before) == 20
    late = Transactions(keyed, "late")
    late.send("t", {0: [numbers(0, 4)]})
    late.end(Outcome.COMMIT)
    (done,) = compact(spark, path, "t")
    assert done.removed_records == 20
    later = Transactions(keyed, "later")
    later.send("t", {0: [numbers(3, 5)]})
    later.end(Outcome.COMMIT)
    assert run() == sorted([*before, 0, 1, 2, 3, 3, 4])


def test_a_row_without_a_key_is_refused(
    keyed: TxnLog, spark: SparkSession, path: str, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(1, "x"), (None, "x")], "n bigint, text string")
    with pytest.raises(Exception, match="key column 'n' is null"):
        frame.write.format("txnlog").option("topic", "t").mode("append").save(path)
    frame.write.parquet(str(tmp_path / "in"))
    query = (
        spark.readStream.schema("n bigint, text string")
        .parquet(str(tmp_path / "in"))
        .writeStream.format("txnlog")
        .option("topic", "t")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(path)
    )
    with pytest.raises(Exception, match="key column 'n' is null"):
        query.awaitTermination()
    assert len(keyed.read("t").read_all()) == 20


def test_a_log_whose_maintenance_needs_more_is_refused(busy: TxnLog, spark: SparkSession, path: str) -> None:
    """Before a Spark job is started."""
    entry = ask_for_more(busy.store)
    with pytest.raises(UnsupportedFeatureError, match="maintenance features") as caught:
        compact(spark, path)
    assert caught.value.values == {"features": [FEATURE]}
    assert busy.refresh().entry == entry


# --- keys ---------------------------------------------------------------------------------------------------

KEYED = pa.schema([("key", pa.string()), ("n", pa.int64())])
KEEP_LATEST: dict[str, int | str] = {
    "cleanup.policy": "compact",
    "tombstone.column": "n",
    "min.compaction.lag.ms": 0,
    "delete.retention.ms": 0,
}


@pytest.fixture
def changes(log: TxnLog) -> TxnLog:
    """Topic "k": 30 transactions over 7 keys in 3 partitions, of which every fifth was aborted; some records
    are tombstones."""
    log.create_topic("k", KEYED, partitions=3, key_columns=["key"], settings=KEEP_LATEST)
    for number in range(30):
        with Producer(log, f"p-{number}") as producer:
            producer.begin()
            rows = [
                {"key": f"k{one % 7}", "n": None if one % 11 == 3 else one}
                for one in range(number, number + 4)
            ]
            producer.send("k", rows)
            producer.abort() if number % 5 == 0 else producer.commit()
    return log


def latest(log: TxnLog) -> dict[str, tuple[int, int | None]]:
    """Return offset and value of the latest record of each key, as all records tell it."""
    table = log.read("k", columns=["key", "_offset", "n"]).read_all()
    found: dict[str, tuple[int, int | None]] = {}
    for row in sorted(table.to_pylist(), key=lambda row: row["_offset"]):
        found[row["key"]] = row["_offset"], row["n"]
    return found


def test_tasks_compact_keys_as_this_process_does(changes: TxnLog, spark: SparkSession, path: str) -> None:
    wanted = latest(changes)
    before = changes.read("k").read_all().num_rows
    seal_and_list(changes.committer)
    (planned,) = changes.compact("k", dry_run=True)
    (found,) = compact(spark, path, "k")
    assert found.removed_records == planned.removed_records > 0
    assert found.dirty_ratio == planned.dirty_ratio == 1.0
    assert (found.partitions, found.files_before > 0) == (3, True)
    changes.refresh()
    assert latest(changes) == wanted
    assert changes.read("k").read_all().num_rows == before - found.removed_records == len(wanted)
    assert [
        changes.state.partition(TopicPartition(changes.state.topic("k").topic_id, one)).cleaned_end > 0
        for one in range(3)
    ]
    report = changes.verify(deep=True)
    assert report.ok, report.problems
    (again,) = compact(spark, path, "k", [0, 2])
    assert again.removed_records <= sum(value is None for _, value in wanted.values()), (
        "tombstones that are due"
    )


def test_two_compactions_of_keys_do_no_harm(changes: TxnLog, spark: SparkSession, path: str) -> None:
    wanted = {key: found for key, found in latest(changes).items() if found[1] is not None}
    with ThreadPoolExecutor(2) as pool:
        ours = pool.submit(lambda: TxnLog.open(path).compact("k"))
        theirs = pool.submit(compact, spark, path, "k")
        ours.result()
        theirs.result()
    changes.refresh()
    assert {key: found for key, found in latest(changes).items() if found[1] is not None} == wanted
    changes.compact("k")
    assert len(changes.read("k").read_all()) == len(latest(changes))
    report = changes.verify(deep=True)
    assert report.ok, report.problems


def test_what_stops_a_task_is_told_as_this_process_tells_it(
    log: TxnLog, spark: SparkSession, path: str
) -> None:
    log.create_topic("k", "kafka")
    with Producer(log, "p", chunk_bytes=1 << 20) as producer, producer.transaction():
        producer.send("k", key=b"a", value=bytes(3 << 20))
    log.alter_topic("k", settings={"cleanup.policy": "compact", "min.compaction.lag.ms": 0})
    with pytest.raises(ConflictError) as local:
        log.compact("k")
    with pytest.raises(ConflictError) as told:
        compact(spark, path, "k")
    assert told.value.kind == local.value.kind == "chunks-in-compacted-topic"
