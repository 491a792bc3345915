"""SparkTransaction: failures, other instances, and versions that somebody else commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_datasource.write.transaction import NAMESPACE, transactional_id_of
from tests.spark.sessions import BOTH_SESSIONS
from tests.spark.transactions import Numbers, caught, rows, status, version
from txnformat.core.transactions.state import TransactionStatus
from txnlog import (
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Producer,
    ProducerFencedError,
    SparkTransaction,
    StaleAppVersionError,
    TransactionTimedOutError,
    TxnLog,
)


@BOTH_SESSIONS
def test_an_exception_aborts_and_the_version_can_be_written_then(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    before = log.refresh().entry

    def job() -> None:
        with SparkTransaction(spark, path, "job", 1) as txn:
            txn.write(numbers(0, 5), "numbers")
            txn.write(numbers(0, 5), "new")
            raise ZeroDivisionError

    caught(ZeroDivisionError, job)
    assert log.refresh().entry == before + 4
    assert status(log) is TransactionStatus.COMPLETE_ABORT
    assert (rows(log, "numbers"), rows(log, "new")) == ([], []), "the topic stays, empty"
    with SparkTransaction(spark, path, "job", 1) as txn:
        txn.write(numbers(0, 5), "numbers")
    assert rows(log, "numbers") == list(range(5))
    assert log.verify(deep=True).ok


@BOTH_SESSIONS
def test_a_job_that_fails_takes_the_transaction_with_it_also_when_the_error_is_swallowed(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    def job() -> None:
        with SparkTransaction(spark, path, "job", 1) as txn:
            txn.write(numbers(0, 5), "numbers")
            with pytest.raises(PySparkException, match="broken row"):
                txn.write(numbers(0, 5).selectExpr("if(n = 3, raise_error('broken row'), n) AS n"), "numbers")
            with pytest.raises(
                InvalidTransactionStateError, match=r"write\(\).* a write .* has failed"
            ) as again:
                txn.write(numbers(0, 5), "numbers")
            assert isinstance(again.value.__cause__, PySparkException)

    error = caught(InvalidTransactionStateError, job)
    assert error.kind == "abort-required"
    assert str(error).startswith("commit() is not possible now: a write of this transaction has failed")
    assert isinstance(error.__cause__, PySparkException), "which says what went wrong first"
    assert status(log) is TransactionStatus.COMPLETE_ABORT
    assert (rows(log, "numbers"), version(log)) == ([], None)


@BOTH_SESSIONS
def test_what_is_wrong_with_a_frame_is_said_as_from_python(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    def job() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5, "1 AS other"), "numbers")

    error = caught(InvalidInputError, job)
    assert error.kind == "schema-mismatch"
    assert "other" in str(error)
    assert "\n" not in str(error)
    assert error.__suppress_context__

    def routed() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5, "if(id = 4, null, 'numbers') AS topic"))  # said by a task

    error = caught(InvalidInputError, routed)
    assert error.kind == "unroutable-rows"
    assert "\n" not in str(error)

    def absent() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5), "absent", createTopics=False)

    assert caught(NotFoundError, absent).kind == "unknown-topic"
    assert "absent" not in log.topics()
    assert rows(log, "numbers") == []


@BOTH_SESSIONS
def test_a_newer_instance_fences_the_older_and_nothing_of_that_shows(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    def job() -> None:
        with SparkTransaction(spark, path, "job", 1) as old:
            old.write(numbers(0, 5), "numbers")
            with SparkTransaction(spark, path, "job", 2) as new:
                new.write(numbers(5, 8), "numbers")
                old.write(numbers(0, 5), "numbers")

    error = caught(ProducerFencedError, job)
    assert error.kind == "producer-fenced"
    assert "newer instance" in str(error)
    assert "Traceback" not in str(error)
    # What left the outer block left the inner one, too.
    assert (rows(log, "numbers"), version(log)) == ([], None)


def test_the_older_instance_is_fenced_at_its_commit_and_of_the_same_version_it_is_done(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    def job() -> None:
        with SparkTransaction(spark, path, "job", 1) as old:
            old.write(numbers(0, 5), "numbers")
            with SparkTransaction(spark, path, "job") as new:
                new.write(numbers(5, 8), "numbers")

    caught(ProducerFencedError, job)
    assert rows(log, "numbers") == [5, 6, 7]
    with SparkTransaction(spark, path, "job", 1) as old:
        old.write(numbers(10, 15), "numbers")
        with SparkTransaction(spark, path, "job", 1) as new:
            new.write(numbers(10, 15), "numbers")
    assert old.is_done
    assert not new.is_done
    assert old.info is not None
    assert new.info is not None
    assert old.info.entry == new.info.entry
    assert rows(log, "numbers") == [5, 6, 7, 10, 11, 12, 13, 14]
    assert log.verify(deep=True).ok


def test_a_fenced_job_is_refused_before_its_tasks_and_again_by_its_entry(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None, tmp_path: Path
) -> None:
    def enters(batches: Any) -> Any:
        Path(marker).touch()
        with TxnLog.open(path) as own:
            from writers.job import JobProducer

            JobProducer(own, transactional_id_of("job")).init()
        yield from batches

    marker = str(tmp_path / "ran")

    def job() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5, tasks=1).mapInArrow(enters, "n long"), "numbers")

    caught(ProducerFencedError, job)
    assert Path(marker).exists()
    Path(marker).unlink()

    def late_job() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            SparkTransaction(spark, path, "job").__enter__()
            txn.write(numbers(0, 5, tasks=1).mapInArrow(enters, "n long"), "numbers")

    caught(ProducerFencedError, late_job)
    assert not Path(marker).exists()
    assert rows(log, "numbers", "read_uncommitted") == []


def test_a_version_below_the_newest_is_refused_before_anybody_is_fenced(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    with SparkTransaction(spark, path, "job", 4):
        pass
    with SparkTransaction(spark, path, "job", 5) as current:
        current.write(numbers(0, 5), "numbers")
        entry = log.refresh().entry
        with (
            pytest.raises(StaleAppVersionError, match="newest=`4`") as caught,
            SparkTransaction(spark, path, "job", 3),
        ):
            pytest.fail("entered")
        assert caught.value.kind == "stale-app-version"
        assert log.refresh().entry == entry
    assert rows(log, "numbers") == list(range(5))


def test_whoever_is_overtaken_by_a_later_version_commits_nothing(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    from txnformat.core.intents import AppRef, Write

    def job() -> None:
        with SparkTransaction(spark, path, "job", 5) as txn:
            txn.write(numbers(0, 5), "numbers")
            log.committer.commit(log.committer.intend(Write(app=AppRef(NAMESPACE, "job", 6))))

    caught(StaleAppVersionError, job)
    assert status(log) is TransactionStatus.COMPLETE_ABORT
    assert rows(log, "numbers") == []


def test_a_transaction_that_timed_out_says_so_and_can_be_run_again(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    def job() -> None:
        with SparkTransaction(spark, path, "job", 1, deferred_timeout_ms=1) as txn:
            txn.write(numbers(0, 5), "numbers")
            while not log.transactions.end_expired():
                pass
            txn.write(numbers(5, 6), "numbers")

    caught(TransactionTimedOutError, job)
    assert rows(log, "numbers") == []
    with SparkTransaction(spark, path, "job", 1) as txn:
        txn.write(numbers(0, 5), "numbers")
    assert rows(log, "numbers") == list(range(5))


def test_positions_that_somebody_else_has_moved_refuse_the_commit(
    spark: SparkSession, log: TxnLog, path: str, numbers: Numbers, topics: None
) -> None:
    with Producer(log) as producer:
        producer.send("texts", [{"n": 1, "text": ""}])

    def job() -> None:
        with SparkTransaction(spark, path, "job") as txn:
            txn.write(numbers(0, 5), "numbers")
            txn.send_offsets("readers", {("texts", 0): 1}, expected={("texts", 0): None})
            with Producer(log, "other") as other, other.transaction() as theirs:
                theirs.send_offsets("readers", {("texts", 0): 0})

    error = caught(ConflictError, job)
    assert error.kind == "offsets-changed"
    assert status(log) is TransactionStatus.COMPLETE_ABORT
    assert rows(log, "numbers") == []
