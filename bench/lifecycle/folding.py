"""`make bench-folds`: what one commit costs beside many producers, partitions, groups and ids in the state,
and how fast a reader folds entries.

Everything is decided, built, folded and checked by the real code; nothing is stored. Times are of the
processor.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from bench.machine import ROOT
from bench.page import PAGE, RESULTS, page
from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.intents import (
    Action,
    AllocateIds,
    GroupOffsets,
    Intent,
    OpenProducer,
    ProducerRef,
    TopicAppend,
    Write,
)
from txnformat.core.invariants import check_state
from txnformat.core.operations import PendingPartition
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.state import LogState
from txnformat.core.topics.creation import new_topic
from txnformat.store.memory import MemoryStore
from txnformat.types import IDEMPOTENT_EPOCH, BatchRecord, FileRecord, ObjectRecord, Outcome, TopicPartition
from txnlog_testing.seal_of import CountedIds

__all__ = ["BESIDE", "COMMITS", "Folded", "Sizes", "compare", "fold", "text"]

HASH = "0" * 64
SCHEMA = pa.schema([("n", pa.int64())])
OWN = 8
"""Partitions, transactional ids and producers of the commits that are measured."""
AT_ONCE = 10_000
"""Operations, or partitions of a topic, of an entry that fills a state."""
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Sizes:
    """Counts of the things that a state has besides the partitions, ids and producers of the commits that are
    measured.
    """

    producers: int = 0
    partitions: int = 0
    groups: int = 0
    transactional_ids: int = 0


BESIDE: Mapping[str, Sizes] = {
    "nothing": Sizes(),
    "10,000 producers": Sizes(producers=10_000),
    "100,000 partitions": Sizes(partitions=100_000),
    "100,000 groups": Sizes(groups=100_000),
    "100,000 transactional ids": Sizes(transactional_ids=100_000),
}


class _Log:
    """A log whose entries go nowhere."""

    def __init__(self, sizes: Sizes) -> None:
        self.driver = Driver(MemoryStore(), SystemClock(), CountedIds())
        self.state = LogState(self.driver.ids.new(), entry_sha256=HASH)
        self.topic = new_topic("orders", SCHEMA, self.driver.ids.new(), partitions=OWN)
        self.kept: list[bytes] | None = None
        """The entries from a moment on."""
        self.commit(self.topic)
        self.commit(*(OpenProducer(f"own-{number}") for number in range(OWN)))
        self.first_id = self.state.next_producer_id
        self.commit(AllocateIds("a process", OWN + sizes.producers))
        self._fill(sizes)

    def _fill(self, sizes: Sizes) -> None:
        for number in range(sizes.producers):
            self.idempotent(OWN + number)
        for first in range(0, sizes.partitions, AT_ONCE):
            topic = new_topic(f"topic-{first}", SCHEMA, self.driver.ids.new(), partitions=AT_ONCE)
            self.commit(topic)
            self.commit(Write(appends=(self._wide(topic.topic_id, topic.directory, AT_ONCE),)))
        _at_once(sizes.groups, lambda numbers: self.commit(Write(offsets=tuple(map(self._offsets, numbers)))))
        named = [f"id-{number}" for number in range(sizes.transactional_ids)]
        _at_once(
            len(named), lambda numbers: self.commit(*(OpenProducer(named[number]) for number in numbers))
        )

    def commit(self, *actions: Action) -> CommitEntry:
        """Commit actions in one entry."""
        intents = [Intent(self.driver.ids.new(), self.state.entry + 1, action) for action in actions]
        assembled = assemble(
            self.state, intents, store_time_ms=FIRST_MS + self.state.entry, write_id=self.driver.ids.new()
        )
        if assembled.entry is None or len(assembled.entry.intents) != len(actions):
            raise RuntimeError(f"refused: {assembled.verdicts}")
        self.state = assembled.after
        if self.kept is not None:
            self.kept.append(assembled.data)
        return assembled.entry

    def append(self, partitions: Sequence[int], producer: ProducerRef | None = None) -> TopicAppend:
        """Return an append of one batch of one record to each of the partitions."""
        key = keys.data_key(self.topic.directory, self.state.entry, self.driver.ids.new())
        sequences = [-1] * len(partitions)
        if producer is not None:
            identity = (producer.producer_id, producer.epoch)
            parts = [self.state.partition(TopicPartition(self.topic.topic_id, one)) for one in partitions]
            windows = [part.sequences.get(identity) for part in parts]
            sequences = [window[-1].last_sequence + 1 if window else 0 for window in windows]
        return TopicAppend(
            self.topic.topic_id,
            OWN,
            (FileRecord(key, 1_000, HASH, 100, HASH, len(partitions)),),
            tuple(
                PendingPartition(one, 1, 1, sequence, HASH[:16], 8, 1, 1)
                for one, sequence in zip(partitions, sequences, strict=True)
            ),
            tuple(BatchRecord(one, 0, place, 1, 1, 8, 1, 1) for place, one in enumerate(partitions)),
        )

    def _wide(self, topic_id: str, directory: str, partitions: int) -> TopicAppend:
        """Return an append of one batch to each partition of another topic."""
        data = encode_batch_table(
            [(0, [BatchRecord(one, 0, one, 1, 1, 8, 1, 1) for one in range(partitions)])]
        )
        name = keys.table_key(self.state.entry, self.driver.ids.new())
        file = keys.data_key(directory, self.state.entry, self.driver.ids.new())
        return TopicAppend(
            topic_id,
            partitions,
            (FileRecord(file, 1_000, HASH, 100, HASH, partitions),),
            tuple(PendingPartition(one, 1, 1, -1, HASH[:16], 8, 1, 1) for one in range(partitions)),
            table=ObjectRecord(name, len(data), sha256_hex(data)),
        )

    def _offsets(self, number: int) -> GroupOffsets:
        return GroupOffsets(f"group-{number}", (OffsetCommit(self.topic.topic_id, 0, 0),))

    def transactional(self, name: str, partitions: Sequence[int]) -> CommitEntry:
        """Append in a transaction of an id, and end it in the same entry."""
        known = self.state.transactional_ids[name]
        producer = ProducerRef(known.producer_id, known.epoch, name)
        return self.commit(Write(producer, (self.append(partitions, producer),), Outcome.COMMIT))

    def idempotent(self, number: int) -> CommitEntry:
        """Append by a producer without a transactional id."""
        producer = ProducerRef(self.first_id + number, IDEMPOTENT_EPOCH)
        return self.commit(Write(producer, (self.append([number % OWN], producer),)))

    def plain(self, number: int) -> CommitEntry:
        """Append without a producer, as a bulk load does."""
        return self.commit(Write(appends=(self.append([number % OWN]),)))

    def group(self, number: int) -> CommitEntry:
        """Commit a position of a group."""
        return self.commit(Write(offsets=(self._offsets(number % OWN),)))


def _at_once(count: int, work: Callable[[range], object]) -> None:
    for first in range(0, count, AT_ONCE):
        work(range(first, min(first + AT_ONCE, count)))


COMMITS: Mapping[str, Callable[[_Log, int], CommitEntry]] = {
    "transactional append with its end": lambda log, number: log.transactional(
        f"own-{number % OWN}", [number % OWN]
    ),
    "idempotent append": lambda log, number: log.idempotent(number % OWN),
    "append without a producer": lambda log, number: log.plain(number),
    "positions of a group": lambda log, number: log.group(number),
}


def compare(
    beside: Mapping[str, Sizes] = BESIDE, rounds: int = 9, commits: int = 200
) -> dict[str, dict[str, list[float]]]:
    """Return the microseconds of a commit, a mean of each round, by kind of commit and by what is beside it.

    A commit is decided, encoded, folded and checked by the invariants of a step. The logs take turns.
    """
    logs = {name: _Log(sizes) for name, sizes in beside.items()}
    found: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in beside} for kind in COMMITS}
    for turn in range(-1, rounds):  # the first is not counted
        for kind, commit in COMMITS.items():
            for name in list(logs)[:: 1 if turn % 2 else -1]:
                log = logs[name]
                begun = time.process_time()
                for number in range(commits):
                    before = log.state
                    problems = check_state(before, commit(log, number), log.state)
                    if problems:
                        raise RuntimeError(f"a commit breaks invariants: {problems}")
                if turn >= 0:
                    found[kind][name].append(1e6 * (time.process_time() - begun) / commits)
    return found


@dataclass(frozen=True)
class Folded:
    """Figures of a reader of entries."""

    entries: int
    bytes_of_entry: int
    """Median."""
    decode_per_s: int
    fold_per_s: int
    """Without decoding."""
    both_per_s: int


def fold(entries: int = 100_000, rounds: int = 3) -> Folded:
    """Decode and fold a log of so many entries: of ten, four are transactions over several partitions, four
    idempotent appends, two positions.

    The best of several rounds is told.
    """
    log = _Log(Sizes())
    begun, log.kept = log.state, []
    for number in range(entries):
        if number % 10 < 4:
            log.transactional(f"own-{number % OWN}", [(number + one) % OWN for one in range(1 + number % 3)])
        elif number % 10 < 8:
            log.idempotent(number % OWN)
        else:
            log.group(number)
    entry_bytes, hashes = log.kept, [sha256_hex(data) for data in log.kept]
    decoded, folded = [], []
    for _ in range(rounds):
        start = time.process_time()
        read = [decode_entry(data, begun.entry + 1 + number) for number, data in enumerate(entry_bytes)]
        decoded.append(time.process_time() - start)
        state, start = begun, time.process_time()
        for entry, sha256 in zip(read, hashes, strict=True):
            state = apply(state, entry, sha256)
        folded.append(time.process_time() - start)
        if state.entry_sha256 != log.state.entry_sha256:
            raise RuntimeError("the fold ends at another entry")
    return Folded(
        entries,
        int(statistics.median(map(len, entry_bytes))),
        round(entries / min(decoded)),
        round(entries / min(folded)),
        round(entries / (min(decoded) + min(folded))),
    )


def text(times: Mapping[str, Mapping[str, Sequence[float]]], folded: Folded | None) -> list[str]:
    """Return the figures as lines of the page: microseconds, and in brackets the median of the ratios to a
    state with nothing beside.
    """
    names = list(next(iter(times.values())))
    lines = [f"| beside | {' | '.join(times)} |", "|---" * (len(times) + 1) + "|"]
    for name in names:
        shown = [_shown(found[name], found[names[0]]) for found in times.values()]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    if folded is not None:
        kinds = "transactions over one to three partitions, idempotent appends, positions of groups"
        lines += [
            "",
            (
                f"Of a log of {folded.entries:,} entries ({kinds}; {folded.bytes_of_entry:,} bytes each) one "
                "core decodes "
            )
            + (
                f"{folded.decode_per_s:,} a second and folds {folded.fold_per_s:,}; both together "
                f"{folded.both_per_s:,}."
            ),
        ]
    return lines


def _shown(times: Sequence[float], nothing: Sequence[float]) -> str:
    ratio = statistics.median(one / other for one, other in zip(times, nothing, strict=True))
    return f"{statistics.median(times):,.0f} µs ({ratio:.2f})"


def keep(lines: Iterable[str]) -> None:
    """Put the figures into the results, and make the page anew."""
    results: dict[str, Any] = json.loads((ROOT / RESULTS).read_text("utf-8"))
    results["folds"] = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), "lines": list(lines)}
    (ROOT / RESULTS).write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    (ROOT / PAGE).write_text(page(results), "utf-8")


def main() -> None:
    """Measure what the arguments ask for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.lifecycle.folding", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000, help="of the log that is folded; 0: none")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="only what has this text in its name, beside nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--update", action="store_true", help="keep the figures, and make the page anew")
    given = parser.parse_args()
    beside = {name: sizes for name, sizes in BESIDE.items() if name == "nothing" or given.only in name}
    folded = fold(given.entries) if given.entries else None
    times = compare(beside, given.rounds)
    if given.json:
        print(json.dumps({"commits": times, "fold": folded and asdict(folded)}))
    else:
        print("\n".join(text(times, folded)))
    if given.update:
        keep(text(times, folded))


if __name__ == "__main__":
    main()
