"""From a commit to the next reader's output: a plain-Python consumer, and a Spark query beside Spark's file
source.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.latency_processes import ROWS, SCHEMA, TOPIC, commit, poll
from bench.spark.session import session
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row, ratio
from txnlog import TxnLog

__all__ = ["BENCHMARKS"]

GROUPS = ROUNDS
"""Groups of commits whose medians are compared."""
IDLE_COMMITS = 5
"""Number of commits of a group."""
IDLE_BREAK_S = (1.2, 2.2)
FILES_BREAK_S = (0.4, 0.8)
"""Spark's file source never idles for longer."""
BUSY_COMMITS = 30
BUSY_BREAK_S = (0.03, 0.07)
WARM_UP = 5
OUTPUT_S = 180.0
"""How long an output may take."""
END_S = 30.0

FAR_MS = 30.0
FAR_BREAK_S = 2.0
FAR_INTERVALS_MS = (1_000, 250)

Latencies = dict[str, list[list[float]]]
"""Milliseconds of each commit, by group; by whether readers were idle before ("idle") or busy ("busy")."""


@contextmanager
def _process(work: Any, *given: Any) -> Iterator[Connection]:
    """Run a process that is told what to do, and to end, through a pipe."""
    context = multiprocessing.get_context(
        "spawn"
    )  # a forkserver would be that of all benchmarks, without their modules
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *given), daemon=True)
    process.start()
    theirs.close()
    try:
        if ours.recv() != "ready":
            raise RuntimeError("a process did not begin")
        yield ours
    finally:
        if process.is_alive():
            with suppress(BrokenPipeError):
                ours.send(None)
        process.join(END_S)
        ours.close()


class _Output:
    """When the rows of each commit came out of a query."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}
        self._changed = threading.Condition()

    def take(self, frame: DataFrame, _batch: int) -> None:
        """Take a micro-batch, for ``foreachBatch``."""
        numbers = {row["number"] for row in frame.collect()}
        now = time.monotonic()
        with self._changed:
            for number in numbers:
                self.seen.setdefault(number, now)
            self._changed.notify_all()

    def wait_for(self, numbers: range, query: StreamingQuery) -> None:
        """Wait until all of them have come out."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.seen.keys() >= set(numbers), OUTPUT_S):
                raise RuntimeError(
                    f"not all of {numbers} came out, but {list(self.seen)}: {query.exception()}"
                )


def _commits(
    context: Context,
    name: str,
    producer: Connection,
    query: StreamingQuery,
    output: _Output,
    idle_break_s: tuple[float, float],
) -> dict[str, list[dict[int, float]]]:
    """Let a process commit while a query runs; return the times of the commits, by kind and group."""
    found: dict[str, list[dict[int, float]]] = {"idle": [], "busy": []}
    next_number = 0
    plan = [("", WARM_UP, idle_break_s)]
    for _ in range(GROUPS):
        plan += [("idle", IDLE_COMMITS, idle_break_s), ("busy", BUSY_COMMITS, BUSY_BREAK_S)]
    for kind, count, breaks in plan:
        context.tick(f"{name}: {kind or 'warming up'}")
        numbers = range(next_number, next_number + count)
        next_number += count
        producer.send((numbers, *breaks))
        done = producer.recv()
        output.wait_for(numbers, query)
        if kind:
            found[kind].append(done)
    return found


def _latencies(done: Mapping[str, Sequence[Mapping[int, float]]], seen: Mapping[int, float]) -> Latencies:
    return {
        kind: [[(seen[number] - at) * 1_000 for number, at in group.items()] for group in groups]
        for kind, groups in done.items()
    }


def _started(frame: DataFrame, folder: Path, output: _Output) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(output.take)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _from_log(context: Context, spark: SparkSession) -> dict[str, Latencies]:
    folder, output = context.folder / "of-log", _Output()
    folder.mkdir()
    log = str(folder / "log")
    with TxnLog.create(log) as created:
        created.create_topic(TOPIC, SCHEMA)
    frame = spark.readStream.format("txnlog").option("topic", TOPIC).option("startingOffsets", "earliest")
    query = _started(frame.load(log), folder, output)
    try:
        with _process(poll, log) as consumer, _process(commit, log, folder) as producer:
            done = _commits(context, "txnlog", producer, query, output, IDLE_BREAK_S)
            consumer.send(len(output.seen))
            seen = consumer.recv()
    finally:
        query.stop()
    return {"spark": _latencies(done, output.seen), "consumer": _latencies(done, seen)}


def _from_files(context: Context, spark: SparkSession) -> Latencies:
    folder, output = context.folder / "of-files", _Output()
    files = folder / "files"
    files.mkdir(parents=True)
    frame = spark.readStream.schema("number long").parquet(str(files))
    query = _started(frame, folder, output)
    try:
        with _process(commit, None, files) as producer:
            done = _commits(context, "files", producer, query, output, FILES_BREAK_S)
    finally:
        query.stop()
    return _latencies(done, output.seen)


