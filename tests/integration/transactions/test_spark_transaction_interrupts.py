"""SparkTransaction without Spark: an exception of a signal handler at any point, and what the log and the
next run say.

The frames of these tests are Spark's class, and stage from this process what tasks and driver of a job would.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Self

import pytest
from pyspark.sql import DataFrame

from spark_datasource.options.delegation import delegated_by
from spark_datasource.write.transaction import SparkTransaction
from tests.integration.clients.failing import NUMBERS, read, rows
from tests.integration.producers.staging import stage
from txnformat.core.transactions.state import TransactionStatus
from txnformat.store.memory import MemoryStore
from txnlog import InvalidTransactionStateError, ProducerFencedError, TxnLog
from txnlog_testing.interrupts import Point, interrupted_at_each, record, thinned

PLACES = ("spark_datasource/write/transaction", "writers/calls.py", "txnformat/shield.py")
"""Where the user's thread is in a call; the rest of it is on a library thread, or in what stands for the job.
"""


class _Interrupt(Exception):
    """What the signal handler of these tests raises."""


class _Spark:
    """What the constructor asks of a session; not a classic one, so no JVM is looked for."""

    conf = None

    def createDataFrame(self) -> NoReturn:  # Spark's name
        raise AssertionError


SPARK: Any = _Spark()


class Frame(DataFrame):
    """A frame whose job is a function."""

    isStreaming = False  # Spark's name
    columns = ["n"]  # noqa: RUF012
    sparkSession = SPARK  # Spark's name

    def __new__(cls, *_: object, **__: object) -> Self:
        return object.__new__(cls)

    def __init__(
        self, store: MemoryStore, *numbers: int, before: Callable[[], object] = lambda: None
    ) -> None:
        self._store, self._numbers, self._before = store, numbers, before
        self._given: dict[str, str] = {}

    @property
    def write(self) -> Any:
        return self

    def format(self, _: str) -> Frame:
        return self

    mode = format

    def options(self, **given: str) -> Frame:
        self._given = given
        return self

    def save(self, _: str) -> None:
        self._before()
        delegation = delegated_by(self._given)[1]
        assert delegation is not None
        with TxnLog.open(self._store) as log:
            stage(log, delegation.producer, *self._numbers)


class _Transaction(SparkTransaction):
    """One whose log is in memory."""

    def __init__(self, store: MemoryStore, app_id: str, version: int) -> None:
        super().__init__(SPARK, "log", app_id, version)
        self._store = store

    def _open_log(self) -> TxnLog:
        return TxnLog.open(self._store)


class Trials:
    """A log, and transactions of a job of its own each."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.log = TxnLog.create(self.store)
        self.log.create_topic("t", NUMBERS)
        self._names = itertools.count()
        self.version = 7
        self.begin()

    def begin(self) -> SparkTransaction:
        self.name = f"job-{next(self._names)}"
        return self.again()

    def again(self) -> SparkTransaction:
        return _Transaction(self.store, self.name, self.version)

    def each(
        self, before: Callable[[SparkTransaction], object], call: Callable[[SparkTransaction], object]
    ) -> Iterator[tuple[SparkTransaction, Point]]:
        for _ in range(2):
            transaction = self.begin()
            before(transaction)
            with record() as points:
                call(transaction)
        points = [point for point in thinned(points, per_place=1) if point.place.startswith(PLACES)]
        assert points

        def begin() -> SparkTransaction:
            transaction = self.begin()
            before(transaction)
            return transaction

        yield from interrupted_at_each(points, begin, call, _Interrupt)

    def status(self) -> TransactionStatus | None:
        owner = self.log.refresh().transactional_ids.get(f"spark/{self.name}")
        return None if owner is None else owner.status

    def visible(self) -> list[int]:
        """Return what is there of the newest trial, whose records have its number."""
        return [number for number in read(self.log) if number == self.number]

    @property
    def number(self) -> int:
        return int(self.name.removeprefix("job-"))


@pytest.fixture
def trials() -> Trials:
    return Trials()


def _enter(transaction: SparkTransaction) -> None:
    transaction.__enter__()


def _leave(transaction: SparkTransaction) -> None:
    transaction.__exit__(None, None, None)


def _send(trials: Trials, transaction: SparkTransaction) -> None:
    transaction.send("t", rows(trials.number))


def run_again(trials: Trials) -> None:
    """Run the same version as a job that is started anew; it is done once, and says so."""
    was_there = trials.visible() != []
    with trials.again() as transaction:
        assert transaction.is_done is was_there
        _send(trials, transaction)
    assert trials.visible() == [trials.number]


