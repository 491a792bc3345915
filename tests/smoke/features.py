"""What the Spark source does, one small program for each feature: run with every supported version of
pyspark.

The full tests run with the pinned version only. These say which versions a feature works with: ``make
versions`` writes docs/internals/versions.md from their runs. They use what a session of either kind has, and
nothing of pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from spark_datasource.stream.reader import HAS_LIMITS
from txnformat.log import TxnLog
from txnlog import Producer

__all__ = ["FEATURES", "OFFERS", "Feature", "Place"]


class Place(NamedTuple):
    """Where a feature is tried."""

    spark: Any
    log: TxnLog
    path: str
    """Of the log."""
    folder: Path
    """For anything else."""

    def load(self, topic: str, **options: object) -> Any:
        """Return a topic as a DataFrame."""
        return self.spark.read.format("txnlog").option("topic", topic).options(**options).load(self.path)

    def save(self, frame: Any, **options: object) -> None:
        """Append a DataFrame."""
        frame.write.format("txnlog").mode("append").options(**options).save(self.path)

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """Return a topic's rows, read without Spark."""
        return self.log.read(topic).read_all().to_pylist()  # type: ignore[no-any-return]


class Feature(NamedTuple):
    """Something that works or not."""

    name: str
    run: Callable[[Place], None]
    """Raises when it does not work."""


NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def numbers(place: Place) -> None:
    """Make topic ``numbers``: 2 rows; others were in a transaction that was aborted."""
    place.log.create_topic("numbers", NUMBERS)
    with Producer(place.log, transactional_id="a") as producer:
        with producer.transaction() as txn:
            txn.send("numbers", [{"n": 1, "text": "one"}, {"n": 2, "text": "two"}])
        try:
            with producer.transaction() as txn:
                txn.send("numbers", [{"n": 3, "text": "three"}, {"n": 4, "text": "four"}])
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass


def read(place: Place) -> None:
    numbers(place)
    found = place.load("numbers", columns="_offset,n", isolation="read_committed", startingOffsets='{"0": 1}')
    assert [tuple(row) for row in found.collect()] == [(1, 2)]
    assert place.load("numbers", isolation="read_uncommitted").count() == 2


def pinned(place: Place) -> None:
    numbers(place)
    frame = place.load("numbers")
    assert frame.columns == ["n", "text"]  # in Connect load() asks nothing, and this pins
    with Producer(place.log) as producer:
        producer.send("numbers", [{"n": 5, "text": "five"}])
    assert (frame.count(), frame.union(frame).count(), place.load("numbers").count()) == (2, 4, 3)


def filters(place: Place) -> None:
    numbers(place)
    place.spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = place.load("numbers")
        assert (frame.where("n = 2").count(), frame.where("n = 1").count(), frame.count()) == (1, 1, 2)
    finally:
        place.spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def write(place: Place) -> None:
    frame = place.spark.range(10, numPartitions=2).selectExpr("id AS n")
    for _ in range(2):
        place.save(frame, topic="t", txnAppId="job", txnVersion=1)
    assert sorted(row["n"] for row in place.rows("t")) == list(range(10))


def route(place: Place) -> None:
    place.save(place.spark.range(10).selectExpr("id AS n", "concat('t', id % 3) AS topic"))
    assert [len(place.rows(f"t{number}")) for number in range(3)] == [4, 3, 3]


def threads(place: Place) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from spark_datasource.datasource import register

    register(place.spark)
    frame = place.spark.range(10, numPartitions=2).selectExpr("id AS n")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda number: place.save(frame, topic=f"t{number}"), range(3)))
    assert [len(place.rows(f"t{number}")) for number in range(3)] == [10, 10, 10]


def errors(place: Place) -> None:
    from pyspark.errors import AnalysisException

    try:
        place.load("missing").count()
    except AnalysisException as error:
        text = str(error)
    else:
        text = "no error"
    assert "[TXNLOG_UNKNOWN_TOPIC] no such topic" in text


