"""Nothing takes an entry that a truncation has deleted for one that is missing, wherever the truncation was,
and whatever came after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.upkeep.cut_world import STEPS, CutWorld, small_parts
from tests.rounds import IS_FULL, rounds


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_parts():
        yield


@pytest.fixture(scope="module")
def worlds() -> list[CutWorld]:
    """Return the world before each step, and after the last."""
    with small_parts():
        found = [CutWorld()]
        for step in STEPS:
            world = found[-1].copied()
            step(world)
            found.append(world)
    return found


@pytest.mark.parametrize("after", rounds([2, 11], range(len(STEPS) + 1)))
def test_a_log_that_was_cut_after_a_step_goes_on_as_if_it_was_not(worlds: list[CutWorld], after: int) -> None:
    world = worlds[after].copied()
    world.cut()
    world.look()
    for step in STEPS[after:]:
        step(world)
        if IS_FULL:
            world.check()
    world.check(deep=True)
    world.look()
