"""Requests of a verification or a vacuum: patient, several at a time, with progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from txnformat.clock import Clock
from txnformat.errors import StorageError
from txnformat.store.base import ObjectInfo, ObjectStore
from txnformat.verify.files import patiently
from txnformat.verify.report import Progress, VerifyProgress

__all__ = ["Requests"]

THREADS = 8
AT_ONCE = 256

S = TypeVar("S")
T = TypeVar("T")


class Requests:
    """Reads of one store that are repeated while they fail transiently; ``progress`` is called on the calling thread."""

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

    def parallel(self, stage: str, call: Callable[[S], T], items: Sequence[S]) -> Iterator[T]:
        """Yield ``call`` of each item, in order; several at a time."""
        with ThreadPoolExecutor(THREADS, thread_name_prefix="txnlog-requests") as pool:
            for first in range(0, len(items), AT_ONCE):
                part = items[first : first + AT_ONCE]
                for index, result in enumerate(pool.map(call, part), first + 1):
                    yield result
                    self.advance(stage, index, len(items))

    def advance(self, stage: str, done: int, total: int) -> None:
        """Say how far a stage is."""
        if self._progress is not None:
            self._progress(VerifyProgress(stage, done, total))
