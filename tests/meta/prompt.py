"""Pastes blocks of a page into the prompt of a real Python, through a pseudo-terminal, as a reader does.

As a command, ``python -m tests.meta.prompt FILE…``, it pastes pages whose blocks need Spark, into one prompt
with one session, in the current directory.
"""

from __future__ import annotations

import codeop
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.meta.markdown import Block, blocks
from tests.meta.pages import page
from tests.meta.runner import NOT_RUN

__all__ = ["Prompt", "blocks_to_paste", "unpasteable"]

PASTE_SECONDS_MAX = 200
"""A line that takes longer hangs."""
COLUMNS = 400
"""Of the terminal: wide enough that it breaks no line."""
_READY = re.compile(rb"(?:^|\n)(?:>>> |\.\.\. )$")
_FAILED = re.compile(r'^  File "<(?:stdin|python-input-\d+)>", line \d+', re.MULTILINE)
"""Where a traceback of the prompt begins, or a line that it does not understand; those that Spark logs begin
elsewhere."""


def unpasteable(text: str) -> list[tuple[int, str]]:
    """Return the first line at which a prompt takes pasted lines for something else than a file has, if there
    is one.

    A blank line ends a statement with a body, and only a blank line does. Lines are counted from 0.
    """
    compiler, waiting = codeop.CommandCompiler(), ""
    for number, line in enumerate([*text.splitlines(), ""]):
        waiting += line + "\n"
        if not waiting.strip():
            waiting = ""
            continue
        try:
            code = compiler(waiting.removesuffix("\n"), "<page>", "single")
        except SyntaxError as error:
            return [(number, f"{error.msg}: {line}")]
        if code is not None:
            waiting = ""
    return []


def blocks_to_paste(name: str) -> list[Block]:
    """Return the blocks of Python of a page, without those whose comment says why they are not run."""
    return [
        block
        for block in blocks(page(name))
        if block.info == "python" and not NOT_RUN.fullmatch(block.before)
    ]


class Prompt:
    """The prompt of a Python of its own, in a directory.

    Parameters
    ----------
    folder : Path
        Where it is started, and its HOME unless the environment names one.
    python : Path, optional
        The Python; this process's without it.
    environment : Mapping, optional
        Its variables; this process's without it, but for HOME.
    """

    def __init__(
        self, folder: Path, python: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._terminal, beneath = pty.openpty()
        fcntl.ioctl(beneath, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        self._process = subprocess.Popen(
            [python or sys.executable, "-q", "-i"],
            stdin=beneath,
            stdout=beneath,
            stderr=beneath,
            cwd=folder,
            env={
                **(environment or {**os.environ, "HOME": str(folder)}),
                "TERM": "dumb",
                "PYTHON_BASIC_REPL": "1",
            },
            start_new_session=True,
        )
        os.close(beneath)
        self._read()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the Python and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._terminal)

    def paste(self, text: str) -> str:
        """Paste lines, and the blank line that ends a statement with a body; return what the terminal shows.

        Raises
        ------
        AssertionError
            A line raised an error, or was none to this Python.
        """
        shown = ""
        for line in [*text.splitlines(), ""]:
            os.write(self._terminal, line.encode() + b"\n")
            answer = self._read()
            shown += answer
            if _FAILED.search(answer.partition("\n")[2]):
                raise AssertionError(f"pasted {line!r}:\n{shown}")
        return shown

    def _read(self) -> str:
        """Return what the terminal shows until the next prompt."""
        shown = b""
        while not _READY.search(shown):
            ready, _, _ = select.select([self._terminal], [], [], PASTE_SECONDS_MAX)
            if not ready:
                raise AssertionError(f"no prompt came back: {shown.decode(errors='replace')}")
            try:
                shown += os.read(self._terminal, 65_536).replace(b"\r", b"")
            except OSError as error:  # the process has ended
                raise AssertionError(f"the prompt is gone: {shown.decode(errors='replace')}") from error
        return shown.decode(errors="replace")


_SESSION = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").appName("docs").config("spark.ui.showConsoleProgress", "false").getOrCreate()
_kept = {*globals(), "_kept"}
"""
_FORGET = "for _name in {*globals()} - _kept: del globals()[_name]\n"
"""Each page begins with the session alone."""


def _main(names: list[str]) -> None:
    with Prompt(Path.cwd()) as prompt:
        prompt.paste(_SESSION)
        for name in names:
            prompt.paste(_FORGET)
            pasted = [prompt.paste(block.text) for block in blocks_to_paste(name)]
            print(name, len(pasted), flush=True)
        prompt.paste("spark.stop()")


if __name__ == "__main__":
    _main(sys.argv[1:])
