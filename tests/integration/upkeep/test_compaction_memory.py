"""The memory of a compaction is bounded by its settings, not by the bytes that it rewrites."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog

SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
RECORDS = 20_000


def _high_water(commits: int) -> int:
    """Return the most bytes that Arrow held at once while a topic of ``commits`` files was compacted."""
    store, random = MemoryStore(), np.random.default_rng(7)
    with TxnLog.create(store) as log:
        log.create_topic("orders", SCHEMA)
        with Producer(log, "writer") as producer:
            for number in range(commits):
                ids = np.arange(number * RECORDS, (number + 1) * RECORDS)
                with producer.transaction() as txn:
                    txn.send(
                        "orders", pa.table({"id": ids, "amount": random.uniform(1, 1_000, RECORDS)}, SCHEMA)
                    )
    default = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(default)
    pa.set_memory_pool(pool)
    try:
        with TxnLog.open(store) as log:
            log.compact("orders", min_lag_ms=0)
    finally:
        pa.set_memory_pool(default)
    return int(pool.max_memory())


def test_four_times_the_input_takes_no_more_memory() -> None:
    once = _high_water(20)
    assert once > 0
    assert _high_water(80) < 1.5 * once
