"""Logs that had a life before a simulated history begins."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache, partial
from typing import NamedTuple

from txnformat import keys
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import AllocateIds, AppRef, Intent, TakeCheckpoint, Write
from txnformat.core.operations import Checkpoint, Upgrade
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import EMBEDDING, FEATURES, INTENT_WINDOW_ENTRIES, LogState
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, encode_bundle, encode_payloads
from txnformat.core.wire.document import encode_json
from txnformat.errors import InternalError
from txnformat.protocol.tail import TENS, bundle_key_of
from txnlog_testing.simulator.store import EPOCH_MS

__all__ = ["LONG_PAST", "SHORT_PAST", "Past", "empty_log", "older_first_entry", "past_of"]

LONG_PAST = INTENT_WINDOW_ENTRIES + 98
"""Entries of a past in which the window of intent ids has begun to slide. Its last hundred is nearly
complete: some of the histories write its bundle."""
SHORT_PAST = 194
"""Entries of one of which the operator that truncates soon deletes all, and those that a history adds."""


class Past(NamedTuple):
    """A log that had a long life before the history begins."""

    format_data: bytes
    empty: LogState
    entries: tuple[tuple[CommitEntry, bytes], ...]
    states: tuple[LogState, ...]
    objects: dict[str, bytes]
    bundles: dict[str, bytes]
    tens: dict[str, bytes]
    """The small payload bundles of a past that embeds; else none."""
    stale: tuple[Intent, ...]
    """Old intents without a natural key: the first ones landed, the others never did."""


def empty_log(rng: random.Random) -> tuple[bytes, LogState]:
    """Return the format object of a new log, and its state before entry 0."""
    log_id = _new_id(rng)
    data = encode_json({"format": 1, "log_id": log_id})
    return data, LogState(log_id=log_id, entry_sha256=sha256_hex(data))


def older_first_entry(
    empty: LogState, rng: random.Random, time_ms: int, features: Iterable[str] = ()
) -> tuple[CommitEntry, bytes]:
    """Return the first entry of a log of an older version, which has ``base-1`` and the given features alone,
    and its bytes.
    """
    reader, writer, maintenance = (tuple(sorted(names.union(features))) for names in FEATURES)
    entry = CommitEntry(
        entry=0, log_id=empty.log_id, write_id=_new_id(rng), previous=empty.entry_sha256,
        timestamp_ms=time_ms, engine="past", intents=(_new_id(rng),),
        operations=(Upgrade(reader, writer, maintenance),),
    )  # fmt: skip
    return entry, encode_entry(entry)


def _new_id(rng: random.Random) -> str:
    return f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"


@cache
def past_of(length: int, *, embeds: bool = False) -> Past:
    """Return a log of so many entries, with two snapshots; the same for every history.

    ``embeds``: entries may have payloads, and there are bundles of ten.
    """
    rng = random.Random("a long past")
    format_data, empty = empty_log(rng)
    state, time_ms = empty, EPOCH_MS - 10_000_000
    entries: list[tuple[CommitEntry, bytes]] = []
    states: list[LogState] = []
    objects: dict[str, bytes] = {}

    def land(entry: CommitEntry, data: bytes) -> None:
        nonlocal state
        state = apply(state, entry, sha256_hex(data))
        entries.append((entry, data))
        states.append(state)

    new_id = partial(_new_id, rng)

    land(*older_first_entry(empty, rng, time_ms, (EMBEDDING,) if embeds else ()))
    stale = [Intent(new_id(), 1 + index, AllocateIds("past", 1)) for index in range(6)]
    for index in range(length):
        time_ms += 100
        action = stale[index].action if index < 3 else Write(app=AppRef("past", "app", index))
        intent = stale[index] if index < 3 else Intent(new_id(), state.entry + 1, action)
        if index in (length - 60, length - 20):
            data = encode_snapshot(state)
            key = keys.snapshot_key(state.entry, new_id())
            objects[key] = data
            checkpoint = Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))
            objects[keys.LATEST_KEY] = encode_json(
                {"entry": state.entry, "key": key, "sha256": checkpoint.sha256}
            )
            intent = Intent(new_id(), state.entry + 1, TakeCheckpoint(checkpoint))
        assembled = assemble(state, [intent], store_time_ms=time_ms, write_id=new_id())
        if assembled.entry is None:
            raise InternalError("the past could not be made", verdicts=assembled.verdicts)
        land(assembled.entry, assembled.data)
    bundles = {}
    for slot in range(0, len(entries) - BUNDLE_ENTRIES + 1, BUNDLE_ENTRIES):
        bundle = encode_bundle([data for _, data in entries[slot : slot + BUNDLE_ENTRIES]])
        if bundle is not None:
            bundles[bundle_key_of(slot)] = bundle
    tens = {}
    for slot in range(0, len(entries) - TENS.count + 1, TENS.count) if embeds else ():
        ten = encode_payloads([data for _, data in entries[slot : slot + TENS.count]])
        if ten is not None:
            tens[TENS.key(slot)] = ten
    return Past(format_data, empty, tuple(entries), tuple(states), objects, bundles, tens, tuple(stale))
