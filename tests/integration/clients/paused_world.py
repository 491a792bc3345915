"""A young log, and the same log days later: others have written, entries were deleted, and writers that slept
have created deleted slots again.

A client that is paused at one of its requests meets the first before the pause, and the second after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from tests.integration.upkeep.truncation_world import EIGHT_DAYS_S, TruncationWorld
from tests.model.groups import DrawnIds
from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry, sha256_hex
from txnformat.core.state import LogState
from txnformat.errors import StorageError
from txnformat.persistent import replace
from txnformat.protocol.snapshots import write_hint
from txnformat.store.base import CreateOutcome, CreateResult, ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore
from txnlog import TxnLog

__all__ = [
    "BOUNDARY",
    "LATER",
    "Chain",
    "Days",
    "Paused",
    "chain_of",
    "days",
    "leave_behind",
    "snapshots_often",
]

Answer = TypeVar("Answer")

BOUNDARY = 200
"""The boundary that counts days later."""
LATER = 10_000
"""The first of the records that others write meanwhile."""
WRITTEN = 50
"""So many, one by one."""
SNAPSHOTS_EVERY = 10
OTHER_ID = "0f0f0f0f-0000-4000-8000-000000000000"
"""The write of a writer that slept."""


@contextmanager
def snapshots_often() -> Iterator[None]:
    """Let writers take snapshots often, so that an opener has few entries to read.

    Only those that nothing pauses: what a commit leaves to the background would make its requests at any
    time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.snapshots.TAIL_ENTRIES_MIN", SNAPSHOTS_EVERY)
        yield


@dataclass(frozen=True, slots=True)
class Chain:
    """The entries that a log really has, by number."""

    entries: dict[int, bytes]

    @property
    def tip(self) -> int:
        """The last one."""
        return max(self.entries)

    def check(self, state: LogState, *, least: int) -> None:
        """Check that a state is that after an entry of the chain, ``least`` or a later one."""
        assert least <= state.entry <= self.tip, f"the state is at entry {state.entry}"
        assert state.entry_sha256 == sha256_hex(self.entries[state.entry]), (
            f"entry {state.entry} is another one"
        )


def chain_of(store: ObjectStore) -> Chain:
    """Return the entries in the slots of a log of which nothing was deleted."""
    found = {
        keys.parse_entry_key(info.key): store.get(info.key) or b"" for info in store.list(keys.LOG_PREFIX)
    }
    return Chain({number: data for number, data in found.items() if number is not None})


def young(template: TruncationWorld, tip: int, *, has_hint: bool, has_bundles: bool) -> TruncationWorld:
    """Return the log as it was right after an entry."""
    world = template.copied()
    store = world.store
    for info in list(store.list("")):
        slot, bundle, snapshot = (
            keys.parse_entry_key(info.key),
            keys.parse_bundle_key(info.key),
            keys.parse_snapshot_key(info.key),
        )
        newest = slot if slot is not None else bundle[1] if bundle else snapshot.born + 1 if snapshot else -1
        if newest > tip or info.key == keys.LATEST_KEY or (bundle and not has_bundles):
            store.delete(info.key)
    named = world.opened().state.checkpoints
    if has_hint and named:
        world.opened().committer.read(write_hint(named[-1]))
    return world


def grow_old(world: TruncationWorld) -> Chain:
    """Let others write, and the entries become old; return the entries as they were before any was
    deleted.
    """
    log = TxnLog.open(world.store, clock=world.clock, ids=DrawnIds(1))  # whether a snapshot is due is drawn
    with snapshots_often():
        world.grow(log, range(LATER, LATER + WRITTEN))
        first = LATER + WRITTEN
        while log.refresh().checkpoints[0].entry < BOUNDARY:
            world.grow(log, range(first, first + SNAPSHOTS_EVERY))
            first += SNAPSHOTS_EVERY
        log.close()
    chain = chain_of(world.store)
    world.clock.sleep(EIGHT_DAYS_S)
    return chain


def leave_behind(store: MemoryStore, chain: Chain, slots: Iterable[int]) -> None:
    """Create deleted slots again, as writers do that slept before their create: each entry chains to the one
    that was before it."""
    for slot in slots:
        entry = decode_entry(chain.entries[slot], slot)
        store.create(keys.entry_key(slot), encode_entry(replace(entry, write_id=OTHER_ID)))


@dataclass(frozen=True, slots=True)
class Days:
    """A log before and after some days."""

    before: TruncationWorld
    after: TruncationWorld
    chain: Chain
    tip: int
    """The last entry before."""

    def pass_in(self, world: TruncationWorld) -> None:
        """Let the days pass in a copy of the log before."""
        store = world.store
        for info in list(store.list("")):
            store.delete(info.key)
        for info in self.after.store.list(""):
            store.create(info.key, self.after.store.get(info.key) or b"")
        world.clock.ms = self.after.clock.ms

    def left_behind(self, slots: Iterable[int]) -> Days:
        """Return the same days, in which writers that slept have created these deleted slots again."""
        after = self.after.copied()
        leave_behind(after.store, self.chain, (slot for slot in slots if slot < BOUNDARY))
        return Days(self.before, after, self.chain, self.tip)


def days(template: TruncationWorld, tip: int, *, has_hint: bool = True, has_bundles: bool = False) -> Days:
    """Return a log right after entry ``tip``, and days later, when all entries below the boundary are
    deleted."""
    before = young(template, tip, has_hint=has_hint, has_bundles=has_bundles)
    after = before.copied()
    chain = grow_old(after)
    after.truncate()
    assert after.truncate().deleted_below == BOUNDARY
    return Days(before, after, chain, tip)


class Paused(WrappedStore):
    """The store of a client that is paused once.

    ``fails_first``: the first GET of each entry that is there fails for now, so that the client asks again,
    after the others of the same moment. ``loses_answer``: no answer comes to the first create of an entry in
    the paused call, which has succeeded.
    """

    def __init__(self, inner: ObjectStore, *, fails_first: bool = False, loses_answer: bool = False) -> None:
        super().__init__(inner)
        self.was_paused = False
        self.scans = False
        """Whether it looks for entries one by one in place of a listing, as on a local disk."""
        self._left, self._is_armed = -1, False
        self._meanwhile: Callable[[], object] = lambda: None
        self._fails_first = fails_first
        self._failed: set[str] = set()
        self._loses_answer = loses_answer

    @property
    def lists_by_scanning(self) -> bool:
        """See :func:`~txnformat.store.base.lists_by_scanning`."""
        return self.scans

    def pause(self, number: int, meanwhile: Callable[[], object]) -> None:
        """Pause before the request of a number, from 0, counted from now on."""
        self._left, self._meanwhile, self._is_armed = number, meanwhile, True
        self._failed.clear()

    def create(self, key: str, data: bytes) -> CreateResult:
        """Create an object; the answer to the first entry may be lost."""
        result = super().create(key, data)
        if self._is_armed and self._loses_answer and keys.parse_entry_key(key) is not None:
            self._loses_answer = False
            return CreateResult(CreateOutcome.AMBIGUOUS, StorageError("the connection broke", transient=True))
        return result

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        self._left -= 1
        if self._left == -1 and self._is_armed:
            self.was_paused = True
            self._meanwhile()
        is_entry = keys.parse_entry_key(key) is not None
        if self._fails_first and is_entry and operation is RequestKind.GET and key not in self._failed:
            self._failed.add(key)
            if self._inner.head(key) is not None:
                raise StorageError("the store is busy", transient=True)
        return call()
