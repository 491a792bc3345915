"""Reading the entries that a listing shows, through bundles where there are whole hundreds. Steps without IO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from txnformat import keys
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundles_in, decode_bundle
from txnformat.core.wire.document import ZSTD_MAGIC, plain_bytes_max
from txnformat.errors import CorruptDataError
from txnformat.protocol.effects import GetObject, ReadClock, Steps, Times
from txnformat.protocol.reads import read_slots, simultaneous

__all__ = ["Tail", "bundle_key_of", "read_back", "read_tail", "usable_bundle"]

PIECE_BYTES = 256 * 1024

TAIL_BATCH = 1_000
"""Listed entries fetched in one batch of simultaneous requests."""


class Tail(NamedTuple):
    """Entries that follow each other, up to the first that is not there."""

    entries: list[bytes]
    proof: Times
    """Clocks just before the GET that found the slot after them empty."""
    has_bundled: bool
    """Whether some come out of bundles: if they do not fit, nothing is proven until the slots are read."""


def bundle_key_of(first: int) -> str:
    """Return the key of the bundle that begins with entry ``first``."""
    return keys.bundle_key(first, first + BUNDLE_ENTRIES - 1)


def usable_bundle(data: object, first: int) -> list[bytes] | None:
    """Return the entries of the bundle that begins with ``first``; None when it is missing, damaged, or holds too much.

    Too much is what one object of its size may not hold, either: a hundred small entries may be gigabytes.
    """
    if not isinstance(data, bytes):
        return None
    try:
        entries = decode_bundle(data, bundle_key_of(first))
    except CorruptDataError:
        return None
    left = plain_bytes_max(len(data))
    for entry in entries:
        left -= _plain_bytes(entry, left)
        if left < 0:
            return None
    return entries


def _plain_bytes(entry: bytes, most: int) -> int:
    """Return how many bytes an entry has when it is decompressed, as far as they are not more than ``most``."""
    if not entry.startswith(ZSTD_MAGIC):
        return len(entry)
    count = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(entry), "zstd") as stream:
            while count <= most and (part := stream.read(PIECE_BYTES)):
                count += len(part)
    except (OSError, pa.ArrowException):
        return count  # damaged, as folding it tells
    return count


def read_back(slots: Sequence[int]) -> Steps[tuple[dict[int, bytes], dict[int, bytes]]]:
    """Return entries to look through, ascending, of bundles where there are: those read from slots, and those of bundles.

    Requests: 1 GET per entry, 1 per whole hundred where there is a bundle; two round trips at most.
    """
    wanted = set(slots)
    whole = [
        first
        for first in bundles_in(range(slots[0], slots[-1] + 1))
        if wanted.issuperset(range(first, first + BUNDLE_ENTRIES))
    ]
    bundled: dict[int, bytes] = {}
    if whole:
        answers = yield from simultaneous(*(GetObject(bundle_key_of(first)) for first in whole))
        for first, data in zip(whole, answers, strict=True):
            bundled |= enumerate(usable_bundle(data, first) or (), first)
    single = sorted(wanted - bundled.keys())
    if not single:
        return {}, bundled
    answers = yield from read_slots(single)
    found = {slot: data for slot, data in zip(single, answers, strict=True) if isinstance(data, bytes)}
    return found, bundled


def read_tail(
    slots: range, *, through_bundles: bool, known: Mapping[int, bytes] | None = None, to_tip: bool = True
) -> Steps[Tail]:
    """Return the bytes of the listed entries and of those after them (``to_tip``); those that are ``known`` from their slots are not read again.

    The last entry of the last bundle is also read from its slot: so what bundles hold ends in what the slots hold,
    and everything before it is bound to it by the chain.

    Requests: 1 GET per entry and one for the slot after them, all at once; 1 GET per whole hundred instead where there
    is a bundle, and 1 more round trip when a bundle that should be there is not.
    """
    found = {slot: data for slot, data in (known or {}).items() if slot in slots}
    bundled: dict[int, bytes] = {}
    firsts = [
        first
        for first in (bundles_in(slots) if through_bundles else ())
        if not found.keys() >= {*range(first, first + BUNDLE_ENTRIES)}
    ]
    inside = {slot for first in firsts for slot in range(first, first + BUNDLE_ENTRIES)}
    inside -= {first + BUNDLE_ENTRIES - 1 for first in firsts[-1:]}  # whole hundreds in a row are one run
    pending: list[int] = [slot for slot in slots if slot not in inside and slot not in found]
    end = slots.stop
    while True:
        batch, pending = pending[:TAIL_BATCH], pending[TAIL_BATCH:]
        wanted = [*batch, end] if to_tip and not pending else batch
        proof = yield ReadClock()
        asked = [bundle_key_of(first) for first in firsts] + [keys.entry_key(slot) for slot in wanted]
        answers = yield from simultaneous(*(GetObject(key) for key in asked))
        slots_read = zip(wanted, answers[len(firsts) :], strict=True)
        found |= {slot: data for slot, data in slots_read if isinstance(data, bytes)}
        pending += _unpack(firsts, answers, found, bundled)
        firsts = []
        if end in found:
            end += 1
        elif not pending:
            break
    read = bundled | found
    entries = []
    for slot in range(slots.start, end):
        if slot not in read:
            break
        entries.append(read[slot])
    return Tail(entries, proof, bool(bundled))


def _unpack(
    firsts: Sequence[int], answers: Sequence[object], found: dict[int, bytes], bundled: dict[int, bytes]
) -> list[int]:
    """Put the entries of bundles into ``bundled``; return the slots to read because a bundle is of no use.

    The last one is of no use when it does not end in what its last slot holds.
    """
    missing: list[int] = []
    for first, data in zip(firsts, answers, strict=False):
        entries = usable_bundle(data, first)
        slots = range(first, first + BUNDLE_ENTRIES)
        if entries is None or (first == firsts[-1] and found.get(slots[-1]) != entries[-1]):
            missing += [slot for slot in slots if slot not in found]
        else:
            bundled |= zip(slots, entries, strict=True)
    return missing
