"""Broken rules of upkeep are found: key compaction, erasures and their certificates, the vacuum, truncation.
Some history must notice each.

As in :mod:`tests.simulation.test_simulator_finds_broken_rules`; the seeds are those of histories in which the
product looks after the log.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.broken_rules import expect_found
from txnformat.admin import garbage, truncation
from txnformat.admin.compaction import call as compaction
from txnformat.admin.compaction import cleaning
from txnformat.admin.erasure import call, certificate, rewriting
from txnformat.core import decide
from txnformat.core import fold as apply_module
from txnformat.core.lifecycle import erased as erased_fold
from txnformat.core.lifecycle import fold as lifecycle_fold
from txnformat.core.lifecycle import truncation as boundary
from txnformat.core.lifecycle.cleaned import apply_cleaned
from txnformat.core.lifecycle.operations import CleanedPartition, ErasedPartition
from txnformat.core.lifecycle.state import ErasureState
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import bundle_first
from txnformat.persistent import replace
from txnformat.protocol import unembedding
from txnformat.reading import latest

pytestmark = pytest.mark.simulation

UPKEEP = range(8, 3_200, 8)
TRUNCATED = (39, 223, 242, 14, 18, 19, 92, 218, *range(7, 3_200, 16))
Patch = pytest.MonkeyPatch


# Keys.


def the_first_record_of_a_key_stays(patch: Patch) -> None:
    original = latest.Latest._verdict

    def verdict(self: latest.Latest, batch: Any) -> Any:
        keep, deletes = original(self, batch)
        return ~keep | (batch.column("_offset").to_numpy() >= self.end), deletes

    patch.setattr(latest.Latest, "_verdict", verdict)


def tombstones_go_at_once(patch: Patch) -> None:
    patch.setattr(cleaning, "_due_end", lambda partition, *args: partition.listed_end)


def a_key_compaction_does_not_say_which_versions_it_has_cost(patch: Patch) -> None:
    original = CleanedPartition
    patch.setattr(
        cleaning, "CleanedPartition", lambda number, end, swept, entry: original(number, end, swept, -1)
    )


def a_state_forgets_which_versions_keys_have_cost(patch: Patch) -> None:
    original = apply_cleaned
    patch.setattr(
        lifecycle_fold,
        "apply_cleaned",
        lambda partition, part, at: original(partition, replace(part, commit_entry=-1), at),
    )


def a_version_is_read_of_which_keys_have_taken_records(patch: Patch) -> None:
    patch.setattr("txnformat.reading.plan.check_not_cleaned", lambda *args: None)
    patch.setattr("txnformat.reading.resolving.check_not_cleaned", lambda *args: None)


# Erasures.


def an_erasure_does_not_look_again(patch: Patch) -> None:
    """It takes what it has not rewritten for clean."""
    patch.setattr(rewriting.Rewriting, "_rewrite", lambda *args: None)
    original = rewriting.Rewriting._listed
    looks: list[object] = []

    def listed(self: Any, state: LogState) -> Any:
        looks.append(state)
        state, topic, dirty = original(self, state)
        return state, topic, [] if len(looks) % 2 == 0 else dirty

    patch.setattr(rewriting.Rewriting, "_listed", listed)


def an_erasure_does_not_wait_for_open_transactions(patch: Patch) -> None:
    patch.setattr(call, "begun_by", lambda *args: [])
    patch.setattr(erased_fold, "begun_by", lambda *args: [])


def an_erasure_does_not_say_what_it_removed(patch: Patch) -> None:
    original = ErasedPartition
    patch.setattr(rewriting, "ErasedPartition", lambda number, entry: original(number, -1))


def a_state_forgets_what_an_erasure_removed(patch: Patch) -> None:
    patch.setattr(lifecycle_fold, "with_erased", lambda partition, commit_entry: partition)


def a_certificate_needs_no_vacuum(patch: Patch) -> None:
    patch.setattr(ErasureState, "needed_floor", property(lambda self: 1))


def a_certificate_does_not_look_for_old_objects(patch: Patch) -> None:
    patch.setattr(certificate, "_left", lambda *args: [])


def a_compactor_names_a_file_of_which_a_part_is_gone(patch: Patch) -> None:
    """The defect of a partial ``replace``: the file of a compactor that was overtaken is named for the parts
    that are left."""
    original = compaction._Topic._replace

    def replaced(self: Any, state: LogState, topic: Any, sources: Any, found: Any, cleaned: Any = ()) -> bool:
        newest = self._committer.refresh()
        starts = {one.key: state.partition(one.key).log_start for one in sources}
        left = [
            (one, runs)
            for one, runs in zip(sources, found.runs, strict=True)
            if self._is_there(newest, one, starts[one.key])
        ]
        if not left:
            return False
        found = found._replace(runs=[runs for _, runs in left])
        return bool(original(self, state, topic, [one for one, _ in left], found, cleaned))

    patch.setattr(compaction._Topic, "_replace", replaced)


def what_is_written_anew_is_born_now(patch: Patch) -> None:
    """The ``born`` of a compacted file says when it is named, not when its records were read: an orphan is
    above the floor of the erasure's vacuum."""
    original = compaction._Topic._write_here

    def write(self: Any, state: LogState, topic: Any, groups: Any) -> Any:
        yield from original(self, replace(state, entry=state.entry + 30), topic, groups)

    patch.setattr(compaction._Topic, "_write_here", write)


