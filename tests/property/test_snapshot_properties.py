"""Snapshot reads of random histories: at every entry each transaction is there whole, over all topics, or not
at all."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.cut_histories import COLUMNS, CutHistory, Row, any_log, offsets_of
from tests.rounds import rounds
from txnformat.store.memory import MemoryStore
from txnlog import IsolationLevel, TxnLog


def planned(log: TxnLog, entry: int, rows: dict[tuple[str, int, int], Row]) -> list[Row]:
    """Return what a snapshot at an entry would read: planning decides it, and reads no data."""
    found = []
    for topic in log.state.topics.values():
        if topic.created_entry > entry:
            continue
        plan = log.plan(topic.name, isolation=IsolationLevel.SNAPSHOT, state=log.state, as_of=entry)
        for part in plan.partitions:
            for row in part.rows:
                first = int(row["base_offset"])
                found += [
                    rows[topic.name, part.partition, offset]
                    for offset in range(first, first + int(row["take"]))
                ]
    return found


def read(log: TxnLog, entry: int) -> dict[Row, int]:
    """Return the rows of a snapshot and the entries that committed them, over all topics."""
    snapshot = log.snapshot(version_as_of=entry)
    found: dict[Row, int] = {}
    for topic in snapshot.topics():
        table = snapshot.read(topic, columns=COLUMNS).read_all()
        for partition, value, commit_entry in zip(
            *(column.to_pylist() for column in table.columns), strict=True
        ):
            assert (topic, partition, value) not in found
            found[topic, partition, value] = commit_entry
    return found


def check_all_cuts(log: TxnLog, history: CutHistory) -> None:
    rows = offsets_of(log)
    for entry in range(log.state.entry + 1):
        found = planned(log, entry, rows)
        assert len(found) == len(set(found))
        assert set(found) == history.shown(entry), entry


@settings(max_examples=rounds(10, 50), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False), st.integers(5, 40), st.sampled_from([2, 1_000]))
def test_every_cut_shows_exactly_the_transactions_that_were_committed_by_then(
    random: Random, steps: int, listed_rows: int
) -> None:
    """Before and after everything is sealed, in the process that wrote and in one that opens the log; and by
    time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.LISTED_ROWS", listed_rows)
        patch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 1_500)
        store = MemoryStore()
        log = any_log(random, store, may_be_older=True)
        history = CutHistory(random, log)
        taken = []
        for _ in range(steps):
            history.step()
            if random.random() < 0.2:
                taken.append(log.snapshot())
        log.refresh()
        check_all_cuts(log, history)
        some = random.sample(range(log.state.entry + 1), 2)
        entries = history.commit_entries()
        for entry in some:
            assert read(log, entry) == {row: entries[row] for row in history.shown(entry)}
        before = log.state.entry
        history.close()
        log.maintain("seal")
        opened = TxnLog.open(store)
        check_all_cuts(opened, history)
        for entry in some:
            assert read(opened, entry) == {row: entries[row] for row in history.shown(entry)}
        for snapshot in taken:  # planned anew, on the sealed state
            assert snapshot.entry <= before
            values = {
                (topic, value)
                for topic in snapshot.topics()
                for value in snapshot.read(topic).read_all().column("value").to_pylist()
            }
            assert values == {(topic, value) for topic, _, value in history.shown(snapshot.entry)}
        for one in opened.history(limit=10):
            assert opened.snapshot(timestamp_as_of=one.timestamp_ms).entry == one.entry
