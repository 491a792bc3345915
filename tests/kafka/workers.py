"""Processes that import and export, and are killed: forked from one that has imported every module and runs
no thread.

``python -m tests.kafka.workers`` is that process: it reads one job per line, forks, and answers how the child
has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Job", "Nursery"]

ROOT = Path(__file__).resolve().parents[2]

WORKER_S = 240
"""A worker that takes longer hangs, and is killed."""


@dataclass(frozen=True)
class Job:
    """An import or an export of a topic, and where it ends itself."""

    kind: str
    """``import`` or ``export``."""
    root: str
    bootstrap: str
    topics: dict[str, str]
    point: int = 0
    """Die at this point that is reached, from 1; 0: none."""
    after_s: float = 0
    """Die after so many seconds; 0: never. A timer of the system ends the process, whatever it is doing."""
    settings: dict[str, Any] = field(default_factory=dict)


class Nursery:
    """Runs jobs, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kafka.workers"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, job: Job) -> None:
        """Start a job."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(job)) + "\n")
        self._process.stdin.flush()

    def end(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, job: Job) -> int:
        """Do a job to its end."""
        self.start(job)
        return self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WORKER_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _do(job: Job) -> None:
    from tests.killing.points import ANY, KillingStore, Points
    from txnformat.store.open import open_store
    from txnlog import TxnLog
    from txnlog.kafka import export_topics, import_topics
    from txnlog.kafka.sink import Sink

    points = Points(ANY if job.point else None, job.point, signal.SIGKILL)
    log = TxnLog.open(KillingStore(open_store(job.root), points))
    if job.after_s:
        signal.setitimer(signal.ITIMER_REAL, job.after_s)  # nothing handles it: the process ends
    if job.kind == "import":
        import_topics(log, job.bootstrap, job.topics, **job.settings)
        return
    for name in ("begin", "commit", "positions"):
        _pointed(Sink, name, points)
    export_topics(log, job.bootstrap, job.topics, **job.settings)


def _pointed(kind: Any, name: str, points: Any) -> None:
    """Let a method of a class reach a point before and after each call."""
    inner = getattr(kind, name)

    def around(*arguments: Any, **more: Any) -> Any:
        points.reached(f"{name}/before")
        answer = inner(*arguments, **more)
        points.reached(f"{name}/after")
        return answer

    setattr(kind, name, around)


def main() -> None:
    """Run jobs until the input ends."""
    import txnformat.store.local  # noqa: F401  # once, and not in every child
    import txnlog.kafka.exporting
    import txnlog.kafka.importing  # noqa: F401
    import writers.producer  # noqa: F401

    for line in sys.stdin:
        job = Job(**json.loads(line))
        child = os.fork()
        if not child:
            code = 1
            try:
                random.seed()
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(nothing, 1)
                _do(job)
                code = 0
            except BaseException:  # noqa: BLE001  # nothing of the parent may go on in the child
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
