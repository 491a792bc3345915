"""Writing bundles: when, and the steps. Without IO, like :mod:`txnformat.protocol.follow`.

A log is complete without any bundle, and a bad one does no harm: readers go back to the entries. So every failure here
leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Iterable

from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first, encode_bundle
from txnformat.errors import CorruptDataError
from txnformat.protocol.effects import CreateObject, Steps
from txnformat.protocol.reads import list_keys, read_slots
from txnformat.protocol.tail import bundle_key_of
from txnformat.store.base import CreateOutcome

__all__ = ["bundle_due", "write_bundles"]

FILL_IN_MAX = 10
"""Bundles that are looked back over: the writer that completes a hundred writes those that earlier writers have failed to write."""


def bundle_due(own_entries: Iterable[int]) -> int | None:
    """Return the hundred that this process has completed with ``own_entries`` and should write the bundle of: its first entry."""
    completed = [entry for entry in own_entries if entry % BUNDLE_ENTRIES == BUNDLE_ENTRIES - 1]
    return bundle_first(max(completed)) if completed else None


def write_bundles(newest: int) -> Steps[int]:
    """Write the bundle that begins with entry ``newest``, and those of the last ten before it that are missing; return how many were written.

    Requests: 1 LIST; for each missing bundle 100 GETs at once and 1 PUT. Raises StorageError.
    """
    oldest = max(0, newest - FILL_IN_MAX * BUNDLE_ENTRIES)
    start_after = bundle_key_of(oldest - BUNDLE_ENTRIES) if oldest else None
    present = set((yield from list_keys(keys.BUNDLE_PREFIX, start_after)))
    written = 0
    for first in range(newest, oldest - 1, -BUNDLE_ENTRIES):
        if bundle_key_of(first) not in present:
            written += yield from _write(first)
    return written


def _write(first: int) -> Steps[int]:
    slots = range(first, first + BUNDLE_ENTRIES)
    found = yield from read_slots(slots)
    entries = [data for data in found if isinstance(data, bytes)]
    # A hole or a broken link: deleted entries, some perhaps created again by a writer that slept. Not worth a bundle.
    if len(entries) != len(found) or not _is_chain(entries, first):
        return 0
    data = encode_bundle(entries)
    if data is None:
        return 0
    result = yield CreateObject(bundle_key_of(first), data)
    if result.outcome is CreateOutcome.REFUSED:
        raise result.error
    return int(result.outcome is CreateOutcome.CREATED)


def _is_chain(entries: list[bytes], first: int) -> bool:
    previous: str | None = None
    for number, data in enumerate(entries, first):
        try:
            entry = decode_entry(data, number)
        except CorruptDataError:
            return False
        if previous is not None and entry.previous != previous:
            return False
        previous = sha256_hex(data)
    return True
