"""SparkTransaction while the store fails, and while somebody else commits between any two of its steps. No
Spark job runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_datasource.write.transaction import NAMESPACE
from tests.integration.clients.failing import ENTRY, Plan, QuickClock, unclear_commit
from tests.killing.points import Answer, KillingStore, Points
from tests.spark.transactions import caught, rows, version
from txnformat.core.intents import AppRef, Write
from txnformat.protocol.commit import CommitSettings
from txnformat.store.base import ObjectStore
from txnformat.store.open import open_store
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import (
    CommitStateUnknownError,
    ProducerFencedError,
    SparkTransaction,
    StaleAppVersionError,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

DEADLINE_MS = 1_000


class Clock(QuickClock):
    """Begins with the time of the disk, as the log asks of clocks, and passes where somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self._ms = time.time() * 1_000


class Through(SparkTransaction):
    """A transaction through a store of the test's."""

    def __init__(self, *args: Any, through: Callable[[ObjectStore], ObjectStore], **more: Any) -> None:
        super().__init__(*args, **more)
        self.through = through
        self.clock = Clock()

    def _open_log(self) -> TxnLog:
        settings = CommitSettings(deadline_ms=DEADLINE_MS)
        return TxnLog.open(self.through(open_store(self._path)), clock=self.clock, settings=settings)


class Interrupted(KillingStore):
    """Lets something happen just before the next entry is created."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, Points(None, 0, None))  # type: ignore[arg-type]  # never reached
        self.happens: Callable[[], object] | None = None

    def around(self, key: str, request: Callable[[], Answer]) -> Answer:
        if key_class(key) is KeyClass.ENTRY and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return request()


def commit_version(log: TxnLog, number: int) -> None:
    log.committer.commit(log.committer.intend(Write(app=AppRef(NAMESPACE, "job", number))))


@pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)
@pytest.mark.parametrize("number", [1, None])
def test_a_commit_without_an_answer_is_repeated_and_then_told(
    spark: SparkSession,
    log: TxnLog,
    path: str,
    topics: None,
    kind: FaultKind,
    landed: bool,
    number: int | None,
) -> None:
    plan = Plan()

    def job() -> None:
        with Through(spark, path, "job", number, through=lambda store: FaultyStore(store, plan)) as txn:
            txn.send("numbers", [{"n": 1}])
            unclear_commit(plan, kind)

    error = caught(CommitStateUnknownError, job)
    assert ("same version" in str(error)) == (number is not None)
    assert rows(log, "numbers") == ([1] if landed else [])
    plan.clear()
    if number is None:
        return
    with SparkTransaction(spark, path, "job", number) as again:
        assert again.is_done is landed
        again.send("numbers", [{"n": 1}])
    assert rows(log, "numbers") == [1]
    assert log.verify(deep=True).ok


def test_a_store_that_comes_back_in_time_is_no_error(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    plan = Plan()
    until: list[int] = []

    def fault(operation: RequestKind, key: str, nth: int) -> Fault | None:
        if until and txn.clock.now().wall_ms > until[0]:
            return None
        return plan(operation, key, nth)

    txn = Through(spark, path, "job", 1, through=lambda store: FaultyStore(store, fault))
    before = log.refresh().entry
    with txn:
        txn.send("numbers", [{"n": 1}])
        unclear_commit(plan, FaultKind.APPLIED_LOST_ANSWER)
        until.append(txn.clock.now().wall_ms + DEADLINE_MS * 3 // 2)  # the second try's
    assert not txn.is_done
    assert log.refresh().entry == before + 2
    assert rows(log, "numbers") == [1]


def test_a_commit_that_the_store_refuses_aborts(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    plan = Plan()

    def job() -> None:
        with Through(spark, path, "job", 1, through=lambda store: FaultyStore(store, plan)) as txn:
            txn.send("numbers", [{"n": 1}])
            plan.next(*ENTRY, Fault(FaultKind.PERMISSION_DENIED))

    caught(StorageError, job)
    assert (rows(log, "numbers"), version(log)) == ([], None)
    assert log.refresh().undecided == frozenset()


def test_a_version_that_comes_just_before_the_producer_opens_is_seen(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    stores: list[Interrupted] = []

    def through(store: ObjectStore) -> ObjectStore:
        stores.append(Interrupted(store))
        stores[-1].happens = lambda: commit_version(log, 5)
        return stores[-1]

    with Through(spark, path, "job", 5, through=through) as txn:
        assert txn.is_done
        txn.send("numbers", [{"n": 1}])
    assert rows(log, "numbers") == []

    def through_later(store: ObjectStore) -> ObjectStore:
        stores.append(Interrupted(store))
        stores[-1].happens = lambda: commit_version(log, 7)
        return stores[-1]

    def job() -> None:
        with Through(spark, path, "job", 6, through=through_later):
            pytest.fail("entered")

    caught(StaleAppVersionError, job)


def test_an_instance_that_comes_just_before_the_commit_wins(
    spark: SparkSession, log: TxnLog, path: str, topics: None
) -> None:
    stores: list[Interrupted] = []

    def through(store: ObjectStore) -> ObjectStore:
        stores.append(Interrupted(store))
        return stores[-1]

    def newer() -> None:
        with SparkTransaction(spark, path, "job", 1) as txn:
            txn.send("numbers", [{"n": 2}])

    with Through(spark, path, "job", 1, through=through) as txn:
        txn.send("numbers", [{"n": 1}])
        stores[-1].happens = newer
    assert txn.is_done
    assert rows(log, "numbers") == [2]

    def fenced() -> None:
        with Through(spark, path, "job", 2, through=through) as txn:
            txn.send("numbers", [{"n": 1}])
            stores[-1].happens = SparkTransaction(spark, path, "job").__enter__

    caught(ProducerFencedError, fenced)
    assert rows(log, "numbers") == [2]
    assert log.verify(deep=True).ok
