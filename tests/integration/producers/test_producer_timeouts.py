"""Timeouts as a producer and those around it see them: an error that says what to do, and work can go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.clients.failing import (
    ENTRY,
    NUMBERS,
    Plan,
    QuickClock,
    faulty,
    read,
    rows,
    unclear_commit,
)
from txnformat.core.transactions.state import DEFERRED_TIMEOUT_MS_MAX, MAX_TRANSACTION_TIMEOUT_MS
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    Outcome,
    Producer,
    ProducerFencedError,
    ProducerStatus,
    TransactionTimedOutError,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import FaultKind, FaultyStore

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
OPEN_IN_LOG = pytest.mark.parametrize(("buffer", "timeout_ms"), [("inline", MINUTE), ("deferred", DAY)])


class Time(QuickClock):
    """Time that a test lets pass."""

    def pass_ms(self, milliseconds: int) -> None:
        self.set_back(-milliseconds)


class Scene:
    """A log, its time, and another process that commits to it."""

    def __init__(self, longest_ms: int | None = None) -> None:
        self.time = Time()
        self.store = MemoryStore(self.time)
        self.log = TxnLog.create(self.store, clock=self.time, max_transaction_timeout_ms=longest_ms)
        self.log.create_topic("t", NUMBERS)
        self.other = TxnLog.open(self.store, clock=self.time)

    def opened(self, buffer: str, **settings: int) -> Producer:
        """Return a producer with an open transaction in the log."""
        producer = Producer(self.log, "p", buffer=buffer, **settings)  # type: ignore[arg-type]
        producer.init()
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        return producer

    def expire(self, milliseconds: int) -> None:
        """Let time pass, and somebody else commit anything."""
        self.time.pass_ms(
            milliseconds + 10
        )  # entries of one millisecond have log times that follow each other
        with Producer(self.other) as plain:
            plain.send("t", rows(7))


# --- as the producer sees it --------------------------------------------------------------------------------


@OPEN_IN_LOG
@pytest.mark.parametrize("call", ["send", "flush", "commit", "prepare"])
def test_a_transaction_that_timed_out_says_so_and_the_next_one_works(
    buffer: str, timeout_ms: int, call: str
) -> None:
    scene = Scene()
    producer = scene.opened(buffer, batch_bytes=1, roll_bytes=1)
    scene.expire(timeout_ms)
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: producer.send("t", rows(3)),
        "flush": producer.flush,
        "commit": producer.commit,
        "prepare": producer.prepare,
    }
    if call != "commit":
        producer.send("t", rows(2))
    with pytest.raises(TransactionTimedOutError):
        calls[call]()
    assert producer.status is ProducerStatus.ABORT_REQUIRED
    for later in calls.values():
        with pytest.raises(InvalidTransactionStateError) as caught:
            later()
        assert caught.value.kind == "abort-required"
    before = scene.log.refresh().entry
    producer.abort()
    assert scene.log.refresh().entry == before, "the log has the abort already"
    assert (producer.status, producer.epoch) == (ProducerStatus.READY, 1)
    with producer.transaction() as txn:
        txn.send("t", rows(4))
    assert read(scene.log) == [7, 4]
    producer.close()


@OPEN_IN_LOG
def test_a_block_tells_of_the_timeout_once_and_the_producer_goes_on(buffer: str, timeout_ms: int) -> None:
    scene = Scene()
    with Producer(scene.log, "p", buffer=buffer) as producer:
        for flushes_late in (True, False):

            def work(flushes_late: bool = flushes_late) -> None:
                with producer.transaction() as txn:
                    txn.send("t", rows(1))
                    txn.flush()
                    scene.expire(timeout_ms)
                    if flushes_late:
                        txn.send("t", rows(2))
                        txn.flush()

            with pytest.raises(TransactionTimedOutError) as caught:
                work()
            assert not hasattr(caught.value, "__notes__")
            assert producer.status is ProducerStatus.READY
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(scene.log) == [7, 7, 3]


@OPEN_IN_LOG
def test_nothing_times_out_early(buffer: str, timeout_ms: int) -> None:
    scene = Scene()
    producer = scene.opened(buffer)
    scene.expire(timeout_ms - MINUTE)
    producer.commit()
    assert read(scene.log) == ([1, 7] if buffer == "inline" else [7, 1])


def test_each_flush_of_a_deferred_transaction_prolongs_it_and_none_of_an_inline_one() -> None:
    for buffer, timeouts, committed in (("deferred", 7, True), ("inline", 7, False)):
        scene = Scene()
        producer = scene.opened(buffer, transaction_timeout_ms=10 * MINUTE, deferred_timeout_ms=10 * MINUTE)
        for _ in range(timeouts):
            scene.expire(9 * MINUTE)
            try:
                producer.send("t", rows(2))
                producer.flush()
            except TransactionTimedOutError:
                break
        if committed:
            producer.commit()
        assert read(scene.log).count(2) == (timeouts if committed else 0)


def test_a_one_shot_is_never_open_in_the_log_and_has_no_time() -> None:
    scene = Scene()
    with Producer(scene.log, "p") as producer, producer.transaction() as txn:
        txn.send("t", rows(1))
        txn.flush()
        scene.expire(30 * MINUTE)
        assert scene.other.committer.end_expired() == []
    assert read(scene.log) == [7, 1]


def test_closing_after_a_timeout_is_no_error() -> None:
    scene = Scene()
    with scene.opened("inline"):
        scene.expire(MINUTE)
    assert scene.log.outcome("p", 0).cause == "timeout"
    assert read(scene.log) == [7]


def test_an_unknown_commit_that_timed_out_is_known_not_to_be_there() -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log, "p", buffer="inline", transaction_timeout_ms=1) as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        unclear_commit(plan, FaultKind.FAIL_BEFORE)
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        plan.clear()
        assert len(TxnLog.open(log.store, clock=log.committer.clock).committer.end_expired()) == 1
        with pytest.raises(TransactionTimedOutError):
            producer.commit()
        producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(2))
    assert read(log) == [2]
    assert plan.seen[ENTRY]


def test_what_timed_out_and_was_opened_anew_is_fenced_after_its_abort() -> None:
    scene = Scene()
    old = scene.opened("inline")
    scene.expire(MINUTE)
    with Producer(scene.other, "p") as new:
        old.send("t", rows(2))
        with pytest.raises(ProducerFencedError):
            old.flush()
        with new.transaction() as txn:
            txn.send("t", rows(3))
    assert read(scene.log) == [7, 3]


def test_a_transaction_that_an_operator_aborts_ends_its_producer() -> None:
    for buffer in ("inline", "deferred"):
        scene = Scene()
        producer = scene.opened(buffer)
        scene.other.transactions.abort("p")
        for call in (producer.commit, producer.abort, producer.begin):
            with pytest.raises(ProducerFencedError) as caught:
                call()
            assert caught.value.kind == "aborted-by-operator"
        assert producer.status is ProducerStatus.FENCED
        producer.close()
        assert read(scene.log) == []
        assert scene.log.outcome("p", 0).outcome is Outcome.ABORT


# --- settings -----------------------------------------------------------------------------------------------


def test_every_bad_timeout_is_told_at_once_and_before_anything_is_asked() -> None:
    log = TxnLog(MemoryStore())  # there is no log: whoever asks it fails
    with pytest.raises(InvalidInputError) as caught:
        Producer(
            log,
            "",
            enable_idempotence=False,
            transaction_timeout_ms=0,
            deferred_timeout_ms=DEFERRED_TIMEOUT_MS_MAX + 1,
        )
    assert len(caught.value.problems) == 4
    bad: list[object] = [0, -1, True, 1.5, "60000", None]
    for value in bad:
        for name in ("transaction_timeout_ms", "deferred_timeout_ms"):
            with pytest.raises(InvalidInputError) as caught:
                Producer(log, "p", **{name: value})  # type: ignore[arg-type]
            assert caught.value.kind == "invalid-settings"
            assert len(caught.value.problems) == 1
    Producer(log, "p", transaction_timeout_ms=1, deferred_timeout_ms=DEFERRED_TIMEOUT_MS_MAX)


def _refused_by_init(log: TxnLog, timeout_ms: int) -> None:
    before = log.refresh()
    producer = Producer(log, "p", transaction_timeout_ms=timeout_ms)
    with pytest.raises(InvalidInputError) as caught:
        producer.init()
    assert caught.value.kind == "invalid-transaction-timeout"
    assert (log.refresh(), producer.status) == (before, ProducerStatus.UNINITIALISED)


def test_a_log_says_how_long_the_longest_timeout_is() -> None:
    scene = Scene()
    assert scene.log.describe().max_transaction_timeout_ms == MAX_TRANSACTION_TIMEOUT_MS
    _refused_by_init(scene.log, MAX_TRANSACTION_TIMEOUT_MS + 1)
    Producer(scene.log, "p", transaction_timeout_ms=MAX_TRANSACTION_TIMEOUT_MS).init()
    for longest in (5_000, 3 * DAY):
        scene = Scene(longest)
        for log in (scene.log, scene.other, TxnLog.open(scene.store, clock=scene.time)):
            assert log.describe().max_transaction_timeout_ms == longest
        _refused_by_init(scene.other, longest + 1)
        producer = scene.opened("inline", transaction_timeout_ms=longest)
        known = scene.log.refresh().transactional_ids["p"]
        assert known.timeout_ms == longest
        scene.expire(longest)
        with pytest.raises(TransactionTimedOutError):
            producer.commit()


def test_a_longest_timeout_costs_one_entry_and_no_more_later() -> None:
    """Given, it is in the first entry, which comes with the log: so no producer of another process can miss
    it."""
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store, max_transaction_timeout_ms=5_000)
    assert log.state.entry == 0
    assert store.counts.count(RequestKind.CREATE, KeyClass.ENTRY) == 1
    plain = TxnLog.create(MemoryStore())
    assert plain.state.entry == -1


@pytest.mark.parametrize("longest", [0, -1, DEFERRED_TIMEOUT_MS_MAX + 1, True, 1.5, "1"])
def test_a_longest_timeout_that_cannot_be_leaves_no_log(longest: int) -> None:
    store = MemoryStore()
    with pytest.raises(InvalidInputError) as caught:
        TxnLog.create(store, max_transaction_timeout_ms=longest)
    assert caught.value.kind == "invalid-transaction-timeout"
    assert store.list("") == []


def test_whoever_begins_the_log_first_says_the_longest_timeout() -> None:
    """Another process's first entry comes between format.json and our own."""
    armed: list[object] = [1]

    def before_create(key: str) -> None:
        if "/log/" in key and armed:
            armed.clear()
            TxnLog.open(store).create_topic("t", NUMBERS)

    store = MemoryStore()
    with pytest.raises(ConflictError) as caught:
        TxnLog.create(FaultyStore(store, before_create=before_create), max_transaction_timeout_ms=5_000)
    assert caught.value.kind == "log-exists"
    assert TxnLog.open(store).describe().max_transaction_timeout_ms == MAX_TRANSACTION_TIMEOUT_MS
