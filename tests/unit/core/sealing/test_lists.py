"""Segment lists in levels: which lists a new one takes in, and which operations follow those that are
there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.full_state import FULL, checkpoint_of
from txnformat import keys
from txnformat.core.operations import Seal
from txnformat.core.records.state import SEGMENT
from txnformat.core.sealing.lists import LISTS_MAX, RATIO, ROWS_MAX, lists_with, taken_in
from txnformat.core.sealing.segment_list import SegmentPart, row_bytes
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace
from txnformat.protocol.segment_lists import LEAF_BYTES
from txnformat.types import LEAVES_MAX, ObjectRecord, SegmentListRecord, SegmentRecord

UUID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"


def a_list(first: int, rows: int, born: int = 0) -> SegmentListRecord:
    return SegmentListRecord(keys.table_key(born, UUID), 1, "f" * 64, first, rows)


@dataclass
class Lists:
    """Lists that grow by the rule."""

    sizes: list[int] = field(default_factory=list)
    written: int = 0

    def add(self, rows: int, rows_max: int = ROWS_MAX) -> None:
        count = taken_in([a_list(0, size) for size in self.sizes], rows, rows_max)
        whole = rows + sum(self.sizes[len(self.sizes) - count :])
        self.sizes[len(self.sizes) - count :] = [whole] if whole else []
        self.written += whole


@given(st.lists(st.integers(1, 2_000), max_size=300))
def test_lists_and_rewritten_rows_grow_with_the_logarithm(added: list[int]) -> None:
    lists = Lists()
    for rows in added:
        lists.add(rows)
        for index, size in enumerate(lists.sizes[:-1]):
            assert size > RATIO * sum(lists.sizes[index + 1 :])
    total = sum(added)
    assert sum(lists.sizes) == total
    assert len(lists.sizes) <= 1 + log(total or 1, 3)
    assert lists.written <= total * (1 + log(total or 1, 1.5))


@given(st.lists(st.integers(1, 100), max_size=200))
def test_what_a_bound_left_alone_is_merged_when_nobody_bounds_it(added: list[int]) -> None:
    lists = Lists()
    for rows in added:
        before = list(lists.sizes)
        lists.add(rows, 150)
        assert lists.sizes[-1] <= 150 or lists.sizes == [*before, rows]
    lists.add(0)
    assert sum(lists.sizes) == sum(added)
    assert len(lists.sizes) <= 1 + log(sum(added) or 1, 3)


def test_a_list_that_does_not_say_how_large_it_is_is_taken_in() -> None:
    assert taken_in([a_list(0, 0)], 0) == 1
    assert taken_in([a_list(0, 0)], 5, 10) == 1
    assert taken_in([a_list(0, 100)], 0) == 0
    assert taken_in([], 5) == 0


def test_the_largest_list_has_no_more_leaves_than_readers_take() -> None:
    key = keys.sidecar_key(keys.topic_directory("n" * 249, UUID), 0, UUID, "txnindex")
    part = SegmentPart(SegmentRecord(UUID, ObjectRecord(key, 1, "f" * 64)), np.zeros(1, SEGMENT)[0])
    assert ROWS_MAX * row_bytes(part, set()) < LEAVES_MAX * LEAF_BYTES


TWO = (a_list(0, 100, 1), a_list(4, 10, 2))
STATE = replace(LogState(UUID), segment_lists=TWO, listed_segments=6)


@pytest.mark.parametrize(
    ("first", "end", "replaced", "lists"),
    [
        (6, 7, (), 3),
        (4, 7, TWO[1:], 2),
        (4, 6, TWO[1:], 2),
        (0, 6, TWO, 1),
        (6, 6, (), None),
        (5, 7, (), None),
        (7, 8, (), None),
        (4, 7, (), None),
        (4, 7, TWO, None),
        (0, 7, TWO[1:], None),
        (0, 7, TWO[::-1], None),
        (0, 7, (a_list(0, 100, 3), TWO[1]), None),
        (0, 7, (), None),
        (2, 7, TWO[1:], None),
    ],
)
def test_a_list_follows_exactly_those_that_it_names(
    first: int, end: int, replaced: tuple[SegmentListRecord, ...], lists: int | None
) -> None:
    """One that another process has replaced meanwhile would come back with it."""
    added = a_list(first, 5, 9)
    found = lists_with(STATE, Seal((), added, end, replaced_lists=tuple(one.key for one in replaced)))
    assert (found and len(found)) == lists
    if found is not None:
        assert found[-1] == added
        assert found[:-1] == TWO[: len(found) - 1]


def test_a_list_of_all_segments_that_an_earlier_version_wrote_replaces_all() -> None:
    old = SegmentListRecord(keys.table_key(9, UUID), 1, "f" * 64)
    assert lists_with(STATE, Seal((), old, 7)) == (old,)


def test_a_state_has_no_more_lists_than_are_allowed() -> None:
    """Each seal makes the tuple anew, and a read may have to ask each list."""
    lists = tuple(a_list(number, 1, number) for number in range(LISTS_MAX))
    full = replace(FULL, segment_lists=lists, listed_segments=LISTS_MAX)
    assert lists_with(full, Seal((), a_list(LISTS_MAX, 1), LISTS_MAX + 1)) is None
    instead = Seal((), a_list(LISTS_MAX - 1, 1), LISTS_MAX + 1, replaced_lists=(lists[-1].key,))
    found = lists_with(full, instead)
    assert found is not None
    assert len(found) == LISTS_MAX
    data = encode_snapshot(full)
    state = replace(full, segment_lists=(*lists, a_list(LISTS_MAX, 1)), listed_segments=LISTS_MAX + 1)
    assert decode_snapshot(data, checkpoint_of(full, data), full.log_id).segment_lists == lists
    beyond = encode_snapshot(state)
    with pytest.raises(CorruptDataError, match="older_lists"):
        decode_snapshot(beyond, checkpoint_of(state, beyond), state.log_id)
