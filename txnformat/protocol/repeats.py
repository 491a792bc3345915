"""The log's answer to a commit that it holds already. Steps without IO."""

from __future__ import annotations

from txnformat.core.entry import CommitEntry
from txnformat.core.intents import CommitResult, Done, Intent, RemoveTopic, Write, first_offsets
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import AppVersion, CreateTopic, EndTxn
from txnformat.errors import CorruptDataError, NotFoundError
from txnformat.persistent import replace
from txnformat.protocol.effects import Steps
from txnformat.protocol.old_entries import HISTORY_GONE, OldEntries

__all__ = ["original_result"]


def original_result(intent: Intent, done: Done, own: CommitEntry | None) -> Steps[CommitResult]:
    """Return the result of what the log held already; the entry is read unless it is the one just written."""
    if done.offsets is not None:
        return CommitResult(done.entry, None, (), done.offsets, repeated=True)
    if own is not None and own.entry == done.entry:
        entry: CommitEntry | None = own
    else:
        entry = yield from _held(done.entry)
    if entry is None or (done.intent_id is not None and done.intent_id not in entry.intents):
        return CommitResult(done.entry, None, (), repeated=True)  # the result is no longer there to be read
    if done.intent_id is not None:
        return CommitResult.of(entry, done.intent_id, repeated=True)
    index = _holder(intent, entry)
    operations = tuple(op for op in entry.operations if op.intent == index)
    return CommitResult(done.entry, entry.timestamp_ms, operations, first_offsets(operations), repeated=True)


def _held(number: int) -> Steps[CommitEntry | None]:
    """Return an entry; None: it is deleted, and in no bundle.

    A deleted slot that an attempt of ours has created again, late, is not looked at.
    """
    try:
        return (yield from OldEntries(number).read(number))
    except (NotFoundError, CorruptDataError) as error:
        if error.kind not in (HISTORY_GONE, "missing-entry"):
            raise
        return None


def _holder(intent: Intent, entry: CommitEntry) -> int | None:
    """Return which intent of ``entry`` did what ``intent`` asks for, by its natural key."""
    write = intent.action
    if isinstance(write, CreateTopic):
        return next((op.intent for op in entry.operations if op == replace(write, intent=op.intent)), None)
    if isinstance(write, RemoveTopic):
        deleted = (op for op in entry.operations if isinstance(op, DeleteTopic))
        return next((op.intent for op in deleted if op.topic_id == write.topic_id), None)
    if not isinstance(write, Write):
        return None
    for op in entry.operations:
        if isinstance(op, AppVersion) and write.app and write.app.is_held_by(op):
            return op.intent
        named = write.producer
        if (
            isinstance(op, EndTxn)
            and named
            and (op.producer_id, op.epoch) == (named.producer_id, named.epoch)
        ):
            return op.intent
    return None
