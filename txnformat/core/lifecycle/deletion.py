"""The decision about the deletion of a topic: which transactions touch it, and what becomes of them. Pure."""

from __future__ import annotations

from collections import Counter

from txnformat.core.drafts import replace
from txnformat.core.intents import Done, EndTransaction, RemoveTopic
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.lifecycle.touching import touching
from txnformat.core.lifecycle.trim import check_lifecycle
from txnformat.core.operations import Cause, EndTxn
from txnformat.core.state import LogState
from txnformat.core.transactions.decide import end_for_another
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import ConflictError, InternalError, InvalidTransactionStateError
from txnformat.types import TopicPartition

__all__ = ["delete_topic"]

NAMES_SHOWN_MAX = 20


def delete_topic(state: LogState, action: RemoveTopic) -> tuple[EndTxn | DeleteTopic, ...] | Done:
    """Return the operations that delete a topic, after the ends of the open transactions that touch it; Done when it was deleted before.

    Raises ConflictError (``topic-in-use``: open transactions touch it, and force is not set), NotFoundError (``topic-gone``), InvalidTransactionStateError (``transaction-prepared``: the action does not name a prepared one),
    UnsupportedFeatureError.
    """
    for gone in state.deleted.values():
        if gone.topic_id == action.topic_id:
            return Done(gone.entry)
    topic = state.topic_of(action.topic_id, "a deletion")
    check_lifecycle(state)
    found = touching(state, action.topic_id)
    prepared = [
        name
        for name in found
        if state.transactional_ids[name].status is TransactionStatus.PREPARED and name not in action.prepared
    ]
    if prepared:
        raise InvalidTransactionStateError(
            "prepared transactions touch the topic: their coordinator decides their outcome",
            kind="transaction-prepared",
            hint="commit or abort them first; or name each of them in force (--prepared), which gives up what they have in the topic",
            topic=topic.name,
            transactional_ids=prepared[:NAMES_SHOWN_MAX],
        )
    opened = [
        name for name in found if state.transactional_ids[name].status is not TransactionStatus.PREPARED
    ]
    if opened and not action.force:
        raise ConflictError(
            "open transactions touch the topic",
            kind="topic-in-use",
            hint="wait until they have ended, or use force (--force), which aborts them",
            topic=topic.name,
            transactional_ids=opened[:NAMES_SHOWN_MAX],
        )
    kept = tuple(name for name in found if name not in opened)
    return (*_aborts(state, opened), DeleteTopic(action.topic_id, kept))


def _aborts(state: LogState, names: list[str]) -> list[EndTxn]:
    """Return the ends of open transactions, as an operator aborts them; a marker follows those of the ends before."""
    ends: list[EndTxn] = []
    before: Counter[TopicPartition] = Counter()
    for name in names:
        owner = state.transactional_ids[name]
        end = end_for_another(state, EndTransaction(name, owner.producer_id, owner.epoch, Cause.OPERATOR))
        if isinstance(end, Done):
            raise InternalError("an open transaction has ended", transactional_id=name)
        markers = tuple(
            replace(marker, offset=marker.offset + before[marker.topic_partition]) for marker in end.markers
        )
        before.update(marker.topic_partition for marker in markers)
        ends.append(replace(end, markers=markers))
    return ends
