"""Retention: whole segments go by time and by size, whatever records say of their own time; readers may hold
them back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import NUMBERS, QuickClock, rows
from tests.older_logs import older_log
from txnformat import keys
from txnformat.admin import trimming
from txnformat.admin.maintenance import SkippedTask
from txnformat.admin.trimming import DeletedRecords
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass
from txnformat.types import OffsetRange
from txnlog import ConflictError, Consumer, InvalidInputError, Producer, Subscription, TxnLog
from txnlog_testing.stores.counting import CountingStore

HOUR = 3_600_000


class Hours:
    """A log with a topic that gets a record each hour, and each a segment of its own."""

    def __init__(self, hours: int = 10, **settings: int | str) -> None:
        self.clock = QuickClock()
        self.log = TxnLog.create(MemoryStore(self.clock), clock=self.clock)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.log.create_topic("t", NUMBERS, settings=named)
        for number in range(hours):
            self.append(number)

    def append(self, number: int, log: TxnLog | None = None) -> None:
        with Producer(self.log) as producer:
            producer.send("t", rows(number), partition=0)
        (log or self.log).maintain("seal")
        self.clock.sleep(3_600)

    def left(self) -> list[int]:
        log = TxnLog.open(self.log.store, clock=self.clock)
        found: list[int] = log.read("t", columns=["n"]).read_all()["n"].to_pylist()
        return found


def test_what_was_appended_long_ago_goes() -> None:
    hours = Hours(retention_ms=4 * HOUR + 60_000)
    assert hours.log.maintain().removed == (DeletedRecords("t", 0, 0, 6),)
    assert hours.left() == [6, 7, 8, 9]
    assert hours.log.maintain("retention").removed == ()
    hours.clock.sleep(3_600)
    assert hours.log.maintain("retention").removed == (DeletedRecords("t", 0, 6, 7),)
    report = hours.log.verify(deep=True)
    assert report.ok, report.problems


def test_the_last_records_of_a_quiet_log_go_too() -> None:
    hours = Hours(2, retention_ms=4 * HOUR)
    hours.clock.sleep(100 * 3_600)
    hours.log.maintain()
    assert hours.left() == []
    hours.append(7)
    assert hours.left() == [7]


@pytest.mark.parametrize("settings", [{}, {"retention_ms": -1, "retention_bytes": -1}])
def test_without_a_limit_nothing_goes(settings: dict[str, int]) -> None:
    hours = Hours(3, **settings)
    hours.clock.sleep(10**6)
    assert hours.log.maintain().removed == ()
    assert hours.left() == [0, 1, 2]


def test_a_segment_that_was_sealed_late_counts_by_its_newest_append() -> None:
    hours = Hours(0, retention_ms=4 * HOUR)
    for number in range(6):
        with Producer(hours.log) as producer:
            producer.send("t", rows(number), partition=0)
        hours.clock.sleep(3_600)
    hours.log.maintain("seal")  # one segment, whose oldest record is of six hours ago
    assert hours.log.maintain("retention").removed == ()
    hours.clock.sleep(2 * 3_600)
    assert hours.log.maintain("retention").removed == ()
    hours.clock.sleep(3_601)
    assert hours.log.maintain("retention").removed == (DeletedRecords("t", 0, 0, 6),)


def test_bytes_keep_at_least_what_they_say() -> None:
    hours = Hours()
    key = next(iter(hours.log.refresh().partitions))
    parts = hours.log.sidecars.segments(hours.log.state, key, OffsetRange(0, 10))
    sizes = [int(part.row["size"]) for part in parts]
    assert len(sizes) == 10
    for size, left in ((sum(sizes[5:]) + 1, 6), (sum(sizes[5:]), 5), (1, 1), (0, 0)):
        hours.log.alter_topic("t", settings={"retention.bytes": size})
        hours.log.maintain("retention")
        assert hours.left() == list(range(10))[10 - left :]
        assert hours.log.state.partition(key).sealed.size >= size


def test_what_is_not_sealed_counts_for_bytes() -> None:
    hours = Hours(2)
    with Producer(hours.log) as producer:
        producer.send("t", rows(*range(1_000)), partition=0)
    hours.log.alter_topic("t", settings={"retention.bytes": 100})
    assert hours.log.maintain("retention").removed == (DeletedRecords("t", 0, 0, 2),)


def test_the_limit_that_removes_more_counts() -> None:
    hours = Hours(retention_ms=4 * HOUR + 1, retention_bytes=10**9)
    hours.log.maintain("retention")
    assert hours.left() == [6, 7, 8, 9]
    hours.log.alter_topic("t", settings={"retention.bytes": 1})
    hours.log.maintain("retention")
    assert hours.left() == [9]


@pytest.mark.parametrize("time", ["append", "record"])
def test_times_of_records_count_only_if_they_are_to(time: str) -> None:
    """A birth date does not delete a fresh backfill, and one value of the future holds nothing for ever."""
    hours = Hours(0)
    schema = pa.schema([("at", pa.timestamp("ms", tz="UTC"))])
    hours.log.create_topic(
        "b", schema, timestamp_column="at", settings={"retention.ms": HOUR, "retention.time": time}
    )
    for at in (0, 1, 2**41):
        with Producer(hours.log) as producer:
            producer.send("b", pa.table({"at": pa.array([at], schema.field("at").type)}), partition=0)
        hours.log.maintain("seal")
    hours.log.maintain("retention")
    assert hours.log.offsets("b")[0].earliest == (0 if time == "append" else 2)
    hours.clock.sleep(2 * 3_600)
    hours.log.maintain("retention")
    assert hours.log.offsets("b")[0].earliest == (3 if time == "append" else 2)


def test_an_open_transaction_holds_what_follows_it() -> None:
    hours = Hours(3, retention_ms=HOUR)
    producer = Producer(hours.log, "open", buffer="inline", transaction_timeout_ms=900_000)
    producer.init()
    producer.begin()
    producer.send("t", rows(99), partition=0)
    producer.flush()
    producer.prepare()  # it never times out
    hours.append(3)
    hours.clock.sleep(100 * 3_600)
    hours.log.maintain()
    assert hours.log.offsets("t")[0].earliest == 3
    producer.commit()
    producer.close()
    hours.log.maintain()
    assert hours.left() == []


# --- readers that hold records back -------------------------------------------------------------------------


def reader(kind: str, log: TxnLog, count: int) -> None:
    """Read so many records, by a group or a subscription that is there from the beginning."""
    if kind == "group":
        with Consumer(log, "readers", enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0, count)
            consumer.commit()
        return
    if not log.subscriptions.list():
        log.subscriptions.create("t", "work")
    batch = Subscription(log, "t", "work").receive(count, timeout_ms=0)
    assert batch is not None
    Subscription(log, "t", "work").acknowledge(batch)


@pytest.mark.parametrize("kind", ["group", "subscription"])
@pytest.mark.parametrize(
    ("pinned_ms", "left"), [(0, 7), (2 * HOUR, 7), (13 * HOUR // 2, 4), (-1, 3), (100 * HOUR, 3)]
)
def test_unread_records_stay_up_to_an_age(kind: str, pinned_ms: int, left: int) -> None:
    hours = Hours(retention_ms=7 * HOUR // 2, retention_pinned_ms=pinned_ms)
    reader(kind, hours.log, 3)
    hours.log.maintain("retention")
    assert hours.left() == list(range(left, 10))


LOOKS = ("txnformat.admin.retention.unread_from", "txnformat.core.lifecycle.trim.unread_from")
"""Where retention asks which records are unread: when it chooses, and in the decision."""


@pytest.mark.parametrize("removed", [(), LOOKS[:1], LOOKS[1:], LOOKS])
def test_unread_records_stay_by_either_of_two_guards(
    removed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without both they go."""
    hours = Hours(retention_ms=7 * HOUR // 2, retention_pinned_ms=-1)
    reader("group", hours.log, 3)
    for name in removed:
        monkeypatch.setattr(name, lambda *_: None)
    report = hours.log.maintain("retention")
    assert (hours.left()[0] <= 3) == (removed != LOOKS), report


@pytest.mark.parametrize("is_guarded", [True, False])
def test_a_reader_that_goes_back_in_between_holds_back(
    monkeypatch: pytest.MonkeyPatch, *, is_guarded: bool
) -> None:
    """Retention counts on one state and decides on the newest one; without that guard the records are
    gone.
    """
    if not is_guarded:
        monkeypatch.setattr(LOOKS[1], lambda *_: None)
    hours = Hours(retention_ms=3 * HOUR + 1, retention_pinned_ms=-1)
    reader("group", hours.log, 9)
    other = TxnLog.open(hours.log.store, clock=hours.clock)
    intend = hours.log.committer.intend
    gone_back: list[int] = []

    def late(action: Any) -> Any:
        if not gone_back and hasattr(action, "unpinned"):
            gone_back.append(1)
            other.groups.reset_offsets("readers", to="earliest", topic="t", force=True)
        return intend(action)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hours.log.committer, "intend", late)
        removed = hours.log.maintain("retention").removed
    assert gone_back
    assert (removed == ()) == is_guarded
    assert (hours.left() == list(range(10))) == is_guarded


