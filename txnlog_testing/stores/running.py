"""Servers of object stores as processes on 127.0.0.1: started, waited for, and always stopped.

They end with their ``with`` block, and also when the process that started them is killed
(:mod:`txnlog_testing.stores.outlived`).
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from txnformat.errors import StorageError

__all__ = ["Command", "dead_endpoint", "free_ports", "installed", "not_installed", "running", "wait_until"]

START_SECONDS_MAX = 300.0
START_ATTEMPTS_MAX = 3
"""Free ports are found by asking, so another process may take one first."""


class Command(NamedTuple):
    """How a server is started."""

    arguments: list[str]
    port: int
    """Port that clients use."""
    leftovers: Sequence[str] = ()
    """Files that it leaves outside its directory."""


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now, no two alike."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


@contextlib.contextmanager
def dead_endpoint() -> Iterator[str]:
    """Yield an address at which no server listens, and none can begin to: its port is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def installed(program: str, package: str) -> str:
    """Return the path of a program that a package of this environment brings."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None:
        raise not_installed(program, f"pip install the version of {package} that requirements-dev.txt names")
    return found


def not_installed(program: str, hint: str) -> StorageError:
    """Return the error about a server that is not here."""
    return StorageError(f"{program} is not installed", kind="server-not-installed", hint=hint)


@contextlib.contextmanager
def running(
    name: str,
    command: Callable[[Path], Command],
    until_ready: Callable[[int, Callable[[], bool]], str | None],
) -> Iterator[int]:
    """Start what ``command`` says, in a fresh directory, until it is ready; yield its port; stop it in the
    end.

    Parameters
    ----------
    name : str
        For messages.
    command : callable
        Directory → how it is started there.
    until_ready : callable
        Port, and whether the process has ended → None once the server is ready, or what is wrong.

    Raises
    ------
    StorageError
        Kind ``server-not-started``.
    """
    for attempt in range(START_ATTEMPTS_MAX):
        directory = Path(tempfile.mkdtemp(prefix="txnlog-s3-"))
        arguments, port, leftovers = command(directory)
        output = directory / "output.txt"
        with output.open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "txnlog_testing.stores.outlived",
                    str(directory),
                    *leftovers,
                    "--",
                    *arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[2],
                start_new_session=True,
            )

        def has_ended(process: subprocess.Popen[bytes] = process) -> bool:
            return process.poll() is not None

        try:
            problem = until_ready(port, has_ended)
            if problem is None:
                yield port
                return
            said = output.read_text(errors="replace")[-2_000:] if output.exists() else ""
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
        if attempt == START_ATTEMPTS_MAX - 1:
            raise StorageError(
                f"{name} does not start",
                kind="server-not-started",
                hint="its last output follows",
                cause=problem,
                output=said,
            )


def wait_until(attempt: Callable[[], str | None], has_ended: Callable[[], bool]) -> str | None:
    """Return None once ``attempt`` does; what it said last if it never does, or the process ends."""
    deadline = time.monotonic() + START_SECONDS_MAX
    problem: str | None = "no answer"
    while time.monotonic() < deadline:
        if has_ended():
            return "the process ended"
        problem = attempt()
        if problem is None:
            return None
        time.sleep(0.1)
    return problem
