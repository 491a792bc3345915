"""A history whose oldest records are removed while it grows, and everything that can be read of it held
against what was there."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import event

from tests.property.cut_histories import COLUMNS, TOPICS, CutHistory, Row, offsets_of, read_records
from txnformat.core.invariants import check_whole
from txnformat.core.state import LogState
from txnformat.reading.commits import committed_between
from txnformat.types import OffsetRange, TopicPartition
from txnlog import NotFoundError, OffsetOutOfRangeError, Subscription, TxnLog

__all__ = ["Trimmer", "check_totals"]

Place = tuple[str, int]
"""Topic, partition."""


class Trimmer:
    """Removes records of a history, and remembers what was where before."""

    def __init__(self, random: Random, log: TxnLog, history: CutHistory) -> None:
        self.random, self.log, self.history = random, log, history
        self.rows: dict[tuple[str, int, int], Row] = {}
        """Everything that was ever read, by topic, partition and offset."""
        self.starts: dict[Place, int] = {}
        self.gone_entry: dict[Place, int] = {}
        """Largest entry that committed a removed record."""
        self.acknowledged: set[tuple[str, int, int]] = set()

    def acknowledge(self) -> None:
        """Receive records of a subscription, and acknowledge them, or one of them."""
        topic = self.random.choice(TOPICS)
        subscription = Subscription(self.log, topic, "before")
        batch = subscription.receive(self.random.randint(1, 5), timeout_ms=0)
        if batch is None:
            return
        places = list(zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True))
        for partition, offset in places:
            assert offset >= self.starts.get((topic, partition), 0)
            assert (topic, partition, offset) not in self.acknowledged
        taken = places if self.random.random() < 0.5 else [self.random.choice(places)]
        subscription.acknowledge(taken)
        self.acknowledged |= {(topic, *place) for place in taken}

    def check_backlog(self, log: TxnLog, topic: str, now: dict[tuple[str, int, int], Row]) -> None:
        entries = self.history.commit_entries()
        stable = {one.partition: one.last_stable_offset for one in log.offsets(topic)}
        for one in log.subscriptions.describe(topic, "before").partitions:
            left = [
                place
                for place, row in now.items()
                if place[:2] == (topic, one.partition) and row in entries and place[2] < stable[one.partition]
            ]
            assert one.unacknowledged == len([place for place in left if place not in self.acknowledged])
            assert one.mark >= self.starts.get((topic, one.partition), 0)

    def trim(self) -> None:
        self.rows |= offsets_of(self.log)
        topic = self.random.choice(TOPICS)
        places = self.random.sample(self.log.offsets(topic), self.random.randint(1, 2))
        wanted = {one.partition: self.random.randint(0, one.last_stable_offset) for one in places}
        ends = {one.partition: one.last_stable_offset for one in places}
        latest = self.random.random() < 0.2
        asked = dict.fromkeys(wanted, -1) if latest else wanted
        told = [self.log.delete_records(topic, asked, dry_run=dry_run) for dry_run in (True, False)]
        assert told[0] == told[1]
        got = {one.partition: (one.previous_earliest, one.earliest) for one in told[1]}
        for number, offset in (ends if latest else wanted).items():
            before = self.starts.get((topic, number), 0)
            self.starts[topic, number] = max(before, offset)
            assert got[number] == (before, self.starts[topic, number])
            entries = self.history.commit_entries()
            removed = [
                entries[row]
                for (name, partition, at), row in self.rows.items()
                if (name, partition) == (topic, number) and before <= at < offset and row in entries
            ]
            event("removed committed records" if removed else "removed none")
            known = self.gone_entry.get((topic, number), -1)
            self.gone_entry[topic, number] = max([known, *removed])
        self.check(self.log)

    def left(self, rows: set[Row]) -> set[Row]:
        """Return those of some rows that are not removed."""
        gone = {
            row for (topic, number, at), row in self.rows.items() if at < self.starts.get((topic, number), 0)
        }
        return rows - gone

    def check(self, log: TxnLog) -> None:
        """Hold everything that can be read against what was there."""
        state = log.refresh()
        for topic in TOPICS:
            for one in log.offsets(topic):
                start = self.starts.get((topic, one.partition), 0)
                assert one.earliest == start
                key = TopicPartition(state.topic_ids[topic], one.partition)
                known = state.partition(key).trimmed_entry
                self.check_trimmed(known, self.gone_entry.get((topic, one.partition), -1))
                self.gone_entry[topic, one.partition] = known
                for offset in {start - 1, 0} - {-1, start}:
                    with pytest.raises(OffsetOutOfRangeError, match=f"earliest=`{start}`"):
                        log.read(topic, start={one.partition: offset}, partitions=[one.partition])
        assert check_whole(state) == []
        check_totals(log, state)
        now = offsets_of(log)
        assert now.keys() >= {place for place in self.rows if place[2] >= self.starts.get(place[:2], 0)}
        assert all(place[2] >= self.starts.get(place[:2], 0) for place in now)
        assert all(now[place] == row for place, row in self.rows.items() if place in now)
        for topic in TOPICS:
            self.check_backlog(log, topic, now)
        for entry in {state.entry, *(self.random.randint(0, state.entry) for _ in range(5))}:
            self.check_version(log, state, entry)
        for since in {-1, *(self.random.randint(-1, state.entry) for _ in range(5))}:
            self.check_window(log, state, since, self.random.randint(since, state.entry))

    def check_trimmed(self, known: int, expected: int) -> None:
        """Compare the trimmed entry of a partition with the largest commit entry that was removed."""
        assert known == expected

    def check_version(self, log: TxnLog, state: LogState, entry: int) -> None:
        for topic in TOPICS:
            if state.topic(topic).created_entry > entry:
                continue
            partitions = range(state.topic(topic).partitions)
            oldest = max(self.gone_entry.get((topic, number), -1) for number in partitions)
            if entry < oldest:
                with pytest.raises(NotFoundError) as caught:
                    log.read(topic, version_as_of=entry)
                assert caught.value.kind == "version-trimmed"
                continue
            table = log.read(topic, version_as_of=entry, columns=COLUMNS[:2]).read_all()
            shown = self.left({row for row in self.history.shown(entry) if row[0] == topic})
            assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == sorted(
                row[1:] for row in shown
            )

    def check_window(self, log: TxnLog, state: LogState, since: int, until: int) -> None:
        for topic in TOPICS:
            gone = [
                self.gone_entry.get((topic, number), -1) for number in range(state.topic(topic).partitions)
            ]
            floors: tuple[int, ...] = ()
            if (
                since < 0 or self.random.random() < 0.5
            ):  # a reader from the beginning, or one that takes what there is
                floors = tuple(one.earliest for one in log.offsets(topic))
            elif since < max(gone):
                with pytest.raises(NotFoundError) as caught:
                    committed_between(log.sidecars, state, topic, since, until)
                assert caught.value.kind == "version-trimmed"
                continue
            window = committed_between(log.sidecars, state, topic, since, until, floors=floors)
            found = list(read_records(log, topic, window))
            entries = self.history.commit_entries()
            expected = self.left(
                {row for row, entry in entries.items() if row[0] == topic and since < entry <= until}
            )
            assert sorted(found) == sorted(
                (number, value, entries[topic, number, value]) for _, number, value in expected
            )


def check_totals(log: TxnLog, state: LogState) -> None:
    """The totals of a partition are those of its segments that do not lie below the log start."""
    for key, partition in state.partitions.items():
        parts = log.sidecars.segments(state, key, OffsetRange(partition.log_start, partition.sealed_end))
        for name in ("records", "size", "aborted_records", "aborted_size"):
            assert getattr(partition.sealed, name) == sum(int(part.row[name]) for part in parts)
