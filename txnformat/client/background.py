"""Work after a commit that no caller waits for: at most one thread for each kind of job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from txnformat.clock import Clock, waited_ms
from txnformat.errors import TxnLogError

__all__ = ["Background"]

logger = logging.getLogger("txnlog")

WAIT_MS_MAX = 120_000
"""How long the end of jobs is waited for, ms; as long as a commit takes at most while the store fails."""

JOIN_SECONDS = 0.25
"""How long a thread is waited for before the clock is looked at."""


class Background:
    """Runs jobs that keep a log small; it is whole without them, so whatever fails is only noted.

    The clock bounds the wait for jobs that hang.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads: dict[str, threading.Thread] = {}

    def is_running(self, name: str) -> bool:
        """Return whether a job of this kind runs now."""
        thread = self._threads.get(name)
        return thread is not None and thread.is_alive()

    def start(self, name: str, job: Callable[[], object]) -> None:
        """Run ``job`` in a thread of its own, unless one of this kind runs already."""
        if self.is_running(name):
            return
        thread = threading.Thread(target=self._run, args=(name, job), name=f"txnlog-{name}")
        try:
            thread.start()
        except RuntimeError as error:
            # No thread can be started (the interpreter shuts down): no reason to fail a commit that has
            # landed.
            logger.debug("no %s: %s", name, error)
        else:
            self._threads[name] = thread

    def _run(self, name: str, job: Callable[[], object]) -> None:
        try:
            job()
        except TxnLogError as error:
            logger.warning("background work (%s) failed, and is tried again later: %s", name, error)

    def wait(self) -> None:
        """Wait for the jobs that run, for WAIT_MS_MAX at most; one that hangs longer is left, with a
        warning.
        """
        since = self._clock.now()
        for name, thread in list(self._threads.items()):
            while thread.is_alive():
                thread.join(JOIN_SECONDS)
                if thread.is_alive() and waited_ms(since, self._clock.now()) >= WAIT_MS_MAX:
                    logger.warning("background work (%s) did not finish in time; closing without it", name)
                    break
