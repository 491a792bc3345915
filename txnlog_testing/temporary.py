"""A temporary directory for a program and all that it starts, so that nothing stays in the machine's own one.

A JVM that is killed leaves native libraries, sockets and the artifacts of its sessions where
``java.io.tmpdir`` says.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["own_temporary_directory"]

PREFIX = "tx-"
"""Short: paths of sockets below it have at most 103 bytes on macOS."""
LOCK = "txnlog.lock"
"""Held for as long as the program lives. The directory of a program that was killed is known by a lock that
is free."""
SECONDS_MAX = 10
"""How long processes that are about to end may go on writing there."""


@contextlib.contextmanager
def own_temporary_directory() -> Iterator[Path]:
    """Make a temporary directory, let this process and all that it starts use it, and remove it at the end.

    Python takes it from ``TMPDIR``, and the drivers of Spark from ``SPARK_SUBMIT_OPTS``. Directories of
    programs that were killed are removed first.
    """
    machine = Path(tempfile.gettempdir())
    _sweep(machine)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=machine))
    submit = os.environ.get("SPARK_SUBMIT_OPTS", "")
    changed = {"TMPDIR": str(folder), "SPARK_SUBMIT_OPTS": f"{submit} -Djava.io.tmpdir={folder}".strip()}
    before = {name: os.environ.get(name) for name in changed}
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.environ.update(changed)
        tempfile.tempdir = str(folder)
        yield folder
    finally:
        tempfile.tempdir = str(machine)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _remove(folder)
        os.close(lock)


def _sweep(machine: Path) -> None:
    """Remove the directories whose programs have ended without doing it."""
    for path in machine.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held: the program lives
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


def _remove(folder: Path) -> None:
    """Remove the directory, though processes that end write to it for a moment."""
    end = time.monotonic() + SECONDS_MAX
    while folder.exists() and time.monotonic() < end:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            time.sleep(0.05)
