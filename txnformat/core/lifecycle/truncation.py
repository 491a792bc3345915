"""Which old entries may go: the boundary that may be written, from a state and the age of its entries.

Pure.
"""

from __future__ import annotations

import datetime
from enum import StrEnum
from typing import NamedTuple

from txnformat.core.state import LogState
from txnformat.core.wire.bundle import bundle_first

__all__ = [
    "BOUNDARY_AGE_MS_MIN",
    "ENTRY_AGE_MS_MIN",
    "OLDER_THAN",
    "AllowedBoundary",
    "LimitedBy",
    "allowed_boundary",
    "is_entry_age",
    "lacks_snapshots",
]

ENTRY_AGE_MS_MIN = 7 * 24 * 3_600_000
"""Entries that are not older than this stay, whatever a user asks for: so long may a writer sleep, or a
reader go without news, and not notice."""
OLDER_THAN = datetime.timedelta(milliseconds=ENTRY_AGE_MS_MIN)
"""The shortest age at which entries go; also the default."""
BOUNDARY_AGE_MS_MIN = 3_600_000
"""So long a boundary must have been there before anything below it is deleted. It is 60 times the age at
which a view stops to prove anything."""


def is_entry_age(age_ms: int) -> bool:
    """Return whether a log may let entries go at this age; -1 stands for never."""
    return age_ms == -1 or age_ms >= ENTRY_AGE_MS_MIN


class LimitedBy(StrEnum):
    """Why the boundary cannot be higher."""

    SNAPSHOTS = "the snapshots: the log has not named two of them yet"
    SNAPSHOT = "the second newest snapshot, with which a reader must be able to begin"
    AGE = "the age of the entries"
    EMBEDDED = "rows that are in entries and nowhere else: a seal moves them"


class AllowedBoundary(NamedTuple):
    """The highest boundary that may be written."""

    boundary: int
    """Entries below (exclusive) may go; a whole number of hundreds, so that each is in a bundle or in its
    slot. 0: none may."""
    limited_by: LimitedBy


def allowed_boundary(state: LogState, old_entry: int) -> AllowedBoundary:
    """Return the highest boundary that may be written.

    ``old_entry``: the last entry that is old enough to go; -1: none is.

    Entries with embedded files that are not sealed stay, and all after them. A reader with a plan from before
    the seal finds its rows by their offsets.

    The entries from the one of the second newest named snapshot on stay, and with them the ``checkpoint``
    operations that name the two: a reader can begin with either. Neither the vacuum's mark nor a retention
    counts here: they name entries by number, and learn the time of a deleted one from its bundle.
    """
    if len(state.checkpoints) < 2:
        return AllowedBoundary(0, LimitedBy.SNAPSHOTS)
    bounds = [
        (old_entry + 1, LimitedBy.AGE),
        (state.checkpoints[0].entry, LimitedBy.SNAPSHOT),
        *((file.place.entry, LimitedBy.EMBEDDED) for file in state.files if file.place is not None),
    ]
    boundary, limited_by = min(bounds, key=lambda one: one[0])
    return AllowedBoundary(bundle_first(boundary), limited_by)


def lacks_snapshots(state: LogState, old_entry: int) -> bool:
    """Return whether the boundary would be higher if the log named two newer snapshots.

    ``old_entry``: as for :func:`allowed_boundary`.
    """
    allowed = allowed_boundary(state, old_entry)
    return bundle_first(old_entry + 1) > allowed.boundary and allowed.limited_by is not LimitedBy.EMBEDDED