def view(place: Place) -> None:
    numbers(place)
    place.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING txnlog OPTIONS (topic 'numbers', path '{place.path}')"
    )
    place.spark.sql("INSERT INTO v VALUES (9, 'nine')")
    assert (place.spark.sql("SELECT sum(n) AS s FROM v").first()["s"], len(place.rows("numbers"))) == (3, 3)


def foreach_batch(place: Place) -> None:
    path = place.path

    def write_batch(batch: Any, number: int) -> None:
        options = {"topic": "rates", "txnAppId": "rates", "txnVersion": number}
        batch.selectExpr("value").write.format("txnlog").mode("append").options(**options).save(path)

    rates = place.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    stream = rates.writeStream.foreachBatch(write_batch).option("checkpointLocation", f"{place.folder}/ckpt")
    query = stream.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert len(place.rows("rates")) == 10


def stream(place: Place) -> None:
    feed, checkpoint = place.folder / "feed", place.folder / "checkpoint"
    feed.mkdir()

    def run() -> list[int]:
        frame = place.spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(feed))
        writer = frame.writeStream.format("txnlog").option("topic", "t")
        query = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(place.path)
        )
        assert query.awaitTermination(300)
        return sorted(row["n"] for row in place.rows("t"))

    (feed / "0.json").write_text('{"n": 0}\n{"n": 1}\n')
    assert run() == [0, 1]
    for file in (checkpoint / "commits").iterdir():
        file.unlink()  # as if Spark had crashed before it noted the end of the batch
    (feed / "1.json").write_text('{"n": 2}\n')
    assert run() == [0, 1, 2]


def stream_source(place: Place) -> None:
    """From topic to topic, by both orders, in limited batches where Spark knows limits, and on from the
    checkpoint."""
    for order in ("offset", "commit"):
        options = {"topic": f"from-{order}", "order": order, "startingOffsets": "earliest"}
        if HAS_LIMITS:
            options["maxRowsPerTrigger"] = "3"
        for start in (0, 5):
            place.save(place.spark.range(start, start + 5).selectExpr("id AS n"), topic=f"from-{order}")
            frame = place.spark.readStream.format("txnlog").options(**options).load(place.path)
            writer = frame.writeStream.format("txnlog").option("topic", f"to-{order}")
            writer = writer.option("checkpointLocation", str(place.folder / f"checkpoint-{order}"))
            assert writer.trigger(availableNow=True).start(place.path).awaitTermination(300)
            assert sorted(row["n"] for row in place.rows(f"to-{order}")) == list(range(start + 5))


def carried(place: Place, columns: str, switch: str | None = None) -> None:
    """Write and read columns, a row of nulls behind them."""
    if switch is not None:
        place.spark.conf.set(switch, "true")
    try:
        frame = place.spark.sql(f"SELECT {columns}")
        frame = frame.union(place.spark.sql(f"SELECT {', '.join(['NULL'] * len(frame.columns))}")).coalesce(1)
        place.save(frame, topic="types")
        found = place.load("types")
        assert [(one.name, one.dataType) for one in found.schema] == [
            (one.name, one.dataType) for one in frame.schema
        ]
        assert [repr(row) for row in found.collect()] == [repr(row) for row in frame.collect()]
    finally:
        if switch is not None:
            place.spark.conf.unset(switch)


def plain_types(place: Place) -> None:
    carried(
        place,
        "true AS a, 1Y AS b, 1S AS c, 1 AS d, 1L AS e, 1.5F AS f, 1.5D AS g, 1.5BD AS h, 'x' AS i, X'00' "
        "AS j,"
        " date'2026-01-01' AS k, timestamp'2026-01-01 00:00:00Z' AS l, timestamp_ntz'2026-01-01 00:00:00' "
        "AS m,"
        " transform(sequence(1, 2), x -> nullif(x, 2)) AS n",
    )


def variants(place: Place) -> None:
    carried(
        place, "parse_json('{\"a\": [1, null]}') AS v, if(true, array(parse_json('1'), null), null) AS list"
    )


def intervals(place: Place) -> None:
    carried(place, "interval '1 02:03:04.5' day to second AS d")


