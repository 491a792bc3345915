"""A log whose maintenance needs what this version does not have is not maintained by it: one error, and
nothing is changed. Readers and writers go on."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest

from tests.maintenance.deaths import is_between
from tests.maintenance.future import FEATURE, ask_for_more
from tests.maintenance.tasks import GRACE, TASKS, erase, world_of
from tests.maintenance.world import World
from txnformat import keys
from txnformat.admin import maintenance
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
from txnlog import TxnLog, UnsupportedFeatureError
from txnlog_testing.stores.faulty import FaultyStore

REMOVALS = (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
CALLS: dict[str, Callable[[TxnLog], Any]] = {
    "compact": lambda log: log.compact(),
    "compact a topic": lambda log: log.compact("t", min_lag_ms=0),
    "compact keys": lambda log: log.compact("k", min_lag_ms=0),
    "ask what a compaction would do": lambda log: log.compact(dry_run=True),
    "delete_records": lambda log: log.delete_records("t", 1),
    "ask what a deletion would do": lambda log: log.delete_records("t", 1, dry_run=True),
    "delete_topic": lambda log: log.delete_topic("t"),
    "erase": erase,
    "ask what an erasure would do": lambda log: log.erase("t", "k = 'a'", requested_by="x", dry_run=True),
    "vacuum": lambda log: log.vacuum(GRACE),
    "ask what a vacuum would do": lambda log: log.vacuum(GRACE, dry_run=True),
    "truncate": lambda log: log.truncate(),
    "ask what a truncation would do": lambda log: log.truncate(dry_run=True),
    "maintain": lambda log: log.maintain(),
    **{f"maintain {name}": methodcaller("maintain", name) for name in maintenance.TASKS},
}


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(UnsupportedFeatureError, match="maintenance features") as caught:
        call()
    assert caught.value.values == {"features": [FEATURE]}
    assert "upgrade txnlog" in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_maintains_a_log_that_needs_more(name: str) -> None:
    world = world_of("maintain").copied()
    ask_for_more(world.store)
    before = world.fingerprint()
    refused(lambda: CALLS[name](world.opened()))
    assert world.fingerprint() == before


def test_an_erasure_is_not_given_up() -> None:
    world = World()
    status = erase(world.opened())
    ask_for_more(world.store)
    before = world.fingerprint()
    refused(lambda: world.opened().abandon_erasure(status.erasure_id, requested_by="x"))
    assert world.fingerprint() == before


def test_a_maintenance_service_ends_with_the_error() -> None:
    """No later round can do better."""
    world = world_of("maintain").copied()
    ask_for_more(world.store)
    log = world.opened()
    refused(maintenance.Upkeep(log.maintain, world.clock).round)


def test_readers_and_writers_go_on() -> None:
    world = world_of("maintain").copied()
    ask_for_more(world.store)
    is_between(TASKS["maintain"], world)
    log = world.opened()
    log.committer.end_expired()
    world.ledger.abort_open()
    world.write(log, {("t", 0): [("new", 1)]})
    assert log.committer.seal(), "writers seal beside their work"
    log.committer.write_snapshot()
    is_between(TASKS["maintain"], world)
    report = world.opened().verify(deep=True)
    assert report.ok, report.problems


@pytest.mark.parametrize(
    "name",
    [
        "retention",
        "delete_records",
        "delete_topic",
        "compact",
        "compact keys",
        "erase",
        "erasures",
        "maintain",
    ],
)
def test_a_log_that_needs_more_from_now_on_refuses_what_was_begun(name: str) -> None:
    """The upgrade takes the slot of the task's first entry: decided again, nothing is removed or replaced."""
    world = world_of(name).copied()
    upgrades: list[int] = []

    def before_create(key: str) -> None:
        if keys.parse_entry_key(key) is not None and not upgrades:
            upgrades.append(ask_for_more(world.store))

    log = world.opened(FaultyStore(world.store, before_create=before_create))
    refused(lambda: TASKS[name].run(log))
    log.close()
    is_between(TASKS[name], world)
    later = [op for one in world.opened().history(start=upgrades[0]) for op in one.operations]
    assert later
    assert not [op for op in later if isinstance(op, REMOVALS)]


def test_an_erasure_that_was_begun_goes_no_further() -> None:
    """Its request has landed; neither what it rewrites nor how far it has come is decided any more."""
    world = world_of("erase").copied()
    upgrades: list[int] = []

    def before_create(key: str) -> None:
        if keys.parse_entry_key(key) is not None and world.opened().state.erasures and not upgrades:
            upgrades.append(ask_for_more(world.store))

    log = world.opened(FaultyStore(world.store, before_create=before_create))
    refused(lambda: erase(log))
    is_between(TASKS["erase"], world)
