"""The command line in tests: in this process for breadth, as a process of its own where that matters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from txnlog import TxnLog
from txnlog.cli.app import run

PROGRAM = [sys.executable, "-m", "txnlog"]


class Answer(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.err)["error"]
        return found


Command = Callable[..., Answer]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the log of a test is, also for its processes; nothing is there yet."""
    path = tmp_path / "log"
    monkeypatch.setenv("TXNLOG_ROOT", str(path))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    )
    return path


@pytest.fixture
def log(root: Path) -> TxnLog:
    """An empty log."""
    return TxnLog.create(root)


@pytest.fixture
def txnlog(
    root: Path, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs a command line in this process."""

    def call(*arguments: object, stdin: str | bytes = "") -> Answer:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Answer(code, out.decode(), err.decode())

    return call


@pytest.fixture
def process(root: Path) -> Command:
    """Runs a command line in a process of its own."""

    def call(*arguments: object, stdin: str = "", **environment: str) -> Answer:
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            input=stdin,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call
