"""Threads that share one log: group commit, interrupts, and the end of the process."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from txnformat.intents import AllocateIds, CommitResult, Intent
from txnformat.log import TxnLog
from txnformat.operations import AllocateProducerIds
from txnformat.store.faulty import FaultyStore, Gate
from txnformat.store.memory import MemoryStore

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
        thread.join(60)
    log.close()
    assert sorted(given) == list(range(THREADS * COMMITS))
    assert TxnLog.open(log.store).state.next_producer_id == THREADS * COMMITS


def test_a_thread_that_is_interrupted_while_it_waits_does_not_block_the_others() -> None:
    """Ctrl-C in a thread that is next to lead: the lead goes on to the next, and nobody waits for ever."""
    memory = MemoryStore()
    TxnLog.create(memory).close()
    gate = Gate()
    log = TxnLog.open(FaultyStore(memory, before_create=gate))
    committer = log.committer
    answers: list[CommitResult] = []
    first = _in_thread(lambda: answers.append(committer.commit(_intent(log))))
    gate.wait_until_held()

    def interrupt() -> None:
        _wait_for(lambda: len(committer._queue) == 1)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)

    helper = _in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        committer.commit(_intent(log))
    helper.join(60)
    gate.open()
    first.join(60)
    last = _in_thread(lambda: answers.append(committer.commit(_intent(log))))
    last.join(60)
    assert [answer.entry for answer in answers] == [1, 2]


def test_a_leader_that_is_interrupted_answers_those_who_wait_with_unknown() -> None:
    """What was on its way when the leader was stopped may have landed; later commits go on."""
    memory = MemoryStore()
    TxnLog.create(memory).close()
    stop = [True]

    def before_create(_key: str) -> None:
        if stop[0]:
            stop[0] = False
            raise Interrupt

    log = TxnLog.open(FaultyStore(memory, before_create=before_create))
    with pytest.raises(Interrupt):
        log.committer.commit(_intent(log))
    answers: list[CommitResult] = []
    thread = _in_thread(lambda: answers.append(log.committer.commit(_intent(log))))
    thread.join(60)
    assert [answer.entry for answer in answers] == [1]


AT_EXIT = """
import atexit, sys
from txnformat.intents import AllocateIds
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
    """No threads can be started while the interpreter shuts down: commits, snapshots and opening do without."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stderr == ""
    words = done.stdout.split()
    assert len(words) == 2
    assert words[0] == words[1]
    assert int(words[0]) >= 106


def test_commits_and_openings_do_without_threads_where_none_can_be_started(tmp_path: Path) -> None:
    """A snapshot that cannot be written in the background is no reason to fail a commit that has landed."""
    log = TxnLog.create(str(tmp_path / "log"))
    usual = threading.stack_size(1 << 46)  # more than an address space has: every start of a thread fails
    try:
        with pytest.raises(RuntimeError):
            threading.Thread(target=print).start()
        for _ in range(103):
            log.committer.commit(_intent(log))
        assert TxnLog.open(str(tmp_path / "log")).state.entry == 103
    finally:
        threading.stack_size(usual)
    assert log.state.entry == 103
