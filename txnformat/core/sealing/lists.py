"""The segment lists of a state: which of them a new one takes in, and whether it follows those that are
there.

Pure.

Lists are merged as in a log-structured merge tree: each list is more than twice as large as all newer ones
together, and a new list takes in those that would not be. So a row is written O(log n) times, and there are
O(log n) lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

from txnformat.core.lifecycle.operations import Replace
from txnformat.core.operations import Seal
from txnformat.core.state import LogState
from txnformat.types import SegmentListRecord

__all__ = ["LISTS_MAX", "ROWS_MAX", "lists_replaced", "lists_with", "taken_in"]

RATIO = 2
"""A list that is at most so many times as large as all newer rows together is taken in."""
ROWS_MAX = 40_000_000
"""Rows of the largest list (inclusive), so that it has at most :data:`~txnformat.types.LEAVES_MAX` leaves
however long its keys are."""

LISTS_MAX = 10_000
"""Lists of a state (inclusive): of 200,000 rows each, as writers make them without maintenance, or of more.
"""


def taken_in(lists: Sequence[SegmentListRecord], rows: int, rows_max: int = ROWS_MAX) -> int:
    """Return how many of the newest lists a new list with ``rows`` rows takes in.

    ``rows_max``: the new list has at most so many rows (inclusive). A list that does not say how many rows it
    has is taken in.
    """
    taken, total = 0, rows
    for count, one in enumerate(reversed(lists), 1):
        if total + one.rows > rows_max:
            break
        if one.rows <= RATIO * total:
            taken = count
        total += one.rows
    return taken


def lists_with(state: LogState, op: Seal) -> tuple[SegmentListRecord, ...] | None:
    """Return the lists after a seal that brings one; None: it does not follow those of the state, which
    others have changed, or there are too many.
    """
    added = op.segment_list
    if added is None:
        return state.segment_lists
    count = bisect_left(state.segment_lists, added.first, key=attrgetter("first"))
    kept, gone = state.segment_lists[:count], state.segment_lists[count:]
    if count >= LISTS_MAX:
        return None
    if added.first != (gone[0].first if gone else state.listed_segments) or added.first >= op.listed_segments:
        return None
    # An earlier version wrote lists of all segments, without anything else about them.
    is_of_all = added == SegmentListRecord(added.key, added.size, added.sha256)
    if op.replaced_lists != tuple(one.key for one in gone) and not (is_of_all and not op.replaced_lists):
        return None
    return (*kept, added)


def lists_replaced(state: LogState, op: Replace) -> tuple[SegmentListRecord, ...] | None:
    """Return the lists after a compaction; None: others have changed one that it replaces, or the new one
    begins elsewhere.
    """
    lists = {one.key: one for one in state.segment_lists}
    for one in op.lists:
        known = lists.get(one.replaced)
        if known is None or known.first != one.segment_list.first or known.key != one.replaced:
            return None
        lists[one.replaced] = one.segment_list
    return tuple(lists.values())
