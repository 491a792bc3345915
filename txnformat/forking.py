"""How objects that hold locks, threads or uploads survive a fork: the child gets them anew, or not at all.

A forked child has copies of its parent's objects but only the thread that forked. A lock that another thread
held stays locked there for ever, a pool has no threads, and an upload that the child gives up would remove
the parent's file. So the holder of such a thing registers here and is told in the child, before any other
code runs there.

This works for every fork that goes through Python (``os.fork``, multiprocessing's start method "fork").
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

__all__ = ["Renewable", "generation", "renew_after_fork", "renewed", "run_after_fork"]

T = TypeVar("T")


class Renewable(Protocol):
    """An object that is told when it finds itself in a forked child."""

    def renew(self) -> None:
        """Let go of all that belongs to the parent's threads.

        The only thread of the child calls it; no IO.
        """
        ...


_renewables: WeakSet[Renewable] = WeakSet()
_functions: list[Callable[[], None]] = []
_generation = 0


def generation() -> int:
    """Return how many forks lie between the first process and this one.

    An object that notes it finds out later whether the process was forked since. Unlike a process id, it
    never comes again.
    """
    return _generation


def renew_after_fork(thing: Renewable) -> None:
    """Call ``thing.renew()`` in every child that is forked while it lives.

    To be the last step of its constructor.
    """
    _renewables.add(thing)


def run_after_fork(function: Callable[[], None]) -> None:
    """Call a function in every forked child: for what a module holds."""
    _functions.append(function)


def renewed(module: dict[str, Any], name: str, make: Callable[[], T]) -> T:
    """Return ``make()`` for the global ``name`` of a module (its ``globals()``): every forked child makes
    another one there.
    """
    run_after_fork(lambda: module.update({name: make()}))
    return make()


def _in_child() -> None:
    global _generation
    _generation += 1
    for function in _functions:
        function()
    for thing in list(_renewables):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
