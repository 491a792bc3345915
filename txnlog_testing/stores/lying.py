"""A store that breaks the promise of one winner, or of fresh reads, at every request, and answers as if it
kept it.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum

from txnformat.store.base import CreateOutcome, CreateResult, ObjectInfo, ObjectStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore

__all__ = ["Lie", "LyingStore"]

RIVAL_SECONDS_MAX = 300.0
"""Longest wait for a second creator of a key: a probe whose creators do not race cannot find a store that
lets several win."""

_numbers = itertools.count()


class Lie(StrEnum):
    """The promises that a store can break."""

    SEVERAL_WIN = "several-win"
    """Creators of one key that look before one of them writes all succeed, up to a number of them; the last
    write stays."""
    IGNORES_CONDITION = "ignores-condition"
    """Each create succeeds, and replaces what is there: a store that does not know ``If-None-Match``."""
    REPLACES = "replaces"
    """A create of a taken key is refused, and has replaced the object nevertheless."""
    OWN_SUCCESS_IS_TAKEN = "own-success-is-taken"
    """A create that succeeded is answered with 412."""
    STALE_READS = "stale-reads"
    """The first reads of a new object do not find it, or find what it replaced."""
    STALE_LISTS = "stale-lists"
    """The first listings do not show a new object."""
    LOSES_OBJECTS = "loses-objects"
    """A create succeeds, its key is taken from then on, and there is no object."""


class LyingStore(WrappedStore):
    """Tells lies about objects that are made through it; what ``inner`` had before is as it was.

    Parameters
    ----------
    inner
        The store behind it, which keeps its promises.
    lies
        The lies, told at each request that they concern.
    winners
        SEVERAL_WIN: how many creators of one key succeed, 2 or more.
    stale
        How many reads, or listings, are stale after a write, 1 or more.
    """

    def __init__(
        self, inner: ObjectStore, lies: Collection[Lie], *, winners: int = 2, stale: int = 1
    ) -> None:
        super().__init__(inner)
        self.lies = frozenset(lies)
        self._winners, self._stale = winners, stale
        self._place = f"lying:{next(_numbers)}"
        self._changed = threading.Condition()
        self._claimed: set[str] = set()
        self._looked: Counter[str] = Counter()
        self._hidden: dict[str, tuple[int, bytes | None]] = {}
        self._unlisted: dict[str, int] = {}

    @property
    def place(self) -> str:
        """The store is tried as if it were on another machine."""
        return self._place

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create as the lies say. Requests: as of ``inner``, and 1 HEAD."""
        with self._changed:
            is_taken = key in self._claimed or self._inner.head(key) is not None
            wins = not is_taken or Lie.IGNORES_CONDITION in self.lies
            if wins and not is_taken and Lie.SEVERAL_WIN in self.lies:
                wins = self._is_among_winners(key)
            if wins or Lie.REPLACES in self.lies:
                self._write(key, data)
        told = wins and Lie.OWN_SUCCESS_IS_TAKEN not in self.lies
        return CreateResult(CreateOutcome.CREATED if told else CreateOutcome.EXISTS)

    def put(self, key: str, data: bytes) -> None:
        """Put, with reads and listings as stale as after a create."""
        with self._changed:
            self._write(key, data)

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """Return the object, or what was there before it."""
        with self._changed:
            left, before = self._hidden.get(key, (0, None))
            if left:
                self._hidden[key] = (left - 1, before)
                return before
        return super().get(key, bytes_max)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """List what is not hidden."""
        with self._changed:
            hidden = {key for key, left in self._unlisted.items() if left}
            self._unlisted = {key: left - 1 for key, left in self._unlisted.items() if left > 1}
        return [info for info in super().list(prefix, start_after) if info.key not in hidden]

    def _is_among_winners(self, key: str) -> bool:
        """Wait until a second creator has looked too; return whether this one may write."""
        self._looked[key] += 1
        is_winner = self._looked[key] <= self._winners
        self._changed.notify_all()
        if is_winner and not self._changed.wait_for(lambda: self._looked[key] > 1, RIVAL_SECONDS_MAX):
            raise TimeoutError(f"no second creator of {key} came")
        return is_winner

    def _write(self, key: str, data: bytes) -> None:
        self._claimed.add(key)
        if Lie.STALE_READS in self.lies:
            self._hidden[key] = (self._stale, self._inner.get(key))
        if Lie.STALE_LISTS in self.lies:
            self._unlisted[key] = self._stale
        if Lie.LOSES_OBJECTS not in self.lies:
            self._request(RequestKind.PUT, key, lambda: self._inner.put(key, data))
