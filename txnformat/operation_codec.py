"""JSON form of operations: one encoder and one checked decoder for each, side by side.

An operation that this version does not know is a feature that it does not have: UnsupportedFeatureError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from txnformat import keys
from txnformat.ack_codec import (
    decode_ack,
    decode_create_subscription,
    decode_delete_subscription,
    encode_ack,
    encode_create_subscription,
    encode_delete_subscription,
)
from txnformat.ack_operations import Ack, CreateSubscription, DeleteSubscription
from txnformat.app_versions import CONTENT_SCHEME, INSTANCE_BYTES_MAX, Content, TopicContent
from txnformat.codec_fields import (
    INT32_MAX,
    PARTITIONS_MAX,
    SCHEMAS_MAX,
    Json,
    decode_file,
    decode_object,
    encode_file,
    encode_object,
    key_of,
    timeout_of,
    transactional_id_of,
    uuid_of,
)
from txnformat.document import Document
from txnformat.errors import CorruptDataError, InvalidInputError, UnsupportedFeatureError
from txnformat.group_codec import (
    decode_commit_offsets,
    decode_delete_group,
    decode_join_group,
    encode_commit_offsets,
    encode_delete_group,
    encode_join_group,
)
from txnformat.group_operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.operations import (
    AllocateProducerIds,
    AlterTopic,
    Append,
    AppendedPartition,
    AppVersion,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    InitProducer,
    Operation,
    PrepareTxn,
    Seal,
    SealedPartition,
    SealedSegment,
    Stage,
    Upgrade,
)
from txnformat.transaction_codec import (
    decode_end_txn,
    decode_init_producer,
    decode_prepare_txn,
    decode_stage,
    encode_end_txn,
    encode_init_producer,
    encode_prepare_txn,
    encode_stage,
)
from txnformat.types import BatchRecord, SegmentRecord

__all__ = ["decode_operation", "decode_segment", "encode_operation", "encode_segment", "operation_name"]


def _encode_upgrade(op: Upgrade) -> Json:
    return {
        "reader": list(op.reader),
        "writer": list(op.writer),
        "maintenance": list(op.maintenance),
        "max_transaction_timeout_ms": op.max_transaction_timeout_ms,
    }


def _decode_upgrade(doc: Document, intent: int) -> Upgrade:
    return Upgrade(
        doc.texts("reader"),
        doc.texts("writer"),
        doc.texts("maintenance"),
        timeout_of(doc, "max_transaction_timeout_ms", None),
        intent,
    )


def _encode_create_topic(op: CreateTopic) -> Json:
    return {
        "topic_id": op.topic_id,
        "name": op.name,
        "directory": op.directory,
        "partitions": op.partitions,
        "fields": list(op.fields),
        "key_columns": list(op.key_columns),
        "timestamp_column": op.timestamp_column,
    }


def _decode_create_topic(doc: Document, intent: int) -> CreateTopic:
    topic_id, name = uuid_of(doc, "topic_id"), doc.text("name")
    try:
        keys.check_topic_name(name)
    except InvalidInputError:
        doc.fail("name", "topic name")
    if doc.text("directory") != keys.topic_directory(name, topic_id):
        doc.fail("directory", keys.topic_directory(name, topic_id))
    return CreateTopic(
        topic_id,
        name,
        doc.text("directory"),
        doc.integer("partitions", minimum=1, maximum=PARTITIONS_MAX),
        tuple(doc.items("fields")),
        doc.texts("key_columns"),
        doc.text("timestamp_column") if doc.has("timestamp_column") else None,
        intent,
    )


def _encode_alter_topic(op: AlterTopic) -> Json:
    return {
        "topic_id": op.topic_id,
        "partitions": op.partitions,
        "schema_id": op.schema_id,
        "fields": None if op.fields is None else list(op.fields),
    }


def _decode_alter_topic(doc: Document, intent: int) -> AlterTopic:
    return AlterTopic(
        uuid_of(doc, "topic_id"),
        doc.integer("partitions", minimum=1, maximum=PARTITIONS_MAX),
        doc.integer("schema_id", maximum=SCHEMAS_MAX - 1),
        tuple(doc.items("fields")) if doc.has("fields") else None,
        intent,
    )


def _encode_allocate(op: AllocateProducerIds) -> Json:
    return {"owner": op.owner, "first": op.first, "last": op.last}


def _decode_allocate(doc: Document, intent: int) -> AllocateProducerIds:
    first = doc.integer("first")
    return AllocateProducerIds(doc.text("owner"), first, doc.integer("last", minimum=first), intent)


def _encode_append(op: Append) -> Json:
    encoded: Json = {
        "topic_id": op.topic_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "transactional_id": op.transactional_id,
        "partition_count": op.partition_count,
        "files": [encode_file(file) for file in op.files],
        "partitions": [
            {
                "partition": part.partition,
                "base_offset": part.base_offset,
                "records": part.records,
                "batch_count": part.batch_count,
                "base_sequence": part.base_sequence,
                "digest": part.digest,
                "size": part.size,
                "min_timestamp_ms": part.min_timestamp_ms,
                "max_timestamp_ms": part.max_timestamp_ms,
            }
            for part in op.partitions
        ],
    }
    if op.table is not None:
        encoded["table"] = encode_object(op.table)
        encoded["section"] = op.section
    else:
        encoded["batches"] = [
            {
                "partition": batch.partition,
                "file": batch.file,
                "row_group": batch.row_group,
                "row_group_count": batch.row_group_count,
                "records": batch.records,
                "size": batch.size,
                "min_timestamp_ms": batch.min_timestamp_ms,
                "max_timestamp_ms": batch.max_timestamp_ms,
            }
            for batch in op.batches
        ]
    return encoded


def _decode_append(doc: Document, intent: int) -> Append:
    if (doc.integer("producer_id", minimum=-1) < 0) != (doc.integer("epoch", minimum=-1) < 0):
        doc.fail("epoch", "-1 exactly when producer_id is -1")
    table = decode_object(doc, "table", keys.parse_table_key)
    files = tuple(map(decode_file, doc.documents("files")))
    if not files:
        doc.fail("files", "at least one file")
    return Append(
        topic_id=uuid_of(doc, "topic_id"),
        producer_id=doc.integer("producer_id", minimum=-1),
        epoch=doc.integer("epoch", minimum=-1),
        transactional_id=transactional_id_of(doc) if doc.has("transactional_id") else None,
        partition_count=doc.integer("partition_count", minimum=1, maximum=PARTITIONS_MAX),
        files=files,
        partitions=tuple(map(_appended_partition, doc.documents("partitions"))),
        batches=() if table else tuple(_batch(batch, len(files)) for batch in doc.documents("batches")),
        table=table,
        section=doc.integer("section", maximum=INT32_MAX) if table else 0,
        intent=intent,
    )


def _appended_partition(doc: Document) -> AppendedPartition:
    return AppendedPartition(
        doc.integer("partition", maximum=PARTITIONS_MAX - 1),
        doc.integer("base_offset"),
        doc.integer("records", minimum=1),
        doc.integer("batch_count", minimum=1, maximum=INT32_MAX),
        doc.integer("base_sequence", minimum=-1),
        doc.hexadecimal("digest", 16),
        doc.integer("size"),
        doc.integer("min_timestamp_ms", minimum=-(2**63)),
        doc.integer("max_timestamp_ms", minimum=-(2**63)),
    )


def _batch(doc: Document, file_count: int) -> BatchRecord:
    return BatchRecord(
        doc.integer("partition", maximum=PARTITIONS_MAX - 1),
        doc.integer("file", maximum=max(0, file_count - 1)),
        doc.integer("row_group", maximum=INT32_MAX),
        doc.integer("row_group_count", minimum=1, maximum=INT32_MAX),
        doc.integer("records", minimum=1),
        doc.integer("size"),
        doc.integer("min_timestamp_ms", minimum=-(2**63)),
        doc.integer("max_timestamp_ms", minimum=-(2**63)),
    )


def _encode_app_version(op: AppVersion) -> Json:
    doc: Json = {"namespace": op.namespace, "app_id": op.app_id, "version": op.version}
    if op.instance is not None:
        doc["instance"] = op.instance
    if op.content is not None:
        doc["content"] = {"scheme": CONTENT_SCHEME, "topics": [one._asdict() for one in op.content]}
    return doc


def _decode_app_version(doc: Document, intent: int) -> AppVersion:
    instance = doc.text("instance", bytes_max=INSTANCE_BYTES_MAX) if doc.has("instance") else None
    content = _content(doc.document("content")) if doc.has("content") else None
    return AppVersion(
        doc.text("namespace"), doc.text("app_id"), doc.integer("version"), intent, instance, content
    )


def _content(doc: Document) -> Content | None:
    if doc.integer("scheme") != CONTENT_SCHEME:
        return None  # of a later version, which compares in another way
    found = tuple(
        TopicContent(uuid_of(one, "topic_id"), one.integer("records", minimum=1), one.hexadecimal("hash", 32))
        for one in doc.documents("topics")
    )
    if len({one.topic_id for one in found}) != len(found):
        doc.fail("topics", "list of topics, each once")
    return found


def _encode_checkpoint(op: Checkpoint) -> Json:
    return {"entry": op.entry, "key": op.key, "size": op.size, "sha256": op.sha256, "digest": op.digest}


def _decode_checkpoint(doc: Document, intent: int) -> Checkpoint:
    entry = doc.integer("entry")
    name = keys.parse_snapshot_key(key_of(doc, keys.parse_snapshot_key))
    if name is None or name.born != entry:
        doc.fail("key", f"key of a snapshot of entry {entry}")
    return Checkpoint(
        entry,
        doc.text("key"),
        doc.integer("size", minimum=1),
        doc.hexadecimal("sha256", 64),
        doc.hexadecimal("digest", 64),
        intent,
    )


_SEALED = (
    "partition",
    "start_offset",
    "end_offset",
    "batches",
    "markers",
    "aborted",
    "records",
    "size",
    "aborted_records",
    "aborted_size",
    "min_timestamp_ms",
    "max_timestamp_ms",
)


def encode_segment(record: SegmentRecord) -> Json:
    """Return the JSON object of a segment's sidecars."""
    return {
        "topic_id": record.topic_id,
        "index": encode_object(record.index),
        "markers": encode_object(record.markers),
        "txnindex": encode_object(record.txnindex),
    }


