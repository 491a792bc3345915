"""Sets of offsets as ranges, against sets of Python."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
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
    assert a.offsets_below(point) == len({offset for offset in first if offset < point})
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


@given(st.lists(st.tuples(st.sampled_from(["or", "sub", "above", "below"]), BOUNDS), max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sets_of_many_chunks_are_sets_of_offsets(
    monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, list[tuple[int, int]]]]
) -> None:
    monkeypatch.setattr("txnformat.core.ranges.POINTS_MAX", 8)
    monkeypatch.setattr("txnformat.core.ranges.POINTS_MIN", 4)
    monkeypatch.setattr("txnformat.core.ranges.FEW", 20)
    ranges = Ranges.of([(one, one + 1) for one in range(0, END, 2)])
    expected = plain(ranges)
    for what, pairs in steps:
        before, pairs_before = ranges, ranges.pairs()
        other, offsets = Ranges.of(pairs), offsets_of(pairs)
        point = len(offsets)
        if what == "or":
            ranges, expected = ranges | other, expected | offsets
        elif what == "sub":
            ranges, expected = ranges - other, expected - offsets
        elif what == "above":
            ranges, expected = ranges.above(point // 4), {one for one in expected if one >= point // 4}
        else:
            ranges, expected = (
                ranges.below(END - point // 4),
                {one for one in expected if one < END - point // 4},
            )
        assert plain(ranges) == expected
        assert len(ranges) == len(ranges.pairs())
        assert before.pairs() == pairs_before, "a set is a value"
        for offset in range(END):
            one = Ranges.of([(offset, offset + 2)])
            assert ranges.first_common(one) == min(expected & {offset, offset + 1}, default=None)
            assert ranges.offsets_below(offset) == len({one for one in expected if one < offset})
        if expected:
            assert (ranges.first_start, ranges.first_end) == ranges.pairs()[0]


@pytest.mark.parametrize("count", [5_000, 10_000])
def test_a_range_more_or_less_copies_one_chunk(count: int) -> None:
    ranges = Ranges.of([(4 * one, 4 * one + 1) for one in range(count)])
    more = ranges | Ranges.of([(2, 3)])
    less = more - Ranges.of([(2, 3)])
    assert less == ranges
    assert len(more) == count + 1
    for changed, earlier in ((more, ranges), (less, more)):
        kept = {id(chunk) for chunk in changed._cut()} & {id(chunk) for chunk in earlier._cut()}
        assert len(kept) == len(earlier._cut()) - 1


def test_chunks_do_not_stay_small() -> None:
    ranges = Ranges.of([(2 * one, 2 * one + 1) for one in range(20_000)])
    for one in range(20_000):
        if one % 200:
            ranges -= Ranges.of([(2 * one, 2 * one + 1)])
    assert len(ranges) == 100
    assert len(ranges._cut()) < 10
