"""Which boundary a state allows."""

from __future__ import annotations

import pytest

from txnformat.core.lifecycle.truncation import AllowedBoundary, LimitedBy, allowed_boundary
from txnformat.core.operations import Checkpoint
from txnformat.core.state import LogState
from txnformat.persistent import replace

EMPTY = LogState(log_id="7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10", entry_sha256="0" * 64)


def _state(*snapshots: int) -> LogState:
    named = tuple(Checkpoint(entry, f"s{entry}", 1, "0" * 64, "0" * 64) for entry in snapshots)
    return replace(EMPTY, checkpoints=named)


@pytest.mark.parametrize(
    ("snapshots", "old_entry", "boundary", "limited_by"),
    [
        ((), 10_000, 0, LimitedBy.SNAPSHOTS),
        ((500,), 10_000, 0, LimitedBy.SNAPSHOTS),
        ((500, 900), 10_000, 500, LimitedBy.SNAPSHOT),
        ((599, 900), 10_000, 500, LimitedBy.SNAPSHOT),
        ((600, 900), 10_000, 600, LimitedBy.SNAPSHOT),
        ((600, 900), 600, 600, LimitedBy.SNAPSHOT),
        ((600, 900), 599, 600, LimitedBy.AGE),
        ((600, 900), 598, 500, LimitedBy.AGE),
        ((600, 900), 99, 100, LimitedBy.AGE),
        ((600, 900), 98, 0, LimitedBy.AGE),
        ((600, 900), -1, 0, LimitedBy.AGE),
    ],
)
def test_the_boundary_is_below_what_is_young_and_what_the_second_newest_snapshot_needs(
    snapshots: tuple[int, ...], old_entry: int, boundary: int, limited_by: LimitedBy
) -> None:
    """It counts whole hundreds: the entries 0 to 99 go together, once entry 99 is old."""
    assert allowed_boundary(_state(*snapshots), old_entry) == AllowedBoundary(boundary, limited_by)
