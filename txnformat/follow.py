"""Following a log: cold open and refresh, as steps without IO.

Cold open takes four sequential round trips whatever the log's length; a warm refresh with nothing new takes one
GET. The snapshot is checked against the ``checkpoint`` operation that names it, before it is parsed; the hint
``latest`` is never trusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txnformat import keys
from txnformat.apply import apply
from txnformat.document import decode_json
from txnformat.effects import Effect, GetObject, ListObjects, ReadClock, Simultaneous, Sleep, Steps, Times
from txnformat.entry import FORMAT_VERSION, CommitEntry, decode_entry, sha256_hex
from txnformat.errors import CorruptDataError, NotFoundError, StorageError, UnsupportedFeatureError
from txnformat.operations import Checkpoint
from txnformat.snapshot import decode_snapshot
from txnformat.state import LogState
from txnformat.view import View

__all__ = ["fold_bytes", "open_view", "read_boundary", "read_entry", "refresh", "request"]

READ_ATTEMPTS_MAX = 5
"""Attempts at a read that fails transiently."""
READ_BACKOFF_MS = 50
OPEN_ATTEMPTS_MAX = 3
"""Attempts to open without a hint, of which each but the last may meet a truncation."""
AHEAD_MAX = 16
"""Entries asked for at once while catching up."""
TAIL_BATCH = 1_000
"""Listed entries fetched in one batch of simultaneous requests."""


class Hint(NamedTuple):
    """What ``latest`` says."""

    entry: int
    key: str


def request(effect: Effect) -> Steps[object]:
    """Perform a read, repeating it a bounded number of times while the store fails transiently."""
    for attempt in range(READ_ATTEMPTS_MAX):
        try:
            return (yield effect)
        except StorageError as error:
            if not error.transient or attempt == READ_ATTEMPTS_MAX - 1:
                raise
        yield Sleep(READ_BACKOFF_MS * 2**attempt)
    raise AssertionError("unreachable")


def get_object(key: str) -> Steps[bytes | None]:
    """Return an object's bytes, or None."""
    data = yield from request(GetObject(key))
    return data if isinstance(data, bytes) else None


def list_keys(prefix: str, start_after: str | None = None) -> Steps[list[str]]:
    """Return the keys under a prefix."""
    found = yield from request(ListObjects(prefix, start_after))
    return list(found) if isinstance(found, list) else []


def simultaneous(*requests: GetObject | ListObjects) -> Steps[list[object]]:
    """Perform reads at once; those that fail transiently are repeated one by one."""
    answers = yield Simultaneous(requests)
    for index, answer in enumerate(answers):
        if isinstance(answer, StorageError):
            if not answer.transient:
                raise answer
            answers[index] = yield from request(requests[index])
    return list(answers)


def read_boundary() -> Steps[int]:
    """Return the highest boundary: entries below it (exclusive) may be deleted. Requests: 1 LIST."""
    found = yield from list_keys(keys.BOUNDARY_PREFIX)
    return max((b for b in map(keys.parse_boundary_key, found) if b is not None), default=0)


def read_entry(number: int) -> Steps[CommitEntry | None]:
    """Return one entry of the history, or None when there is none (any more). Requests: 1 GET."""
    data = yield from get_object(keys.entry_key(number))
    return None if data is None else decode_entry(data, number)


def fold_bytes(state: LogState, data: bytes) -> LogState:
    """Return the state after the entry that ``data`` holds."""
    return apply(state, decode_entry(data, state.entry + 1), sha256_hex(data))


