"""Reads whose files are compacted and vacuumed while they read: each record comes once, from wherever it then
is."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS
from tests.integration.upkeep.vacuum_world import Interposed
from tests.model.groups import ManualClock
from txnformat.core.state import LogState
from txnformat.reading.commits import committed_between
from txnformat.reading.resolving import PartitionRead, Resolver, on_newest, read_resolved
from txnformat.store.memory import MemoryStore
from txnformat.types import IsolationLevel
from txnlog import Consumer, NotFoundError, OffsetOutOfRangeError, Producer, Subscription, TxnLog, TxnLogError

GRACE = datetime.timedelta(hours=2)
COUNT = 8
ENDS = 28
"""The end of the partition,"""
LAST = 46
"""and the last entry."""
Read = Callable[[TxnLog], Any]


class World:
    """Eight records in sealed segments, of which a compaction has written some together; transactions whose
    commits interlock, and aborted records."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.log = TxnLog.create(self.store, clock=self.clock)
        self.log.create_topic("t", NUMBERS)
        self.log.subscriptions.create("t", "s")
        for number in range(0, COUNT, 2):
            self._two(number)
            self.log.maintain("seal")
            if number == 0:
                self.log.compact("t", target_bytes=1 << 30, min_lag_ms=0)
        assert (self.log.state.entry, self.log.offsets("t")[0].log_end) == (LAST, ENDS)

    def _two(self, number: int) -> None:
        one, two, lost = (Producer(self.log, name, buffer="inline") for name in "abc")
        with one, two, lost:
            for producer, value in ((one, number), (lost, 1_000 + number), (two, number + 1)):
                producer.begin()
                values = [value, -1] if producer is two else [value]
                producer.send("t", pa.table({"n": values}), partition=0)
                producer.flush()
            two.commit()
            lost.abort()
            one.commit()

    def copied(self) -> World:
        other = object.__new__(World)
        other.clock = self.clock
        other.store = MemoryStore(self.clock)
        for info in self.store.list(""):
            other.store.create(info.key, self.store.get(info.key) or b"")
        return other

    def become(self, other: World) -> None:
        """Get the objects of another world, as if all that happened there had happened here."""
        found = {info.key for info in other.store.list("")}
        for key in {info.key for info in self.store.list("")} - found:
            self.store.delete(key)
        for key in found:
            self.store.put(key, other.store.get(key) or b"")

    def overtake(self) -> None:
        """Compact everything, and delete all that was replaced."""
        log = TxnLog.open(self.store, clock=self.clock)
        log.compact("t", target_bytes=1 << 30, min_lag_ms=0)
        for _ in range(3):
            self.clock.sleep(GRACE.total_seconds() + 1)
            with Producer(log, "d") as producer, producer.transaction() as txn:  # log time passes by entries
                txn.send("t", pa.table({"n": [-1]}), partition=0)
            log.vacuum(GRACE)


@pytest.fixture(scope="module")
def world() -> World:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.reading.compacting.ROW_GROUP_BYTES", 1)  # a compacted file has many runs
        patch.setattr("txnformat.segments.writer.ROW_GROUP_BYTES_MAX", 8)  # a record is a row group
        return World()


@pytest.fixture(scope="module")
def later(world: World) -> World:
    here = world.copied()
    here.overtake()
    return here


@pytest.fixture(autouse=True)
def _in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetch row group after row group, and nothing ahead: so the requests have an order."""
    monkeypatch.setattr("txnformat.segments.reader.WINDOW_BYTES", 1)
    for place in ("txnformat.segments.reader.ahead", "txnformat.reading.rows.ahead"):
        monkeypatch.setattr(place, lambda function, items, **_: map(function, items))


@pytest.fixture
def _file_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no small files together: what is read later is fetched later."""
    monkeypatch.setattr("txnformat.reading.rows.GROUP_BYTES", 0)


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist() if n >= 0]


def scan(log: TxnLog) -> list[int]:
    return numbers(log.read("t", columns=["n"]))


def scan_where(log: TxnLog) -> list[int]:
    return [*numbers(log.read("t", columns=["_timestamp", "n"], where="n >= 0 AND n < 7")), 7]


