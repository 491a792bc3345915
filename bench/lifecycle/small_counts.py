"""``count()`` in Spark of many small commits, and of as many small Parquet files by Spark's own source, where
each request takes its time.

``python -m bench.lifecycle.small_counts ENDPOINT FOLDER`` counts both in a process of its own, and prints the
seconds.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.lifecycle.small_commits import COMMITS, FAR_MS, ROWS, SCHEMA, TOPIC, rows_of, write
from bench.spark.session import session
from bench.table import Benchmark, Context, Measurement, Row
from txnlog_testing.stores.fault_proxy import FaultProxy, ProxyFault, ProxyFaultKind
from txnlog_testing.stores.http_wire import Request
from txnlog_testing.stores.s3_server import S3Server, seaweedfs_server

__all__ = ["BENCHMARKS"]

ROUNDS = 5
"""Counts of the log; Spark's source counts once, which takes minutes."""
UPLOADS = 8
"""At a time."""
MOST_S = 3_600
"""After that a count that has not ended is a defect."""


def _late(request: Request, nth: int) -> ProxyFault:
    return ProxyFault(ProxyFaultKind.DELAY, delay_ms=int(FAR_MS))


def _objects(log: Path) -> Iterator[tuple[str, bytes]]:
    """Return the objects of the log, and the files, one for each commit."""
    for path in sorted(log.rglob("*")):
        if path.is_file():
            yield f"log/{path.relative_to(log).as_posix()}", path.read_bytes()
    for number in range(COMMITS):
        file = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows_of(number), schema=SCHEMA), file)
        yield f"files/part-{number:05}.parquet", file.getvalue()


def _upload(server: S3Server, log: Path) -> None:
    client = server.client()

    def put(one: tuple[str, bytes]) -> None:
        client.put_object(Bucket=server.bucket, Key=one[0], Body=one[1])

    with ThreadPoolExecutor(UPLOADS) as pool:
        for _ in pool.map(put, _objects(log)):
            pass


def _timed(call: Callable[[], int]) -> float:
    start = time.perf_counter()
    rows = call()
    if rows != COMMITS * ROWS:
        raise RuntimeError(f"{rows} rows were counted, not {COMMITS * ROWS}")
    return time.perf_counter() - start


def count(server: S3Server, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of each count: of the log, of the files, and of the log again."""
    with session(folder, server.spark_settings) as spark:

        def ours() -> int:
            return spark.read.format("txnlog").option("topic", TOPIC).load(server.url("log", "s3a")).count()

        def theirs(files: str = "files") -> int:
            schema = "number BIGINT, text STRING, value DOUBLE"
            return spark.read.schema(schema).parquet(server.url(files, "s3a")).count()

        ours()
        theirs("files/part-00000.parquet")
        found = {"txnlog": [_timed(ours)], "files": [_timed(theirs)]}
        found["txnlog"] += [_timed(ours) for _ in range(ROUNDS - 1)]
    return found


def _measure(context: Context) -> Sequence[Measurement]:
    context.tick(f"writing {COMMITS:,} commits")
    write(context.folder / "log", COMMITS)
    with seaweedfs_server() as server:
        context.tick("uploading")
        _upload(server, context.folder / "log")
        with FaultProxy(server.endpoint_url, _late, time_scale=1) as proxy:
            context.tick("counting, for minutes")
            found: dict[str, list[float]] = json.loads(_run(server, proxy.url, context.folder))
    theirs = found["files"][0]
    details = {
        "txnlog_s": round(statistics.median(found["txnlog"]), 2),
        "files_s": round(theirs, 1),
    }
    return [Measurement("small-counts", tuple(theirs / ours for ours in found["txnlog"]), details)]


def _run(server: S3Server, endpoint: str, folder: Path) -> str:
    command = [sys.executable, "-m", __spec__.name, endpoint, str(folder)]
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": server.key,
        "AWS_SECRET_ACCESS_KEY": server.secret,
    }
    done = subprocess.run(
        command, env=environment, timeout=MOST_S, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()[-1]


BENCHMARKS = (
    Benchmark(
        name="small-counts",
        how=(
            f"{COMMITS:,} transactions of {ROWS} rows, written as for the cold reads above, and as many "
            "Parquet files of the same rows, in a bucket of SeaweedFS on this machine, behind a proxy "
            "that holds "
            f"each answer back for {FAR_MS:.0f} ms; local[2]. Spark's source reads through s3a, is given "
            'its schema, and counts once, because that takes minutes; `format("txnlog")` counts once '
            "before it and "
            f"{ROUNDS - 1} times after it. The times are those of the whole call, planning included."
        ),
        rows=(
            Row(
                key="small-counts",
                work=f"`count()` in Spark of {COMMITS:,} commits of {ROWS} rows, {FAR_MS:.0f} ms a request",
                against="Spark's Parquet source over as many files",
                figure="times its speed",
                target=10,
                digits=1,
            ),
        ),
        measure=_measure,
        minutes=10,
    ),
)


if __name__ == "__main__":
    server = S3Server(
        endpoint_url=sys.argv[1],
        key=os.environ["AWS_ACCESS_KEY_ID"],
        secret=os.environ["AWS_SECRET_ACCESS_KEY"],
    )
    print(json.dumps(count(server, Path(sys.argv[2]))))
