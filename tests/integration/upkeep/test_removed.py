"""Every operation on a log that was trimmed in the middle of its segments, and whose files below a vacuum has
deleted.

A segment that the log start cuts still names the files of the records that went. Nothing may open them: not
an operation that begins afterwards, and none that is under way.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.integration.upkeep.removed_world import (
    LAYOUTS,
    OPERATIONS,
    RemovedWorld,
    small_spills,
)
from tests.integration.upkeep.vacuum_world import Interposed
from tests.maintenance.deaths import kinds_of
from tests.rounds import rounds, telling
from txnlog import TxnLogError

OVERTAKEN = {
    "offset-out-of-range": "a read by a plan whose first offsets are removed",
    "segment-file-missing": "a dataset, which is made anew",
    "commit-contention": "the time for its attempts is over",
    "upload-expired": "what was written lies below the floor",
    "storage": (
        "a sidecar that was written was deleted before it was read back: the log is complete without it"
    ),
    "not-sealed": "the same, in a removal by force",
}
"""Kinds of errors by which an operation says that it has slept for longer than the grace, and what has met
it."""

__all__ = ["small_spills"]

pytestmark = pytest.mark.usefixtures("small_spills")


@cache
def before(layout: str, embedded: bool) -> RemovedWorld:
    return RemovedWorld(layout, embedded=embedded)


@cache
def after(layout: str, embedded: bool) -> RemovedWorld:
    world = before(layout, embedded).copied()
    world.remove()
    return world


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("embedded", [False, True])
def test_an_operation_that_begins_afterwards(embedded: bool, name: str) -> None:
    for layout in rounds(("compacted keys",) if embedded else ("sealed", "spilled"), LAYOUTS):
        world = after(layout, embedded)
        is_named = layout in ("sealed", "spilled") and not embedded
        assert bool(world.lost()) == is_named, "files are gone that a segment names"
        copy = world.copied()
        OPERATIONS[name](copy.opened())
        copy.check(changes=name)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_a_client_that_has_not_looked_since(name: str) -> None:
    for layout in rounds(("sealed",), LAYOUTS):
        world = before(layout, False).copied()
        log = world.opened()
        log.read("t").read_all()
        world.remove()
        OPERATIONS[name](log)
        world.check(changes=name)


UNDER_WAY = ("compact", "verify", "delete_records", "dataset", "read columns", "seal")
"""Operations that ``make test`` interrupts; ``make campaigns`` takes all."""


@pytest.mark.parametrize("name", rounds(UNDER_WAY, tuple(OPERATIONS)))
def test_an_operation_in_the_middle_of_which_records_and_files_go(name: str) -> None:
    """It has slept for so long; then it is done with what is left, or says what has happened: no error sends
    the operator to a backup."""
    for layout in rounds(("sealed",), LAYOUTS):
        world = before(layout, False)
        seen = Interposed(world.copied().store)
        OPERATIONS[name](world.opened(seen))
        for number in telling(kinds_of(seen.seen)):
            copy = world.copied()
            log = copy.opened(Interposed(copy.store, number, copy.remove))
            refusal: TxnLogError | None = None
            try:
                OPERATIONS[name](log)
            except TxnLogError as error:
                refusal = error
            if refusal is not None:
                assert refusal.kind in OVERTAKEN, (layout, seen.seen[number], refusal)
                assert "restore" not in str(refusal), (layout, seen.seen[number], refusal)
            if name == "erase":
                OPERATIONS[name](copy.opened())  # the next call goes on
            copy.check(changes=name)
