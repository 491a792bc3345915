"""How much of a backlog a micro-batch takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_datasource.stream.admission import Available, granted


def backlog(*sizes: int, start: int = 100) -> Available:
    """A partition with batches of ten offsets, of these sizes."""
    offsets = start + 10 * np.arange(len(sizes) + 1)
    return Available(offsets, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64))


def lagging(*lags: int) -> list[Available]:
    return [Available(np.array([5, 5 + lag], np.int64), np.zeros(2, np.int64)) for lag in lags]


@pytest.mark.parametrize(
    ("lags", "limit", "expected"),
    [
        ((10, 20), 30, [10, 20]),
        ((10, 20), 3, [1, 2]),
        ((100, 200, 0), 30, [10, 20, 0]),
        ((1_000_000, 1), 10, [9, 1]),
        ((5, 7, 6), 1, [0, 1, 0]),
        ((5, 7, 6), 2, [0, 1, 1]),
        ((0, 0), 1, [0, 0]),
        ((), 1, []),
    ],
)
def test_each_partition_gives_its_share_of_the_backlog(
    lags: Sequence[int], limit: int, expected: list[int]
) -> None:
    assert granted(lagging(*lags), limit, None) == expected


@given(st.lists(st.integers(0, 10**12), max_size=20), st.integers(1, 10**12))
def test_the_limit_is_used_up_exactly_and_nobody_is_left_out(lags: list[int], limit: int) -> None:
    taken = granted(lagging(*lags), limit, None)
    assert sum(taken) == min(limit, sum(lags))
    assert all(0 <= count <= lag for count, lag in zip(taken, lags, strict=True))
    if limit >= len([lag for lag in lags if lag]):
        assert all(count or not lag for count, lag in zip(taken, lags, strict=True))


def test_bytes_are_cut_at_about_the_right_offset() -> None:
    assert granted([backlog(100, 100, 100)], None, 300) == [30]
    assert granted([backlog(100, 100, 100)], None, 250) == [25]
    assert granted([backlog(1_000, 10)], None, 1_001) == [11]
    assert granted([backlog(1_000, 10), backlog(10)], None, 20) == [1, 1]
    assert granted([backlog(0, 0)], None, 1) == [20], "what takes no bytes comes as a whole"
    assert granted([backlog(100), backlog(300)], None, 200) == [5, 5]


@given(
    st.lists(st.lists(st.integers(0, 10**6), max_size=6), min_size=1, max_size=8),
    st.integers(1, 10**7),
    st.integers(1, 200),
)
def test_with_both_limits_something_is_always_taken(
    sizes: list[list[int]], bytes_max: int, rows_max: int
) -> None:
    """Else a query would stand still for ever."""
    backlogs = [backlog(*one) for one in sizes]
    taken = granted(backlogs, rows_max, bytes_max)
    assert sum(taken) <= rows_max
    assert all(0 <= count <= one.lag for count, one in zip(taken, backlogs, strict=True))
    assert any(taken) == any(one.lag for one in backlogs)
