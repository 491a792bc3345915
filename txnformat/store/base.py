"""The requests that txnlog makes to an object store, and nothing more.

Keys are relative, ``/``-separated, already validated by :mod:`txnformat.keys`. Objects are immutable once
created, except the few hints that ``put`` replaces.

Error semantics
---------------
* A missing object is ``None`` (``get``, ``head``), never an exception; ``get_range`` of a missing object
  raises :class:`~txnformat.errors.NotFoundError`.
* ``create`` never raises for a lost race or an unclear answer: it returns a :class:`CreateResult`.
* Everything else raises :class:`~txnformat.errors.StorageError`; ``transient`` says whether a repeat may
  help.

See the specification, section "Stores".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from txnformat.errors import InvalidInputError, StorageError

__all__ = [
    "CreateOutcome",
    "CreateResult",
    "ObjectInfo",
    "ObjectStore",
    "ObjectWriter",
    "asked",
    "check_range",
    "created_ms",
    "is_encrypted",
    "keeps_versions",
    "list_each",
    "lists_by_scanning",
    "make_durable",
    "place_of",
    "range_of",
    "rotate_key",
    "too_large",
]


class CreateOutcome(StrEnum):
    """The known effect of one attempt at a conditional create."""

    CREATED = "created"
    """The object is there with exactly our bytes, durable."""
    EXISTS = "exists"
    """HTTP 412 or EEXIST: an object was there. It may be our own from an earlier attempt: read it back."""
    AMBIGUOUS = "ambiguous"
    """409, 5xx, timeout, reset, fsync error after the link: it may have been, or may still be, applied."""
    REFUSED = "refused"
    """Known not to have been applied and never will be: read-only, disk full, no permission."""


class CreateResult(NamedTuple):
    """Answer of :meth:`ObjectStore.create`."""

    outcome: CreateOutcome
    error: StorageError | None = None
    """The cause, for AMBIGUOUS and REFUSED."""


class ObjectInfo(NamedTuple):
    """One line of a listing."""

    key: str
    size: int
    """Bytes."""


class ObjectWriter(Protocol):
    """A streamed upload: nothing is visible under the key before ``close`` returns."""

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number."""
        ...

    def close(self) -> None:
        """Make the object visible and durable. Raises StorageError when the key already exists."""
        ...

    def abort(self) -> None:
        """Drop what was written; idempotent; never raises."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close on a normal exit, abort on an exception."""
        ...


class ObjectStore(Protocol):
    """An object store with atomic create-if-absent and strong read-after-write consistency."""

    @property
    def url(self) -> str:
        """Where the store is, for messages: no secrets."""
        ...

    @property
    def reads_in_flight(self) -> int:
        """Ranged reads of one object worth having in flight together: 1 where a read is a system call."""
        ...

    def store_time_ms(self) -> int:
        """Return the store's time, ms since the epoch (local disk and memory: the own clock is store
        time).
        """
        ...

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        """Return the whole object, or None when there is none. Requests: 1 GET.

        It may have ``bytes_max`` bytes (inclusive), for callers who know its size; by default those of its
        class of key (:func:`~txnformat.store.object_sizes.bytes_max`). A store never holds more of it in
        memory: StorageError of kind ``object-too-large``.
        """
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``start`` (inclusive). Requests: 1 ranged GET."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size, or None. Requests: 1 HEAD."""
        ...

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create the object if the key is free: one attempt, atomic, durable. Requests: 1 conditional PUT."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Create or replace the object atomically. Only for hints. Requests: 1 PUT."""
        ...

    def open_write(self, key: str) -> ObjectWriter:
        """Start a streamed upload to a fresh key. Requests: 1 PUT, or a multipart upload."""
        ...

    def make_durable(self, keys: Sequence[str]) -> None:
        """Return once these objects, which were read here and made elsewhere, would survive a power cut.

        The default is for stores that show nothing before it is durable, as object stores do: no cost.
        Wrappers pass it on. Call it through :func:`make_durable`. StorageError: it could not be done, so tell
        no caller what these objects say.
        """
        return

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        """Return the objects whose key starts with ``prefix`` and sorts after ``start_after`` (exclusive).

        Sorted by key (UTF-8 bytes). Objects in the middle of being created are not listed.
        """
        ...

    def delete(self, key: str) -> None:
        """Delete the object; a missing one is no error. Requests: 1 DELETE."""
        ...


