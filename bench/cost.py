"""`make cost`: dollars a month of stated workloads.

The real code runs on a store in memory that counts its requests; prices turn them into dollars.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from txnformat.looking.costs import PRICES
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnlog import Consumer, Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass, RequestCounts
from txnlog_testing.stores.latency import FarStore

__all__ = ["PRICES", "WORKLOADS", "Bill", "Workload", "bill", "billed", "dollars", "embedded", "row"]

MONTH_S = 30 * 24 * 3600
STORAGE = 0.023
"""US$ for a gigabyte (10 ** 9 bytes) and month, likewise."""
COMMITS = 2_000
"""Commits that a workload is counted over: snapshots, bundles and seals come only now and then."""
EMBEDDED_COMMITS = 8_300
"""Commits in their entries that are counted: two seals are among them."""
SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True)
class Workload:
    """The repeated work, and how often it is done."""

    name: str
    every_s: float
    """Seconds between two steps."""
    begin: Callable[[CountingStore], tuple[TxnLog, Callable[[], None]]]
    """Prepares a log on a store, and returns it and one step."""
    steps: int = COMMITS
    """Steps that are counted."""


@dataclass(frozen=True)
class Bill:
    """The costs of a workload."""

    name: str
    writes: float
    """PUT and LIST a step."""
    reads: float
    """GET a step."""
    requests_usd: float
    """A month."""
    metadata_gb: float
    """Gigabytes of entries, snapshots, bundles and sidecars that a month adds."""
    metadata_usd: float
    """A month of keeping what a month adds."""


def billed(counts: RequestCounts, without: frozenset[RequestClass] = frozenset()) -> Counter[str]:
    """Return requests, but for those of some classes, by what they are billed as."""
    found = Counter[str]()
    for request, number in counts.requests.items():
        if request.operation is not RequestKind.DELETE and request not in without:
            is_read = request.operation in (RequestKind.GET, RequestKind.GET_RANGE, RequestKind.HEAD)
            found["read" if is_read else "write"] += number
    return found


def dollars(per_second: Mapping[str, float], prices: Mapping[str, float] = PRICES) -> float:
    """Return what requests, so many in a second by what they are billed as, cost in a month of 30 days,
    US$.
    """
    return sum(number * MONTH_S / 1_000 * prices[kind] for kind, number in per_second.items())


def bill(workload: Workload) -> Bill:
    """Run a workload, and return what it costs. Preparing the log is not counted."""
    store = CountingStore(FarStore(MemoryStore()))
    log, step = workload.begin(store)
    before = _metadata_bytes(store)
    with store.measure() as measured:
        for _ in range(workload.steps):
            step()
            log.close()  # a snapshot, seal or bundle that is under way ends before the next step
    counts = billed(measured.counts)
    a_second = {kind: number / workload.steps / workload.every_s for kind, number in counts.items()}
    added = (_metadata_bytes(store) - before) / workload.steps / workload.every_s * MONTH_S / 10**9
    return Bill(
        workload.name,
        round(counts["write"] / workload.steps, 3),
        round(counts["read"] / workload.steps, 3),
        round(dollars(a_second), 2),
        round(added, 3),
        round(added * STORAGE, 2),
    )


def _metadata_bytes(store: CountingStore) -> int:
    return sum(info.size for info in store.list("") if not info.key.endswith(".parquet"))


def _service(
    topics: int, partitions: int, **settings: Any
) -> Callable[[CountingStore], tuple[TxnLog, Callable[[], None]]]:
    """Return how a transactional producer begins, which writes some records to each of some topics.

    ``settings``: of the producer.
    """

    def begin(store: CountingStore) -> tuple[TxnLog, Callable[[], None]]:
        log = TxnLog.create(store)
        names = [f"topic-{number}" for number in range(topics)]
        for name in names:
            log.create_topic(name, SCHEMA, partitions=partitions)
        rows = pa.table([pa.array(range(partitions)), pa.array([0.5] * partitions)], schema=SCHEMA)
        producer = Producer(log, "service", **settings)
        producer.init()

        def step() -> None:
            with producer.transaction() as txn:
                for name in names:
                    txn.send(name, rows)

        return log, step

    return begin


def embedded(store: CountingStore, **components: Any) -> tuple[TxnLog, Callable[[], None]]:
    """Begin with a transactional producer whose transactions of three rows travel in their entries.

    ``components``: of the log.
    """
    log = TxnLog.create(store, **components)
    log.create_topic("topic", SCHEMA)
    rows = pa.table([[1, 2, 3], [0.5] * 3], schema=SCHEMA)
    producer = Producer(log, "service")
    producer.init()

    def step() -> None:
        with producer.transaction() as txn:
            txn.send("topic", rows)

    return log, step


def _idle(store: CountingStore) -> tuple[TxnLog, Callable[[], None]]:
    """Begin with a reader that looks, and finds nothing."""
    log = TxnLog.create(store)
    log.create_topic("topic", SCHEMA)
    log.refresh()

    def step() -> None:
        log.refresh()

    return log, step


def _followed(store: CountingStore) -> tuple[TxnLog, Callable[[], None]]:
    """Begin with a producer, and a consumer in a group that reads each transaction, and commits its
    position.
    """
    log = TxnLog.create(store)
    log.create_topic("topic", SCHEMA)
    rows = pa.table([[1], [0.5]], schema=SCHEMA)
    producer = Producer(log, "service")
    producer.init()
    consumer = Consumer(TxnLog.open(store), "readers", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.subscribe(["topic"])

    def step() -> None:
        with producer.transaction() as txn:
            txn.send("topic", rows)
        consumer.poll()
        consumer.commit()

    return log, step


WORKLOADS = (
    Workload("a service: 1 transaction a second to 3 topics", 1, _service(3, 4)),
    Workload("the same, its files uploaded (`embed_bytes=0`)", 1, _service(3, 4, embed_bytes=0)),
    Workload("1 transaction of 3 rows a second, in its entry", 1, embedded, steps=EMBEDDED_COMMITS),
    Workload("a stream: a micro-batch every 10 s to 1,000 partitions", 10, _service(1, 1_000), steps=300),
    Workload("a stream: a micro-batch every minute to 10 partitions", 60, _service(1, 10)),
    Workload("a follower that looks once a second, and finds nothing", 1, _idle),
    Workload("1 transaction a second, and a consumer that commits as often", 1, _followed),
)
"""Every workload."""


def row(one: Bill) -> str:
    """Return a row of the table in docs/operate.md."""
    figures = (one.writes, one.reads, one.requests_usd, one.metadata_gb, one.metadata_usd)
    return f"| {one.name} | {' | '.join(f'{figure:,.2f}' for figure in figures)} |"


def main() -> None:
    """Print what every workload costs."""
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with Progress(console=Console(stderr=True), disable=given.json) as progress:
        bills = [bill(workload) for workload in progress.track(WORKLOADS, description="workloads")]
    if given.json:
        print(json.dumps([asdict(one) for one in bills]))
        return
    for one in bills:
        print(row(one))


if __name__ == "__main__":
    main()