def refresh(view: View, *, ahead: int = 1) -> Steps[View]:
    """Fold every entry after the view's, and prove the tip.

    Requests: 1 GET when nothing is new and the view is fresh; else also 1 LIST of the boundary.

    Parameters
    ----------
    ahead : int
        Entries asked for at once in the beginning (at least 1): 2 where something new is likely saves a round trip.
    """
    state = view.state
    while True:
        proof = yield ReadClock()
        slots = range(state.entry + 1, state.entry + 1 + ahead)
        answers = yield from simultaneous(*(GetObject(keys.entry_key(slot)) for slot in slots))
        for data in answers:
            if not isinstance(data, bytes):
                break
            try:
                state = fold_bytes(state, data)
            except CorruptDataError as error:
                return (yield from _reload_after(error, view.state.entry + 1))
        else:
            ahead = min(2 * ahead, AHEAD_MAX)
            continue
        now = yield ReadClock()
        if not view.is_fresh(now):
            boundary = yield from read_boundary()
            if boundary > state.entry + 1:
                # What was followed is older than what may be deleted: start over from a snapshot.
                return (yield from open_view())
        return View(state, proof)


def _reload_after(error: CorruptDataError, first: int) -> Steps[View]:
    """Reload, if what was followed from slot ``first`` on may be deleted slots; else raise.

    A slot below the boundary may have been deleted, and created again by a writer that slept. It chains, and then
    it is the first slot at or above the boundary that does not: so what counts is where the following began.
    """
    boundary = yield from read_boundary()
    if first >= boundary:
        raise error
    return (yield from open_view())


def open_view() -> Steps[View]:
    """Open a log without any knowledge of it.

    Requests: 4 sequential round trips: format and hint; snapshot and listing; the entries; the boundary.

    Raises
    ------
    NotFoundError
        There is no log here.
    CorruptDataError
        The history cannot be folded.
    """
    format_data, hint_data = yield from simultaneous(GetObject(keys.FORMAT_KEY), GetObject(keys.LATEST_KEY))
    if not isinstance(format_data, bytes):
        raise NotFoundError(
            "there is no log here", kind="no-log", hint="create it with TxnLog.create, or check the path"
        )
    empty = empty_state(format_data)
    hint = parse_hint(hint_data)
    if hint is not None:
        view = yield from _open_at(empty, hint)
        if view is not None:
            return view
    found: list[str] = []
    for _ in range(OPEN_ATTEMPTS_MAX):
        view, found = yield from _open_without_hint(empty)
        if view is not None:
            return view
    raise CorruptDataError(
        "the log's old entries are deleted, and no snapshot that an entry names can be read",
        kind="no-usable-snapshot",
        hint="restore the objects under _txnlog/snapshots",
        snapshots=found[-3:],
    )


def _open_without_hint(empty: LogState) -> Steps[tuple[View | None, list[str]]]:
    """Open from the newest snapshot that works, else from entry 0; also return the snapshots that were found.

    None when neither is possible. In a log that is truncated meanwhile (an opener may sleep for days between two
    requests) a listing is soon stale; another attempt then helps.
    """
    both = yield from simultaneous(ListObjects(keys.SNAPSHOT_PREFIX), ListObjects(keys.LOG_PREFIX))
    found, listed = (answer if isinstance(answer, list) else [] for answer in both)
    for key in reversed(found):
        name = keys.parse_snapshot_key(key)
        if name is not None:
            view = yield from _open_at(empty, Hint(name.born, key))
            if view is not None:
                return view, found
    return (yield from _open_at(empty, None, listed)), found


def empty_state(format_data: bytes) -> LogState:
    """Return the state of a log that has no entry yet, as format.json says it."""
    doc = decode_json(format_data, name=keys.FORMAT_KEY)
    version = doc.integer("format", minimum=1)
    if version > FORMAT_VERSION:
        raise UnsupportedFeatureError(
            "the log has a newer format",
            kind="newer-format",
            hint="upgrade txnlog",
            object=keys.FORMAT_KEY,
            expected=f"at most {FORMAT_VERSION}",
            got=version,
        )
    return LogState(log_id=doc.text("log_id"), entry_sha256=sha256_hex(format_data))


