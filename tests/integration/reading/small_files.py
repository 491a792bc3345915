"""A topic of small commits, as the tests of small files share it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
BUDGET = 1.05
"""GETs for each small file, at most."""


class Far(CountingStore):
    """A counted store whose requests have a latency, as it says."""

    @property
    def reads_in_flight(self) -> int:
        return 16


def counted(far: bool) -> CountingStore:
    return Far(MemoryStore()) if far else CountingStore(MemoryStore())


def fill(
    store: ObjectStore, files: int, partitions: int, *, seal_after: int | None = None, topic: str = "t"
) -> list[int]:
    """Write transactions of a record in each partition, one file each; return the numbers that are in the
    log.

    ``seal_after``: so many of them are sealed, in two segments.
    """
    with TxnLog.create(store, embedding=False) as log:
        log.create_topic(topic, SCHEMA, partitions=partitions)
        with Producer(log, "p") as producer:
            for number in range(files):
                if seal_after is not None and number in (seal_after // 2, seal_after):
                    log.maintain("seal")
                with producer.transaction() as txn:
                    for partition in range(partitions):
                        row = {"n": number * partitions + partition, "text": f"row {number}"}
                        txn.send(topic, [row], partition=partition)
    return list(range(files * partitions))


def gets_per_file(store: CountingStore, files: int, read: Callable[[], object]) -> float:
    """Return the GETs of data for each file that a call makes."""
    with store.measure() as measured:
        read()
    counts = measured.counts
    assert counts.count(None, KeyClass.DATA) > 0
    return counts.count(None, KeyClass.DATA) / files
