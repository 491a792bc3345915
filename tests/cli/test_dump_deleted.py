"""``txnlog dump entries`` of a log whose old entries were deleted."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command
from tests.integration.truncation_world import BOUNDARY, TruncationWorld, entries_in, one_by_one
from txnformat import keys
from txnformat.core.wire.bundle import decode_bundle
from txnformat.store.local import LocalStore


def test_deleted_entries_are_shown_out_of_bundles(root: Path, txnlog: Command) -> None:
    with one_by_one():
        world = TruncationWorld()
        world.age()
        world.truncate()
        world.truncate()
    assert entries_in(world.store)[0] == BOUNDARY
    store = LocalStore(str(root))
    for info in world.store.list(""):
        store.create(info.key, world.store.get(info.key) or b"")
    expected = list(range(world.opened().state.entry + 1))
    assert [one["entry"] for one in txnlog("dump", "entries", "--json").lines] == expected
    # A writer that slept creates a deleted slot again, with an entry that the log never had.
    bundle = keys.bundle_key(0, BOUNDARY - 1)
    store.create(keys.entry_key(51), decode_bundle(store.get(bundle) or b"", bundle)[50])
    assert [one["entry"] for one in txnlog("dump", "entries", "--json").lines] == expected
    assert txnlog("dump", "entries", "--entry", 51, "--json").lines[0]["entry"] == 51
