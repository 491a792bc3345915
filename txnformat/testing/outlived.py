"""Runs a command for as long as its own standard input stays open: ``python -m txnformat.testing.outlived``.

Arguments: a directory, then the command. A test that is killed closes the pipe as it dies, so its server is stopped
and its directory removed also then. SIGINT goes to the whole group of a terminal; this process ignores it, since
whoever started it decides when the server ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading

__all__ = ["main"]


def main(directory: str, command: list[str]) -> int:
    """Run ``command`` until standard input ends; remove ``directory``; return the command's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        threading.Thread(target=_stop_at_end_of_input, args=(server,), daemon=True).start()
        return server.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _stop_at_end_of_input(server: subprocess.Popen[bytes]) -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    server.kill()  # no goodbye: the data is thrown away


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
