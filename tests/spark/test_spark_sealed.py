"""Sealed segments in Spark: tasks read the sidecars, and what is read is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.read.splits import Split
from tests.spark.conftest import Read
from tests.spark.histories import NUMBERS, Transactions, append, numbers
from txnformat.errors import TxnLogError
from txnformat.types import Outcome
from txnlog import Producer, TxnLog


@pytest.fixture
def sealed(log: TxnLog) -> TxnLog:
    """Six segments over two partitions, a transaction over the seams, and something unsealed."""
    log.create_topic("numbers", NUMBERS, partitions=2)
    producer = Transactions(log, "tx")
    for number in range(6):
        append(log, "numbers", {number % 2: [numbers(100 * number, 100 * number + 50)] * 2})
        producer.send("numbers", {0: [numbers(-number - 1, -number)]})
        producer.end(Outcome.ABORT if number % 2 else Outcome.COMMIT)
        log.maintain("seal")
    append(log, "numbers", {0: [numbers(1_000, 1_010)], 1: [numbers(2_000, 2_010)]})
    return log


def test_every_read_is_that_of_python(sealed: TxnLog, read: Read) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        expected = sealed.read(
            "numbers", isolation=isolation, columns=["_partition", "_offset", "n"]
        ).read_all()
        wanted = sorted(zip(*(column.to_pylist() for column in expected.columns), strict=True))
        for options in ({}, {"minPartitions": "7"}, {"maxBytesPerPartition": "1k"}):
            frame = read("numbers", isolation=isolation, columns="_partition,_offset,n", **options)
            assert sorted(tuple(row) for row in frame.collect()) == wanted, options


def test_ranges_begin_and_end_inside_of_segments(sealed: TxnLog, read: Read) -> None:
    for start, end in ((0, 1), (25, 130), (99, 102), (40, 310)):
        options = {
            "startingOffsets": json.dumps({"numbers": {"0": start, "1": start}}),
            "endingOffsets": json.dumps({"numbers": {"0": end, "1": min(end, 300)}}),
            "minPartitions": "5",
        }
        starts, ends = {0: start, 1: start}, {0: end, 1: min(end, 300)}
        expected = sealed.read("numbers", columns=["n"], start=starts, end=ends).read_all()
        assert sorted(row.n for row in read("numbers", **options).select("n").collect()) == sorted(
            expected.column("n").to_pylist()
        )


def test_timestamps_are_found_in_sealed_segments(sealed: TxnLog, read: Read) -> None:
    times = sealed.read("numbers", columns=["_timestamp", "n"], partitions=[0]).read_all().to_pylist()
    middle = times[len(times) // 2]["_timestamp"]
    since = str(int(middle.timestamp() * 1_000))
    frame = read("numbers", columns="n,_partition", startingTimestamp=since).where("_partition = 0")
    found = sorted(row.n for row in frame.collect())
    assert found == sorted(row["n"] for row in times if row["_timestamp"] >= middle)


def test_the_driver_reads_no_sidecar_and_a_task_without_one_says_so(
    sealed: TxnLog, read: Read, path: str
) -> None:
    frame = read("numbers")
    (lost, *_) = sorted(Path(path).glob("numbers-*/segments/*.index"))
    lost.unlink()
    source = TxnLogDataSource({"path": path, "topic": "numbers"})
    splits = source.reader(source.schema()).partitions()
    assert sum(len(split.sealed) for split in splits if isinstance(split, Split)) >= 6
    with pytest.raises(Exception, match="TXNLOG_CORRUPT_SIDECAR") as caught:
        frame.collect()
    assert lost.name in str(caught.value)
    assert not isinstance(caught.value, TxnLogError)


def test_a_condition_on_sealed_segments_is_about_what_the_pin_knew(log: TxnLog, path: str) -> None:
    """What was open when the DataFrame was loaded is undecided in it, though committed and sealed before it
    is read."""
    log.create_topic("numbers", NUMBERS)
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(0, 5)]})
    options = {
        "path": path,
        "topic": "numbers",
        "isolation": "read_uncommitted",
        "columns": "n",
        "where": "_commit_entry IS NULL",
    }
    source = TxnLogDataSource(options)
    reader = source.reader(source.schema())
    producer.end(Outcome.COMMIT)
    log.maintain("seal")
    splits = reader.partitions()
    assert all(isinstance(split, Split) and split.sealed for split in splits)
    found = [n for split in splits for batch in reader.read(split) for n in batch.column("n").to_pylist()]
    assert found == [0, 1, 2, 3, 4]


def test_a_condition_reaches_sealed_segments(sealed: TxnLog, read: Read) -> None:
    """Tasks keep the rows that Python keeps, and the plan leaves out segments in which it cannot be true."""

    def segments(**options: str) -> int:
        source = TxnLogDataSource({"path": sealed.store.url, "topic": "numbers", **options})
        splits = source.reader(source.schema()).partitions()
        return sum(len(split.sealed) for split in splits if isinstance(split, Split))

    everything = segments()
    for where, fewer in (
        ("n >= 148 AND n < 305", False),
        ("n < 0 OR text = 'row 1005'", False),
        ("_partition = 1 AND n IN (110, 2001)", True),
        ("_offset BETWEEN 45 AND 55", True),
        ("_entry < 5", False),
    ):
        found = [row.n for row in read("numbers", where=where).collect()]
        expected = sealed.read("numbers", where=where).read_all().column("n").to_pylist()
        assert expected, where
        assert sorted(found) == sorted(expected), where
        assert (where, segments(where=where) < everything) == (where, fewer)


def test_what_was_staged_is_read_from_its_commit_on_before_and_after_the_seal(
    log: TxnLog, read: Read
) -> None:
    log.create_topic("staged", NUMBERS, partitions=2)
    producer = Producer(log, "deferred", buffer="deferred")
    producer.init()
    producer.begin()
    for number in range(3):
        for partition in range(2):
            producer.send("staged", numbers(10 * number, 10 * number + 10), partition=partition)
        producer.flush()
    assert read("staged", isolation="read_uncommitted").count() == 0
    producer.commit()
    for _ in range(2):
        frame = read("staged", columns="_partition,_offset,n", minPartitions="4")
        assert sorted(tuple(row) for row in frame.collect()) == [
            (partition, offset, offset) for partition in range(2) for offset in range(30)
        ]
        log.maintain("seal")
