"""The checks of a truncation before it deletes an entry. Steps without IO.

1. Both snapshots that the log names, and every entry after the older one, lead to the state that this process
   has folded: so a client that opens the log needs nothing older.
2. Each hundred of entries that goes is in a bundle, whose entries the chain binds to those that stay: so the
   history stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import decode_entry, missing_entry, sha256_hex
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import decode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, encode_bundle
from txnformat.errors import CorruptDataError
from txnformat.protocol.effects import GetObject, Steps
from txnformat.protocol.follow import fold_bytes
from txnformat.protocol.reads import get_object, read_slot, read_slots, simultaneous
from txnformat.protocol.snapshots import create_object
from txnformat.protocol.tail import bundle_key_of, usable_bundle

__all__ = ["Hundred", "check_hundreds", "check_snapshots"]

BATCH = 100
"""Entries read at once."""
NOTHING_DELETED = "nothing was deleted; txnlog verify lists everything that is wrong"


def check_snapshots(state: LogState) -> Steps[None]:
    """Raise CorruptDataError unless both snapshots that a state names, and the entries after the older one,
    lead to that state.

    Requests: 2 GETs, and 1 for each entry after the older snapshot.
    """
    older, newer = state.checkpoints
    both = yield from simultaneous(GetObject(older.key), GetObject(newer.key))
    folded, expected = (
        _snapshot(data, named, state.log_id) for data, named in zip(both, (older, newer), strict=True)
    )
    while folded.entry < state.entry:
        slots = range(folded.entry + 1, min(folded.entry + BATCH, state.entry) + 1)
        for slot, data in zip(slots, (yield from read_slots(slots)), strict=True):
            if not isinstance(data, bytes):
                raise missing_entry(slot, NOTHING_DELETED)
            folded = fold_bytes(folded, data)
            if slot == newer.entry:
                _compare(newer.key, folded, expected)
    _compare(older.key, folded, state)


def _snapshot(data: object, named: Checkpoint, log_id: str) -> LogState:
    if not isinstance(data, bytes) or sha256_hex(data) != named.sha256:
        raise CorruptDataError(
            "a snapshot that the log names is gone, or damaged",
            kind="snapshot-missing",
            hint=f"restore it from a copy, or wait until the log names two newer ones; {NOTHING_DELETED}",
            object=named.key,
            expected=named.sha256,
            got=sha256_hex(data) if isinstance(data, bytes) else None,
        )
    return decode_snapshot(data, named, log_id)


def _compare(key: str, folded: LogState, expected: LogState) -> None:
    if folded.entry_sha256 == expected.entry_sha256:
        got, wanted = state_digest(folded), state_digest(expected)
        if got == wanted:
            return
    else:
        got, wanted = folded.entry_sha256, expected.entry_sha256
    raise CorruptDataError(
        "a snapshot and the entries after it do not lead to the state that was folded",
        kind="snapshot-differs",
        hint=NOTHING_DELETED,
        object=key,
        entry=expected.entry,
        expected=wanted,
        got=got,
    )


class Hundred(NamedTuple):
    """A hundred entries below a boundary, or what is left of them."""

    first: int
    bundled: bool
    """A bundle has them, or nothing has them any more: what is in the slots may go. False: they are too large
    for a bundle, and stay."""
    missing: bool = False
    """The bundle is still to be written."""


def check_hundreds(
    firsts: Iterable[int], listed: Collection[int], deleted_below: int, *, write: bool
) -> Steps[list[Hundred]]:
    """Check that the history of entries which are to go is in bundles; return the hundreds, ascending.

    ``firsts``: of the hundreds, all of them below entries that stay or have bundles. ``listed``: the slots
    that are there. ``deleted_below``: where entries may be missing already. ``write``: bundles that are
    missing. Raises CorruptDataError: a bundle, or the entries in the slots, are not those that the chain has.

    Requests: 1 GET for each hundred, and 1 for the one after a run of them; where there is no bundle 100
    GETs, 1 PUT and 1 GET more.
    """
    found: list[Hundred] = []
    expected: str | None = None
    after = -1
    for first in sorted(firsts, reverse=True):
        if after != first + BUNDLE_ENTRIES:
            expected = yield from _previous_of(first + BUNDLE_ENTRIES, deleted_below)
        after = first
        key = bundle_key_of(first)
        data = yield from get_object(key)
        entries = usable_bundle(data, first)
        if entries is not None:
            expected = _chained(entries, first, expected, key)
            found.append(Hundred(first, bundled=True))
            continue
        slots = range(first, first + BUNDLE_ENTRIES)
        gone = [slot for slot in slots if slot not in listed]
        if gone and data is not None:
            raise _bad_bundle(key)
        if gone and first < deleted_below:
            expected = None
            found.append(Hundred(first, bundled=True))  # leftovers of what nothing can tell of any more
            continue
        read = yield from read_slots(slots)
        missing = [slot for slot, one in zip(slots, read, strict=True) if not isinstance(one, bytes)]
        if missing:
            raise missing_entry(missing[0], NOTHING_DELETED)
        entries = [one for one in read if isinstance(one, bytes)]
        expected = _chained(entries, first, expected, keys.entry_key(first))
        bundle = encode_bundle(entries)
        if data is not None or (bundle is not None and usable_bundle(bundle, first) is None):
            bundle = None  # readers pass over it
        if bundle is not None and write:
            yield from create_object(key, bundle)
        found.append(Hundred(first, bundled=bundle is not None, missing=bundle is not None))
    return found[::-1]


def _previous_of(number: int, deleted_below: int) -> Steps[str | None]:
    """Return the hash that the entry before ``number`` has, as entry ``number`` says it, in its slot or else
    in its bundle; None: both are deleted.
    """
    data = yield from read_slot(number)
    if data is None:
        bundled = usable_bundle((yield from get_object(bundle_key_of(number))), number)
        if bundled is None and number < deleted_below:
            return None
        if bundled is None:
            raise missing_entry(number, NOTHING_DELETED)
        data = bundled[0]
    return decode_entry(data, number).previous


def _chained(entries: list[bytes], first: int, expected: str | None, key: str) -> str:
    """Return the hash that the entry before ``first`` has; raise CorruptDataError unless the entries chain,
    and end in ``expected``.
    """
    for number, data in reversed(list(enumerate(entries, first))):
        if expected is not None and sha256_hex(data) != expected:
            raise CorruptDataError(
                "entries below the boundary are not those that the chain has",
                kind="broken-chain",
                hint=NOTHING_DELETED,
                object=key,
                entry=number,
                expected=expected,
                got=sha256_hex(data),
            )
        expected = decode_entry(data, number).previous
    if expected is None:
        raise AssertionError("a hundred has entries")
    return expected


def _bad_bundle(key: str) -> CorruptDataError:
    return CorruptDataError(
        "a bundle of old entries is damaged",
        kind="damaged-bundle",
        hint=f"delete it if its entries are still there, else restore it from a copy; {NOTHING_DELETED}",
        object=key,
    )
