"""One-shot commit of 1,000 rows, embedded in its entry, against an append of the same rows by deltalake, and
against the same commit uploaded.

They take turns in two ways: ten commits each (a busy writer: code and data are in the processor's caches),
and one each (a writer that is called now and then: every call is cold). deltalake leaves its writes in the
page cache; txnlog syncs its own before it answers, and a sync waits for whatever else is dirty. So the system
is synced, untimed, before each turn: each side pays for its own writes. deltalake is timed as people call it,
by path, and on a table that is kept open.

And one of 100 rows on a store that is 30 ms away, against one bare conditional create there.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import deltalake
import numpy as np
import pyarrow as pa

from bench.table import Benchmark, Context, Measurement, Row, ratio, take_turns
from txnformat.store.base import CreateOutcome
from txnformat.store.local import LocalStore
from txnlog import Producer, TxnLog
from txnlog_testing.stores.latency import LatencyStore

__all__ = ["BENCHMARKS"]

ROWS = 1_000
ROUNDS = 10
CALLS = 10
"""Calls of each in a round."""
WARM_UP = 1
FAR_ROWS = 100
FAR_MS = 30.0


def rows() -> pa.Table:
    """Return 1,000 rows of four columns."""
    generator = np.random.default_rng(7)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "value": generator.random(ROWS),
            "name": [f"name-{number % 97}" for number in range(ROWS)],
            "at": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us", "UTC")),
        }
    )


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _round(calls: dict[str, Callable[[], object]], turn: int) -> dict[str, float]:
    """Return the median seconds of CALLS calls of each, in turns of ``turn``."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(CALLS // turn):
        for name, call in calls.items():
            os.sync()
            times[name] += [_timed(call) for _ in range(turn)]
    return {name: statistics.median(values) for name, values in times.items()}


def _rounds(folder: Path, turn: int, context: Context) -> dict[str, list[float]]:
    """Measure on a fresh log and fresh tables, so that each has the same number of commits behind it."""
    data = rows()
    by_path, kept_open = str(folder / "by_path"), str(folder / "kept_open")
    for table in (by_path, kept_open):
        deltalake.write_deltalake(table, data)
    opened = deltalake.DeltaTable(kept_open)
    seconds: dict[str, list[float]] = {"txnlog": [], "by_path": [], "kept_open": [], "uploaded": []}
    with TxnLog.create(str(folder / "log")) as log, TxnLog.create(str(folder / "uploaded")) as other:
        for one in (log, other):
            one.create_topic("rows", data.schema)
        with Producer(log, "bench") as producer, Producer(other, "bench", embed_bytes=0) as uploads:

            def commit(producer: Producer) -> None:
                producer.begin()
                producer.send("rows", data)
                producer.commit()

            calls: dict[str, Callable[[], object]] = {
                "txnlog": lambda: commit(producer),
                "uploaded": lambda: commit(uploads),
                "by_path": lambda: deltalake.write_deltalake(by_path, data, mode="append"),
                "kept_open": lambda: deltalake.write_deltalake(opened, data, mode="append"),
            }
            for number in range(WARM_UP + ROUNDS):
                context.tick(f"turns of {turn}, {number + 1}/{WARM_UP + ROUNDS}")
                order = calls if number % 2 == 0 else dict(reversed(calls.items()))
                found = _round(order, turn)
                if number >= WARM_UP:
                    for name, value in found.items():
                        seconds[name].append(value)
    return seconds


def measure(context: Context) -> list[Measurement]:
    """Return how many times faster than deltalake a commit is."""
    found = []
    for name, turn in (("ten-in-a-row", 10), ("one-by-one", 1)):
        (context.folder / name).mkdir()
        seconds = _rounds(context.folder / name, turn, context)
        medians = {
            f"{who}_ms": round(statistics.median(values) * 1_000, 3) for who, values in seconds.items()
        }
        found += [
            ratio(f"one-shot-{other.replace('_', '-')}-{name}", seconds[other], seconds["txnlog"], **medians)
            for other in ("by_path", "kept_open", "uploaded")
        ]
    return found


