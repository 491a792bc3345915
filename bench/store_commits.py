"""A warm commit on each store, against one bare conditional create of an object of the entry's size; on S3
also in requests.

The servers are on this machine, so a round trip is mostly the work of both sides. A bare request sends as
many bytes as the transaction's entry has, in the same process: through txnlog's own adapter, and on S3 also
through botocore's client as others use it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping

from bench.one_shot import rows
from bench.table import Benchmark, Context, Measurement, Row, ratio
from txnformat import keys
from txnformat.store.base import CreateOutcome
from txnformat.store.open import open_store
from txnlog import Producer, TxnLog
from txnlog_testing.stores.azurite import azurite_server
from txnlog_testing.stores.fault_proxy import FaultProxy
from txnlog_testing.stores.gcs import gcs_server
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

__all__ = ["BENCHMARKS"]

ROUNDS = 9
CALLS = 20
"""Calls of each in a round, one after the other in turn."""
WARM_UP = 1
COUNTED = 10
"""Commits whose requests are counted."""


def _calls(log: TxnLog, producer: Producer) -> tuple[dict[str, Callable[[], object]], bytes]:
    """Return a commit, and a bare create beside the log's own objects; and the bytes of the latter."""
    data = rows()

    def commit() -> None:
        producer.begin()
        producer.send("rows", data)
        producer.commit()

    commit()
    entry = log.store.head(keys.entry_key(log.state.entry))
    assert entry is not None
    body = bytes(entry.size)
    numbers = itertools.count()

    def create() -> None:
        outcome = log.store.create(f"_txnlog/probe/{next(numbers)}", body).outcome
        if outcome is not CreateOutcome.CREATED:
            raise RuntimeError(f"a bare create: {outcome.value}")

    return {"commit": commit, "create": create}, body


def _on_store(
    url: str, options: Mapping[str, str] | None, context: Context, s3: S3Server | None = None
) -> dict[str, list[float]]:
    """Return the median seconds of each call in each round, on a new log."""
    with TxnLog.create(url, storage_options=options) as log:
        log.create_topic("rows", rows().schema)
        with Producer(log, "bench") as producer:
            calls, body = _calls(log, producer)
            if s3 is not None:
                client, numbers = s3.client(), itertools.count()
                calls["botocore_put"] = lambda: client.put_object(
                    Bucket=s3.bucket, Key=f"other-{next(numbers)}", Body=body
                )
            return _rounds(calls, context)


def _ratio(key: str, seconds: Mapping[str, list[float]], other: str = "create") -> Measurement:
    medians = {f"{name}_ms": round(statistics.median(values) * 1_000, 2) for name, values in seconds.items()}
    return ratio(key, seconds["commit"], seconds[other], **medians)


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


def measure_s3(context: Context) -> list[Measurement]:
    """Return requests and time of a commit on S3."""
    with seaweedfs_server() as server:
        seconds = _on_store(server.url("log"), server.storage_options, context, server)
        requests = _requests(server)
    return [
        Measurement("s3-commit-requests", tuple(requests)),
        _ratio("s3-commit-time", seconds),
        _ratio("s3-commit-time-botocore", seconds, "botocore_put"),
    ]


def measure_others(context: Context) -> list[Measurement]:
    """Return the time of a commit on the other stores."""
    found = [_ratio("local-commit-time", _on_store(str(context.folder / "log"), None, context))]
    with azurite_server() as azure:
        found.append(_ratio("azure-commit-time", _on_store(azure.url("log"), azure.storage_options, context)))
    with gcs_server() as google:
        found.append(
            _ratio("google-commit-time", _on_store(google.url("log"), google.storage_options, context))
        )
    return found


_WORK = "warm one-shot commit of 1,000 rows on SeaweedFS"

BENCHMARKS = (
    Benchmark(
        name="s3-commit",
        how=(
            "A transaction of one send of 1,000 rows of four columns by a producer that is kept open, on "
            "a SeaweedFS server "
            "on this machine, against one conditional create of an object of the size of its entry by "
            "txnlog's own adapter, and against a PUT by "
            f"botocore's client. {ROUNDS} rounds of {CALLS} calls each, in turns of one. Requests are "
            "counted by a proxy: "
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
                against="one bare conditional create, same adapter",
                figure="times its time",
                target=1.5,
                at_least=False,
                note=(
                    "a commit is one PUT. The rest is encoding the Parquet file and the entry, and the "
                    "client's Python around them; where a PUT takes longer than on a "
                    "server of the same machine, that part of the ratio shrinks. `make bench "
                    "BENCH=s3-commit` gives the milliseconds of both"
                ),
            ),
            Row(
                key="s3-commit-time-botocore",
                work=_WORK,
                against="one bare PUT, botocore",
                figure="times its time",
            ),
        ),
        measure=measure_s3,
        minutes=0.5,
    ),
    Benchmark(
        name="store-commit",
        how=(
            f"The same on the other stores, {ROUNDS} rounds of {CALLS} calls each, in turns of one: a "
            "local disk, where a create is synced with its directory as a commit is; Azurite, an "
            "emulator of Azure; and moto, "
            "which stands in for Google and answers slowly. The servers are on this machine."
        ),
        rows=tuple(
            Row(
                key=f"{key}-commit-time",
                work=f"warm one-shot commit of 1,000 rows on {what}",
                against="one bare conditional create, same adapter",
                figure="times its time",
            )
            for key, what in (("local", "a local disk"), ("azure", "Azurite"), ("google", "moto, as Google"))
        ),
        measure=measure_others,
        minutes=1,
    ),
)
