"""The large logs of `make bench-scale`, on local disk: a million entries, a thousand topics, a partition of
ten million batches.

The cost of opening, following, planning and committing there.

The entries are decided, folded and written by the real code, with their snapshots, bundles and seals; only
what makes them durable is left out while a log is made. No records are written.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from bench.machine import ROOT
from bench.page import PAGE, RESULTS, large_logs, page
from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import Instant, SystemClock, SystemIds
from txnformat.core.assemble import assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import Action, Intent, SealSegments, TakeCheckpoint, TopicAppend, Write
from txnformat.core.operations import PendingPartition
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.state import LogState
from txnformat.core.topics.schema import TopicSchema
from txnformat.persistent import replace
from txnformat.protocol.effects import Effect, GetObject, ListObjects, Simultaneous, Steps
from txnformat.protocol.follow import open_view
from txnformat.protocol.sealing import SEAL_EXTENTS, seal_due, sealable, write_segments
from txnformat.protocol.snapshots import snapshot_due, write_hint, write_snapshot
from txnformat.protocol.tail import bundle_due, write_bundles
from txnformat.protocol.view import View
from txnformat.store.base import ObjectInfo, ObjectStore
from txnformat.store.local import LocalStore
from txnformat.store.posix import Posix
from txnformat.store.wrapped import WrappedStore
from txnformat.types import BatchRecord, FileRecord, ObjectRecord
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore

__all__ = [
    "HASH",
    "SCHEMA",
    "WORLDS",
    "Figures",
    "Volatile",
    "World",
    "grow",
    "measure",
    "memory_of",
    "round_trips",
]

SCHEMA = pa.schema([("n", pa.int64())])
HASH = "0" * 64
RECORDS = 2
"""Records of a batch."""
NAMED_MAX = 1_000
"""Batches that an entry names itself: more are in a batch table."""
ROUNDS = 7
COMMITS = 300
LONG = 2_000_000
"""Batches of a log of which a whole topic is planned once only."""
ORPHANS = 1_000
LOST = {
    "hint": "without the hint",
    "snapshots": "without the hint and any snapshot",
    "orphans": "without the hint, with 1,000 newer snapshots that no entry names",
}
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class World:
    """A log, and the appends that make it."""

    name: str
    topics: int
    partitions: int
    """Partitions of each topic."""
    commits: int
    partitions_of_commit: int
    """Each commit appends to so many partitions of one topic; topics, and partitions of each, take turns."""
    batches: int
    """Batches of each of these partitions in a commit."""


WORLDS = (
    World("small", 1, 10, 50, 1, 1),
    World("entries", 1, 10, 1_000_000, 1, 1),
    World("topics", 1_000, 10, 2_000, 10, 1),
    World("partition", 1, 1, 1_000, 1, 10_000),
)
"""A small one, to compare with; 1,000,000 entries; 10,000 partitions of 1,000 topics; a partition of
10,000,000 batches."""


@dataclass(frozen=True)
class Figures:
    """The costs of a log for a process that is new to it.

    Times are of the processor, in milliseconds, the least of the rounds, but for ``open_wall_ms``.
    """

    world: str
    entries: int
    partitions: int
    batches: int
    snapshot_bytes: int
    """Bytes of the newest snapshot."""
    tail_entries: int
    """Entries after it."""
    open_round_trips: int
    """Sequential ones; on an object store, each is one wait."""
    open_requests: int
    """System calls of a local disk are counted as requests: each probe of a slot is one."""
    open_bytes: int
    open_wall_ms: float
    open_ms: float
    open_memory_mib: float
    """Most memory that the process takes, above what it had before it opened the log."""
    refresh_ms: float
    """Nothing is new."""
    plan_last_ms: float
    """Time to plan a read of the last records of a partition,"""
    plan_all_ms: float
    """and of a whole topic, its sealed segments as Spark's driver gets them; sidecars that were read are
    kept."""
    commit_ms: float
    """A batch in one partition; median."""


@dataclass(frozen=True)
class Lost:
    """Opening a log once, in a process of its own, when something is missing there."""

    what: str
    open_wall_ms: float
    open_requests: int
    open_memory_mib: float


class _Without(WrappedStore):
    """A log without its hint (``hint``), also without its snapshots (``snapshots``), or with 1,000 newer ones
    that no entry names (``orphans``).
    """

    def __init__(self, inner: ObjectStore, what: str, newest: int) -> None:
        super().__init__(inner)
        self._what = what
        uuids = (f"00000000-0000-4000-8000-{number:012x}" for number in range(ORPHANS))
        self._orphans = [keys.snapshot_key(newest, uuid) for uuid in uuids] if what == "orphans" else []

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        return None if key == keys.LATEST_KEY else self._inner.get(key, bytes_max)

    def list(self, prefix: str, start_after: str | None = None) -> Sequence[ObjectInfo]:
        if prefix != keys.SNAPSHOT_PREFIX:
            return self._inner.list(prefix, start_after)
        if self._what == "snapshots":
            return ()
        added = [ObjectInfo(key, 1) for key in self._orphans]
        return sorted([*self._inner.list(prefix, start_after), *added])


class _Ticking(SystemClock):
    """A clock that goes on by a millisecond whenever it is read: a log is made faster than its time may
    pass.
    """

    def __init__(self) -> None:
        self._ms = FIRST_MS

    def now(self) -> Instant:
        self._ms += 1
        return Instant(self._ms, self._ms)


class Volatile(Posix):
    """Makes nothing durable: for logs that are only measured."""

    def fsync_file(self, file: int) -> None: ...

    def fsync_directory(self, directory: int) -> None: ...


class Growing:
    """A log that grows entry by entry: each is decided, written and folded, and what is due after it is
    done.
    """

    def __init__(self, root: Path, world: World) -> None:
        self._root = root
        clock = _Ticking()
        self._store = LocalStore(root, clock=clock, posix=Volatile())
        self._driver = Driver(self._store, clock, SystemIds())
        with TxnLog.create(self._store, clock=clock) as log:
            for number in range(world.topics):
                log.create_topic(f"topic-{number:04d}", SCHEMA, partitions=world.partitions)
            self.state: LogState = log.refresh()

    def commit(self, action: Action) -> None:
        before = self.state.extents
        intent = Intent(self._driver.ids.new(), self.state.entry + 1, action)
        now_ms = self._store.store_time_ms()
        assembled = assemble(self.state, [intent], store_time_ms=now_ms, write_id=self._driver.ids.new())
        if assembled.entry is None:
            raise RuntimeError(f"refused: {assembled.verdicts}")
        self.state = assembled.after
        # As a file: what makes a creation atomic and durable takes longer than all of the rest.
        (self._root / keys.entry_key(self.state.entry)).write_bytes(assembled.data)
        self._maintain(before)

    def jump(self, entry: int) -> None:
        """Go on as if the newest entry had this number: a snapshot has to stand for those that are left
        out.
        """
        self.state = replace(self.state, entry=entry)
        checkpoint = self._driver.run(write_snapshot(View(self.state)))
        self.commit(TakeCheckpoint(checkpoint))

    def _maintain(self, extents_before: int) -> None:
        """Do what a committer does after its answer."""
        entry = self.state.entry
        if snapshot_due(self.state, True, 1.0):
            checkpoint = self._driver.run(write_snapshot(View(self.state)))
            self.commit(TakeCheckpoint(checkpoint))
            self._driver.run(write_hint(checkpoint))
        if seal_due(self.state, extents_before, True, 1.0, SEAL_EXTENTS):
            while sealable(self.state):
                seal = self._driver.run(write_segments(self.state))
                if seal is None:
                    break
                self.commit(SealSegments(seal))
        first = bundle_due([entry])
        if first is not None:
            self._driver.run(write_bundles(first))

    def append(self, topic: str, partitions: Sequence[int], batches: int) -> None:
        self.commit(append_of(self._store, self.state, topic, partitions, batches))


def append_of(
    store: LocalStore, state: LogState, topic: str, partitions: Sequence[int], batches: int
) -> Write:
    """Return an append of so many batches to each of some partitions.

    A batch table is written, a data file is not.
    """
    of, ids = state.topic(topic), SystemIds()
    born = max(0, state.entry)
    rows = tuple(
        BatchRecord(number, 0, place * batches + batch, 1, RECORDS, 100, 1_000, 2_000)
        for place, number in enumerate(partitions)
        for batch in range(batches)
    )
    table = None
    if len(rows) > NAMED_MAX:
        data = encode_batch_table([(0, list(rows))])
        table = ObjectRecord(keys.table_key(born, ids.new()), len(data), sha256_hex(data))
        store.put(table.key, data)
    pending = tuple(
        PendingPartition(number, RECORDS * batches, batches, -1, HASH[:16], 100 * batches, 1_000, 2_000)
        for number in partitions
    )
    key = keys.data_key(of.directory, born, ids.new())
    schema: TopicSchema = of.schema
    file = FileRecord(key, 1_000_000, HASH, 1_000, HASH, RECORDS * len(rows), schema_id=schema.schema_id)
    return Write(
        appends=(
            TopicAppend(of.topic_id, of.partitions, (file,), pending, () if table else rows, table=table),
        )
    )


def grow(root: Path, world: World, advance: Callable[[int], object] = lambda done: None) -> None:
    """Make a log in a directory that has none. ``advance``: is told the commits since it was called last."""
    growing = Growing(root, world)
    count = world.partitions_of_commit
    turns = world.partitions // count
    for number in range(world.commits):
        topic, turn = number % world.topics, number // world.topics % turns
        growing.append(f"topic-{topic:04d}", range(turn * count, (turn + 1) * count), world.batches)
        advance(1)


def round_trips(store: CountingStore) -> int:
    """Return how many requests an opener makes one after the other."""
    driver = Driver(store, SystemClock(), SystemIds())
    steps, count = open_view(), 0

    def one(effect: Effect) -> Steps[object]:
        return (yield effect)

    answer: object = None
    while True:
        try:
            effect = steps.send(answer)
        except StopIteration:
            return count
        count += isinstance(effect, GetObject | ListObjects | Simultaneous)
        answer = driver.run(one(effect))


def _ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the least time of the processor, all threads."""
    return round(min(_times(work, rounds)), 3)


