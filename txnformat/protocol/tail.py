"""Bundles: reading what a listing shows through those of a hundred entries, and writing them and payload
bundles.

Steps without IO.

A log is complete without any bundle, and a bad one does no harm: readers go back to the entries. So every
failure to write one leaves the log as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.wire.bundle import (
    BUNDLE_ENTRIES,
    PAYLOAD_SIZES,
    bundle_first,
    bundles_in,
    decode_bundle,
    decode_payloads,
    encode_bundle,
    encode_payloads,
)
from txnformat.core.wire.document import ZSTD_MAGIC, plain_bytes_max
from txnformat.errors import CorruptDataError
from txnformat.protocol.effects import CreateObject, GetObject, ReadClock, Steps, Times
from txnformat.protocol.reads import list_keys, read_slots, simultaneous
from txnformat.segments.payload import head_of, payload_of, with_payload
from txnformat.store.base import CreateOutcome

__all__ = [
    "FILL_IN_MAX",
    "HUNDREDS",
    "TENS",
    "Bundles",
    "KeptEntry",
    "Tail",
    "bundle_due",
    "bundle_key_of",
    "no_entry_kept",
    "payloads_due",
    "read_back",
    "read_tail",
    "usable_bundle",
    "usable_payloads",
    "write_bundles",
    "write_payloads",
]

PIECE_BYTES = 256 * 1024

FILL_IN_MAX = 10
"""Bundles that are looked back over: the writer that completes a hundred writes those that earlier writers
have failed to write."""

QUICK_MS = 60_000
"""Log time of ten entries that followers are likely to find together."""

TAIL_BATCH = 1_000
"""Listed entries fetched in one batch of simultaneous requests."""


KeptEntry = Callable[[int], tuple[bytes, bytes] | None]
"""Returns head and payload of an entry as this process has read or written it before; None: it has not, or
has dropped it."""


def no_entry_kept(entry: int) -> None:
    """Return None, as a process that keeps no entries."""


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


@dataclass(frozen=True, slots=True)
class Bundles:
    """A sort of bundles, for a follower that is some entries behind."""

    count: int
    """Entries of each; its first is a multiple of it."""
    behind: int
    """Entries that were read one by one before the first of these is asked for, where nothing says how many
    there are."""
    ahead: int
    """Bundles asked for at once, at most."""

    def first(self, entry: int) -> int:
        """Return the first entry of the bundle that ``entry`` belongs to."""
        return entry - entry % self.count

    def key(self, first: int) -> str:
        """Return the key of the bundle that begins with entry ``first``."""
        return bundle_key_of(first) if self is HUNDREDS else keys.payloads_key(first, first + self.count - 1)

    def heads(self, data: object, first: int) -> list[bytes] | None:
        """Return the heads of the entries of the bundle that begins with ``first``; None as of
        :func:`usable_bundle`.
        """
        if self is HUNDREDS:
            return usable_bundle(data, first)
        entries = usable_payloads(data, first, self.count)
        return None if entries is None else [head_of(entry) for entry in entries]


HUNDREDS = Bundles(BUNDLE_ENTRIES, behind=31, ahead=8)
TENS = Bundles(min(PAYLOAD_SIZES), behind=3, ahead=2)
"""The small payload bundles: a log has them if it embeds."""


def usable_bundle(data: object, first: int) -> list[bytes] | None:
    """Return the entries of the bundle that begins with ``first``; None when it is missing, damaged, or holds
    too much.

    Too much is what one object of its size may not hold, either: a hundred small entries may be gigabytes.
    """
    if not isinstance(data, bytes):
        return None
    try:
        entries = decode_bundle(data, bundle_key_of(first))
    except CorruptDataError:
        return None
    return entries if _is_bounded(entries, len(data)) else None


def usable_payloads(data: object, first: int, count: int) -> list[bytes] | None:
    """Return the entries of the payload bundle of ``count`` that begins with ``first``; None as of
    :func:`usable_bundle`.
    """
    if not isinstance(data, bytes):
        return None
    try:
        entries = decode_payloads(data, keys.payloads_key(first, first + count - 1), count)
    except CorruptDataError:
        return None
    return entries if _is_bounded([head_of(entry) for entry in entries], len(data)) else None


def _is_bounded(heads: Iterable[bytes], size: int) -> bool:
    """Return whether heads decompress to no more than one object of ``size`` bytes may."""
    left = plain_bytes_max(size)
    for head in heads:
        left -= _plain_bytes(head, left)
        if left < 0:
            return False
    return True


def _plain_bytes(entry: bytes, most: int) -> int:
    """Return how many bytes an entry has when it is decompressed, as far as they are not more than
    ``most``.
    """
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
    """Return entries to look through, ascending, of bundles where there are: those read from slots, and those
    of bundles.

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
    """Return the bytes of the listed entries and of those after them (``to_tip``); those that are ``known``
    from their slots are not read again.

    The last entry of the last bundle is also read from its slot: so what bundles hold ends in what the slots
    hold, and everything before it is bound to it by the chain.

    Requests: 1 GET per entry and one for the slot after them, all at once; 1 GET per whole hundred instead
    where there is a bundle, and 1 more round trip when a bundle that should be there is not.
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
        found |= {slot: head_of(data) for slot, data in slots_read if isinstance(data, bytes)}
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


def bundle_due(own_entries: Iterable[int]) -> int | None:
    """Return the hundred that this process has completed with ``own_entries`` and should write the bundle of:
    its first entry.
    """
    completed = [entry for entry in own_entries if entry % BUNDLE_ENTRIES == BUNDLE_ENTRIES - 1]
    return bundle_first(max(completed)) if completed else None


def write_bundles(newest: int, kept: KeptEntry = no_entry_kept) -> Steps[int]:
    """Write the bundle that begins with entry ``newest``, and those of the last ten before it that are
    missing; return how many were written.

    ``kept``: entries that need not be fetched. Requests: 1 LIST; for each missing bundle 1 PUT, and a GET for
    each of the hundred entries that is not kept. Raises StorageError.
    """
    oldest = max(0, newest - FILL_IN_MAX * BUNDLE_ENTRIES)
    start_after = bundle_key_of(oldest - BUNDLE_ENTRIES) if oldest else None
    present = set((yield from list_keys(keys.BUNDLE_PREFIX, start_after)))
    written = 0
    for first in range(newest, oldest - 1, -BUNDLE_ENTRIES):
        if bundle_key_of(first) not in present:
            written += yield from _write(first, kept)
    return written


def _write(first: int, kept: KeptEntry) -> Steps[int]:
    slots = range(first, first + BUNDLE_ENTRIES)
    found: dict[int, object] = {slot: whole[0] for slot in slots if (whole := kept(slot)) is not None}
    missing = [slot for slot in slots if slot not in found]
    if missing:
        found |= zip(missing, (yield from read_slots(missing)), strict=True)
    entries = [data for slot in slots if isinstance(data := found[slot], bytes)]
    # A hole or a broken link: deleted entries, some perhaps created again by a writer that slept. Not worth a
    # bundle.
    if len(entries) != len(found) or not _is_chain(entries, first):
        return 0
    return (yield from _create(bundle_key_of(first), encode_bundle(entries)))


def _create(key: str, data: bytes | None) -> Steps[int]:
    """Create a bundle, unless its entries are too large for one; return how many were created."""
    if data is None:
        return 0
    result = yield CreateObject(key, data)
    if result.outcome is CreateOutcome.REFUSED:
        raise result.error
    return int(result.outcome is CreateOutcome.CREATED)


def payloads_due(own_entries: Iterable[int]) -> list[tuple[int, int]]:
    """Return the payload bundles that this process has completed with ``own_entries``, small ones first:
    first entry and number of entries of each.
    """
    own = set(own_entries)
    return [
        (entry + 1 - count, count)
        for count in sorted(PAYLOAD_SIZES)
        for entry in sorted(own)
        if entry % count == count - 1
    ]


def write_payloads(due: Iterable[tuple[int, int]], kept: KeptEntry) -> Steps[int]:
    """Write payload bundles; return how many were written.

    The entries of one come from what the process has kept. A small one gets the others from their slots, a
    large one from small ones. Without any payload only a small one is written, and only if its entries came
    so fast that followers are behind. Requests: 1 PUT for each, and 1 GET for each entry, or small bundle,
    that is not kept. Raises StorageError.
    """
    written = 0
    for first, count in due:
        slots = range(first, first + count)
        found = {slot: with_payload(*whole) for slot in slots if (whole := kept(slot)) is not None}
        missing = [slot for slot in slots if slot not in found]
        if missing:
            found |= yield from (
                _from_slots(missing) if count == min(PAYLOAD_SIZES) else _from_small(missing)
            )
        entries = [found[slot] for slot in slots if slot in found]
        if len(entries) < count or not (any(map(payload_of, entries)) or _is_quick(entries, first, count)):
            continue
        written += yield from _create(keys.payloads_key(first, slots[-1]), encode_payloads(entries))
    return written


def _is_quick(entries: Sequence[bytes], first: int, count: int) -> bool:
    """Return whether the entries of a small bundle came within QUICK_MS."""
    if count != TENS.count:
        return False
    try:
        began, ended = (decode_entry(head_of(entries[at]), first + at).timestamp_ms for at in (0, count - 1))
    except CorruptDataError:
        return False
    return ended - began <= QUICK_MS


def _from_slots(slots: Sequence[int]) -> Steps[dict[int, bytes]]:
    answers = yield from simultaneous(*(GetObject(keys.entry_key(slot)) for slot in slots))
    return {slot: data for slot, data in zip(slots, answers, strict=True) if isinstance(data, bytes)}


def _from_small(slots: Sequence[int]) -> Steps[dict[int, bytes]]:
    count = min(PAYLOAD_SIZES)
    firsts = sorted({slot - slot % count for slot in slots})
    answers = yield from simultaneous(
        *(GetObject(keys.payloads_key(first, first + count - 1)) for first in firsts)
    )
    found: dict[int, bytes] = {}
    for first, data in zip(firsts, answers, strict=True):
        found |= enumerate(usable_payloads(data, first, count) or (), first)
    return found


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
