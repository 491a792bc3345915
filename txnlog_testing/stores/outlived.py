"""Runs a command for as long as its own standard input stays open:
``python -m txnlog_testing.stores.outlived``.

Arguments: directories and files of the command, ``--``, the command. A test that is killed closes the pipe as
it dies, so its server is stopped and what it leaves is removed also then. SIGINT goes to the whole group of a
terminal; this process ignores it, since its parent decides when the server ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["main"]

REMOVALS_MAX = 50


def main(paths: Sequence[str], command: Sequence[str]) -> int:
    """Run ``command`` until standard input ends; remove ``paths``; return the command's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
        return server.wait()
    finally:
        for path in map(Path, paths):
            _remove(path)


def _stop_at_end_of_input(server: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    # No goodbye: the data is thrown away. The whole session, for a server that has started others.
    with suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)


def _remove(path: Path) -> None:
    """Remove a file or a directory, in which a process that is about to end may still have made something."""
    for _ in range(REMOVALS_MAX):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        if not path.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    end_of_paths = sys.argv.index("--")
    sys.exit(main(sys.argv[1:end_of_paths], sys.argv[end_of_paths + 1 :]))
