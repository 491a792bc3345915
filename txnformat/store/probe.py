"""Whether a store keeps the promise that everything stands on: trying it out, with objects that are no part
of a log.

Stores that ignore ``If-None-Match``, or check it before they write instead of while they write, look fine
until two writers meet; then commits are lost. So a store is tried before a process writes to a root for the
first time (:func:`ensure_fit`), more thoroughly when a log is made (:func:`require_fit`), and for people by
``doctor`` (:func:`probe_store`). Readers never try anything: they need only read rights.

A probe cannot prove that a store is sound; it finds those that do not even try. Probe objects lie below
``_txnlog/probe/``, where nothing ever looks, and are deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from txnformat.clock import Ids
from txnformat.errors import StorageError, TxnLogError, UnsupportedStoreError
from txnformat.forking import renewed
from txnformat.keys import probe_key
from txnformat.store.base import CreateOutcome, ObjectStore, place_of

__all__ = ["ProbeCheck", "ensure_fit", "probe_store", "require_fit"]

RACERS = 4
ATTEMPTS_MAX = 5
"""Probes of which a step had no clear answer before the probe itself fails."""


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """The result of one check."""

    name: str
    """``create``, ``one-winner``, ``read-after-write``, ``refused-overwrite``, ``list-after-write`` or
    ``delete``."""
    promise: str
    """The store's promise: a sentence."""
    problem: TxnLogError | None = None
    """The error that shows how the store broke it; None when the store kept it."""

    @property
    def ok(self) -> bool:
        """Whether the store did what it must."""
        return self.problem is None


class _UnclearError(Exception):
    """A step had no clear answer: it proves nothing."""

    def __init__(self, cause: TxnLogError) -> None:
        self.cause = cause
        super().__init__(cause)


_PROMISES = {
    "create": "a free key can be created",
    "one-winner": "of concurrent creates of one key exactly one succeeds",
    "read-after-write": "a read after a create gives the created bytes",
    "refused-overwrite": "a create of a taken key is refused and changes nothing",
    "list-after-write": "a listing after a create shows the key",
    "delete": "an object can be deleted (only cleaning up needs it)",
}

_lock = renewed(globals(), "_lock", threading.Lock)
_fit: set[str] = set()
"""Places of the roots that this process, or the one that it was forked from, has tried."""


def probe_store(store: ObjectStore, ids: Ids) -> list[ProbeCheck]:
    """Try a store thoroughly, and return what came of each check; checks after a failed one are left out.

    Requests: 5 creates, 2 GETs, 1 listing, 1 DELETE; 5 times that at most while answers are unclear.
    """
    return _probe(store, ids, RACERS)


def require_fit(store: ObjectStore, ids: Ids) -> None:
    """Try a store thoroughly before a log is made in it; a process does not try it again after that.

    Raises UnsupportedStoreError when it does not keep the promise, StorageError when it cannot be written.
    """
    _require(store, ids, RACERS)


def ensure_fit(store: ObjectStore, ids: Ids) -> None:
    """Try a store if this process has not tried it yet. Requests: 2 creates at a time, 1 GET, 1 DELETE, once.

    Raises as :func:`require_fit`.
    """
    if place_of(store) not in _fit:
        _require(store, ids, 2)


def _require(store: ObjectStore, ids: Ids, racers: int) -> None:
    if not place_of(store).startswith("memory:"):  # it is in this process, and there is nothing to find out
        for check in _probe(store, ids, racers):
            if check.problem is not None and check.name != "delete":
                raise check.problem
    with _lock:
        _fit.add(place_of(store))


def _probe(store: ObjectStore, ids: Ids, racers: int) -> list[ProbeCheck]:
    problem: TxnLogError | None = None
    for _ in range(ATTEMPTS_MAX):
        try:
            return _Probe(store, probe_key(ids.new()), racers).run()
        except _UnclearError as error:
            problem = error.cause
    return [ProbeCheck("create", _PROMISES["create"], problem)]


class _Probe:
    """One try with one key: in full, or by two creators and one read, which tells whether the loser replaced
    the object.
    """

    def __init__(self, store: ObjectStore, key: str, racers: int) -> None:
        self._store = store
        self._key = key
        self._racers = racers
        self._is_full = racers > 2
        self._content = b""

    def run(self) -> list[ProbeCheck]:
        steps: dict[str, Callable[[], TxnLogError | None]] = {
            "one-winner": self._create,
            "read-after-write": self._read,
        }
        if self._is_full:
            steps |= {"refused-overwrite": self._overwrite, "list-after-write": self._list}
        checks: list[ProbeCheck] = []
        try:
            for name, step in steps.items():
                checks.append(ProbeCheck(name, _PROMISES[name], self._result(step)))
                if not checks[-1].ok:
                    return checks
        finally:
            deleted = ProbeCheck("delete", _PROMISES["delete"], self._result(self._delete))
        return [*checks, deleted] if self._is_full else checks

    def _result(self, step: Callable[[], TxnLogError | None]) -> TxnLogError | None:
        try:
            return step()
        except StorageError as error:
            return error

    def _create(self) -> TxnLogError | None:
        contents = [b"txnlog probe %d %s" % (number, self._key.encode()) for number in range(self._racers)]
        with ThreadPoolExecutor(self._racers) as pool:
            results = list(pool.map(lambda content: self._store.create(self._key, content), contents))
        winners = [
            content
            for content, result in zip(contents, results, strict=True)
            if result.outcome is CreateOutcome.CREATED
        ]
        if len(winners) > 1:
            return self._unfit("let several concurrent creators of one key succeed", winners=len(winners))
        if not winners:
            for result in results:
                if result.outcome is CreateOutcome.REFUSED and result.error is not None:
                    return result.error
            taken = self._unfit("says of every new key that it is taken")
            raise _UnclearError(next((result.error for result in results if result.error is not None), taken))
        self._content = winners[0]
        return None

    def _read(self) -> TxnLogError | None:
        found = self._store.get(self._key)
        if found is None:
            return self._unfit("does not show an object right after it was created")
        if found != self._content:
            return self._unfit("returns bytes that differ from those whose creation it confirmed")
        return None

    def _overwrite(self) -> TxnLogError | None:
        outcome = self._store.create(self._key, b"txnlog probe: this must not be written").outcome
        # An unclear answer that left the object alone is a refusal too: some stores say 409.
        if outcome is CreateOutcome.CREATED or self._read() is not None:
            return self._unfit("ignores the condition of a create and replaced an object")
        return None

    def _list(self) -> TxnLogError | None:
        if self._key not in [info.key for info in self._store.list(self._key)]:
            return self._unfit("does not list an object right after it was created")
        return None

    def _delete(self) -> TxnLogError | None:
        self._store.delete(self._key)
        return None

    def _unfit(self, what: str, **values: Any) -> UnsupportedStoreError:
        return UnsupportedStoreError(
            f"the store {what}, so commits could be lost; nothing was written",
            hint="use a store with an atomic If-None-Match on PutObject, such as AWS S3, or a local disk",
            store=self._store.url,
            **values,
        )
