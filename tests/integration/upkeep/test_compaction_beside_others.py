"""Compactions that take long, or whose topics change or go meanwhile, and windows of commits between the
entries of runs."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS
from tests.model.groups import ManualClock
from txnformat.admin.compaction import CompactionProgress, call
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.reading import replacing
from txnformat.reading.commits import committed_between
from txnformat.store.memory import MemoryStore
from txnformat.types import OffsetRange, TopicPartition
from txnlog import InvalidInputError, Producer, TxnLog

GRACE = datetime.timedelta(hours=2)


def made(store: MemoryStore | None = None, **values: Any) -> TxnLog:
    log = TxnLog.create(MemoryStore() if store is None else store, **values)
    log.create_topic("t", NUMBERS, partitions=2)
    return log


def write(log: TxnLog, numbers: list[int], *, name: str = "p") -> None:
    """Write each number in a transaction of its own, in the partition of its parity."""
    with Producer(log, name) as producer:
        for number in numbers:
            with producer.transaction() as txn:
                txn.send("t", pa.table({"n": [number]}), partition=number % 2)


def part_of(log: TxnLog) -> SegmentPart:
    """Return the first sealed part of partition 0."""
    state = log.refresh()
    return log.sidecars.segments(state, TopicPartition(state.topic_ids["t"], 0), OffsetRange(0, 1))[0]


def test_a_compaction_may_take_longer_than_the_grace_of_a_vacuum() -> None:
    """Each step is shorter: what it writes is named before it is too old, and what it reads is what is there
    then."""
    clock = ManualClock()
    log = made(MemoryStore(clock), clock=clock)
    for number in range(20):
        write(log, [number])
        log.maintain("seal")
    other = TxnLog.open(log.store, clock=clock)
    steps = 0

    def go_on(_: CompactionProgress) -> None:
        nonlocal steps
        steps += 1
        clock.sleep(3_000)
        write(other, [100 + steps], name="q")
        other.vacuum(GRACE)

    (done,) = log.compact("t", target_bytes=1, min_lag_ms=0, progress=go_on)
    assert done.segments == steps > 5
    found = log.read("t").read_all()["n"].to_pylist()
    assert sorted(found) == [*range(20), *range(101, 101 + steps)]
    report = log.verify(deep=True)
    assert report.ok, report.problems


def test_what_was_compacted_or_removed_between_two_steps_is_left_alone() -> None:
    log = made()
    for number in range(4):
        write(log, [2 * number])
        log.maintain("seal")
    other = TxnLog.open(log.store)
    begun = False

    def meanwhile(_: CompactionProgress) -> None:
        nonlocal begun
        if not begun:
            begun = True
            other.compact("t", target_bytes=10**6, min_lag_ms=0)

    (done,) = log.compact("t", target_bytes=1, min_lag_ms=0, progress=meanwhile)
    assert done.segments == 1
    assert log.read("t").read_all()["n"].to_pylist() == [0, 2, 4, 6]
    assert log.verify(deep=True).ok


@pytest.mark.parametrize("deleted", ["a", "b"])
def test_a_topic_that_is_deleted_meanwhile_does_not_keep_the_others_from_it(deleted: str) -> None:
    log = TxnLog.create(MemoryStore())
    for name in ("a", "b", "c"):
        log.create_topic(name, NUMBERS)
        with Producer(log) as producer:
            producer.send(name, pa.table({"n": [1]}))
            producer.flush()
            producer.send(name, pa.table({"n": [2]}))
    other = TxnLog.open(log.store)

    def delete(done: CompactionProgress) -> None:
        if done.topic == "a" and deleted in other.topics():
            other.delete_topic(deleted)

    found = log.compact(target_bytes=1, min_lag_ms=0, progress=delete)
    assert [one.topic for one in found] == sorted({"a", "b", "c"} - ({deleted} - {"a"}))
    assert found[-1].segments > 0
    assert log.verify(deep=True).ok


@pytest.mark.parametrize("by_settings", [True, False])
def test_a_topic_that_is_deleted_just_before_the_entry_is_left_out(
    monkeypatch: pytest.MonkeyPatch, *, by_settings: bool
) -> None:
    log = made()
    write(log, list(range(8)))
    log.maintain("seal")
    other = TxnLog.open(log.store)
    create_runs = replacing.create_runs

    def delete_first(*values: Any) -> Any:
        other.delete_topic("t")
        return create_runs(*values)

    monkeypatch.setattr(call, "create_runs", delete_first)
    found = log.maintain("compact").compacted if by_settings else log.compact(min_lag_ms=0)
    assert not found
    assert "t" not in log.topics()


def test_maintenance_tells_of_a_file_that_is_gone() -> None:
    """A topic that is gone is left out; a file that is gone is damage."""
    log = made()
    write(log, list(range(8)))
    log.maintain("seal")
    index = log.sidecars.index(part_of(log).record.index)
    log.store.delete(index.files[min(index.files)].key)
    (damaged,) = log.maintain("compact").damaged
    assert (damaged.topic, damaged.kind) == ("t", "segment-file-missing")


@pytest.mark.parametrize("partitions", [0, "0", {0: 1}])
def test_partitions_that_are_no_list_are_refused(partitions: Any) -> None:
    with pytest.raises(InvalidInputError) as caught:
        made().compact("t", partitions)
    assert caught.value.kind == "invalid-partitions"


def test_partitions_may_come_from_a_generator() -> None:
    log = made()
    write(log, list(range(4)))
    (done,) = log.compact("t", (number for number in range(1)), min_lag_ms=0)  # type: ignore[arg-type]
    assert done.partitions == 1


def test_a_window_of_commits_in_which_no_run_has_an_entry_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs whose commit entries overlap, both with some before the window and some behind it."""
    monkeypatch.setattr("txnformat.protocol.sealing.BATCHES_MAX", 2)
    log = made()
    write(log, [0])
    producers = [Producer(log, f"open {number}", buffer="inline") for number in (2, 4)]
    for number, producer in zip((2, 4), producers, strict=True):
        producer.init()
        producer.begin()
        producer.send("t", pa.table({"n": [number]}), partition=0)
        producer.flush()
    write(log, [6])
    since = log.refresh().entry
    for name in ("a", "b"):
        log.create_topic(name, NUMBERS)
    until = log.state.entry
    for producer in producers:
        producer.commit()
        producer.close()
    log.maintain("seal")
    assert log.compact("t", target_bytes=1, min_lag_ms=0)[0].segments > 1
    window = committed_between(log.sidecars, log.refresh(), "t", since, until, floors=[0, 0])
    assert [len(part.rows) for part in window.partitions] == [0, 0]
    assert window.floors[0] == 2