def asked(store: ObjectStore, method: str, *arguments: Any) -> Any:
    """Return what a method returns that a store may have; None: it has none, as those of others that know
    only :class:`ObjectStore`.
    """
    own = getattr(store, method, None)
    return None if own is None else own(*arguments)


def make_durable(store: ObjectStore, keys: Sequence[str]) -> None:
    """Call the store's :meth:`ObjectStore.make_durable`; a store of others that has none is durable by
    itself.
    """
    asked(store, "make_durable", keys)


def list_each(store: ObjectStore, prefix: str, take: Callable[[ObjectInfo], object]) -> None:
    """Call ``take`` with each object whose key starts with ``prefix``, in any order; a store holds few of
    them at a time, if it has a method of this name.

    When it raises, some may have been taken. Objects that come or go meanwhile are taken or not. ``take``
    raises no OSError: a store takes it for its own.
    """
    method = getattr(store, "list_each", None)
    if method is not None:
        method(prefix, take)
        return
    for info in store.list(prefix):
        take(info)


def lists_by_scanning(store: ObjectStore) -> bool:
    """Return whether a listing after a key looks at every object under the prefix, as one of a directory
    does.

    A store says so by an attribute of this name.
    """
    return bool(getattr(store, "lists_by_scanning", False))


def too_large(url: str, key: str, expected: int, got: int | None) -> StorageError:
    """Return the error about an object with more than ``expected`` bytes; ``got`` is None when nothing says
    how many.
    """
    return StorageError(
        "an object is larger than the format allows",
        kind="object-too-large",
        hint="no version of txnlog writes such an object: find its writer, and restore it from a copy",
        store=url,
        key=key,
        expected=f"at most {expected} bytes",
        got="more" if got is None else f"{got} bytes",
    )


def range_of(store: ObjectStore, key: str, start: int, length: int, size: int) -> bytes:
    """Return a byte range of an object whose ``size`` is known, as :meth:`ObjectStore.get_range` does.

    Requests: 1 ranged GET.

    A store that has to know the size to find a range has a method ``get_range_of``.
    """
    method = getattr(store, "get_range_of", None)
    if method is None:
        return store.get_range(key, start, length)
    found: bytes = method(key, start, length, size)
    return found


def is_encrypted(store: ObjectStore) -> bool:
    """Return whether a store encrypts what it is given: only its clients can read its objects."""
    return bool(getattr(store, "is_encrypted", False))


def rotate_key(store: ObjectStore, *, master: bool) -> int:
    """Call the method ``rotate_key`` of a store that encrypts.

    Raises InvalidInputError of kind ``log-not-encrypted`` about another one.
    """
    method = getattr(store, "rotate_key", None)
    if method is None:
        raise InvalidInputError(
            "the log is not encrypted",
            kind="log-not-encrypted",
            hint="a log is encrypted from its creation on, by the storage option key_client",
            path=store.url,
        )
    count: int = method(master=master)
    return count


def created_ms(store: ObjectStore, key: str) -> int | None:
    """Return when an object was created, in the store's time, ms since the epoch; None: it is not there, or
    the store cannot tell.

    A time that is too late is possible (a copy of the object is younger than the object); one that is before
    the object could be seen is not, but for the time of one request. Requests: 1 HEAD.
    """
    found: int | None = asked(store, "created_ms", key)
    return found


def keeps_versions(store: ObjectStore) -> bool | None:
    """Return whether a store keeps old versions of objects that were replaced or deleted; None: it does not
    say.

    Requests: at most 1. Raises StorageError.
    """
    found: bool | None = asked(store, "keeps_versions")
    return found


def place_of(store: ObjectStore) -> str:
    """Return what tells the store from every other: its URL, and the endpoint where that is not part of it.

    No secrets.
    """
    place: str | None = getattr(store, "place", None)
    return store.url if place is None else place


def check_range(url: str, key: str, start: int, length: int, size: int) -> None:
    """Raise StorageError unless bytes ``[start, start + length)`` lie within an object of ``size`` bytes.

    An empty range is legal anywhere from 0 to ``size`` (inclusive).
    """
    if start < 0 or length < 0 or start + length > size:
        raise StorageError(
            "the byte range lies outside the object",
            kind="invalid-range",
            hint="the object is shorter than the log says: verify the log",
            store=url,
            key=key,
            start=start,
            length=length,
            size=size,
        )
