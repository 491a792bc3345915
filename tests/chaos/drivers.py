"""Drivers as a test sees them: started, waited for, stopped, continued, killed with all that they have
started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.chaos import jobs, processes
from tests.chaos.faults import DRIVER_FILE, Control, read_whole, wait_until, write_whole
from tests.chaos.jobs import Job
from tests.jvm import spark_home

__all__ = ["Cluster", "Driver", "DriverEndedError", "Result", "cluster"]

ROOT = Path(__file__).resolve().parents[2]
LOG_CHARS_MAX = 4_000


class DriverEndedError(Exception):
    """A driver ended while somebody waited for it to do something."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a driver ended."""

    code: int
    """Exit status, negative for a signal."""
    error: str | None = None
    """What the query failed with; None also when it was killed."""
    progress: list[dict[str, Any]] = field(default_factory=list)


class Driver:
    """A driver's process and all that it has started. A context manager: nothing of it is left behind."""

    def __init__(self, job: Job, environment: Mapping[str, str]) -> None:
        self.job = job
        self.control = Control(job.control)
        self.mark = uuid.uuid4().hex
        folder = Path(job.control)
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "job.json", asdict(job))
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.driver", str(folder / "job.json")],
                cwd=folder,
                env={**os.environ, **environment, processes.MARK: self.mark, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    # --- what it says ---------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def check_alive(self) -> None:
        """Raise DriverEndedError when it has ended."""
        if not self.is_alive:
            raise DriverEndedError(f"the driver ended with {self._process.returncode}\n{self.log_tail()}")

    def log_tail(self) -> str:
        """Return the end of what it printed."""
        return self._log.read_text(errors="replace")[-LOG_CHARS_MAX:]

    def said(self, file: str) -> dict[str, Any] | None:
        """Return what it said in a file of the control folder."""
        found: dict[str, Any] | None = read_whole(self.control.folder / file)
        return found

    def wait_ready(self) -> None:
        """Wait until Spark is there and waits to begin."""
        wait_until(lambda: self.said(jobs.READY_FILE) is not None, "Spark to start", self.check_alive)

    def wait_started(self) -> dict[str, Any]:
        """Wait for the query; return its ids: ``query`` and ``run``."""
        return wait_until(lambda: self.said(jobs.STARTED_FILE), "the query to start", self.check_alive)

    def pids(self) -> tuple[int, int]:
        """Return its Python and its JVM."""
        found = wait_until(lambda: self.said(DRIVER_FILE), "Spark to start", self.check_alive)
        return found["python"], found["jvm"]

    def executors(self) -> list[int]:
        """Return the JVMs of its executors that are there."""
        return [one.pid for one in self._there() if one.is_executor]

    def task_workers(self) -> list[int]:
        """Return the Python workers of tasks that are there."""
        there = {one.pid: one for one in self._there() if one.is_task_python}
        return [one.pid for one in there.values() if one.parent in there]  # the parent of all of them is none

    def _there(self) -> list[processes.Process]:
        table = processes.processes()
        found = [table[pid] for pid in processes.marked(self.mark) if pid in table]
        return [one for one in found if one.state != "Z"]

    # --- what it is told ------------------------------------------------------------------------------------

    def begin(self, **change: Any) -> None:
        """Let a driver that waits begin its query, with other values of its job."""
        write_whole(self.control.folder / jobs.BEGIN_FILE, change)

    def finish(self) -> None:
        """Let it end when all input is processed."""
        write_whole(self.control.folder / jobs.FINISH_FILE, {})

    def stop_query(self) -> None:
        """Let it stop the query at once."""
        write_whole(self.control.folder / jobs.STOP_FILE, {})

    def freeze(self) -> None:
        """Stop all that is the driver, but no executors, with SIGSTOP."""
        processes.send(processes.driver_processes(*self.pids()), signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue whoever of it stands still."""
        processes.send(processes.marked(self.mark), signal.SIGCONT)

    def wait_end(self) -> Result:
        """Wait until it has ended by itself, and all that it started is gone."""
        code = wait_until(
            lambda: (self._process.poll(),) if not self.is_alive else None, "the driver to end"
        )[0]
        assert code is not None
        processes.kill_marked(self.mark)
        said = self.said(jobs.RESULT_FILE) or {}
        return Result(code=code, error=said.get("error"), progress=said.get("progress", []))

    def wait_killed(self) -> None:
        """Wait until it has been killed, and all that it started is gone."""
        assert wait_until(lambda: self._process.poll(), "the driver to be killed") == -signal.SIGKILL
        self.kill()

    def kill(self) -> None:
        """Kill all of it, and wait until it is gone."""
        processes.kill_marked(self.mark)
        self._process.wait(processes.GONE_SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if kind is not None and error is not None:
            error.add_note(f"the driver printed:\n{self.log_tail()}")


class Cluster:
    """Where drivers are started: an environment, and a folder for what they leave."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self._count = 0

    def start(self, job: Job) -> Driver:
        """Start a driver. ``control`` of the job is a name, or empty: a folder of its own is made for it."""
        self._count += 1
        control = self.folder / (job.control or f"driver-{self._count}")
        return Driver(Job(**{**asdict(job), "control": str(control)}), self.environment)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Yield a place for drivers; whatever they have started ends with the block, or with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    with processes.keeper() as family:
        environment = {
            **family,
            "SPARK_HOME": str(spark_home(folder)),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONWARNINGS": "ignore",
        }
        yield Cluster(folder, environment)


def load_job(path: Path) -> Job:
    """Return the job that a driver was started with."""
    return Job(**json.loads(path.read_text()))