@pytest.mark.parametrize(
    "change", [{"add_columns": pa.schema([("more", pa.string())])}, {"widen": {"n": pa.int64()}}]
)
def test_a_snapshot_whose_topic_changes_and_is_compacted_reads_on(change: dict[str, Any]) -> None:
    """Its records get the newest version of the schema; it reads them by its own. What is younger may not
    even fit into it."""
    small = pa.schema([("n", pa.int16())])
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", small)

    def append(*numbers: int) -> None:
        with Producer(log) as producer:
            schema = log.state.topic("t").schema.arrow_schema
            rows = [{name: number if name == "n" else None for name in schema.names} for number in numbers]
            producer.send("t", pa.Table.from_pylist(rows, schema))

    append(1, 2)
    append(3)
    snapshot = log.snapshot()
    log.alter_topic("t", **change)
    append(2**40 if "widen" in change else 4)
    assert log.compact("t", min_lag_ms=0)[0].segments == 1
    found = snapshot.read("t").read_all()
    assert (found.schema, found["n"].to_pylist()) == (small, [1, 2, 3])
    assert snapshot.read("t", where="n > 1").read_all()["n"].to_pylist() == [2, 3]
    for end in (None, 2):
        table = snapshot.dataset("t", end=end).to_table()
        assert (table.schema, table["n"].to_pylist()) == (small, [1, 2, 3][:end])