def _high(latencies: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(latencies)[math.ceil(0.99 * len(latencies)) - 1]


def _medians(groups: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(statistics.median(group) for group in groups)


def measure(context: Context) -> list[Measurement]:
    """Return the latencies."""
    context.tick("starting Spark")
    with session(context.folder) as spark:
        found = {**_from_log(context, spark), "files": _from_files(context, spark)}
    measured = []
    for kind in ("idle", "busy"):
        medians = {name: _medians(latencies[kind]) for name, latencies in found.items()}
        details = {
            f"{name}_{kind}_{what}_ms": round(value, 1)
            for name, latencies in found.items()
            for what, value in (
                ("p50", statistics.median(medians[name])),
                ("p99", _high([one for group in latencies[kind] for one in group])),
                ("least", min(map(min, latencies[kind]))),
            )
        }
        for name in ("consumer", "spark"):
            measured += [
                Measurement(f"latency-{name}-{kind}", medians[name], details),
                Measurement(f"latency-{name}-{kind}-p99", tuple(map(_high, found[name][kind])), details),
            ]
        measured.append(ratio(f"latency-spark-{kind}-files", medians["spark"], medians["files"], **details))
    return measured


def measure_far(context: Context) -> list[Measurement]:
    """Return the latencies of consumers whose requests take 30 ms, by their look interval, of the same
    commits.
    """
    log = str(context.folder / "far")
    with TxnLog.create(log) as created:
        created.create_topic(TOPIC, SCHEMA)
    with ExitStack() as stack:
        consumers = {
            interval_ms: stack.enter_context(_process(poll, log, interval_ms, FAR_MS))
            for interval_ms in FAR_INTERVALS_MS
        }
        producer = stack.enter_context(_process(commit, log, context.folder))
        done: dict[str, list[dict[int, float]]] = {"jitter": [], "regular": []}
        next_number = 0
        for kind, breaks in (("jitter", IDLE_BREAK_S), ("regular", (FAR_BREAK_S, FAR_BREAK_S))):
            for group in range(1 + GROUPS):  # the first one is not counted: the rhythm is new
                context.tick(f"30 ms a request, {kind}: {group}/{GROUPS}")
                numbers = range(next_number, next_number + IDLE_COMMITS)
                next_number = numbers.stop
                producer.send((numbers, *breaks))
                times = producer.recv()
                if group:
                    done[kind].append(times)
        seen = {}
        for interval_ms, consumer in consumers.items():
            consumer.send(next_number)
            seen[interval_ms] = consumer.recv()
    return [
        Measurement(f"latency-far-{interval_ms}-{kind}", _medians(groups))
        for interval_ms, times in seen.items()
        for kind, groups in _latencies(done, times).items()
    ]


READERS = {
    "consumer": "a plain-Python Consumer that polls",
    "spark": "a Spark query, default trigger, foreachBatch",
}
KINDS = {"idle": "after a pause", "busy": "among others"}


def _rows(name: str, kind: str) -> tuple[Row, ...]:
    work = f"from a commit to the output of {READERS[name]}; commit {KINDS[kind]}"
    rows: tuple[Row, ...] = (
        Row(key=f"latency-{name}-{kind}", work=work, against="–", figure="ms, median", digits=0),
        Row(
            key=f"latency-{name}-{kind}-p99",
            work=work,
            against="–",
            figure="ms, 99th percentile of a round",
            digits=0,
        ),
    )
    if name == "spark":
        rows += (
            Row(
                key=f"latency-{name}-{kind}-files",
                work=work,
                against="Spark's file source, from the rename of a file",
                figure="times its median",
            ),
        )
    return rows


BENCHMARKS = (
    Benchmark(
        name="commit-to-output",
        how=(
            f"A process of plain Python commits transactions of {ROWS} rows to a log on local disk; timed "
            "is from the commit's "
            "answer until the rows are in the hands of another process: returned by `poll`, or collected "
            "in `foreachBatch`. "
            f"After a pause: {GROUPS} groups of {IDLE_COMMITS} commits, {IDLE_BREAK_S[0]:g} to "
            f"{IDLE_BREAK_S[1]:g} s apart, so "
            "that readers are idle: on a local disk they look every 20 ms (the 99th percentile of so few "
            "is the slowest; that of all is below). "
            f"Among others: {GROUPS} groups of {BUSY_COMMITS} commits, {BUSY_BREAK_S[0] * 1_000:.0f} to "
            f"{BUSY_BREAK_S[1] * 1_000:.0f} ms apart: no reader is idle. Both readers read the same "
            "commits at the same time. Spark's file source, in a turn of "
            "its own, gets a Parquet file of the same rows for each commit; it lists its directory all "
            "the time (every 10 ms on a "
            "local disk), which on an object store is a request each time. local[2], Unix domain sockets."
        ),
        rows=tuple(row for kind in KINDS for name in READERS for row in _rows(name, kind)),
        measure=measure,
        minutes=2,
    ),
    Benchmark(
        name="commit-to-far-output",
        how=(
            f"As commit-to-output with a plain-Python Consumer, each of whose requests takes {FAR_MS:.0f} "
            "ms more; the producer is on the local disk. "
            f"Commits are {IDLE_BREAK_S[0]:g} to {IDLE_BREAK_S[1]:g} s apart, or {FAR_BREAK_S:g} s. Each "
            f"of {GROUPS} groups has {IDLE_COMMITS} commits."
        ),
        rows=tuple(
            Row(
                key=f"latency-far-{interval_ms}-{kind}",
                work=f"from a commit to the output of a Consumer, {FAR_MS:.0f} ms a request, {text}, "
                f"look_interval_ms={interval_ms}",
                against="–",
                figure="ms, median",
                target=200,
                at_least=False,
                digits=0,
            )
            for interval_ms in FAR_INTERVALS_MS
            for kind, text in (("jitter", "commits 1.2 to 2.2 s apart"), ("regular", "a commit every 2 s"))
        ),
        measure=measure_far,
        minutes=1,
    ),
)
