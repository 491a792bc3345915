"""Publications that are looked at: requests, actions of a version, and the rows of a table beside those of
the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.integration.upkeep.vacuum_world import Interposed
from tests.integration.views.tables import ICEBERG_READERS, READERS, expected, row
from txnformat import keys
from txnformat.store.local import LocalStore
from txnformat.store.requests import RequestKind
from txnformat.store.wrapped import WrappedStore
from txnformat.views.iceberg_log import follow_iceberg
from txnformat.views.iceberg_table import IcebergTable, key_of
from txnlog import (
    Producer,
    TxnLog,
)

__all__ = [
    "Meanwhile",
    "actions",
    "check",
    "check_iceberg",
    "counted",
    "counted_kinds",
    "data_keys",
    "fresh",
    "iceberg_table",
    "objects",
    "rows",
    "slow",
]

READ = READERS["deltalake"]
Answer = TypeVar("Answer")


class Meanwhile(WrappedStore):
    """Lets something else happen once: before the first request of a kind whose key has a text in it."""

    def __init__(self, log: TxnLog, kind: RequestKind, text: str, other: Callable[[], object]) -> None:
        super().__init__(LocalStore(log.url.removeprefix("file://")))
        self.kind, self.text, self.other = kind, text, other
        self.key = ""
        """The key of that request; empty: there was none so far."""

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        if not self.key and operation is self.kind and self.text in key:
            self.key = key
            self.other()
        return call()


def rows(*numbers: int) -> list[dict[str, Any]]:
    """Return records of the topic."""
    return [row(n) for n in numbers]


def data_keys(log: TxnLog) -> set[str]:
    """Return the keys of the data files that are there."""
    return {info.key for info in log.store.list("") if keys.parse_data_key(info.key) is not None}


def objects(log: TxnLog) -> dict[str, bytes | None]:
    """Return the bytes of each object of a root, by key."""
    return {info.key: log.store.get(info.key) for info in log.store.list("")}


def actions(log: TxnLog, version: int, kind: str, topic: str = "t") -> list[dict[str, Any]]:
    """Return the actions of a kind in a version."""
    key = keys.delta_version_key(log.state.topic(topic).directory, version)
    lines = [json.loads(line) for line in (log.store.get(key) or b"").splitlines()]
    return [line[kind] for line in lines if kind in line]


def check(log: TxnLog, topic: str = "t") -> None:
    """The table shows the snapshot at the manifest's entry."""
    table = log.published_tables()[topic]
    assert READ(table) == expected(log, table)


def iceberg_table(log: TxnLog, topic: str = "t") -> IcebergTable:
    """Return a topic's Iceberg table as a process finds it that has never seen it."""
    found = log.state.topic(topic)
    return log.committer.read(follow_iceberg(IcebergTable(), found.directory, found.topic_id)).table


def check_iceberg(log: TxnLog, topic: str = "t") -> None:
    """The Iceberg table shows the snapshot at the manifest's entry; its hint names the version; its paths are
    those of objects."""
    table = log.published_tables(format="iceberg")[topic]
    assert ICEBERG_READERS["pyiceberg"](table) == expected(log, table)
    found = iceberg_table(log, topic)
    assert found.version == table.version
    directory = log.state.topic(topic).directory
    assert log.store.get(keys.iceberg_hint_key(directory)) == str(table.version).encode()
    assert found.metadata is not None
    for path in found.files:
        assert log.store.head(key_of(path, found.metadata.location, directory)) is not None


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


def counted_kinds(log: TxnLog, format_: str = "delta") -> list[tuple[RequestKind, str]]:
    """Return the kinds of the requests of a publication in a process of its own, with those that open the
    log; it happens."""
    store = Interposed(LocalStore(log.url.removeprefix("file://")))
    with TxnLog.open(store) as other:
        other.publish(format=format_)
    return store.kinds


@contextmanager
def slow(log: TxnLog, *numbers: int) -> Iterator[Producer]:
    """A transaction that is open in partition 0, in files of its own."""
    with Producer(log, "slow", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(*numbers or (31,)), partition=0)
        producer.flush()
        yield producer
