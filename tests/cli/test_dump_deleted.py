"""``txnlog dump entries`` and ``txnlog history`` of a log whose old entries were deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.integration.upkeep.truncation_world import BOUNDARY, TruncationWorld, entries_in, one_by_one
from txnformat import keys
from txnformat.core.wire.bundle import decode_bundle
from txnformat.store.local import LocalStore


@pytest.fixture
def world(root: Path) -> TruncationWorld:
    """A log that was truncated; a copy of it is on the local disk."""
    with one_by_one():
        world = TruncationWorld()
        world.age()
        world.truncate()
        world.truncate()
    assert entries_in(world.store)[0] == BOUNDARY
    store = LocalStore(str(root))
    for info in world.store.list(""):
        store.create(info.key, world.store.get(info.key) or b"")
    return world


def test_deleted_entries_are_shown_out_of_bundles(
    world: TruncationWorld, root: Path, txnlog: Command
) -> None:
    store = LocalStore(str(root))
    expected = list(range(world.opened().state.entry + 1))
    assert [one["entry"] for one in txnlog("dump", "entries", "--json").lines] == expected
    # A writer that slept creates a deleted slot again, with an entry that the log never had.
    bundle = keys.bundle_key(0, BOUNDARY - 1)
    store.create(keys.entry_key(51), decode_bundle(store.get(bundle) or b"", bundle)[50])
    assert [one["entry"] for one in txnlog("dump", "entries", "--json").lines] == expected
    assert txnlog("dump", "entries", "--entry", 51, "--json").lines[0]["entry"] == 51


def test_history_shows_the_entries_that_there_are_before_it_tells_of_those_that_are_lost(
    world: TruncationWorld, root: Path, txnlog: Command
) -> None:
    LocalStore(str(root)).delete(keys.bundle_key(0, BOUNDARY - 1))
    newest = world.opened().state.entry
    expected = list(range(newest, BOUNDARY - 1, -1))
    told = txnlog("history", "--all")
    assert told.code == 3
    assert [int(line.split()[0]) for line in told.out.splitlines()[1:]] == expected
    assert "history-gone" in told.err
    assert f"entries {BOUNDARY} to {newest} can be read" in told.err
    told = txnlog("history", "--all", "--json")
    assert (told.code, told.error["kind"]) == (3, "history-gone")
    assert [one["entry"] for one in told.lines] == expected
    told = txnlog("history", "--start", BOUNDARY - 1)
    assert (told.code, told.out) == (3, "")
