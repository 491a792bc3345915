"""JSON form of the operations of subscriptions. See :mod:`txnformat.operation_codec`. Pure."""

from __future__ import annotations

from itertools import pairwise

from txnformat import keys
from txnformat.ack_operations import (
    Ack,
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.codec_fields import PARTITIONS_MAX, Json, transactional_id_of, uuid_of
from txnformat.document import INT64_MAX, Document
from txnformat.errors import InvalidInputError, UnsupportedFeatureError

__all__ = [
    "decode_ack",
    "decode_create_subscription",
    "decode_delete_subscription",
    "encode_ack",
    "encode_create_subscription",
    "encode_delete_subscription",
    "number_of",
    "ranges_of",
    "subscription_of",
]


def subscription_of(doc: Document) -> str:
    """Return the name of a subscription in a JSON object, checked."""
    try:
        return keys.check_reader_name(doc.text("subscription"), "subscription")
    except InvalidInputError:
        doc.fail("subscription", "subscription name")


def number_of(doc: Document) -> int:
    """Return the number of a partition in a JSON object, checked."""
    return doc.integer("partition", maximum=PARTITIONS_MAX - 1)


def ranges_of(doc: Document, field: str) -> tuple[tuple[int, int], ...]:
    """Return ranges in a field, checked: not empty, ascending, and no two of them overlap or touch."""
    pairs: list[tuple[int, int]] = []
    for pair in doc.items(field):
        if not isinstance(pair, list) or [type(one) for one in pair] != [int, int]:
            doc.fail(field, "list of [start, end]")
        pairs.append((pair[0], pair[1]))
    bounds = [bound for pair in pairs for bound in pair]
    if any(later <= earlier for earlier, later in pairwise(bounds)):
        doc.fail(field, "ranges that ascend, of which no two overlap or touch")
    if bounds and not 0 <= bounds[0] <= bounds[-1] <= INT64_MAX:
        doc.fail(field, "offsets from 0 on")
    return tuple(pairs)


def encode_create_subscription(op: CreateSubscription) -> Json:
    """Return the fields of ``create_subscription``."""
    starts = [{"partition": start.partition, "offset": start.offset} for start in op.starts]
    encoded: Json = {"topic_id": op.topic_id, "subscription": op.subscription}
    return {**encoded, "starts": starts} if starts else encoded


def decode_create_subscription(doc: Document, intent: int) -> CreateSubscription:
    """Return the operation that a JSON object says, checked."""
    starts = doc.documents("starts") if doc.has("starts") else ()
    return CreateSubscription(
        uuid_of(doc, "topic_id"),
        subscription_of(doc),
        tuple(SubscriptionStart(number_of(one), one.integer("offset")) for one in starts),
        intent,
    )


def encode_delete_subscription(op: DeleteSubscription) -> Json:
    """Return the fields of ``delete_subscription``."""
    return {"topic_id": op.topic_id, "subscription": op.subscription}


def decode_delete_subscription(doc: Document, intent: int) -> DeleteSubscription:
    """Return the operation that a JSON object says, checked."""
    return DeleteSubscription(uuid_of(doc, "topic_id"), subscription_of(doc), intent)


def encode_ack(op: Ack) -> Json:
    """Return the fields of ``ack``."""
    return {
        "topic_id": op.topic_id,
        "subscription": op.subscription,
        "mode": op.mode.value,
        "transactional_id": op.transactional_id,
        "producer_id": op.producer_id,
        "epoch": op.epoch,
        "partitions": [_encode_partition(op.mode, part) for part in op.partitions],
    }


def _encode_partition(mode: AckMode, part: AckedPartition) -> Json:
    if mode is AckMode.INDIVIDUAL:
        return {"partition": part.partition, "ranges": [[*pair] for pair in part.ranges]}
    return {"partition": part.partition, "position": part.position}


def decode_ack(doc: Document, intent: int) -> Ack:
    """Return the operation that a JSON object says, checked."""
    transactional_id = transactional_id_of(doc) if doc.has("transactional_id") else None
    producer_id, epoch = doc.integer("producer_id", minimum=-1), doc.integer("epoch", minimum=-1)
    if (producer_id < 0) != (transactional_id is None) or (epoch < 0) != (transactional_id is None):
        doc.fail("producer_id", "-1, as epoch, exactly when transactional_id is null")
    mode = _mode(doc)
    if mode is AckMode.SEEK and transactional_id is not None:
        doc.fail("transactional_id", "null of a seek")
    return Ack(
        uuid_of(doc, "topic_id"),
        subscription_of(doc),
        mode,
        tuple(_partition(mode, part) for part in doc.documents("partitions")),
        transactional_id,
        producer_id,
        epoch,
        intent,
    )


def _mode(doc: Document) -> AckMode:
    text = doc.text("mode")
    try:
        return AckMode(text)
    except ValueError:
        raise UnsupportedFeatureError(
            "an operation uses a mode of acknowledgement that this version does not know",
            hint="upgrade txnlog",
            object=doc.path,
            mode=text,
        ) from None


def _partition(mode: AckMode, doc: Document) -> AckedPartition:
    if mode is AckMode.INDIVIDUAL:
        return AckedPartition(number_of(doc), ranges_of(doc, "ranges"))
    return AckedPartition(number_of(doc), position=doc.integer("position"))
