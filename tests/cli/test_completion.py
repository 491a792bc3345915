"""Completion in a bash that reads from a terminal: the words that a command gets after the tab key was
pressed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from txnlog import Producer, TxnLog

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash here")

WRAPPER = """#!/bin/sh
if [ -n "$_TXNLOG_COMPLETE" ]; then exec {python} -m txnlog "$@"; fi
printf 'words:'; printf '<%s>' "$@"; printf ':end\\n'
"""


@pytest.fixture
def busy(root: Path) -> TxnLog:
    log = TxnLog.create(root)
    log.create_topic("orders", pa.schema([("id", pa.int64())]))
    with Producer(log, "app:eu:1") as producer, producer.transaction() as txn:
        txn.send("orders", [{"id": 1}])
    return log


def words(folder: Path, line: str) -> list[str]:
    """Type a line and a tab into an interactive bash, then press Enter; return the words that the command
    got."""
    program = folder / "bin" / "txnlog"
    program.parent.mkdir(exist_ok=True)
    program.write_text(WRAPPER.format(python=sys.executable))
    program.chmod(0o755)
    script = subprocess.run(
        [sys.executable, "-m", "txnlog", "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    (folder / "rc").write_text(f"PS1='ready> '\nbind 'set enable-bracketed-paste off'\n{script}\n")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TERM": "dumb"}
    environment.pop("TXNLOG_ROOT")
    assert BASH is not None
    with subprocess.Popen(
        [BASH, "--noprofile", "--rcfile", str(folder / "rc"), "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    ) as bash:
        os.close(theirs)
        _read_until(ours, rb"ready> ")
        os.write(ours, line.encode() + b"\t\r")
        shown = _read_until(ours, rb"words:.*:end")
        os.write(ours, b"exit\r")
        bash.wait(60)
    os.close(ours)
    return re.findall(r"<([^>]*)>", shown.decode().partition("words:")[2])


def _read_until(terminal: int, pattern: bytes) -> bytes:
    shown = b""
    while not re.search(pattern, shown):
        assert select.select([terminal], [], [], 120)[0], shown
        shown += os.read(terminal, 4096)
    return shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("txnlog offsets -r file://{root} or", ["offsets", "-r", "file://{root}", "orders"]),
        ("txnlog offsets --root=file://{root} or", ["offsets", "--root=file://{root}", "orders"]),
        ("txnlog offsets -r 'file://{root}' or", ["offsets", "-r", "file://{root}", "orders"]),
        (
            "txnlog transactions describe -r {root} app:e",
            ["transactions", "describe", "-r", "{root}", "app:eu:1"],
        ),
        (("txnlog transactions describe -r {root} "
         "ap"), ["transactions", "describe", "-r", "{root}", "app:eu:1"]),
        (("txnlog transactions abort -r file://{root} "
         "app:"), ["transactions", "abort", "-r", "file://{root}", "app:eu:1"]),
        (("txnlog produce orders -r file://{root} "
         "--transactional-id=app:e"), ["produce", "orders", "-r", "file://{root}", "--transactional-id=app:eu:1"]),
        (("txnlog consume orders -r file://{root} "
         "--isol"), ["consume", "orders", "-r", "file://{root}", "--isolation"]),
        (("txnlog consume orders -r file://{root} "
         "--format=pa"), ["consume", "orders", "-r", "file://{root}", "--format=parquet"]),
        (("txnlog transactions abort -r {root} "
         "'app:eu:"), ["transactions", "abort", "-r", "{root}", "app:eu:1"]),
    ],
)  # fmt: skip
def test_a_word_is_completed_behind_colons(
    busy: TxnLog, root: Path, tmp_path: Path, line: str, expected: list[str]
) -> None:
    assert words(tmp_path, line.format(root=root)) == [one.format(root=root) for one in expected]
