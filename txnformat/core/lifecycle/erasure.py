"""The decisions about erasures: the request, how far files are rewritten, and the certificate. Pure."""

from __future__ import annotations

from txnformat.arguments import is_text
from txnformat.core.intents import Done
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    RequestErasure,
)
from txnformat.core.lifecycle.state import OPEN_MAX, REWRITING_MAX, ErasureState
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, NotFoundError
from txnformat.persistent import replace
from txnformat.types import TopicPartition

__all__ = ["abandon_erasure", "advance_erasure", "check_open", "complete_erasure", "request_erasure"]


def request_erasure(state: LogState, action: RequestErasure) -> RequestErasure | Done:
    """Return the operation that begins an erasure; Done when it, or another one of the topic with the same
    hash of the condition, has begun.

    Raises ConflictError (``too-many-erasures``), NotFoundError (``topic-gone``), UnsupportedFeatureError
    (``upgrade-required``).
    """
    known = state.erasures.get(action.erasure_id)
    if known is not None:
        return Done(known.entry)
    state.topic_of(action.topic_id, "an erasure")
    check_removal(state)
    for one in state.erasures.values():
        if (one.topic_id, one.condition) == (action.topic_id, action.condition):
            return Done(one.entry)  # a call can go on with one of them only: the condition is how it finds it
    opened = [one for one in state.erasures.values() if one.complete_entry < 0]
    rewriting = sum(one.rewritten_entry < 0 for one in opened)
    if len(opened) >= OPEN_MAX or rewriting >= REWRITING_MAX:
        raise ConflictError(
            "the log has too many erasures that are not complete",
            kind="too-many-erasures",
            hint="call the open ones again (txnlog erase --status lists them), abandon those whose key is "
            "lost (--abandon), run maintenance, or put several conditions into one",
            open=len(opened),
            rewriting=rewriting,
        )
    return replace(action, intent=0)


def advance_erasure(state: LogState, action: AdvanceErasure) -> AdvanceErasure | Done:
    """Return the operation; Done when another client has rewritten everything.

    Raises ConflictError (``erasure-superseded``).
    """
    known = check_open(state, action.erasure_id)
    if known.rewritten_entry >= 0:
        return Done(known.rewritten_entry)
    reached = {part.partition: part.end_offset for part in known.reached}
    for part in action.partitions:
        listed = state.partition(TopicPartition(known.topic_id, part.partition)).listed_end
        if not reached.get(part.partition, 0) <= part.end_offset <= listed:
            raise ConflictError(
                "another client has come further with the erasure",
                kind="erasure-superseded",
                hint="call again",
                partition=part.partition,
                expected=reached.get(part.partition, 0),
                got=part.end_offset,
            )
    return replace(action, intent=0)


def complete_erasure(state: LogState, action: CompleteErasure) -> CompleteErasure | Done:
    """Return the operation; Done when there is a certificate.

    Raises ConflictError (``erasure-superseded``): something was rewritten meanwhile.
    """
    known = state.erasures.get(action.erasure_id)
    if known is not None and known.complete_entry >= 0:
        return Done(known.complete_entry)
    known = check_open(state, action.erasure_id)
    seen = (action.records, action.files, action.replaced_entry, action.rewritten_entry)
    if (
        seen != (known.records, known.files, known.replaced_entry, known.rewritten_entry)
        or known.rewritten_entry < 0
        or not known.needed_floor <= action.floor <= state.vacuum_floor
    ):
        raise ConflictError(
            "the erasure has changed, or needs a later vacuum",
            kind="erasure-superseded",
            hint="call again",
            erasure_id=action.erasure_id,
            floor=state.vacuum_floor,
            needed_floor=known.needed_floor,
        )
    return replace(action, intent=0)


def abandon_erasure(state: LogState, action: AbandonErasure) -> AbandonErasure:
    """Return the operation.

    Raises NotFoundError (``unknown-erasure``), ConflictError (``erasure-superseded``): it is complete.
    """
    check_open(state, action.erasure_id)
    return replace(action, intent=0)


def check_open(state: LogState, erasure_id: str) -> ErasureState:
    """Return an erasure.

    Raises NotFoundError (``unknown-erasure``), ConflictError (``erasure-superseded``: it is complete),
    UnsupportedFeatureError.
    """
    check_removal(state)
    known = state.erasures.get(erasure_id) if is_text(erasure_id) else None
    if known is None:
        raise NotFoundError(
            "no such erasure",
            kind="unknown-erasure",
            hint="txnlog erase --status lists those of the log",
            erasure_id=erasure_id,
        )
    if known.complete_entry >= 0:
        raise ConflictError(
            "the erasure is complete",
            kind="erasure-superseded",
            hint="no action is needed",
            entry=known.complete_entry,
        )
    if known.entry > state.entry:
        raise ConflictError(
            "the erasure is requested in this entry", kind="erasure-superseded", hint="call again"
        )
    return known
