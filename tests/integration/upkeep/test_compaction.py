"""Compaction beside everything else: other clients at each moment, readers of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, QuickClock
from tests.older_logs import older_log
from txnformat.core.sealing.sidecar import decode_index
from txnformat.keys import is_runs_key, parse_index_key
from txnformat.reading.commits import committed_between, next_end
from txnformat.reading.compacting import CompactedFiles
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import RequestKind
from txnformat.types import ObjectRecord, OffsetRange, TopicPartition
from txnlog import (
    ConflictError,
    Consumer,
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    Producer,
    Subscription,
    TxnLog,
    UnsupportedFeatureError,
)
from txnlog_testing.stores.faulty import Fault, FaultyStore

NAMES = [
    "n",
    "_partition",
    "_offset",
    "_timestamp",
    "_entry",
    "_commit_entry",
    "_producer_id",
    "_producer_epoch",
]
DAY_MS = 86_400_000


def write(log: TxnLog, numbers: list[int], *, commit: bool = True, name: str = "p") -> None:
    """Write each number in a transaction of its own, in the partition of its parity."""
    with Producer(log, name) as producer:
        for number in numbers:
            producer.begin()
            producer.send("t", pa.table({"n": [number]}), partition=number % 2)
            producer.flush()
            if commit:
                producer.commit()
            else:
                producer.abort()


def made(store: Any = None, **values: Any) -> TxnLog:
    log = TxnLog.create(MemoryStore() if store is None else store, **values)
    log.create_topic("t", NUMBERS, partitions=2)
    return log


@pytest.fixture
def log() -> Iterator[TxnLog]:
    """A log with 20 records in two partitions, between them two aborted ones, not yet sealed."""
    log = made()
    write(log, list(range(10)))
    write(log, [100, 101], commit=False)
    write(log, list(range(10, 20)))
    yield log
    report = log.verify(deep=True)
    assert report.ok, report.problems


def rows(log: TxnLog, **values: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log.read("t", columns=NAMES, **values).read_all().to_pylist()
    return found


def compacted(log: TxnLog, **values: Any) -> int:
    """Return how many new segments a compaction made."""
    return sum(one.segments for one in log.compact(**{"min_lag_ms": 0, **values}))


def indexes(log: TxnLog) -> list[str]:
    state = log.refresh()
    found = []
    for number in range(2):
        key = TopicPartition(state.topic_ids["t"], number)
        parts = log.sidecars.segments(state, key, OffsetRange(0, state.partition(key).sealed_end))
        found += [part.record.index.key for part in parts]
    return found


# --- what it does -------------------------------------------------------------------------------------------


def test_small_files_become_one_and_a_second_compaction_has_nothing_to_do(log: TxnLog) -> None:
    before = rows(log)
    (found,) = log.compact("t", min_lag_ms=0)
    assert (found.partitions, found.segments_before, found.segments) == (2, 2, 2)
    assert (found.files_before, found.files) == (20, 1)
    assert (found.requests_before, found.requests) == (21, 2)
    assert found.size_before > 0 < found.size
    assert rows(log) == before
    assert [is_runs_key(key) for key in indexes(log)] == [True, True]
    entry = log.state.entry
    assert compacted(log) == 0
    assert log.refresh().entry == entry


def test_a_dry_run_tells_what_a_compaction_would_do_and_changes_nothing(log: TxnLog) -> None:
    log.compact("t", [0], min_lag_ms=0, target_bytes=1)
    entry = log.refresh().entry
    told = log.compact("t", min_lag_ms=0, dry_run=True)
    assert log.refresh().entry == entry
    assert told[0].partitions == 1


def test_readers_need_fewer_requests(log: TxnLog) -> None:
    def requests() -> int:
        count = 0

        def watch(operation: RequestKind, key: str, nth: int) -> Fault | None:
            nonlocal count
            count += operation in (RequestKind.GET, RequestKind.GET_RANGE)
            return None

        with TxnLog.open(FaultyStore(log.store, watch)) as opened:
            opened.refresh()
            count = 0
            assert opened.read("t").read_all().num_rows == 20
        return count

    before = requests()
    assert compacted(log) == 2
    assert requests() < before // 4


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"target_bytes": 0}, "invalid-target-bytes"),
        ({"target_bytes": -1}, "invalid-target-bytes"),
        ({"target_bytes": 1.5}, "invalid-target-bytes"),
        ({"min_lag_ms": -1}, "invalid-min-lag-ms"),
        ({"partitions": [0]}, "invalid-partitions"),
        ({"progress": 5}, "invalid-argument"),
    ],
)
def test_odd_arguments_are_refused(values: dict[str, Any], kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        made().compact(**values)
    assert caught.value.kind == kind


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(NotFoundError):
        made().compact("none")
    with pytest.raises(NotFoundError):
        made().compact("t", [2])


def test_an_older_log_must_be_upgraded_first() -> None:
    with pytest.raises(UnsupportedFeatureError) as caught:
        older_log(MemoryStore()).compact()
    assert caught.value.kind == "upgrade-required"


def test_records_that_were_aborted_lately_stay_until_they_are_old() -> None:
    clock = QuickClock()
    log = made(MemoryStore(clock), clock=clock)
    write(log, [0, 2])
    write(log, [100], commit=False)
    write(log, [4, 6])
    log.maintain("seal")
    before = rows(log, isolation="read_uncommitted")
    assert log.compact()[0].segments == 1  # the part without aborted records
    assert rows(log, isolation="read_uncommitted") == before
    clock.set_back(-8 * DAY_MS)
    write(log, [8])
    assert log.compact()[0].segments >= 1
    assert [row["n"] for row in rows(log, isolation="read_uncommitted")] == [0, 2, 4, 6, 8]


# --- others at the same time --------------------------------------------------------------------------------


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], object]) -> None:
    """Do something once, after the new files are written and before they are named."""
    close = CompactedFiles.close
    done: list[bool] = []

    def closed(self: CompactedFiles) -> object:
        found = close(self)
        if not done:
            done.append(True)
            what()
        return found

    monkeypatch.setattr(CompactedFiles, "close", closed)


def test_a_writer_that_appends_seals_and_merges_lists_meanwhile_loses_nothing(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TxnLog.open(log.store)
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_SEGMENTS", 0)

    def act() -> None:
        write(other, [30, 31], name="q")
        lists = other.refresh().segment_lists
        other.maintain("seal")
        assert not {one.key for one in lists} & {one.key for one in other.refresh().segment_lists}

    meanwhile(monkeypatch, act)
    assert compacted(log) == 2
    assert sorted(row["n"] for row in rows(log)) == [*range(20), 30, 31]
    assert [is_runs_key(key) for key in indexes(log)] == [True, False, True, False]


def test_what_another_compactor_has_written_meanwhile_stays(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TxnLog.open(log.store)
    before = rows(log)
    meanwhile(monkeypatch, lambda: compacted(other, topic="t", partitions=[0]))
    assert compacted(log) == 0, "its file has records of the partition that the other one has compacted"
    assert rows(log) == before
    assert compacted(log) == 1
    assert rows(log) == before
    assert log.state.partition(TopicPartition(log.state.topic_ids["t"], 0)).revision == 1
    assert len(set(indexes(log))) == 2  # one object of each compactor


def test_a_trim_meanwhile_counts_for_the_compaction_and_the_other_way_round(
    log: TxnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = TxnLog.open(log.store)
    meanwhile(monkeypatch, lambda: other.delete_records("t", {0: 4}))
    assert compacted(log) == 0  # the file has records that are removed
    assert next(row["_offset"] for row in rows(log, partitions=[0])) >= 4
    assert compacted(log) == 2
    log.delete_records("t", {0: 6})
    assert compacted(log) == 0

    committed = log.committer.commit

    def compact_first(intent: Any) -> Any:
        monkeypatch.setattr(log.committer, "commit", committed)
        write(other, [40, 42, 44], name="q")
        compacted(other)
        return committed(intent)

    monkeypatch.setattr(log.committer, "commit", compact_first)
    log.delete_records("t", {0: 8})
    assert log.offsets("t")[0].earliest == 8


def test_a_reader_that_has_planned_goes_on(log: TxnLog) -> None:
    log.maintain("seal")
    plan = log.read("t", columns=NAMES)
    with Consumer(log, columns=["n"]) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        consumer.seek_to_beginning()
        first = consumer.poll(0, 3)
        assert first is not None
        assert compacted(log) == 2
        found = first["n"].to_pylist()
        while (batch := consumer.poll(0, 3)) is not None:
            found += batch["n"].to_pylist()
    assert sorted(found) == list(range(20))
    assert sorted(plan.read_all()["n"].to_pylist()) == list(range(20))


# --- readers of every kind ----------------------------------------------------------------------------------


@pytest.fixture
def both() -> tuple[TxnLog, TxnLog]:
    """Two logs with the same records: one is compacted."""
    pair = []
    for compact in (False, True):
        clock = QuickClock()
        log = made(MemoryStore(clock), clock=clock)
        for number in range(0, 40, 4):
            write(log, [number, number + 1, number + 2])
            write(log, [1_000 + number, 1_001 + number], commit=False)
            clock.set_back(-60_000)
        log.maintain("seal")
        if compact:
            assert compacted(log, target_bytes=10**6) == 2
        pair.append(log)
    return pair[0], pair[1]


def test_conditions_versions_and_ranges_give_the_same(both: tuple[TxnLog, TxnLog]) -> None:
    plain, small = both
    version = plain.state.entry
    for values in (
        {"where": "n > 7 AND n < 30"},
        {"where": "_offset >= 9"},
        {"where": "_entry > 20 OR _producer_id IS NULL"},
        {"where": f"_commit_entry <= {version // 2}"},
        {"where": "_timestamp > TIMESTAMP '2000-01-01 00:00:00+00:00' AND n <> 5"},
        {"where": "_partition = 1"},
        {"version_as_of": version // 2},
        {"version_as_of": version // 3, "where": "n <> 2"},
        {"start": {0: 7, 1: 3}, "end": {0: 29, 1: 17}},
        {"start": {0: 11}, "end": {0: 12}, "partitions": [0]},
    ):
        expected, got = ([row["n"] for row in rows(log, **values)] for log in (plain, small))
        assert got == expected, values
        assert "version_as_of" in values or expected or values["start"] == {0: 11}
    assert small.read("t", columns=[]).read_all().num_rows == plain.read("t", columns=[]).read_all().num_rows


def test_windows_of_commits_are_the_same(both: tuple[TxnLog, TxnLog]) -> None:
    floors: list[dict[str, tuple[int, ...]]] = [{}, {}]
    since = -1
    while True:
        ends = [
            next_end(log.sidecars, log.state, ["t"], since, known, rows_max=5)
            for log, known in zip(both, floors, strict=True)
        ]
        assert ends[0] == ends[1]
        if ends[0] == since:
            break
        for place, log in enumerate(both):
            topic_id = log.state.topic_ids["t"]
            window = committed_between(
                log.sidecars, log.state, "t", since, ends[0], floors=floors[place].get(topic_id, ())
            )
            floors[place] = {topic_id: window.floors}
        since = ends[0]
    assert since > 20
    assert list(floors[0].values()) == list(floors[1].values())


def test_times_subscriptions_datasets_and_consumers_see_the_same(both: tuple[TxnLog, TxnLog]) -> None:
    plain = both[0]
    times = sorted({row["_timestamp"] for row in rows(plain)})
    found: list[list[object]] = [[], []]
    for place, log in enumerate(both):
        with Consumer(log) as finder:
            for moment in times:
                found[place].append(finder.offsets_for_times({("t", 0): moment, ("t", 1): moment}))
        log.subscriptions.create("t", "s")
        subscription = Subscription(log, "t", "s")
        while (batch := subscription.receive(4, timeout_ms=0)) is not None:
            places = list(zip(batch["_partition"].to_pylist(), batch["_offset"].to_pylist(), strict=True))
            found[place].append(places)
            subscription.acknowledge(places[:2])
            if places[2:]:
                subscription.acknowledge(places[2:])
        found[place].append(log.subscriptions.describe("t", "s").partitions)
        for values in ({}, {"end": {0: 13, 1: 9}}):
            found[place].append(sorted(log.dataset("t", **values).to_table()["n"].to_pylist()))  # type: ignore[arg-type]
        with Consumer(log, columns=["n"]) as consumer:
            consumer.assign([("t", 0)])
            consumer.seek("t", 0, 5)
            numbers: list[int] = []
            while (batch := consumer.poll(0, 2)) is not None:
                numbers += batch["n"].to_pylist()
            found[place].append(numbers)
    assert found[0] == found[1]


def test_a_topic_that_has_changed_is_compacted_to_its_newest_columns() -> None:
    log = made()
    write(log, [1, 2, 3, 4])
    log.alter_topic("t", add_columns=pa.schema([("more", pa.list_(pa.string()))]))
    with Producer(log, "w") as producer, producer.transaction() as txn:
        txn.send("t", pa.table({"n": [5], "more": [["a", None]]}), partition=1)
    before = log.read("t").read_all().to_pylist()
    assert compacted(log) == 2
    assert log.read("t").read_all().to_pylist() == before
    assert log.verify(deep=True).ok


def test_large_rows_are_written_into_files_without_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    log = TxnLog.create(MemoryStore(), embedding=False)
    log.create_topic("t", pa.schema([("n", pa.int64()), ("text", pa.string())]))
    monkeypatch.setattr("txnformat.reading.compacting.ROW_GROUP_BYTES", 3_000)
    with Producer(log) as producer:
        for number in range(30):
            producer.send("t", pa.table({"n": [number], "text": ["x" * 1_000]}))
            producer.flush()
    assert compacted(log) == 1
    assert log.read("t", columns=["n"]).read_all()["n"].to_pylist() == list(range(30))
    (key,) = set(
        log.sidecars.segments(log.state, TopicPartition(log.state.topic_ids["t"], 0), OffsetRange(0, 30))
    )
    assert len(log.sidecars.index(key.record.index).runs) > 5
    assert log.verify(deep=True).ok


def test_retention_goes_by_what_was_compacted() -> None:
    clock = QuickClock()
    log = made(MemoryStore(clock), clock=clock)
    write(log, [0, 2, 4])
    assert compacted(log) == 1
    clock.set_back(-2 * DAY_MS)
    write(log, [6, 8])
    assert compacted(log, target_bytes=1) == 1
    log.alter_topic("t", settings={"retention.ms": DAY_MS})
    log.maintain("retention")
    assert [row["n"] for row in rows(log)] == [6, 8]
    assert log.verify(deep=True).ok


def test_a_vacuum_deletes_the_old_files_and_keeps_the_new_ones() -> None:
    clock = QuickClock()
    store = MemoryStore(clock)
    log = made(store, clock=clock)
    write(log, list(range(12)))
    write(log, [100], commit=False)
    before = rows(log)
    assert compacted(log) == 2
    for _ in range(3):
        clock.set_back(-8 * DAY_MS)
        write(log, [], commit=True)
        log.vacuum()
    files = [info.key for info in store.list("") if info.key.endswith(".parquet")]
    assert len(files) == 1
    assert rows(log) == before == rows(TxnLog.open(store, clock=clock))
    report = log.verify(deep=True)
    assert report.ok, report.problems
    assert compacted(log) == 0


# --- damage -------------------------------------------------------------------------------------------------


def test_runs_that_are_younger_than_their_files_are_refused(log: TxnLog) -> None:
    assert compacted(log) == 2
    key = indexes(log)[0]
    data = log.store.get(key)
    assert data is not None
    name = parse_index_key(key)
    assert name is not None
    younger = key.replace(f"{name.born:020}", f"{name.born + 1:020}")
    named = log.sidecars.segments(log.state, TopicPartition(log.state.topic_ids["t"], 0), OffsetRange(0, 1))[
        0
    ].record.index
    decode_index(data, named)
    with pytest.raises(CorruptDataError, match="younger"):
        decode_index(data, ObjectRecord(younger, named.size, named.sha256))


def test_a_compaction_that_always_loses_says_so(log: TxnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.maintain("seal")

    def lost(*_: object) -> None:
        raise ConflictError("lost", kind="replace-superseded")

    compacted(log, partitions=[1], topic="t")
    monkeypatch.setattr("txnformat.admin.compaction.call.ATTEMPTS", 3)
    monkeypatch.setattr(log.committer, "commit", lost)
    with pytest.raises(ConflictError) as caught:
        compacted(log)
    assert caught.value.kind == "replace-superseded"
