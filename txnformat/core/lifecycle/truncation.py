"""Which old entries may go: the boundary that may be written, from a state and the age of its entries. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from txnformat.core.state import LogState
from txnformat.core.wire.bundle import bundle_first

__all__ = ["BOUNDARY_AGE_MS_MIN", "ENTRY_AGE_MS_MIN", "AllowedBoundary", "LimitedBy", "allowed_boundary"]

ENTRY_AGE_MS_MIN = 7 * 24 * 3_600_000
"""Entries that are not older than this stay, whatever a user asks for: so long may a writer sleep, or a reader go without news, and not notice."""
BOUNDARY_AGE_MS_MIN = 3_600_000
"""So long a boundary must have been there before anything below it is deleted. It is 60 times the age at which a view stops to prove anything."""


class LimitedBy(StrEnum):
    """Why the boundary cannot be higher."""

    SNAPSHOTS = "the snapshots: the log has not named two of them yet"
    SNAPSHOT = "the second newest snapshot, with which a reader must be able to begin"
    AGE = "the age of the entries"


class AllowedBoundary(NamedTuple):
    """The highest boundary that may be written."""

    boundary: int
    """Entries below (exclusive) may go; a whole number of hundreds, so that each is in a bundle or in its slot. 0: none may."""
    limited_by: LimitedBy


def allowed_boundary(state: LogState, old_entry: int) -> AllowedBoundary:
    """Return the highest boundary that may be written. ``old_entry``: the last entry that is old enough to go; -1: none is.

    The entries from the one of the second newest named snapshot on stay, and with them the ``checkpoint`` operations that name the two: a reader can
    begin with either. Neither the vacuum's mark nor a retention counts here: they name entries by number, and learn the time of a
    deleted one from its bundle.
    """
    if len(state.checkpoints) < 2:
        return AllowedBoundary(0, LimitedBy.SNAPSHOTS)
    snapshot = state.checkpoints[0].entry
    limited_by = LimitedBy.SNAPSHOT if snapshot <= old_entry else LimitedBy.AGE
    return AllowedBoundary(bundle_first(min(snapshot, old_entry + 1)), limited_by)
