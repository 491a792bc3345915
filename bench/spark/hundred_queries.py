"""A hundred queries on one root: requests and what they cost, computed from counts, and where one root stops.

Counts are those of the very steps that Spark has its Python processes do, in this process
(:mod:`bench.spark.workers`).
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa

import txnformat.log
from bench.contention import FAR_MS, Run, crew
from bench.cost import MONTH_S, PRICES, billed, dollars
from bench.spark.workers import SinkSteps, Worker
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row, ratio
from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.options.read import parse_read_options
from spark_datasource.stream.followed_log import FollowedLog
from txnformat.clock import Instant
from txnformat.store.open import open_store
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import Producer, TxnLog
from txnlog_testing.stores.counting import RequestClass, RequestCounts

__all__ = ["BENCHMARKS", "SCHEMA", "ManualClock", "Query", "looked"]

QUERIES = 100
GROUPS = 5
"""Number of groups of queries, whose counts are compared."""
WARM_UP = 2
"""Rounds before those that are counted."""
COUNTED_S = 60
ROWS = 100
"""Rows of a commit."""
IDLE_MINUTES = 10
INTERVALS_S = (10, 30)
"""Between the micro-batches of one query."""
CROWD = 100
CROWD_SECONDS = 3.0
CROWD_ROUNDS = ROUNDS
_BOUNDARY = RequestClass(RequestKind.LIST, KeyClass.BOUNDARY)

SCHEMA = pa.schema([("number", pa.int64()), ("value", pa.float64())])


class ManualClock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self._ms = 1_700_000_000_000

    def now(self) -> Instant:
        """Return both clocks."""
        return Instant(self._ms, self._ms)

    def sleep(self, seconds: float, wake: object = None) -> None:
        """Let that time have passed."""
        self._ms += round(seconds * 1_000)


def looked(counts: RequestCounts) -> Counter[str]:
    """Return requests by what they are billed as; without the LIST of a process that has not looked for a
    minute.

    How much time passes between two looks here says nothing about real queries.
    """
    return billed(counts, without=frozenset({_BOUNDARY}))


def _block(first: int) -> pa.Table:
    numbers = pa.array(range(first, first + ROWS), pa.int64())
    return pa.table([numbers, numbers.cast(pa.float64())], schema=SCHEMA)


class Query:
    """A query from one topic of a log to another one, and the producer that feeds it.

    Parameters
    ----------
    tasks : Worker
        May be shared: an executor's workers serve all queries.
    """

    def __init__(self, path: str, number: int, tasks: Worker) -> None:
        self._rows_read = 0
        self._batches = 0
        self._feeding, self._source = Worker(), Worker()
        topics = self._input, _ = f"in-{number}", f"out-{number}"
        with self._feeding.running():
            self._log = TxnLog.open(path)
            for topic in topics:
                self._log.create_topic(topic, SCHEMA)
            self._producer = Producer(self._log, f"producer-{number}")
            self._producer.init()
        options = {"path": path, "topic": topics[0], "startingOffsets": "earliest"}
        source = TxnLogDataSource(options)
        with Worker().running():
            schema = source.schema()
        self._reader: Any = source.streamReader(schema)
        self._offset: dict[str, Any] | None = None
        self._sink = SinkSteps(f"query-{number}", path, topics[1], schema, tasks)

    def feed(self) -> None:
        """Commit some rows to its input."""
        with self._feeding.running(), self._producer.transaction() as transaction:
            transaction.send(self._input, _block(self._batches * ROWS))

    def run(self) -> None:
        """Run one micro-batch."""
        with self._source.running():
            start = self._reader.initialOffset() if self._offset is None else self._offset
            self._offset = self._reader.latestOffset(start)
            splits = self._reader.partitions(start, self._offset)
        self._sink.write(self._batches, self._read(splits))
        self._batches += 1
        if self._rows_read != self._batches * ROWS:
            raise RuntimeError(f"{self._rows_read} rows were read in {self._batches} micro-batches")

    def _read(self, splits: list[Any]) -> Iterator[pa.RecordBatch]:
        for split in splits:
            for batch in self._reader.read(split):
                self._rows_read += batch.num_rows
                yield batch

    def close(self) -> None:
        """Let go of the log."""
        self._reader.stop()
        with self._feeding.running():
            self._producer.close()
            self._log.close()

    def counts(self) -> dict[str, RequestCounts]:
        """Return the requests so far, by part."""
        return {
            "producer": self._feeding.counts,
            "source": self._source.counts,
            "plan": self._sink.planner.counts,
            "commit": self._sink.committer.counts,
        }


@dataclass(frozen=True, slots=True)
class _Group:
    """Queries whose tasks run in the same worker."""

    queries: list[Query]
    tasks: Worker


@dataclass(frozen=True, slots=True)
class _Found:
    """Requests of some micro-batches, and of the producers' commits that they read."""

    by_part: dict[str, Counter[str]]
    micro_batches: int

    def each(self, *parts: str) -> dict[str, float]:
        """Return the requests for each micro-batch, by what they are billed as."""
        found = Counter[str]()
        for part in parts:
            found += self.by_part[part]
        return {kind: found[kind] / self.micro_batches for kind in ("read", "write")}


