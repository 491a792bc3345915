"""Reading random histories in the order of commits while they grow: every committed record once, no
transaction in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.property.cut_histories import (
    TOPICS,
    CutHistory,
    Row,
    any_log,
    cut_histories,
    offsets_of,
    read_records,
    small_pieces,
)
from tests.rounds import rounds
from txnformat.core.state import LogState
from txnformat.reading.commits import CommitWindow, committed_between, next_end
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import TxnLog

Cell = tuple[int, int]
"""Commit entry, offset."""
Floors = dict[str, tuple[int, ...]]
"""By topic name."""


def cells(window: CommitWindow) -> dict[int, list[Cell]]:
    """Return what a window reads of each partition, record by record in its order; partitions with nothing
    are missing."""
    found: dict[int, list[Cell]] = {}
    for part in window.partitions:
        rows = part.rows
        assert not rows["skip"].any()
        for base, take, entry in zip(
            *(rows[name].tolist() for name in ("base_offset", "take", "commit_entry")), strict=True
        ):
            found.setdefault(part.partition, []).extend(
                (entry, offset) for offset in range(base, base + take)
            )
    return found


@dataclass
class Step:
    """One window of a walk, and how it came about."""

    since: int
    tip: int
    """The last entry that it could end at."""
    rows_max: int | None
    bytes_max: int | None
    until: int
    read: dict[str, dict[int, list[Cell]]] = field(default_factory=dict)
    """By topic."""
    floors: Floors = field(default_factory=dict)
    """What it began with."""
    floors_after: Floors = field(default_factory=dict)


class Walk:
    """A reader of some topics that goes on from window to window, as a stream does."""

    def __init__(self, random: Random, topics: Sequence[str]) -> None:
        self.random, self.topics = random, topics
        self.steps: list[Step] = []
        self.entry = -1
        self.floors: Floors = {}

    def go_on(self, log: TxnLog) -> None:
        """Read one window, of random limits."""
        state = log.refresh()
        rows_max = self.random.choice([None, 1, 2, 5, 20])
        bytes_max = self.random.choice([None, None, 1, 300, 2_000])
        upto = self.random.choice([None, None, self.random.randint(-1, state.entry)])
        if self.random.random() < 0.1:
            self.floors = {}
        by_id = {state.topic_ids[name]: floors for name, floors in self.floors.items()}
        until = next_end(
            log.sidecars,
            state,
            self.topics,
            self.entry,
            by_id,
            rows_max=rows_max,
            bytes_max=bytes_max,
            upto=upto,
        )
        tip = state.entry if upto is None else min(upto, state.entry)
        step = Step(self.entry, tip, rows_max, bytes_max, until, floors=self.floors)
        self.steps.append(step)
        # A stream that finds nothing new plans nothing; here it does now and then.
        if until > self.entry or self.random.random() < 0.5:
            step.read, step.floors_after = plan(log.sidecars, state, self.topics, step)
            self.floors = step.floors_after
            self.entry = until


def plan(
    sidecars: SidecarCache, state: LogState, topics: Sequence[str], step: Step
) -> tuple[dict[str, dict[int, list[Cell]]], Floors]:
    """Return what a step's window reads, and the floors after it."""
    read, floors = {}, {}
    for name in topics:
        given_ = step.floors.get(name, ())
        window = committed_between(sidecars, state, name, step.since, step.until, floors=given_)
        assert len(window.floors) == state.topic(name).partitions == len(window.partitions)
        for number, floor in enumerate(window.floors):
            part = window.partitions[number]
            begin = given_[number] if number < len(given_) else 0
            log_end = (
                state.partitions[key].log_end
                if (key := TopicPartition(state.topic_ids[name], number)) in state.partitions
                else 0
            )
            assert begin == part.range.start <= part.range.end <= log_end
            assert begin <= floor <= log_end
        read[name], floors[name] = cells(window), window.floors
    return read, floors


def naive_end(step: Step, entries: Mapping[int, tuple[int, int]]) -> int:
    """Return where a window must end, by (records, bytes) of each entry."""
    end, rows, size = step.since, 0, 0
    for entry in sorted(entries):
        if not step.since < entry <= step.tip:
            continue
        rows += entries[entry][0]
        size += entries[entry][1]
        too_much = (step.rows_max is not None and rows > step.rows_max) or (
            step.bytes_max is not None and size > step.bytes_max
        )
        if too_much and end != step.since:
            break
        end = entry
        if too_much:
            break
    return end


