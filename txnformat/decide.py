"""Decisions: state and intent give operations, the original result, or a rejection. Pure.

Order of the questions (specification, section "Deciding"):

1. Is the intent's id in the window? Then it is done.
2. Is its natural key known (application version, last end of the transactional id, sequence window)? Done.
3. Does the window not reach back to its first slot? Undecidable: it may have landed, so it is never applied.
4. Does it fit the state? Then operations, else a rejection that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from txnformat.decide_transaction import end_for_another, open_producer
from txnformat.decide_write import decide_write
from txnformat.errors import ConflictError, InternalError, InvalidInputError, NotFoundError, TxnLogError
from txnformat.evolution import evolve
from txnformat.intents import (
    Action,
    AllocateIds,
    ChangeTopic,
    Done,
    EndTransaction,
    ExpireIdle,
    Included,
    Intent,
    OpenProducer,
    Rejected,
    SealSegments,
    TakeCheckpoint,
    Undecidable,
    Verdict,
    Write,
)
from txnformat.operations import AllocateProducerIds, CreateTopic, Operation, Seal
from txnformat.retention import expire
from txnformat.state import LogState
from txnformat.types import TopicPartition

__all__ = ["decide"]


def decide(state: LogState, intent: Intent) -> Verdict:
    """Decide one intent on a state.

    Parameters
    ----------
    state : LogState
        The state after the last folded entry, and after the intents decided before this one for the same slot.

    Returns
    -------
    Included | Done | Rejected | Undecidable
        Operations of an Included verdict carry ``intent=0``; who builds the entry numbers them.
    """
    held_by = state.window.find(intent.intent_id, intent.first_slot)
    if held_by is not None:
        return Done(held_by, intent_id=intent.intent_id)
    verdict = _decide_action(state, intent.action)
    if isinstance(verdict, Done) or state.window.covers(intent.first_slot):
        return verdict
    return Undecidable(state.window.first)


def _decide_action(state: LogState, action: Action) -> Verdict:
    match action:
        case Write():
            return decide_write(state, action)
        case OpenProducer():
            return _decided(lambda: open_producer(state, action))
        case EndTransaction():
            return _decided(lambda: end_for_another(state, action))
        case AllocateIds():
            first = state.next_producer_id
            return _included(AllocateProducerIds(action.owner, first, first + action.count - 1))
        case CreateTopic():
            return _create_topic(state, action)
        case ChangeTopic():
            return _change_topic(state, action)
        case TakeCheckpoint():
            newest = state.checkpoints[-1].entry if state.checkpoints else -1
            if action.checkpoint.entry <= newest:
                return Rejected(
                    ConflictError(
                        "a newer snapshot is named already", kind="checkpoint-superseded", entry=newest
                    )
                )
            return _included(replace(action.checkpoint, intent=0))
        case ExpireIdle():
            return expire(state, action)
        case SealSegments():
            return _seal(state, action.seal)


def _create_topic(state: LogState, action: CreateTopic) -> Verdict:
    if action.name in state.topic_ids:
        return Rejected(
            ConflictError(
                "the topic exists already",
                kind="topic-exists",
                hint="use it, or choose another name",
                topic=action.name,
            )
        )
    if action.topic_id in state.topics:
        return Rejected(InternalError("two topics with one id", topic_id=action.topic_id))
    return _included(replace(action, intent=0))


def _decided(decision: Callable[[], Operation | Done]) -> Verdict:
    """Return a decision as a verdict: rejections are values here."""
    try:
        found = decision()
    except TxnLogError as error:
        return Rejected(error.with_traceback(None))
    return found if isinstance(found, Done) else Included((found,))


def _included(*operations: Operation) -> Included:
    return Included(operations)


def _change_topic(state: LogState, action: ChangeTopic) -> Verdict:
    topic = state.topics.get(action.topic_id)
    if topic is None:
        return Rejected(NotFoundError("no such topic", kind="unknown-topic", topic_id=action.topic_id))
    try:
        return _included(evolve(topic.schema, topic.partitions, action))
    except InvalidInputError as error:
        error.values["topic"] = topic.name
        return Rejected(error.with_traceback(None))


def _seal(state: LogState, seal: Seal) -> Verdict:
    """Refuse what somebody else has sealed in the meantime; offsets below the last stable offset stay so."""
    for segment in seal.segments:
        topic_id = segment.record.topic_id
        for part in segment.partitions:
            partition = state.partition(TopicPartition(topic_id, part.partition))
            # Its end is above the last stable offset in a view only that is older than the one it was made from.
            if partition.sealed_end != part.start_offset or part.end_offset > partition.last_stable_offset:
                return _superseded(
                    topic_id=topic_id, partition=part.partition, sealed_end=partition.sealed_end
                )
    known = state.segments.end + len(seal.segments)
    if seal.segment_list is not None and not state.listed_segments < seal.listed_segments <= known:
        return _superseded(listed_segments=state.listed_segments)
    return _included(replace(seal, intent=0))


def _superseded(**values: object) -> Rejected:
    return Rejected(
        ConflictError(
            "somebody else has sealed these offsets",
            kind="seal-superseded",
            hint="nothing is to be done",
            **values,
        )
    )
