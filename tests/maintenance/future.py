"""A log whose maintenance needs a feature that this version does not have."""

from __future__ import annotations

from txnformat import keys
from txnformat.core.entry import CommitEntry, encode_entry
from txnformat.core.operations import Upgrade
from txnformat.store.base import ObjectStore
from txnlog import TxnLog

__all__ = ["FEATURE", "ask_for_more"]

FEATURE = "views-1"


def ask_for_more(store: ObjectStore) -> int:
    """Append the entry of a later version that asks maintenance for more; return its number."""
    state = TxnLog.open(store).refresh()
    reader, writer, maintenance = (tuple(sorted(names)) for names in state.features)
    entry = CommitEntry(
        entry=state.entry + 1,
        log_id=state.log_id,
        write_id="a later version",
        previous=state.entry_sha256,
        timestamp_ms=state.timestamp_ms + 1,
        engine="txnlog-py/9",
        intents=("upgrade",),
        operations=(Upgrade(reader, writer, tuple(sorted((*maintenance, FEATURE)))),),
    )
    store.create(keys.entry_key(entry.entry), encode_entry(entry))
    return entry.entry
