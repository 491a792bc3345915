"""Deciding topics: which may be created, and how they may change.

Pure. Topics that a write makes on its way are in :mod:`txnformat.core.records.decide`.
"""

from __future__ import annotations

from txnformat.core.intents import ChangeTopic, Done
from txnformat.core.lifecycle.features import check_columns, check_lifecycle
from txnformat.core.operations import CreateTopic, Operation, TopicSetting
from txnformat.core.ownership import directories, directory_in_use, shares_directory, topic_exists
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.evolution import evolve
from txnformat.core.topics.settings import check_settings
from txnformat.errors import InternalError, InvalidInputError
from txnformat.field_types import LOG_PARTITIONS_MAX
from txnformat.persistent import replace

__all__ = ["change_topic", "create_topic"]


def create_topic(state: LogState, action: CreateTopic) -> Operation | Done:
    """Return the operation of a topic that is to be created, Done if the log has it already, else raise."""
    made = state.topics.get(action.topic_id)
    if made is not None and made.name == action.name:
        return Done(made.created_entry)
    if (gone := state.deleted.get(action.directory)) is not None:
        raise directory_in_use(action, gone)
    if action.name in state.topic_ids or shares_directory(action.directory, directories(state).values):
        raise topic_exists(action.name)
    if action.topic_id in state.topics:
        raise InternalError("two topics with one id", topic_id=action.topic_id)
    if not state.may_have(action.partitions):
        raise _too_many(state, action.name, action.partitions, "invalid-partitions")
    if action.settings:
        _check_settings(state, action.settings)
    return replace(action, intent=0)


def _check_settings(state: LogState, settings: tuple[TopicSetting, ...]) -> None:
    """Refuse settings in a log that programs without them may use, and values that the log does not allow."""
    check_lifecycle(state)
    check_settings(settings, state.max_transaction_timeout_ms)


def change_topic(state: LogState, action: ChangeTopic) -> Operation:
    """Return the operation that changes a topic, else raise."""
    topic = state.topic_of(action.topic_id, "an alteration")
    try:
        operation = evolve(topic.schema, topic.partitions, action, topic.settings, _erased(state, topic))
    except InvalidInputError as error:
        error.values["topic"] = topic.name
        raise
    if operation.settings is not None:
        _check_settings(state, operation.settings)
    if operation.places:
        check_columns(state)
    more = operation.partitions - topic.partitions
    if not state.may_have(more):
        raise _too_many(state, topic.name, more, "invalid-alter")
    return operation


def _erased(state: LogState, topic: TopicState) -> set[str]:
    """Return the columns that the conditions of erasures of a topic name, of those that are not complete."""
    return {
        name
        for one in state.erasures.values()
        if one.topic_id == topic.topic_id and one.complete_entry < 0
        for name in one.columns
    }


def _too_many(state: LogState, topic: str, more: int, kind: str) -> InvalidInputError:
    return InvalidInputError(
        f"{more} more partitions are too many: the topics of the log have {state.partition_count}, "
        f"and at most {LOG_PARTITIONS_MAX}",
        kind=kind,
        hint="use fewer partitions, or another log",
        topic=topic,
    )
