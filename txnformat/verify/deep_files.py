"""Data files checked in another process: one that ends its decoder is a finding, and the check goes on.

One process for all files, which holds several at a time. If it ends, the next one gets those that it held one
by one; a file is at fault if it ends a process that was given nothing else. It is started as a command, not
by multiprocessing, which would import the caller's main module again: so it works in notebooks, under
spark-submit and from ``python -c``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from typing import IO, Any

from txnformat.errors import printable
from txnformat.store.base import ObjectStore
from txnformat.verify.deep_child import AT_ONCE, LENGTH, Asked, Limits, Start
from txnformat.verify.report import ProblemKind, Record, VerifyProblem

__all__ = ["NoProcessError", "check_apart"]

logger = logging.getLogger("txnlog")

PROGRAM = "from txnformat.verify.deep_child import serve; serve()"
"""The program of the process."""

_FIRST = "import json, sys; sys.path[:] = json.loads(sys.stdin.buffer.readline()); "
ANSWER_BYTES_MAX = 64 * 1024 * 1024
STARTS_MAX = 3
"""Attempts to start a process."""
ENDING_S = 10.0
"""Wait for the end of the process after the last answer."""
SAID_MAX = 300
NONSENSE = {"ended": "it answered nonsense"}
MIB = 1024 * 1024

HINT = (
    "its rows cannot be read safely: restore the file from a copy, and do not read it in a process that "
    "must keep running; "
    "if the process was ended from outside, check again"
)


class NoProcessError(Exception):
    """No process could be started, from the first on; the caller then checks the files itself."""


def check_apart(
    open_store: Callable[[], ObjectStore],
    files: Sequence[Asked],
    *,
    program: str = PROGRAM,
    limits: Limits | None = None,
) -> Generator[Record]:
    """Yield the findings about each file, in order; its ``number`` is its place.

    Close the iterator: that ends the process.

    ``open_store``: opens the store there; it is pickled, and goes through a pipe: other users see neither it
    nor its credentials. Raises NoProcessError: before anything was yielded.
    """
    checks = _Checks(open_store, files, program, limits or Limits())
    try:
        for number in range(len(files)):
            while number not in checks.found:
                checks.step()
            yield checks.found.pop(number)
    finally:
        checks.close()


class _Checks:
    def __init__(
        self, open_store: Callable[[], ObjectStore], files: Sequence[Asked], program: str, limits: Limits
    ) -> None:
        self._files = files
        self._program = program
        self._start = Start(os.getpid(), limits, open_store)
        self._waiting = deque(range(len(files)))
        self._suspects: deque[int] = deque()
        """Were held by a process that ended: the next one gets them one by one."""
        self._process: _Process | None = None
        self._has_started = False
        self.found: dict[int, Record] = {}

    def step(self) -> None:
        """Hand files over, and take an answer or the end of the process."""
        process = self._process or self._started()
        if process is None:
            for number in (*self._suspects, *self._waiting):
                self._ended(number, "no process that reads it could be started")
            return
        self._hand_over(process)
        answer = process.take()
        if answer is not None and "ended" not in answer and answer.get("number") in process.held:
            process.held.remove(answer["number"])
            self.found[answer["number"]] = _record(answer)
            return
        how = process.end() if answer is None else str(answer.get("ended", NONSENSE["ended"]))
        self.close()
        if process.given > 1:
            self._suspects.extendleft(sorted(process.held, reverse=True))
        else:
            for number in process.held:
                self._ended(number, self._shown(number, how))

    def _hand_over(self, process: _Process) -> None:
        if self._suspects:
            if not process.held:
                process.give(self._files[self._suspects.popleft()])
            return
        while self._waiting and len(process.held) < AT_ONCE:
            process.give(self._files[self._waiting.popleft()])

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _started(self) -> _Process | None:
        how = ""
        for _ in range(STARTS_MAX):
            try:
                self._process = _Process(self._program)
            except OSError as error:
                how = str(error)
                continue
            if self._process.begin(self._start):
                self._has_started = True
                return self._process
            how = f"{self._process.end()}: {self._process.said()}"
            self.close()
        if not self._has_started:
            raise NoProcessError(how)
        return None

    def _ended(self, number: int, what: str) -> None:
        file = self._files[number].use.record
        record = Record()
        record.checked["files"] += 1
        record.checked["file_bytes"] += file.size
        record.add(ProblemKind.READER_ENDED, file.key, what, hint=HINT)
        self.found[number] = record

    def _shown(self, number: int, how: str) -> str:
        limits = self._start.limits
        if how == "memory":
            return f"reading it takes more than {limits.memory_bytes // MIB:,} MiB of memory"
        if how == "SIGXCPU":
            seconds = limits.cpu_s + self._files[number].use.record.size // MIB
            return f"reading it takes more than {seconds:,} s of the processor"
        return f"reading it ended the process that reads: {how}"


class _Process:
    """A running process, and the files that it holds."""

    def __init__(self, program: str) -> None:
        self.held: set[int] = set()
        self.given = 0
        """Files that it was ever given."""
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _FIRST + program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
            )
        except BaseException:
            self._said.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def begin(self, start: Start) -> bool:
        """Return whether the process answers."""
        self._write(json.dumps(_import_path()).encode() + b"\n" + pickle.dumps(start))
        return self.take() == {"ready": True}

    def give(self, asked: Asked) -> None:
        """Hand a file over. That the process has ended meanwhile is found by the next :meth:`take`."""
        self.held.add(asked.number)
        self.given += 1
        self._write(pickle.dumps(asked))

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._in.write(data)
            self._in.flush()

    def take(self) -> dict[str, Any] | None:
        """Return the next answer; None when the process has ended."""
        head = self._out.read(LENGTH.size)
        if len(head) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack(head)
        data = self._out.read(length) if length <= ANSWER_BYTES_MAX else b""
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            return NONSENSE
        return answer if isinstance(answer, dict) else NONSENSE

    def end(self) -> str:
        """Return how the process ended."""
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return "it no longer answers"
        if status >= 0:
            return f"exit status {status}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"

    def said(self) -> str:
        """Return the end of what it wrote to stderr."""
        self._said.seek(0)
        lines = self._said.read()[-SAID_MAX:].decode("utf-8", "replace").split("\n")
        return printable(" ".join(lines).strip())

    def close(self) -> None:
        """End the process, and let go of all that belongs to it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._in, self._out, self._said):
            with contextlib.suppress(OSError):
                pipe.close()


def _import_path() -> list[str]:
    """Return where this process finds modules; an empty name is the current directory."""
    with contextlib.suppress(OSError):
        return [path or os.getcwd() for path in sys.path]  # noqa: PTH109 - a text, as in sys.path
    return [path for path in sys.path if path]


def _record(answer: dict[str, Any]) -> Record:
    problems = [
        VerifyProblem(**{**problem, "kind": ProblemKind(problem["kind"])}) for problem in answer["problems"]
    ]
    return Record(problems, [], Counter(answer["checked"]))
