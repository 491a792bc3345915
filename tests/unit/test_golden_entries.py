"""Kept bytes of entries and of a snapshot: they stand for the same as when they were written, and are written alike."""

from __future__ import annotations

import json

import pytest

from tests.integration.golden_entries import ENTRIES, FORMS, entry_of
from txnformat.document import ZSTD_MAGIC
from txnformat.entry import decode_entry, encode_entry
from txnformat.operations import Checkpoint
from txnformat.snapshot import decode_snapshot, state_digest

EVERY = tuple(form for forms in FORMS.values() for form in forms)
SNAPSHOT = ENTRIES.parent / "snapshots" / "full"
LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"


@pytest.mark.parametrize("name", [*FORMS, "all"])
def test_a_kept_entry_is_decoded_and_encoded_as_ever(name: str) -> None:
    (path,) = ENTRIES.glob(f"*-{name}.*")
    data, number = path.read_bytes(), int(path.name[:2])
    assert data.startswith(ZSTD_MAGIC) == (name == "all")
    entry = decode_entry(data, number)
    assert entry == entry_of(number, FORMS.get(name, EVERY * 2))
    assert encode_entry(entry) == data


def test_a_kept_snapshot_holds_the_state_that_it_did() -> None:
    """Its digest is over the state's own encoding: every field of it is compared."""
    named = json.loads(SNAPSHOT.with_suffix(".json").read_bytes())
    checkpoint = Checkpoint(**named)
    state = decode_snapshot(SNAPSHOT.with_suffix(".snapshot").read_bytes(), checkpoint, LOG_ID)
    assert state_digest(state) == checkpoint.digest
    assert (len(state.topics), len(state.groups), len(state.subscriptions)) == (2, 1, 1)