def _encode_seal(op: Seal) -> Json:
    return {
        "segments": [
            {
                **encode_segment(segment.record),
                "partitions": [
                    {name: getattr(part, name) for name in _SEALED} for part in segment.partitions
                ],
            }
            for segment in op.segments
        ],
        "segment_list": encode_object(op.segment_list),
        "listed_segments": op.listed_segments,
    }


def _decode_seal(doc: Document, intent: int) -> Seal:
    return Seal(
        tuple(
            SealedSegment(decode_segment(one), tuple(map(_sealed_partition, one.documents("partitions"))))
            for one in doc.documents("segments")
        ),
        decode_object(doc, "segment_list", keys.parse_table_key),
        doc.integer("listed_segments"),
        intent,
    )


def decode_segment(doc: Document) -> SegmentRecord:
    """Return the sidecars that a JSON object names, checked."""
    index = decode_object(doc, "index", keys.parse_index_key)
    if index is None:
        doc.fail("index", "object")
    return SegmentRecord(
        uuid_of(doc, "topic_id"),
        index,
        decode_object(doc, "markers", keys.parse_markers_key),
        decode_object(doc, "txnindex", keys.parse_txnindex_key),
    )


def _sealed_partition(doc: Document) -> SealedPartition:
    numbers = {name: doc.integer(name) for name in _SEALED[:-2] if name != "partition"}
    times = {name: doc.integer(name, minimum=-(2**63)) for name in _SEALED[-2:]}
    return SealedPartition(partition=doc.integer("partition", maximum=PARTITIONS_MAX - 1), **numbers, **times)


