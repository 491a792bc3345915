"""How many rounds a campaign runs: a short round in `make faults` and `make test`, all of them in `make campaigns`
(TXNLOG_ROUNDS=full).

The short round shows that the harness works and that its guards bite. The long one searches.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from typing import TypeVar

__all__ = ["IS_FULL", "rounds", "spread", "telling"]

IS_FULL = os.environ.get("TXNLOG_ROUNDS") == "full" or os.environ.get("HYPOTHESIS_PROFILE") == "nightly"

Rounds = TypeVar("Rounds")
One = TypeVar("One")


def rounds(short: Rounds, full: Rounds) -> Rounds:
    """Return what this run takes of the two: a count, a step, or the values of a parameter."""
    return full if IS_FULL else short


def telling(kinds: Sequence[Hashable]) -> list[int]:
    """Return the places, from 0, at which a short round tries something: the first of each kind, and the last
    of all.

    Parameters
    ----------
    kinds
        The kind of each step, in their order, such as the operation and the sort of key of a request.
    """
    first = {kind: place for place, kind in reversed([*enumerate(kinds)])}
    return sorted({*first.values(), *range(len(kinds))[-1:]})


def spread(all_of_them: Sequence[One], most: int) -> list[One]:
    """Return at most so many of them, evenly spread, in their order: the first and the last are among them.
    ``most``: 2 or more."""
    last = len(all_of_them) - 1
    if last < most:
        return [*all_of_them]
    return [all_of_them[number * last // (most - 1)] for number in range(most)]
