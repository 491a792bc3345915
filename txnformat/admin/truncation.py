"""Old entries go away by a boundary, in two runs at least an hour apart: the first writes the boundary, the
second deletes what lies below it.

1. The run reads everything that has to stay: both named snapshots with the entries after them, and the
   bundles of what is to go (:mod:`txnformat.protocol.truncation`). Anything that cannot be read stops the run
   before it changes anything.
2. ``_txnlog/boundary/<b>`` is created. From then on no client trusts a slot below it.
3. A run that finds a boundary which the store made an hour ago or longer deletes entries below, in ascending
   order; then the snapshots of deleted entries, and all boundaries but the two highest.

So runs commute, and one that was cut short at any point is completed by the next. The specification, section
5.18, has the rules.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from txnformat import keys
from txnformat.arguments import check_callable, check_flags
from txnformat.client.committer import Committer
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.truncation import (
    BOUNDARY_AGE_MS_MIN,
    OLDER_THAN,
    AllowedBoundary,
    allowed_boundary,
    lacks_snapshots,
)
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import bundle_first
from txnformat.core.wire.document import encode_json
from txnformat.core.wire.small_documents import BoundaryDocument
from txnformat.errors import CorruptDataError, InvalidInputError, repr_of
from txnformat.protocol.cuts import last_entry_at
from txnformat.protocol.follow import parse_hint
from txnformat.protocol.snapshots import create_object, write_hint
from txnformat.protocol.tail import bundle_key_of
from txnformat.protocol.truncation import Hundred, check_hundreds, check_snapshots
from txnformat.protocol.unembedding import topics_embedded
from txnformat.store.base import created_ms
from txnformat.verify.report import Progress
from txnformat.verify.requests import Requests

__all__ = [
    "Act",
    "TruncatedKind",
    "TruncationReport",
    "TruncationRow",
    "checked_age_ms",
    "truncate",
    "write_needed_snapshots",
]

EXAMPLES_MAX = 5
ATTEMPTS = 5
"""How often a run looks anew because another one has deleted what it was reading."""

logger = logging.getLogger(__name__)


class TruncatedKind(StrEnum):
    """The kind of object that a row of a report counts."""

    ENTRY = "entry"
    BUNDLE = "bundle"
    PAYLOADS = "payload bundle"
    SNAPSHOT = "snapshot"
    BOUNDARY = "boundary"
    HINT = "hint"


class Act(StrEnum):
    """The fate of the objects of a row."""

    DELETED = "deleted"
    WRITTEN = "written"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class TruncationRow:
    """Objects of one kind that have one fate, for one reason."""

    fate: Act
    kind: TruncatedKind
    why: str
    objects: int
    bytes: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """The report of :meth:`txnformat.log.TxnLog.truncate`: which objects it found, and which it deleted."""

    url: str
    log_id: str
    entry: int
    """The state that was looked at is the one after this entry."""
    boundary: int
    """Entries below (exclusive) may be deleted; 0: none."""
    new_boundary: bool
    """This run has written it."""
    deleted_below: int
    """Entries below (exclusive) have been deleted, but those that are too large for a bundle; 0: none."""
    waits_until_ms: int | None
    """The store's time, ms since the epoch, from which on a run deletes the entries below the boundary. If
    None, it is over."""
    limited_by: str
    """Why the boundary is not higher."""
    older_than_ms: int
    dry_run: bool
    """Nothing was changed: the rows are what a truncation would do now."""
    rows: tuple[TruncationRow, ...]

    def count(self, fate: str, kind: TruncatedKind | None = None) -> int:
        """Return the number of objects with a fate, of one kind or of all."""
        return sum(row.objects for row in self.rows if row.fate == fate and kind in (None, row.kind))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def truncate(
    committer: Committer,
    older_than: datetime.timedelta = OLDER_THAN,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TruncationReport:
    """Let old entries go; see :meth:`txnformat.log.TxnLog.truncate`."""
    check_flags(dry_run=dry_run)
    check_callable(progress, "progress")
    return _Truncation(committer, checked_age_ms(older_than), dry_run, progress).run()


def checked_age_ms(older_than: object) -> int:
    """Return an age of entries in milliseconds. Raises InvalidInputError of kind ``invalid-age``."""
    if not isinstance(older_than, datetime.timedelta) or older_than < OLDER_THAN:
        raise InvalidInputError(
            f"{_age(older_than)} is not a possible age: commit entries are kept for at least "
            f"{OLDER_THAN.days} days",
            kind="invalid-age",
            hint="use 30 days, for example: timedelta(days=30) in Python, 30d on the command line; "
            "clients that were away for a while need younger entries",
        )
    return older_than // datetime.timedelta(milliseconds=1)


def _age(given: object) -> str:
    return f"{given} (hours:minutes:seconds)" if isinstance(given, datetime.timedelta) else repr_of(given, 80)


def write_needed_snapshots(committer: Committer, older_than: datetime.timedelta) -> None:
    """Do that without which the boundary cannot rise: move rows out of old entries, and write snapshots, of
    which a log with few commits would name no newer ones.

    Requests: those of the search for a time, and if they are needed 2 snapshots and 2 entries; so at most 2
    entries for a hundred that goes. Also those of a seal and of spills, if old entries have rows that are
    nowhere else.
    """
    age_ms = checked_age_ms(older_than)
    state = committer.refresh()
    check_removal(state)
    old_entry = committer.read(last_entry_at(state, committer.store.store_time_ms() - age_ms))
    _free(committer, bundle_first(old_entry + 1))
    for _ in range(2):  # the boundary is at most the second newest
        if lacks_snapshots(committer.state, old_entry):
            committer.write_snapshot()


def _free(committer: Committer, below: int) -> None:
    """Move embedded records out of the entries below ``below`` (exclusive): by a seal, and where an open
    transaction holds them back by a spill.

    Else it would keep the entries for as long as it is open.
    """
    try:
        if topics_embedded(committer.state, below):
            committer.seal()
        for topic_id in topics_embedded(committer.state, below):
            committer.spill(topic_id)
    except CorruptDataError as error:
        logger.warning("entries stay, since records in them cannot be read: %s", error)


class _Truncation:
    """One run."""

    def __init__(self, committer: Committer, age_ms: int, dry_run: bool, progress: Progress | None) -> None:
        self._committer = committer
        self._store = committer.store
        self._requests = Requests(committer.store, committer.clock, progress)
        self._age_ms = age_ms
        self._dry_run = dry_run
        self._rows: list[TruncationRow] = []
        self._looked_at: tuple[LogState, AbstractSet[int]] = (committer.state, frozenset())
        """The state and the entries that this run has seen."""

    def run(self) -> TruncationReport:
        """Truncate; look anew if what cannot be read is what another run has deleted in the middle of this
        one.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return self._run()
            except CorruptDataError as error:
                if not self._is_overtaken():
                    raise
                logger.debug("looked at again: %s", error)
                self._rows = []
        return self._run()

    def _is_overtaken(self) -> bool:
        """Return whether entries went that this run has listed, or the log names other snapshots by now."""
        state, entries = self._looked_at
        left = self._numbered(keys.LOG_PREFIX, keys.parse_entry_key)
        return not entries <= left.keys() or self._committer.refresh().checkpoints != state.checkpoints

    def _run(self) -> TruncationReport:
        state = self._committer.refresh()
        check_removal(state)
        now_ms = self._requests.attempt(self._store.store_time_ms)
        old_entry = self._committer.read(last_entry_at(state, now_ms - self._age_ms))
        allowed = allowed_boundary(state, old_entry)
        boundaries = self._boundaries()
        highest = max(boundaries, default=0)
        ripe, waits_until_ms = self._ripe(boundaries, now_ms)
        # A boundary that waits for its hour stays the highest: else a run every minute would let none become
        # old enough.
        is_new = allowed.boundary > highest and waits_until_ms is None
        end = min(ripe, allowed.boundary)
        entries = self._numbered(keys.LOG_PREFIX, keys.parse_entry_key)
        self._looked_at = (state, entries.keys())
        self._check(state, entries, max(end, allowed.boundary if is_new else 0), ripe)
        if is_new:
            self._write_boundary(state, allowed)
            boundaries.append(highest := allowed.boundary)
            waits_until_ms = now_ms + BOUNDARY_AGE_MS_MIN
        self._delete_payloads(end)
        self._delete_entries(entries, end)
        self._delete_snapshots(state, end)
        self._delete(
            TruncatedKind.BOUNDARY,
            "two higher ones exist",
            {keys.boundary_key(one): 0 for one in sorted(boundaries)[:-2]},
        )
        self._renew_hint(state, end)
        return TruncationReport(
            self._store.url,
            state.log_id,
            state.entry,
            highest,
            is_new,
            end,
            waits_until_ms,
            allowed.limited_by.value,
            self._age_ms,
            self._dry_run,
            tuple(self._rows),
        )

    # The objects that are there.

    def _boundaries(self) -> list[int]:
        found = map(keys.parse_boundary_key, self._requests.list(keys.BOUNDARY_PREFIX))
        return [one for one in found if one is not None]

    def _ripe(self, boundaries: Sequence[int], now_ms: int) -> tuple[int, int | None]:
        """Return the highest boundary that is old enough, or 0; and until when a higher one has to wait: None
        if there is none.
        """
        waits_until_ms: int | None = None
        for one in sorted(boundaries, reverse=True):
            made_ms = self._requests.attempt(partial(created_ms, self._store, keys.boundary_key(one)))
            if made_ms is not None and now_ms - made_ms >= BOUNDARY_AGE_MS_MIN:
                return one, waits_until_ms
            if waits_until_ms is None:
                waits_until_ms = (now_ms if made_ms is None else made_ms) + BOUNDARY_AGE_MS_MIN
        return 0, waits_until_ms

    def _numbered(self, prefix: str, parse: Any) -> dict[int, int]:
        """Return the sizes of the objects under a prefix, by number, ascending."""
        listed = self._requests.list(prefix).items()
        found = ((parse(key), size) for key, size in listed)
        return dict(sorted((number, size) for number, size in found if number is not None))

    # The objects that must stay readable.

    def _check(self, state: LogState, entries: dict[int, int], below: int, ripe: int) -> None:
        """Read everything that has to stay before entries below ``below`` may go."""
        self._kept: set[int] = set()
        firsts = sorted({bundle_first(number) for number in entries if number < below})
        if not firsts:
            return
        self._requests.advance("snapshots", 0, 1)
        self._committer.read(check_snapshots(state))
        self._requests.advance("bundles", 0, len(firsts))
        found: list[Hundred] = self._committer.read(
            check_hundreds(firsts, entries.keys(), ripe, write=not self._dry_run)
        )
        self._kept = {one.first for one in found if not one.bundled}
        self._add(
            Act.WRITTEN,
            TruncatedKind.BUNDLE,
            "it keeps the history of entries that may be deleted",
            {bundle_key_of(one.first): 0 for one in found if one.missing},
        )

    # The changes.

    def _write_boundary(self, state: LogState, allowed: AllowedBoundary) -> None:
        key = keys.boundary_key(allowed.boundary)
        # The same bytes in every run: another one may make the same boundary now.
        data = encode_json(BoundaryDocument(1, state.log_id))
        if not self._dry_run:
            self._committer.read(create_object(key, data))
        self._add(
            Act.WRITTEN,
            TruncatedKind.BOUNDARY,
            "entries below it may be deleted an hour later",
            {key: len(data)},
        )

    def _delete_entries(self, entries: dict[int, int], end: int) -> None:
        old = {number: size for number, size in entries.items() if number < end}
        kept = {number: size for number, size in old.items() if bundle_first(number) in self._kept}
        gone = {keys.entry_key(number): size for number, size in old.items() if number not in kept}
        self._delete(TruncatedKind.ENTRY, "older than asked for, and in a bundle", gone)
        self._add(
            Act.KEPT,
            TruncatedKind.ENTRY,
            "a hundred of them is too large for a bundle",
            {keys.entry_key(number): size for number, size in kept.items()},
        )

    def _delete_payloads(self, end: int) -> None:
        """Delete the payload bundles of entries that go, or are gone: also those that a writer that slept has
        created since.
        """
        listed = self._requests.list(keys.PAYLOAD_PREFIX) if end else {}
        old = {
            key: size
            for key, size in listed.items()
            if (found := keys.parse_payloads_key(key)) is not None and found[0] < end
        }
        self._delete(TruncatedKind.PAYLOADS, "its entries are deleted", old)

    def _delete_snapshots(self, state: LogState, end: int) -> None:
        named = {one.key for one in state.checkpoints}
        listed = self._requests.list(keys.SNAPSHOT_PREFIX) if end else {}
        old = {
            key: size
            for key, size in listed.items()
            if key not in named and (name := keys.parse_snapshot_key(key)) is not None and name.born + 1 < end
        }
        self._delete(TruncatedKind.SNAPSHOT, "the entries after it are deleted", old)

    def _renew_hint(self, state: LogState, end: int) -> None:
        """Let ``latest`` name the newest snapshot, if what it names is of no use any more."""
        if not end:
            return
        hint = parse_hint(self._requests.get(keys.LATEST_KEY))
        if hint is not None and hint.entry + 1 >= end:
            return
        if not self._dry_run:
            self._committer.read(write_hint(state.checkpoints[-1]))
        self._add(
            Act.WRITTEN, TruncatedKind.HINT, "it named no snapshot that can be used", {keys.LATEST_KEY: 0}
        )

    def _delete(self, kind: TruncatedKind, why: str, objects: dict[str, int]) -> None:
        """Delete objects, one after another, in the order that they have."""
        for index, key in enumerate(objects, 1):
            if not self._dry_run:
                self._requests.attempt(partial(self._store.delete, key))
            self._requests.advance("deletions", index, len(objects))
        self._add(Act.DELETED, kind, why, objects)

    def _add(self, fate: Act, kind: TruncatedKind, why: str, objects: dict[str, int]) -> None:
        if objects:
            examples = tuple(objects)[:EXAMPLES_MAX]
            self._rows.append(TruncationRow(fate, kind, why, len(objects), sum(objects.values()), examples))
