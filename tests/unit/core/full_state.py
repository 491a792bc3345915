"""A state with a value in every field, and the checkpoint of a state."""

from __future__ import annotations

from typing import Any

from txnformat import keys
from txnformat.core.assemble import assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import apply
from txnformat.core.groups.operations import OffsetCommit, PositionCommit
from txnformat.core.intents import (
    Acks,
    Action,
    AllocateIds,
    AppRef,
    ExpireIdle,
    GroupOffsets,
    Intent,
    JoinAsMember,
    OpenProducer,
    ProducerRef,
    SealSegments,
    TakeCheckpoint,
    Write,
)
from txnformat.core.operations import Checkpoint, Expire
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.snapshot.codec import encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    SubscriptionStart,
)
from txnformat.persistent import replace
from txnformat.types import ObjectRecord, Outcome
from txnlog_testing.seal_of import seal_of
from txnlog_testing.strategies import make_append, make_topic

__all__ = [
    "AUDIT",
    "FULL",
    "IN_TABLE",
    "LOG_ID",
    "ORDERS",
    "TABLE",
    "TABLE_DATA",
    "checkpoint_of",
    "full_state",
    "step",
]

LOG_ID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"
ORDERS, AUDIT = make_topic("orders"), make_topic("audit", partitions=1)
IN_TABLE = make_append(ORDERS, {1: (-1, 9)}, content="table")
TABLE_DATA = encode_batch_table([(0, IN_TABLE.batches)])
TABLE = ObjectRecord(keys.table_key(3, LOG_ID), len(TABLE_DATA), sha256_hex(TABLE_DATA))


def checkpoint_of(state: LogState, data: bytes) -> Checkpoint:
    key = keys.snapshot_key(state.entry, LOG_ID)
    return Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state))


def _acks(part: AckedPartition) -> Acks:
    return Acks(ORDERS.topic_id, "billing", AckMode.INDIVIDUAL, (part,))


def full_state() -> LogState:
    """Return a state that has something of everything."""
    state = LogState(LOG_ID, entry_sha256=sha256_hex(b"format"))
    etl, plain = ProducerRef(0, 0, "etl größe"), ProducerRef(1, 0)
    in_table = replace(IN_TABLE, batches=(), table=TABLE)
    staged = replace(make_append(ORDERS, {1: (0, 4)}, content="h"), batches=(), table=TABLE)
    actions: list[Any] = [
        ORDERS,
        OpenProducer("etl größe"),
        AllocateIds("process"),
        Write(appends=(in_table,), app=AppRef("spark-batch", "job", 7), create=(AUDIT,)),
        Write(etl, (make_append(ORDERS, {0: (0, 5), 2: (0, 1)}, content="a"),)),
        Write(plain, (make_append(ORDERS, {0: (0, 2)}, content="b"),)),
        Write(etl, end=Outcome.ABORT),
        Write(plain, (make_append(ORDERS, {0: (2, 2)}, content="c"),)),
        Write(replace(etl, epoch=1), (make_append(AUDIT, {0: (0, 3)}, content="d"),)),
    ]
    for number, action in enumerate(actions):
        state = step(state, action, f"intent {number}")
    state = step(state, SealSegments(seal_of(state, {TABLE.key: TABLE_DATA})), "seal")
    after: list[Any] = [
        Write(appends=(in_table,), app=AppRef("spark-batch", "job", 8)),
        Write(plain, (make_append(ORDERS, {0: (4, 2)}, content="e"),)),
        Write(replace(etl, epoch=1), (make_append(ORDERS, {0: (0, 3)}, content="f"),)),
        Write(replace(etl, epoch=1), end=Outcome.ABORT),
        Write(replace(etl, epoch=2), (make_append(AUDIT, {0: (0, 3)}, content="g"),)),
        AllocateIds("later"),
        Write(ProducerRef(1_001, 0), (make_append(ORDERS, {0: (0, 2)}, content="i"),)),
        ExpireIdle(Expire((), (1,), ()), 2**60, 0),
        OpenProducer("deferred", 1, 2),
        Write(ProducerRef(2_001, 0, "deferred"), (staged,), deferred=True),
        JoinAsMember("readers", "a process", 45_000),
        Write(offsets=(GroupOffsets("readers", (OffsetCommit(ORDERS.topic_id, 0, 3, "a note"),)),)),
        Write(
            ProducerRef(2_001, 0, "deferred"),
            offsets=(
                GroupOffsets(
                    "readers",
                    (OffsetCommit(ORDERS.topic_id, 0, 5, "", 3),),
                    (PositionCommit("another log/0", "17"),),
                ),
            ),
        ),
        Write(offsets=(GroupOffsets("readers", (OffsetCommit(ORDERS.topic_id, 0, 4),)),)),
        CreateSubscription(ORDERS.topic_id, "billing", (SubscriptionStart(0, 1),)),
        Write(acks=(_acks(AckedPartition(0, ((2, 3), (5, 6)))),)),
        Write(ProducerRef(2_001, 0, "deferred"), acks=(_acks(AckedPartition(0, ((3, 4), (7, 8)))),)),
        Write(
            ProducerRef(2_001, 0, "deferred"),
            acks=(Acks(ORDERS.topic_id, "billing", AckMode.CUMULATIVE, (AckedPartition(0, position=4),)),),
        ),
    ]
    for number, action in enumerate(after):
        state = step(state, action, f"after the seal {number}")
    return step(state, TakeCheckpoint(checkpoint_of(state, encode_snapshot(state))), "checkpoint")


def step(state: LogState, action: Action, intent_id: str) -> LogState:
    assembled = assemble(
        state, [Intent(intent_id, state.entry + 1, action)], store_time_ms=1_700_000_000_000, write_id="write"
    )
    assert assembled.entry is not None, assembled.verdicts
    return apply(state, assembled.entry, assembled.sha256)


FULL = full_state()
