"""Work ahead of the caller: order, bounds, errors, and an end that leaves nothing running."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from txnformat.segments.ahead import ahead


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("txnlog-read")}


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    found = ahead(
        lambda item: item * 2, range(50), threads=threads, weight=lambda _: 1, weight_max=5, count_max=7
    )
    assert list(found) == list(range(0, 100, 2))


def test_one_item_is_done_in_the_callers_thread() -> None:
    found = ahead(
        lambda _: threading.current_thread(), [1], threads=4, weight=lambda _: 1, weight_max=9, count_max=9
    )
    assert list(found) == [threading.current_thread()]
    assert list(ahead(str, [], threads=4, weight=lambda _: 1, weight_max=9, count_max=9)) == []


@pytest.mark.parametrize(
    ("weights", "weight_max", "count_max", "most"),
    [([1] * 9, 3, 9, 3), ([1] * 9, 9, 2, 2), ([5] * 9, 3, 9, 1), ([0] * 9, 3, 4, 4)],
)
def test_no_more_is_on_its_way_than_the_bounds_allow(
    weights: list[int], weight_max: int, count_max: int, most: int
) -> None:
    """Items are taken from the source only as they are begun, one more at a time."""
    begun = taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for weight in weights:
            taken += 1
            yield weight

    def work(weight: int) -> int:
        nonlocal begun
        begun += 1
        return weight

    found = ahead(
        work, source(), threads=1, weight=lambda item: item, weight_max=weight_max, count_max=count_max
    )
    for done, _ in enumerate(found, 1):
        assert begun <= done + most
        assert taken <= done + max(most, 1) + 1
    assert begun == taken == 9


def test_closing_early_begins_nothing_more_and_leaves_no_thread() -> None:
    begun: list[int] = []
    before = _threads()
    found = ahead(begun.append, range(100), threads=2, weight=lambda _: 1, weight_max=4, count_max=4)
    next(found)
    assert _threads() > before
    found.close()  # type: ignore[attr-defined]  # a generator
    assert _threads() == before
    assert len(begun) <= 5


def test_an_error_comes_where_its_item_stands() -> None:
    before = _threads()

    def work(item: int) -> int:
        if item == 3:
            raise ValueError(item)
        return item

    found = ahead(work, range(9), threads=3, weight=lambda _: 1, weight_max=9, count_max=9)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(found)
    assert _threads() == before


def test_what_is_the_callers_waits_for_its_turn_in_the_callers_thread() -> None:
    by: dict[int, threading.Thread] = {}

    def work(item: int) -> int:
        by[item] = threading.current_thread()
        return item

    found = ahead(
        work,
        range(6),
        threads=2,
        weight=lambda _: 1,
        weight_max=6,
        count_max=6,
        by_caller=lambda item: item % 2 == 0,
    )
    assert next(found) == 0
    assert not {2, 4} & set(by)
    assert list(found) == [1, 2, 3, 4, 5]
    assert {item for item, thread in by.items() if thread is threading.current_thread()} == {0, 2, 4}
