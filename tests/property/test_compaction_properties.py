"""Random histories that are compacted and trimmed while they grow: committed readers see what they saw
before, whatever they ask for."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import event

from tests.property.cut_histories import (
    TOPICS,
    CutHistory,
    Row,
    any_log,
    cut_histories,
    read_records,
    small_pieces,
)
from tests.property.random_writer import check_snapshot
from tests.property.trimmed_histories import Trimmer, check_totals
from txnformat.core.invariants import check_whole
from txnformat.reading.commits import committed_between, committed_sizes
from txnformat.reading.visible import count_records
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import TxnLog

NAMES = [
    "_partition",
    "_offset",
    "value",
    "_entry",
    "_commit_entry",
    "_producer_id",
    "_producer_epoch",
    "_timestamp",
]
Record = tuple[Any, ...]


class Compactor(Trimmer):
    """Compacts a history beside its trims, and holds every way to read it against what was there before."""

    def compact(self) -> None:
        """Compact some of the log: nothing that committed readers see changes, and a second time nothing is
        left to do."""
        before = self.seen(self.log)
        topic = self.random.choice([None, *TOPICS])
        target = self.random.choice([1, 300, 2_000, 10**6])
        done = self.log.compact(topic, target_bytes=target, min_lag_ms=0)
        event("compacted" if sum(one.segments for one in done) else "nothing to compact")
        assert self.seen(self.log) == before
        check_totals(self.log, self.log.state)
        assert check_whole(self.log.state) == []
        self.log.compact(topic, target_bytes=1, min_lag_ms=0)
        again = self.log.compact(topic, target_bytes=1, min_lag_ms=0)
        assert [one.segments for one in again] == [0] * len(again)
        assert self.seen(self.log) == before
        self.rows = {place: row for place, row in self.rows.items() if not self._is_gone(row)}

    def _is_gone(self, row: Row) -> bool:
        """Return whether a record was not committed, so that a compaction may have dropped it."""
        return row not in self.history.commit_entries()

    def seen(self, log: TxnLog) -> dict[object, object]:
        """Return all that committed readers can ask for."""
        state = log.refresh()
        found: dict[object, object] = {}
        for topic in TOPICS:
            found[topic] = rows_of(log.read(topic, columns=NAMES))
            found[topic, "where"] = rows_of(
                log.read(
                    topic,
                    columns=["value"],
                    where="(_offset > 3 AND _entry <> 7) OR value < 9 OR _producer_id IS NULL",
                )
            )
            found[topic, "version"] = rows_of(log.read(topic, version_as_of=state.entry, columns=NAMES))
            found[topic, "dataset"] = sorted(log.dataset(topic).to_table()["value"].to_pylist())
            floors = [one.earliest for one in log.offsets(topic)]
            window = committed_between(log.sidecars, state, topic, -1, state.entry, floors=floors)
            found[topic, "commits"] = list(read_records(log, topic, window))
            found[topic, "floors"] = window.floors
            topic_id = state.topic_ids[topic]
            sizes = committed_sizes(log.sidecars, state, [topic], -1, state.entry, {topic_id: floors})
            if not any(floors):  # a batch that the log start cuts counts as a whole, until it is compacted
                found[topic, "sizes"] = sizes[["entry", "records"]].tolist()
            for one in log.offsets(topic):
                middle = (one.earliest + one.last_stable_offset) // 2
                key = TopicPartition(topic_id, one.partition)
                for start, end in ((one.earliest, middle), (middle, one.last_stable_offset)):
                    expected = sum(
                        row[0] == one.partition and start <= row[1] < end
                        for row in found[topic]  # type: ignore[attr-defined]
                    )
                    assert count_records(log.sidecars, state, key, OffsetRange(start, end)) == expected
        return found

    def check_trimmed(self, known: int, expected: int) -> None:
        assert (
            known >= expected
        )  # of a run that the log start cuts, the largest entry of all its records counts


def rows_of(reader: Any) -> list[Record]:
    table = reader.read_all()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@cut_histories(examples=15, steps_max=40)
def test_committed_readers_see_after_a_compaction_what_they_saw_before(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, segments of any size are sealed and listed, and logs are
    opened anew."""
    with small_pieces(listed_rows, batches_max):
        store = MemoryStore()
        log = any_log(random, store)
        history = CutHistory(random, log, grows=True, batch_bytes=1)
        for topic in TOPICS:
            log.subscriptions.create(topic, "before")
        compactor = Compactor(random, log, history)
        for _ in range(steps):
            history.step()
            chance = random.random()
            if chance < 0.1:
                compactor.compact()
            elif chance < 0.15:
                compactor.trim()
            elif chance < 0.4:
                compactor.acknowledge()
        history.close()
        compactor.compact()
        for topic in TOPICS:
            log.subscriptions.create(topic, "after")
        opened = TxnLog.open(store)
        compactor.check(opened)
        check_snapshot(opened.state)
        report = opened.verify(deep=True)
        assert report.ok, report.problems
