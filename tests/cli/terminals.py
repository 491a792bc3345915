"""Programs whose standard output is a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Sequence

DRAWN = re.compile(rb"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A)|\r")
"""The control sequences that rich draws with on a terminal; ``\\r`` also comes from the terminal itself,
before each line feed."""


def on_a_terminal(command: Sequence[str], **environment: str) -> bytes:
    """Run a program whose stdout and stderr are a terminal, and return the bytes that reach it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", "NO_COLOR": "1", **environment},
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            assert select.select([ours], [], [], 120)[0], shown
            try:
                data = os.read(ours, 65_536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not data:
                break
            shown += data
        os.close(ours)
        child.wait(300)
    return shown
