"""Threads that share one log: group commit, interrupts, and the end of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

from txnformat.client.background import Background
from txnformat.client.committer import UNSENT_MAX
from txnformat.clock import Instant, SystemClock
from txnformat.core.intents import AllocateIds, CommitResult, Intent
from txnformat.core.operations import AllocateProducerIds
from txnformat.keys import entry_key
from txnformat.log import TxnLog
from txnformat.protocol.effects import ReadClock, Steps
from txnformat.protocol.view import View
from txnformat.store.base import CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.open import open_store
from txnlog_testing.stores.faulty import FaultyStore, Gate
from txnlog_testing.stores.latency import LatencyStore

THREADS = 16
COMMITS = 40


class Interrupt(BaseException):
    """Stands for whatever stops a thread from outside."""


def _intent(log: TxnLog) -> Intent:
    return log.committer.intend(AllocateIds("unit", 1))


def _in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def _wait_for(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(60_000):
        if condition():
            return
        waiting.wait(0.001)
    raise TimeoutError("what the test waits for did not come")


def test_many_threads_commit_each_intent_exactly_once() -> None:
    log = TxnLog.create(MemoryStore())
    given: list[int] = []
    lock = threading.Lock()

    def commit_some() -> None:
        for number in range(COMMITS):
            result = log.committer.commit(_intent(log))
            (operation,) = result.operations
            assert isinstance(operation, AllocateProducerIds)
            with lock:
                given.append(operation.first)
            if number % 8 == 0:
                log.refresh()

    threads = [_in_thread(commit_some) for _ in range(THREADS)]
    for thread in threads:
        thread.join(300)
    log.close()
    assert sorted(given) == list(range(THREADS * COMMITS))
    assert TxnLog.open(log.store).state.next_producer_id == THREADS * COMMITS


def test_a_caller_that_is_interrupted_while_it_waits_does_not_block_the_others() -> None:
    """Ctrl-C in a thread that is next to lead reaches its caller at once; its commit goes on, and nobody
    waits for ever."""
    memory = MemoryStore()
    TxnLog.create(memory).close()
    gate = Gate()
    log = TxnLog.open(FaultyStore(memory, before_create=gate))
    committer = log.committer
    answers: list[CommitResult] = []
    first = _in_thread(lambda: answers.append(committer.commit(_intent(log))))
    gate.wait_until_held()

    def interrupt() -> None:
        _wait_for(lambda: len(committer._queue) == 2)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    helper = _in_thread(interrupt)
    intent = _intent(log)
    with pytest.raises(KeyboardInterrupt):
        committer.commit(intent)
    helper.join(300)
    gate.open()
    first.join(300)
    last = _in_thread(lambda: answers.append(committer.commit(_intent(log))))
    last.join(300)
    assert [answer.entry for answer in answers][:1] == [1]
    assert committer.commit(intent).entry in (2, 3), "it is in the log once, however often it is asked for"
    assert log.refresh().next_producer_id == 3


class _Cutting(FaultyStore):
    """Cuts off whoever creates the given entry: before or after it is there."""

    def __init__(self, inner: MemoryStore, gate: Gate, entry: int, *, lands: bool) -> None:
        super().__init__(inner, before_create=gate)
        self._cut = [entry_key(entry)]
        self._lands = lands

    def create(self, key: str, data: bytes) -> CreateResult:
        if key not in self._cut:
            return super().create(key, data)
        self._cut.clear()
        if self._lands:
            super().create(key, data)
        raise Interrupt


@pytest.mark.parametrize("lands", [False, True])
def test_whoever_waits_for_a_leader_that_is_cut_off_is_committed_by_the_next(lands: bool) -> None:
    """What was on its way may have landed: the next leader commits the same intents again, and each is in the
    log once."""
    memory = MemoryStore()
    log = TxnLog.create(memory)
    log.committer.commit(_intent(log))
    gate = Gate()
    log = TxnLog.open(_Cutting(memory, gate, 3, lands=lands))
    answers: list[CommitResult] = []
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            answers.append(log.committer.commit(_intent(log)))
        except Interrupt as error:
            errors.append(error)

    threads = [_in_thread(commit)]
    gate.wait_until_held()  # entry 2; all others become one group, for entry 3
    threads += [_in_thread(commit) for _ in range(8)]
    _wait_for(lambda: len(log.committer._queue) == 9)
    gate.open()
    for thread in threads:
        thread.join(300)
    assert len(errors) == 1
    assert len(answers) == 8
    assert log.refresh().next_producer_id == 1 + 1 + 7 + lands
    assert not log.committer._queue
    assert not log.committer._lead


def test_an_intent_that_waits_twice_is_committed_once() -> None:
    """An interrupted commit goes on while its caller repeats it: both are in one group."""
    memory = MemoryStore()
    TxnLog.create(memory).close()
    gate = Gate()
    log = TxnLog.open(FaultyStore(memory, before_create=gate))
    first = _in_thread(lambda: log.committer.commit(_intent(log)))
    gate.wait_until_held()
    intent = _intent(log)
    answers: list[CommitResult] = []
    threads = [_in_thread(lambda: answers.append(log.committer.commit(intent))) for _ in range(4)]
    _wait_for(lambda: len(log.committer._queue) == 5)
    gate.open()
    for thread in (first, *threads):
        thread.join(300)
    assert {answer.entry for answer in answers} == {2}
    assert log.refresh().next_producer_id == 2


def test_nobody_who_looks_at_the_log_waits_for_a_commit() -> None:
    """A commit whose request hangs holds up neither refreshes nor reads; they see what others have
    committed.
    """
    memory = MemoryStore()
    other = TxnLog.create(memory)
    gate = Gate()
    log = TxnLog.open(FaultyStore(memory, before_create=gate))
    commit = _in_thread(lambda: log.committer.commit(_intent(log)))
    gate.wait_until_held()
    other.create_topic("t", pa.schema([("n", pa.int64())]))
    seen: list[object] = []

    def look() -> None:
        seen.append(log.refresh().entry)
        seen.append(log.read("t").read_all().num_rows)
        seen.append(log.transactions.list())

    thread = _in_thread(look)
    thread.join(300)
    looked = list(seen)
    gate.open()
    commit.join(300)
    thread.join(300)
    assert looked == [1, 0, ()]
    assert log.state.entry == 2
    assert log.state.next_producer_id == 1


def test_a_look_that_took_long_brings_back_nothing_old() -> None:
    """What is published is never older than what is known: a slow refresh ends after a faster commit."""
    log = TxnLog.create(MemoryStore())
    committer = log.committer
    old = committer._view
    assert old is not None
    committer.commit(_intent(log))
    newest = committer._view

    def slow(_view: View) -> Steps[View]:
        yield ReadClock()
        return old

    assert committer.run(slow).entry == 1
    assert committer._view is newest


def test_intents_whose_callers_were_interrupted_are_not_kept_for_ever() -> None:
    log = TxnLog.create(MemoryStore())
    intents = [_intent(log) for _ in range(2 * UNSENT_MAX)]
    assert len(log.committer._unsent) <= UNSENT_MAX
    assert log.committer.commit(intents[0]).entry == 1
    assert log.committer.commit(intents[-1]).entry == 2


def test_a_background_job_that_hangs_is_left_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    class Hasty(SystemClock):
        passed_ms = 0

        def now(self) -> Instant:
            self.passed_ms += 50_000
            return Instant(self.passed_ms, self.passed_ms)

    go_on = threading.Event()
    background = Background(Hasty())
    background.start("snapshot", go_on.wait)
    background.wait()
    assert "snapshot" in caplog.text
    go_on.set()
    background.wait()
    assert not background.is_running("snapshot")


def test_ctrl_c_reaches_a_caller_that_waits_for_background_work() -> None:
    log = TxnLog.create(MemoryStore())
    closing, go_on = threading.Event(), threading.Event()

    def interrupt() -> None:
        closing.wait(300)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(300)

    def close() -> None:
        closing.set()
        log.close()

    log.committer._background.start("snapshot", interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            close()
    finally:
        go_on.set()
    log.close()


def _interrupted_at(point: int, action: Callable[[], object]) -> bool:
    """Do something, and raise in this thread at the given bytecode of this package; return whether it came to
    that."""
    left = [point]

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        if "txnformat" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    except Interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("call", ["commit", "refresh", "seal", "expire", "end_expired", "intend", "close"])
def test_an_interrupt_at_any_point_leaves_the_log_in_order(call: str) -> None:
    """At every bytecode: other threads go on, and a commit that is repeated is in the log once."""
    log = TxnLog.create(MemoryStore())
    committer = log.committer
    given = point = 0
    while True:
        intent = _intent(log)
        calls: dict[str, Callable[[], object]] = {
            "commit": partial(committer.commit, intent),
            "refresh": lambda: TxnLog(log.store).refresh(),
            "seal": committer.seal,
            "expire": committer.expire,
            "end_expired": committer.end_expired,
            "intend": lambda: _intent(log),
            "close": log.close,
        }
        was_interrupted = _interrupted_at(point, calls[call])
        results: list[CommitResult] = []

        def others(intent: Intent = intent, results: list[CommitResult] = results) -> None:
            results.append(committer.commit(_intent(log)))
            results.append(committer.commit(intent))

        _in_thread(others).join(300)
        assert len(results) == 2, point
        given += 2
        assert log.refresh().next_producer_id == given, point
        if not was_interrupted:
            break
        point += 1
    assert point > 20


AT_EXIT = """
import atexit, sys
from txnformat.keys import entry_key
from txnformat.core.intents import AllocateIds
from txnformat.log import TxnLog

