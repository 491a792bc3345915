"""Prepared transactions and refusals: what their tests share."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from tests.integration.clients.failing import rows
from txnlog import Producer, TxnLog, TxnLogError


def prepared(log: TxnLog, name: str = "p", buffer: str = "auto", *numbers: int) -> str:
    """Prepare a transaction as a process that ends there, and return its token."""
    producer = Producer(log, name, buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(*numbers or (1, 2)))
    token = str(producer.prepare())
    producer.close()
    return token


def again(log: TxnLog) -> TxnLog:
    return TxnLog.open(log.store, clock=log.committer.clock)


def refused(kind: str, error: type[TxnLogError], *calls: Callable[[], object]) -> None:
    for call in calls:
        with pytest.raises(error) as caught:
            call()
        assert caught.value.kind == kind
        pickle.loads(pickle.dumps(caught.value))
