"""Epochs around the ends of Kafka's and of wider integers."""

from __future__ import annotations

from tests.conformance.core_log import COMMIT, NAME, CoreLog
from txnformat.core.intents import ProducerRef
from txnformat.core.operations import Cause
from txnformat.core.transactions.state import LastEnd, TransactionStatus
from txnformat.persistent import replace

__all__ = ["BOUNDARIES", "KAFKAS_EPOCH_MAX", "at_epoch"]

KAFKAS_EPOCH_MAX = 2**15 - 1
BOUNDARIES = (KAFKAS_EPOCH_MAX - 2, KAFKAS_EPOCH_MAX - 1, KAFKAS_EPOCH_MAX, 2**16 - 1, 2**31 - 1, 2**32)
"""Epochs around which Kafka's 16 bits end (it changes the producer id at 32766), and other widths."""


def at_epoch(log: CoreLog, epoch: int) -> ProducerRef:
    """Set the epoch of the id, as if it had ended that many transactions; nothing is open."""
    known = log.id()
    assert known.status is not TransactionStatus.ONGOING
    last = LastEnd(epoch - 1, COMMIT, Cause.PRODUCER, log.state.entry)
    ids = {**log.state.transactional_ids, NAME: replace(known, epoch=epoch, last_end=last)}
    log.replace_state(replace(log.state, transactional_ids=ids))
    return log.producer(NAME)
