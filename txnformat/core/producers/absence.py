"""Proof by a natural key that no entry so far holds an intent, however long ago it was sent. Pure.

The window of intent ids reaches back 1,000 entries. An intent that was first sent to an older slot can still
be decided if something that it would have left in the state for good, or for as long as it could be repeated,
is not there (specification, section "Deciding"). An intent is applied whole or not at all, so one such trace
suffices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txnformat.core.intents import (
    Action,
    EnableFeatures,
    EndTransaction,
    FreePartitions,
    LeaveGroup,
    MarkVacuum,
    PendingPartition,
    ProducerRef,
    RemoveTopic,
    ReplaceSegments,
    SealSegments,
    TakeCheckpoint,
    TrimTopic,
    Write,
)
from txnformat.core.operations import Cause, CreateTopic
from txnformat.core.producers.state import SequenceWindow
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.core.transactions.state import TransactionStatus
from txnformat.types import Outcome, TopicPartition

__all__ = ["is_absent"]


def is_absent(state: LogState, action: Action) -> bool:
    """Return whether the state proves that no entry so far holds an intent for ``action``.

    False: nothing is proven, either way.
    """
    proof = _PROOFS.get(type(action))
    return proof is not None and proof(state, action)


def topics_stay(state: LogState) -> bool:
    """Return whether a topic that was created is there: topics of a log that allows removals may have been
    deleted since.
    """
    return LIFECYCLE not in state.features.reader


def _write(state: LogState, write: Write) -> bool:
    versions = (*(() if write.app is None else (write.app,)), *write.apps_beside)
    if any(
        (known := state.app_versions.get(app.key)) is None or known.version < app.version for app in versions
    ):
        return True  # versions only grow, and are never forgotten
    if topics_stay(state) and any(wanted.name not in state.topic_ids for wanted in write.create):
        return True
    if write.producer is None:
        return False
    if write.producer.transactional_id is None:
        number = write.producer.producer_id
        remembers = number in state.producers or state.may_begin(number)
        return remembers and _lacks_sequences(state, write, write.producer)
    return _in_transaction(state, write, write.producer, write.producer.transactional_id)


def _in_transaction(state: LogState, write: Write, producer: ProducerRef, transactional_id: str) -> bool:
    owner = state.transactional_ids.get(transactional_id)
    if owner is None or owner.producer_id != producer.producer_id:
        return False  # the id was forgotten, and perhaps opened anew
    last = owner.last_end
    if producer.epoch > owner.epoch:
        return True
    if producer.epoch < owner.epoch:
        if last is None or last.epoch < producer.epoch:
            # A transaction that began in that epoch would have been ended. A version alone begins none.
            return bool(write.appends) or write.end is not None or write.prepare
        # The end of that epoch is known, and it is another.
        return (
            write.end is not None
            and last.epoch == producer.epoch
            and (last.outcome, last.cause) != (write.end, Cause.PRODUCER)
        )
    if write.end is not None:
        return True  # every end begins the next epoch
    if write.prepare and owner.status is not TransactionStatus.PREPARED:
        return True  # what is prepared stays so until the end
    if write.appends and write.follows is not None and write.follows == owner.used_entry:
        return True
    return _lacks_sequences(state, write, producer)


def _lacks_sequences(state: LogState, write: Write, producer: ProducerRef) -> bool:
    """Return whether the log would remember the sequences of an append, or cannot have taken them, and lacks
    them.
    """
    owner = state.transactional_ids.get(producer.transactional_id or "")
    # Perhaps by another process.
    made = {wanted.topic_id: state.topic_ids.get(wanted.name, wanted.topic_id) for wanted in write.create}
    for append in write.appends:
        for part in append.partitions:
            key = TopicPartition(made.get(append.topic_id, append.topic_id), part.partition)
            if key.topic_id not in state.topics:
                continue  # it was deleted, with all that the log knew of it
            if (
                owner is not None
                and owner.status is TransactionStatus.PREPARED
                and key not in owner.partitions
            ):
                continue  # an operator may have taken it from the transaction, with its sequences
            window = state.partition(key).sequences.get((producer.producer_id, producer.epoch), ())
            if owner is not None and key in owner.staged_sequences:
                window = owner.staged_sequences[key]
            if _is_missing(window, part):
                return True
    return False


def _is_missing(window: SequenceWindow, part: PendingPartition) -> bool:
    """Return whether a window shows that these sequences, with this content, were never appended.

    Its ranges follow one another without gaps, and so did those that it has forgotten: it knows all from the
    first of its ranges on, and that no range lies across its beginning.
    """
    if part.base_sequence < 0:
        return False
    last_sequence = part.base_sequence + part.records - 1
    if not window or last_sequence >= window[0].first_sequence:
        return (part.base_sequence, last_sequence, part.digest) not in {
            (known.first_sequence, known.last_sequence, known.digest) for known in window
        }
    return False


def _end_for_another(state: LogState, action: EndTransaction) -> bool:
    owner = state.transactional_ids.get(action.transactional_id)
    if owner is None or owner.producer_id != action.producer_id:
        return False
    last = owner.last_end
    if owner.epoch <= action.epoch or last is None or last.epoch < action.epoch:
        return True
    return last.epoch == action.epoch and (last.outcome, last.cause) != (Outcome.ABORT, action.cause)


def _seal(state: LogState, action: SealSegments) -> bool:
    return any(
        segment.record.topic_id in state.topics
        and state.partition(TopicPartition(segment.record.topic_id, part.partition)).sealed_end
        < part.end_offset
        for segment in action.seal.segments
        for part in segment.partitions
    )


def _trim(state: LogState, action: TrimTopic) -> bool:
    return action.trim.topic_id in state.topics and any(
        state.partition(TopicPartition(action.trim.topic_id, part.partition)).log_start < part.log_start
        for part in action.trim.partitions
    )


def _free(state: LogState, action: FreePartitions) -> bool:
    """Return whether a transaction begins below the offsets.

    Those that began later begin at the log end of then, or above.
    """
    ends = {TopicPartition(action.topic_id, number): offset for number, offset in action.ends}
    return any(
        state.transactional_ids[name].partitions.get(key, end) < end
        for name in state.undecided
        for key, end in ends.items()
    )


def _replace(state: LogState, action: ReplaceSegments) -> bool:
    return any(
        state.partition(TopicPartition(action.replace.topic_id, part.partition)).revision == part.revision
        for segment in action.replace.segments
        for part in segment.partitions
    )


_PROOFS: dict[type[Any], Callable[[LogState, Any], bool]] = {
    CreateTopic: lambda state, action: topics_stay(state) and action.topic_id not in state.topics,
    EnableFeatures: lambda state, action: not state.features.reader.issuperset(action.features),
    EndTransaction: _end_for_another,
    FreePartitions: _free,
    RemoveTopic: lambda state, action: action.topic_id in state.topics,
    LeaveGroup: lambda state, action: state.group(action.group).generation <= action.generation,
    MarkVacuum: lambda state, action: state.vacuum_floor < action.floor,
    SealSegments: _seal,
    TakeCheckpoint: lambda state, action: (
        not state.checkpoints or state.checkpoints[-1].entry < action.checkpoint.entry
    ),
    ReplaceSegments: _replace,
    TrimTopic: _trim,
    Write: _write,
}