def _times(work: Callable[[], object], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        found.append(1_000 * (time.process_time() - begun))
    return found


def memory_of(field: str) -> int:
    """Return VmRSS (now) or VmHWM (the highest so far) of this process, in bytes; 0 where the system does not
    say.
    """
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return 0 if found is None else int(found[1]) * 1024


def _opened(root: Path, found: list[float]) -> TxnLog:
    begun = time.perf_counter()
    log = TxnLog.open(LocalStore(root))
    found.append(1_000 * (time.perf_counter() - begun))
    return log


def measure(root: Path, name: str) -> Figures:
    """Open the log of a directory in this process, which has not opened one before, and measure it."""
    before = memory_of("VmRSS")
    walls: list[float] = []
    log = _opened(root, walls)
    grown = memory_of("VmHWM") - before
    open_ms = _ms(lambda: _opened(root, walls).close())
    counting = CountingStore(LocalStore(root))
    with counting.measure() as measured:
        trips = round_trips(counting)
    state = log.state
    checkpoint = state.checkpoints[-1] if state.checkpoints else None
    topic = next(iter(sorted(one.name for one in state.topics.values())))
    ends = {key: one.log_end for key, one in state.partitions.items()}
    of_topic = state.topic(topic).topic_id
    end = max(end for key, end in ends.items() if key.topic_id == of_topic and key.partition == 0)
    last = partial(log.plan, topic, partitions=[0], start=max(0, end - 2 * RECORDS))
    refresh_ms = _ms(log.refresh, 100)
    last_ms = _ms(last)
    is_long = sum(ends.values()) > LONG * RECORDS
    all_ms = _ms(partial(log.plan, topic, open_sealed=False), 1 if is_long else ROUNDS)
    log.close()
    volatile = LocalStore(root, posix=Volatile())
    with TxnLog.open(volatile) as log:
        committer = log.committer
        commits = []
        for _ in range(COMMITS):
            write = append_of(volatile, committer.state, topic, [0], 1)
            begun = time.process_time()
            committer.commit(committer.intend(write))
            commits.append(1_000 * (time.process_time() - begun))
    return Figures(
        name,
        state.entry + 1,
        sum(one.partitions for one in state.topics.values()),
        sum(ends.values()) // RECORDS,
        0 if checkpoint is None else checkpoint.size,
        state.entry - (-1 if checkpoint is None else checkpoint.entry),
        trips,
        sum(measured.counts.requests.values()),
        measured.counts.bytes_read(),
        round(min(walls), 1),
        round(open_ms, 1),
        round(grown / 2**20, 1),
        refresh_ms,
        round(last_ms, 2),
        round(all_ms, 2),
        round(statistics.median(commits), 3),
    )


def measure_lost(root: Path, what: str) -> Lost:
    """Open the log of a directory in this process, which has not opened one before, without what is lost."""
    newest = max(int(path.stem) for path in (root / keys.LOG_PREFIX).iterdir())
    store = CountingStore(_Without(LocalStore(root), what, newest))
    before = memory_of("VmRSS")
    begun = time.perf_counter()
    with TxnLog.open(store) as log:
        wall = 1_000 * (time.perf_counter() - begun)
        if log.state.entry != newest:
            raise RuntimeError(f"opened at entry {log.state.entry}, not {newest}")
        grown = memory_of("VmHWM") - before
    requests = sum(store.counts.requests.values())
    return Lost(what, round(wall, 1), requests, round(grown / 2**20, 1))


def _in_process(root: Path, *options: str) -> dict[str, Any]:
    """Measure in a process of its own, so that nothing is known there yet."""
    command = [sys.executable, "-m", "bench.lifecycle.opening", "--measure", str(root), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def keep(found: Sequence[Mapping[str, Any]]) -> None:
    """Keep what was measured of some logs in place of older figures of the same, and make the page anew."""
    results = json.loads((ROOT / RESULTS).read_text("utf-8"))
    results["large_logs"]["worlds"] = newer(results["large_logs"]["worlds"], found)
    (ROOT / RESULTS).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (ROOT / PAGE).write_text(page(results), "utf-8")


def newer(kept: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the figures of all logs, those that were found in place of kept ones; in the order of WORLDS."""
    by_name = {one["world"]: one for one in [*kept, *found]}
    return [by_name[world.name] for world in WORLDS if world.name in by_name]


def main() -> None:
    """Make the logs, and measure each."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.opening", description=__doc__)
    parser.add_argument("--world", help="only this log", choices=[world.name for world in WORLDS])
    parser.add_argument(
        "--folder", type=Path, help="keep the logs here; those that are there are not made anew"
    )
    parser.add_argument("--measure", type=Path, help="only measure the log of this directory, as JSON")
    parser.add_argument("--lost", choices=LOST, help="only open it, without this")
    parser.add_argument("--update", action="store_true", help="keep the figures, and make the page anew")
    given = parser.parse_args()
    if given.measure:
        found = measure_lost(given.measure, given.lost) if given.lost else measure(given.measure, given.world)
        print(json.dumps(asdict(found)))
        return
    figures = []
    with (
        tempfile.TemporaryDirectory() as temporary,
        Progress(console=Console(stderr=True)) as progress,
    ):
        for world in WORLDS:
            if given.world in (None, world.name):
                root = (given.folder or Path(temporary)) / world.name
                task = progress.add_task(world.name, total=world.commits)
                if not (root / keys.FORMAT_KEY).exists():
                    grow(root, world, partial(progress.advance, task))
                progress.update(task, completed=world.commits)
                lost = [_in_process(root, "--lost", what) for what in LOST]
                figures.append({**_in_process(root, "--world", world.name), "lost": lost})
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    figures = [{"world": one["world"], "measured_on": today, **one} for one in figures]
    print("\n".join(large_logs(figures)))
    if given.update:
        keep(figures)


if __name__ == "__main__":
    main()
