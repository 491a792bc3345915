"""Calls that are interrupted at points that CPython can deliver a signal at: what the caller was told is so.

A sample, the same every time; ``make interrupt-points`` tries all points, ``make interrupts`` real signals by the ten thousand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interrupts import logs, readers
from tests.interrupts.trials import Actor, Mode, Next, points_of, run_trial
from tests.interrupts.world import Stores

READING = [*readers.CASES, *logs.CASES]
TRIALS = 6
"""Of each call and mode."""


def problems(actor: Actor, mode: Mode, stores: Stores, shift: int) -> list[str]:
    """Interrupt a call at some points, each time followed by something else that a user may do."""
    found = []
    points = points_of(actor, mode, stores, per_place=1)
    step = max(1, len(points) // TRIALS)
    for number, point in enumerate(points[shift % step :: step]):
        trial = run_trial(actor, list(Next)[(number + shift) % len(Next)], mode, point, stores)
        found += [str(trial)] if trial.problems else []
    return found


@pytest.mark.parametrize("actor", READING, ids=str)
def test_calls_of_readers_logs_and_stores(actor: Actor) -> None:
    shift = READING.index(actor)
    for mode in (Mode.SIGNAL, Mode.TWICE, Mode.REQUEST):
        assert problems(actor, mode, Stores(), shift) == []


@pytest.mark.parametrize(
    "actor", [one for one in READING if str(one) in ("store-create/store", "store-open-write/store")], ids=str
)
def test_every_point_of_a_write_to_a_disk_leaves_neither_files_nor_descriptors(
    actor: Actor, tmp_path: Path
) -> None:
    stores = Stores(tmp_path)
    points = points_of(actor, Mode.SIGNAL, stores)
    assert len(points) > 10
    trials = [run_trial(actor, Next.CLOSE, Mode.SIGNAL, point, stores) for point in points]
    assert [str(trial) for trial in trials if trial.problems] == []
