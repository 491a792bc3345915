"""Subscriptions in the JSON section of a snapshot. Pure. See :mod:`txnformat.snapshot_state`."""

from __future__ import annotations

from typing import Any

from txnformat.ack_operations import SubscriptionKey
from txnformat.codec_fields import number_of, ranges_of, reader_of, transactional_id_of, uuid_of
from txnformat.document import Document
from txnformat.ranges import Ranges
from txnformat.subscription_state import PartitionAcks, PendingAcks, SubscriptionState

__all__ = ["decode_subscription", "encode_subscription", "subscription_key"]

Json = dict[str, Any]


def encode_subscription(key: SubscriptionKey, subscription: SubscriptionState) -> Json:
    """Return the JSON object of a subscription."""
    topic_id, name = key
    return {
        "topic_id": topic_id,
        "subscription": name,
        "partitions": [
            {
                "partition": number,
                "mark": acks.mark,
                "acked": _pairs(acks.acked),
                "pending": [
                    {
                        "transactional_id": transactional_id,
                        "ranges": _pairs(held.ranges),
                        "position": held.position,
                    }
                    for transactional_id, held in sorted(acks.pending.items())
                ],
            }
            for number, acks in sorted(subscription.partitions.items())
        ],
        "created_entry": subscription.created_entry,
        "used_entry": subscription.used_entry,
        "used_ms": subscription.used_ms,
    }


def _pairs(ranges: Ranges) -> list[list[int]]:
    return [[*pair] for pair in ranges.pairs()]


def decode_subscription(doc: Document) -> tuple[SubscriptionKey, SubscriptionState]:
    """Return the subscription that a JSON object says, and its topic id and name, checked."""
    return subscription_key(doc), SubscriptionState(
        {
            number_of(one): PartitionAcks(
                one.integer("mark"),
                Ranges.of(ranges_of(one, "acked")),
                {transactional_id_of(held): _pending(held) for held in one.documents("pending")},
            )
            for one in doc.documents("partitions")
        },
        doc.integer("created_entry"),
        doc.integer("used_entry"),
        doc.integer("used_ms"),
    )


def subscription_key(doc: Document) -> SubscriptionKey:
    """Return the topic id and the name of the subscription that a JSON object names, checked."""
    return uuid_of(doc, "topic_id"), reader_of(doc, "subscription")


def _pending(doc: Document) -> PendingAcks:
    return PendingAcks(
        Ranges.of(ranges_of(doc, "ranges")), doc.integer("position") if doc.has("position") else None
    )
