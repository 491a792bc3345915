"""Requests of a verification or a vacuum: patient, several at a time, with progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from txnformat.clock import Clock
from txnformat.errors import StorageError
from txnformat.store.base import ObjectInfo, ObjectStore
from txnformat.verify.files import patiently
from txnformat.verify.report import Progress, VerifyProgress

__all__ = ["Requests"]

THREADS = 8
AT_ONCE = 32

S = TypeVar("S")
T = TypeVar("T")


class Requests:
    """Reads of one store that are repeated while they fail transiently; ``progress`` is called on the calling
    thread.
    """

    def __init__(self, store: ObjectStore, clock: Clock, progress: Progress | None) -> None:
        self.store = store
        self.clock = clock
        self._progress = progress

    def attempt(self, request: Callable[[], T]) -> T:
        """Return what a request returns."""
        return patiently(self.clock, request)

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes, or None. Raises StorageError."""
        return self.attempt(lambda: self.store.get(key))

    def fetch(self, key: str) -> bytes | StorageError | None:
        """Return an object's bytes, None, or why the store does not deliver it."""
        try:
            return self.get(key)
        except StorageError as error:
            return error

    def list(self, prefix: str) -> dict[str, int]:
        """Return the sizes of the objects under a prefix, by key."""
        return {info.key: info.size for info in self.objects(prefix)}

    def objects(self, prefix: str) -> Sequence[ObjectInfo]:
        """Return the objects under a prefix, by key."""
        return self.attempt(lambda: self.store.list(prefix))

    def bundles(self, wanted: Sequence[str]) -> Iterator[bytes | StorageError | None]:
        """Yield the bundles of these keys, in order."""
        return self.parallel("bundles", self.fetch, wanted)

    def parallel(self, stage: str, call: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield ``call`` of each item, in order; several at a time, and at most AT_ONCE of them before they
        are wanted.
        """
        with ThreadPoolExecutor(THREADS, thread_name_prefix="txnlog-requests") as pool:
            waiting: deque[Future[T]] = deque()
            todo = iter(items)
            try:
                for done in range(1, len(items) + 1):
                    waiting.extend(pool.submit(call, item) for item in islice(todo, AT_ONCE - len(waiting)))
                    yield waiting.popleft().result()
                    self.advance(stage, done, len(items))
            finally:
                for one in waiting:
                    one.cancel()

    def advance(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage is."""
        if self._progress is not None:
            self._progress(VerifyProgress(stage, done, total))
