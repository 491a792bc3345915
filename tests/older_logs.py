"""Logs as earlier versions wrote them: their first entry names fewer features than that of a new log, and
their files have bounds of all floats."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from txnformat import keys
from txnformat.core.assemble import ENGINE, next_timestamp_ms
from txnformat.core.entry import CommitEntry, encode_entry
from txnformat.core.operations import Upgrade
from txnformat.core.state import FEATURES
from txnformat.segments import writer
from txnformat.store.base import CreateOutcome
from txnlog import TxnLog

__all__ = ["begin_older", "bounds_of_all_floats", "older_log"]


@contextmanager
def bounds_of_all_floats() -> Iterator[None]:
    """Within this, files are written as by versions that told the bounds of floats beside NaN and -0.0, too."""
    with patch.object(writer, "columns_without_bounds", lambda _: frozenset()):
        yield


def older_log(location: Any, *features: str, **components: Any) -> TxnLog:
    """Create a log that has ``base-1`` and the given features alone."""
    log = TxnLog.create(location, **components)
    begin_older(log, *features)
    return log


def begin_older(log: TxnLog, *features: str) -> None:
    """Write the first entry of a log that has none."""
    state, ids = log.state, log.committer.ids
    reader, writer, maintenance = (tuple(sorted(names.union(features))) for names in FEATURES)
    intent, write_id = ids.new(), ids.new()
    entry = CommitEntry(
        entry=0,
        log_id=state.log_id,
        write_id=write_id,
        previous=state.entry_sha256,
        timestamp_ms=next_timestamp_ms(state, log.store.store_time_ms()),
        engine=ENGINE,
        intents=(intent,),
        operations=(Upgrade(reader, writer, maintenance),),
    )
    assert log.store.create(keys.entry_key(0), encode_entry(entry)).outcome is CreateOutcome.CREATED
    log.refresh()
