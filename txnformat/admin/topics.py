"""Deleting a topic: the call, and what it has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnformat.arguments import is_text, items
from txnformat.client.committer import Committer
from txnformat.core.intents import CommitResult, RemoveTopic
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import EndTxn
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["TopicDeletion", "delete_topic"]


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """The effect of the deletion of a topic."""

    topic: str
    topic_id: str
    entry: int
    """That deleted it; entries before it show the topic in ``txnlog dump`` only."""
    partitions: int
    aborted: tuple[str, ...] = ()
    """Transactional ids whose open transactions were aborted."""
    given_up: tuple[str, ...] = ()
    """Transactional ids of prepared transactions that have lost what they had in the topic."""

    @classmethod
    def of(cls, topic: str, topic_id: str, partitions: int, result: CommitResult) -> TopicDeletion:
        """Return what the operations of a deletion say."""
        given_up = [name for op in result.operations if isinstance(op, DeleteTopic) for name in op.prepared]
        aborted = [op.transactional_id for op in result.operations if isinstance(op, EndTxn)]
        return cls(topic, topic_id, result.entry, partitions, tuple(aborted), tuple(given_up))


def delete_topic(committer: Committer, name: str, force: bool | Sequence[str]) -> TopicDeletion:
    """Delete a topic; see :meth:`txnformat.log.TxnLog.delete_topic`."""
    prepared = _names(force)
    topic = committer.refresh().topic(name)
    action = RemoveTopic(topic.topic_id, force is not False, prepared)
    result = committer.commit(committer.intend(action))
    return TopicDeletion.of(name, topic.topic_id, topic.partitions, result)


def _names(force: object) -> tuple[str, ...]:
    if isinstance(force, bool):
        return ()
    names = None if isinstance(force, str) or not isinstance(force, Sequence) else items(force, "force")
    if names is None or not all(map(is_text, names)):
        raise InvalidInputError(
            f"force is {repr_of(force)}, not True, False or a list of transactional ids",
            kind="invalid-force",
            hint='name prepared transactions as in force=["etl-0"]; True aborts open ones only',
        )
    return tuple(names)
