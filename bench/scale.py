"""`make bench-scale`: a partitioned topic for years.

Batches are appended, sealed and listed by the real code; no records are written.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import Action, AllocateIds, Intent, ProducerRef, SealSegments, TopicAppend, Write
from txnformat.core.operations import PendingPartition
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.snapshot.codec import encode_snapshot
from txnformat.core.state import LogState
from txnformat.core.topics.creation import new_topic
from txnformat.protocol.sealing import merge_lists, sealable, write_segments
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.types import (
    IDEMPOTENT_EPOCH,
    BatchRecord,
    FileRecord,
    ObjectRecord,
    OffsetRange,
    TopicPartition,
)
from txnlog_testing.seal_of import CountedIds

__all__ = ["Beside", "Growing", "Scale", "beside_producers", "measure"]

T = TypeVar("T")
BATCHES_OF_APPEND = 10
"""Batches for each partition: as many as a commit of a stream has, say."""
HASH = "0" * 64


@dataclass(frozen=True)
class Scale:
    """The measured figures; seconds are of CPU."""

    partitions: int
    batches: int
    segments: int
    lists: int
    listed_rows: int
    snapshot_bytes: int
    seal_s_median: float
    seal_s_first: float
    """Median of the first tenth of the seals,"""
    seal_s_last: float
    """and of the last: the same, if a seal does not cost more the longer the log is."""
    seal_s_most: float
    plan_one_partition_s: float
    """The segments of one partition from its first offset on, with nothing kept."""
    plan_all_s: float
    merge_s: float
    memory_mib: int


@dataclass(frozen=True)
class Beside:
    """The cost of a commit in a log that remembers sequences of many producers; microseconds of CPU,
    medians.
    """

    producers: int
    partitions: int
    """Each of them has written to all."""
    plain_us: float
    """A commit of one batch without a producer: deciding, building the entry, folding it."""
    idempotent_us: float
    """A commit of one batch of one of the producers."""


class Growing:
    """A log with one topic, whose objects are in memory. ``batches``: of an append, for each partition."""

    def __init__(self, partitions: int, batches: int = BATCHES_OF_APPEND) -> None:
        self._batches = batches
        self.store = MemoryStore()
        self.driver = Driver(self.store, SystemClock(), CountedIds())
        self.state = LogState(self.driver.ids.new(), entry_sha256=HASH)
        self.topic = new_topic(
            "orders", pa.schema([("n", pa.int64())]), self.driver.ids.new(), partitions=partitions
        )
        self.commit(self.topic)

    def commit(self, action: Action) -> None:
        """Decide and fold an action."""
        intent = Intent(self.driver.ids.new(), self.state.entry + 1, action)
        assembled = assemble(
            self.state, [intent], store_time_ms=1_700_000_000_000, write_id=self.driver.ids.new()
        )
        if assembled.entry is None:
            raise RuntimeError(f"refused: {assembled.verdicts}")
        self.state = assembled.after

    def append(self) -> None:
        """Append some batches of two records to every partition: one file, one batch table."""
        partitions, count = range(self.topic.partitions), self._batches
        batches = [
            BatchRecord(partition, 0, partition * count + number, 1, 2, 100, 1_000, 2_000)
            for partition in partitions
            for number in range(count)
        ]
        data = encode_batch_table([(0, batches)])
        table = ObjectRecord(
            keys.table_key(self.state.entry, self.driver.ids.new()), len(data), sha256_hex(data)
        )
        self.store.put(table.key, data)
        key = keys.data_key(self.topic.directory, self.state.entry, self.driver.ids.new())
        file = FileRecord(key, 10_000_000, HASH, 1_000, HASH, 2 * len(batches))
        pending = tuple(
            PendingPartition(partition, 2 * count, count, -1, HASH[:16], 100 * count, 1_000, 2_000)
            for partition in partitions
        )
        self.commit(
            Write(appends=(TopicAppend(self.topic.topic_id, len(partitions), (file,), pending, table=table),))
        )

    @property
    def unsealed(self) -> bool:
        """Whether anything can be sealed."""
        return bool(sealable(self.state))

    def seal(self) -> None:
        """Seal what one seal takes."""
        seal = self.driver.run(write_segments(self.state))
        if seal is not None:
            self.commit(SealSegments(seal))

    def merge(self) -> None:
        """Merge the lists of segments."""
        seal = self.driver.run(merge_lists(self.state))
        if seal is not None:
            self.commit(SealSegments(seal))

    def plan(self, cache: SidecarCache, partition: int) -> int:
        """Return how many segments a partition has."""
        key = TopicPartition(self.topic.topic_id, partition)
        wanted = OffsetRange(0, self.state.partition(key).sealed_end)
        return len(cache.segments(self.state, key, wanted))

    def write(self, producer: ProducerRef | None, sequence: int, partitions: Sequence[int]) -> None:
        """Append a record to each of the partitions."""
        key = keys.data_key(self.topic.directory, self.state.entry, self.driver.ids.new())
        batches = tuple(BatchRecord(one, 0, place, 1, 1, 8, 1, 1) for place, one in enumerate(partitions))
        pending = tuple(PendingPartition(one, 1, 1, sequence, HASH[:16], 8, 1, 1) for one in partitions)
        file = FileRecord(key, 1_000, HASH, 100, HASH, len(batches))
        append = TopicAppend(self.topic.topic_id, self.topic.partitions, (file,), pending, batches)
        self.commit(Write(producer, (append,)))


def beside_producers(producers: int, partitions: int = 20, rounds: int = 200) -> Beside:
    """Return what a commit costs when so many producers have written to all partitions of the topic."""
    log = Growing(partitions)
    for _ in range(0, producers, 1_000):
        log.commit(AllocateIds("a process", 1_000))
    for number in range(producers):
        log.write(ProducerRef(number, IDEMPOTENT_EPOCH), 0, range(partitions))
    plain = [_cpu(partial(log.write, None, -1, [number % partitions]))[0] for number in range(rounds)]
    own = [
        _cpu(partial(log.write, ProducerRef(number, IDEMPOTENT_EPOCH), 1, [number % partitions]))[0]
        for number in range(min(rounds, producers))
    ]
    median = [round(1e6 * statistics.median(times or [0.0]), 1) for times in (plain, own)]
    return Beside(producers, partitions, *median)


def _cpu(work: Callable[[], T]) -> tuple[float, T]:
    begun = time.process_time()
    found = work()
    return time.process_time() - begun, found


def measure(batches: int, partitions: int, advance: Callable[[int], object] = lambda done: None) -> Scale:
    """Append and seal so many batches over so many partitions.

    Parameters
    ----------
    advance : callable, optional
        Is told how many batches were appended since it was called last.

    Raises
    ------
    RuntimeError
        A plan does not have all segments.
    """
    log, seals, done = Growing(partitions), [], 0
    while done < batches:
        log.append()
        done += partitions * BATCHES_OF_APPEND
        while sealable(log.state):
            seals.append(_cpu(log.seal)[0])
        advance(partitions * BATCHES_OF_APPEND)
    lists = log.state.segment_lists
    one_s, _ = _cpu(lambda: log.plan(SidecarCache(log.store), partitions // 2))
    cache = SidecarCache(log.store)
    all_s, segments = _cpu(lambda: sum(log.plan(cache, number) for number in range(partitions)))
    snapshot_bytes = len(encode_snapshot(log.state))
    merge_s, _ = _cpu(log.merge)
    cache = SidecarCache(log.store)
    if sum(log.plan(cache, number) for number in range(partitions)) != segments:
        raise RuntimeError("the merged lists have other segments")
    tenth = max(1, len(seals) // 10)
    return Scale(
        partitions,
        done,
        segments,
        len(lists),
        sum(one.rows for one in lists),
        snapshot_bytes,
        round(statistics.median(seals), 4),
        round(statistics.median(seals[:tenth]), 4),
        round(statistics.median(seals[-tenth:]), 4),
        round(max(seals), 4),
        round(one_s, 4),
        round(all_s, 3),
        round(merge_s, 3),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    )


def main() -> None:
    """Measure what the arguments ask for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--batches", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--producers", type=int, default=8_000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    with Progress(console=Console(stderr=True), disable=given.json) as progress:
        task = progress.add_task("batches", total=given.batches)
        found = measure(given.batches, given.partitions, lambda more: progress.update(task, advance=more))
    beside = [beside_producers(count) for count in (0, given.producers)]
    if given.json:
        print(json.dumps({"lists": asdict(found), "producers": [asdict(one) for one in beside]}))
        return
    for table in (asdict(found), *map(asdict, beside)):
        print()
        for name, value in table.items():
            print(f"{name.replace('_', ' '):24} {value:,}")


if __name__ == "__main__":
    main()