def measure_far(context: Context) -> list[Measurement]:
    """Return how many times a bare create's time a commit takes where each request takes its time."""
    data = rows().slice(0, FAR_ROWS)
    store = LatencyStore(LocalStore(context.folder / "log"), FAR_MS)
    numbers = iter(range(10**6))
    with TxnLog.create(store) as log:
        log.create_topic("rows", data.schema)
        with Producer(log, "bench") as producer:

            def commit() -> None:
                for _ in range(CALLS):
                    producer.begin()
                    producer.send("rows", data)
                    producer.commit()

            def create() -> None:
                for _ in range(CALLS):
                    outcome = store.create(f"_txnlog/probe/{next(numbers)}", bytes(4_096)).outcome
                    if outcome is not CreateOutcome.CREATED:
                        raise RuntimeError(f"a bare create: {outcome.value}")

            seconds = take_turns({"commit": commit, "create": create}, context, rounds=ROUNDS)
    medians = {
        f"{what}_ms": round(statistics.median(taken) * 1_000 / CALLS, 2) for what, taken in seconds.items()
    }
    return [ratio("one-shot-far", seconds["commit"], seconds["create"], **medians)]


NOTE = (
    "a commit of txnlog is durable when it answers: its entry, with the rows in it, is written, synced "
    "and linked, and its "
    "directory synced, where deltalake syncs nothing; uploaded, the data file takes two syncs more. A "
    "table kept open spares deltalake the "
    "reading of its log. Besides the syncs there is the Parquet encoder on 1,000 rows and Python around "
    "it; one by "
    "one all of that runs from cold caches. `make bench BENCH=one-shot` gives the milliseconds of each"
)

BENCHMARKS = (
    Benchmark(
        name="one-shot",
        how=(
            f"A transaction of one send of {ROWS:,} rows of four columns, embedded in its entry, by a "
            "producer that is kept open, against "
            "`write_deltalake(mode='append')` of the same rows: by path, as people call it, or on a table "
            "kept open; and against the same transaction with `embed_bytes=0`. "
            f"Local disk, {ROUNDS} rounds of {CALLS} commits each, in turns of ten or of one; the system "
            "is synced, untimed, "
            "before each turn, since deltalake leaves its writes in the page cache and txnlog syncs its own."
        ),
        rows=tuple(
            Row(
                key=f"one-shot-{other}-{name}",
                work=f"one-shot commit of {ROWS:,} rows, local, {turns}",
                against=how,
                figure="times its speed",
                target=target,
                note=NOTE,
            )
            for name, turns in (("ten-in-a-row", "ten in a row"), ("one-by-one", "one by one"))
            for other, how, target in (
                ("by-path", "deltalake append, by path", 5),
                ("kept-open", "deltalake append, table kept open", 6),
                ("uploaded", "the same commit, uploaded", 1.3),
            )
        ),
        measure=measure,
        minutes=1,
    ),
    Benchmark(
        name="far-commit",
        how=(
            f"A transaction of one send of {FAR_ROWS} rows of four columns by a producer that is kept "
            "open, one after the other, against bare conditional creates of 4 KiB, on a local disk whose "
            f"requests take {FAR_MS:.0f} ms more; {ROUNDS} rounds of {CALLS} of each."
        ),
        rows=(
            Row(
                key="one-shot-far",
                work=f"one-shot commit of {FAR_ROWS} rows, {FAR_MS:.0f} ms a request",
                against="one bare conditional create",
                figure="times its time",
                target=1.2,
                at_least=False,
                note=(
                    "the commit is one request of the same time; what it takes more is the Parquet and "
                    "Arrow encoding of its rows and the fold of its entry, which `make bench "
                    "BENCH=far-commit` shows "
                    "in milliseconds"
                ),
            ),
        ),
        measure=measure_far,
    ),
)
