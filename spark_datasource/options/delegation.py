"""How a write learns that it belongs to a SparkTransaction: an internal option carries the producer's
identity.

It is no secret, and no right: any process that can write to the store could stage in the transaction as well.
The log refuses it once the transaction has ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from txnformat.core.intents import ProducerRef
from txnformat.errors import InvalidInputError
from writers.job import Delegation

__all__ = ["TRANSACTION", "delegated_by", "transaction_option"]

TRANSACTION = "_transaction"
"""The option: :func:`transaction_option`."""


def transaction_option(delegation: Delegation) -> str:
    """Return the option's value."""
    producer = delegation.producer
    return json.dumps([producer.transactional_id, producer.producer_id, producer.epoch, delegation.follows])


def delegated_by(options: Mapping[str, str]) -> tuple[dict[str, str], Delegation | None]:
    """Return the other options, and in whose transaction the write is to stage; None: it appends.

    Raises InvalidInputError of kind ``invalid-option``: the option was not made here.
    """
    others = dict(options)
    text = others.pop(TRANSACTION, None)
    if text is None:
        return others, None
    try:
        transactional_id, *numbers = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        transactional_id, numbers = None, []
    if not isinstance(transactional_id, str) or [type(number) for number in numbers] != [int, int, int]:
        raise InvalidInputError(
            f"option {TRANSACTION} is internal, and {text!r:.100} is not a value that SparkTransaction sets",
            kind="invalid-option",
            hint="write with SparkTransaction.write",
        )
    producer_id, epoch, follows = numbers
    return others, Delegation(ProducerRef(producer_id, epoch, transactional_id), follows)
