"""Batch reads: isolation levels, offsets, timestamps, columns, and the version that load() pins."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.sessions import BOTH_SESSIONS
from txnformat.clock import Instant, SystemClock
from txnformat.log import TxnLog
from txnformat.store.local import LocalStore
from txnformat.types import IsolationLevel, Outcome

Read = Callable[..., DataFrame]


def values(frame: DataFrame, column: str = "n") -> list[Any]:
    return [row[column] for row in frame.select(column).collect()]


@pytest.fixture
def busy(log: TxnLog) -> TxnLog:
    """Topic "t": plain rows, a committed, an aborted and an open transaction, rows behind the open one."""
    log.create_topic("t", NUMBERS, partitions=2)
    append(log, "t", {0: [numbers(0, 4), numbers(4, 6)], 1: [numbers(100, 103)]})
    done, undone, still = (Transactions(log, name) for name in ("done", "undone", "still"))
    done.send("t", {0: [numbers(10, 13)]})
    undone.send("t", {0: [numbers(20, 22)], 1: [numbers(120, 121)]})
    done.send("t", {0: [numbers(13, 14)]})
    done.end(Outcome.COMMIT)
    undone.end(Outcome.ABORT)
    still.send("t", {0: [numbers(30, 33)]})
    append(log, "t", {0: [numbers(40, 42)]})
    return log


COMMITTED = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 100, 101, 102]


@BOTH_SESSIONS
def test_read_committed_ends_at_the_open_transaction_and_skips_the_aborted_one(
    busy: TxnLog, read: Read
) -> None:
    assert sorted(values(read("t"))) == COMMITTED
    assert read("t").count() == len(COMMITTED)


@BOTH_SESSIONS
def test_read_uncommitted_gives_open_and_aborted_records_too(busy: TxnLog, read: Read) -> None:
    found = values(read("t", isolationLevel="READ_UNCOMMITTED"))
    assert sorted(found) == sorted([*COMMITTED, 20, 21, 120, 30, 31, 32, 40, 41])


@BOTH_SESSIONS
def test_a_snapshot_is_not_held_back_by_the_open_transaction(busy: TxnLog, read: Read) -> None:
    assert sorted(values(read("t", isolation="snapshot"))) == sorted([*COMMITTED, 40, 41])


@pytest.mark.parametrize("isolation", list(IsolationLevel))
def test_spark_and_the_python_reader_agree_row_by_row(busy: TxnLog, read: Read, isolation: str) -> None:
    columns = [
        "_topic",
        "_partition",
        "_offset",
        "n",
        "_producer_id",
        "_producer_epoch",
        "_entry",
        "_commit_entry",
    ]
    expected = busy.read("t", isolation=isolation, columns=columns).read_all().to_pylist()
    found = [row.asDict() for row in read("t", isolation=isolation, columns=",".join(columns)).collect()]
    assert sorted(found, key=lambda row: (row["_partition"], row["_offset"])) == expected


def test_rows_of_a_split_come_in_the_order_of_the_log(busy: TxnLog, read: Read) -> None:
    rows = read("t", columns="_partition,_offset", isolation="read_uncommitted", minPartitions="1").collect()
    assert [tuple(row) for row in rows] == sorted(tuple(row) for row in rows)


@BOTH_SESSIONS
def test_load_pins_the_version_for_every_action(busy: TxnLog, read: Read) -> None:
    committed, uncommitted = read("t"), read("t", isolation="read_uncommitted")
    with_entries = read("t", columns="n,_commit_entry", isolation="read_uncommitted")
    Transactions(busy, "still")  # opening again aborts what was open
    append(busy, "t", {0: [numbers(50, 60)], 1: [numbers(60, 70)]})
    assert sorted(values(committed)) == COMMITTED
    assert uncommitted.count() == len(COMMITTED) + 8
    assert uncommitted.union(uncommitted).count() == 2 * (len(COMMITTED) + 8)
    assert with_entries.where("n between 40 and 41 and _commit_entry is not null").count() == 2
    assert sorted(values(read("t"))) == sorted([*COMMITTED, 40, 41, *range(50, 70)])


@pytest.mark.parametrize("spark", ["connect"], indirect=True)
def test_in_connect_the_first_action_pins(spark: SparkSession, busy: TxnLog, path: str) -> None:
    frame = spark.read.format("txnlog").option("topic", "t").load(path)  # asks the server nothing
    append(busy, "t", {1: [numbers(103, 105)]})
    assert frame.count() == len(COMMITTED) + 2
    append(busy, "t", {1: [numbers(105, 106)]})
    assert (frame.count(), frame.union(frame).count()) == (len(COMMITTED) + 2, 2 * len(COMMITTED) + 4)
    again = spark.read.format("txnlog").option("topic", "t").load(path)
    assert again.count() == len(COMMITTED) + 3


def test_a_commit_after_load_does_not_show_in_the_commit_entries(log: TxnLog, read: Read) -> None:
    log.create_topic("t", NUMBERS)
    producer = Transactions(log, "p")
    producer.send("t", {0: [numbers(0, 2)]})
    before = read("t", columns="_commit_entry", isolation="read_uncommitted")
    producer.end(Outcome.COMMIT)
    assert values(before, "_commit_entry") == [None, None]
    assert None not in values(
        read("t", columns="_commit_entry", isolation="read_uncommitted"), "_commit_entry"
    )


@BOTH_SESSIONS
def test_a_schema_given_by_the_user_pins_at_the_first_action(busy: TxnLog, read: Read) -> None:
    frame = read("t", schema="n bigint")
    assert frame.count() == len(COMMITTED)
    append(busy, "t", {1: [numbers(60, 70)]})
    assert frame.count() == len(COMMITTED)


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        ("earliest", "latest", COMMITTED),
        ("latest", "latest", []),
        ("earliest", "earliest", []),
        ({"t": {"0": 5, "1": -2}}, "latest", [5, 10, 11, 12, 13, 100, 101, 102]),
        ({"0": 5, "1": -1}, "latest", [5, 10, 11, 12, 13]),
        ({"0": 7}, {"0": 8}, [11, 100, 101, 102]),
        ("earliest", {"t": {"0": 0, "1": 1}}, [100]),
        ({"0": -1}, {"0": -1, "1": -2}, []),
        ({"0": 8}, {"0": 12, "1": 0}, [12, 13]),  # offsets 9 and 10 are the aborted transaction's
    ],
)
@BOTH_SESSIONS
def test_offsets_are_inclusive_starts_and_exclusive_ends(
    busy: TxnLog, read: Read, starting: Any, ending: Any, expected: list[int]
) -> None:
    starting, ending = (
        value if isinstance(value, str) else json.dumps(value) for value in (starting, ending)
    )
    assert sorted(values(read("t", startingOffsets=starting, endingOffsets=ending))) == expected


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"startingOffsets": '{"0": 5}', "endingOffsets": '{"0": 4}'}, "TXNLOG_END_BEFORE_START"),
        ({"startingOffsets": '{"0": 999}'}, "TXNLOG_OFFSET_OUT_OF_RANGE"),
        ({"endingOffsets": '{"1": 999}'}, "TXNLOG_OFFSET_OUT_OF_RANGE"),
        (
            {"endingOffsets": '{"0": 15}'},
            "TXNLOG_OFFSET_OUT_OF_RANGE",
        ),  # there, but behind the open transaction
        ({"startingOffsets": '{"2": 0}'}, "TXNLOG_UNKNOWN_PARTITION"),
        ({"startingOffsets": '{"other": {"0": 0}}'}, "TXNLOG_INVALID_OPTION"),
        ({"columns": "n,m"}, "TXNLOG_UNKNOWN_COLUMN"),
    ],
)
@BOTH_SESSIONS
def test_what_is_not_there_is_an_error_at_load(
    busy: TxnLog, read: Read, options: dict[str, str], code: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        read("t", **options)
    assert f"[{code}]" in str(caught.value)


def test_offsets_out_of_range_name_what_there_is(busy: TxnLog, read: Read) -> None:
    with pytest.raises(
        AnalysisException, match=r"got=`999` isolation=`read_committed` .*earliest=`0` latest=`14`"
    ):
        read("t", startingOffsets='{"0": 999}')


@BOTH_SESSIONS
def test_without_fail_on_data_loss_offsets_are_clipped(busy: TxnLog, read: Read) -> None:
    options = {"startingOffsets": '{"0": 999, "1": 1}', "endingOffsets": '{"0": 1999, "1": 50}'}
    assert values(read("t", **options, failOnDataLoss="false")) == [101, 102]
    assert values(read("t", startingOffsets='{"0": 999, "1": 999}', failOnDataLoss="false")) == []


class HourAgo(SystemClock):
    """A machine whose log is an hour old."""

    def now(self) -> Instant:
        now = super().now()
        return now._replace(wall_ms=now.wall_ms - 3_600_000)


def test_a_read_that_may_ends_the_expired_transaction_that_holds_it_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = TxnLog.create(LocalStore(tmp_path / "old", clock=HourAgo()), clock=HourAgo())
    log.create_topic("t", NUMBERS)
    Transactions(log, "slow").send("t", {0: [numbers(0, 1)]})
    append(log, "t", {0: [numbers(1, 3)]})
    load = spark.read.format("txnlog").option("topic", "t")
    assert values(load.load(str(tmp_path / "old"))) == []
    assert values(load.option("endExpired", "true").load(str(tmp_path / "old"))) == [1, 2]
    assert log.outcome("slow", 0).cause == "timeout"


# --- timestamps ---------------------------------------------------------------------------------------------

EVENTS = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def events(start: int, micros: list[int | None]) -> pa.Table:
    return pa.table({"n": range(start, start + len(micros)), "at": micros}, schema=EVENTS)


@pytest.fixture
def timed(log: TxnLog) -> TxnLog:
    log.create_topic("e", EVENTS, timestamp_column="at")
    append(log, "e", {0: [events(0, [1_000_000, None, 3_000_000]), events(3, [None, None])]})
    append(log, "e", {0: [events(5, [2_000_000, 4_000_500, 6_000_000, 5_000_000])]})
    return log


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("0", list(range(9))),
        ("1000", list(range(9))),
        ("1001", list(range(2, 9))),
        ("1970-01-01T00:00:03Z", list(range(2, 9))),
        ("1970-01-01T05:30:03+05:30", list(range(2, 9))),
        ("3001", list(range(6, 9))),  # offset 5 is earlier than that, and in a batch that is not
        ("4000", list(range(6, 9))),
        ("4001", [7, 8]),  # 4000.5 ms is before 4001
        ("6001", []),
    ],
)
def test_a_timestamp_starts_at_the_first_record_at_or_after_it(
    timed: TxnLog, read: Read, starting: str, expected: list[int]
) -> None:
    assert values(read("e", startingTimestamp=starting)) == expected


@BOTH_SESSIONS
def test_an_ending_timestamp_is_exclusive_and_means_the_end_when_nothing_is_so_late(
    timed: TxnLog, read: Read
) -> None:
    assert values(read("e", startingTimestamp="1001", endingTimestamp="3001")) == [2, 3, 4, 5]
    assert values(read("e", endingTimestamp="999999")) == list(range(9))
    assert values(read("e", endingTimestamp="0")) == []


def test_without_a_timestamp_column_the_time_is_that_of_the_append(log: TxnLog, read: Read) -> None:
    log.create_topic("t", NUMBERS)
    first = append(log, "t", {0: [numbers(0, 3)]})
    second = append(log, "t", {0: [numbers(3, 5)]})
    assert first.timestamp_ms is not None
    assert second.timestamp_ms is not None
    assert values(read("t", startingTimestamp=str(first.timestamp_ms))) == [0, 1, 2, 3, 4]
    assert values(read("t", startingTimestamp=str(first.timestamp_ms + 1))) == [3, 4]
    assert values(read("t", endingTimestamp=str(second.timestamp_ms))) == [0, 1, 2]
    found = values(read("t", columns="_timestamp"), "_timestamp")
    stamps = {moment.astimezone(datetime.UTC) for moment in found}
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert stamps == {
        epoch + datetime.timedelta(milliseconds=entry.timestamp_ms or 0) for entry in (first, second)
    }


# --- columns ------------------------------------------------------------------------------------------------


@BOTH_SESSIONS
def test_columns_are_read_in_the_asked_order_with_metadata(busy: TxnLog, read: Read) -> None:
    frame = read(
        "t", columns="_offset, text ,_topic", startingOffsets='{"0": 7, "1": -1}', endingOffsets='{"0": 8}'
    )
    assert frame.columns == ["_offset", "text", "_topic"]
    assert [tuple(row) for row in frame.collect()] == [(7, "row 11", "t")]


@BOTH_SESSIONS
def test_a_schema_is_a_projection_in_any_letter_case(busy: TxnLog, read: Read) -> None:
    frame = read("t", schema="N bigint, _offset bigint")
    assert frame.columns == ["N", "_offset"]
    assert sorted(values(frame, "N")) == COMMITTED


def test_a_schema_that_does_not_fit_lists_every_difference(busy: TxnLog, read: Read) -> None:
    frame = read("t", schema="n int, texts string, _offset bigint, text string not null, TEXT string")
    with pytest.raises(AnalysisException) as caught:
        frame.collect()
    text = str(caught.value)
    assert "[TXNLOG_SCHEMA_MISMATCH]" in text
    assert "no column 'texts'" in text
    assert "'text' appears twice" in text
    with pytest.raises(AnalysisException, match=r"'n' is bigint, not int.*'text' cannot be NOT NULL"):
        read("t", schema="n int, text string not null").collect()


@BOTH_SESSIONS
def test_an_empty_topic_and_an_empty_partition_read_as_nothing(log: TxnLog, read: Read) -> None:
    log.create_topic("t", NUMBERS, partitions=3)
    assert read("t").collect() == []
    assert read("t").count() == 0
    append(log, "t", {1: [numbers(0, 2)]})
    assert values(read("t")) == [0, 1]


def test_splits_are_cut_by_bytes_and_by_the_wanted_number(log: TxnLog, read: Read) -> None:
    log.create_topic("t", NUMBERS, partitions=2)
    append(
        log, "t", {0: [numbers(10 * i, 10 * i + 10) for i in range(6)], 1: [numbers(60, 70), numbers(70, 80)]}
    )

    def splits(**options: str) -> list[list[int]]:
        return [
            part
            for part in read("t", **options).select("n").rdd.map(lambda row: row.n).glom().collect()
            if part
        ]

    assert splits() == [list(range(80))]  # far too small to spread
    assert splits(minPartitions="4") == [list(range(20 * i, 20 * i + 20)) for i in range(4)]
    assert (
        splits(minPartitions="100")
        == splits(maxBytesPerPartition="1")
        == [list(range(10 * i, 10 * i + 10)) for i in range(8)]
    )


@pytest.mark.parametrize("options", [{}, {"order": "commit"}, {"versionAsOf": "101"}])
def test_many_small_files_are_many_tasks(log: TxnLog, read: Read, options: dict[str, str]) -> None:
    """Their bytes are few; the cost of opening them is not. Rows of a partition come in order over all
    tasks.
    """
    log.create_topic("t", NUMBERS, partitions=2)
    for number in range(100):
        append(log, "t", {0: [numbers(number, number + 1)], 1: [numbers(100 + number, 101 + number)]})
    frame = read("t", maxBytesPerPartition="3m", **options)
    tasks = frame.select("n").rdd.map(lambda row: row.n).glom().collect()
    assert len(tasks) >= 4
    found = [number for task in tasks for number in task]
    assert [number for number in found if number < 100] == list(range(100))
    assert [number for number in found if number >= 100] == list(range(100, 200))


# --- bad input ----------------------------------------------------------------------------------------------


@BOTH_SESSIONS
def test_a_missing_path_and_an_unknown_topic_are_one_clear_error(
    spark: SparkSession, read: Read, path: str
) -> None:
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_NO_LOG\].*path=`") as caught:
        spark.read.format("txnlog").option("topic", "t").load(path + "-missing").schema  # noqa: B018
    assert not Path(path + "-missing").exists()
    # Connect puts the server's own stack behind it, whatever is raised.
    assert len(str(caught.value).partition("\n\nJVM stacktrace")[0]) < 1_500
    with pytest.raises(AnalysisException, match=r"\[TXNLOG_UNKNOWN_TOPIC\] no such topic: topic=`t`"):
        read("t")


@BOTH_SESSIONS
def test_an_unknown_option_names_the_nearest_and_all_problems_come_at_once(read: Read) -> None:
    with pytest.raises(AnalysisException) as caught:
        read("a,b", startingOfsets="earliest", isolation="serializable", order="time", assign="x", zzz="1")
    text = str(caught.value)
    assert "did you mean startingOffsets?" in text
    assert "use read_committed, read_uncommitted or snapshot" in text
    assert "option order is 'time'; use offset or commit" in text
    assert "option assign is not supported by this version" in text
    assert "there is no option 'zzz'; there are path, topic" in text


def test_a_removed_and_remade_log_is_another_log(
    spark: SparkSession, log: TxnLog, read: Read, path: str
) -> None:
    log.create_topic("t", NUMBERS)
    append(log, "t", {0: [numbers(0, 3)]})
    frame = read("t")
    assert frame.count() == 3
    Path(path).rename(path + ".old")
    with TxnLog.create(path, embedding=False) as other:
        other.create_topic("t", NUMBERS)
        append(other, "t", {0: [numbers(7, 8)]})
    assert values(read("t")) == [7]


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
@BOTH_SESSIONS
def test_a_missing_or_corrupt_object_is_a_clean_error(
    log: TxnLog, read: Read, path: str, damage: str
) -> None:
    log.create_topic("t", NUMBERS)
    append(log, "t", {0: [numbers(0, 1000)]})
    frame = read("t")
    (file,) = Path(path).glob("t-*/data/*.parquet")
    if damage == "missing":
        file.unlink()
    else:
        data = bytearray(file.read_bytes())
        data[40] ^= 1
        file.unlink()
        file.write_bytes(data)
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    assert {"missing": "[TXNLOG_SEGMENT_FILE_MISSING]", "corrupt": "[TXNLOG_CORRUPT_DATA]"}[damage] in str(
        caught.value
    )
    assert file.name in str(caught.value)
    assert len(str(caught.value)) < 2_500


@BOTH_SESSIONS
def test_a_table_of_a_catalog_is_refused_in_words_and_a_temporary_view_reads(
    busy: TxnLog, spark: SparkSession, path: str
) -> None:
    options = f"OPTIONS (topic 't', path '{path}')"
    with pytest.raises(
        AnalysisException, match=r"\[TXNLOG_UNSUPPORTED_OPERATION\].*TEMPORARY VIEW"
    ) as caught:
        spark.sql(f"CREATE TABLE no_table USING txnlog {options}")
    assert "there is no option" not in str(caught.value)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW a_view USING txnlog {options}")
    expected = busy.read("t").read_all().num_rows
    assert spark.sql("SELECT n FROM a_view").count() == expected
    spark.catalog.dropTempView("a_view")