QUERY_PARTS = ("source", "plan", "tasks", "commit")


def _totals(groups: Sequence[_Group]) -> list[dict[str, Counter[str]]]:
    found = []
    for group in groups:
        totals = {"tasks": looked(group.tasks.counts)}
        for query in group.queries:
            for part, counts in query.counts().items():
                totals[part] = totals.get(part, Counter()) + looked(counts)
        found.append(totals)
    return found


@contextmanager
def _timed(clock: ManualClock) -> Iterator[None]:
    """Let every log that is opened in the block go by a clock."""
    with mock.patch.object(txnformat.log, "SystemClock", return_value=clock):
        yield


def _active(context: Context, name: str, groups: int, queries: int, interval_s: int) -> list[_Found]:
    """Return what a micro-batch asks for, by group, where groups of so many queries share a root and each
    runs one in an interval.

    Counted is a minute, as some is done once a minute.
    """
    path, clock = f"memory://{context.folder}/{name}", ManualClock()
    store = open_store(path, clock)
    rounds = COUNTED_S // interval_s
    with _timed(clock), TxnLog.create(store):
        running = []
        for number in range(groups):
            context.tick(f"{name}: {queries * number}/{queries * groups} queries")
            tasks = Worker()
            first = number * queries
            running.append(_Group([Query(path, first + each, tasks) for each in range(queries)], tasks))
        every_query = [query for group in running for query in group.queries]
        drawn = random.Random(7)
        before = _totals(running)
        for number in range(WARM_UP + rounds):
            context.tick(f"{name}: micro-batches {number + 1}/{WARM_UP + rounds}")
            if number == WARM_UP:
                before = _totals(running)
            fed: set[Query] = set()
            for query in drawn.sample(2 * every_query, 2 * len(every_query)):
                clock.sleep(interval_s / (2 * len(every_query)))
                if query in fed:
                    query.run()
                else:
                    query.feed()
                    fed.add(query)
        counted = [
            _Found({part: after[part] - totals[part] for part in after}, queries * rounds)
            for totals, after in zip(before, _totals(running), strict=True)
        ]
        for query in every_query:
            query.close()
    return counted


def _idle(context: Context) -> list[dict[str, float]]:
    """Return the requests in a second of idle queries on one root, minute by minute of a clock that needs no
    waiting.
    """
    path = f"memory://{context.folder}/idle"
    minutes = [Counter[str]() for _ in range(IDLE_MINUTES)]
    with TxnLog.create(path) as log:
        log.create_topic("rows", SCHEMA)
        for number in range(QUERIES):
            context.tick(f"idle query {number + 1}/{QUERIES}")
            worker = Worker()
            with worker.running():
                followed = FollowedLog(parse_read_options({"path": path, "topic": "rows"}), ManualClock())
            for minute in minutes:
                before = looked(worker.counts)
                for _ in range(60):
                    followed.follow(is_idle=True)
                minute += looked(worker.counts) - before  # in place
            followed.log.close()
    return [{kind: minute[kind] / 60 for kind in ("read", "write")} for minute in minutes]


def _crowd(context: Context) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {1: [], CROWD: []}
    with crew(CROWD) as processes:
        for number in range(CROWD_ROUNDS):
            for count, runs in found.items():
                context.tick(f"{count} committers, {number + 1}/{CROWD_ROUNDS}")
                location = str(context.folder / f"crowd-{count}-{number}")
                runs.append(processes.run(location, count, round_trip_ms=FAR_MS, seconds=CROWD_SECONDS))
    return found


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(number, 2) for kind, number in found.items()}


