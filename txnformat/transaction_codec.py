"""JSON form of the operations of transactions: open, stage, prepare, end. See :mod:`txnformat.operation_codec`."""

from __future__ import annotations

from txnformat import keys
from txnformat.codec_fields import (
    INT32_MAX,
    PARTITIONS_MAX,
    Json,
    decode_file,
    decode_marker,
    decode_object,
    encode_file,
    encode_marker,
    encode_object,
    timeout_of,
    transactional_id_of,
    uuid_of,
)
from txnformat.document import Document
from txnformat.errors import UnsupportedFeatureError
from txnformat.operations import (
    DEFERRED_TIMEOUT_MS,
    TIMEOUT_MS,
    Cause,
    EndTxn,
    InitProducer,
    PendingPartition,
    PlacedPartition,
    PrepareTxn,
    Stage,
)
from txnformat.types import Outcome

__all__ = [
    "decode_end_txn",
    "decode_init_producer",
    "decode_prepare_txn",
    "decode_stage",
    "decode_staged_partition",
    "encode_end_txn",
    "encode_init_producer",
    "encode_prepare_txn",
    "encode_stage",
    "encode_staged_partition",
]


def encode_init_producer(op: InitProducer) -> Json:
    """Return the fields of ``init_producer``."""
    return {
        "transactional_id": op.transactional_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "aborted": [encode_marker(marker) for marker in op.aborted],
        "timeout_ms": op.timeout_ms,
        "deferred_timeout_ms": op.deferred_timeout_ms,
    }


def decode_init_producer(doc: Document, intent: int) -> InitProducer:
    """Return the operation that a JSON object says, checked."""
    return InitProducer(
        transactional_id_of(doc),
        doc.integer("producer_id"),
        doc.integer("epoch"),
        tuple(map(decode_marker, doc.documents("aborted"))),
        timeout_of(doc, "timeout_ms", TIMEOUT_MS),
        timeout_of(doc, "deferred_timeout_ms", DEFERRED_TIMEOUT_MS),
        intent,
    )


_STAGED = (
    "partition",
    "records",
    "batch_count",
    "base_sequence",
    "digest",
    "size",
    "min_timestamp_ms",
    "max_timestamp_ms",
)


def encode_staged_partition(part: PendingPartition) -> Json:
    """Return the JSON object of what is staged for a partition."""
    return {name: getattr(part, name) for name in _STAGED}


def decode_staged_partition(doc: Document) -> PendingPartition:
    """Return what a JSON object says is staged for a partition, checked."""
    return PendingPartition(
        doc.integer("partition", maximum=PARTITIONS_MAX - 1),
        doc.integer("records", minimum=1),
        doc.integer("batch_count", minimum=1, maximum=INT32_MAX),
        doc.integer("base_sequence"),
        doc.hexadecimal("digest", 16),
        doc.integer("size"),
        doc.integer("min_timestamp_ms", minimum=-(2**63)),
        doc.integer("max_timestamp_ms", minimum=-(2**63)),
    )


def encode_stage(op: Stage) -> Json:
    """Return the fields of ``stage``."""
    return {
        "topic_id": op.topic_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "transactional_id": op.transactional_id,
        "partition_count": op.partition_count,
        "files": [encode_file(file) for file in op.files],
        "partitions": [encode_staged_partition(part) for part in op.partitions],
        "table": encode_object(op.table),
        "section": op.section,
    }


def decode_stage(doc: Document, intent: int) -> Stage:
    """Return the operation that a JSON object says, checked."""
    table = decode_object(doc, "table", keys.parse_table_key)
    if table is None:
        doc.fail("table", "object")
    files = tuple(map(decode_file, doc.documents("files")))
    if not files:
        doc.fail("files", "at least one file")
    partitions = tuple(map(decode_staged_partition, doc.documents("partitions")))
    if not partitions:
        doc.fail("partitions", "at least one partition")
    return Stage(
        topic_id=uuid_of(doc, "topic_id"),
        producer_id=doc.integer("producer_id"),
        epoch=doc.integer("epoch"),
        transactional_id=transactional_id_of(doc),
        partition_count=doc.integer("partition_count", minimum=1, maximum=PARTITIONS_MAX),
        files=files,
        partitions=partitions,
        table=table,
        section=doc.integer("section", maximum=INT32_MAX),
        intent=intent,
    )


def encode_prepare_txn(op: PrepareTxn) -> Json:
    """Return the fields of ``prepare_txn``."""
    return {
        "transactional_id": op.transactional_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
    }


def decode_prepare_txn(doc: Document, intent: int) -> PrepareTxn:
    """Return the operation that a JSON object says, checked."""
    return PrepareTxn(transactional_id_of(doc), doc.integer("producer_id"), doc.integer("epoch"), intent)


def encode_end_txn(op: EndTxn) -> Json:
    """Return the fields of ``end_txn``."""
    encoded: Json = {
        "transactional_id": op.transactional_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "outcome": op.outcome.value,
        "cause": op.cause.value,
        "markers": [encode_marker(marker) for marker in op.markers],
    }
    if op.placed:
        encoded["placed"] = [
            {
                "topic_id": part.topic_id,
                "partition": part.partition,
                "base_offset": part.base_offset,
                "records": part.records,
            }
            for part in op.placed
        ]
    return encoded


def decode_end_txn(doc: Document, intent: int) -> EndTxn:
    """Return the operation that a JSON object says, checked; UnsupportedFeatureError for a cause that is not known."""
    if doc.text("outcome") not in set(Outcome):
        doc.fail("outcome", "commit or abort")
    if doc.text("cause") not in _CAUSES:
        raise UnsupportedFeatureError(
            "a transaction was ended by a cause that this version does not know",
            hint="upgrade txnlog",
            object=doc.path,
            cause=doc.text("cause"),
        )
    return EndTxn(
        transactional_id_of(doc),
        doc.integer("producer_id"),
        doc.integer("epoch"),
        Outcome(doc.text("outcome")),
        Cause(doc.text("cause")),
        tuple(map(decode_marker, doc.documents("markers"))),
        tuple(map(_placed, doc.documents("placed"))) if doc.has("placed") else (),
        intent,
    )


_CAUSES = frozenset(Cause) - {Cause.INIT}
"""What an init aborts is in the init itself."""


def _placed(doc: Document) -> PlacedPartition:
    return PlacedPartition(
        uuid_of(doc, "topic_id"),
        doc.integer("partition", maximum=PARTITIONS_MAX - 1),
        doc.integer("base_offset"),
        doc.integer("records", minimum=1),
    )
