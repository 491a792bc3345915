"""Deleting a topic: the call, and what it has done.

And doing something to topic after topic: one that is damaged does not stop the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from txnformat.arguments import check_flags, is_text, items
from txnformat.client.committer import Committer
from txnformat.core.intents import RemoveTopic
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import EndTxn
from txnformat.core.preview import preview_action
from txnformat.core.state import LogState, TopicState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    UploadExpiredError,
    repr_of,
)

__all__ = [
    "DamagedTopic",
    "TopicDeletion",
    "attempt",
    "check_named",
    "delete_topic",
    "is_deleted",
    "names_in",
]

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DamagedTopic:
    """A topic at which a task of maintenance met an object that is damaged or missing.

    The results of earlier tasks on the topic stay.
    """

    topic: str
    kind: str
    """Kind of the error."""
    reason: str


def is_deleted(error: NotFoundError) -> bool:
    """Return whether a topic is gone: it was there when the names were listed.

    Files that are gone are damage.
    """
    return error.kind in ("unknown-topic", "topic-gone")


def attempt(committer: Committer, name: str, task: str, work: Callable[[], T]) -> T | DamagedTopic | None:
    """Do something to one topic of several, and return what comes of it; None: other clients were faster, and
    the next run looks again.

    An object that is missing or damaged is looked for once more if the log has got newer entries: other
    clients may have put another in its place. ``task``: for the log output.
    """
    for is_last in (False, True):
        entry = committer.state.entry
        try:
            return work()
        except (ConflictError, UploadExpiredError) as error:
            # Others do the same to the topic, or let a vacuum pass what was written.
            level = logging.WARNING if error.kind == "chunks-in-compacted-topic" else logging.DEBUG
            logger.log(level, "%s of %s is left to the next run: %s", task, name, error)
            return None
        except (NotFoundError, CorruptDataError) as error:
            if isinstance(error, NotFoundError) and is_deleted(error):
                logger.debug("%s of %s is over: %s", task, name, error)
                return None
            if is_last or committer.refresh().entry == entry:
                return DamagedTopic(name, error.kind, str(error))
    raise AssertionError("the second attempt ends in an answer")


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """The effect of the deletion of a topic."""

    topic: str
    topic_id: str
    entry: int
    """Entry that deleted it; entries before it show the topic in ``txnlog dump`` only. -1 in a dry run."""
    partitions: int
    aborted: tuple[str, ...] = ()
    """Transactional ids whose open transactions were aborted."""
    given_up: tuple[str, ...] = ()
    """Transactional ids of prepared transactions that have lost what they had in the topic."""
    dry_run: bool = False
    """True: nothing was changed, and this would come of the deletion."""

    @classmethod
    def of(cls, topic: TopicState, entry: int, operations: Sequence[object]) -> TopicDeletion:
        """Return what the operations of a deletion say."""
        given_up = [name for op in operations if isinstance(op, DeleteTopic) for name in op.prepared]
        aborted = [op.transactional_id for op in operations if isinstance(op, EndTxn)]
        return cls(topic.name, topic.topic_id, entry, topic.partitions, tuple(aborted), tuple(given_up))


def delete_topic(
    committer: Committer, name: str, force: bool | Sequence[str], *, dry_run: bool = False
) -> TopicDeletion:
    """Delete a topic; see :meth:`txnformat.log.TxnLog.delete_topic`."""
    check_flags(dry_run=dry_run)
    prepared = names_in(force)
    state = committer.refresh()
    topic = state.topic(name)
    check_named(state, prepared)
    action = RemoveTopic(topic.topic_id, force is not False, prepared)
    if dry_run:
        return replace(TopicDeletion.of(topic, -1, preview_action(state, action)), dry_run=True)
    result = committer.commit(committer.intend(action))
    return TopicDeletion.of(topic, result.entry, result.operations)


def names_in(force: object) -> tuple[str, ...]:
    """Return the prepared transactions that a user names in ``force``.

    Raises InvalidInputError of kind ``invalid-force``.
    """
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


def check_named(state: LogState, names: Iterable[str]) -> None:
    """Raise InvalidInputError of kind ``invalid-force`` unless each name is that of a prepared transaction: a
    slip would end others and spare the one that is meant.
    """
    for name in names:
        known = state.transactional_ids.get(name)
        if known is None or known.status is not TransactionStatus.PREPARED:
            raise InvalidInputError(
                f"force names {name!r:.80}, which has no prepared transaction",
                kind="invalid-force",
                hint="`txnlog transactions` lists the prepared ones; True aborts open ones only",
            )