def count(log: TxnLog) -> list[int]:
    """Read no column, only the number of records."""
    return list(range(sum(batch.num_rows for batch in log.read("t", columns=[], end=ENDS)) - COUNT // 2))


def version(log: TxnLog) -> list[int]:
    return numbers(log.read("t", version_as_of=log.state.entry))


def snapshot(log: TxnLog) -> list[int]:
    return numbers(log.snapshot().read("t"))


def uncommitted(log: TxnLog) -> list[int]:
    """Aborted records are there until a compaction drops them."""
    return [n for n in numbers(log.read("t", isolation="read_uncommitted")) if n < 1_000]


def dataset(log: TxnLog) -> list[int]:
    """Make a dataset: it reads cut row groups at once, the others stay where they were planned."""
    made = log.dataset("t", start=1, end=ENDS)
    assert made.schema == NUMBERS
    return list(range(COUNT))


def consume(log: TxnLog) -> list[int]:
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        return numbers(consumer.batches(max_records=1))


def subscribe(log: TxnLog) -> list[int]:
    with Subscription(log, "t", "s") as subscription:
        return numbers(iter(lambda: subscription.receive(5, 0), None))


def commits(log: TxnLog) -> list[int]:
    """Read in the order of commits, with the plan of the state that is known."""
    state = log.state
    topic = state.topic("t")
    window = on_newest(
        log.refresh, lambda state: committed_between(log.sidecars, state, "t", -1, topic_end(state)), state
    )
    resolver = Resolver(log.sidecars, log.refresh, topic.topic_id, IsolationLevel.READ_COMMITTED, state.entry)
    found = []
    for part in window.partitions:
        reading = PartitionRead(resolver, "t", topic.schema, part.partition, ["n"])
        found += numbers(read_resolved(reading, part.rows, window.files.__getitem__))
    return [found[place ^ 1] for place in range(COUNT)]  # of each pair the second one is committed first


def topic_end(state: LogState) -> int:
    return min(state.entry, LAST)


@pytest.mark.parametrize(
    "read", [scan, scan_where, count, version, snapshot, uncommitted, dataset, consume, subscribe, commits]
)
def test_a_read_that_is_overtaken_at_any_request_gives_each_record_once(
    world: World, later: World, read: Read
) -> None:
    number, requests = 0, 1
    while number < requests:
        here = world.copied()
        store = Interposed(here.store)
        log = TxnLog.open(store, clock=here.clock)
        if number == 0:
            before = store.count
            assert read(log) == list(range(COUNT))
            requests = store.count - before
            here = world.copied()
            store = Interposed(here.store)
            log = TxnLog.open(store, clock=here.clock)
        store.number, store.other = store.count + number, partial(here.become, later)
        assert read(log) == list(range(COUNT)), number
        number += 1
    assert requests > 3


def trimmed(log: TxnLog) -> None:
    log.delete_records("t", {0: 16})


def created_again(log: TxnLog) -> None:
    log.delete_topic("t")
    log.create_topic("t", NUMBERS)


@pytest.mark.usefixtures("_file_by_file")
@pytest.mark.parametrize(
    ("change", "error", "kind"),
    [
        (trimmed, OffsetOutOfRangeError, "offset-out-of-range"),
        (created_again, NotFoundError, "topic-gone"),
    ],
)
def test_a_read_whose_records_are_gone_for_good_says_so(
    world: World, change: Callable[[TxnLog], object], error: type[TxnLogError], kind: str
) -> None:
    here = world.copied()
    log = TxnLog.open(here.store, clock=here.clock)
    batches = iter(log.read("t"))
    first = next(batches).column("n").to_pylist()
    assert first == [0]
    change(TxnLog.open(here.store, clock=here.clock))
    here.overtake()
    with pytest.raises(error) as caught:
        list(batches)
    assert caught.value.kind == kind


def test_a_consumer_whose_records_were_trimmed_meanwhile_goes_on_by_its_policy(world: World) -> None:
    here = world.copied()
    log = TxnLog.open(here.store, clock=here.clock)
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        assert numbers([consumer.poll(0, 1)]) == [0]
        trimmed(TxnLog.open(here.store, clock=here.clock))
        here.overtake()
        assert numbers(consumer.batches()) == [5, 6, 7]


def test_a_version_whose_keys_were_compacted_meanwhile_is_refused() -> None:
    here = object.__new__(World)
    here.clock = ManualClock()
    here.store = MemoryStore(here.clock)
    log = TxnLog.create(here.store, clock=here.clock)
    log.create_topic(
        "t", NUMBERS, key_columns=["n"], settings={"cleanup.policy": "compact", "min.compaction.lag.ms": 0}
    )
    version = -1
    for number in range(4):
        version = log.state.entry
        with Producer(log, "a") as producer, producer.transaction() as txn:
            txn.send("t", pa.table({"n": [number % 2]}), partition=0)
        log.maintain("seal")
    reads = [iter(log.read("t", version_as_of=version)), iter(log.read("t"))]
    here.overtake()
    with pytest.raises(NotFoundError) as caught:
        list(reads[0])
    assert caught.value.kind == "version-trimmed"
    assert numbers(reads[1]) == [0, 1]


@pytest.mark.usefixtures("_file_by_file")
def test_a_file_that_the_newest_state_still_names_is_missing(world: World) -> None:
    here = world.copied()
    log = TxnLog.open(here.store, clock=here.clock)
    batches = iter(log.read("t"))
    next(batches)
    for info in here.store.list(f"{log.state.topic('t').directory}/data/"):
        here.store.delete(info.key)
    with pytest.raises(NotFoundError) as caught:
        list(batches)
    assert caught.value.kind == "segment-file-missing"