# --- several at once, costs, refusals -----------------------------------------------------------------------


def test_two_processes_remove_the_same_once() -> None:
    hours = Hours(retention_ms=3 * HOUR + 1)
    logs = [TxnLog.open(hours.log.store, clock=hours.clock) for _ in range(2)]
    counted = trimming.count_trim
    first: list[int] = []

    def overtaken(*args: Any) -> Any:
        found = counted(*args)
        if not first:
            first.append(1)
            assert logs[1].maintain("retention").removed == (DeletedRecords("t", 0, 0, 7),)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trimming, "count_trim", overtaken)
        done = logs[0].maintain("retention").removed
    assert done in ((), (DeletedRecords("t", 0, 0, 7),))
    assert hours.left() == [7, 8, 9]


def test_a_topic_that_is_deleted_meanwhile_fails_nothing() -> None:
    hours = Hours(retention_ms=3 * HOUR + 1)
    log = TxnLog.open(hours.log.store, clock=hours.clock)
    log.create_topic("u", NUMBERS, settings={"retention.bytes": 0})
    with Producer(log) as producer:
        producer.send("u", rows(1), partition=0)
    log.maintain("seal")
    counted = trimming.count_trim

    def deleted(*args: Any) -> Any:
        if "t" in hours.log.topics():
            hours.log.delete_topic("t")
        return counted(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trimming, "count_trim", deleted)
        log.maintain("retention")
    assert log.topics() == ["u"]
    assert log.maintain("retention").removed == ()
    assert log.offsets("u")[0].earliest == 1


