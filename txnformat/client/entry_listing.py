"""Which entries there are after one, in a store that would look at all of them to list those."""

from __future__ import annotations

from txnformat import keys
from txnformat.store.base import ObjectStore, lists_by_scanning

__all__ = ["list_after"]

DOUBLINGS = 24
"""A gap, or a run of entries, is followed in steps of up to half of 2 ** 24."""


def list_after(store: ObjectStore, prefix: str, start_after: str | None) -> list[str]:
    """Return the keys under a prefix that sort after ``start_after`` (exclusive), sorted.

    Entries follow each other. So where a listing looks at every object, the newest entry is found by steps
    that halve, and the steps after it find what lies behind an entry that is missing; the answer has the keys
    in between, also that of a missing entry. Requests: 1 LIST; or some fifty HEADs for entries.
    """
    last = None if start_after is None or prefix != keys.LOG_PREFIX else keys.parse_entry_key(start_after)
    if last is None or not lists_by_scanning(store):
        return [info.key for info in store.list(prefix, start_after)]
    return [keys.entry_key(number) for number in range(last + 1, _newest(store, last) + 1)]


def _newest(store: ObjectStore, last: int) -> int:
    """Return the number of the newest entry that is found above ``last``, or ``last``."""

    def is_there(number: int) -> bool:
        return store.head(keys.entry_key(number)) is not None

    newest = last
    while True:
        for step in reversed(range(DOUBLINGS)):
            if is_there(newest + 2**step):
                newest += 2**step
        behind_gap = [newest + 1 + 2**step for step in range(DOUBLINGS)]
        found = [number for number in behind_gap if is_there(number)]
        if not found:
            return newest
        newest = found[-1]
