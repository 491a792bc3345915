"""Errors of Kafka's clients and of a schema registry as those of txnlog: each says what to do."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from txnformat.errors import (
    InvalidInputError,
    NotFoundError,
    ProducerFencedError,
    StorageError,
    TxnLogError,
    UnsupportedFeatureError,
    repr_of,
)

__all__ = ["as_config", "client_logger", "kafka_error", "missing_package", "passes", "unavailable"]

HINT = "pip install 'txnlog[kafka]' for the Python that runs this"

client_logger = logging.getLogger("txnlog.kafka")
"""Takes the notes of the C client, which would else go to stderr: lost connections that it makes anew, and
the like."""
client_logger.addHandler(logging.NullHandler())
client_logger.propagate = False

_SECRET = ("password", "secret", "sasl.", "ssl.key", "basic.auth", "token")


def missing_package(error: ModuleNotFoundError) -> TxnLogError:
    """Return the error of a package of the extra ``kafka`` that is not installed."""
    return UnsupportedFeatureError(
        f"Kafka needs a package that is not installed: {(error.name or '').partition('.')[0]}",
        kind="missing-package",
        hint=HINT,
    )


def as_config(kafka: object, reserved: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of clients: those of a mapping, or the brokers of a text.

    ``reserved``: property to what sets it here. Raises InvalidInputError (``invalid-kafka-settings``); its
    message has no value of a property, which may be a secret.
    """
    config: dict[str, Any]
    if isinstance(kafka, str):
        config = {"bootstrap.servers": kafka}
    elif isinstance(kafka, Mapping) and all(isinstance(name, str) for name in kafka):
        config = dict(kafka)
    else:
        raise InvalidInputError(
            f"kafka is a {type(kafka).__name__}, not the address of a broker or a mapping of properties",
            kind="invalid-kafka-settings",
            hint='give "broker:9092", or {"bootstrap.servers": "broker:9092", "security.protocol": "SSL"}',
        )
    problems = [
        f"the property {name} cannot be given: {why}" for name, why in reserved.items() if name in config
    ]
    if not config.get("bootstrap.servers"):
        problems.append("bootstrap.servers is missing: the addresses of some brokers")
    if problems:
        raise InvalidInputError(problems, kind="invalid-kafka-settings", hint="nothing was done")
    return config


def invalid_config(error: Any, config: Mapping[str, Any]) -> InvalidInputError:
    """Return the error of properties that the C client refuses; values of secret ones are left out."""
    text = error.args[0].str() if error.args and hasattr(error.args[0], "str") else str(error)
    for name, value in config.items():
        if any(word in name for word in _SECRET) and value:
            text = text.replace(str(value), "…")
    return InvalidInputError(
        f"the Kafka client refuses its properties: {text}", kind="invalid-kafka-settings"
    )


def unavailable(what: str, **values: Any) -> StorageError:
    """Return the error of brokers that do not answer."""
    return StorageError(
        what,
        kind="kafka-unavailable",
        transient=True,
        hint="check the brokers and bootstrap.servers; repeat the same call to continue",
        **values,
    )


def passes(error: Any) -> bool:
    """Return whether a KafkaError passes when the client asks again: the C client does not say it of a broker
    that has just been started again.

    Kafka's own client calls all of these retriable
    (``org.apache.kafka.common.errors.InvalidMetadataException``).
    """
    from confluent_kafka import KafkaError

    return bool(error.retriable()) or error.code() in (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.LISTENER_NOT_FOUND,
    )


def kafka_error(error: Any, what: str, **values: Any) -> TxnLogError:
    """Return the error that an error of the C client is for the caller.

    ``error``: a KafkaException, or a KafkaError.
    """
    from confluent_kafka import KafkaError, KafkaException

    found = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(found, KafkaError):
        return StorageError(f"{what}: {repr_of(error)}", kind="kafka-failed", **values)
    name, text, code = found.name(), found.str(), found.code()
    shown = {**values, "kafka_error": name}
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION):
        return NotFoundError(
            f"{what}: the topic is not in Kafka", kind="unknown-kafka-topic", hint="check its name", **shown
        )
    if code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError._AUTHENTICATION,
    ):
        return StorageError(
            f"{what}: Kafka refuses it: {text}",
            kind="kafka-denied",
            hint="check credentials and ACLs",
            **shown,
        )
    if code in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return ProducerFencedError(
            "a newer export of this name has begun: this one stops", kind="producer-fenced", **shown
        )
    if passes(found) or code in (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._NOENT,  # a partition without a leader
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    ):
        return unavailable(f"{what}: {text}", **shown)
    return StorageError(f"{what}: {text}", kind="kafka-failed", **shown)
