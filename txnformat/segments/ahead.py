"""Doing the next few pieces of work while the caller is busy with the last one, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

__all__ = ["ahead"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int,
    weight: Callable[[Item], int],
    weight_max: int,
    count_max: int,
    by_caller: Callable[[Item], bool] | None = None,
) -> Iterator[Result]:
    """Yield ``function(item)`` of each item, in the order of the items.

    A single item is worked on in the caller's thread. Of more, the next ones are on their way in threads of
    their own. Closing the iterator drops what has not begun and waits for what has. Where no thread can be
    started (the interpreter shuts down) the caller's thread does the work.

    ``threads``: at work at a time; at least 1. ``weight``: how much of ``weight_max`` an item takes from its
    start until its result is asked for. ``weight_max``: most weight on its way (inclusive); one item may
    weigh more, alone. ``count_max``: most items on their way (inclusive). ``by_caller``: says of an item that
    the caller's thread works on it when its turn comes: handing it to another one takes longer than it gains.
    """
    waiting = iter(items)
    first = next(waiting, None)
    if first is None:
        return
    following = next(waiting, None)
    if following is None:
        yield function(first)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="txnlog-read")
    pending: deque[tuple[int, Callable[[], Result]]] = deque()
    held = 0
    upcoming: deque[Item] = deque((first, following))

    def begin(item: Item) -> Callable[[], Result]:
        if by_caller is not None and by_caller(item):
            return partial(function, item)
        try:
            return pool.submit(function, item).result
        except RuntimeError:  # no thread can be started
            return partial(function, item)

    def fill(held: int) -> int:
        while upcoming and len(pending) < count_max:
            cost = weight(upcoming[0])
            if pending and held + cost > weight_max:
                break
            pending.append((cost, begin(upcoming.popleft())))
            held += cost
            if not upcoming and (item := next(waiting, None)) is not None:
                upcoming.append(item)
        return held

    try:
        held = fill(held)
        while pending:
            cost, result_of = pending.popleft()
            result = result_of()
            held = fill(held - cost)
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
