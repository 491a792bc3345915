"""One round of an import as calls of a producer: rows are sent, committed, or given up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from txnformat.errors import CommitStateUnknownError, InvalidInputError
from txnlog.kafka.rows import KafkaRecord
from writers.producer import Producer

__all__ = ["abort", "commit", "send", "undecodable"]

logger = logging.getLogger("txnlog")

REPEATS_MAX = 5
"""How often a commit whose outcome is unknown is repeated."""


def undecodable(record: KafkaRecord, problem: str) -> InvalidInputError:
    """Return what to raise about a record that cannot be imported."""
    return InvalidInputError(
        f"a record cannot be imported: {problem}",
        kind="undecodable-record",
        hint="nothing of this round was imported; set dead_letter_topic= to go on without such records",
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
    )


def send(
    producer: Producer, topic: str, partition: int | None, rows: Any, records: Sequence[KafkaRecord]
) -> list[tuple[KafkaRecord, str]]:
    """Send rows, and return the records whose rows the topic refuses. A send that is refused has taken nothing: halves find the rows."""
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


def commit(producer: Producer) -> None:
    """Commit; an unknown outcome is settled by the same call again."""
    for attempt in range(REPEATS_MAX + 1):
        try:
            producer.commit()
        except CommitStateUnknownError:
            if attempt == REPEATS_MAX:
                raise
        else:
            return


def abort(producer: Producer) -> None:
    """Give up what the round has sent, as far as that is possible; the producer's close does the rest, and the first error counts."""
    try:
        producer.abort()
    except Exception as error:  # noqa: BLE001 - the error that led here is the caller's
        logger.debug("the round could not be aborted: %s", error)
