"""Bundles in a simulated history: those of its past, those that processes write, and what is wrong with some
of them.

A bundle is a hint. Followers fold what the slots hold, and readers see what was written, also where a bundle
is bad.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random

from txnformat import keys
from txnformat.core.state import EMBEDDING, LogState
from txnformat.errors import StorageError
from txnformat.protocol.effects import Steps
from txnformat.protocol.tail import bundle_due, no_entry_kept, payloads_due, write_bundles, write_payloads
from txnformat.segments.payload import head_of, payload_of
from txnlog_testing.simulator.past import Past
from txnlog_testing.simulator.world import World

__all__ = ["PAYLOAD_HITS", "damage_some", "put_past_bundles", "write_due_bundles"]

PAYLOAD_HITS = frozenset(
    {
        "payload bundle changed",
        "payload bundle written",
        "read a bad payload bundle",
        "read a payload bundle",
        "rows looked for in a payload bundle",
    }
)
"""Events that histories with payload bundles must have met. One of a hundred entries, and rows looked for in
a bad one, are too rare to ask for in 450 histories:
``tests/simulation/test_simulator_finds_broken_bundles.py`` has seeds of the latter."""

KEEPING = 0.8
"""How likely a process has kept the entries of a payload bundle since it wrote or read them."""
DAMAGE = 0.3
"""How likely a payload bundle is something else than what was written."""


def put_past_bundles(world: World, past: Past) -> None:
    """Store the bundles of the past: some of them missing, cut, changed, or those of other entries."""
    _put_all(world, past.bundles, world.bad_bundles)
    if past.tens:
        _put_all(world, past.tens, world.store.damaged)


def damage_some(world: World, key: str, data: bytes) -> None:
    """Let a payload bundle that has just been created become something else, now and then: cut, changed, or
    one of other entries.
    """
    if world.rng.random() >= DAMAGE:
        return
    there = {info.key: world.store.get(info.key) or b"" for info in world.store.list(keys.PAYLOAD_PREFIX)}
    found = _damaged(world.rng, data, there, world.rng.randint(1, 3))
    if found is not None and found != data:
        world.store.put(key, found)
        world.store.damaged.add(key)
        world.hits["payload bundle changed"] += 1


def _put_all(world: World, bundles: dict[str, bytes], bad: set[str]) -> None:
    rng = world.rng
    if rng.random() < 0.2:
        return
    if rng.random() < 0.6:
        for key, data in bundles.items():
            world.store.put(key, data)
        return
    for key, data in bundles.items():
        found = _damaged(rng, data, bundles, rng.randrange(12))
        if found is None:
            continue
        world.store.put(key, found)
        if found != data:
            bad.add(key)


def _damaged(rng: Random, data: bytes, others: dict[str, bytes], kind: int) -> bytes | None:
    """Return what is in place of a bundle; None: nothing. ``kind``: 0 to 3 are damages."""
    match kind:
        case 0:
            return None
        case 1:
            return data[: rng.randrange(len(data))]
        case 2:
            at = rng.randrange(len(data))
            return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        case 3:
            return others[rng.choice(sorted(others))]
        case _:
            return data


def write_due_bundles(
    world: World, state: LogState, own: Iterable[int], *, with_payloads: bool
) -> Steps[None]:
    """Do what a committer does in the background after its entries ``own`` have landed."""
    entries = list(own)
    if with_payloads and EMBEDDING in state.features.reader:
        for due in payloads_due(entries):
            yield from _write_payloads(world, *due)
    first = bundle_due(entries)
    if first is None:
        return
    try:
        written = yield from write_bundles(first)
    except StorageError:
        return
    if written:
        world.hits["bundle written"] += 1


def _kept(world: World, entry: int) -> tuple[bytes, bytes] | None:
    data = world.store.get(keys.entry_key(entry))
    return None if data is None else (head_of(data), payload_of(data))


def _write_payloads(world: World, first: int, count: int) -> Steps[None]:
    try:
        kept = partial(_kept, world) if world.rng.random() < KEEPING else no_entry_kept
        written = yield from write_payloads([(first, count)], kept)
    except StorageError:
        return
    if not written:
        return
    world.hits["payload bundle written"] += 1
    world.hits["payload bundle of a hundred written"] += count == 100
