"""What roles ask of a store: the requests of real work, noted by the store that they are made of."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import NamedTuple, TypeVar

import pyarrow as pa

from tests.maintenance.tasks import TASKS, world_of
from tests.maintenance.world import small_lists
from tests.model.groups import ManualClock
from txnformat.clock import SystemIds
from txnformat.store.base import ObjectStore, keeps_versions
from txnformat.store.encrypted.key_client import KeySource
from txnformat.store.encrypted.store import EncryptedStore
from txnformat.store.memory import MemoryStore
from txnformat.store.probe import probe_store
from txnformat.store.requests import RequestKind
from txnformat.store.unfinished import UnfinishedUpload, discard_upload, unfinished_uploads
from txnformat.store.wrapped import WrappedStore
from txnlog import Consumer, Producer, Subscription, TxnLog
from txnlog_testing.stores.latency import FarStore

__all__ = ["Asked", "Need", "clients_work", "keys_work", "maintenance_work"]

Answer = TypeVar("Answer")
ROWS = pa.schema([("k", pa.string()), ("n", pa.int64())])


class Need(StrEnum):
    """Kinds of requests that rights tell apart."""

    GET = "get"
    LIST = "list"
    CREATE = "create"
    """With the condition that the key is free."""
    REPLACE = "replace"
    PARTS = "parts"
    """An upload in parts: its beginning, its parts, and its end with the condition where the store has one.
    """
    DELETE = "delete"
    LIST_UPLOADS = "list-uploads"
    END_UPLOAD = "end-upload"
    VERSIONS = "versions"


class Asked(NamedTuple):
    """One request."""

    need: Need
    key: str
    """Relative to the root; of a listing the prefix."""


_NEEDS = {
    RequestKind.GET: (Need.GET,),
    RequestKind.GET_RANGE: (Need.GET,),
    RequestKind.HEAD: (Need.GET,),
    RequestKind.CREATE: (Need.CREATE,),
    RequestKind.PUT: (Need.REPLACE,),
    # A small one is a create; a large one that fails ends its parts.
    RequestKind.OPEN_WRITE: (Need.CREATE, Need.PARTS, Need.END_UPLOAD),
    RequestKind.LIST: (Need.LIST,),
    RequestKind.DELETE: (Need.DELETE,),
}


class NotingStore(WrappedStore):
    """Notes each request, and passes it on."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.asked: set[Asked] = set()
        self._lock = threading.Lock()

    @property
    def place(self) -> str:
        return f"{super().place} noted"  # a process tries each place once

    def note(self, key: str, *needs: Need) -> None:
        with self._lock:
            self.asked.update(Asked(need, key) for need in needs)

    def _request(self, operation: RequestKind, key: str, call: Callable[[], Answer]) -> Answer:
        self.note(key, *_NEEDS[operation])
        return call()

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        self.note("", Need.LIST_UPLOADS)
        return unfinished_uploads(self._inner, before_ms)

    def discard_upload(self, upload: UnfinishedUpload) -> None:
        self.note(upload.key, Need.END_UPLOAD)
        discard_upload(self._inner, upload)

    def keeps_versions(self) -> bool | None:
        self.note("", Need.VERSIONS)
        return keeps_versions(self._inner)


class BucketWithParts(MemoryStore):
    """A store with an upload that never ended, and versions."""

    def unfinished_uploads(self, before_ms: int) -> Sequence[UnfinishedUpload]:
        return [UnfinishedUpload("t-0a1b2c3d/data/00000000000000000001-left", "id", 0)]

    def discard_upload(self, upload: UnfinishedUpload) -> None: ...

    def keeps_versions(self) -> bool:
        return True


def _rows(count: int) -> pa.Table:
    return pa.table({"k": [f"k{number % 7}" for number in range(count)], "n": [*range(count)]}, schema=ROWS)


