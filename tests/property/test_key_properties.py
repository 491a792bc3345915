"""Random histories that are compacted by key while they grow: at every moment readers have the latest record
of each key, and nothing else than what was written."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.property.cut_histories import read_records, small_pieces
from tests.property.random_writer import snapshot_of
from tests.rounds import rounds
from txnformat.admin.compaction import cleaning
from txnformat.core.invariants import check_whole
from txnformat.core.lifecycle.offset_map import SLOT_BYTES
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LogState
from txnformat.errors import NotFoundError
from txnformat.reading.commits import committed_between
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import Consumer, Producer, Subscription, TxnLog
from writers.bulk import BulkAppend

SCHEMA = pa.schema([("key", pa.string()), ("part", pa.int64()), ("value", pa.int64())])
COLUMNS = ["_partition", "_offset", "_commit_entry", "key", "part", "value"]
PARTITIONS = 2
KEYS = [(f"k{number}", part) for number in range(4) for part in (None, 1)]

Key = tuple[Any, ...]
Row = tuple[Any, ...]
"""Partition, offset, commit entry, the two key columns, value."""


class Table:
    """A topic with two key columns whose value may be null, a tombstone; every other value is there once."""

    def __init__(self, random: Random, retention_ms: int) -> None:
        self.random = random
        self.log = TxnLog.create(MemoryStore())
        self.log.create_topic(
            "t",
            SCHEMA,
            partitions=PARTITIONS,
            key_columns=["key", "part"],
            settings={
                "cleanup.policy": "compact",
                "tombstone.column": "value",
                "delete.retention.ms": retention_ms,
                "min.compaction.lag.ms": 0,
                "min.cleanable.dirty.ratio": random.choice(["0", "0.5", "1"]),
            },
        )
        self.log.subscriptions.create("t", "sub")
        self.acknowledged: set[tuple[int, int]] = set()
        self.retention_ms = retention_ms
        self.value = 0
        self.written: dict[tuple[int, int], Row] = {}
        """Every committed record that was ever seen, by partition and offset."""
        self.covered: dict[int, int] = {}
        """By partition: where the tombstones ended that the newest state had covered."""
        self.producers = [self._opened(number) for number in range(3)]
        self.open = [False] * len(self.producers)

    def _opened(self, number: int) -> Producer:
        producer = Producer(self.log, f"p{number}", buffer=("inline", "deferred", "auto")[number])
        producer.init()
        return producer

    def rows(self, count: int) -> list[dict[str, Any]]:
        found = []
        for _ in range(count):
            self.value += 1
            key, part = self.random.choice(KEYS)
            value = None if self.random.random() < 0.25 else self.value
            found.append({"key": key, "part": part, "value": value})
        return found

    def step(self) -> None:
        number = self.random.randrange(len(self.producers))
        producer = self.producers[number]
        what = self.random.choice(
            ["send", "send", "send", "end", "end", "bulk", "seal", "compact", "maintain", "ack"]
        )
        if what == "send":
            if not self.open[number]:
                producer.begin()
                self.open[number] = True
            producer.send("t", self.rows(self.random.randint(1, 5)))
            producer.flush()
        elif what == "end" and self.open[number]:
            (producer.commit if self.random.random() < 0.6 else producer.abort)()
            self.open[number] = False
        elif what == "bulk":
            with BulkAppend(self.log) as bulk:
                bulk.send("t", self.rows(self.random.randint(1, 9)))
                bulk.commit()
        elif what == "seal":
            self.log.maintain("seal")
        elif what == "ack":
            self.acknowledge()
        elif what == "compact":
            self.compact(self.random.choice([None, None, [0], [1]]))
        elif what == "maintain":
            self.note()
            self.log.maintain("compact")
            self.check()
        if self.random.random() < 0.1:
            self.log = TxnLog.open(self.log.store)  # as a snapshot and its entries say

    def close(self) -> None:
        for number, producer in enumerate(self.producers):
            if self.open[number]:
                producer.commit()
            producer.close()

    def acknowledge(self) -> None:
        subscription = Subscription(self.log, "t", "sub")
        batch = subscription.receive(self.random.randint(1, 6), timeout_ms=0)
        if batch is None:
            return
        places = list(zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True))
        assert not self.acknowledged & set(places)
        if self.random.random() < 0.3:
            self.compact()  # some of them may be gone before they are acknowledged
        taken = places if self.random.random() < 0.5 else [self.random.choice(places)]
        subscription.acknowledge(taken)
        self.acknowledged |= set(taken)

    def check_backlog(self, log: TxnLog, seen: list[Row]) -> None:
        for one in log.subscriptions.describe("t", "sub").partitions:
            left = [row for row in seen if row[0] == one.partition and row[:2] not in self.acknowledged]
            assert one.unacknowledged == len(left)

    # What readers see.

    def seen(self, log: TxnLog) -> list[Row]:
        return rows_of(log.read("t", columns=COLUMNS))

    def note(self) -> None:
        """Learn what is committed: a compaction has removed it at the earliest after this."""
        for row in self.seen(self.log):
            self.written[row[:2]] = row
        state = self.log.refresh()
        self.covered = {number: state.partition(key).cleaned_end for number, key in self.partitions(state)}

    def partitions(self, state: LogState) -> list[tuple[int, TopicPartition]]:
        topic_id = state.topic_ids["t"]
        return [(number, TopicPartition(topic_id, number)) for number in range(PARTITIONS)]

    def latest(self) -> dict[Key, Row]:
        """Return the latest committed record of each key: the winner is by offset."""
        found: dict[Key, Row] = {}
        for _, row in sorted(self.written.items()):
            found[row[0], row[3], row[4]] = row
        return found

    def compact(self, one: list[int] | None = None) -> None:
        self.note()
        target = self.random.choice([1, 300, 10**6])
        before = self.seen(self.log)
        (done,) = self.log.compact("t", one, target_bytes=target)
        event("removed" if done.removed_records else "nothing removed")
        assert len(before) - len(self.seen(self.log)) == done.removed_records
        self.check()
        if one is None:
            for number, key in self.partitions(self.log.state):
                keys = [row[3:5] for row in self.seen(self.log) if row[0] == number]
                known = self.log.state.partition(key)
                if known.cleaned_end == known.log_end:
                    assert len(set(keys)) == len(keys), "one record of each key"

    def check(self) -> None:
        """Hold everything that a reader can ask for against what was written."""
        log = TxnLog.open(self.log.store)
        state = log.state
        assert check_whole(state) == []
        seen = self.seen(log)
        assert seen == sorted(seen), "in the order of offsets"
        assert all(self.written[row[:2]] == row for row in seen), "nothing that was never written"
        latest = self.latest()
        there = set(seen)
        for key, row in latest.items():
            if row in there:
                continue
            assert row[5] is None, f"the latest record of {key} is gone"
            assert self.retention_ms == 0
            assert row[1] < self.covered[row[0]], "a tombstone goes once a compaction before had covered it"
            older = [one for one in seen if (one[0], *one[3:5]) == key]
            assert not older, "what was deleted reappears"
        self.check_ways(log, state, seen)
        self.check_backlog(log, seen)

    def check_ways(self, log: TxnLog, state: LogState, seen: list[Row]) -> None:
        window = committed_between(log.sidecars, state, "t", -1, state.entry, floors=[0] * PARTITIONS)
        committed = sorted(read_records(log, "t", window), key=str)
        newest = rows_of(log.read("t", version_as_of=state.entry, columns=COLUMNS))
        assert committed == sorted(((row[0], row[5], row[2]) for row in newest), key=str)
        assert set(seen) <= set(newest)
        oldest = max(state.partition(key).cleaned_entry for _, key in self.partitions(state))
        created = state.topic("t").created_entry
        for version in {oldest, oldest - 1, state.entry, self.random.randint(0, state.entry)}:
            if version < created:
                continue
            if version < oldest:
                with pytest.raises(NotFoundError) as caught:
                    log.read("t", version_as_of=version)
                assert caught.value.kind == "version-trimmed"
                continue
            self.check_version(log, version)
        for number, key in self.partitions(state):
            end = state.partition(key).last_stable_offset
            start = self.random.randint(0, end)
            expected = [row[1] for row in seen if row[0] == number and row[1] >= start]
            with Consumer(log) as consumer:
                consumer.assign([("t", number)])
                consumer.seek("t", number, start)
                assert [row["_offset"] for row in consumer.poll_dicts(0, max_records=10**6) or ()] == expected
                assert consumer.position("t", number) == end or expected
        data = encode_snapshot(state)
        assert encode_snapshot(decode_snapshot(data, snapshot_of(state, data), state.log_id)) == data

    def check_version(self, log: TxnLog, version: int) -> None:
        """At every version that can be read, each key has the record that was its latest then."""
        found = rows_of(log.read("t", version_as_of=version, columns=COLUMNS))
        latest: dict[Key, Row] = {}
        for _, row in sorted(self.written.items()):
            if row[2] <= version:
                latest[row[0], row[3], row[4]] = row
        assert {row for row in latest.values() if row[5] is not None} <= set(found)


def rows_of(reader: Any) -> list[Row]:
    table = reader.read_all()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@settings(max_examples=rounds(6, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.randoms(use_true_random=False),
    st.integers(10, 40),
    st.sampled_from([2, 1_000]),
    st.sampled_from([1, 3, 100_000]),
    st.sampled_from([1, 5, 10**6]),
    st.sampled_from([0, 86_400_000]),
)
def test_each_key_has_its_latest_record_whatever_is_compacted(
    random: Random, steps: int, listed_rows: int, batches_max: int, slots: int, retention_ms: int
) -> None:
    """While transactions are open, segments and lists of any size are sealed, the map has room for one key or
    for all, and logs are opened anew."""
    with small_pieces(listed_rows, batches_max), pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "MAP_BYTES", slots * SLOT_BYTES)
        table = Table(random, retention_ms)
        for _ in range(steps):
            table.step()
        table.close()
        for _ in range(3):
            table.compact()
        left = table.seen(table.log)
        if retention_ms == 0:
            assert all(row[5] is not None for row in left), "tombstones are gone"
        report = TxnLog.open(table.log.store).verify(deep=True)
        assert report.ok, report.problems