# The vacuum.


def a_vacuum_deletes_at_once(patch: Patch) -> None:
    """Without the second run, a grace later."""
    original = garbage.Judge._unnamed

    def unnamed(self: Any, found: Any, kind: Any, key: str, size: int, *, due: bool, known: bool) -> None:
        original(self, found, kind, key, size, due=True, known=known)

    patch.setattr(garbage.Judge, "_unnamed", unnamed)


def old_objects_may_be_named(patch: Patch) -> None:
    patch.setattr(decide, "check_born", lambda *args: None)
    patch.setattr(apply_module, "check_named", lambda *args: None)


# Truncation.


def entries_go_before_their_boundary_is_there(patch: Patch) -> None:
    patch.setattr(truncation._Truncation, "_ripe", lambda self, boundaries, now_ms: (10**6, None))
    patch.setattr(truncation._Truncation, "_write_boundary", lambda *args: None)


def the_boundary_passes_the_snapshots(patch: Patch) -> None:
    def allowed(state: LogState, old_entry: int) -> boundary.AllowedBoundary:
        return boundary.AllowedBoundary(bundle_first(old_entry + 1), boundary.LimitedBy.AGE)

    patch.setattr(truncation, "allowed_boundary", allowed)


def a_certificate_does_not_wait_for_payloads(patch: Patch) -> None:
    original = certificate._look
    patch.setattr(certificate, "_look", lambda *args: dataclasses.replace(original(*args), oldest_entry=None))


def a_seal_takes_the_first_batch_of_a_payload_for_each(patch: Patch) -> None:
    original = unembedding._Payloads.table

    def table(self: Any, file: Any, groups: range, schema: Any) -> Any:
        return original(self, file, range(len(groups)), schema)

    patch.setattr(unembedding._Payloads, "table", table)


UPKEEP_MUTANTS: list[tuple[Callable[[Patch], None], str, int]] = [
    (the_first_record_of_a_key_stays, "has taken|is shown", 16),
    (tombstones_go_at_once, "has taken", 24),
    (a_key_compaction_does_not_say_which_versions_it_has_cost, "has taken|is gone by key", 16),
    (a_state_forgets_which_versions_keys_have_cost, "is gone by key", 16),
    (a_version_is_read_of_which_keys_have_taken_records, "version .* lacks", 32),
    (an_erasure_does_not_look_again, "is complete, and", 96),
    (an_erasure_does_not_wait_for_open_transactions, "is complete, and|corrupt|breaks invariants", 4_608),
    (an_erasure_does_not_say_what_it_removed, "has taken a record", 16),
    (a_state_forgets_what_an_erasure_removed, "is gone by erasure", 16),
    (a_certificate_needs_no_vacuum, "is complete, and|breaks invariants", 16),
    (a_certificate_does_not_look_for_old_objects, "is complete, and", 56),
    (
        a_compactor_names_a_file_of_which_a_part_is_gone,
        "which its entry does not name|is complete, and|is in use|names is gone",
        4_104,
    ),
    (what_is_written_anew_is_born_now, "is complete, and", 4_016),
    (a_certificate_does_not_wait_for_payloads, "is complete, and", 56),
    (a_seal_takes_the_first_batch_of_a_payload_for_each, "is shown|has .* at|totals|corrupt", 8),
    (a_vacuum_deletes_at_once, "cannot be read", 136),
    (old_objects_may_be_named, "below the floor|though the floor", 56),
]
TRUNCATION_MUTANTS: list[tuple[Callable[[Patch], None], str]] = [
    (
        entries_go_before_their_boundary_is_there,
        "another chain|went back|cannot open|cannot follow|was created while|calls a sound log",
    ),
    (the_boundary_passes_the_snapshots, "cannot open|cannot follow|calls a sound log"),
]


@pytest.mark.parametrize(
    ("mutate", "found", "seed"), UPKEEP_MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_rule_of_upkeep_is_found(
    mutate: Callable[[Patch], None], found: str, seed: int, monkeypatch: Patch
) -> None:
    """``seed``: of a history that notices it soon; should it not any more, others are tried."""
    mutate(monkeypatch)
    expect_found((seed, *UPKEEP), mutate.__name__, found)


@pytest.mark.parametrize(
    ("mutate", "found"), TRUNCATION_MUTANTS, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_broken_rule_of_truncation_is_found(
    mutate: Callable[[Patch], None], found: str, monkeypatch: Patch
) -> None:
    mutate(monkeypatch)
    expect_found(TRUNCATED, mutate.__name__, found)