def test_an_older_log_is_told_and_the_rest_is_done() -> None:
    log = older_log(MemoryStore())
    log.create_topic("t", NUMBERS)
    with Producer(log) as producer:
        producer.send("t", rows(1), partition=0)
    report = log.maintain()
    assert (report.segments, [one.task for one in report.skipped]) == (
        1,
        ["retention", "compact", "vacuum", "erasures"],
    )
    assert "txnlog upgrade" in report.skipped[0].reason
    assert isinstance(report.skipped[0], SkippedTask)
    log.upgrade()
    assert log.maintain().skipped == ()


def test_what_is_not_old_costs_the_search_for_the_entry_alone() -> None:
    hours = Hours(retention_ms=1_000 * HOUR)
    store = CountingStore(hours.log.store)
    log = TxnLog.open(store, clock=hours.clock)
    before = Counter(store.counts.requests)
    log.maintain("retention")
    spent = Counter(store.counts.requests) - before
    assert sum(spent.values()) <= 8
    assert not [request for request in spent if request.key_class is KeyClass.SIDECAR]


@pytest.mark.parametrize("settings", [{"retention.ms": 5}, {"retention.ms": -7}, {"x": 1}])
def test_bad_values_change_nothing(settings: dict[str, int | str]) -> None:
    hours = Hours(1)
    entry = hours.log.refresh().entry
    with pytest.raises(InvalidInputError) as altered:
        hours.log.alter_topic("t", settings=settings)
    with pytest.raises(InvalidInputError) as created:
        hours.log.create_topic("v", NUMBERS, settings=settings)
    assert {altered.value.kind, created.value.kind} == {"invalid-setting"}
    assert hours.log.refresh().entry == entry


def test_a_topic_that_exists_may_have_other_settings() -> None:
    hours = Hours(1, retention_ms=HOUR)
    for wanted in ({}, {"retention.bytes": 5}):
        found = hours.log.create_topic("t", NUMBERS, settings=wanted, exist_ok=True)
        assert [one.value for one in found.settings] == [HOUR], "they stay"
    with pytest.raises(ConflictError):
        hours.log.create_topic("t", NUMBERS, partitions=2, exist_ok=True)


@pytest.mark.parametrize("content", [None, b"", b"nonsense"])
def test_a_damaged_topic_is_reported_and_records_of_the_topics_after_it_go(content: bytes | None) -> None:
    hours = Hours(2, retention_bytes=0)
    hours.log.create_topic("u", NUMBERS, settings={"retention.bytes": 0})
    with Producer(hours.log) as producer:
        producer.send("u", rows(1, 2), partition=0)
    hours.log.maintain("seal")
    store = hours.log.store
    lost = next(info.key for info in store.list("t-") if keys.parse_index_key(info.key))
    store.delete(lost)
    if content is not None:
        store.create(lost, content)
    for _ in range(2):
        report = TxnLog.open(store, clock=hours.clock).maintain("retention")
        (damaged,) = report.damaged
        assert (damaged.topic, lost in damaged.reason) == ("t", True)
        assert damaged.kind == "corrupt-sidecar"
        if report.removed:
            assert report.removed == (DeletedRecords("u", 0, 0, 2),)
    (left,) = hours.log.offsets("u")
    assert left.earliest == 2
    assert hours.log.offsets("t")[0].earliest == 0
