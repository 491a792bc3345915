"""Doing something in a forked child, which says whether it went well and cannot hang for ever."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from collections.abc import Callable

CHILD_SECONDS_MAX = 300


def in_child(action: Callable[[], object]) -> int:
    """Start a child that does ``action`` and collects its garbage; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS_MAX)  # a child that hangs is killed, and its parent sees that
        action()
        gc.collect()
        os._exit(0)
    except BaseException:  # noqa: BLE001  # nothing of the test run may go on in the child
        traceback.print_exc()
    finally:
        os._exit(1)


def finish(child: int) -> None:
    """Wait for a child; what it did must have gone well."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, code


def do_in_child(action: Callable[[], object]) -> None:
    """Do ``action`` in a child, and wait for it."""
    finish(in_child(action))