def test_whoever_was_interrupted_while_entering_has_begun_nothing(trials: Trials) -> None:
    for transaction, point in trials.each(lambda _: None, _enter):
        assert trials.status() is not TransactionStatus.ONGOING, point
        with pytest.raises(InvalidTransactionStateError, match=r"is over|was not entered"):
            _send(trials, transaction)
        run_again(trials)


def test_a_send_that_was_interrupted_leaves_only_the_abort(trials: Trials) -> None:
    for transaction, point in trials.each(_enter, lambda transaction: _send(trials, transaction)):
        try:
            _leave(transaction)
        except InvalidTransactionStateError:
            assert trials.visible() == [], point
        else:
            assert trials.visible() in ([], [trials.number]), point
        assert trials.status() is not TransactionStatus.ONGOING, point
        if trials.visible():
            continue
        trials.version += 1
        run_again(trials)


@pytest.mark.parametrize("by_error", [False, True])
def test_a_write_that_was_interrupted_leaves_only_the_abort(trials: Trials, *, by_error: bool) -> None:
    def call(transaction: SparkTransaction) -> None:
        transaction.write(Frame(trials.store, trials.number), "t")

    for transaction, point in trials.each(_enter, call):
        if by_error:
            transaction.__exit__(_Interrupt, _Interrupt(), None)
            assert (transaction.info, trials.visible()) == (None, []), point
        else:
            try:
                _leave(transaction)
            except InvalidTransactionStateError:
                assert (transaction.info, trials.visible()) == (None, []), point
            else:
                assert transaction.info is not None
                assert trials.visible() in ([], [trials.number]), point
        assert trials.status() is not TransactionStatus.ONGOING, point


def test_an_exit_that_was_interrupted_is_asked_again(trials: Trials) -> None:
    def before(transaction: SparkTransaction) -> None:
        _enter(transaction)
        _send(trials, transaction)

    for transaction, point in trials.each(before, _leave):
        _leave(transaction)
        assert trials.visible() == [trials.number], point
        assert transaction.info is not None
        assert not transaction.is_done
        run_again(trials)


def test_an_exit_that_was_interrupted_may_be_an_abort_or_have_committed(trials: Trials) -> None:
    def before(transaction: SparkTransaction) -> None:
        _enter(transaction)
        _send(trials, transaction)

    for transaction, point in trials.each(before, _leave):
        transaction.__exit__(_Interrupt, _Interrupt(), None)
        assert (transaction.info is not None) is (trials.visible() == [trials.number]), point
        assert trials.status() is not TransactionStatus.ONGOING, point
        run_again(trials)


def test_while_a_job_runs_others_wait_and_then_go_on(trials: Trials) -> None:
    began, go_on = threading.Event(), threading.Event()

    def job() -> None:
        began.set()
        go_on.wait()

    with trials.begin() as transaction:
        writer = threading.Thread(
            target=lambda: transaction.write(Frame(trials.store, trials.number, before=job), "t")
        )
        writer.start()
        began.wait()
        other = threading.Thread(target=lambda: _send(trials, transaction))
        other.start()
        assert transaction._calls.writing is not None
        go_on.set()
        _send(trials, transaction)
        other.join()
        writer.join()
    assert trials.visible() == [trials.number] * 3


def test_other_threads_are_not_held_up_by_a_job_that_was_interrupted(trials: Trials) -> None:
    def fail() -> NoReturn:
        raise _Interrupt

    transaction = trials.begin()
    _enter(transaction)
    with pytest.raises(_Interrupt):
        transaction.write(Frame(trials.store, trials.number, before=fail), "t")
    told: list[str] = []

    def send() -> None:
        try:
            _send(trials, transaction)
        except InvalidTransactionStateError as error:
            told.append(error.kind)

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert told == ["abort-required"]
    with pytest.raises(InvalidTransactionStateError):
        _leave(transaction)
    with pytest.raises(InvalidTransactionStateError):
        _leave(transaction)  # the same again
    assert trials.visible() == []


def test_a_job_that_is_fenced_while_it_was_interrupted_is_told_so(trials: Trials) -> None:
    transaction = trials.begin()
    _enter(transaction)
    _send(trials, transaction)
    with trials.again(), pytest.raises(ProducerFencedError):
        transaction.write(Frame(trials.store, trials.number), "t")
    transaction.__exit__(ValueError, ValueError(), None)
    assert trials.visible() == []
