"""The decision about the deletion of a topic: which transactions touch it, and what becomes of them. Pure."""

from __future__ import annotations

from txnformat.core.intents import Done, RemoveTopic
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.forcing import aborted_by_operator
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.lifecycle.touching import NAMES_SHOWN_MAX, is_prepared, touching
from txnformat.core.operations import EndTxn
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, InvalidTransactionStateError

__all__ = ["delete_topic"]


def delete_topic(state: LogState, action: RemoveTopic) -> tuple[EndTxn | DeleteTopic, ...] | Done:
    """Return the operations that delete a topic, after the ends of the open transactions that touch it; Done
    when it was deleted before.

    Raises ConflictError (``topic-in-use``: open transactions touch it, and force is not set), NotFoundError
    (``topic-gone``), InvalidTransactionStateError (``transaction-prepared``: the action does not name a
    prepared one), UnsupportedFeatureError.
    """
    for gone in state.deleted.values():
        if gone.topic_id == action.topic_id:
            return Done(gone.entry)
    topic = state.topic_of(action.topic_id, "a deletion")
    check_removal(state)
    found = touching(state, action.topic_id)
    prepared = [name for name in found if is_prepared(state, name) and name not in action.prepared]
    if prepared:
        raise InvalidTransactionStateError(
            "prepared transactions touch the topic: their coordinator decides their outcome",
            kind="transaction-prepared",
            hint="commit or abort them first; or name each of them in force (--prepared), which discards "
            "their records in the topic",
            topic=topic.name,
            transactional_ids=prepared[:NAMES_SHOWN_MAX],
        )
    opened = [name for name in found if not is_prepared(state, name)]
    if opened and not action.force:
        raise ConflictError(
            "open transactions touch the topic",
            kind="topic-in-use",
            hint="wait until they have ended, or use force (--force), which aborts them",
            topic=topic.name,
            transactional_ids=opened[:NAMES_SHOWN_MAX],
        )
    kept = tuple(name for name in found if name not in opened)
    aborts, _ = aborted_by_operator(state, opened)
    return (*aborts, DeleteTopic(action.topic_id, kept))
