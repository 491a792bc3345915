"""Entries that do not fit the state they follow."""

from __future__ import annotations

import pytest

from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry
from txnformat.core.fold import apply
from txnformat.core.intents import Action, Intent
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError

__all__ = ["assert_corrupt", "entry_for"]


def entry_for(state: LogState, action: Action) -> tuple[CommitEntry, str]:
    """Return the entry that a correct writer makes of ``action``."""
    intent = Intent(f"intent {state.entry + 1}", state.entry + 1, action)
    assembled = assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
    assert assembled.entry is not None, assembled.verdicts
    return assembled.entry, assembled.sha256


def assert_corrupt(state: LogState, entry: CommitEntry, kind: str = "invalid-entry") -> None:
    with pytest.raises(CorruptDataError) as caught:
        apply(state, entry, "0" * 64)
    assert caught.value.kind == kind
