"""A warm commit on a real S3 server, in requests and in time, against one bare PUT.

The server is SeaweedFS on this machine, so a round trip is mostly the work of both sides. A bare PUT sends as many bytes
as the transaction's entry has, in the same process: through txnlog's own adapter, and through botocore's client as
others use it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable

from bench.one_shot import rows
from bench.table import Benchmark, Context, Measurement, Row, ratio
from txnformat import keys
from txnformat.store.open import open_store
from txnlog import Producer, TxnLog
from txnlog_testing.stores.fault_proxy import FaultProxy
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

__all__ = ["BENCHMARKS"]

ROUNDS = 9
CALLS = 20
"""Calls of each in a round, one after the other in turn."""
WARM_UP = 1
COUNTED = 10
"""Commits whose requests are counted."""


def _calls(server: S3Server, log: TxnLog, producer: Producer) -> dict[str, Callable[[], object]]:
    data = rows()

    def commit() -> None:
        producer.begin()
        producer.send("rows", data)
        producer.commit()

    commit()
    entry = log.store.head(keys.entry_key(log.state.entry))
    assert entry is not None
    body = bytes(entry.size)
    store = open_store(server.url("bare"), storage_options=server.storage_options)
    client = server.client()
    numbers = itertools.count()
    return {
        "commit": commit,
        "put": lambda: store.put(f"object-{next(numbers)}", body),
        "botocore_put": lambda: client.put_object(
            Bucket=server.bucket, Key=f"other-{next(numbers)}", Body=body
        ),
    }


def _rounds(calls: dict[str, Callable[[], object]], context: Context) -> dict[str, list[float]]:
    """Return the median seconds of each call in each round; the calls alternate."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM_UP + ROUNDS):
        context.tick(f"{number + 1}/{WARM_UP + ROUNDS}")
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(CALLS):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                seconds[name].append(time.perf_counter() - start)
        if number >= WARM_UP:
            for name, values in seconds.items():
                found[name].append(statistics.median(values))
    return found


def _requests(server: S3Server) -> list[float]:
    """Return the HTTP requests of each of some warm commits, as a proxy sees them."""
    data = rows()
    counted = []
    with FaultProxy(server.endpoint_url) as proxy:
        options = {**server.storage_options, "endpoint_url": proxy.url}
        store = open_store(server.url("log"), storage_options=options)
        with TxnLog.open(store) as log, Producer(log, "counted") as producer:
            for _ in range(1 + COUNTED):
                before = proxy.counts.requests.total()
                producer.begin()
                producer.send("rows", data)
                producer.commit()
                counted.append(float(proxy.counts.requests.total() - before))
    return counted[1:]


def measure(context: Context) -> list[Measurement]:
    """Return requests and time of a commit."""
    with seaweedfs_server() as server:
        store = open_store(server.url("log"), storage_options=server.storage_options)
        with TxnLog.create(store) as log:
            log.create_topic("rows", rows().schema)
            with Producer(log, "bench") as producer:
                seconds = _rounds(_calls(server, log, producer), context)
        requests = _requests(server)
    medians = {f"{name}_ms": round(statistics.median(values) * 1_000, 2) for name, values in seconds.items()}
    return [
        Measurement("s3-commit-requests", tuple(requests)),
        ratio("s3-commit-time", seconds["commit"], seconds["put"], **medians),
        ratio("s3-commit-time-botocore", seconds["commit"], seconds["botocore_put"], **medians),
    ]


_WORK = "warm one-shot commit of 1,000 rows on SeaweedFS"

BENCHMARKS = (
    Benchmark(
        name="s3-commit",
        how=(
            "A transaction of one send of 1,000 rows of four columns by a producer that is kept open, on a SeaweedFS server "
            "on this machine, against one PUT of an object of the size of its entry: by txnlog's own adapter, and by "
            f"botocore's client. {ROUNDS} rounds of {CALLS} calls each, in turns of one. Requests are counted by a proxy: "
            "it is one: the entry, with the rows in it."
        ),
        rows=(
            Row(
                key="s3-commit-requests",
                work=_WORK,
                against="–",
                figure="HTTP requests",
                target=1,
                at_least=False,
                digits=0,
            ),
            Row(
                key="s3-commit-time",
                work=_WORK,
                against="one bare PUT, same adapter",
                figure="times its time",
                target=1.5,
                at_least=False,
                note=(
                    "a commit is one PUT. The rest is encoding the Parquet file and the entry, and the client's Python around them; where a PUT takes longer than on a "
                    "server of the same machine, that part of the ratio shrinks. `make bench BENCH=s3-commit` gives the milliseconds of both"
                ),
            ),
            Row(
                key="s3-commit-time-botocore",
                work=_WORK,
                against="one bare PUT, botocore",
                figure="times its time",
            ),
        ),
        measure=measure,
        minutes=0.5,
    ),
)
