"""Cases 12 to 14: batches without rows, without partitions, and with tasks that report nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import DataFrame

from tests.chaos.faults import Fault
from tests.chaos.source import ChaosSource
from tests.spark.case_sources import ABORTED_FILE, DROPS, GAPS_BATCHES, GapSource, MessageSource
from tests.spark.case_stream import ROWS_PER_FILE, Stream


def replay_last(stream: Stream, start: Callable[[], object]) -> None:
    """Let Spark write the last batch again; nothing must come of it."""
    there, last = stream.entry(), stream.versions()[-1]
    assert stream.notes("commits")[-1] == last
    stream.forget("commits", last)
    stream.control.arm("again", Fault(point="commit/start", how="wait", batch=last))
    stream.control.release("again")
    start()
    assert stream.control.hit("again") is not None
    assert stream.entry() == there


def test_case_12_a_batch_without_rows(stream: Stream) -> None:
    """It is an entry with the version alone: without that, the next batch does not follow
    (``missing-versions``)."""

    def some() -> DataFrame:
        left_out = f"n BETWEEN {ROWS_PER_FILE} AND {2 * ROWS_PER_FILE - 1} OR n >= {3 * ROWS_PER_FILE}"
        return stream.with_origin(stream.source().where(f"NOT ({left_out})"))

    stream.feed(4)
    stream.run(some())
    assert stream.versions() == [0, 1, 2, 3]
    assert {row.batch for row in stream.content()} == {0, 2}
    replay_last(stream, lambda: stream.run(some()))
    wanted = [*range(ROWS_PER_FILE), *range(2 * ROWS_PER_FILE, 3 * ROWS_PER_FILE)]
    assert stream.check(wanted).rows == len(wanted)


def test_case_12_a_batch_that_only_moves_the_watermark(stream: Stream) -> None:
    """An aggregation in append mode: rows leave its state in batches that read none, and are there once."""

    def aggregated() -> DataFrame:
        timed = (
            stream.source()
            .selectExpr("n", "key", "timestamp_seconds(n) AS at")
            .withWatermark("at", "0 seconds")
        )
        groups = (
            timed.selectExpr("n", "key", "window(at, '10 seconds') AS of").groupBy("of", "n", "key").count()
        )
        return stream.with_origin(groups.select("n", "key"))

    stream.feed(2)
    query = stream.catch_up(aggregated())
    without = [one["batchId"] for one in query.recentProgress if one["numInputRows"] == 0]
    there = stream.content()
    assert {row.batch for row in there} & set(without)
    assert stream.versions() == stream.notes("commits")
    assert not set(stream.versions()) <= {row.batch for row in there}  # the first batch gave none
    replay_last(stream, lambda: stream.catch_up(aggregated()))
    stream.feed()
    stream.catch_up(aggregated())
    wanted = list(range(3 * ROWS_PER_FILE - 10))  # the last window goes on
    assert stream.check(wanted).rows == len(wanted)


def test_case_13_a_batch_without_partitions(stream: Stream) -> None:
    """Spark lets one task write it, which has nothing to say but the ids: the version is written by these."""
    stream.spark.dataSource.register(GapSource)

    def all_of_it() -> None:
        gaps = stream.spark.readStream.format("gaps").load()
        stream.catch_up(stream.with_origin(gaps))

    all_of_it()
    assert stream.versions() == list(range(GAPS_BATCHES))
    assert {row.batch for row in stream.content()} == {0, 2}
    replay_last(stream, all_of_it)
    wanted = [*range(5), *range(10, 15)]
    assert stream.check(wanted).rows == len(wanted)


def test_case_14_a_task_that_failed_has_no_message(stream: Stream) -> None:
    """The batch is given up with None in its place, and the next run writes it; :meth:`abort` must bear
    that.
    """
    stream.spark.dataSource.register(MessageSource)
    stream.feed(2)
    stream.control.arm("task", Fault(point="write/last", how="raise", batch=1, partition=0))
    told = stream.fails()
    assert "InjectedError: fault task at write/last" in told
    assert True in json.loads((stream.control.folder / ABORTED_FILE).read_text())
    assert stream.versions() == [0]
    stream.run()
    assert stream.check().rows == len(stream.wanted)


def test_case_14_a_batch_without_one_of_its_messages_is_refused(stream: Stream) -> None:
    """Without that guard the rows of the task would be lost."""
    stream.spark.dataSource.register(MessageSource)
    stream.feed(2)
    entry = stream.entry()
    told = stream.fails(**{DROPS: "true"})
    assert "[TXNLOG_INVALID_COMMIT_MESSAGE]" in told
    assert stream.entry() == entry
    stream.spark.dataSource.register(ChaosSource)
    stream.run()
    assert stream.check().rows == len(stream.wanted)
