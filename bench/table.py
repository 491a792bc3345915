"""A benchmark: rows of the table that it answers, and the function that measures them.

A module of benchmarks has ``BENCHMARKS``, a tuple of :class:`Benchmark`; ``bench/registry.py`` lists the
modules. All that is compared takes turns in one run (:func:`take_turns`), in an order that is reversed every
other round, and the figure is the median of the rounds' ratios: a machine that slows down slows down both.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["ROUNDS", "Benchmark", "Context", "Measurement", "Row", "ratio", "ratios", "take_turns"]

ROUNDS = 5
"""Fewest rounds of a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the table: what is measured, against what, and what is asked of it."""

    key: str
    """Names the row for good, in kebab case."""
    work: str
    against: str
    """The peer of the comparison; "–" for none."""
    figure: str
    """The unit of the figure, as in "times its speed" or "batches/s"."""
    target: float | None = None
    """The target. If None, the figure is only reported."""
    at_least: bool = True
    """Whether the target is the least (inclusive) or the most (inclusive)."""
    digits: int = 2
    """Decimal places shown; the figure is compared unrounded."""
    note: str = ""
    """Shown where the target is missed: the profile and the limit, and the command that shows them."""

    def met(self, figure: float) -> bool | None:
        """Tell whether a figure meets the target; None without one."""
        if self.target is None:
            return None
        return figure >= self.target if self.at_least else figure <= self.target


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurement of one row."""

    key: str
    """Key of the row."""
    rounds: tuple[float, ...]
    """The figure of each round; the row's figure is their median."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Other results that are worth keeping: JSON values with units in their names."""

    @property
    def figure(self) -> float:
        """The median."""
        return statistics.median(self.rounds)


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of a benchmark, from the runner."""

    folder: Path
    """An empty directory of its own, on the file system that is recorded; removed afterwards."""
    tick: Callable[[str], None]
    """Says what is going on, for the progress bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Measures some rows together."""

    name: str
    """The name that ``make bench BENCH=name`` narrows to."""
    how: str
    """How it is measured, for the page: data, sizes, settings, what is timed. One paragraph."""
    rows: tuple[Row, ...]
    measure: Callable[[Context], Sequence[Measurement]]
    """Returns one measurement for each row, in any order."""
    minutes: float = 1
    """About how long it takes; for the progress bar."""


def take_turns(
    calls: Mapping[str, Callable[[], object]],
    context: Context,
    *,
    rounds: int = ROUNDS,
    warm_up: int = 1,
    sync: bool = False,
) -> dict[str, list[float]]:
    """Time all calls once in each round, and return the seconds by name.

    Parameters
    ----------
    rounds, warm_up : int
        Rounds that count, and rounds before them that do not.
    sync : bool
        Write the system's dirty pages back before each call, untimed: each side pays for its own writes.
    """
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        names = list(calls) if number % 2 == 0 else list(calls)[::-1]
        for name in names:
            context.tick(f"{name} {number + 1}/{warm_up + rounds}")
            if sync:
                os.sync()
            start = time.perf_counter()
            calls[name]()
            elapsed = time.perf_counter() - start
            if number >= warm_up:
                seconds[name].append(elapsed)
    return seconds


def ratios(above: Sequence[float], below: Sequence[float]) -> tuple[float, ...]:
    """Return the ratio of each round."""
    return tuple(one / other for one, other in zip(above, below, strict=True))


def ratio(key: str, above: Sequence[float], below: Sequence[float], **details: Any) -> Measurement:
    """Return the measurement of ``above / below``, round by round.

    For "times its speed", ``above`` is the seconds of the other and ``below`` our own; for "times its time"
    the reverse.
    """
    return Measurement(key, ratios(above, below), details)
