"""Decisions: state and intent give operations, the original result, or a rejection. Pure.

Order of the questions (specification, section "Deciding"):

1. Is the intent's id in the window? Then it is done.
2. Is its natural key known (application version, last end of the transactional id, sequence window)? Done.
3. Does the window not reach back to its first slot, and does no natural key prove that it has not landed
   (:mod:`txnformat.core.producers.absence`)? Undecidable: it may have landed, so it is never applied.
4. Does it fit the state? Then operations, else a rejection that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txnformat.core.groups.decide import join_group, leave_group, remove_group, reset_offsets
from txnformat.core.intents import (
    Action,
    AllocateIds,
    ChangeLog,
    ChangeTopic,
    Done,
    EnableFeatures,
    EndTransaction,
    ExpireIdle,
    FreePartitions,
    Included,
    Intent,
    JoinAsMember,
    LeaveGroup,
    MarkVacuum,
    OpenProducer,
    Rejected,
    RemoveGroup,
    RemoveTopic,
    ReplaceSegments,
    ResetOffsets,
    SealSegments,
    SpillExtents,
    TakeCheckpoint,
    TrimTopic,
    Undecidable,
    Verdict,
    Write,
)
from txnformat.core.lifecycle.compaction import replace_segments
from txnformat.core.lifecycle.deletion import delete_topic
from txnformat.core.lifecycle.erasure import (
    abandon_erasure,
    advance_erasure,
    complete_erasure,
    request_erasure,
)
from txnformat.core.lifecycle.features import change_log, enable
from txnformat.core.lifecycle.forcing import free_partitions
from txnformat.core.lifecycle.idle import expire
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    RequestErasure,
)
from txnformat.core.lifecycle.trim import trim
from txnformat.core.lifecycle.vacuum import check_born, mark
from txnformat.core.operations import AllocateProducerIds, CreateTopic, Operation
from txnformat.core.producers.absence import is_absent
from txnformat.core.records.decide import decide_write
from txnformat.core.sealing.decide import seal, spill
from txnformat.core.state import LogState
from txnformat.core.subscriptions.decide import create_subscription, delete_subscription
from txnformat.core.subscriptions.operations import CreateSubscription, DeleteSubscription
from txnformat.core.topics.decide import change_topic, create_topic
from txnformat.core.transactions.decide import end_for_another, open_producer
from txnformat.errors import ConflictError, TxnLogError
from txnformat.persistent import replace

__all__ = ["decide", "decide_action"]


def decide(state: LogState, intent: Intent) -> Verdict:
    """Decide one intent on the state after the last folded entry, and after the intents decided before this
    one for the same slot.

    Operations of an Included verdict carry ``intent=0``: the builder of the entry numbers them.
    """
    held_by = state.window.find(intent.intent_id, intent.first_slot)
    if held_by is not None:
        return Done(held_by, intent_id=intent.intent_id)
    verdict = decide_action(state, intent.action)
    if isinstance(verdict, Done) or state.window.covers(intent.first_slot) or is_absent(state, intent.action):
        return verdict
    return Undecidable(state.window.first)


def decide_action(state: LogState, action: Action) -> Verdict:
    """Decide without regard to the window.

    Rejections are raised by what decides, and values from here on: the public edge raises them.
    """
    try:
        found = _DECISIONS[type(action)](state, action)
        operations = () if isinstance(found, Done) else found if isinstance(found, tuple) else (found,)
        check_born(state, operations)
    except TxnLogError as error:
        return Rejected(error.with_traceback(None))
    return found if isinstance(found, Done) else Included(operations)


def _allocate(state: LogState, action: AllocateIds) -> Operation:
    first = state.next_producer_id
    return AllocateProducerIds(action.owner, first, first + action.count - 1)


def _checkpoint(state: LogState, action: TakeCheckpoint) -> Operation:
    newest = state.checkpoints[-1].entry if state.checkpoints else -1
    if action.checkpoint.entry <= newest:
        raise ConflictError("a newer snapshot is named already", kind="checkpoint-superseded", entry=newest)
    return replace(action.checkpoint, intent=0)


_DECISIONS: dict[type[Any], Callable[[LogState, Any], Operation | tuple[Operation, ...] | Done]] = {
    Write: decide_write,
    OpenProducer: open_producer,
    EndTransaction: end_for_another,
    AllocateIds: _allocate,
    CreateTopic: create_topic,
    ChangeTopic: change_topic,
    TakeCheckpoint: _checkpoint,
    SealSegments: seal,
    SpillExtents: spill,
    ExpireIdle: expire,
    EnableFeatures: enable,
    ChangeLog: change_log,
    TrimTopic: trim,
    FreePartitions: free_partitions,
    MarkVacuum: mark,
    RemoveTopic: delete_topic,
    ReplaceSegments: replace_segments,
    RequestErasure: request_erasure,
    AdvanceErasure: advance_erasure,
    CompleteErasure: complete_erasure,
    AbandonErasure: abandon_erasure,
    JoinAsMember: join_group,
    LeaveGroup: leave_group,
    ResetOffsets: reset_offsets,
    RemoveGroup: remove_group,
    CreateSubscription: create_subscription,
    DeleteSubscription: delete_subscription,
}
