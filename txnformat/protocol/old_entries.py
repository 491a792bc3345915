"""Entries that may have been deleted: what is below the boundary is read out of bundles. Steps without IO.

A slot below the boundary may have been created again by a writer that slept, with an entry that the log never
had. So an entry out of a slot counts if a boundary says so that is read afterwards, or not long before:
nothing below a boundary is deleted in its first hour. The entry's own time says nothing: that writer may have
looked at the clock when it woke up.
"""

from __future__ import annotations

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, missing_entry, sha256_hex
from txnformat.core.lifecycle.truncation import BOUNDARY_AGE_MS_MIN
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first
from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.protocol.effects import ReadClock, Steps, Times
from txnformat.protocol.reads import get_object, list_keys, read_boundary, read_slot
from txnformat.protocol.tail import bundle_key_of, usable_bundle
from txnformat.protocol.view import age_of

__all__ = ["HISTORY_GONE", "OldEntries", "history_gone", "history_start"]

HISTORY_GONE = "history-gone"
"""Kind of the error about an entry that is deleted and in no bundle."""
BOUNDARY_MS_MAX = BOUNDARY_AGE_MS_MIN // 2
"""How long a boundary that was read says which slots hold what they always held."""


class OldEntries:
    """Reads entries of one log, in any order. ``newest``: the last one that there is.

    Requests of a read: 1 GET, and 1 LIST once in half an hour; of an entry below the boundary 1 GET of its
    bundle, once for entries of the same hundred in a row.
    """

    def __init__(self, newest: int) -> None:
        self._newest = newest
        self._boundary = 0
        self._asked: Times | None = None
        self._bundle: tuple[int, list[bytes] | None] = (-1, None)

    def read(self, number: int) -> Steps[CommitEntry]:
        """Return an entry.

        Raises NotFoundError of kind ``history-gone``: it is deleted, and in no bundle; CorruptDataError.
        """
        data = yield from self.stored(number)
        try:
            return decode_entry(data, number)
        except CorruptDataError as error:
            first, entries = self._bundle
            if entries is None or first != bundle_first(number) or data is not entries[number - first]:
                raise
            # The entry itself is deleted: what is damaged, and can be restored, is the bundle.
            values = {**error.values, "object": bundle_key_of(first), "entry": number}
            raise CorruptDataError(error.what, kind=error.kind, hint=error.hint, **values) from error

    def stored(self, number: int) -> Steps[bytes]:
        """Return the bytes of an entry, unchecked. Raises as :meth:`read`."""
        if number >= self._boundary:
            found = yield from read_slot(number)
            now: Times = yield ReadClock()
            if found is None or self._asked is None or age_of(self._asked, now) > BOUNDARY_MS_MAX:
                self._asked = now
                self._boundary = yield from read_boundary()
            if number >= self._boundary and found is not None:
                return found
        return (yield from self._deleted(number))

    def _deleted(self, number: int) -> Steps[bytes]:
        first = bundle_first(number)
        if self._bundle[0] != first:
            self._bundle = (first, usable_bundle((yield from get_object(bundle_key_of(first))), first))
        entries = self._bundle[1]
        if entries is not None:
            return entries[number - first]
        if number >= self._boundary:
            raise missing_entry(number)  # something else than a truncation has deleted it
        found = yield from self._kept(number)
        if found is None:
            raise (yield from self._gone(number))
        return found

    def _kept(self, number: int) -> Steps[bytes | None]:
        """Return an entry of a hundred that is too large for a bundle, and so stays in its slots: the entry
        that follows names it.

        An entry that a writer left in a deleted slot after it slept has no such follower.
        """
        found = yield from read_slot(number)
        if found is None:
            return None
        is_last = bundle_first(number + 1) != bundle_first(number)
        if is_last and number == self._newest:
            return None
        following = yield from (self.stored(number + 1) if is_last else read_slot(number + 1))
        if following is None or decode_entry(following, number + 1).previous != sha256_hex(found):
            return None
        return found

    def _gone(self, number: int) -> Steps[NotFoundError]:
        # A listed bundle may be damaged, as that of this entry is.
        earliest = max((yield from history_start(self._boundary)), bundle_first(number) + BUNDLE_ENTRIES)
        return history_gone(number, earliest, self._newest)


def history_gone(number: int, earliest: int, latest: int, **values: object) -> NotFoundError:
    """Return the error about an entry that nothing can tell of any more."""
    return NotFoundError(
        "the entry is deleted, and no bundle has it",
        kind="history-gone",
        hint=f"entries {earliest} to {latest} can be read; records of older versions are read as before, "
        "by the number of the version",
        entry=number,
        earliest=earliest,
        latest=latest,
        **values,
    )


def history_start(boundary: int) -> Steps[int]:
    """Return the first entry from which on all can be read, out of bundles or slots.

    Requests: 2 LISTs; none without a boundary.
    """
    if not boundary:
        return 0
    bundles = {
        found[0] for found in map(keys.parse_bundle_key, (yield from list_keys(keys.BUNDLE_PREFIX))) if found
    }
    slots = {
        number
        for number in map(keys.parse_entry_key, (yield from list_keys(keys.LOG_PREFIX)))
        if number is not None
    }
    start = boundary
    while start > 0:
        first = bundle_first(start - 1)
        if first not in bundles and not slots.issuperset(range(first, first + BUNDLE_ENTRIES)):
            break
        start = first
    return start
