"""Workers in processes of their own, forked from one that has imported everything and has no thread.

Run as ``python -m tests.killing.workers`` it is that process: it reads one request per line and answers in
one.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from txnformat.errors import ConflictError, ProducerFencedError, TransactionTimedOutError

ROOT = Path(__file__).resolve().parents[2]
WORKER_SECONDS_MAX = 120
REFUSED, FENCED, TIMED_OUT = 3, 4, 5
"""Exit statuses of a worker that may not go on: ConflictError, ProducerFencedError, TransactionTimedOutError.
"""


@dataclass(frozen=True)
class Status:
    """How a worker is doing."""

    code: int | None
    """Its exit status, negative for a signal; None: it is alive."""
    is_stopped: bool = False


class Worker:
    """A process that does a job."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self.pid = pid

    def status(self, *, waits: bool = False) -> Status:
        """Return how it is doing; ``waits`` until it has ended or stopped."""
        return Status(**self._nursery.ask({"ask": self.pid, "waits": waits}))

    def end(self) -> int:
        """Wait for its end, and return the exit status."""
        code = self.status(waits=True).code
        assert code is not None, "it has stopped"
        return code

    def kill(self) -> None:
        """Kill it, if it is alive. A test that has not waited for its end may do that."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, sign: signal.Signals) -> None:
        """Send it a signal. Not after it was told that it has ended."""
        os.kill(self.pid, sign)


class Nursery:
    """Starts workers. A context manager: those that are left when it ends are killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.killing.workers"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(self, job: Any) -> Worker:
        """Start a worker with a :class:`tests.killing.etl.Job`."""
        return Worker(self, self.ask({"start": asdict(job)})["pid"])

    def run(self, job: Any) -> int:
        """Do a job to its end, and return the exit status."""
        return self.start(job).end()

    def close(self) -> None:
        self._process.communicate(timeout=300)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- the process that forks ---------------------------------------------------------------------------------


def _begin(job: dict[str, Any]) -> int:
    """Fork, and do the job in the child."""
    from tests.killing import etl

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.alarm(WORKER_SECONDS_MAX)  # one that hangs is killed, and whoever waits sees that
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        etl.run(etl.Job(**job))
        code = 0
    except ConflictError:
        code = REFUSED
    except ProducerFencedError:
        code = FENCED
    except TransactionTimedOutError:
        code = TIMED_OUT
    except BaseException:  # noqa: BLE001  # nothing of the parent may go on in the child
        traceback.print_exc()
    finally:
        os._exit(code)


def _status(pid: int, *, waits: bool) -> Status:
    found, status = os.waitpid(pid, os.WUNTRACED | (0 if waits else os.WNOHANG))
    if not found:
        return Status(None)
    if os.WIFSTOPPED(status):
        return Status(None, is_stopped=True)
    return Status(os.waitstatus_to_exitcode(status))


def main() -> None:
    """Answer until the input ends; then kill who is left."""
    import tests.killing.etl  # noqa: F401  # once, and not in every child
    import txnformat.store.s3.store  # noqa: F401

    running = set()
    for line in sys.stdin:
        match json.loads(line):
            case {"start": job}:
                pid = _begin(job)
                running.add(pid)
                answer: dict[str, Any] = {"pid": pid}
            case {"ask": pid, "waits": waits}:
                status = _status(pid, waits=waits)
                if status.code is not None:
                    running.discard(pid)
                answer = asdict(status)
            case other:
                raise ValueError(other)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
