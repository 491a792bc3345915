"""Locks of one process: a forked child must not use its parent's producer identity and sequence numbers a
second time.
"""

from __future__ import annotations

import threading
from types import TracebackType

from txnformat.errors import InvalidTransactionStateError
from txnformat.forking import generation

__all__ = ["OwnLock"]


class OwnLock:
    """A re-entrant lock that a forked child cannot take.

    ``what``: its owner, for the error, such as "producer".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._generation = generation()
        self._lock = threading.RLock()

    @property
    def is_foreign(self) -> bool:
        """Whether this process was forked since the lock was made."""
        return self._generation != generation()

    @property
    def held(self) -> threading.RLock:
        """The lock itself, for ``with`` after :meth:`check_own`: it is taken and given back without a step in
        Python.
        """
        return self._lock

    def __enter__(self) -> None:
        """Wait for the lock. Raises InvalidTransactionStateError of kind ``forked``."""
        self.check_own()
        self._lock.acquire()

    def check_own(self) -> None:
        """Raise unless this process has made the lock: InvalidTransactionStateError of kind ``forked``."""
        if self.is_foreign:
            raise InvalidTransactionStateError(
                f"this {self._what} belongs to the parent process, not to this forked one",
                kind="forked",
                hint=f"make a new {self._what} in the forked process",
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
