"""Following a log: cold open and refresh, as steps without IO.

Cold open takes four sequential round trips whatever the log's length; a warm refresh with nothing new takes
one GET. The snapshot is checked against the ``checkpoint`` operation that names it, before it is parsed; the
hint ``latest`` is never trusted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import FORMAT_VERSION, decode_entry, missing_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.operations import Checkpoint
from txnformat.core.snapshot.codec import decode_snapshot
from txnformat.core.state import EMBEDDING, LogState
from txnformat.core.wire.small_documents import decode_format, decode_latest, decode_version
from txnformat.core.wire.typed import check_version
from txnformat.errors import ConflictError, CorruptDataError, FormatError, NotFoundError, StorageError
from txnformat.protocol.effects import GetObject, ListObjects, ReadClock, Steps, Times
from txnformat.protocol.reads import (
    get_object,
    list_keys,
    make_durable,
    read_boundary,
    read_slot,
    read_slots,
    simultaneous,
)
from txnformat.protocol.tail import HUNDREDS, TENS, Bundles, read_back, read_tail
from txnformat.protocol.view import View
from txnformat.segments.payload import head_of

__all__ = [
    "check_identity",
    "confirm",
    "empty_state",
    "fold_bytes",
    "get_object",
    "open_view",
    "parse_hint",
    "refresh",
    "refresh_roughly",
]

OPEN_ATTEMPTS_MAX = 3
"""Attempts to open without a hint, of which each but the last may meet a truncation."""
AHEAD_MAX = 16
"""Entries asked for at once while catching up."""
TENS_AHEAD = 2
"""Entries asked for at once where ten of them would come as a bundle."""
NEVER = 2**63
"""A slot that no log has."""
SEARCH_BATCH_MAX = 1_000
"""Entries read at once, at most, in search of one that names a snapshot."""
TAIL_MAX = 20_000
"""Entries after a snapshot that are read at once; of more, the rest is folded a few bundles at a time."""


class Hint(NamedTuple):
    """The content of ``latest``."""

    entry: int
    key: str


def fold_bytes(state: LogState, data: bytes) -> LogState:
    """Return the state after the entry that ``data`` holds, with its payload or without."""
    head = head_of(data)
    return apply(state, decode_entry(head, state.entry + 1), sha256_hex(head))


def refresh(view: View, *, ahead: int = 1, durable: bool = True) -> Steps[View]:
    """Fold every entry after the view's, prove the tip, and make it durable.

    A view that leaves the steps of the protocol is durable: a power cut takes nothing away that it shows. The
    author of its tip may have died just before that, and others may have answered nothing yet. A writer that
    goes on to create the next slot makes all before it durable with that: ``durable=False``. ``ahead``
    entries (at least 1) are asked for at once in the beginning: 2 saves a round trip where something new is
    likely.

    Requests: 1 GET when nothing is new and the view is fresh; else also 1 LIST of the boundary. 1 GET more
    when nothing is new although the last look found hundreds. Far behind, 1 GET per hundred entries where
    there are bundles, and per ten where the log embeds.
    """
    found = yield from _follow(view, ahead, through_bundles=True)
    if found is None:
        found = yield from _follow(view, ahead, through_bundles=False)
    if found is None:
        return view
    if durable and found.state.entry_sha256 != view.state.entry_sha256:
        yield from confirm(found)
    return found


def refresh_roughly(view: View) -> Steps[View]:
    """Fold the hundreds of entries after the view's that are bundled, if there are likely to be some; else as
    :func:`refresh`.

    The view that is returned may be up to 99 entries behind the tip. It has the older proof, with which the
    newer state is no less safe. Requests: 1 GET for each hundred, and 2 to 9 more.
    """
    now = yield ReadClock()
    if view.behind >= HUNDREDS.count and view.is_fresh(now):
        state, last, _ = yield from _fold_bundles(view.state, HUNDREDS, NEVER)
        if last is not None and (yield from read_slot(state.entry)) == last:
            found = View(state, view.proof, max(state.entry - view.state.entry, view.behind // 2))
            yield from confirm(found)
            return found
    return (yield from refresh(view))


def confirm(view: View, *also: str) -> Steps[None]:
    """Make the view's tip durable, and with it all entries before it: they are in one directory.

    Requests: none.
    """
    tip = (keys.entry_key(view.state.entry),) if view.state.entry >= 0 else ()
    yield from make_durable(*also, *tip)


def _follow(view: View, ahead: int, *, through_bundles: bool) -> Steps[View | None]:
    """Return the view at the tip; None when what bundles held does not lead to the entries in their slots."""
    sizes = (yield from _sizes(view, ahead)) if through_bundles else {}
    try:
        found = yield from _advance(view.state, ahead, sizes)
    except CorruptDataError as error:
        return (yield from _reload_after(error, view.state.entry + 1))
    if found is None:
        return None
    state, proof = found
    now = yield ReadClock()
    if not view.is_fresh(now):
        boundary = yield from read_boundary()
        if _is_below(boundary, state.entry):
            # The followed state is older than the entries that may be deleted: start over from a snapshot.
            return (yield from _open_view())
    return View(state, proof, max(state.entry - view.state.entry, view.behind // 2))


def _sizes(view: View, ahead: int) -> Steps[dict[Bundles, int]]:
    """Return the sorts of bundles that a follower may profit from, and the entry from which it asks for each.

    Small ones are there only if the log embeds, and hardly of entries that are just being written, as those
    are of which several are asked for at once. A few entries are read before any bundle, or one where the
    last looks found as many: most looks find nothing, or one. Hundreds are asked for at once if the last
    looks found so many, and the last one was more than a second ago.
    """
    first = view.state.entry + 1
    hundreds = HUNDREDS.behind
    if view.behind >= HUNDREDS.count:
        hundreds = 0 if view.is_behind((yield ReadClock())) else 1
    sizes = {HUNDREDS: first + hundreds}
    if ahead == 1 and EMBEDDING in view.state.features.reader:
        sizes[TENS] = first + (1 if view.behind >= TENS.count else TENS.behind)
    return sizes


def _is_below(boundary: int, tip: int) -> bool:
    """Return whether a tip may be a deleted entry that a writer that slept has created again.

    Such an entry chains to the real one before it. It is not enough that the slot after the tip is not below
    the boundary: that slot may have been read long before the tip. An entry at the boundary or above was
    never deleted, and the chain binds all before it.
    """
    return boundary > max(tip, 0)  # 0: there is no boundary


def _advance(state: LogState, ahead: int, sizes: dict[Bundles, int]) -> Steps[tuple[LogState, Times] | None]:
    """Return the state after all entries that follow, and the clocks just before the GET that found no more;
    None as in :func:`_follow`.

    ``sizes``: the bundles to ask for, the largest first, and from which entry. Memory: a few bundles, however
    many entries there are. Raises CorruptDataError: an entry cannot be folded.
    """
    # Of the last entry, if it came out of a bundle: its slot has to say the same.
    unvouched: bytes | None = None
    while True:
        while (
            sort := next((one for one, start in sizes.items() if state.entry + 1 >= start), None)
        ) is not None:
            state, last, is_end = yield from _fold_bundles(state, sort, sizes[HUNDREDS])
            unvouched = last or unvouched
            if is_end:
                # Where one ten is missing, its author may write none: it is cheaper to go on without.
                goes_on = last is not None or sort is HUNDREDS
                sizes[sort] = sort.first(state.entry + 1) + sort.count if goes_on else NEVER
        proof = yield ReadClock()
        # Not far beyond the tip, where ten of them would be in a bundle.
        ahead = min(ahead, TENS_AHEAD) if sizes.get(TENS, NEVER) != NEVER else ahead
        slots = range(state.entry + 1 - (unvouched is not None), state.entry + 1 + ahead)
        answers = yield from read_slots(slots)
        if unvouched is not None:
            if answers.pop(0) != unvouched:
                return None
            unvouched = None
        for data in answers:
            if not isinstance(data, bytes):
                break
            state = fold_bytes(state, data)
        else:
            ahead = min(2 * ahead, AHEAD_MAX)
            continue
        return state, proof


def _fold_bundles(
    state: LogState, sort: Bundles, hundreds_from: int
) -> Steps[tuple[LogState, bytes | None, bool]]:
    """Fold the bundles of one sort from the one of the next entry on, up to the first that is missing or of
    no use, or until larger ones are due.

    Return the state, the head of its last entry if that came out of a bundle, and whether one was missing or
    of no use.
    """
    last: bytes | None = None
    count = 1
    folded = 0
    while sort is HUNDREDS or state.entry + 1 < hundreds_from:
        first = sort.first(state.entry + 1)
        firsts = range(first, first + count * sort.count, sort.count)
        answers = yield from simultaneous(*(GetObject(sort.key(first)) for first in firsts))
        for first, data in zip(firsts, answers, strict=True):
            heads = sort.heads(data, first)
            if heads is None:
                return state, last, True
            after = state
            try:
                for head in heads[state.entry + 1 - first :]:
                    after = fold_bytes(after, head)
            except FormatError:
                return state, last, True  # what the slots hold counts
            state, last = after, heads[-1]
            folded += 1
        count = min(max(1, folded // 2), sort.ahead)
    return state, last, False


def _reload_after(error: CorruptDataError, first: int) -> Steps[View]:
    """Reload, if what was followed from slot ``first`` on may be deleted slots; else raise.

    A slot below the boundary may have been deleted, and created again by a writer that slept. It chains, and
    then it is the first slot at or above the boundary that does not: so what counts is where the following
    began.
    """
    boundary = yield from read_boundary()
    if first >= boundary:
        raise error
    return (yield from _open_view())


def open_view() -> Steps[View]:
    """Open a log without any knowledge of it. The state it shows is durable, as after :func:`refresh`.

    Requests: 4 sequential round trips: format and hint; snapshot and listing; the entries; the boundary.
    Raises NotFoundError when there is no log here, CorruptDataError when the history cannot be folded.
    """
    view = yield from _open_view()
    yield from confirm(view, keys.FORMAT_KEY)
    return view


def _open_view() -> Steps[View]:
    format_data, hint_data = yield from simultaneous(GetObject(keys.FORMAT_KEY), GetObject(keys.LATEST_KEY))
    if not isinstance(format_data, bytes):
        format_data = yield from _missing_format()
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


def check_identity(log_id: str) -> Steps[None]:
    """Check that the log at this place is the one with this id. Requests: 1 GET.

    Raises NotFoundError of kind ``log-gone`` (there is none), ConflictError of kind ``log-replaced`` (there
    is another).
    """
    data = yield from get_object(keys.FORMAT_KEY)
    if data is None:
        raise NotFoundError(
            "the log is no longer there: it was deleted or moved after it was opened",
            kind="log-gone",
            hint="check the path; open the log again once it is back",
            log_id=log_id,
        )
    found = decode_format(data).log_id
    if found != log_id:
        raise ConflictError(
            "another log is at this place now: the one that was opened was deleted, and a new one created",
            kind="log-replaced",
            hint="open the log again to use the new one; positions and offsets of the old one mean "
            "nothing in it",
            log_id=log_id,
            found=found,
        )


def _missing_format() -> Steps[bytes]:
    """Return the format.json that a creator has written since, with an entry; else raise: there is no log, or
    a damaged one.
    """
    try:
        entries = yield from list_keys(keys.LOG_PREFIX)
    except StorageError as error:
        if error.transient:
            raise  # whether there is a log is not known
        entries = []  # not every reader may list, and a bucket that is not there cannot be listed
    if not entries:
        raise NotFoundError(
            "there is no log here", kind="no-log", hint="create it with TxnLog.create, or check the path"
        )
    found = yield from get_object(keys.FORMAT_KEY)
    if found is None:
        raise CorruptDataError(
            "there are commit entries, but the log's format.json is missing",
            kind="format-missing",
            hint="restore it from a copy, such as an older version of the object; a new one would not fit "
            "the entries",
            object=keys.FORMAT_KEY,
        )
    return found


def _open_without_hint(empty: LogState) -> Steps[tuple[View | None, list[str]]]:
    """Open from the newest snapshot that works, else from entry 0; also return the snapshots that were found.

    None when neither is possible. In a log that is truncated meanwhile (an opener may sleep for days between
    two requests) a listing is soon stale; another attempt then helps.
    """
    both = yield from simultaneous(ListObjects(keys.SNAPSHOT_PREFIX), ListObjects(keys.LOG_PREFIX))
    found, listed = (answer if isinstance(answer, list) else [] for answer in both)
    search = _Search(listed)
    for key in reversed(found):
        name = keys.parse_snapshot_key(key)
        if name is not None and (yield from search.names(key, name.born)):
            view = yield from _open_at(empty, Hint(name.born, key), known=search.read)
            if view is not None:
                return view, found
    return (yield from _open_at(empty, None, listed, known=search.read)), found


class _Search:
    """Looks for entries that name snapshots, from the newest entry down: each entry is read once.

    An object under a snapshot's key means nothing until an entry names it, and a process that may create
    objects may create many.
    """

    def __init__(self, listed: Sequence[str]) -> None:
        numbers = (number for number in map(keys.parse_entry_key, listed) if number is not None)
        self._left = sorted(numbers)
        self._least = 1
        """How many entries are read at once at least: ever more, for many snapshots lie close together."""
        self._named: set[str] = set()
        self.read: dict[int, bytes] = {}
        """The newest entries that were read from their slots, by number."""

    def names(self, key: str, born: int) -> Steps[bool]:
        """Return whether an entry that was listed names a snapshot of the state after entry ``born``."""
        while self._left and self._left[-1] > born and key not in self._named:
            above = bisect_right(self._left, born)
            first = max(0, len(self._left) - SEARCH_BATCH_MAX, min(above, len(self._left) - self._least))
            slots, self._left = self._left[first:], self._left[:first]
            self._least *= 2
            found, bundled = yield from read_back(slots)
            if len(self.read) < TAIL_MAX:
                self.read |= found
            for number, data in (bundled | found).items():
                self._named |= _snapshots_named(data, number)
        return key in self._named


def _snapshots_named(data: bytes, number: int) -> set[str]:
    try:
        operations = decode_entry(data, number).operations
    except FormatError:
        return set()  # the fold says so
    return {operation.key for operation in operations if isinstance(operation, Checkpoint)}


def empty_state(format_data: bytes) -> LogState:
    """Return the state of a log that has no entry yet, as format.json says it."""
    check_version("the log", FORMAT_VERSION, decode_version(format_data), name=keys.FORMAT_KEY)
    return LogState(log_id=decode_format(format_data).log_id, entry_sha256=sha256_hex(format_data))


def parse_hint(data: object) -> Hint | None:
    """Return what ``latest`` says, or None when it says nothing usable: it is only a hint."""
    if not isinstance(data, bytes):
        return None
    try:
        said = decode_latest(data)
    except CorruptDataError:
        return None
    name = keys.parse_snapshot_key(said.key)
    return Hint(said.entry, said.key) if name is not None and name.born == said.entry else None


def _open_at(
    empty: LogState,
    hint: Hint | None,
    listed: Sequence[str] = (),
    *,
    known: Mapping[int, bytes] | None = None,
    through_bundles: bool = True,
) -> Steps[View | None]:
    """Open from one snapshot, or from entry 0 and a listing; None when that is not possible from there.

    ``known`` are entries that were read from their slots already.
    """
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
    is_long = len(slots) > TAIL_MAX
    tail, proof, has_bundled = yield from read_tail(
        slots[:TAIL_MAX], through_bundles=through_bundles, known=known, to_tip=not is_long
    )
    end = first + len(tail)
    state: LogState | None = None
    corrupt: CorruptDataError | None = None
    try:
        state = _fold_tail(empty, hint, snapshot, tail)
        if state is not None and is_long:
            del tail
            sizes = {HUNDREDS: end} if through_bundles else {}
            advanced = yield from _advance(state, AHEAD_MAX, sizes)
            has_bundled = has_bundled or through_bundles
            state, proof = advanced or (None, proof)
            end = state.entry + 1 if state is not None else end
    except CorruptDataError as error:
        corrupt = error
    if state is None and has_bundled:
        # A bundle is only a hint: without any, it is what the slots hold that is judged.
        return (yield from _open_at(empty, hint, listed, known=known, through_bundles=False))
    if state is None and corrupt is None:
        return None
    boundary = yield from read_boundary()
    if corrupt is not None and boundary <= first:
        raise corrupt
    newest = max((n for n in map(keys.parse_entry_key, listed) if n is not None), default=-1)
    if newest >= end and boundary <= end:
        # The newest was listed before the GET that found slot ``end`` empty, and it was made after that
        # slot's entry.
        advice = "restore it from a copy; a writer that continued from here would lose the later entries"
        raise missing_entry(end, advice, newest=newest)
    # Entries that end below the boundary may be deleted ones, created again by a writer that slept: they
    # prove nothing.
    if state is None or _is_below(boundary, state.entry):
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


def _checkpoint_of(tail: list[bytes], first: int, key: str) -> Checkpoint | None:
    """Return the checkpoint operation of the tail that names snapshot ``key``."""
    for index, data in enumerate(tail):
        for operation in decode_entry(data, first + index).operations:
            if isinstance(operation, Checkpoint) and operation.key == key:
                return operation
    return None
