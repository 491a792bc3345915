"""Histories of a pipeline: producers → ``orders`` → a Spark query → ``even`` and ``odd``, and everybody is
killed.

Producers and a sealer end at points of their own choice, all the time, and are replaced; readers follow all
topics. Meanwhile a seed chooses which of Spark's processes is hit next: the Python that follows the log, one
of a task, the one that commits, an executor, the driver. At the end producers stop, a driver is let through,
and everything is held against the oracle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.history import ENDS_MAX, NAMESPACE, PROGRESS_SECONDS_MAX, RESTARTS_MAX, History, Run
from tests.chaos.jobs import Job
from tests.chaos.oracle import Found, Seen
from tests.chaos.outside import versions_of
from tests.chaos.plans import VICTIMS, Kind
from tests.chaos.pool import Pool
from tests.pipeline.flow import FLOW
from tests.pipeline.judge import Made, judge_pipeline, source_row
from tests.pipeline.ledger import ledger_of
from tests.pipeline.notes import check_repeats, handed_on, query_events
from tests.pipeline.plans import doom_of, next_strike, settings_of
from tests.pipeline.processes import Outside, Task
from tests.pipeline.producers import KINDS as PRODUCERS
from tests.pipeline.producers import produce
from tests.pipeline.readers import Follower
from tests.pipeline.sealer import seal
from tests.pipeline.topics import ORDERS, ORDERS_SCHEMA, SIDE_SCHEMA, SIDES
from txnlog import TxnLog
from txnlog_testing.checker import (
    HistoryWriter,
    Poll,
    StableOffset,
    check_history,
    partition_key,
    read_history,
    records_of,
)

__all__ = ["PipelineHistory", "run_pipeline"]

AHEAD_MAX = 600
"""Records of ``orders`` that the query may be behind before producers wait."""


@dataclass
class PipelineHistory(History):
    """What became of one seed."""

    outside: Counter[str] = field(default_factory=Counter)
    """Kills of processes beside Spark."""
    stopped: Counter[str] = field(default_factory=Counter)
    """Of those, how many were stopped and continued."""
    replaced: Counter[str] = field(default_factory=Counter)
    """How those ended."""
    orders: int = 0
    given_up: int = 0
    unknown: int = 0
    entries: int = 0
    events: int = 0


class _Sides:
    """Both readers of what the query writes, as one."""

    def __init__(self, readers: Sequence[Follower]) -> None:
        self._readers = readers

    @property
    def count(self) -> int:
        for reader in self._readers:
            if reader.error is not None:
                raise reader.error
        return sum(reader.count for reader in self._readers)


class PipelineRun(Run):
    """One history as it happens: what there is to read comes from producers."""

    def __init__(
        self,
        pool: Pool,
        log: TxnLog,
        job: Job,
        history: History,
        outside: Outside,
        readers: Sequence[Follower],
    ) -> None:
        self._orders, *sides = readers
        self._sides = _Sides(sides)
        self._outside = outside
        super().__init__(pool, log, job, history, self._sides)  # type: ignore[arg-type]  # it asks for its count alone

    def _keep_fed(self) -> None:
        self._outside.pause(is_ahead=self._orders.count > self._sides.count + AHEAD_MAX)
        self._outside.tend()

    def _rows(self) -> int:
        self._log.refresh()
        return sum(one.last_stable_offset for side in SIDES for one in self._log.offsets(side))

    def finish(self, ends_max: int = ENDS_MAX) -> None:
        """Let producers end, everything be processed, and all end."""
        if self._zombies:
            self.settle()
            self._alive()
        self._outside.end()
        super().finish(ends_max)


def run_pipeline(
    pool: Pool,
    folder: Path,
    seed: int,
    kills: int,
    *,
    first: Sequence[Kind] = (),
    kinds: Sequence[Kind] = tuple(VICTIMS),
    broken: str | None = None,
    notice: Callable[[PipelineHistory], None] | None = None,
) -> PipelineHistory:
    """Run one history.

    Parameters
    ----------
    folder : Path
        For its log and all that it has besides.
    kills : int
        Of Spark's processes, after which it is over.
    first : sequence of Kind
        What happens first, in that order.
    kinds : sequence of Kind
        What may happen then.
    broken : str, optional
        A defect: see tests.chaos.broken.
    notice : callable, optional
        Called after every strike.
    """
    rng = random.Random(seed)
    history = PipelineHistory(seed, settings_of(rng, seed))
    place, events = str(folder / "log"), folder / "history"
    log = TxnLog.create(place, embedding=False)
    log.create_topic(ORDERS, ORDERS_SCHEMA, partitions=history.settings["orders"], key_columns=["key"])
    for side in SIDES:
        log.create_topic(side, SIDE_SCHEMA, partitions=history.settings["sides"], key_columns=["key"])
    names = ("maxRowsPerTrigger", "minPartitions")
    order = ("offset", "commit")[history.settings["by_commit"]]
    job = Job(
        log=place,
        input="",
        flow=FLOW,
        notes=str(folder / "notes"),
        checkpoint=str(folder / "checkpoint"),
        control="",
        read_options={
            "startingOffsets": "earliest",
            "order": order,
            **{name: str(history.settings[name]) for name in names},
        },
        restarts=RESTARTS_MAX,
        broken=broken,
    )
    dooms = random.Random(f"processes of {seed}")
    ahead = list(first)
    with ExitStack() as running:
        readers = [
            running.enter_context(
                Follower(place, topic, history.settings["orders" if topic == ORDERS else "sides"], events)
            )
            for topic in (ORDERS, *SIDES)
        ]
        outside = running.enter_context(Outside(_tasks(job, folder, seed), lambda _: doom_of(dooms)))
        run = PipelineRun(pool, log, job, history, outside, readers)
        while history.kill_count < kills or ahead:
            run.strike(next_strike(rng, kinds=[ahead.pop(0)] if ahead else kinds))
            if notice is not None:
                notice(history)
        run.finish()
        for reader in readers:
            log.refresh()
            committed = log.read(reader.topic, columns=["n"]).read_all().num_rows
            reader.wait_count(committed, PROGRESS_SECONDS_MAX)
        seen = {reader.topic: reader.end() for reader in readers}
    _note_outside(history, outside)
    _note(history, log, folder, seen)
    log.close()
    return history


def _tasks(job: Job, folder: Path, seed: int) -> list[Task]:
    common = {
        "log": job.log,
        "seed": seed,
        "folder": str(folder / "outside"),
        "history": str(folder / "history"),
    }
    producers = [
        Task(
            run=produce,
            slot=f"producer-{kind}",
            is_fenced=kind != "plain",
            settings={"kind": kind, "number": number},
            **common,  # type: ignore[arg-type]
        )
        for number, kind in enumerate(PRODUCERS)
    ]
    return [*producers, Task(run=seal, slot="sealer", is_fenced=False, **common)]  # type: ignore[arg-type]


def _note_outside(history: PipelineHistory, outside: Outside) -> None:
    history.outside, history.stopped, history.replaced = outside.kills, outside.zombies, outside.ends
    history.problems += outside.problems


def _note(history: PipelineHistory, log: TxnLog, folder: Path, seen: dict[str, Seen]) -> None:
    """Apply the oracle."""
    made = [
        Made.of(row)
        for side in SIDES
        for row in log.read(side, columns=[*SIDE_SCHEMA.names, "_topic", "_partition", "_offset", "_entry"])
        .read_all()
        .to_pylist()
    ]
    orders = [
        source_row(row)
        for row in log.read(ORDERS, columns=["n", "key", "_partition", "_offset", "_entry", "_commit_entry"])
        .read_all()
        .to_pylist()
    ]
    order = ("offset", "commit")[history.settings["by_commit"]]
    batches = handed_on(folder / "notes")
    with HistoryWriter(folder / "history" / "query.jsonl") as written:
        for event in query_events(batches, made, order):
            written.write(event)
    _write_the_end(log, folder / "history")
    told = read_history(folder / "history")
    ledger = ledger_of(told)
    query = next(iter({row.query for row in made}), "")
    versions = versions_of(log).get((NAMESPACE, query), [])
    found: Found = judge_pipeline(orders, ledger, made, versions, seen, order)
    history.problems += [*found.violations, *check_repeats(batches, made)]
    history.problems += [f"history: {anomaly}" for anomaly in check_history(told).anomalies]
    history.problems += [f"verify: {problem}" for problem in log.verify(deep=True).problems]
    history.rows, history.torn = found.rows, found.torn
    history.duplicates, history.losses = found.duplicates, found.losses
    history.batches = len({row.batch for row in made})
    history.orders, history.events = len(orders), len(told)
    history.given_up, history.unknown = len(ledger.given_up), len(ledger.unknown)
    history.entries = log.refresh().entry + 1


def _write_the_end(log: TxnLog, events: Path) -> None:
    """End the history with everything that can be read, and whether anything is held back."""
    with HistoryWriter.in_directory(events) as written:
        written.event("the end", "quiesce")
        for topic in (ORDERS, *SIDES):
            rows = log.read(topic, columns=["n", "_topic", "_partition", "_offset"]).read_all().to_pylist()
            poll = Poll(records_of(rows, "n"), whole=True)
            written.event("the end", "poll", value=(poll,))
            ends = [
                StableOffset(partition_key(topic, one.partition), one.last_stable_offset, one.log_end)
                for one in log.offsets(topic)
            ]
            written.event("the end", "observe", value=tuple(ends))
