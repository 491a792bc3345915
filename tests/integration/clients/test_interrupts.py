"""Calls that are interrupted at points that CPython can deliver a signal at: what the caller was told is so.

A sample, the same every time; ``make interrupt-points`` tries all points, ``make interrupts`` real signals by
the ten thousand.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tests.interrupts import logs, readers
from tests.interrupts.calls import SCENARIOS
from tests.interrupts.campaign import judge, run_history
from tests.interrupts.trials import Actor, Mode, Next, Request, points_of, run_trial
from tests.interrupts.world import Stores
from txnlog_testing.interrupts import Point

ACTORS: list[Actor] = [*SCENARIOS, *readers.CASES, *logs.CASES]
MODES = (Mode.SIGNAL, Mode.TWICE, Mode.REQUEST)
TRIALS = 6
"""Of each call."""


@pytest.mark.parametrize("actor", ACTORS, ids=str)
def test_what_the_caller_was_told_is_so(actor: Actor) -> None:
    """Interrupt a call at some points, each time followed by something else that a user may do."""
    shift, stores = ACTORS.index(actor), Stores()
    mode = MODES[shift % len(MODES)]
    points: Sequence[Point | Request] = points_of(actor, mode, stores, per_place=1)
    step = max(1, len(points) // TRIALS)
    trials = [
        run_trial(actor, list(Next)[(number + shift) % len(Next)], mode, point, stores)
        for number, point in enumerate(points[shift % step :: step])
    ]
    assert [str(trial) for trial in trials if trial.problems] == []


@pytest.mark.parametrize(
    "actor", [one for one in ACTORS if str(one) in ("store-create/store", "store-open-write/store")], ids=str
)
def test_every_point_of_a_write_to_a_disk_leaves_neither_files_nor_descriptors(
    actor: Actor, tmp_path: Path
) -> None:
    stores = Stores(tmp_path)
    points = points_of(actor, Mode.SIGNAL, stores)
    assert len(points) > 10
    trials = [run_trial(actor, Next.CLOSE, Mode.SIGNAL, point, stores) for point in points]
    assert [str(trial) for trial in trials if trial.problems] == []


@pytest.mark.parametrize(("name", "mode"), [("bulk-commit/log", Mode.MEMORY), ("bulk-send/log", Mode.SIGNAL)])
def test_a_bulk_append_that_was_cut_is_repeated_or_closed_and_there_once(name: str, mode: Mode) -> None:
    (actor,) = (one for one in ACTORS if str(one) == name)
    points = points_of(actor, mode, Stores(), per_place=1)
    trials = [
        run_trial(actor, Next.REPEAT, mode, point, Stores()) for point in points[:: 1 + len(points) // 80]
    ]
    assert [str(trial) for trial in trials if trial.problems] == []


def test_real_signals_on_a_disk(tmp_path: Path) -> None:
    """In a process of its own: the handlers and the timer are those of the process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        history = pool.submit(run_history, 1, tmp_path / "log", 150).result()
    assert judge(history, tmp_path / "log") == []
    assert history.interrupts >= 150
    assert sum(number for (_, outcome), number in history.calls.items() if outcome == "interrupted") > 100
