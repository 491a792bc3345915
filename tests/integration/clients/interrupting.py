"""What tests of interrupted producers share: a store that interrupts the main thread, and a log in it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from txnformat.errors import TxnLogError
from txnformat.log import TxnLog
from txnformat.store.base import CreateResult
from txnformat.store.memory import MemoryStore
from writers.producer import Producer

ROWS = pa.schema([("n", pa.int64())])
BUFFERS = pytest.mark.parametrize("buffer", ["auto", "deferred", "inline"])


class Interrupt(Exception):
    """As a task queue's soft limit: an exception like any other."""


class InterruptingStore(MemoryStore):
    """Raises a signal in the main thread when an entry is created, and ends the request when the handler has
    run."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupts = 0
        self.handled = threading.Event()

    def create(self, key: str, data: bytes) -> CreateResult:
        result = super().create(key, data)
        if self.interrupts and "/log/" in f"/{key}":
            self.interrupts -= 1
            self.interrupt()
        return result

    def interrupt(self) -> None:
        """Interrupt the main thread, and wait until its handler has run."""
        self.handled.clear()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert self.handled.wait(300)


@pytest.fixture(name="store")
def interrupting_store() -> Iterator[InterruptingStore]:
    store = InterruptingStore()

    def interrupt(number: int, frame: object) -> None:
        store.handled.set()
        raise Interrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield store
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture(name="log")
def log_in_store(store: InterruptingStore) -> TxnLog:
    log = TxnLog.create(store)
    log.create_topic("t", ROWS, partitions=3)
    return log


def numbers(log: TxnLog) -> list[int]:
    log.refresh()
    return sorted(row["n"] for row in log.read("t").read_all().to_pylist())


def rows(*ns: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in ns]


def interrupted(store: InterruptingStore, call: Callable[[], object]) -> None:
    """Do a call whose entry lands, and whose caller never hears of it."""
    store.interrupts = 1
    with pytest.raises(Interrupt):
        call()
    assert store.interrupts == 0


def kind_of(call: Callable[[], object]) -> str:
    with pytest.raises(TxnLogError) as caught:
        call()
    return caught.value.kind


def next_transaction_counts(log: TxnLog, producer: Producer, n: int) -> None:
    before = numbers(log)
    with producer.transaction() as txn:
        txn.send("t", rows(n))
    assert numbers(log) == sorted([*before, n])
