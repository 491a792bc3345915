"""Entries of one change each, folded with every check on the way."""

from __future__ import annotations

from typing import Any

from txnformat.core.assemble import Assembled, assemble
from txnformat.core.decide import decide
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import Action, Intent, Rejected
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.state import LogState

__all__ = ["LOG_ID", "after", "committed", "refusal"]

LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"


def committed(state: LogState, action: Action) -> Assembled:
    intent = Intent(f"intent {state.entry + 1}", state.entry + 1, action)
    return assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write")


def after(*actions: Action) -> LogState:
    """Return the state after entries of one action each, with every check on the way."""
    state = LogState(LOG_ID, entry_sha256=sha256_hex(b"format"))
    for action in actions:
        assembled = committed(state, action)
        assert assembled.entry is not None, assembled.verdicts
        folded = apply(state, assembled.entry, assembled.sha256)
        assert check_state(state, assembled.entry, folded) == []
        assert check_whole(folded) == []
        state = folded
    return state


def refusal(state: LogState, action: Action) -> Any:
    verdict = decide(state, Intent("one more", state.entry + 1, action))
    assert isinstance(verdict, Rejected)
    return verdict.error
