"""Records without a key: producers that send little spread over the partitions, and each keeps its order in
one."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.model.groups import DrawnIds
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from writers.bulk import BulkAppend
from writers.producer import Producer
from writers.settings import MIB

NUMBERS = pa.schema([("n", pa.int64())])


def send_one(log: TxnLog, way: str, data: Any) -> None:
    """Send to topic ``t`` as a program does that starts, sends and ends."""
    if way == "bulk":
        with BulkAppend(log) as append:
            append.send("t", data)
            append.commit()
        return
    with Producer(log, "p" if way == "transaction" else None) as producer:
        if way == "transaction":
            producer.begin()
        producer.send("t", data)
        if way == "transaction":
            producer.commit()


@pytest.mark.parametrize("key_columns", [[], ["key"]], ids=["no key column", "null keys"])
@pytest.mark.parametrize("way", ["producer", "transaction", "bulk"])
def test_short_lived_producers_spread_over_the_partitions(way: str, key_columns: list[str]) -> None:
    store = MemoryStore()
    schema = pa.schema([*NUMBERS, ("key", pa.string())])
    TxnLog.create(store).create_topic("t", schema, partitions=4, key_columns=key_columns)
    for number in range(20):
        log = TxnLog.open(store, ids=DrawnIds(number))
        send_one(log, way, [{"n": number, "key": None}])
    found = Counter(TxnLog.open(store).read("t", columns=["_partition"]).read_all()[0].to_pylist())
    assert sum(found.values()) == 20
    assert len(found) == 4
    assert max(found.values()) <= 10


def test_a_producer_goes_on_to_the_next_partition_with_each_flush() -> None:
    log = TxnLog.create(MemoryStore(), ids=DrawnIds(1))
    log.create_topic("t", NUMBERS, partitions=4)
    places = []
    with Producer(log, "p") as producer:
        for number in range(8):
            with producer.transaction() as txn:
                txn.send("t", [{"n": number}])
                txn.send("t", [{"n": number + 100}])
            assert txn.info is not None
            ((_, partition),) = txn.info.offsets
            places.append(partition)
    assert [(after - before) % 4 for before, after in pairwise(places)] == [1] * 7


def test_a_producer_keeps_its_order_inside_a_partition() -> None:
    log = TxnLog.create(MemoryStore(), ids=DrawnIds(2))
    log.create_topic("t", NUMBERS, partitions=3)
    with (
        Producer(log, "p", batch_bytes=64 * 1024, buffer_bytes=MIB) as producer,
        producer.transaction() as txn,
    ):
        for first in range(0, 100_000, 1_000):
            if first % 10_000 == 0:
                for number in range(first, first + 1_000):
                    txn.send("t", [{"n": number}])
            else:
                txn.send("t", pa.table({"n": range(first, first + 1_000)}))
    read = log.read("t", columns=["_partition", "n"]).read_all()
    places = read.column("_partition").to_pylist()
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for partition, number in zip(places, read.column("n").to_pylist(), strict=True):
        found[partition].append(number)
    assert sorted(chain.from_iterable(found.values())) == list(range(100_000))
    for numbers in found.values():
        assert numbers == sorted(numbers)
        assert 20_000 < len(numbers) < 47_000  # batches of 64 KiB go round
