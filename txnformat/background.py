"""Work after a commit that nobody waits for: at most one thread for each kind of job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from txnformat.errors import TxnLogError

__all__ = ["Background"]

logger = logging.getLogger("txnlog")


class Background:
    """Runs jobs that keep a log small; it is whole without them, so whatever fails is only noted."""

    def __init__(self) -> None:
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
            # No thread can be started (the interpreter shuts down): no reason to fail a commit that has landed.
            logger.debug("no %s: %s", name, error)
        else:
            self._threads[name] = thread

    def _run(self, name: str, job: Callable[[], object]) -> None:
        try:
            job()
        except TxnLogError as error:
            logger.warning("background work (%s) failed, and is tried again later: %s", name, error)

    def wait(self) -> None:
        """Wait for the jobs that run."""
        for thread in list(self._threads.values()):
            thread.join()
