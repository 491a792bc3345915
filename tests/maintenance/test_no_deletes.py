"""Only a vacuum and a truncation delete objects of the log, and a publication old versions of its tables: no
abort does, no reader, no consumer. The probe of a store deletes the object that it has made itself."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.maintenance.tasks import world_of
from tests.maintenance.world import ISOLATIONS, table
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog_testing.stores.counting import CountingStore

ROOT = Path(__file__).parents[2]
PACKAGES = ("txnformat", "writers", "spark_datasource", "txnlog", "pyspark_txnlog")
STORES = "txnformat/store/"
NAMES = {"delete", "discard_upload", "unlink", "rmtree", "rmdir"}
OF_STORES = {
    ("txnformat/admin/vacuum.py", "delete"),
    ("txnformat/admin/vacuum.py", "discard_upload"),
    ("txnformat/admin/truncation.py", "delete"),
    ("txnformat/admin/publishing/delta.py", "delete"),
    ("txnformat/admin/publishing/iceberg.py", "delete"),
    ("txnlog/cli/doctor/store.py", "delete"),
}
"""The callers of a store's deletions outside of the stores: the doctor deletes the objects of its own trial,
a publication old versions of its tables."""
OF_OTHERS = {
    ("txnformat/admin/garbage.py", "delete"),  # a list of keys
    ("txnlog/cli/records/outputs.py", "unlink"),  # a file of output that was not finished
    ("txnlog/cli/doctor/store.py", "rmdir"),  # the folder of its trial, if it made that
    ("txnlog/cli/groups.py", "delete"),  # a group is no object
    ("txnlog/cli/subscriptions.py", "delete"),  # nor is a subscription
}


def abort_a_producer(log: TxnLog) -> None:
    """Abort each kind of transaction, with files that were uploaded and files that were not."""
    for buffer in ("auto", "inline", "deferred"):
        for flushes in (False, True):
            with Producer(log, f"{buffer}-{flushes}", buffer=buffer) as producer:
                producer.begin()
                producer.send("t", table([("x", 1)] * 100), partition=0)
                if flushes:
                    producer.flush()
                producer.abort()


def abort_a_block(log: TxnLog) -> None:
    """Leave the block of a transaction by an exception."""
    producer = Producer(log, "block", buffer="inline")
    with producer, pytest.raises(KeyError), producer.transaction() as transaction:  # noqa: PT012
        transaction.send("t", table([("x", 1)]))
        producer.flush()
        raise KeyError


def abort_for_others(log: TxnLog) -> None:
    """Abort a prepared transaction, and those of a process that is no more."""
    producer = Producer(log, "gone", buffer="deferred")
    producer.init()
    producer.begin()
    producer.send("t", table([("x", 1)]))
    producer.flush()
    token = producer.prepare()
    producer.close()
    log.abort_prepared(token)
    producer = Producer(log, "gone", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", table([("x", 1)]))
    producer.flush()
    log.transactions.abort("gone")


def read(log: TxnLog) -> None:
    """Read in every way that this process has."""
    for topic in log.topics():
        for isolation in ISOLATIONS:
            log.read(topic, isolation=isolation).read_all()
        log.read(topic, where="n > 5", end_expired=True).read_all()
        log.dataset(topic).to_table()
    log.snapshot().read("t").read_all()
    log.verify(deep=True)
    log.describe()
    list(log.history())


def consume(log: TxnLog) -> None:
    """Let a group and a subscription read everything."""
    with Consumer(log, "g") as consumer:
        consumer.subscribe(["t", "keep"])
        assert list(consumer.batches())
        consumer.commit()
    with Subscription(log, "keep", "s") as subscription:
        while (batch := subscription.receive(100, timeout_ms=0)) is not None:
            subscription.acknowledge(batch)


@pytest.mark.parametrize("call", [abort_a_producer, abort_a_block, abort_for_others, read, consume])
def test_neither_an_abort_nor_a_reader_deletes(call: Callable[[TxnLog], None]) -> None:
    world = world_of("maintain").copied()
    store = CountingStore(world.store)
    log = world.opened(store)
    call(log)
    log.close()
    deletes = store.counts.count(RequestKind.DELETE)
    assert deletes == store.counts.count(RequestKind.DELETE, KeyClass.PROBE)


def deletions(path: Path) -> Iterator[str]:
    """Yield what a module names of all that deletes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            if node.attr in NAMES or (
                isinstance(node.value, ast.Name) and (node.value.id, node.attr) == ("os", "remove")
            ):
                yield node.attr
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node.id


def test_only_named_modules_delete() -> None:
    """A new caller of a deletion has to be added here on purpose."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(STORES):
                found |= {(name, what) for what in deletions(path)}
    assert found == OF_STORES | OF_OTHERS
