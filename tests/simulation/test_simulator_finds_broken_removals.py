"""Broken rules of removals and spills are found: each mutant here changes one rule of the core, and some
history must notice.

As in :mod:`tests.simulation.test_simulator_finds_broken_rules`; the seeds are those of histories with
removals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat.admin import trimming
from txnformat.core import decide
from txnformat.core import fold as apply_module
from txnformat.core.intents import MarkVacuum, RemoveTopic, ReplaceSegments, TrimTopic
from txnformat.core.lifecycle import deletion, removal
from txnformat.core.lifecycle.operations import Replace, Trim, VacuumMark
from txnformat.core.sealing.spills import Spilled, SpilledRows, spilled_from
from txnformat.core.state import LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.persistent import replace
from txnformat.protocol import sealing, spilling
from txnformat.protocol.effects import Steps
from txnformat.types import TopicPartition
from txnlog_testing.simulator import compacting as simulator_compacting

pytestmark = pytest.mark.simulation

SEEDS = (1421, 861, 0, 125, 100, 301, 77, 29, 84, *(seed for seed in range(800) if seed % 16 in (4, 12, 13)))
"""Those that meet what is rare come first."""
Patch = pytest.MonkeyPatch


def objects_born_below_the_floor_are_named(patch: Patch) -> None:
    patch.setattr(decide, "check_born", lambda *args: None)
    patch.setattr(apply_module, "check_named", lambda *args: None)


def the_floor_goes_back(patch: Patch) -> None:
    patch.setitem(decide._DECISIONS, MarkVacuum, lambda state, action: VacuumMark(action.floor))


def a_topic_goes_under_its_transactions(patch: Patch) -> None:
    for module in (deletion, removal):
        patch.setattr(module, "touching", lambda *args: [])


def every_prepared_transaction_loses_a_topic(patch: Patch) -> None:
    original = decide._DECISIONS[RemoveTopic]

    def remove(state: LogState, action: RemoveTopic) -> Any:
        prepared = [
            name
            for name in sorted(state.undecided)
            if state.transactional_ids[name].status is TransactionStatus.PREPARED
        ]
        return original(state, replace(action, prepared=tuple(prepared)))

    patch.setitem(decide._DECISIONS, RemoveTopic, remove)


def open_transactions_are_aborted_unasked(patch: Patch) -> None:
    original = decide._DECISIONS[RemoveTopic]
    patch.setitem(
        decide._DECISIONS, RemoveTopic, lambda state, action: original(state, replace(action, force=True))
    )


def a_trim_counts_from_another_log_start(patch: Patch) -> None:
    original = decide._DECISIONS[TrimTopic]

    def trim(state: LogState, action: TrimTopic) -> Any:
        numbers = [part.partition for part in action.trim.partitions]
        known = [state.partition(TopicPartition(action.trim.topic_id, number)) for number in numbers]
        return original(state, replace(action, seen=tuple(one.log_start for one in known)))

    patch.setitem(decide._DECISIONS, TrimTopic, trim)


def a_trim_does_not_say_what_it_removed(patch: Patch) -> None:
    patch.setattr(trimming, "_commit_entry", lambda *args: -1)


def a_state_forgets_what_a_trim_removed(patch: Patch) -> None:
    original = apply_module._FOLDS[Trim]

    def trim(state: LogState, op: Trim, at: Any) -> LogState:
        parts = tuple(replace(part, commit_entry=-1) for part in op.partitions)
        after: LogState = original(state, replace(op, partitions=parts), at)
        return after

    patch.setitem(apply_module._FOLDS, Trim, trim)


def a_compaction_counts_from_another_log_start(patch: Patch) -> None:
    original = decide._DECISIONS[ReplaceSegments]

    def replaced(state: LogState, action: ReplaceSegments) -> Any:
        topic_id = action.replace.topic_id
        starts = {
            number: state.partition(TopicPartition(topic_id, number)).log_start
            for number in action.log_starts
        }
        return original(state, replace(action, log_starts=starts))

    patch.setitem(decide._DECISIONS, ReplaceSegments, replaced)


def a_compaction_loses_a_record(patch: Patch) -> None:
    original = simulator_compacting._runs
    patch.setattr(simulator_compacting, "_runs", lambda *args: original(*args)[:-1])


def a_compaction_forgets_its_lists(patch: Patch) -> None:
    """The operation names the lists that there were, in place of those that the compactor has written
    anew.
    """
    original = apply_module._FOLDS[Replace]

    def folded(state: LogState, op: Replace, at: Any) -> LogState:
        after: LogState = original(state, op, at)
        return replace(after, segment_lists=state.segment_lists)

    patch.setitem(apply_module._FOLDS, Replace, folded)


def _state_alone(state: LogState, starts: object) -> Steps[LogState]:
    yield from ()
    return state


def a_seal_forgets_what_was_spilled(patch: Patch) -> None:
    patch.setattr(sealing, "with_spills", _state_alone)


def a_spill_forgets_the_spills_that_it_takes_in(patch: Patch) -> None:
    patch.setattr(spilling, "with_spills", _state_alone)


def transactional_records_are_plain_once_spilled(patch: Patch) -> None:
    original = spilled_from

    def plain(rows: SpilledRows) -> SpilledRows:
        extents = rows.extents.copy()
        extents["transactional"] = 0
        return rows._replace(extents=extents)

    def spilled(*args: Any) -> Spilled:
        found = original(*args)
        return found._replace(partitions={key: plain(rows) for key, rows in found.partitions.items()})

    patch.setattr(spilling, "spilled_from", spilled)


MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (objects_born_below_the_floor_are_named, "it is named though the floor is|is named below the floor"),
    (the_floor_goes_back, "sound log corrupt"),
    (a_topic_goes_under_its_transactions, "breaks invariants|takes"),
    (every_prepared_transaction_loses_a_topic, "is the doing of"),
    (open_transactions_are_aborted_unasked, "is the doing of"),
    (a_trim_counts_from_another_log_start, "sound log corrupt|breaks invariants|removes what"),
    (a_trim_does_not_say_what_it_removed, "removes what entries"),
    (a_state_forgets_what_a_trim_removed, "newest removed commit"),
    (a_compaction_counts_from_another_log_start, "sound log corrupt|breaks invariants"),
    (a_compaction_loses_a_record, "sound log corrupt|has .* not"),
    (a_compaction_forgets_its_lists, "sound log corrupt|breaks invariants|show"),
    (a_seal_forgets_what_was_spilled, "sound log corrupt"),
    (a_spill_forgets_the_spills_that_it_takes_in, "sound log corrupt"),
    (transactional_records_are_plain_once_spilled, "read_committed shows|a segment of"),
]


@pytest.mark.parametrize(("mutate", "found"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_found(mutate: Callable[[Patch], None], found: str, monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    expect_found(SEEDS, mutate.__name__, found)
