"""The requests of streams, as docs/spark-streams.md states them: each process of a query for itself. No
session needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.cost import dollars
from bench.spark.hundred_queries import SCHEMA, ManualClock, Query, looked
from bench.spark.workers import Worker
from spark_datasource.options.read import parse_read_options
from spark_datasource.stream.followed_log import FollowedLog
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore, RequestClass, RequestCounts
from txnlog_testing.stores.latency import FarStore

ENTRY_GET = RequestClass(RequestKind.GET, KeyClass.ENTRY)
PAYLOADS_GET = RequestClass(RequestKind.GET, KeyClass.PAYLOADS)
PAYLOADS_PUT = RequestClass(RequestKind.CREATE, KeyClass.PAYLOADS)
ENTRY_PUT = RequestClass(RequestKind.CREATE, KeyClass.ENTRY)
DATA_GET = RequestClass(RequestKind.GET_RANGE, KeyClass.DATA)
DATA_PUT = RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA)


@pytest.mark.parametrize(
    ("options", "interval_ms", "dollars_a_month"), [({}, 1_000, 1.05), ({"lookIntervalMs": "250"}, 250, 5)]
)
def test_an_idle_source_asks_once_an_interval_and_once_a_minute_more(
    options: dict[str, str], interval_ms: int, dollars_a_month: float
) -> None:
    store = CountingStore(FarStore(MemoryStore()))
    with TxnLog.create(store) as log:
        log.create_topic("t", SCHEMA)
    clock = ManualClock()
    followed = FollowedLog(parse_read_options({"path": "/log", "topic": "t", **options}), clock, store)
    for _ in range(20):  # the first waits double
        followed.follow(is_idle=True)
    begin = clock.now().wall_ms
    with store.measure() as measured:
        for _ in range(600_000 // interval_ms):
            followed.follow(is_idle=True)
    assert clock.now().wall_ms - begin == 600_000
    looks = 600_000 // interval_ms
    assert dict(measured.counts.requests) == {ENTRY_GET: looks + 10}
    assert dollars({"read": looks / 600}) <= dollars_a_month
    followed.log.close()


@pytest.mark.parametrize("embedding", [False, True], ids=["files", "embedded"])
@pytest.mark.parametrize(("others", "asked"), [(0, 1 + 2), (7, 1 + 2 + 4 + 8), (20, 1 + 2 + 4 + 8 + 16)])
def test_a_micro_batch_asks_for_each_entry_in_each_process_and_writes_one_entry(
    tmp_path: Path, others: int, asked: int, embedding: bool
) -> None:
    """Between two micro-batches lie the query's own entry, one of its producer, and those of others.

    A follower asks for the next one, then for two, four, eight, sixteen at once, up to the first that is not
    there. If the log embeds, it asks for a ten after three entries, which is not there: the others, on a
    local disk, write none.
    """
    path, tasks = str(tmp_path / "log"), Worker()
    with TxnLog.create(path, embedding=embedding) as log:
        query = Query(path, 0, tasks)
        for _ in range(2):
            query.feed()
            query.run()
        query.feed()
        for number in range(others):
            log.create_topic(f"other-{number}", SCHEMA)
        before = {**query.counts(), "tasks": tasks.counts}
        query.run()
        after = {**query.counts(), "tasks": tasks.counts}
        found = {part: dict((after[part] - before[part]).requests) for part in after}
        query.close()
    bundles = found["commit"].pop(PAYLOADS_PUT, 0)
    assert bundles in ((0, 1) if embedding else (0,)), (
        "the commit of each tenth entry writes the last ten together"
    )
    tens = {PAYLOADS_GET: 1} if embedding and others else {}
    assert found == {
        "producer": {},
        "source": {ENTRY_GET: asked, **tens},
        "plan": {ENTRY_GET: 1 + asked, **tens},
        "tasks": {ENTRY_GET: 1} if embedding else {DATA_GET: 1, DATA_PUT: 1},
        "commit": {ENTRY_GET: asked, ENTRY_PUT: 1, **tens},
    }


def test_costs_are_requests_times_prices() -> None:
    counts = RequestCounts(
        {
            ENTRY_GET: 5,
            DATA_GET: 2,
            ENTRY_PUT: 1,
            DATA_PUT: 1,
            RequestClass(RequestKind.LIST, KeyClass.ENTRY): 1,
            RequestClass(RequestKind.DELETE, KeyClass.DATA): 9,
        }
    )
    assert looked(counts) == {"read": 7, "write": 3}
    month = 30 * 24 * 3600
    prices = {"read": 0.5, "write": 2.0}
    assert dollars({"read": 1_000 / month, "write": 0}, prices) == pytest.approx(0.5)
    assert dollars({"read": 0, "write": 10_000 / month}, prices) == pytest.approx(20)
