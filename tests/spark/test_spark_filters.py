"""Filters on reused DataFrames: why the reader leaves pushFilters alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_datasource.read.reader import TxnLogBatchReader
from tests.spark.histories import NUMBERS, append, numbers
from txnformat.log import TxnLog

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class PushingSource(DataSource):
    """A minimal source that takes ``n = constant`` over from Spark and prunes by it."""

    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader()


class PushingReader(DataSourceReader):
    def __init__(self) -> None:
        self.only: Any = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for found in filters:
            if isinstance(found, EqualTo) and found.attribute == ("n",):
                self.only = found.value
            else:
                yield found

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return iter([(n,) for n in (1, 2, 3) if self.only is None or n == self.only])


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def counts(frame: DataFrame) -> list[int]:
    """Count one DataFrame filtered, whole, in a union and in a self join."""
    union = frame.where("n = 1").union(frame.where("n = 2"))
    left, right = frame.where("n = 1").alias("l"), frame.where("n <= 3").alias("r")
    return [
        frame.where("n = 2").count(),
        frame.count(),
        union.distinct().count(),
        left.crossJoin(right).count(),
    ]


RIGHT = [1, 3, 2, 3]


def test_spark_mixes_up_the_filters_of_a_reused_frame(spark: SparkSession, pushdown: None) -> None:
    """The canary: when this fails, Spark is fixed, and pruning by pushed filters can be taken up.

    A fix is expected to bring limit pushdown with it (SPARK-58551); where that is there, the counts must be
    right.
    """
    spark.dataSource.register(PushingSource)
    found = counts(spark.read.format("pushing").load())
    if hasattr(DataSourceReader, "pushLimit"):
        assert found == RIGHT, "Spark has changed, but reused frames are still mixed up"
    else:
        assert found != RIGHT, "Spark is fixed without pushLimit: change how the fix is told"


def test_our_reader_does_not_take_part() -> None:
    assert TxnLogBatchReader.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_reused_frame_gives_the_right_rows(
    spark: SparkSession, log: TxnLog, read: Any, enabled: str
) -> None:
    log.create_topic("t", NUMBERS, partitions=2)
    append(log, "t", {0: [numbers(1, 3)], 1: [numbers(3, 4)]})
    spark.conf.set(PUSHDOWN, enabled)
    try:
        assert counts(read("t")) == RIGHT
    finally:
        spark.conf.unset(PUSHDOWN)
