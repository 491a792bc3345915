"""Verification of a log whose oldest entries a truncation has deleted: what they sealed is not known, and no
problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.integration.upkeep.cut_world import CutWorld, small_parts
from txnformat.client.committer import Committer
from txnformat.core.intents import ReplaceSegments
from txnformat.core.lifecycle.operations import CompactedRange
from txnformat.persistent import replace

Step = Callable[[CutWorld], None]
PLAIN: Step = partial(CutWorld.write, secret=False)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_parts():
        yield


@pytest.mark.parametrize(
    "steps",
    [
        # The erasure writes the oldest part anew; the deleted entry has sealed the one after it, and no entry
        # says what that was.
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


@pytest.mark.parametrize(
    ("steps", "field", "what"),
    [
        pytest.param((), "old_size", "does not replace whole parts", id="all entries are there"),
        pytest.param(
            (CutWorld.cut,), "old_size", "does not replace whole parts", id="they were sealed later"
        ),
        pytest.param((), "records", "another number of records", id="a record too few"),
    ],
)
def test_a_compaction_that_lies_is_found_where_the_seals_are_known(
    monkeypatch: pytest.MonkeyPatch, steps: tuple[Step, ...], field: str, what: str
) -> None:
    world = CutWorld()
    for step in (*steps, PLAIN, PLAIN):
        step(world)
    intend = Committer.intend

    def lie(self: Committer, action: Any) -> Any:
        if isinstance(action, ReplaceSegments):
            segments = [
                replace(one, partitions=tuple(less(part) for part in one.partitions))
                for one in action.replace.segments
            ]
            action = replace(action, replace=replace(action.replace, segments=tuple(segments)))
        return intend(self, action)

    def less(part: CompactedRange) -> CompactedRange:
        return replace(part, **{field: getattr(part, field) - 1})

    monkeypatch.setattr(Committer, "intend", lie)
    log = world.opened()
    log.compact("t", min_lag_ms=0)
    assert any(what in problem.what for problem in log.verify().problems)