def _encode_expire(op: Expire) -> Json:
    return {
        "transactional_ids": list(op.transactional_ids),
        "producers": list(op.producers),
        "blocks": list(op.blocks),
        **({"groups": list(op.groups)} if op.groups else {}),
    }


def _decode_expire(doc: Document, intent: int) -> Expire:
    return Expire(
        doc.texts("transactional_ids"),
        doc.integers("producers"),
        doc.integers("blocks"),
        doc.texts("groups") if doc.has("groups") else (),
        intent,
    )


_CODECS: dict[str, tuple[type[Any], Callable[[Any], Json], Callable[[Document, int], Operation]]] = {
    "upgrade": (Upgrade, _encode_upgrade, _decode_upgrade),
    "create_topic": (CreateTopic, _encode_create_topic, _decode_create_topic),
    "alter_topic": (AlterTopic, _encode_alter_topic, _decode_alter_topic),
    "init_producer": (InitProducer, encode_init_producer, decode_init_producer),
    "allocate_producer_ids": (AllocateProducerIds, _encode_allocate, _decode_allocate),
    "append": (Append, _encode_append, _decode_append),
    "stage": (Stage, encode_stage, decode_stage),
    "prepare_txn": (PrepareTxn, encode_prepare_txn, decode_prepare_txn),
    "end_txn": (EndTxn, encode_end_txn, decode_end_txn),
    "app_version": (AppVersion, _encode_app_version, _decode_app_version),
    "checkpoint": (Checkpoint, _encode_checkpoint, _decode_checkpoint),
    "seal": (Seal, _encode_seal, _decode_seal),
    "expire": (Expire, _encode_expire, _decode_expire),
    "join_group": (JoinGroup, encode_join_group, decode_join_group),
    "commit_offsets": (CommitOffsets, encode_commit_offsets, decode_commit_offsets),
    "delete_group": (DeleteGroup, encode_delete_group, decode_delete_group),
    "create_subscription": (CreateSubscription, encode_create_subscription, decode_create_subscription),
    "delete_subscription": (DeleteSubscription, encode_delete_subscription, decode_delete_subscription),
    "ack": (Ack, encode_ack, decode_ack),
}
_NAMES = {cls: name for name, (cls, _, _) in _CODECS.items()}


def operation_name(operation: Operation) -> str:
    """Return what an operation is called in an entry."""
    return _NAMES[type(operation)]


def encode_operation(operation: Operation) -> Json:
    """Return the JSON object of an operation."""
    name = operation_name(operation)
    return {"operation": name, "intent": operation.intent, **_CODECS[name][1](operation)}


def decode_operation(doc: Document, intent_count: int) -> Operation:
    """Return the operation that a JSON object says, checked.

    Raises
    ------
    UnsupportedFeatureError
        The operation is not one that this version knows.
    CorruptDataError
        A field is missing or not what the format says.
    """
    name = doc.text("operation")
    if name not in _CODECS:
        raise UnsupportedFeatureError(
            "the log contains an operation that this version does not know",
            hint="upgrade txnlog",
            object=doc.path,
            operation=name,
        )
    intent = doc.integer("intent", maximum=max(0, intent_count - 1))
    try:
        return _CODECS[name][2](doc, intent)
    except RecursionError as error:
        raise CorruptDataError("an operation is nested too deeply", object=doc.path) from error
