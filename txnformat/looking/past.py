"""The state after an old entry, and the entries from there on: steps without IO.

A state begins with the newest named snapshot at or before the entry, or with nothing. Snapshots are deleted
by vacuums, and entries by truncations, so not every state can be told any more: ``Reach`` says which can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import decode_snapshot
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.protocol.effects import Steps
from txnformat.protocol.follow import empty_state
from txnformat.protocol.old_entries import OldEntries, history_start
from txnformat.protocol.reads import get_object, list_keys, read_boundary
from txnformat.protocol.tail import read_tail
from txnformat.segments.payload import head_of

__all__ = ["FOLD_MAX", "Reach", "fold_to", "read_reach", "state_after"]

FOLD_MAX = 50_000
"""Most entries that are folded to reach an old state: of more, it takes minutes."""
PIECE = 1_000
"""Entries in memory at once."""
NAMED_WITHIN = 1_000
"""Entries after a snapshot in which the one that names it is looked for."""

OnEntry = Callable[[CommitEntry, LogState, int], None]
"""Is called with an entry, the state after it, and its bytes."""


class Reach(NamedTuple):
    """The states that can be told."""

    history_start: int
    """The first entry that can be read, with all after it."""
    boundary: int
    """Entries below it may be deleted."""
    snapshots: tuple[tuple[int, str], ...]
    """Entry and key of the snapshots that are stored, ascending; of the same entry there may be several."""

    @property
    def earliest(self) -> int:
        """Return the earliest entry whose state can be told: -1 is the empty log."""
        if self.history_start == 0:
            return -1
        usable = [entry for entry, _ in self.snapshots if entry + 1 >= self.history_start]
        return min(usable, default=self.history_start)


def read_reach() -> Steps[Reach]:
    """Return which states can be told.

    Requests: 2 LISTs, and 2 more of a log whose oldest entries are deleted.
    """
    boundary = yield from read_boundary()
    start = yield from history_start(boundary)
    found = yield from list_keys(keys.SNAPSHOT_PREFIX)
    named = ((keys.parse_snapshot_key(key), key) for key in found)
    snapshots = sorted((name.born, key) for name, key in named if name is not None)
    return Reach(start, boundary, tuple(snapshots))


def state_after(newest: LogState, number: int, reach: Reach) -> Steps[LogState]:
    """Return the state after entry ``number`` (-1: before the first), which is at most that of ``newest``.

    Raises NotFoundError: kind ``state-gone`` (the entries or snapshots that tell it are deleted),
    ``state-too-far`` (more than FOLD_MAX entries lie between it and the nearest state that is stored).

    Requests: 1 GET of a snapshot, and those of the entries from there on: 1 GET each, or 1 per hundred where
    there are bundles.
    """
    if number == newest.entry:
        return newest
    state: LogState | None = None
    for born, key in reversed(reach.snapshots):
        if born <= number and born + 1 >= reach.history_start and number - born <= FOLD_MAX:
            state = yield from _snapshot(newest, born, key, reach)
            if state is not None:
                break
    if state is None:
        if reach.history_start > 0:
            raise NotFoundError(
                "the state after this entry cannot be told any more: the entries or snapshots before it "
                "are deleted",
                kind="state-gone",
                hint=f"states from entry {reach.earliest} on may be told; records of older versions are "
                "read as before",
                entry=number,
                earliest=reach.earliest,
            )
        if number + 1 > FOLD_MAX:
            raise NotFoundError(
                "the nearest stored state is too many entries before this one",
                kind="state-too-far",
                hint=f"choose an entry below {FOLD_MAX}, or one behind a stored snapshot",
                entry=number,
                most=FOLD_MAX,
                snapshots=[born for born, _ in reach.snapshots[-5:]],
            )
        data = yield from get_object(keys.FORMAT_KEY)
        if data is None:
            raise CorruptDataError("format.json is missing", kind="format-missing", object=keys.FORMAT_KEY)
        state = empty_state(data)
    return (yield from fold_to(state, number, newest, reach.boundary))


def fold_to(
    state: LogState, number: int, newest: LogState, boundary: int, on_entry: OnEntry | None = None
) -> Steps[LogState]:
    """Return the state after entry ``number`` (inclusive), folded on from ``state``; ``on_entry`` sees each
    step.

    The chain is checked: what is read leads from ``state`` on, and to ``newest`` if that is where it ends.
    Raises CorruptDataError if it does not.
    """
    old = OldEntries(newest.entry)
    while state.entry < number:
        slots = range(state.entry + 1, min(number, state.entry + PIECE) + 1)
        for data in (yield from _stored(old, slots, boundary)):
            head = head_of(data)
            entry = decode_entry(head, state.entry + 1)
            state = apply(state, entry, sha256_hex(head))
            if on_entry is not None:
                on_entry(entry, state, len(data))
    if state.entry == newest.entry and state.entry_sha256 != newest.entry_sha256:
        raise CorruptDataError(
            "the entries do not lead to the newest one",
            kind="broken-chain",
            hint="txnlog verify lists everything that is wrong",
            object=keys.entry_key(state.entry),
            expected=newest.entry_sha256,
            got=state.entry_sha256,
        )
    return state


def _stored(old: OldEntries, slots: range, boundary: int) -> Steps[list[bytes]]:
    """Return the bytes of entries: many at once from their slots and bundles, deleted ones out of bundles."""
    found = yield from _one_by_one(old, range(slots.start, min(slots.stop, boundary)))
    first = slots.start + len(found)
    if first < slots.stop:
        tail = yield from read_tail(range(first, slots.stop), through_bundles=True, to_tip=False)
        found += tail.entries[: slots.stop - first]
    return found + (
        yield from _one_by_one(old, range(slots.start + len(found), slots.stop))
    )  # deleted meanwhile


def _one_by_one(old: OldEntries, slots: range) -> Steps[list[bytes]]:
    found: dict[int, bytes] = {}
    for number in slots:
        found[number] = yield from old.stored(number)
    return list(found.values())


def _snapshot(newest: LogState, born: int, key: str, reach: Reach) -> Steps[LogState | None]:
    """Return the state of a snapshot if an entry names it: an object that no entry names means nothing.

    None: it is of no use.
    """
    named = next((one for one in newest.checkpoints if one.key == key), None)
    old = OldEntries(newest.entry)
    first = born + 1
    last = min(newest.entry, born + NAMED_WITHIN)
    while named is None and first <= last:
        slots = range(first, min(last, first + 99) + 1)
        for number, data in enumerate((yield from _stored(old, slots, reach.boundary)), first):
            for op in decode_entry(head_of(data), number).operations:
                if isinstance(op, Checkpoint) and op.key == key:
                    named = op
        first = slots.stop
    if named is None:
        return None
    stored = yield from get_object(key)
    if stored is None:
        return None
    try:
        return decode_snapshot(stored, named, newest.log_id)
    except CorruptDataError:
        return None  # the entries tell the same
