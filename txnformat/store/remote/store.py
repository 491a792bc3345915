"""The base of the adapters of stores behind a network: how they are made, handed on, and named, and what
their answers must have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

from txnformat.clock import Clock, Ids, SystemClock, SystemIds
from txnformat.errors import NotFoundError, StorageError
from txnformat.store.base import CreateResult, ObjectInfo, check_range
from txnformat.store.remote.answers import Failure, RequestFailedError

__all__ = ["BACKOFF_MS_MAX", "LISTED_KEYS_MAX", "RemoteStore", "Root"]

BACKOFF_MS = 100
BACKOFF_MS_MAX = 5_000

LISTED_KEYS_MAX = 10_000_000
"""Keys of a listing that is held in memory: a store whose listing does not end must not fill it."""


class Root(NamedTuple):
    """Where a log is, as its URL says."""

    url: str
    """Without a slash at its end."""
    container: str
    """The bucket, or the container."""
    prefix: str
    """Without slashes at its ends; empty for the whole container."""
    account: str | None = None
    """Azure: the storage account, where the URL names it."""
    endpoint: str | None = None
    """Azure: where the URL says that the account is."""


class RemoteStore(ABC):
    """Objects below a prefix of a container.

    ``location``: a URL. ``options``: storage options. ``clock``: the own time, against which the store's is
    measured. ``ids``: the randomness of waiting times. Raises InvalidInputError (``invalid-location``,
    ``invalid-storage-option``). The constructor does no IO.
    """

    def __init__(
        self,
        location: str,
        options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        root, parsed = self.read(location, options or {})
        self._setup(root, parsed, clock, ids)

    def _setup(self, root: Root, options: Any, clock: Clock | None, ids: Ids | None) -> None:
        self.root = root
        self.options = options
        self._own_clock = clock
        self._own_ids = ids
        self.clock = clock or SystemClock()
        self._ids = ids or SystemIds()

    @classmethod
    @abstractmethod
    def read(cls, location: str, options: Mapping[str, str]) -> tuple[Root, Any]:
        """Return what a URL and storage options say together."""

    @abstractmethod
    def endpoint(self) -> str:
        """Return where the store is, for messages: ``http(s)://host…`` where it is known."""

    @abstractmethod
    def _is_missing(self, failure: Failure) -> bool:
        """Return whether a request failed because there is no such object."""

    @abstractmethod
    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """See :meth:`ObjectStore.get <txnformat.store.base.ObjectStore.get>`."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """See :meth:`ObjectStore.head <txnformat.store.base.ObjectStore.head>`."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> CreateResult:
        """See :meth:`ObjectStore.create <txnformat.store.base.ObjectStore.create>`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.root, self.options, self._own_clock, self._own_ids)

    def reopening(self) -> Callable[[], Self] | None:
        """Return what makes an equal store in another process; None for one with components of its own."""
        if self._own_clock is not None or self._own_ids is not None:
            return None
        return partial(_rebuild, type(self), self.root, self.options, None, None)

    @property
    def url(self) -> str:
        """The URL."""
        return self.root.url

    @property
    def place(self) -> str:
        """The URL at its endpoint: containers of one name at two endpoints are two containers."""
        return f"{self.url} at {self.endpoint()}"

    @property
    def reads_in_flight(self) -> int:
        return 16

    def make_durable(self, keys: Sequence[str]) -> None:  # noqa: B027  # what stores do here by default
        """Nothing to do: the store shows no object before it is durable. Costs no request."""

    def pause(self, attempt: int) -> None:
        """Wait after failed attempt number ``attempt`` (from 1), at random up to twice as long each time."""
        wait_ms = min(BACKOFF_MS * 2 ** (attempt - 1), BACKOFF_MS_MAX)
        self.clock.sleep(wait_ms / 1000 * (0.5 + self._ids.uniform() / 2))

    def _check_range(self, key: str, start: int, length: int) -> None:
        """Refuse a range that lies outside the object; an empty one is not read, since HTTP has none.

        Requests: 1 HEAD.
        """
        found = self.head(key)
        if found is None:
            raise NotFoundError("no such object", store=self.url, key=key)
        check_range(self.url, key, start, length, found.size)

    def _check_missing(self, error: RequestFailedError) -> None:
        if not self._is_missing(error.failure):
            raise error.failure.error from None

    def bad_answer(
        self,
        what: str = "the store's answer does not confirm success",
        hint: str = "try again",
        **values: Any,
    ) -> StorageError:
        """Return the error of an answer that was judged."""
        return StorageError(what, kind="connection-lost", hint=hint, transient=True, store=self.url, **values)

    def _other_length(self, key: str, expected: int, **values: Any) -> StorageError:
        return self.bad_answer(
            "the store answered a ranged read with another number of bytes",
            "try again; a proxy that changes answers must not stand in front of the store",
            key=key,
            expected=expected,
            **values,
        )

    def _endless(self, keys: int) -> StorageError:
        return StorageError(
            "the store's listing does not end",
            kind="answer-too-large",
            hint="check the storage option endpoint_url: the server there is no object store, or is broken",
            store=self.url,
            keys=keys,
        )


def _rebuild(cls: type[RemoteStore], root: Root, options: Any, clock: Clock | None, ids: Ids | None) -> Any:
    store = cls.__new__(cls)
    store._setup(root, options, clock, ids)
    return store
