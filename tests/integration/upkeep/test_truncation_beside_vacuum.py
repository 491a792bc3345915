"""A truncation and a vacuum at once: each runs in the middle of the other, before requests of each kind;
`make campaigns` tries every request.

Also a root that was copied: what its objects' times say is never too early.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.upkeep.truncation_world import (
    BOUNDARY,
    HOUR_S,
    TruncationWorld,
    entries_in,
    one_by_one,
)
from tests.integration.upkeep.vacuum_world import Interposed, unnamed
from tests.rounds import rounds, telling
from txnformat import keys
from txnformat.store.local import LocalStore
from txnlog import TxnLog

GRACE = datetime.timedelta(days=1)
REMOVED = 60
"""Records below a log start."""
Program = Callable[[TxnLog], object]


def vacuum(log: TxnLog) -> None:
    log.vacuum(GRACE)


def truncation(log: TxnLog) -> None:
    log.truncate()


@pytest.fixture(scope="module")
def template() -> TruncationWorld:
    """A log with garbage, whose entries are old, and have a boundary and a list of condemned objects: both
    programs delete now."""
    with one_by_one():
        world = TruncationWorld()
        log = world.opened()
        log.maintain("seal")
        log.delete_records("t", REMOVED)
        world.age()
        for program in (vacuum, truncation):
            program(world.opened())
        return world


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with one_by_one():
        yield


def ripe(template: TruncationWorld) -> TruncationWorld:
    """Return a copy in which all that may be deleted is old enough."""
    world = template.copied()
    world.clock.sleep(2 * GRACE.total_seconds())
    return world


@pytest.mark.parametrize(("program", "other"), [(vacuum, truncation), (truncation, vacuum)])
def test_each_runs_in_the_middle_of_the_other(
    template: TruncationWorld, program: Program, other: Program
) -> None:
    world = ripe(template)
    expected = world.opened().read("t").read_all()
    counted = Interposed(world.store)
    program(world.opened(counted))
    assert counted.deletes
    log = world.opened()
    for number in rounds(telling(counted.kinds), range(len(counted.kinds))):
        world = ripe(template)
        store = Interposed(world.store, number, partial(run, other, world))
        program(world.opened(store))
        assert world.opened().read("t").read_all() == expected
        for _ in range(2):
            world.clock.sleep(2 * GRACE.total_seconds())
            vacuum(world.opened())
            truncation(world.opened())
        log = world.opened()
        assert log.read("t").read_all() == expected
        assert entries_in(world.store)[0] >= BOUNDARY
        assert unnamed(log) == set()
    report = log.verify()
    assert report.ok, report.problems


def run(program: Program, world: TruncationWorld) -> None:
    program(world.opened())


def test_a_boundary_in_a_root_that_was_copied_with_its_times_is_as_young_as_the_copy(
    template: TruncationWorld, tmp_path: Path
) -> None:
    """As rsync -a copies it: the modification time is that of the original, years ago, and nothing below may
    go for an hour."""
    original = LocalStore(str(tmp_path / "original"))
    for info in template.store.list(""):
        original.create(info.key, template.store.get(info.key) or b"")
    key = keys.boundary_key(BOUNDARY)
    years_ago_s = original.store_time_ms() / 1_000 - 10**8
    os.utime(tmp_path / "original" / key, (years_ago_s, years_ago_s))
    before_ms = original.store_time_ms()
    shutil.copytree(tmp_path / "original", tmp_path / "copy", copy_function=shutil.copy2)
    copy = LocalStore(str(tmp_path / "copy"))
    assert (tmp_path / "copy" / key).stat().st_mtime == pytest.approx(years_ago_s)
    made_ms = copy.created_ms(key)
    assert made_ms is not None
    assert made_ms >= before_ms - 1_000 * HOUR_S // 60
