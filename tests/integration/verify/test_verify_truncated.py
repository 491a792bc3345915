"""Verification of a log whose oldest entries a truncation has deleted: what they sealed is not known, and no problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.integration.upkeep.cut_world import CutWorld, small_parts

Step = Callable[[CutWorld], None]
PLAIN: Step = partial(CutWorld.write, secret=False)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_parts():
        yield


@pytest.mark.parametrize(
    "steps",
    [
        # The erasure writes the oldest part anew; the deleted entry has sealed the one after it, and no entry says what that was.
        pytest.param((CutWorld.erase, PLAIN, CutWorld.compact), id="a compaction of the middle"),
        pytest.param((CutWorld.erase, CutWorld.compact), id="a compaction of the end"),
        pytest.param((CutWorld.erase, CutWorld.trim, CutWorld.trim, CutWorld.trim), id="a trim of the end"),
        pytest.param((CutWorld.erase, PLAIN, CutWorld.trim_all), id="a trim of the middle"),
    ],
)
def test_a_part_that_a_deleted_entry_has_sealed_is_no_problem(steps: tuple[Step, ...]) -> None:
    world = CutWorld()
    world.write()
    PLAIN(world)
    world.cut()
    for step in steps:
        step(world)
    world.check(deep=True)