def measure(context: Context) -> list[Measurement]:
    """Return requests, their cost, and the rate of commits of a crowd."""
    idle = _idle(context)
    shared, alone = {}, {}
    for interval in INTERVALS_S:
        shared[interval] = _active(context, f"hundred-{interval}", GROUPS, QUERIES // GROUPS, interval)
        alone[interval] = [
            _active(context, f"one-{interval}-{number}", 1, 1, interval)[0] for number in range(GROUPS)
        ]
    every = min(INTERVALS_S)
    parts = {
        f"{name}{part}_requests": _rounded(found[0].each(part))
        for name, found in (("", shared[every]), ("alone_", alone[every]))
        for part in (*QUERY_PARTS, "producer")
    }
    totals = {
        name: [sum(one.each(*QUERY_PARTS).values()) for one in found]
        for name, found in (("shared", shared[every]), ("alone", alone[every]))
    }
    found = [
        Measurement("hundred-idle-requests", tuple(sum(one.values()) for one in idle), _rounded(idle[0])),
        Measurement("hundred-idle-cost", tuple(map(dollars, idle)), _rounded(idle[0])),
        Measurement("hundred-active-requests", tuple(totals["shared"]), parts),
        ratio("hundred-active-alone", totals["shared"], totals["alone"], **parts),
    ]
    for interval in INTERVALS_S:
        for name, each in (("active", shared[interval]), ("alone", alone[interval])):
            per_second = [
                {kind: number * QUERIES / interval for kind, number in one.each(*QUERY_PARTS).items()}
                for one in each
            ]
            details = {f"{kind}s_per_s": round(number, 1) for kind, number in per_second[0].items()}
            costs = tuple(map(dollars, per_second))
            found.append(Measurement(f"hundred-{name}-cost-{interval}", costs, details))
    runs = _crowd(context)
    rates = {count: [run.commits_per_second for run in each] for count, each in runs.items()}
    waits: dict[str, float] = {}
    for count, crowd in runs.items():
        waits[f"commits_per_s_{count}"] = round(statistics.median(rates[count]), 1)
        for share in (0.5, 0.99):
            wait = statistics.median(run.wait_ms(share) for run in crowd)
            waits[f"wait_p{share * 100:.0f}_{count}_ms"] = round(wait)
    found += [
        Measurement("hundred-commits", tuple(rates[CROWD]), waits),
        ratio("hundred-commits-one", rates[CROWD], rates[1], **waits),
    ]
    return found


_HUNDRED = f"{QUERIES} queries on one root"
_MONTH = "US$ a month, computed from counts"


def _cost_rows(interval: int) -> tuple[Row, Row]:
    work = f"a micro-batch every {interval} s"
    return (
        Row(
            key=f"hundred-active-cost-{interval}",
            work=f"{_HUNDRED}, {work}",
            against="–",
            figure=_MONTH,
            digits=0,
            target=600 if interval == min(INTERVALS_S) else None,
            at_least=interval != min(INTERVALS_S),
        ),
        Row(
            key=f"hundred-alone-cost-{interval}",
            work=f"{QUERIES} queries, each on a root of its own, {work}",
            against="–",
            figure=_MONTH,
            digits=0,
        ),
    )


BENCHMARKS = (
    Benchmark(
        name="hundred-queries",
        how=(
            f"Requests are counted, not guessed: {QUERIES} queries, each with its own input and output "
            "topic, its own producer, "
            "and the Python processes that Spark keeps for it (one for the source, one that plans "
            "batches, one that commits "
            "them, and shared ones for tasks of one split), all in this process on one log in memory. An "
            "idle query is followed "
            f"for {IDLE_MINUTES} minutes on a clock of its own: it looks once a second. Active: in each "
            "round every producer "
            f"commits {ROWS} rows and every query runs one micro-batch, in random order, so {2 * QUERIES} "
            "entries lie between two "
            "micro-batches of a query, and each of its processes has to know them; a clock moves on by "
            f"the interval in a round. {WARM_UP} rounds to warm up, then "
            f"a minute whose counts are those of {GROUPS} groups of {QUERIES // GROUPS} queries, and of "
            f"{GROUPS} queries on roots of their own. "
            "Spark's own files (checkpoints) and the producers' requests are not among the figures; "
            "producers are below. "
            f"Cost = {QUERIES} / interval × {MONTH_S:,} s × requests of a micro-batch × price; prices, "
            "for a thousand requests: "
            f"reads ${PRICES['read']}, writes (PUT, LIST) ${PRICES['write']} (the list prices of S3 "
            "Standard in us-east-1; "
            "`PRICES` in `bench/cost.py`), storage and traffic not included. "
            f"Commits: {CROWD} processes that do nothing but commit, as in contention, with {FAR_MS} ms "
            "added to each request, "
            f"{CROWD_SECONDS:g} s a run, {CROWD_ROUNDS} rounds: that is where one root stops, however "
            "many queries there are; "
            "what is committed together in one process counts once."
        ),
        rows=(
            Row(
                key="hundred-idle-requests",
                work=f"{_HUNDRED}, idle",
                against="–",
                figure="requests/s",
                digits=1,
            ),
            Row(key="hundred-idle-cost", work=f"{_HUNDRED}, idle", against="–", figure=_MONTH, digits=0),
            Row(
                key="hundred-active-requests",
                work=f"{_HUNDRED}, active",
                against="–",
                figure="requests a micro-batch",
                digits=0,
            ),
            Row(
                key="hundred-active-alone",
                work=f"{_HUNDRED}, active",
                against="each on a root of its own",
                figure="times its requests",
                digits=1,
            ),
            *(row for interval in INTERVALS_S for row in _cost_rows(interval)),
            Row(
                key="hundred-commits",
                work=f"commits/s of {CROWD} processes, {FAR_MS} ms latency",
                against="–",
                figure="commits/s",
                digits=1,
            ),
            Row(
                key="hundred-commits-one",
                work=f"commits/s of {CROWD} processes, {FAR_MS} ms latency",
                against="1 process",
                figure="times its rate",
            ),
        ),
        measure=measure,
        minutes=1.3,
    ),
)
