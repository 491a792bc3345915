"""Publications that are looked at: requests, actions of a version, and the rows of a table beside those of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.upkeep.vacuum_world import Interposed
from tests.integration.views.tables import READERS, expected, row
from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.requests import RequestKind
from txnlog import (
    Producer,
    TxnLog,
)

__all__ = ["actions", "check", "counted", "counted_kinds", "data_keys", "fresh", "rows", "slow"]

READ = READERS["deltalake"]


def rows(*numbers: int) -> list[dict[str, Any]]:
    """Return records of the topic."""
    return [row(n) for n in numbers]


def data_keys(log: TxnLog) -> set[str]:
    """Return the keys of the data files that are there."""
    return {info.key for info in log.store.list("") if keys.parse_data_key(info.key) is not None}


def actions(log: TxnLog, version: int, kind: str, topic: str = "t") -> list[dict[str, Any]]:
    """Return the actions of a kind in a version."""
    key = keys.delta_version_key(log.state.topic(topic).directory, version)
    lines = [json.loads(line) for line in (log.store.get(key) or b"").splitlines()]
    return [line[kind] for line in lines if kind in line]


def check(log: TxnLog, topic: str = "t") -> None:
    """The table shows the snapshot at the manifest's entry."""
    table = log.published_tables()[topic]
    assert READ(table) == expected(log, table)


def fresh(log: TxnLog, store: Any = None) -> TxnLog:
    """Return the log as another process opens it."""
    return TxnLog.open(LocalStore(log.url.removeprefix("file://")) if store is None else store)


def counted(log: TxnLog, call: Callable[[TxnLog], Any]) -> list[tuple[RequestKind, str]]:
    """Return the requests of a call by a process that has just opened the log."""
    store = Interposed(LocalStore(log.url.removeprefix("file://")))
    other = TxnLog.open(store)
    store.seen.clear()
    call(other)
    other.close()
    return store.seen


def counted_kinds(log: TxnLog) -> list[tuple[RequestKind, str]]:
    """Return the kinds of the requests of a publication in a process of its own, with those that open the log; it happens."""
    store = Interposed(LocalStore(log.url.removeprefix("file://")))
    with TxnLog.open(store) as other:
        other.publish()
    return store.kinds


@contextmanager
def slow(log: TxnLog, *numbers: int) -> Iterator[Producer]:
    """A transaction that is open in partition 0, in files of its own."""
    with Producer(log, "slow", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(*numbers or (31,)), partition=0)
        producer.flush()
        yield producer