log = TxnLog.open_or_create(sys.argv[1])
commit = lambda: log.committer.commit(log.committer.intend(AllocateIds("unit", 1)))
for _ in range(98):
    commit()

@atexit.register
def late():
    for _ in range(8):  # one of these is when a snapshot is due
        commit()
    print(log.refresh().entry, TxnLog.open(sys.argv[1]).state.entry)
"""


def test_a_log_works_until_the_very_end_of_the_process(tmp_path: Path) -> None:
    """No threads can be started while the interpreter shuts down: commits, snapshots and opening do
    without.
    """
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.stderr == ""
    words = done.stdout.split()
    assert len(words) == 2
    assert words[0] == words[1]
    assert int(words[0]) >= 106


@pytest.mark.parametrize("round_trip_ms", [0, 0.01], ids=["at hand", "far"])
def test_commits_and_openings_do_without_threads_where_none_can_be_started(
    tmp_path: Path, round_trip_ms: float
) -> None:
    """A snapshot that cannot be written in the background is no reason to fail a commit that has landed."""

    def store() -> LatencyStore:
        return LatencyStore(open_store(str(tmp_path / "log")), round_trip_ms)

    log = TxnLog.create(store())
    usual = threading.stack_size(1 << 46)  # more than an address space has: every start of a thread fails
    try:
        with pytest.raises(RuntimeError):
            threading.Thread(target=print).start()
        for _ in range(103):
            log.committer.commit(_intent(log))
        assert TxnLog.open(store()).state.entry == 103
    finally:
        threading.stack_size(usual)
    assert log.state.entry == 103


@pytest.mark.parametrize(("round_trip_ms", "has_threads"), [(0, False), (0.01, True)], ids=["at hand", "far"])
def test_several_reads_at_once_have_threads_only_where_a_read_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_trip_ms: float, has_threads: bool
) -> None:
    """To start a thread takes longer than to read an entry of a local disk."""
    others = TxnLog.create(str(tmp_path / "log"))
    log = TxnLog.open(LatencyStore(open_store(str(tmp_path / "log")), round_trip_ms))
    pools: list[int] = []

    def pool(threads: int) -> ThreadPoolExecutor:
        pools.append(threads)
        return ThreadPoolExecutor(threads)

    monkeypatch.setattr("txnformat.client.driver.ThreadPoolExecutor", pool)
    for _ in range(9):
        others.committer.commit(_intent(others))
    assert log.refresh().entry == 9
    assert bool(pools) == has_threads
