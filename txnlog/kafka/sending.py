"""Rows of one round of an import: sent, but for those that the topic refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txnformat.errors import InvalidInputError
from txnlog.kafka.rows import KafkaRecord
from writers.producer import Producer

__all__ = ["send", "undecodable"]


def undecodable(record: KafkaRecord, problem: str) -> InvalidInputError:
    """Return what to raise about a record that cannot be imported."""
    return InvalidInputError(
        f"a record cannot be imported: {problem}",
        kind="undecodable-record",
        hint="nothing of this round was imported; set dead_letter_topic= to continue without such records",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def send(
    producer: Producer, topic: str, partition: int | None, rows: Any, records: Sequence[KafkaRecord]
) -> list[tuple[KafkaRecord, str]]:
    """Send rows, and return the records whose rows the topic refuses.

    A send that is refused has taken nothing: halves find the rows.
    """
    if not records:
        return []
    try:
        producer.send(topic, rows, partition)
    except InvalidInputError as error:
        if len(records) == 1:
            return [(records[0], "; ".join(error.problems))]
        half = len(records) // 2
        return [
            *send(producer, topic, partition, rows[:half], records[:half]),
            *send(producer, topic, partition, rows[half:], records[half:]),
        ]
    return []
