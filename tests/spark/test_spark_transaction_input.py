"""SparkTransaction: what is refused, with which error, and that nothing was done then."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.sessions import BOTH_SESSIONS
from tests.spark.transactions import Numbers, rows
from txnlog import (
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    SparkTransaction,
    TxnLog,
)


@BOTH_SESSIONS
def test_what_is_no_batch_frame_or_no_option_is_refused_and_the_transaction_goes_on(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    before = log.refresh().entry
    stream = spark.readStream.format("rate").load()
    with SparkTransaction(spark, path, "job") as txn:
        for wrong, kind in (
            ([{"n": 1}], "not-a-dataframe"),
            (pa.table({"n": [1, 2]}), "not-a-dataframe"),
            (None, "not-a-dataframe"),
            (stream, "streaming-dataframe"),
        ):
            with pytest.raises(InvalidInputError) as caught:
                txn.write(wrong, "numbers")  # type: ignore[arg-type]
            assert caught.value.kind == kind
            assert "\n" not in str(caught.value), "tables show themselves in many lines"
        for options, text in (
            ({"partitons": 3}, "did you mean partitions"),
            ({"partitions": 0}, "from 1 on"),
            ({"partitions": True}, "from 1 on"),
            ({"keyColumns": ["n"]}, "use a text, a number or a boolean"),
            ({"txnVersion": 3, "path": "/x", "storage.key": "k"}, "belongs to the transaction"),
            ({"topic": "a,b"}, "a write has one topic"),
            ({"topic": ""}, "option topic is missing"),
            ({"topic": None}, "option topic is missing"),
            ({"topic": 7}, "not a name"),
        ):
            with pytest.raises(InvalidInputError, match=text) as caught:
                txn.write(numbers(0, 1), **{"topic": "numbers", **options})  # type: ignore[arg-type]
            assert caught.value.kind == "invalid-option"
        with pytest.raises(NotFoundError, match="absent"):
            txn.send("absent", [{"n": 1}])
        assert log.refresh().entry == before + 1
        txn.write(numbers(0, 5), "numbers")
    assert rows(log, "numbers") == list(range(5))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"app_id": ""}, "app_id is ''"),
        ({"app_id": None}, "app_id is None"),
        ({"app_id": "x" * 244}, "1 to 243 UTF-8 bytes"),
        ({"app_id": "\ud800"}, "app_id is"),
        ({"version": -1}, "version is -1"),
        ({"version": 2**63}, "version is"),
        ({"version": True}, "version is True"),
        ({"version": "3"}, "version is '3'"),
        ({"version": 1.0}, "version is 1.0"),
        ({"root": None}, "root is None"),
        ({"root": ""}, "root is ''"),
        ({"spark": None}, "not a SparkSession"),
        ({"storage_options": {"secret": "hush"}}, "storage.secret is for s3://"),
        ({"deferred_timeout_ms": 0, "app_id": "y"}, "deferred_timeout_ms is 0"),
    ],
)
def test_bad_arguments_are_refused_before_anything_happens(
    spark: SparkSession, log: TxnLog, path: str, given: dict[str, Any], text: str
) -> None:
    before = log.refresh().entry
    with (
        pytest.raises(InvalidInputError) as caught,
        SparkTransaction(**{"spark": spark, "root": path, "app_id": "job", **given}),
    ):
        pytest.fail("entered")
    assert text in str(caught.value)
    assert "hush" not in str(caught.value)
    assert log.refresh().entry == before


def test_use_outside_its_with_block_and_twice_is_refused(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    txn = SparkTransaction(spark, path, "job")
    with pytest.raises(InvalidTransactionStateError, match="was not entered"):
        txn.write(numbers(0, 1), "numbers")
    with pytest.raises(InvalidInputError, match="cannot be pickled"):
        pickle.dumps(txn)
    with txn:
        with pytest.raises(InvalidTransactionStateError) as caught:
            txn.__enter__()
        assert caught.value.kind == "transaction-open"
        txn.write(numbers(0, 1), "numbers")
    for call in (
        lambda: txn.write(numbers(0, 1), "numbers"),
        lambda: txn.send("numbers", [{"n": 1}]),
        lambda: txn.send_offsets("g", {("numbers", 0): 0}),
        lambda: txn.acknowledge(None, []),  # type: ignore[arg-type]
        lambda: txn.acknowledge_cumulative(None, []),  # type: ignore[arg-type]
        txn.__enter__,
    ):
        with pytest.raises(InvalidTransactionStateError) as caught:
            call()
        assert caught.value.kind == "no-transaction"
    assert rows(log, "numbers") == [0]


def test_where_there_is_no_log_it_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught, SparkTransaction(spark, tmp_path / "nothing", "job"):
        pytest.fail("entered")
    assert caught.value.kind == "no-log"
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_that_of_this_process(
    spark: SparkSession,
    log: TxnLog,
    path: str,
    numbers: Numbers,
    topics: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(Path(path).parent)
    with SparkTransaction(spark, "log", "job") as txn:
        txn.write(numbers(0, 1), "numbers")
    assert rows(log, "numbers") == [0]


def test_the_internal_option_is_not_for_users(
    spark: SparkSession, path: str, numbers: Numbers, topics: None
) -> None:
    writer = numbers(0, 1).write.format("txnlog").mode("append").option("topic", "numbers")
    with pytest.raises(AnalysisException, match=r"write with SparkTransaction\.write"):
        writer.option("_transaction", "mine").save(path)


class Five:
    """An integer that is no int."""

    def __index__(self) -> int:
        return 5


@pytest.mark.parametrize("version", [5, np.int64(5), np.uint8(5), np.array(5), Five()])
def test_a_version_is_an_integer_of_any_type(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, version: Any
) -> None:
    for expected in (False, True):
        with SparkTransaction(spark, path, "job", version) as txn:
            assert (txn.is_done, repr(txn).endswith("version=5)")) == (expected, True)
            txn.write(numbers(0, 3), "t", partitions=np.int32(2))
    assert log.refresh().topic("t").partitions == 2
    assert rows(log, "t") == [0, 1, 2]


@pytest.mark.parametrize(
    "version", [True, np.True_, 5.0, "5", np.float64(5), np.int64(-1), 2**63, np.array([5, 6])]
)
def test_what_is_no_version_is_refused(spark: SparkSession, path: str, version: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a whole number from 0") as caught:
        SparkTransaction(spark, path, "job", version)
    assert caught.value.kind == "invalid-spark-transaction"