def parse_hint(data: object) -> Hint | None:
    """Return what ``latest`` says, or None when it says nothing usable: it is only a hint."""
    if not isinstance(data, bytes):
        return None
    try:
        doc = decode_json(data, name=keys.LATEST_KEY)
        entry, key = doc.integer("entry"), doc.text("key")
    except CorruptDataError:
        return None
    name = keys.parse_snapshot_key(key)
    return Hint(entry, key) if name is not None and name.born == entry else None


def _open_at(empty: LogState, hint: Hint | None, listed: Sequence[str] = ()) -> Steps[View | None]:
    """Open from one snapshot, or from entry 0 and a listing; None when that is not possible from there."""
    snapshot: object = None
    first = 0
    if hint is not None:
        first = hint.entry + 1
        snapshot, after = yield from simultaneous(
            GetObject(hint.key), ListObjects(keys.LOG_PREFIX, keys.entry_key(hint.entry))
        )
        if not isinstance(snapshot, bytes):
            return None
        listed = after if isinstance(after, list) else []
    slots = _contiguous(listed, first)
    tail, proof = yield from _read_tail(slots)
    state: LogState | None = None
    corrupt: CorruptDataError | None = None
    try:
        state = _fold_tail(empty, hint, snapshot, tail)
    except CorruptDataError as error:
        corrupt = error
    if state is None and corrupt is None:
        return None
    boundary = yield from read_boundary()
    if corrupt is not None and boundary <= first:
        raise corrupt
    end = first + len(tail)
    newest = max((n for n in map(keys.parse_entry_key, listed) if n is not None), default=-1)
    if newest >= end and boundary <= end:
        # The newest was listed before the GET that found slot ``end`` empty, and it was made after that slot's entry.
        raise CorruptDataError(
            "a commit entry is missing: later ones are there",
            kind="missing-entry",
            hint="restore it from a copy; a writer that went on from here would lose the later ones",
            object=keys.entry_key(end),
            newest=newest,
        )
    # What begins below the boundary may be deleted entries, created again by a writer that slept: it proves nothing.
    if state is None or boundary > state.entry + 1:
        return None
    return View(state, proof)


def _fold_tail(empty: LogState, hint: Hint | None, snapshot: object, tail: list[bytes]) -> LogState | None:
    """Return the state after the tail; None when no entry of it names the snapshot that it should follow."""
    state = empty
    if hint is not None:
        checkpoint = _checkpoint_of(tail, hint.entry + 1, hint.key)
        if checkpoint is None or not isinstance(snapshot, bytes) or sha256_hex(snapshot) != checkpoint.sha256:
            return None
        state = decode_snapshot(snapshot, checkpoint, empty.log_id)
    for data in tail:
        state = fold_bytes(state, data)
    return state


def _contiguous(listed: Sequence[str], first: int) -> range:
    """Return the slots of a listing that follow each other from ``first``: others prove nothing."""
    end = first
    for key in listed:
        number = keys.parse_entry_key(key)
        if number == end:
            end += 1
        elif number is not None and number > end:
            break
    return range(first, end)


def _read_tail(slots: range) -> Steps[tuple[list[bytes], Times]]:
    """Return the bytes of the listed entries and of those after them, and the clocks before the last GET."""
    tail: list[bytes] = []
    pending = list(slots)
    number = slots.start
    while True:
        batch = pending[:TAIL_BATCH]
        pending = pending[TAIL_BATCH:]
        wanted = batch if pending else [*batch, (batch[-1] if batch else number - 1) + 1]
        proof = yield ReadClock()
        answers = yield from simultaneous(*(GetObject(keys.entry_key(slot)) for slot in wanted))
        for data in answers:
            if not isinstance(data, bytes):
                return tail, proof
            tail.append(data)
            number += 1


def _checkpoint_of(tail: list[bytes], first: int, key: str) -> Checkpoint | None:
    """Return the checkpoint operation of the tail that names snapshot ``key``."""
    for index, data in enumerate(tail):
        for operation in decode_entry(data, first + index).operations:
            if isinstance(operation, Checkpoint) and operation.key == key:
                return operation
    return None
