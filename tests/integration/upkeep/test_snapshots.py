"""Snapshot reads: what they show and what holds nothing back, versions, times, requests, and what is
refused.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, QuickClock, rows
from txnformat import keys
from txnformat.core.intents import AllocateIds
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    CorruptDataError,
    InvalidInputError,
    LogSnapshot,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    TxnLog,
    read_values,
)
from txnlog_testing.stores.counting import CountingStore
from writers.bulk import BulkAppend

CREATED_MS = 1_800_000_000_000
"""Where the clock of the tests begins: 2027-01-15T08:00:00Z."""


class SetClock(QuickClock):
    """Time that a test moves."""

    def pass_ms(self, milliseconds: int) -> None:
        self.set_back(-milliseconds)


@pytest.fixture
def log() -> TxnLog:
    """Topics t (2 partitions) and u."""
    clock = SetClock()
    log = TxnLog.create(CountingStore(MemoryStore(clock)), clock=clock)
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("u", NUMBERS)
    return log


def append(log: TxnLog, *numbers: int, topic: str = "t", partition: int = 0) -> int:
    """Append without a transaction; return the entry."""
    with BulkAppend(log) as bulk:
        bulk.send(topic, rows(*numbers), partition)
        entry = bulk.commit().entry
    assert entry is not None
    return entry


@pytest.fixture
def held(log: TxnLog) -> Iterator[tuple[TxnLog, Producer]]:
    """Of t: an open transaction with 1, then a committed one with 2, an aborted one with 3, a plain append of
    4."""
    with Producer(log, "slow", buffer="inline") as slow, Producer(log, "quick", buffer="inline") as quick:
        slow.begin()
        slow.send("t", rows(1), partition=0)
        slow.flush()
        for number in (2, 3):
            quick.begin()
            quick.send("t", rows(number), partition=0)
            quick.flush()
            if number == 2:
                quick.commit()
            else:
                quick.abort()
        append(log, 4)
        yield log, slow


def read(log: TxnLog, topic: str = "t", **asked: Any) -> list[int]:
    found: list[int] = log.read(topic, columns=["n"], **asked).read_all().column("n").to_pylist()
    return found


def refused(error: type[Exception], kind: str, call: Any) -> str:
    """Check that a call raises, and writes nothing; return the message."""
    with pytest.raises(error) as caught:
        call()
    assert getattr(caught.value, "kind", None) == kind
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def test_an_open_transaction_holds_a_snapshot_back_no_more_than_its_own_records(
    held: tuple[TxnLog, Producer],
) -> None:
    log, slow = held
    assert read(log) == []
    assert read(log, isolation="snapshot") == [2, 4]
    assert log.dataset("t", isolation="snapshot").to_table().column("n").to_pylist() == [2, 4]
    slow.prepare()
    assert read(log, isolation="snapshot") == [2, 4]
    before = log.refresh().entry
    after = slow.commit().entry
    assert read(log, isolation="snapshot") == [1, 2, 4]
    assert read(log, version_as_of=before) == [2, 4]
    assert read(log, version_as_of=after) == [1, 2, 4]
    log.maintain("seal")
    assert read(log, version_as_of=before) == [2, 4]
    assert log.dataset("t", version_as_of=before).to_table().column("n").to_pylist() == [2, 4]
    assert read(log) == [1, 2, 4]


def test_every_version_has_what_was_there_and_offsets_bound_it(log: TxnLog) -> None:
    entries = [append(log, 10 * number, 10 * number + 1) for number in range(4)]
    for count, entry in enumerate(entries, start=1):
        shown = [10 * number + digit for number in range(count) for digit in (0, 1)]
        assert read(log, version_as_of=entry) == shown
        assert read(log, version_as_of=entry, start={0: 3}, end={0: 7}) == shown[3:7]
        assert read(log, version_as_of=entry, where="n >= 11") == [number for number in shown if number >= 11]
        where = f"_commit_entry <= {entries[1]}"
        assert read(log, version_as_of=entry, where=where) == shown[:4]
    assert read(log, version_as_of=entries[0] - 1) == []
    assert read(log, version_as_of=entries[0], start={0: 8}, partitions=[0]) == []
    message = refused(
        OffsetOutOfRangeError,
        "offset-out-of-range",
        lambda: log.read("t", version_as_of=entries[0], end={0: 9}),
    )
    assert "latest=`8`" in message


def test_a_snapshot_of_the_log_is_one_moment_of_all_topics_for_good(log: TxnLog) -> None:
    snapshot = None
    with Producer(log, "p") as producer:
        for number in range(3):
            with producer.transaction() as txn:
                txn.send("t", rows(number), partition=number % 2)
                txn.send("u", rows(number))
            if number == 1:
                snapshot = log.snapshot()
    assert snapshot is not None
    assert snapshot.entry == log.state.entry - 1
    assert repr(snapshot) == f"LogSnapshot({log.url!r}, entry={snapshot.entry})"
    log.create_topic("v", NUMBERS)
    log.alter_topic("t", partitions=3, add_columns=pa.schema([("more", pa.int64())]))
    append(log, 7, partition=2)
    log.maintain("seal")
    log.refresh()
    assert snapshot.topics() == ["t", "u"]
    table = snapshot.read("t").read_all()
    assert table.schema == NUMBERS
    assert table.column("n").to_pylist() == [0, 1]
    assert snapshot.read("u", columns=["n", "_offset"], where="n > 0").read_all().to_pylist() == [
        {"n": 1, "_offset": 2}
    ]
    assert snapshot.read("t", partitions=[1], start=0, end=1).read_all().column("n").to_pylist() == [1]
    assert snapshot.dataset("t", columns=["n"]).count_rows() == 2
    refused(NotFoundError, "unknown-topic", lambda: snapshot.read("v"))
    older = log.snapshot(version_as_of=snapshot.entry)
    assert older.topics() == ["t", "u"]
    assert older.read("t").read_all().to_pylist() == [{"n": 0, "more": None}, {"n": 1, "more": None}]
    assert older.timestamp_ms == snapshot.timestamp_ms == next(log.history(1, snapshot.entry)).timestamp_ms


def test_62_two_that_write_what_follows_from_one_snapshot_are_both_committed(log: TxnLog) -> None:
    """What the level is not: nothing compares, when a transaction commits, what its writer has read."""
    append(log, 100)
    with Producer(log, "a") as first, Producer(log, "b") as second:
        first.begin()
        second.begin()
        for producer in (first, second):  # each takes 100 once, as it would if it were alone
            assert sum(read(log, isolation="snapshot")) == 100
            producer.send("t", rows(-100), partition=0)
        assert first.commit().entry is not None
        assert second.commit().entry is not None
    assert sum(read(log, isolation="snapshot")) == -100


def test_a_snapshot_is_never_torn_while_others_commit(tmp_path: Path) -> None:
    """Three writers, each with a log of its own, write every value to both topics in one transaction."""
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("t", NUMBERS, partitions=3)
        log.create_topic("u", NUMBERS)

        def write(number: int) -> None:
            with (
                TxnLog.open(tmp_path / "log") as own,
                Producer(own, f"w-{number}", buffer="inline") as producer,
            ):
                for value in range(number, 45, 3):
                    with producer.transaction() as txn:
                        txn.send("t", rows(value), partition=number)
                        txn.flush()
                        txn.send("u", rows(value))

        def shown(snapshot: LogSnapshot, topic: str) -> list[int]:
            values: list[int] = snapshot.read(topic).read_all().column("n").to_pylist()
            assert len(values) == len(set(values))
            return sorted(values)

        sizes = []
        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, number) for number in range(3)]
            while not all(writer.done() for writer in writers):
                snapshot = log.snapshot()
                found = shown(snapshot, "u")
                assert found == shown(snapshot, "t")
                sizes.append(len(found))
            for writer in writers:
                writer.result()
        assert sizes == sorted(sizes)
        assert shown(log.snapshot(), "t") == shown(log.snapshot(), "u") == list(range(45))


def test_large_values_behind_an_open_transaction_are_read_whole(log: TxnLog) -> None:
    log.create_topic("raw", "kafka")
    with Producer(log, "open", buffer="inline") as slow, Producer(log, "chunks", chunk_bytes=1_024) as chunks:
        slow.begin()
        slow.send("raw", key=b"k", value=b"undecided")
        slow.flush()
        with chunks.transaction() as txn:
            txn.send("raw", key=b"k", value=b"x" * 10_500)
        assert [record.read() for record in read_values(log, "raw")] == []
        assert [record.read() for record in read_values(log, "raw", isolation="snapshot")] == [b"x" * 10_500]


# --- times --------------------------------------------------------------------------------------------------


def test_a_time_means_the_last_entry_at_or_before_it(log: TxnLog) -> None:
    clock = log.committer.clock
    assert isinstance(clock, SetClock)
    clock.pass_ms(1_000_000)
    for number in range(40):
        append(log, number)
        clock.pass_ms(60_000)
    history = list(log.history())
    for one in history:
        for time_ms in (one.timestamp_ms, one.timestamp_ms + 1):
            newer = [other.entry for other in history if other.timestamp_ms <= time_ms]
            assert log.snapshot(timestamp_as_of=time_ms).entry == max(newer)
    one = history[20]
    snapshot = log.snapshot(version_as_of=one.entry)
    expected = snapshot.read("t").read_all().column("n").to_pylist()
    moment = datetime.datetime.fromtimestamp(one.timestamp_ms / 1_000, datetime.UTC)
    kolkata = datetime.timezone(datetime.timedelta(hours=5, minutes=30))
    times: list[Any] = [
        moment,
        moment.replace(tzinfo=None),  # UTC
        moment.astimezone(kolkata),
        moment.isoformat(),
        moment.replace(tzinfo=None).isoformat(sep=" "),
        moment.astimezone(kolkata).isoformat(),
        str(one.timestamp_ms),
        moment + datetime.timedelta(microseconds=999),
    ]
    for time in times:
        assert read(log, timestamp_as_of=time) == expected, time
        assert log.snapshot(timestamp_as_of=time).entry == one.entry
        dataset = log.dataset("t", timestamp_as_of=time)
        assert dataset.to_table().column("n").to_pylist() == expected
    just_before = moment - datetime.timedelta(microseconds=1)
    assert log.snapshot(timestamp_as_of=just_before).entry == one.entry - 1
    assert log.snapshot(timestamp_as_of=clock.now().wall_ms).entry == log.state.entry


def test_times_outside_of_the_log_are_errors(log: TxnLog) -> None:
    first = list(log.history())[-1]
    for time in (first.timestamp_ms - 1, 0, -(10**15), "1969-12-31", datetime.datetime.min):
        message = refused(
            NotFoundError, "timestamp-before-log", lambda time=time: log.read("t", timestamp_as_of=time)
        )
        assert "before the oldest entry" in message
    assert log.snapshot(timestamp_as_of=first.timestamp_ms).entry == 0
    now = max(log.committer.clock.now().wall_ms, log.state.timestamp_ms)
    assert log.snapshot(timestamp_as_of=now).entry == log.state.entry
    for time in (now + 1, 10**20, "2999-01-01T00:00:00Z", datetime.datetime.max):
        message = refused(
            NotFoundError, "timestamp-in-future", lambda time=time: log.read("t", timestamp_as_of=time)
        )
        assert f"now_ms=`{now}`" in message


def test_a_log_without_entries_has_no_version() -> None:
    log = TxnLog.create(MemoryStore(QuickClock()))
    assert log.snapshot().topics() == []
    refused(NotFoundError, "unknown-version", lambda: log.snapshot(version_as_of=0))
    refused(NotFoundError, "timestamp-before-log", lambda: log.snapshot(timestamp_as_of=CREATED_MS))


@pytest.fixture(scope="module")
def long_log() -> CountingStore:
    """A log of 1,050 entries and its ten bundles."""
    store = CountingStore(MemoryStore())
    with TxnLog.create(store) as log:
        for number in range(1_050):
            log.committer.commit(log.committer.intend(AllocateIds("test", 1)))
            if number % 100 == 50:
                log.close()
    assert len(store.list(keys.BUNDLE_PREFIX)) == 10
    return store


def test_a_time_is_found_with_a_logarithm_of_requests_also_among_deleted_entries(
    long_log: CountingStore,
) -> None:
    log = TxnLog.open(long_log)
    times = {one.entry: one.timestamp_ms for one in log.history()}
    log.refresh()
    for entry in (0, 1, 517, 998, log.state.entry - 1, log.state.entry):
        with long_log.measure() as measured:
            assert log.snapshot(timestamp_as_of=times[entry]).entry == entry
        assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) <= 1 + 11, (
            "the refresh, and log2(1,051)"
        )
        assert measured.counts.count() <= measured.counts.count(RequestKind.GET, KeyClass.ENTRY) + 1, (
            "a boundary"
        )
    for entry in range(200, 300):
        long_log.delete(keys.entry_key(entry))
    for entry in (200, 250, 299):
        with long_log.measure() as measured:
            assert log.snapshot(timestamp_as_of=times[entry]).entry == entry
        assert measured.counts.count(RequestKind.GET) <= 1 + 2 * 11
        assert log.snapshot(version_as_of=entry).timestamp_ms == times[entry]
    long_log.delete(keys.bundle_key(200, 299))
    message = refused(
        CorruptDataError, "missing-entry", lambda: log.snapshot(timestamp_as_of=times[250]).entry
    )
    assert "verify" in message


# --- requests -----------------------------------------------------------------------------------------------


def test_a_snapshot_is_planned_with_no_more_requests_than_a_committed_read(log: TxnLog) -> None:
    store = log.store
    assert isinstance(store, CountingStore)
    entries = []
    for number in range(3):
        entries.append(append(log, number))
        log.maintain("seal")
    with Producer(log, "tables", batch_bytes=1) as tables, tables.transaction() as txn:
        for number in range(1_001):
            txn.send("t", rows(number), partition=0)

    def requests(**asked: Any) -> dict[str, int]:
        opened = TxnLog.open(store)
        with store.measure() as measured:
            opened.plan("t", **asked)
        return {
            str(name): measured.counts.count(RequestKind.GET, name)
            for name in (KeyClass.ENTRY, KeyClass.TABLE, KeyClass.SIDECAR)
        } | {"all": measured.counts.count()}

    committed = requests()
    assert committed == {"entry": 1, "table": 1, "sidecar": 3, "all": 5}
    assert requests(isolation="snapshot") == committed
    # What is younger than the version is left alone, but for the segment that tells so.
    older = requests(isolation="snapshot", as_of=entries[0])
    assert older == {"entry": 1, "table": 0, "sidecar": 2, "all": 3}


# --- bad input ----------------------------------------------------------------------------------------------


def test_what_is_refused_and_why(log: TxnLog) -> None:
    last = append(log, 1)
    store = log.store
    assert isinstance(store, CountingStore)
    with store.measure() as measured:
        for version in (-1, last + 1, 10**30):
            message = refused(
                NotFoundError,
                "unknown-version",
                lambda version=version: log.read("t", version_as_of=version),
            )
            assert f"there are versions 0 to {last}" in message
            assert f"version=`{version}`" in message
        no_versions: list[Any] = ["3", True, 1.0]
        for invalid in no_versions:
            refused(
                InvalidInputError,
                "invalid-version",
                lambda invalid=invalid: log.read("t", version_as_of=invalid),
            )
        no_times: list[Any] = [
            "yesterday",
            "",
            "12:00",
            b"2027",
            1.5,
            True,
            datetime.date(2027, 1, 1),
            "9" * 5_000,
        ]
        for invalid in no_times:
            refused(
                InvalidInputError,
                "invalid-timestamp",
                lambda invalid=invalid: log.read("t", timestamp_as_of=invalid),
            )
        both: dict[str, Any] = {"version_as_of": 1, "timestamp_as_of": 1}
        assert "not both" in refused(InvalidInputError, "invalid-version", lambda: log.read("t", **both))
        refused(InvalidInputError, "invalid-version", lambda: log.dataset("t", **both))
        refused(InvalidInputError, "invalid-version", lambda: log.snapshot(**both))
        for isolation in ("read_committed", "read_uncommitted"):
            for asked in ({"version_as_of": 1}, {"timestamp_as_of": CREATED_MS}):
                message = refused(
                    InvalidInputError,
                    "invalid-version",
                    lambda isolation=isolation, asked=asked: log.read("t", isolation=isolation, **asked),
                )
                assert f"not for {isolation}" in message
        message = refused(NotFoundError, "unknown-topic", lambda: log.read("u", version_as_of=1))
        assert "it was created at entry 2" in message
        refused(NotFoundError, "unknown-topic", lambda: log.read("nothing", version_as_of=1))
        refused(InvalidInputError, "unknown-isolation-level", lambda: log.read("t", isolation="serializable"))
    writes = (RequestKind.CREATE, RequestKind.PUT, RequestKind.OPEN_WRITE, RequestKind.DELETE)
    assert [measured.counts.count(operation) for operation in writes] == [0, 0, 0, 0]
    assert read(log, isolation="snapshot", version_as_of=last) == [1]
