"""The fold: state and entry give the next state. Pure, total on valid logs, and strict on invalid ones.

An entry that does not fit (a wrong base offset, an epoch that goes back, an unknown topic) was not made by a
correct writer: CorruptDataError, and the log stops rather than guess. Time is never a reason to refuse here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from txnformat.core.app_versions.fold import apply_app_version
from txnformat.core.entry import CommitEntry
from txnformat.core.folding import At, corrupt
from txnformat.core.groups.ends import end_positions
from txnformat.core.groups.fold import commit_offsets, delete_group, join_group
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.lifecycle.erased import (
    apply_abandon_erasure,
    apply_advance_erasure,
    apply_complete_erasure,
    apply_request_erasure,
)
from txnformat.core.lifecycle.fold import (
    apply_expire,
    apply_replace,
    apply_trim,
    apply_upgrade,
    apply_vacuum_mark,
)
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    DeleteTopic,
    Replace,
    RequestErasure,
    Trim,
    VacuumMark,
)
from txnformat.core.lifecycle.removal import apply_delete_topic
from txnformat.core.lifecycle.vacuum import check_named
from txnformat.core.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppVersion,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    GiveUp,
    InitProducer,
    Operation,
    PrepareTxn,
    Seal,
    Spill,
    Stage,
    Upgrade,
)
from txnformat.core.producers.fold import allocate_producer_ids
from txnformat.core.records.fold import apply_append
from txnformat.core.sealing.fold import after_seals, apply_seal, apply_spill
from txnformat.core.state import LogState
from txnformat.core.subscriptions.ends import end_acks
from txnformat.core.subscriptions.fold import acknowledge, create_subscription, delete_subscription
from txnformat.core.subscriptions.operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.core.topics.fold import alter_topic, create_topic
from txnformat.core.transactions.fold import (
    apply_stage,
    end_transaction,
    give_up,
    init_producer,
    prepare_transaction,
)
from txnformat.core.transactions.state import TransactionalIdState
from txnformat.errors import CorruptDataError
from txnformat.persistent import replace
from txnformat.types import Outcome

__all__ = ["At", "apply", "apply_operation", "finish_entry"]


def apply(state: LogState, entry: CommitEntry, sha256: str) -> LogState:
    """Return the state after ``entry``, whose bytes have this hash: the next link of the chain.

    Raises CorruptDataError (kind ``broken-chain``: it does not chain; ``invalid-entry``: it does not fit the
    state) and UnsupportedFeatureError (it asks readers for a feature that this version does not have).
    """
    for name, expected, got in (
        ("log_id", state.log_id, entry.log_id),
        ("entry", state.entry + 1, entry.entry),
        ("previous", state.entry_sha256, entry.previous),
    ):
        if expected != got:
            raise CorruptDataError(
                "a commit entry does not follow the entry before it",
                kind="broken-chain",
                entry=entry.entry,
                field=name,
                expected=expected,
                got=got,
            )
    at = At(entry.entry, entry.timestamp_ms)
    if state.entry >= 0 and entry.timestamp_ms <= state.timestamp_ms:
        corrupt(at, "log time does not advance", previous=state.timestamp_ms, got=entry.timestamp_ms)
    _check_opens_alone(entry, at)
    for operation in entry.operations:
        state = apply_operation(state, operation, at)
    return finish_entry(state, entry, sha256, at)


def _check_opens_alone(entry: CommitEntry, at: At) -> None:
    """Refuse an entry that opens a transactional id and does something else with it."""
    opened = {op.transactional_id for op in entry.operations if isinstance(op, InitProducer)}
    if not opened or len(entry.operations) == 1:
        return
    named = {
        op.transactional_id
        for op in entry.operations
        if isinstance(op, Append | Stage | CommitOffsets | Ack | PrepareTxn | EndTxn | GiveUp)
        and op.transactional_id is not None
    }
    if opened & named:
        corrupt(
            at,
            "an entry opens a producer, and does something else with its transactional id",
            transactional_ids=sorted(opened & named),
        )


def finish_entry(state: LogState, entry: CommitEntry, sha256: str, at: At) -> LogState:
    """Return the state after ``entry``, all of whose operations ``state`` has; the last part of
    :func:`apply`.
    """
    state = after_seals(state, at)
    if at.dropped_tables:
        state = replace(
            state,
            files=state.files.keep({*state.files.numbers()} - at.dropped_files),
            tables=state.tables.keep({*state.tables.numbers()} - at.dropped_tables),
        )
    return replace(
        state,
        entry=entry.entry,
        entry_sha256=sha256,
        timestamp_ms=entry.timestamp_ms,
        window=state.window.push(entry.entry, entry.intents),
    )


def apply_operation(state: LogState, operation: Operation, at: At) -> LogState:
    """Return the state after one operation of entry ``at``."""
    check_named(state, operation, at)
    return _FOLDS[type(operation)](state, operation, at)


def _checkpoint(state: LogState, op: Checkpoint, at: At) -> LogState:
    if op.entry >= at.entry or (state.checkpoints and op.entry <= state.checkpoints[-1].entry):
        corrupt(at, "a checkpoint does not advance", got=op.entry)
    return replace(state, checkpoints=(*state.checkpoints, op)[-2:])


def _decide_pending(
    state: LogState, transactional_id: str, known: TransactionalIdState, outcome: Outcome, at: At
) -> LogState:
    state = end_positions(state, transactional_id, known.groups, outcome, at)
    return end_acks(state, transactional_id, known.subscriptions, outcome, at)


_FOLDS: dict[type, Callable[[LogState, Any, At], LogState]] = {
    Upgrade: apply_upgrade,
    CreateTopic: create_topic,
    AlterTopic: alter_topic,
    InitProducer: partial(init_producer, decide_pending=_decide_pending),
    AllocateProducerIds: allocate_producer_ids,
    Append: apply_append,
    Stage: apply_stage,
    PrepareTxn: prepare_transaction,
    EndTxn: partial(end_transaction, decide_pending=_decide_pending),
    GiveUp: give_up,
    AppVersion: apply_app_version,
    Checkpoint: _checkpoint,
    Seal: apply_seal,
    Spill: apply_spill,
    Expire: apply_expire,
    Trim: apply_trim,
    VacuumMark: apply_vacuum_mark,
    DeleteTopic: apply_delete_topic,
    Replace: apply_replace,
    RequestErasure: apply_request_erasure,
    AdvanceErasure: apply_advance_erasure,
    CompleteErasure: apply_complete_erasure,
    AbandonErasure: apply_abandon_erasure,
    JoinGroup: join_group,
    CommitOffsets: commit_offsets,
    DeleteGroup: delete_group,
    CreateSubscription: create_subscription,
    DeleteSubscription: delete_subscription,
    Ack: acknowledge,
}