def times(place: Place) -> None:
    carried(place, "time'12:34:56.123456' AS t", "spark.sql.timeType.enabled")


def native_table(place: Place) -> None:
    """Rows of both parts, by a condition of Spark's WHERE and with metadata columns."""
    from txnlog.spark import describe, read_table

    numbers(place)
    ways: tuple[dict[str, Any], ...] = ({}, {"native_bytes_min": 0}, {"native": False})
    for options in ways:
        frame = read_table(place.spark, place.path, "numbers", columns=["n", "_offset"], **options)
        assert sorted(tuple(row) for row in frame.collect()) == [(1, 0), (2, 1)]
        assert [row.n for row in frame.where("n > 1").collect()] == [2]
    assert "natively, by Spark's Parquet reader" in describe(place.spark, place.path, "numbers")


def native_tables(place: Place) -> None:
    from txnlog.spark import read_tables

    numbers(place)
    place.log.create_topic("others", NUMBERS)
    found = read_tables(place.spark, place.path, ["numbers", "others"], native_bytes_min=0)
    assert {name: frame.count() for name, frame in found.items()} == {"numbers": 2, "others": 0}


def native_view(place: Place) -> None:
    from txnlog.spark import create_view, renew_view

    numbers(place)
    create_view(place.spark, "native_numbers", place.path, "numbers", native_bytes_min=0)
    with Producer(place.log) as producer:
        producer.send("numbers", [{"n": 5, "text": "five"}])
    query = "SELECT count(*) AS c FROM native_numbers"
    assert place.spark.sql(query).first()["c"] == 2
    renew_view(place.spark, "native_numbers")
    assert place.spark.sql(query).first()["c"] == 3


def native_micro_batch(place: Place) -> None:
    """The checkpoint of a query says what a batch read, also behind its end."""
    from txnlog.spark import micro_batch

    numbers(place)
    frame = place.spark.readStream.format("txnlog").option("topic", "numbers")
    frame = frame.option("startingOffsets", "earliest").load(place.path)
    checkpoint = str(place.folder / "checkpoint")
    writer = (
        frame.writeStream.format("txnlog").option("topic", "copy").option("checkpointLocation", checkpoint)
    )
    assert writer.trigger(availableNow=True).start(place.path).awaitTermination(300)
    found = micro_batch(place.spark, checkpoint, 0, place.path, "numbers", native_bytes_min=0)
    assert sorted(row.n for row in found.collect()) == [1, 2]


FEATURES = (
    Feature("reads: isolation levels, offsets, columns, metadata columns", read),
    Feature("one version for all actions on a DataFrame", pinned),
    Feature("right rows with Spark's filter push-down switched on", filters),
    Feature("atomic writes, exactly once by `txnAppId` and `txnVersion`", write),
    Feature("rows routed by a column `topic`", route),
    Feature("errors with a code", errors),
    Feature("temporary views: `SELECT`, `INSERT INTO`", view),
    Feature("`read_table` and `describe`: natively, by the driver and by the data source", native_table),
    Feature("`read_tables`: several topics at one entry", native_tables),
    Feature("`create_view` and `renew_view`", native_view),
    Feature("`micro_batch`", native_micro_batch),
    Feature("streams by `foreachBatch`", foreach_batch),
    Feature("streams by `writeStream`, exactly once, also when Spark repeats a batch", stream),
    Feature("streams by `readStream`, in both orders, from topic to topic", stream_source),
    Feature("columns of plain types", plain_types),
    Feature("columns of `variant`", variants),
    Feature("columns of `interval day to second`", intervals),
    Feature("columns of `time`", times),
    Feature("writes from threads, after `register(spark)`", threads),  # last: the others run unregistered
)

OFFERS = {
    "Arrow writers of batches": "DataSourceArrowWriter",
    "Arrow writers of streams": "DataSourceStreamArrowWriter",
    "admission control of streams (`latestOffset` with a limit)": "ReadLimit",
    "`Trigger.AvailableNow` for Python streams": "SupportsTriggerAvailableNow",
}
"""What streams are built on: name in ``pyspark.sql.datasource`` or ``pyspark.sql.streaming.datasource``."""
