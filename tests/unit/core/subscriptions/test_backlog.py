"""What is left to do for a subscription, and what an acknowledgement of records covers."""

from __future__ import annotations

import pytest

from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.subscriptions.backlog import BacklogCounts, backlog_of, covering
from txnformat.core.subscriptions.state import PartitionAcks, PendingAcks

VISIBLE = Ranges.of([(2, 5), (6, 9), (12, 20)])
"""0, 1, 5, 9, 10 and 11 are markers, or were aborted."""


@pytest.mark.parametrize(
    ("acks", "expected"),
    [
        (PartitionAcks(), BacklogCounts(14, 0)),
        (PartitionAcks(3), BacklogCounts(13, 0)),
        (PartitionAcks(10), BacklogCounts(8, 0)),
        (PartitionAcks(20), BacklogCounts(0, 0)),
        (PartitionAcks(3, Ranges.of([(4, 8), (15, 16)])), BacklogCounts(9, 0)),
        (PartitionAcks(3, pending={"etl": PendingAcks(Ranges.of([(8, 14)]))}), BacklogCounts(13, 3)),
        (
            PartitionAcks(3, Ranges.of([(6, 7)]), {"etl": PendingAcks(Ranges.of([(12, 13)]), 8)}),
            BacklogCounts(12, 4),
        ),
    ],
)
def test_a_backlog_counts_records_that_anybody_can_read(acks: PartitionAcks, expected: BacklogCounts) -> None:
    assert backlog_of(acks, VISIBLE) == expected


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([2], [(0, 3)]),
        ([3], [(3, 4)]),
        ([6], [(5, 7)]),
        ([12], [(9, 13)]),
        ([12, 7, 8], [(7, 13)]),
        ([4, 6], [(4, 7)]),
        ([], []),
    ],
)
def test_an_acknowledgement_covers_the_gap_before_its_record(
    offsets: list[int], expected: list[tuple[int, int]]
) -> None:
    assert covering(offsets, VISIBLE, NO_RANGES).pairs() == expected


def test_records_acknowledged_in_any_order_leave_one_mark() -> None:
    acks = PartitionAcks()
    for offset in (13, 2, 6, 12, 4, 8, 7, 3, *range(19, 13, -1)):
        ranges = covering([offset], VISIBLE, acks.whole())
        assert acks.conflict(ranges) is None
        acks = acks.acknowledged(ranges)
    assert acks == PartitionAcks(20)


def test_what_is_acknowledged_of_a_gap_is_not_acknowledged_again() -> None:
    acks = PartitionAcks(11)
    assert covering([12], VISIBLE, acks.whole()).pairs() == [(11, 13)]
    assert covering([8], VISIBLE, acks.whole()).pairs() == [(8, 9)], "a record is, so that it conflicts"
    assert covering([12], VISIBLE.above(10), NO_RANGES, since=10).pairs() == [(10, 13)]
