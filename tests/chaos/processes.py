"""Processes as ``/proc`` shows them: trees, marks in the environment, and an end for all that carry a mark.

Spark starts processes that leave the group and the session of whoever started them, and that outlive it. What
they all keep is the environment: a driver is started with a mark in it, and everything that it starts, and
they, can be found by it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Process", "driver_processes", "jvm_of", "keeper", "kill_marked", "marked", "processes", "send"]

MARK = "TXNLOG_CHAOS_DRIVER"
FAMILY = "TXNLOG_CHAOS_FAMILY"
"""Environment variables: of one driver and all that it starts; of all that one test process starts."""
GONE_SECONDS_MAX = 120.0

EXECUTOR, TASK_PYTHON = "CoarseGrainedExecutorBackend", "tests.chaos.daemon pyspark.worker"


class Process(NamedTuple):
    """A process that is there."""

    pid: int
    parent: int
    state: str
    """As in ``/proc/<pid>/stat``; Z: it has ended."""
    name: str
    command: str

    @property
    def is_jvm(self) -> bool:
        return self.name == "java"

    @property
    def is_executor(self) -> bool:
        return self.is_jvm and EXECUTOR in self.command

    @property
    def is_task_python(self) -> bool:
        """Whether it runs tasks, or is the daemon that forks those who do."""
        return not self.is_jvm and TASK_PYTHON in self.command


def processes() -> dict[int, Process]:
    """Return all processes by pid."""
    found = {}
    for pid in _pids():
        if (one := _process(pid)) is not None:
            found[pid] = one
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
    return Process(pid, int(rest[1]), rest[0], name, command.replace(b"\0", b" ").decode(errors="replace"))


def jvm_of(pid: int, table: dict[int, Process] | None = None) -> int:
    """Return the JVM that started a Python worker."""
    table = processes() if table is None else table
    parent = table[pid].parent
    while not table[parent].is_jvm:
        parent = table[parent].parent
    return parent


def driver_processes(python: int, jvm: int, table: dict[int, Process] | None = None) -> list[int]:
    """Return a driver's processes, those first that start others: JVM, Python, Python workers, but no
    executors."""
    table = processes() if table is None else table
    children: dict[int, list[int]] = {}
    for one in table.values():
        children.setdefault(one.parent, []).append(one.pid)
    found, ahead = [jvm, python], [*children.get(jvm, [])]
    while ahead:
        pid = ahead.pop()
        if not table[pid].is_executor:
            found.append(pid)
            ahead += children.get(pid, [])
    return [pid for pid in found if pid in table]


def send(pids: Sequence[int], sign: signal.Signals) -> None:
    """Send a signal to all that are there, to oneself last: to this thread, or it would go on until another
    thread has taken the signal."""
    for pid in pids:
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
    if os.getpid() in pids:
        signal.pthread_kill(threading.get_ident(), sign)


def marked(mark: str, variable: str = MARK) -> list[int]:
    """Return who carries a mark and has not ended."""
    wanted = f"{variable}={mark}".encode()
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):  # it has just ended, or is not ours
            if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def kill_marked(mark: str, variable: str = MARK) -> None:
    """Kill all who carry a mark, and wait until they are gone.

    Raises
    ------
    TimeoutError
        Somebody is still there.
    """
    end = time.monotonic() + GONE_SECONDS_MAX
    clean = 0
    while clean < 2:  # somebody may be about to start one more
        pids = marked(mark, variable)
        send(pids, signal.SIGKILL)
        clean = 0 if pids else clean + 1
        if time.monotonic() > end:
            raise TimeoutError(f"still there after SIGKILL: {pids}")
        if pids:
            time.sleep(0.01)


@contextlib.contextmanager
def keeper() -> Iterator[dict[str, str]]:
    """Yield the environment of a family of processes; they end with the block, and also when this process is
    killed."""
    family = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), family], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        yield {FAMILY: family}
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(GONE_SECONDS_MAX + 10)


if __name__ == "__main__":  # the keeper: it lives for as long as its standard input is open
    while os.read(0, 1):
        pass
    kill_marked(sys.argv[1], FAMILY)
