"""Folding the deletion of a topic: everything of it leaves the state. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from txnformat.core.app_versions.state import VersionAt
from txnformat.core.folding import At, corrupt
from txnformat.core.groups.state import GroupState
from txnformat.core.lifecycle.erased import erasures_without_topic
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.lifecycle.touching import touching
from txnformat.core.state import LIFECYCLE, DeletedTopic, LogState, TopicState
from txnformat.core.transactions.state import TransactionalIdState, TransactionStatus
from txnformat.persistent import put, replace, update, without
from txnformat.types import TopicPartition

__all__ = ["TOPIC_APPS", "apply_delete_topic"]

TOPIC_APPS = "spark-batch"
"""Namespace of application ids of the form ``<topic name>/<id>``: they go with the topic, so that a new topic
under its name begins anew."""


def apply_delete_topic(state: LogState, op: DeleteTopic, at: At) -> LogState:
    """Return the state without a topic, but for the files and tables that only it needed: they go with the
    entry's end.
    """
    topic = state.topics.get(op.topic_id)
    if topic is None or LIFECYCLE not in state.features.reader:
        corrupt(
            at,
            "a topic is deleted that does not exist, or in a log without the feature",
            topic_id=op.topic_id,
            feature=LIFECYCLE,
        )
    names = touching(state, op.topic_id)
    opened = [
        name for name in names if state.transactional_ids[name].status is not TransactionStatus.PREPARED
    ]
    if opened or op.prepared != tuple(names):
        corrupt(
            at,
            "a topic is deleted that open transactions touch, or prepared ones that the operation does "
            "not name",
            topic=topic.name,
            expected=names,
            got=op.prepared,
        )
    keys = [
        key
        for number in range(topic.partitions)
        if (key := TopicPartition(topic.topic_id, number)) in state.partitions
    ]
    for name in names:
        state = state.with_transactional_id(name, _rest(state, name, topic.topic_id))
    forgotten = _forgotten(state, keys)
    state = replace(
        state,
        topics=without(state.topics, (topic.topic_id,)),
        topic_ids=without(state.topic_ids, (topic.name,)),
        deleted=put(state.deleted, topic.directory, DeletedTopic(topic.directory, topic.topic_id, at.entry)),
        partition_count=state.partition_count - topic.partitions,
        partitions=without(state.partitions, keys),
        producers=without(state.producers, forgotten),
        segments=state.segments.keep(
            {
                number
                for number, segment in zip(state.segments.numbers(), state.segments, strict=True)
                if segment.topic_id != topic.topic_id
            }
        ),
        subscriptions=without(
            state.subscriptions, [key for key in state.subscriptions if key[0] == topic.topic_id]
        ),
        groups=_groups(state, topic.topic_id),
        app_versions=_versions(state, topic),
        erasures=erasures_without_topic(state, topic.topic_id, at),
    )
    # Other operations of the entry ask anew.
    at.directories = at.sequences = None
    at.positions.clear()
    at.holding.clear()
    at.sealed = (state.files.end, state.tables.end)
    return state


def _rest(state: LogState, name: str, topic_id: str) -> TransactionalIdState:
    """Return what a prepared transaction keeps."""
    known = state.transactional_ids[name]
    return replace(
        known,
        partitions={key: first for key, first in known.partitions.items() if key.topic_id != topic_id},
        staged=tuple(flush for flush in known.staged if flush.topic_id != topic_id),
        staged_sequences={
            key: window for key, window in known.staged_sequences.items() if key.topic_id != topic_id
        },
        groups=frozenset(
            group
            for group in known.groups
            if any(not _is_of(key, topic_id) for key in state.groups[group].pending[name])
        ),
        subscriptions=frozenset(key for key in known.subscriptions if key[0] != topic_id),
    )


def _is_of(key: object, topic_id: str) -> bool:
    return isinstance(key, TopicPartition) and key.topic_id == topic_id


def _forgotten(state: LogState, keys: list[TopicPartition]) -> set[int]:
    """Return the producers without a transactional id that have appended to these partitions only."""
    found = {number for key in keys for number, _ in state.partitions[key].sequences}
    found &= state.producers.keys()
    if not found:
        return found
    going = set(keys)
    for key, partition in state.partitions.items():
        if key not in going and partition.sequences:
            found.difference_update(number for number, _ in partition.sequences)
    return found


def _groups(state: LogState, topic_id: str) -> Mapping[str, GroupState]:
    changed: dict[str, GroupState] = {}
    for name, group in state.groups.items():
        committed = [key for key in group.committed if _is_of(key, topic_id)]
        pending = {
            holder: [key for key in held if _is_of(key, topic_id)] for holder, held in group.pending.items()
        }
        if not committed and not any(pending.values()):
            continue
        left = {
            holder: without(held, pending[holder])
            for holder, held in group.pending.items()
            if len(pending[holder]) < len(held)
        }
        changed[name] = replace(group, committed=without(group.committed, committed), pending=left)
    return update(state.groups, changed)


def _versions(state: LogState, topic: TopicState) -> Mapping[tuple[str, str], VersionAt]:
    own = f"{topic.name}/"
    versions = without(
        state.app_versions,
        [key for key in state.app_versions if key[0] == TOPIC_APPS and key[1].startswith(own)],
    )
    left = {key: known.without_topic(topic.topic_id, topic.name) for key, known in versions.items()}
    return update(versions, {key: known for key, known in left.items() if known is not versions[key]})
