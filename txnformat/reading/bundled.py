"""Embedded files of many entries, fetched together: payload bundles in place of one request for each entry.

A bundle is only a hint. A file counts when its bytes have the hash that the state has of it; else it is read
from its entry.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable

from txnformat import keys
from txnformat.core.wire.bundle import PAYLOAD_SIZES, decode_payloads
from txnformat.errors import CorruptDataError, StorageError
from txnformat.segments.payload import payload_of
from txnformat.segments.segment_object import embedded_file, has_file, read_range
from txnformat.store.base import ObjectStore
from txnformat.store.recent import recent_payloads
from txnformat.types import FileRecord

__all__ = ["BundledFiles"]

WANTED_MIN = {100: 10, 10: 3}
"""Entries that have to be wanted out of a bundle, by the number that it has: of fewer each is fetched by
itself."""

HELD_BYTES_MAX = 32 * 2**20
"""Bytes of payloads that are held: a writer seals when its entries have so many."""


class _Bundle:
    """A bundle that is fetched once; ``payloads`` by entry: empty if it is of no use, or had to make room."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_fetched = False
        self.payloads: dict[int, bytes] = {}


class BundledFiles:
    """The segment files of one reader, some of them in entries that it wants many of.

    Safe for use by many threads.
    """

    def __init__(self) -> None:
        self._wanted: set[int] = set()
        self._counts: Counter[tuple[int, int]] = Counter()
        """Wanted entries of each bundle, by its first entry and the number of its entries."""
        self.renew()

    def renew(self) -> None:
        """Let go of what threads are fetching: a forked child does not have them."""
        self._lock = threading.Lock()
        self._bundles: OrderedDict[tuple[int, int], _Bundle] = OrderedDict()
        self._bytes = 0

    def expect(self, files: Iterable[FileRecord]) -> None:
        """Announce files that will be read. Requests: none."""
        entries = {file.place.entry for file in files if file.place is not None} - self._wanted
        self._wanted |= entries
        for count in PAYLOAD_SIZES:
            self._counts.update((entry - entry % count, count) for entry in entries)

    def read(self, store: ObjectStore, file: FileRecord, start: int, length: int) -> bytes:
        """Return bytes of a file as :func:`~txnformat.segments.segment_object.read_range` does, which reads
        those of other files than wanted embedded ones.

        Requests: 1 GET of the first file that a bundle has. If it is missing, or of no use, those of smaller
        ones and of the entry.
        """
        place = file.place
        if place is None or recent_payloads(store).get(place.entry) is not None:
            return read_range(store, file, start, length)
        for count in PAYLOAD_SIZES:
            first = place.entry - place.entry % count
            if self._counts[first, count] < WANTED_MIN[count]:
                continue
            payload = self._payloads(store, first, count).get(place.entry)
            if payload is not None and has_file(payload, file, place):
                return embedded_file(payload, file, place)[start : start + length]
        return read_range(store, file, start, length)

    def _payloads(self, store: ObjectStore, first: int, count: int) -> dict[int, bytes]:
        with self._lock:
            bundle = self._bundles.setdefault((first, count), _Bundle())
        with bundle.lock:  # others that need it wait for the one that fetches it
            if not bundle.is_fetched:
                bundle.payloads = _fetched(store, first, count)
                bundle.is_fetched = True
                self._make_room(bundle)
            return bundle.payloads

    def _make_room(self, newest: _Bundle) -> None:
        """Count what was fetched, and let the oldest ones go.

        Their entries are not read out of them again.
        """
        with self._lock:
            self._bytes += _size(newest)
            for bundle in self._bundles.values():
                if self._bytes <= HELD_BYTES_MAX:
                    break
                if bundle is not newest:
                    self._bytes -= _size(bundle)
                    bundle.payloads = {}


def _size(bundle: _Bundle) -> int:
    return sum(map(len, bundle.payloads.values()))


def _fetched(store: ObjectStore, first: int, count: int) -> dict[int, bytes]:
    """Return the payloads of a bundle by entry; none if it is missing, damaged, or cannot be read."""
    key = keys.payloads_key(first, first + count - 1)
    try:
        data = store.get(key)
        if data is None:
            return {}
        return dict(enumerate(map(payload_of, decode_payloads(data, key, count)), first))
    except StorageError as error:
        if error.transient:
            raise
        return {}
    except CorruptDataError:
        return {}