def _write(log: TxnLog, embedding: bool) -> None:
    """Do what writers do: topics, records of every size, transactions of each kind, groups, subscriptions,
    and what is due behind an answer."""
    assert all(check.ok for check in probe_store(log.store, SystemIds()))
    log.create_topic("t", ROWS, partitions=2, key_columns=["k"])
    log.create_topic("u", ROWS, settings={"embed": "false"} if embedding else None)
    with Producer(log) as plain:
        for topic in ("t", "u"):
            plain.send(topic, _rows(3))
            plain.flush()
        plain.send("t", _rows(200_000))
    for buffer in ("inline", "deferred", "auto"):
        with Producer(log, f"p-{buffer}", buffer=buffer) as producer:
            for end in ("commit", "abort"):
                producer.begin()
                producer.send("t", _rows(5))
                producer.flush()
                getattr(producer, end)()
    log.subscriptions.create("t", "s")
    with Consumer(log, "g") as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(0, 3) is not None
        consumer.commit()
    with Subscription(log, "t", "s") as subscription:
        batch = subscription.receive(3, timeout_ms=0)
        assert batch is not None
        subscription.acknowledge(batch)
    with Producer(log, "many") as producer:
        while log.state.entry < (105 if embedding else 0):
            with producer.transaction() as transaction:
                transaction.send("t", _rows(1))
            log.committer.close()
    log.committer.write_snapshot()
    log.maintain("seal")
    log.close()


def _read(log: TxnLog) -> None:
    """Do what readers do that write nothing."""
    for topic in log.topics():
        log.read(topic).read_all()
        log.read(topic, isolation="read_uncommitted").read_all()
        log.dataset(topic).to_table()
        log.offsets(topic)
    log.snapshot().read("t").read_all()
    log.describe()
    log.metrics()
    list(log.history(300))
    log.timeline()
    assert log.verify().ok
    with Consumer(log, None) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(0, 3) is not None
    log.refresh()


@cache
def clients_work() -> Mapping[str, frozenset[Asked]]:
    """Return what readers and writers ask, of a far log that embeds (as clouds are far) and of a near one
    that does not."""
    asked: dict[str, frozenset[Asked]] = {"reader": frozenset(), "writer": frozenset()}
    for embedding in (True, False):
        inner = MemoryStore(ManualClock(), f"embeds-{embedding}")
        written, read = NotingStore(inner), NotingStore(inner)
        store = FarStore(written) if embedding else written
        log = TxnLog.create(store, clock=ManualClock(), embedding=embedding)
        _write(log, embedding)
        _read(TxnLog.open(read))
        asked["reader"] |= read.asked
        asked["writer"] |= written.asked
    return asked


@cache
def keys_work() -> frozenset[Asked]:
    """Return what both rotations of keys ask, of a log that others have made."""
    source = KeySource("tests.integration.encryption.key_service:Service")
    shared = MemoryStore(ManualClock(), "keys")
    TxnLog.create(EncryptedStore(shared, source), clock=ManualClock())
    store = NotingStore(shared)
    log = TxnLog.open(EncryptedStore(store, source))
    log.rotate_key()
    log.rotate_key(master=True)
    log.close()
    return frozenset(store.asked)


@cache
def maintenance_work() -> frozenset[Asked]:
    """Return what every task of maintenance asks, and what a vacuum asks about uploads."""
    asked: set[Asked] = set()
    with small_lists():
        for task, world in [(task, world_of(name).copied()) for name, task in TASKS.items()]:
            for _ in range(task.runs):
                store = NotingStore(world.store)
                log = world.opened(store)
                task.run(log)
                log.close()
                asked |= store.asked
                world.clock.sleep(task.rest_s)
    clock = ManualClock()
    store = NotingStore(BucketWithParts(clock, "parts"))
    log = TxnLog.create(store, clock=clock)
    log.vacuum(datetime.timedelta(hours=2))
    store.keeps_versions()
    return frozenset(asked | store.asked)
