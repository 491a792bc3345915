"""The specification's text, and operations of every form, for the tests that hold one against the other."""

from __future__ import annotations

import json
from typing import Any

from tests.meta.markdown import ROOT, Table, blocks, codes, section, tables
from txnformat import keys
from txnformat.core.app_versions import Content, TopicContent
from txnformat.core.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)
from txnformat.core.operation_codec import decode_operation
from txnformat.core.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    InitProducer,
    Marker,
    Operation,
    PendingPartition,
    PlacedPartition,
    PrepareTxn,
    Seal,
    SealedPartition,
    SealedSegment,
    Stage,
    Upgrade,
)
from txnformat.core.replacing import replace
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.types import BatchRecord, FileRecord, ObjectRecord, Outcome, SegmentRecord

SPEC = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
OPERATIONS = section(SPEC, "## 5. Operations")
JSON_BLOCKS = [block for block in blocks(SPEC) if block.info.startswith("json")]

UUID = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
SHA = "ab" * 32
FILE = FileRecord(keys.data_key("orders-9a6f2a90", 1, UUID), 100, SHA, 20, SHA, 5, 1)
BATCH = BatchRecord(0, 0, 0, 1, 5, 80, 1, 2)
PARTITION = AppendedPartition(0, 0, 5, 1, 0, "0123456789abcdef", 80, 1, 2)
TABLE = ObjectRecord(keys.table_key(1, UUID), 100, SHA)
MARKER_AT_5 = Marker(UUID, 0, 5)
TOPIC = CreateTopic(UUID, "orders", "orders-9a6f2a90", 1, ({"name": "id", "type": "int64"},), ("id",), None)
CHECKPOINT = Checkpoint(1, keys.snapshot_key(1, UUID), 100, SHA, SHA)
APPEND = Append(
    topic_id=UUID,
    producer_id=0,
    epoch=0,
    transactional_id="etl",
    partition_count=1,
    files=(FILE,),
    partitions=(PARTITION,),
    batches=(BATCH,),
)
STAGE = Stage(
    topic_id=UUID,
    producer_id=0,
    epoch=0,
    transactional_id="etl",
    partition_count=1,
    files=(FILE,),
    partitions=(PendingPartition(0, 5, 1, 0, "0123456789abcdef", 80, 1, 2),),
    table=TABLE,
    section=1,
)
SEGMENT_RECORD = SegmentRecord(
    UUID,
    *(
        ObjectRecord(keys.sidecar_key(TOPIC.directory, 1, UUID, kind), 100, SHA)
        for kind in ("index", "markers", "txnindex")
    ),
)
SEAL = Seal(
    (
        SealedSegment(
            UUID,
            SEGMENT_RECORD.index,
            SEGMENT_RECORD.markers,
            SEGMENT_RECORD.txnindex,
            partitions=(SealedPartition(0, 0, 6, 1, 1, 1, 5, 80, 5, 80, 1, 2),),
        ),
    ),
    TABLE,
    1,
)
SAMPLES: list[Operation] = [
    Upgrade(("base-1",), ("base-1",), ("base-1",), 900_000),
    TOPIC,
    InitProducer("etl", 0, 1, (MARKER_AT_5,)),
    AllocateProducerIds("a process", 0, 999),
    APPEND,
    replace(APPEND, batches=(), table=TABLE, section=3),
    EndTxn("etl", 0, 0, Outcome.COMMIT, Cause.PRODUCER, (MARKER_AT_5,)),
    EndTxn("etl", 0, 0, Outcome.ABORT, Cause.TIMEOUT, (MARKER_AT_5,)),
    EndTxn("etl", 0, 0, Outcome.COMMIT, Cause.PRODUCER, (MARKER_AT_5,), (PlacedPartition(UUID, 0, 0, 5),)),
    STAGE,
    PrepareTxn("etl", 0, 0),
    AppVersion("spark-batch", "nightly", 7),
    AppVersion("spark-stream", UUID, 7, instance="a run"),
    AppVersion(
        "spark-stream", UUID, 8, instance="a run", content=Content((TopicContent(UUID, 5, SHA[:32]),))
    ),
    CHECKPOINT,
    SEAL,
    Expire(("etl",), (3,), (0, 1000), ("readers",)),
    JoinGroup(group="readers", generation=3, member="a process", session_timeout_ms=45_000),
    CommitOffsets("readers", (OffsetCommit(UUID, 0, 5),), generation=3),
    CommitOffsets(
        "readers",
        (OffsetCommit(UUID, 0, 5, "a note", 3),),
        (PositionCommit("another log/0", "17", "a note", ""),),
        None,
        "etl",
        0,
        1,
    ),
    DeleteGroup("readers"),
    CreateSubscription(UUID, "billing", (SubscriptionStart(0, 5),)),
    CreateSubscription(UUID, "audit"),
    Ack(UUID, "billing", AckMode.INDIVIDUAL, (AckedPartition(0, ((5, 7), (9, 10))),), "etl", 0, 1),
    Ack(UUID, "billing", AckMode.CUMULATIVE, (AckedPartition(0, position=5),)),
    Ack(UUID, "billing", AckMode.SEEK, (AckedPartition(0, position=0),)),
    DeleteSubscription(UUID, "billing"),
    # The last, as _sample_state takes it from here.
    AlterTopic(UUID, 2, 1, (*TOPIC.fields, {"name": "note", "type": "string"})),
]
"""Every operation, in every form that it has."""


def one_table(text: str, first_cell: str) -> Table:
    """Return the only table whose header begins with ``first_cell``."""
    (found,) = [table for table in tables(text) if table.header[0] == first_cell]
    return found


def names_in(table: Table, column: int = 0) -> list[str]:
    return [name for row in table.rows for name in codes(row[column])]


def fields_of_operations() -> dict[str, list[str]]:
    return {codes(row[0])[0]: codes(row[1]) for row in one_table(OPERATIONS, "operation").rows}


def decoded(value: dict[str, Any]) -> Operation:
    return decode_operation(json.loads(json.dumps(value)), 1, path="sample")
