"""What belongs to one process: a producer's identity and numbers would be used twice if a forked child had them, too."""

from __future__ import annotations

import threading
from types import TracebackType

from txnformat.errors import InvalidTransactionStateError
from txnformat.forking import generation

__all__ = ["OneThread", "OwnLock"]


class OwnLock:
    """A re-entrant lock of the process that made it. In a forked child it cannot be had, and nobody waits for it.

    Parameters
    ----------
    what : str
        Whose lock it is, for the error: "producer".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._generation = generation()
        self._lock = threading.RLock()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked since the lock was made."""
        return self._generation != generation()

    def __enter__(self) -> None:
        """Wait for the lock.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``forked``.
        """
        self.check_own()
        self._lock.acquire()

    def check_own(self) -> None:
        """Raise unless this process has made the lock: InvalidTransactionStateError of kind ``forked``."""
        if self.is_foreign:
            raise InvalidTransactionStateError(
                f"this {self._what} belongs to the process that this one was forked from",
                kind="forked",
                hint=f"make a {self._what} of its own in the child",
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class OneThread(OwnLock):
    """As OwnLock, but nobody waits: what it guards is of one thread at a time, and two are a mistake."""

    def __enter__(self) -> None:
        """Take the lock.

        Raises
        ------
        InvalidTransactionStateError
            Kind ``forked``; kind ``concurrent-use``: another thread has it.
        """
        self.check_own()
        if not self._lock.acquire(blocking=False):
            raise InvalidTransactionStateError(
                f"another thread is using this {self._what}",
                kind="concurrent-use",
                hint=f"a {self._what} serves one thread at a time: make one for each thread, or take turns",
            )
