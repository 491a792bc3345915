"""Micro-batches, read natively inside foreachBatch: the rows of the DataFrame that Spark hands over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.histories import NUMBERS, Transactions, append, numbers
from tests.spark.native.tables import multiset
from txnformat.errors import ConflictError, InvalidInputError, NotFoundError
from txnformat.log import TxnLog
from txnformat.types import Outcome
from txnlog.spark import micro_batch

COLUMNS = ["n", "_partition", "_offset"]


@pytest.mark.parametrize("starting", ["earliest", "latest", '{"0": 3, "1": 0}'])
def test_micro_batches_have_the_rows_that_spark_hands_over(
    spark: Any, log: TxnLog, path: str, tmp_path: Path, starting: str
) -> None:
    log.create_topic("numbers", NUMBERS, partitions=2)
    append(log, "numbers", {0: [numbers(0, 5)], 1: [numbers(5, 7)]})
    checkpoint = str(tmp_path / "checkpoint")
    seen: list[tuple[int, int]] = []

    def compare(frame: Any, batch_id: int) -> None:
        natively = micro_batch(
            frame.sparkSession, checkpoint, batch_id, path, "numbers", columns=COLUMNS, native_bytes_min=0
        )
        expected = frame.toArrow()
        assert multiset(natively.toArrow()) == multiset(expected)
        seen.append((batch_id, expected.num_rows))

    def run() -> None:
        frame = spark.readStream.format("txnlog").option("topic", "numbers")
        frame = frame.option("columns", ",".join(COLUMNS)).option("startingOffsets", starting).load(path)
        query = frame.writeStream.foreachBatch(compare).option("checkpointLocation", checkpoint)
        running = query.trigger(availableNow=True).start()
        running.awaitTermination(120)
        assert running.exception() is None

    run()
    producer = Transactions(log, "tx")
    producer.send("numbers", {0: [numbers(-5, 0)]})
    producer.end(Outcome.ABORT)
    append(log, "numbers", {1: [numbers(7, 9)]})
    run()
    log.alter_topic("numbers", partitions=3)
    append(log, "numbers", {2: [numbers(9, 12)]})
    run()
    expected = {"earliest": 12, "latest": 5, '{"0": 3, "1": 0}': 9}[starting]
    assert sum(rows for _, rows in seen) == expected
    last = seen[-1][0]
    again = micro_batch(spark, checkpoint, last, path, "numbers", columns=COLUMNS)
    assert again.count() == seen[-1][1]
    with pytest.raises(NotFoundError, match="has no such batch") as unknown:
        micro_batch(spark, checkpoint, last + 1, path, "numbers")
    assert unknown.value.kind == "unknown-batch"
    with pytest.raises(
        InvalidInputError,
        match=r"no source that reads the topic.*the batch has rows of numbers: check the name",
    ):
        micro_batch(spark, checkpoint, last, path, "texts")
    with pytest.raises(InvalidInputError, match="start is given") as given:
        micro_batch(spark, checkpoint, -1, path, "numbers", start=1)
    assert len(given.value.problems) == 2
    with TxnLog.create(tmp_path / "other") as other:
        other.create_topic("numbers", NUMBERS, partitions=3)
        append(other, "numbers", {number: [numbers(0, 50)] for number in range(3)})
    with pytest.raises(ConflictError):
        micro_batch(spark, checkpoint, last, tmp_path / "other", "numbers")
