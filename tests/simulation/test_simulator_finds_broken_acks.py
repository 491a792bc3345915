"""Broken rules of subscriptions are found: each mutant here changes one rule of the core, and some history
must notice.

As in :mod:`tests.simulation.test_simulator_finds_broken_rules`; the seeds are those of histories with
subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat.core.ranges import Ranges
from txnformat.core.subscriptions import decide as decide_acks
from txnformat.core.subscriptions.state import ACK_PENDING, PartitionAcks

pytestmark = pytest.mark.simulation

SEEDS = range(3, 800, 8)
Patch = pytest.MonkeyPatch


def _conflicts(patch: Patch, name: str, *, counts_pending: bool) -> None:
    """Let only one kind of conflict be one."""
    original = getattr(PartitionAcks, name)

    def conflict(acks: PartitionAcks, *args: Any) -> Any:
        found = original(acks, *args)
        return found if found is None or (found.kind == ACK_PENDING) == counts_pending else None

    patch.setattr(PartitionAcks, name, conflict)


def what_is_pending_may_be_acknowledged(patch: Patch) -> None:
    _conflicts(patch, "conflict", counts_pending=False)


def what_is_acknowledged_may_be_so_again(patch: Patch) -> None:
    _conflicts(patch, "conflict", counts_pending=True)


def a_position_passes_over_what_others_have_pending(patch: Patch) -> None:
    _conflicts(patch, "conflict_below", counts_pending=False)


def a_position_may_go_back(patch: Patch) -> None:
    _conflicts(patch, "conflict_below", counts_pending=True)


def _ended(patch: Patch, change: Callable[[bool], bool]) -> None:
    original = PartitionAcks.ended

    def ended(acks: PartitionAcks, name: str, *, commit: bool) -> PartitionAcks:
        return original(acks, name, commit=change(commit))

    patch.setattr(PartitionAcks, "ended", ended)


def an_abort_acknowledges(patch: Patch) -> None:
    _ended(patch, lambda commit: True)


def a_commit_gives_back(patch: Patch) -> None:
    _ended(patch, lambda commit: False)


def what_is_pending_is_acknowledged_at_once(patch: Patch) -> None:
    original = PartitionAcks.with_pending

    def with_pending(acks: PartitionAcks, name: str, ranges: Ranges, position: int | None = None) -> Any:
        return original(acks.acknowledged(ranges), name, ranges, position)

    patch.setattr(PartitionAcks, "with_pending", with_pending)


def a_seek_forgets_what_is_pending(patch: Patch) -> None:
    patch.setattr(PartitionAcks, "first_pending", lambda acks: None)


def acknowledgements_go_beyond_what_is_stable(patch: Patch) -> None:
    patch.setattr(decide_acks, "_check_offset", lambda *args: None)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (what_is_pending_may_be_acknowledged, "acknowledged or pending|breaks invariants.*I19"),
    (what_is_acknowledged_may_be_so_again, "acknowledged or pending|pending and acknowledged"),
    (a_position_passes_over_what_others_have_pending, "acknowledged or pending|breaks invariants.*I19"),
    (a_position_may_go_back, "acknowledges nothing|breaks invariants.*I19"),
    (an_abort_acknowledges, "acknowledged|has \\["),
    (a_commit_gives_back, "acknowledged|has \\["),
    (what_is_pending_is_acknowledged_at_once, "has \\[|breaks invariants.*I19"),
    (a_seek_forgets_what_is_pending, "sound log corrupt|seeks beside"),
    (acknowledgements_go_beyond_what_is_stable, "sound log corrupt"),
]


@pytest.mark.parametrize(("mutate", "found"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_found(mutate: Callable[[Patch], None], found: str, monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    expect_found(SEEDS, mutate.__name__, found)
