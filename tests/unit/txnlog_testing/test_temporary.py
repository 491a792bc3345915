"""A program's own temporary directory: it goes at the end, also that of a program that was killed, and that
of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.jvm import QUICK, java_options
from txnlog_testing.temporary import LOCK, own_temporary_directory

ROOT = Path(__file__).resolve().parents[3]

# Says where it is, leaves something there, and waits for its end.
PROGRAM = """
import os, sys, tempfile
from txnlog_testing.temporary import own_temporary_directory
with own_temporary_directory() as folder:
    (folder / "libleft.so").write_bytes(b"")
    os.mkdir(folder / "artifacts-1")
    print(tempfile.mkdtemp(), flush=True)
    sys.stdin.read()
"""


def start(machine: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start the program; return it, and its directory."""
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TMPDIR": str(machine), "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    made = Path(program.stdout.readline().strip())
    assert made.parent.parent == machine
    return program, made.parent


def test_nothing_stays_at_the_end_and_after_a_kill_the_next_program_removes_it(tmp_path: Path) -> None:
    """The next program leaves the directory of one that lives alone, and what is not such a directory."""
    (tmp_path / "tx-other").mkdir()
    lives, there = start(tmp_path)
    killed, left = start(tmp_path)
    with lives, killed:
        killed.send_signal(signal.SIGKILL)
        killed.wait(300)
        assert (left / "artifacts-1").exists()
        following, own = start(tmp_path)
        with following:
            following.communicate("", timeout=300)
        assert not left.exists()
        assert not own.exists()
        assert (there / "artifacts-1").exists()
        lives.communicate("", timeout=300)
    assert (following.returncode, lives.returncode) == (0, 0)
    assert [path.name for path in tmp_path.iterdir()] == ["tx-other"]


def test_the_environment_is_afterwards_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    with own_temporary_directory() as folder:
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(folder)
        assert os.environ["SPARK_SUBMIT_OPTS"] == f"-Da=b -Djava.io.tmpdir={folder}"
    assert "TMPDIR" not in os.environ
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Da=b"
    assert tempfile.gettempdir() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_these_tests_have_such_a_directory() -> None:
    """Their Python, and the JVMs that they start: ``tests/spark`` looks at one."""
    folder = Path(tempfile.gettempdir())
    assert (folder / LOCK).exists()
    assert f"-Djava.io.tmpdir={folder}" in os.environ["SPARK_SUBMIT_OPTS"].split()
    assert QUICK in java_options()
    assert f"-Djava.io.tmpdir={folder}" in java_options().split()
