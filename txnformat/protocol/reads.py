"""Reads that every step is made of: repeated while the store fails transiently, one by one or many at
once.
"""

from __future__ import annotations

from collections.abc import Iterable

from txnformat import keys
from txnformat.errors import StorageError
from txnformat.protocol.effects import Effect, GetObject, ListObjects, MakeDurable, Simultaneous, Sleep, Steps
from txnformat.segments.payload import head_of
from txnformat.store.object_sizes import NOT_AUTHENTIC, TOO_LARGE, is_hint

__all__ = [
    "READ_ATTEMPTS_MAX",
    "READ_BACKOFF_MS",
    "get_object",
    "list_keys",
    "make_durable",
    "read_boundary",
    "read_slot",
    "read_slots",
    "request",
    "simultaneous",
]

READ_ATTEMPTS_MAX = 5
"""Attempts at a read that fails transiently."""
READ_BACKOFF_MS = 50


def request(effect: Effect) -> Steps[object]:
    """Perform a read, repeating it a bounded number of times while the store fails transiently."""
    for attempt in range(READ_ATTEMPTS_MAX):
        try:
            return (yield effect)
        except StorageError as error:
            if not error.transient or error.patience_over or attempt == READ_ATTEMPTS_MAX - 1:
                raise
        yield Sleep(READ_BACKOFF_MS * 2**attempt)
    raise AssertionError("unreachable")


def get_object(key: str) -> Steps[bytes | None]:
    """Return an object's bytes, or None."""
    try:
        data = yield from request(GetObject(key))
    except StorageError as error:
        if _is_useless_hint(key, error):
            return None
        raise
    return data if isinstance(data, bytes) else None


def _is_useless_hint(key: str, error: StorageError) -> bool:
    """Return whether a log can be read without this object, which is larger than any that a writer makes, or
    does not open.
    """
    return error.kind in (TOO_LARGE, NOT_AUTHENTIC) and is_hint(key)


def list_keys(prefix: str, start_after: str | None = None) -> Steps[list[str]]:
    """Return the keys under a prefix."""
    found = yield from request(ListObjects(prefix, start_after))
    return list(found) if isinstance(found, list) else []


def simultaneous(*requests: GetObject | ListObjects) -> Steps[list[object]]:
    """Perform reads at once; those that fail transiently are repeated one by one."""
    answers = yield Simultaneous(requests)
    for index, answer in enumerate(answers):
        if isinstance(answer, StorageError):
            asked = requests[index]
            if answer.patience_over:
                raise answer
            if answer.transient and isinstance(asked, GetObject):
                answers[index] = yield from get_object(asked.key)
            elif answer.transient:
                answers[index] = yield from request(asked)
            elif isinstance(asked, GetObject) and _is_useless_hint(asked.key, answer):
                answers[index] = None
            else:
                raise answer
    return list(answers)


def read_slots(numbers: Iterable[int]) -> Steps[list[object]]:
    """Return the heads of entries, read at once; anything else of one that is not there.

    Requests: 1 GET per entry.
    """
    found = yield from simultaneous(*(GetObject(keys.entry_key(number)) for number in numbers))
    return [head_of(data) if isinstance(data, bytes) else data for data in found]


def read_slot(number: int) -> Steps[bytes | None]:
    """Return the head of an entry, or None. Requests: 1 GET."""
    data = yield from get_object(keys.entry_key(number))
    return None if data is None else head_of(data)


def make_durable(*of: str) -> Steps[None]:
    """Return once these objects, which were read and which others made, would survive a power cut.

    An answer that uses them is given after this. Requests: none.
    """
    yield from request(MakeDurable(of))


def read_boundary() -> Steps[int]:
    """Return the highest boundary: entries below it (exclusive) may be deleted. Requests: 1 LIST."""
    found = yield from list_keys(keys.BOUNDARY_PREFIX)
    return max((b for b in map(keys.parse_boundary_key, found) if b is not None), default=0)
