"""Sets of offsets as ranges, against sets of Python."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.ranges import NO_RANGES, Ranges

END = 40
BOUNDS = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=12)


def plain(ranges: Ranges) -> set[int]:
    """Return the offsets of ranges that are as they should be."""
    bounds = [bound for pair in ranges.pairs() for bound in pair]
    assert bounds == sorted(set(bounds)), "they ascend, and no two touch"
    return {offset for start, end in ranges.pairs() for offset in range(start, end)}


def offsets_of(pairs: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in pairs for offset in range(start, end)}


@given(BOUNDS, BOUNDS, st.integers(0, END))
def test_ranges_are_sets_of_offsets(
    one: list[tuple[int, int]], two: list[tuple[int, int]], point: int
) -> None:
    a, b = Ranges.of(one), Ranges.of(two)
    first, second = offsets_of(one), offsets_of(two)
    assert plain(a) == first
    assert plain(a | b) == first | second
    assert plain(a - b) == first - second
    assert plain(a.below(point)) == {offset for offset in first if offset < point}
    assert plain(a.above(point)) == {offset for offset in first if offset >= point}
    assert a.first_common(b) == min(first & second, default=None)
    assert a.common_offsets(b) == len(first & second)
    assert a.offsets() == len(first)
    assert a.holds(np.arange(END)).tolist() == [offset in first for offset in range(END)]
    assert (a == b) == (first == second)
    assert hash(a | b) == hash(b | a)
    assert Ranges.between(a.starts, a.ends) == a


def test_ranges_are_values() -> None:
    ranges = Ranges.of([(5, 7), (1, 3)])
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    assert repr(ranges) == "Ranges.of([(1, 3), (5, 7)])"
    assert not ranges.starts.flags.writeable
    assert ranges != [(1, 3), (5, 7)]
    assert len(NO_RANGES) == 0
