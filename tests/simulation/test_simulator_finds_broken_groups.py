"""Broken rules of consumer groups are found: each mutant here changes one rule of the core, and some history
must notice.

As in :mod:`tests.simulation.test_simulator_finds_broken_rules`; the seeds are those of histories with groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat.core import decide as decide_module
from txnformat.core import fold as apply_module
from txnformat.core.folding import At, PendingIndex
from txnformat.core.groups import decide as decide_groups
from txnformat.core.groups import ends as apply_group_ends
from txnformat.core.groups import fold as apply_groups
from txnformat.core.groups.operations import CommitOffsets
from txnformat.core.groups.state import GroupState
from txnformat.core.intents import ExpireIdle, GroupOffsets, ResetOffsets
from txnformat.core.lifecycle import idle as retention
from txnformat.core.operations import EndTxn
from txnformat.core.records import decide as decide_write
from txnformat.core.state import LogState
from txnformat.core.transactions import decide as decide_transaction
from txnformat.persistent import replace
from txnformat.types import Outcome

pytestmark = pytest.mark.simulation

SEEDS = (4254, 4046, 78, 90, 546, 170, 206, 222, 254, 330, 418, 750, 1486, 3066, *range(2, 4_000, 4))
"""Those that meet what is rare come first."""
Patch = pytest.MonkeyPatch


def _replaced(patch: Patch, module: Any, name: str, change: Callable[..., Any]) -> None:
    """Let ``change(original, *arguments)`` stand for a function."""
    original = getattr(module, name)
    patch.setattr(module, name, lambda *args, **kwargs: change(original, *args, **kwargs))


def _asked(patch: Patch, change: Callable[[GroupOffsets], GroupOffsets]) -> None:
    """Let every write commit other positions, or under other conditions, than it says."""

    def commit_offsets(original: Any, state: LogState, wanted: GroupOffsets, *args: Any) -> Any:
        return original(state, change(wanted), *args)

    _replaced(patch, decide_write, "commit_offsets", commit_offsets)


def an_abort_commits_positions(patch: Patch) -> None:
    def ended(original: Any, group: GroupState, name: str, outcome: Outcome, at: Any) -> Any:
        return original(group, name, Outcome.COMMIT, at)

    _replaced(patch, apply_group_ends, "_ended", ended)


def the_last_to_end_wins(patch: Patch) -> None:
    def ended(original: Any, group: GroupState, name: str, outcome: Outcome, at: Any) -> Any:
        anew = {key: one._replace(order=group.commits - 1) for key, one in group.pending[name].items()}
        return original(replace(group, pending={**group.pending, name: anew}), name, outcome, at)

    _replaced(patch, apply_group_ends, "_ended", ended)


def positions_of_a_transaction_count_at_once(patch: Patch) -> None:
    original = apply_module._FOLDS[CommitOffsets]

    def fold(state: LogState, op: Any, at: Any) -> LogState:
        other = At(at.entry, at.timestamp_ms)  # what this fold changes, the next one must not see
        now = original(state, replace(op, transactional_id=None), other).groups[op.group]
        after: LogState = original(state, op, at)
        group = replace(after.groups[op.group], committed=now.committed)
        return replace(after, groups={**after.groups, op.group: group})

    patch.setitem(apply_module._FOLDS, CommitOffsets, fold)


def nobody_compares(patch: Patch) -> None:
    def change(wanted: GroupOffsets) -> GroupOffsets:
        return replace(wanted, offsets=tuple(replace(one, expected=None) for one in wanted.offsets))

    _asked(patch, change)


def a_compare_takes_no_hold(patch: Patch) -> None:
    original = apply_module._FOLDS[CommitOffsets]

    def fold(state: LogState, op: Any, at: Any) -> LogState:
        after: LogState = original(state, op, at)
        if op.transactional_id is None:
            return after
        group = after.groups[op.group]
        mine = {key: one._replace(holds=False) for key, one in group.pending[op.transactional_id].items()}
        group = replace(group, pending={**group.pending, op.transactional_id: mine})
        return replace(after, groups={**after.groups, op.group: group})

    patch.setitem(apply_module._FOLDS, CommitOffsets, fold)


def a_broken_hold_is_forgotten(patch: Patch) -> None:
    def broken(original: Any, state: LogState, *args: Any) -> Any:
        _, group = original(state, *args)
        return state, group

    _replaced(patch, apply_groups, "_broken", broken)


def a_broken_hold_may_commit(patch: Patch) -> None:
    def end(original: Any, state: LogState, write: Any, owner: Any, *args: Any) -> Any:
        return original(state, write, owner and replace(owner, abort_only=False), *args)

    def fold(state: LogState, op: Any, at: Any) -> LogState:
        known = state.transactional_ids[op.transactional_id]
        return original(
            state.with_transactional_id(op.transactional_id, replace(known, abort_only=False)), op, at
        )

    original = apply_module._FOLDS[EndTxn]
    _replaced(patch, decide_write, "end", end)
    patch.setitem(apply_module._FOLDS, EndTxn, fold)


def a_prepared_transaction_holds_nothing(patch: Patch) -> None:
    def check(original: Any, state: LogState, name: str, group: GroupState, commit: Any, mine: Any) -> None:
        if commit.expected is not None:
            original(state, name, group, commit, mine)

    _replaced(patch, decide_groups, "_check_compare", check)


def others_may_have_positions_pending_beside_a_compare(patch: Patch) -> None:
    original = GroupState.pending_in

    def pending_in(group: GroupState, key: Any, *, beside: str | None = None) -> Any:
        return {} if beside is not None else original(group, key)

    patch.setattr(GroupState, "pending_in", pending_in)
    patch.setattr(apply_groups, "pending_index", lambda *args: PendingIndex())


def generations_fence_nobody(patch: Patch) -> None:
    _asked(patch, lambda wanted: replace(wanted, generation=None))


def a_reset_leaves_the_member(patch: Patch) -> None:
    original: Any = decide_module._DECISIONS[ResetOffsets]

    def reset(state: LogState, action: Any) -> Any:
        return original(state, action)[1:]

    patch.setitem(decide_module._DECISIONS, ResetOffsets, reset)


def generations_begin_anew(patch: Patch) -> None:
    patch.setattr(LogState, "group", lambda state, name: state.groups.get(name, GroupState()))


def a_live_member_is_put_out(patch: Patch) -> None:
    patch.setattr(GroupState, "lives_until_ms", lambda group: None)


def positions_go_beyond_what_is_stable(patch: Patch) -> None:
    _asked(patch, lambda wanted: replace(wanted, read_uncommitted=True))


def groups_are_forgotten_while_they_are_used(patch: Patch) -> None:
    def idle(original: Any, state: LogState, wanted: ExpireIdle) -> Any:
        return original(state, replace(wanted, group_cutoff_ms=state.timestamp_ms))

    _replaced(patch, retention, "_idle", idle)


def ids_are_forgotten_while_they_are_used(patch: Patch) -> None:
    def idle(original: Any, state: LogState, wanted: ExpireIdle) -> Any:
        return original(state, replace(wanted, id_cutoff_ms=state.timestamp_ms))

    _replaced(patch, retention, "_idle", idle)


def positions_alone_open_no_transaction(patch: Patch) -> None:
    def end(original: Any, state: LogState, write: Any, owner: Any, *args: Any) -> Any:
        op = original(state, write, owner, *args)
        return replace(op, outcome=Outcome.ABORT) if write.offsets and not write.appends else op

    _replaced(patch, decide_transaction, "end", end)
    _replaced(patch, decide_write, "end", end)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (an_abort_commits_positions, "the positions of|its position is"),
    (the_last_to_end_wins, "the positions of"),
    (positions_of_a_transaction_count_at_once, "the positions of|its position is"),
    (nobody_compares, "a loss or a double|its position is"),
    (a_compare_takes_no_hold, "can only|had compared|takes the place of|a loss or a double"),
    (a_broken_hold_is_forgotten, "had compared has changed|can only be aborted|breaks invariants.*I18"),
    (a_broken_hold_may_commit, "had compared has changed"),
    (a_prepared_transaction_holds_nothing, "sound log corrupt"),
    (
        others_may_have_positions_pending_beside_a_compare,
        "takes the place of|had compared has changed|breaks invariants.*I18",
    ),
    (generations_fence_nobody, "a loss or a double|its position is"),
    (generations_begin_anew, "has generation|follows generation|breaks invariants.*I18"),
    (a_reset_leaves_the_member, "member may still commit"),
    (a_live_member_is_put_out, "puts out a live member"),
    (positions_go_beyond_what_is_stable, "beyond what can be read"),
    (groups_are_forgotten_while_they_are_used, "is forgotten before its time"),
    (ids_are_forgotten_while_they_are_used, "is forgotten before its time"),
    (positions_alone_open_no_transaction, "the chain holds|is lost|is the doing of|sound log corrupt"),
]


@pytest.mark.parametrize(("mutate", "found"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_found(mutate: Callable[[Patch], None], found: str, monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    expect_found(SEEDS, mutate.__name__, found)
