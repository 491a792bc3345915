"""Entries that are kept as bytes in ``tests/golden/entries``: every operation, each in every form that it
has.

``python -m tests.integration.golden_entries`` writes those that are missing, with the version that it runs
on. ``all`` is compressed, and holds twice each operation that there was when it was written.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.golden_roots import ROOTS
from txnformat import keys
from txnformat.core.app_versions.state import Content, TopicContent
from txnformat.core.entry import CommitEntry, encode_entry
from txnformat.core.groups.operations import (
    NO_OFFSET,
    NO_POSITION,
    CommitOffsets,
    DeleteGroup,
    JoinGroup,
    OffsetCommit,
    PositionCommit,
)
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CleanedPartition,
    CompactedRange,
    CompactedSegment,
    CompleteErasure,
    DeleteTopic,
    Erased,
    ErasedPartition,
    KeptVersions,
    PartitionEnd,
    Replace,
    ReplacedList,
    RequestErasure,
    Trim,
    TrimmedPartition,
    VacuumMark,
)
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
    GiveUp,
    InitProducer,
    Marker,
    Operation,
    PendingPartition,
    PlacedPartition,
    PrepareTxn,
    Seal,
    SealedPartition,
    SealedSegment,
    Spill,
    SpilledPartition,
    Stage,
    TopicSetting,
    Upgrade,
)
from txnformat.core.subscriptions.operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord, ObjectRecord, Outcome, SegmentListRecord

__all__ = ["ENTRIES", "FORMS", "build", "entry_of"]

ENTRIES = ROOTS.parent / "entries"
UUID, OTHER = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33", "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
SHA, DIGEST = "ab" * 32, "0123456789abcdef"
BIG = 2**62 - 1
DIRECTORY = keys.topic_directory("groesse", UUID)
FIELDS = ({"name": "id", "type": "int64"}, {"name": "größe", "type": {"decimal": [12, 2]}})
FILE = FileRecord(keys.data_key(DIRECTORY, 1, OTHER), 100, SHA, 20, SHA, 5)
EVOLVED = FileRecord(keys.data_key(DIRECTORY, 1, UUID), BIG, SHA, 8, SHA, 0, 3)
TABLE = ObjectRecord(keys.table_key(1, OTHER), 100, SHA)
INDEX, MARKERS, TXNINDEX = (
    ObjectRecord(keys.sidecar_key(DIRECTORY, 1, OTHER, kind), 100, SHA)
    for kind in ("index", "markers", "txnindex")
)
MARKER = Marker(UUID, 9_999, BIG)
SEALED = SealedPartition(0, 0, 6, 1, 1, 1, 5, 80, 5, 80, NO_TIMESTAMP_MS, 2)


def _append(transactional_id: str | None, producer_id: int, epoch: int) -> Append:
    return Append(
        topic_id=UUID,
        producer_id=producer_id,
        epoch=epoch,
        transactional_id=transactional_id,
        partition_count=10_000,
        files=(FILE, EVOLVED),
        partitions=(
            AppendedPartition(
                0, 5, 2, DIGEST, 80, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS, base_sequence=0, base_offset=BIG
            ),
            AppendedPartition(1, 1, 1, DIGEST, 0, -5, 2**63 - 1, base_sequence=-1, base_offset=0),
        ),
        batches=(
            BatchRecord(0, 0, 0, 1, 3, 40, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS),
            BatchRecord(0, 1, 1, 2, 2, 40, -1, 1),
            BatchRecord(1, 1, 2**31 - 1, 2**31 - 1, 1, 0, -5, 2**63 - 1),
        ),
    )


def _with_table(section: int, partitions: tuple[AppendedPartition, ...]) -> Append:
    return Append(
        topic_id=UUID,
        producer_id=-1,
        epoch=-1,
        transactional_id=None,
        partition_count=1,
        files=(FILE,),
        partitions=partitions,
        table=TABLE,
        section=section,
        intent=1,
    )


FORMS: dict[str, tuple[Operation, ...]] = {
    "upgrade": (
        Upgrade(("base-1",), ("base-1",), ("base-1",)),
        Upgrade((), ("a", "größe"), (), 900_000, 1),
    ),
    "create_topic": (
        CreateTopic(UUID, "groesse", DIRECTORY, 10_000, FIELDS, ("id",), "at", 1),
        CreateTopic(
            OTHER, "n" * 249, keys.topic_directory("n" * 249, OTHER), 1, ({"name": "a", "type": "string"},), (), None
        ),
    ),
    "alter_topic": (AlterTopic(UUID, 2, 0, None), AlterTopic(UUID, 1, 999, FIELDS, 1)),
    "init_producer": (
        InitProducer("größe", 0, 0),
        InitProducer("é" * 124, BIG, BIG, (MARKER, Marker(OTHER, 0, 0)), 1, 2**53, 1),
    ),
    "allocate_producer_ids": (AllocateProducerIds("größe \U0001f600 \\ \" "
                                                  "\u007f", 0, 999), AllocateProducerIds("", 5, 5, 1)),
    "append": (
        _append("etl", 4, 2),
        _append(None, 4, 0),
        _append(None, -1, -1),
        _with_table(0, ()),
        _with_table(2**31 - 1, (AppendedPartition(0, 1, 2**31 - 1, DIGEST, 1, 1, 2, base_sequence=-1, base_offset=0),)),
    ),
    "stage": (
        Stage(
            topic_id=UUID,
            producer_id=0,
            epoch=0,
            transactional_id="etl",
            partition_count=3,
            files=(EVOLVED,),
            partitions=(PendingPartition(0, 5, 1, 0, DIGEST, 80, NO_TIMESTAMP_MS, 2),),
            table=TABLE,
        ),
        Stage(UUID, BIG, BIG, "größe", 1, (FILE,), (PendingPartition(0, 1, 1, BIG, DIGEST, 0, 1, 2),), TABLE, 7, 1),
    ),
    "prepare_txn": (PrepareTxn("etl", 0, 0), PrepareTxn("größe", BIG, BIG, 1)),
    "end_txn": (
        EndTxn("etl", 0, 0, Outcome.COMMIT, Cause.PRODUCER, ()),
        EndTxn("etl", 0, 0, Outcome.ABORT, Cause.TIMEOUT, (MARKER,)),
        EndTxn("etl", 0, 0, Outcome.ABORT, Cause.OPERATOR, (MARKER, Marker(UUID, 0, 5)), intent=1),
        EndTxn("größe", BIG, BIG, Outcome.COMMIT, Cause.PRODUCER, (MARKER,), (PlacedPartition(UUID, 0, 0, 5),)),
    ),
    "app_version": (
        AppVersion("spark-batch", "nightly", 0),
        AppVersion("größe", "", BIG, 1, instance="é" * 124),
        AppVersion("spark-stream", UUID, 8, instance="a run", content=Content()),
        AppVersion(
            "spark-stream", UUID, 9, content=Content((TopicContent(UUID, 5, SHA[:32]), TopicContent(OTHER, 1, SHA[:32])))
        ),
    ),
    "checkpoint": (
        Checkpoint(1, keys.snapshot_key(1, UUID), 100, SHA, SHA),
        Checkpoint(BIG, keys.snapshot_key(BIG, OTHER), 1, SHA, "0" * 64, 1),
    ),
    "seal": (
        Seal((SealedSegment(UUID, INDEX, partitions=(SEALED,)),)),
        Seal(
            (
                SealedSegment(UUID, INDEX, MARKERS, TXNINDEX, partitions=(SEALED, SEALED)),
                SealedSegment(UUID, INDEX, None, TXNINDEX, partitions=()),
            ),
            SegmentListRecord(TABLE.key, 100, SHA),
            1,
            1,
        ),
        Seal((), None, 0),
    ),
    "spill": (
        Spill(TABLE, (SpilledPartition(UUID, 0, 0, 1, 1, 1, 0, 0, 1, 0),)),
        Spill(
            TABLE,
            (
                SpilledPartition(UUID, 0, 7, 12, 2, 3, 2, 1, 3, 100, (TABLE.key, keys.table_key(8, OTHER))),
                SpilledPartition(OTHER, 9_999, 0, BIG, BIG, BIG, BIG, BIG, BIG, BIG),
            ),
            1,
        ),
    ),
    "expire": (Expire((), (), ()), Expire(("etl", "größe"), (3, BIG), (0, 1000), ("readers",), 1)),
    "trim": (
        Trim(UUID, (TrimmedPartition(0, 1, -1, 0, 0, 0, 0),)),
        Trim(UUID, (TrimmedPartition(0, 7, 5, 3, 70, 1, 10), TrimmedPartition(9_999, BIG, 1, BIG, BIG, BIG, BIG)), 1),
    ),
    "replace": (
        Replace(
            UUID,
            (
                CompactedSegment(
                    ObjectRecord(keys.sidecar_key(DIRECTORY, 7, UUID, "runs"), 1, SHA),
                    (CompactedRange(0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1),),
                ),
            ),
            (ReplacedList("a", SegmentListRecord(keys.table_key(7, UUID), 1, SHA)),),
        ),
        Replace(
            UUID,
            (
                CompactedSegment(
                    ObjectRecord(keys.sidecar_key(DIRECTORY, 7, UUID, "runs"), BIG, SHA),
                    (
                        CompactedRange(0, 3, 9, 2, 1, 5, 70, -BIG, BIG, 6, 90, 1, 20),
                        CompactedRange(9_999, 0, BIG, BIG, BIG, BIG, BIG, 0, BIG, BIG, BIG, BIG, BIG),
                    ),
                ),
            ),
            (ReplacedList("größe", SegmentListRecord(keys.table_key(7, UUID), BIG, SHA, 5, 7, 2)),),
            1,
        ),
    ),
    "replace_keys": (
        Replace(
            UUID,
            (CompactedSegment(ObjectRecord(keys.sidecar_key(DIRECTORY, 7, UUID, "runs"), 1, SHA), (CompactedRange(0, 0, 3, 0, 1, 1, 1, 0, 0, 3, 3, 0, 0),)),),
            (ReplacedList("a", SegmentListRecord(keys.table_key(7, UUID), 1, SHA)),),
            cleaned=(CleanedPartition(0, 3, 0, -1), CleanedPartition(9_999, BIG, BIG, BIG)),
        ),
    ),
    "replace_erased": (
        Replace(
            UUID,
            (CompactedSegment(ObjectRecord(keys.sidecar_key(DIRECTORY, 7, UUID, "runs"), 1, SHA), (CompactedRange(0, 0, 3, 0, 1, 1, 1, 0, 0, 3, 3, 0, 0),)),),
            (ReplacedList("a", SegmentListRecord(keys.table_key(7, UUID), 1, SHA)),),
            erased=Erased(OTHER, 2, 1, (ErasedPartition(0, 3), ErasedPartition(9_999, -1))),
        ),
    ),
    "request_erasure": (
        RequestErasure(OTHER, UUID, ("größe", "id"), SHA, "é, for a ticket", 1),
        RequestErasure(OTHER, UUID, (), SHA, ""),
    ),
    "advance_erasure": (
        AdvanceErasure(OTHER),
        AdvanceErasure(OTHER, (PartitionEnd(0, 0), PartitionEnd(9_999, BIG)), 1),
    ),
    "complete_erasure": (
        CompleteErasure(OTHER, UUID, 5, ("id",), SHA, "", 0, 0, -1, 6, 6, KeptVersions.NO),
        CompleteErasure(OTHER, UUID, BIG, ("größe", "id"), SHA, "é", BIG, BIG, BIG, BIG, BIG, KeptVersions.UNKNOWN, 1),
    ),
    "abandon_erasure": (AbandonErasure(OTHER, "é, for a ticket", 1), AbandonErasure(UUID, "")),
    "give_up": (GiveUp("etl", 0, 1, (MARKER,)), GiveUp("größe", BIG, BIG, (MARKER, Marker(OTHER, 9_999, BIG)), 1)),
    "log_settings": (
        Upgrade(("base-1", "lifecycle-1"), ("base-1", "lifecycle-1"), ("base-1", "lifecycle-1"), truncate_older_than_ms=604_800_000),
        Upgrade(("lifecycle-1",), (), (), 900_000, 1, truncate_older_than_ms=-1),
    ),
    "vacuum_mark": (VacuumMark(1), VacuumMark(BIG, 1)),
    "delete_topic": (DeleteTopic(UUID), DeleteTopic(OTHER, ("etl", "größe"), 1)),
    "topic_settings": (
        CreateTopic(UUID, "x", "x-" + UUID[:8], 1, ({"name": "n", "type": "int64"},), (), settings=(TopicSetting("retention.bytes", 0), TopicSetting("retention.ms", BIG))),
        AlterTopic(UUID, 1, 0, settings=(TopicSetting("größe", "text"), TopicSetting("retention.ms", -1)), intent=1),
        AlterTopic(UUID, 1, 0, settings=()),
    ),
    "topic_places": (
        AlterTopic(UUID, 1, 1, FIELDS, places=(0, 3)),
        AlterTopic(UUID, 2, 999, FIELDS, 1, settings=(), places=(7, 2_147_483_647)),
    ),
    "app_version_topics": (AppVersion("spark-stream", "größe", 3, topics=(OTHER, UUID)), AppVersion("spark-stream", "x", 0, 1)),
    "join_group": (JoinGroup(group="readers", generation=3, member="größe", session_timeout_ms=45_000), JoinGroup(group="re.ad-ers_", generation=BIG, member=None, session_timeout_ms=0, intent=1)),
    "commit_offsets": (
        CommitOffsets("readers", ()),
        CommitOffsets("readers", (OffsetCommit(UUID, 0, 5),), generation=3, intent=1),
        CommitOffsets(
            "readers",
            (OffsetCommit(UUID, 9_999, BIG, "größe", NO_OFFSET), OffsetCommit(UUID, 0, 0, "", 3)),
            (
                PositionCommit("another log/0", "17"),
                PositionCommit("größe", "é", "a note", NO_POSITION),
                PositionCommit("x", "y", "", "z"),
            ),
            None,
            "größe",
            0,
            1,
        ),
    ),
    "delete_group": (DeleteGroup("readers"), DeleteGroup("others", 1)),
    "create_subscription": (
        CreateSubscription(UUID, "billing", (SubscriptionStart(0, 5), SubscriptionStart(9_999, BIG)), 1),
        CreateSubscription(UUID, "audit"),
    ),
    "delete_subscription": (DeleteSubscription(UUID, "billing"), DeleteSubscription(UUID, "audit", 1)),
    "ack": (
        Ack(UUID, "billing", AckMode.INDIVIDUAL, (AckedPartition(0, ((5, 7), (9, BIG))),), "größe", 0, 1),
        Ack(UUID, "billing", AckMode.INDIVIDUAL, ()),
        Ack(UUID, "billing", AckMode.CUMULATIVE, (AckedPartition(9_999, position=BIG), AckedPartition(1, position=0))),
        Ack(UUID, "billing", AckMode.SEEK, (AckedPartition(0, position=0),), intent=1),
    ),
    "seal_lists": (
        Seal((), SegmentListRecord(TABLE.key, 100, SHA, 2, 9, 3), 4, replaced_lists=(TABLE.key, "größe")),
        Seal((), SegmentListRecord(TABLE.key, 100, SHA, rows=9), 4),
    ),
}  # fmt: skip
"""Every operation: each field that may be absent or null once with and once without, bounds, texts beyond
ASCII."""


def entry_of(number: int, operations: tuple[Operation, ...]) -> CommitEntry:
    """Return the entry of this number."""
    return CommitEntry(
        entry=number,
        log_id=UUID,
        write_id=OTHER,
        previous=SHA,
        timestamp_ms=1_795_253_400_000 + number,
        engine="größe/1",
        intents=("a", "größe"),
        operations=operations,
    )


def build(folder: Path) -> None:
    """Write an entry for each operation that has none yet: kept entries are never written anew."""
    kept = {path.stem[3:]: int(path.stem[:2]) for path in folder.iterdir()}
    for number, name in enumerate((name for name in FORMS if name not in kept), max(kept.values()) + 1):
        (folder / f"{number:02}-{name}.json").write_bytes(encode_entry(entry_of(number, FORMS[name])))


if __name__ == "__main__":
    build(ENTRIES)