def sizes_of(log: TxnLog, topics: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return records and bytes of each commit entry, from plans of all that there is at the end."""
    found: dict[int, tuple[int, int]] = {}
    for name in topics:
        for part in log.plan(name, isolation="snapshot").partitions:
            for take, size, entry in part.rows[["take", "size", "commit_entry"]].tolist():
                rows, total = found.get(entry, (0, 0))
                found[entry] = (rows + take, total + size)
    return found


def check(log: TxnLog, history: CutHistory, walk: Walk) -> None:
    """Hold a walk that has reached the end of the log against what the history knows."""
    rows = offsets_of(log)
    expected = {row: entry for row, entry in history.commit_entries().items() if row[0] in walk.topics}
    found: dict[Row, int] = {}
    """The step that read a row."""
    for number, step in enumerate(walk.steps):
        for topic, partitions in step.read.items():
            for partition, read in partitions.items():
                assert read == sorted(read)
                for entry, offset in read:
                    row = rows[topic, partition, offset]
                    assert step.since < entry <= step.until
                    assert expected[row] == entry
                    assert row not in found
                    found[row] = number
    assert found.keys() == expected.keys()
    for unit in history.units:
        assert len({found[row] for row in unit.rows if row in found}) <= 1
    entries = sizes_of(log, walk.topics)
    for step in walk.steps:
        assert step.until == naive_end(step, entries)
    for step in walk.steps:
        for (topic, partition, offset), row in rows.items():
            floors = step.floors_after.get(topic, ())
            if row in expected and partition < len(floors) and expected[row] > step.until:
                assert offset >= floors[partition]


def check_replays(log: TxnLog, walk: Walk, random: Random) -> None:
    """Any window gives the same again: on a later state, from a process without anything kept, without
    floors."""
    for step in random.sample(walk.steps, min(5, len(walk.steps))):
        for floors in (step.floors, {}):
            again = Step(step.since, step.tip, None, None, step.until, floors=floors)
            read, _ = plan(SidecarCache(log.store), log.state, walk.topics, again)
            if step.read:
                assert read == step.read


def check_backlog(log: TxnLog, walk: Walk, random: Random) -> None:
    """Windows of a backlog that nobody has read end where they must, wherever they begin."""
    entries, last = sizes_of(log, walk.topics), log.state.entry
    for _ in range(40):
        most = random.choice([None, random.randint(1, 30)])
        step = Step(random.randint(-1, last), random.randint(-1, last), most, None, -1)
        step.until = next_end(
            SidecarCache(log.store), log.state, walk.topics, step.since, {}, rows_max=most, upto=step.tip
        )
        assert step.until == naive_end(step, entries)


@cut_histories(examples=rounds(15, 25))
def test_windows_that_follow_each_other_show_each_committed_record_once(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While topics grow, transactions of all buffers are open, segments of any size are sealed, and readers
    start anew."""
    with small_pieces(listed_rows, batches_max):
        store = MemoryStore()
        log = any_log(random, store, may_be_older=True)
        # Small batches: an entry has several of a partition, which may be sealed apart.
        history = CutHistory(random, log, grows=True, batch_bytes=1)
        walks = [Walk(random, TOPICS), Walk(random, random.sample(TOPICS, 1))]
        for _ in range(steps):
            history.step()
            if random.random() < 0.4:
                random.choice(walks).go_on(random.choice([log, TxnLog.open(store)]))
        history.close()
        for walk in walks:
            if random.random() < 0.3:
                log.maintain("seal")
            check_replays(TxnLog.open(store), walk, random)
            while walk.entry < next_end(log.sidecars, log.refresh(), walk.topics, walk.entry, {}):
                walk.go_on(log)
            check(log, history, walk)
            check_replays(TxnLog.open(store), walk, random)
        log.maintain("seal")
        opened = TxnLog.open(store)
        for walk in walks:
            check_replays(opened, walk, random)
            check_backlog(opened, walk, random)
        tip = opened.state.entry
        for topic in TOPICS:  # a batch read in this order is one window
            whole = committed_between(opened.sidecars, opened.state, topic, -1, tip)
            entries = history.commit_entries()
            assert sorted(read_records(opened, topic, whole)) == sorted(
                (partition, value, entry)
                for (name, partition, value), entry in entries.items()
                if name == topic
            )
