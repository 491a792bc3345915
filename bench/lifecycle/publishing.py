"""A publication after 1,000 new commits: requests and time, apart from following, sealing and a
checkpoint.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

from bench.table import ROUNDS, Benchmark, Context, Measurement, Row
from txnformat.store.local import LocalStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = ["BENCHMARKS"]

COMMITS = 1_000
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.float64())])
TOPICS = {"embedded": {}, "files": {"embed": "false"}}
"""Settings by topic: rows in the entries, which a seal makes one file of, and a file of each commit."""


def _commit(producer: Producer, count: int) -> None:
    for number in range(count):
        with producer.transaction() as txn:
            for topic in TOPICS:
                txn.send(topic, [{"id": number, "amount": number / 2}])


def measure(context: Context) -> list[Measurement]:
    """Return the requests of a topic and the milliseconds of a publication of both topics."""
    root = context.folder / "log"
    requests, milliseconds, files = [], [], 0
    with TxnLog.create(root) as log, Producer(log, "bench") as producer:
        for topic, settings in TOPICS.items():
            log.create_topic(topic, SCHEMA, settings=settings)
        _commit(producer, 1)
        store = CountingStore(LocalStore(Path(root)))
        with TxnLog.open(store) as publisher:
            publisher.publish()
            for number in range(ROUNDS):
                context.tick(f"{number + 1}/{ROUNDS}")
                _commit(producer, COMMITS)
                log.maintain("seal")
                publisher.refresh()
                with store.measure() as measured:
                    began = time.perf_counter()
                    report = publisher.publish()
                    milliseconds.append((time.perf_counter() - began) * 1_000)
                counts = measured.counts
                following = counts.count(RequestKind.GET, KeyClass.ENTRY)
                requests.append((counts.count() - following) / len(TOPICS))
                files = sum(one.added for one in report.topics)
    details = {"commits": COMMITS, "topics": len(TOPICS), "files_added": files}
    return [
        Measurement("publish-requests", tuple(requests), details),
        Measurement("publish-ms", tuple(milliseconds), details),
    ]


BENCHMARKS = (
    Benchmark(
        name="publish",
        how=(
            f"`log.publish()` by a process that has published before, after {COMMITS:,} transactions of "
            "one row for each of two topics: one whose rows travel in the entries, so that a seal has "
            "made a "
            "file of them, and one with a file for each commit. The log was sealed and the publisher has "
            "followed it before; requests are counted at the store, on a local disk."
        ),
        rows=(
            Row(
                key="publish-requests",
                work=f"publication after {COMMITS:,} commits, apart from following and sealing: requests "
                "of a topic",
                against="–",
                figure="requests",
                target=4,
                at_least=False,
                digits=1,
            ),
            Row(
                key="publish-ms",
                work=f"the same publication, both topics: {COMMITS:,} files of one and one of the other "
                "are new",
                against="–",
                figure="ms",
                digits=1,
            ),
        ),
        measure=measure,
        minutes=0.5,
    ),
)
