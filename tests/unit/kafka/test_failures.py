"""Errors of Kafka's C client: which of them pass when the client asks again."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from txnformat.errors import StorageError
from txnlog.kafka.failures import kafka_error, passes

PASSING = [
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
]


@pytest.mark.parametrize("code", PASSING)
def test_a_broker_that_was_started_again_is_asked_again(code: int) -> None:
    """A client whose metadata are older, or newer, than the broker's: Kafka calls it retriable, and the C
    client says it of some codes only."""
    error = KafkaError(code)
    assert passes(error)
    found = kafka_error(error, "offsets cannot be listed")
    assert isinstance(found, StorageError)
    assert found.transient


@pytest.mark.parametrize("code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION])
def test_other_errors_stay(code: int) -> None:
    assert not passes(KafkaError(code))
