"""Removing the oldest records of a topic: what the caller is told, what readers see, what it costs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, faulty, read, rows
from tests.older_logs import older_log
from txnformat.admin import trimming
from txnformat.admin.trimming import DeletedRecords
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.store.wrapped import WrappedStore
from txnlog import (
    AckConflictError,
    ConflictError,
    Consumer,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    Subscription,
    TxnLog,
    TxnLogError,
    UnsupportedFeatureError,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind


def filled(store: Any = None, *, is_older: bool = False) -> TxnLog:
    """Return a log with ten records in one partition, each an append of its own."""
    log = older_log(MemoryStore()) if is_older else TxnLog.create(store or MemoryStore())
    log.create_topic("t", NUMBERS)
    for number in range(10):
        append(log, number)
    return log


def append(log: TxnLog, number: int) -> None:
    with Producer(log) as producer:
        producer.send("t", rows(number), partition=0)


def test_the_first_offsets_move_and_what_is_left_is_read() -> None:
    log = filled()
    assert log.delete_records("t", {0: 4}) == [DeletedRecords("t", 0, 0, 4)]
    assert read(log) == [4, 5, 6, 7, 8, 9]
    assert log.delete_records("t", {0: 2}) == [DeletedRecords("t", 0, 4, 4)], "it never goes back"
    assert log.delete_records("t", {0: -1}) == [DeletedRecords("t", 0, 4, 10)]
    assert read(log) == []
    append(log, 10)
    assert read(TxnLog.open(log.store)) == [10]
    assert log.offsets("t")[0].earliest == 10


def test_a_dry_run_changes_nothing() -> None:
    log = filled()
    before = log.refresh().entry
    assert log.delete_records("t", {0: 4}, dry_run=True) == [DeletedRecords("t", 0, 0, 4)]
    assert log.refresh().entry == before


def test_an_older_log_must_be_upgraded_once() -> None:
    log = filled(is_older=True)
    with pytest.raises(UnsupportedFeatureError) as caught:
        log.delete_records("t", {0: 4})
    assert caught.value.kind == "upgrade-required"
    assert [log.upgrade(), log.upgrade()] == [True, False]
    log.delete_records("t", {0: 4})


@pytest.mark.parametrize(
    ("topic", "offsets", "error"),
    [
        ("no", {0: 1}, NotFoundError),
        ("t", {1: 1}, NotFoundError),
        ("t", {"0": 1}, NotFoundError),
        ("t", {0: 11}, OffsetOutOfRangeError),
        ("t", {0: -2}, OffsetOutOfRangeError),
        ("t", {0: "4"}, InvalidInputError),
        ("t", {0: True}, InvalidInputError),
        ("t", {0: 2.0}, InvalidInputError),
        ("t", {}, InvalidInputError),
        ("t", None, InvalidInputError),
        ("t", [(0, 4)], InvalidInputError),
        ("t", 11, OffsetOutOfRangeError),
        ("t", True, InvalidInputError),
        ("t", {None}, InvalidInputError),
    ],
)
def test_bad_offsets_are_refused_and_nothing_is_written(
    topic: str, offsets: Any, error: type[TxnLogError]
) -> None:
    log = filled()
    before = log.refresh().entry
    with pytest.raises(error):
        log.delete_records(topic, offsets)
    assert log.refresh().entry == before


def test_an_open_transaction_holds_back_what_can_be_removed() -> None:
    log = filled()
    producer = Producer(log, "etl", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(10), partition=0)
    producer.flush()
    append(log, 11)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        log.delete_records("t", {0: 11})
    assert caught.value.values["latest"] == 10
    assert log.delete_records("t", {0: -1}) == [DeletedRecords("t", 0, 0, 10)]
    producer.commit()
    assert read(log) == [10, 11]


def test_a_reader_that_has_planned_goes_on() -> None:
    log = filled()
    planned = log.read("t")
    log.delete_records("t", {0: -1})
    assert [row["n"] for row in planned.read_all().to_pylist()] == list(range(10))


def test_a_version_whose_records_were_removed_is_refused() -> None:
    log = filled()
    entry = log.refresh().entry
    log.delete_records("t", {0: 4})
    with pytest.raises(NotFoundError) as caught:
        log.read("t", version_as_of=4)
    assert (caught.value.kind, caught.value.values["oldest"]) == ("version-trimmed", entry - 6)
    assert log.read("t", version_as_of=entry - 6).read_all().num_rows == 0
    assert log.read("t", version_as_of=entry).read_all().num_rows == 6


def test_a_consumer_below_the_log_start_goes_on_where_its_policy_says() -> None:
    log = filled()
    with Consumer(log, "readers", max_poll_records=2) as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(timeout_ms=0) is not None
        consumer.commit()
    log.delete_records("t", {0: 5})
    with Consumer(log, "readers") as consumer:
        consumer.subscribe(["t"])
        batch = consumer.poll(timeout_ms=0)
        assert batch is not None
        assert batch["n"].to_pylist() == [5, 6, 7, 8, 9]


def sealed_singly(count: int) -> TxnLog:
    """Return a log whose records are sealed one by one, so that lists may lose them."""
    log = filled()
    for number in range(10, count):
        log.maintain("seal")
        append(log, number)
    return log


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_a_consumer_in_mid_read_is_told_what_is_gone(reset: str) -> None:
    log = sealed_singly(40)
    with Consumer(log, max_poll_records=2, auto_offset_reset=reset) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert consumer.poll(timeout_ms=0) is not None
        log.delete_records("t", {0: 35})
        for number in range(40, 80):
            append(log, number)
            log.maintain("seal")
        found: list[int] = []

        def poll_all() -> None:
            while (batch := consumer.poll(timeout_ms=0)) is not None:
                found.extend(batch["n"].to_pylist())

        if reset == "none":
            with pytest.raises(OffsetOutOfRangeError) as caught:
                poll_all()
            assert caught.value.values["earliest"] == 35
            assert found == list(range(2, 2 + len(found))), "records that were fetched before"
            return
        poll_all()
        assert found[-45:] == list(range(35, 80))
        assert found[:-45] == list(range(2, 2 + len(found) - 45))


def test_a_subscription_in_mid_read_goes_on_behind_what_is_gone() -> None:
    log = sealed_singly(40)
    log.subscriptions.create("t", "work")
    subscription = Subscription(log, "t", "work")
    first = subscription.receive(2, timeout_ms=0)
    assert first is not None
    log.delete_records("t", {0: 35})
    for number in range(40, 80):
        append(log, number)
        log.maintain("seal")
    found: list[int] = []
    while (batch := subscription.receive(7, timeout_ms=0)) is not None:
        found += batch["n"].to_pylist()
        subscription.acknowledge(batch)
    assert found == list(range(35, 80))
    with pytest.raises(AckConflictError, match="were removed from the log"):
        subscription.negative_acknowledge(first)
    subscription.acknowledge(first)
    for call in (subscription.acknowledge, subscription.acknowledge_cumulative):
        with pytest.raises(AckConflictError, match=r"acknowledged already|were removed from the log"):
            call(first)


def refusal(producer: Producer, subscription: Subscription, records: Any) -> AckConflictError:
    """Acknowledge in a transaction, commit, and return why that was refused; the transaction is aborted."""
    try:
        producer.acknowledge(subscription, records)
        producer.commit()
    except AckConflictError as error:
        producer.abort()
        return error
    pytest.fail("two transactions have acknowledged a record")


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_a_transaction_commits_though_records_that_it_acknowledges_were_removed(
    before: bool, flushed: bool, cumulative: bool
) -> None:
    """Pending acknowledgements, in the log or in the producer, keep no commit from landing; and of two
    transactions only one makes output of a removed record."""
    log = filled()
    log.create_topic("out", NUMBERS)
    log.subscriptions.create("t", "work")
    workers = [Subscription(log, "t", "work") for _ in range(2)]
    batches = [worker.receive(6, timeout_ms=0) for worker in workers]
    with Producer(log, "first") as first, Producer(log, "second") as second:
        for producer in (first, second):
            producer.begin()
            producer.send("out", [{"n": 1}])
        if before:
            log.delete_records("t", {0: 4})
        take = first.acknowledge_cumulative if cumulative else first.acknowledge
        take(workers[0], batches[0])
        if flushed:
            first.flush()
        if not before:
            log.delete_records("t", {0: 4})
        first.commit()
        caught = refusal(second, workers[1], batches[1])
        assert (caught.kind, caught.values["offset"]) == ("already-acknowledged", 0)
    assert log.read("out").read_all().num_rows == 1
    (backlog,) = workers[0].backlog()
    assert (backlog.mark, backlog.unacknowledged) == (6, 4)
    assert log.verify().problems == ()


def test_a_transaction_of_removed_records_alone_commits() -> None:
    log = filled()
    log.subscriptions.create("t", "work")
    worker = Subscription(log, "t", "work")
    batch = worker.receive(4, timeout_ms=0)
    log.delete_records("t", {0: 6})
    with Producer(log, "etl") as producer:
        producer.begin()
        producer.acknowledge(worker, batch)
        producer.commit()
        producer.begin()
        assert refusal(producer, worker, [(0, 2)]).kind == "already-acknowledged"
        producer.begin()
        producer.acknowledge(worker, [(0, 4), (0, 6)])
        producer.commit()
    (backlog,) = worker.backlog()
    assert (backlog.mark, backlog.unacknowledged) == (7, 3)


@pytest.mark.parametrize("way", ["acknowledge", "acknowledge_cumulative", "negative_acknowledge"])
def test_of_a_batch_that_was_partly_removed_the_rest_is_acknowledged(way: str) -> None:
    log = filled()
    log.subscriptions.create("t", "work")
    subscription = Subscription(log, "t", "work")
    batch = subscription.receive(6, timeout_ms=0)
    assert batch is not None
    log.delete_records("t", {0: 4})
    getattr(subscription, way)(batch)
    (backlog,) = subscription.backlog()
    left = 6 if way == "negative_acknowledge" else 4
    assert (backlog.mark, backlog.unacknowledged) == (10 - left, left)


def test_a_log_start_that_another_client_moves_meanwhile_is_counted_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()
    other = TxnLog.open(log.store)
    counted, raced = trimming.count_trim, [7]

    def race(*given: Any) -> Any:
        found = counted(*given)
        if raced:
            end = raced.pop()
            monkeypatch.setattr(trimming, "count_trim", counted)
            other.delete_records("t", {0: end})
            monkeypatch.setattr(trimming, "count_trim", race)
        return found

    monkeypatch.setattr(trimming, "count_trim", race)
    assert log.delete_records("t", {0: 8}) == [DeletedRecords("t", 0, 0, 8)]
    assert next(iter(log.state.partitions.values())).sealed.records == 10, "of a segment that is not yet gone"
    raced.append(9)
    assert log.delete_records("t", {0: 9}) == [DeletedRecords("t", 0, 8, 9)], (
        "the other was faster, and enough"
    )
    assert log.verify(deep=True).ok


@pytest.mark.parametrize("kind", [FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])
def test_a_trim_whose_answer_is_lost_is_found_or_repeated(kind: FaultKind) -> None:
    plan = Plan()
    log = faulty(plan)
    for number in range(6):
        append(log, number)
    log.maintain("seal")
    plan.next(*ENTRY, Fault(kind))
    assert log.delete_records("t", {0: 4}) == [DeletedRecords("t", 0, 0, 4)]
    assert read(log) == [4, 5]
    assert log.verify(deep=True).ok


def test_what_it_costs() -> None:
    """A GET of each sealed segment that is not kept, and one entry."""
    log = filled(store := MemoryStore())
    log.maintain("seal")
    append(log, 10)
    log.maintain("seal")
    counting = CountingStore(store)
    opened = TxnLog.open(counting)
    opened.refresh()
    with counting.measure() as measured:
        opened.delete_records("t", {0: 11})
    counts = measured.counts
    assert counts.count(RequestKind.GET, KeyClass.SIDECAR) == 2
    assert counts.count(RequestKind.CREATE) == 1
    assert counts.count(RequestKind.GET) == 2 + 2, "and the tip, before and after"


class TwoAtATime(WrappedStore):
    """Answers about sidecars only once two are asked for at the same time."""

    reads_in_flight = 2

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.barrier = threading.Barrier(2, timeout=60)

    def get(self, key: str, bytes_max: int | None = None) -> bytes | None:
        if key.endswith(".index"):
            self.barrier.wait()
        return super().get(key, bytes_max)


def test_what_is_removed_is_counted_in_several_segments_at_a_time() -> None:
    log = filled(store := MemoryStore())
    log.maintain("seal")
    append(log, 10)
    log.maintain("seal")
    opened = TxnLog.open(TwoAtATime(store))
    assert opened.delete_records("t", {0: 11}) == [DeletedRecords("t", 0, 0, 11)]


def test_lists_lose_what_was_removed() -> None:
    log = filled()
    for number in range(10, 60):
        append(log, number)
        log.maintain("seal")
    state = log.refresh()
    assert state.segment_lists
    assert sum(one.rows for one in state.segment_lists) > 10
    log.delete_records("t", {0: -1})
    for number in range(60, 100):
        append(log, number)
        log.maintain("seal")
    state = log.refresh()
    (partition,) = state.partitions.values()
    rows_left = sum(one.rows for one in state.segment_lists) + len(partition.segments)
    assert rows_left <= 40
    assert read(TxnLog.open(log.store)) == list(range(60, 100))
    assert log.verify(deep=True).ok


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"records": 9}, "does not remove what lies below"),
        ({"records": 0}, "does not remove what lies below"),
        ({"size": 1}, "does not remove what lies below"),
        ({"commit_entry": -1}, "another newest commit"),
        ({"commit_entry": 5}, "another newest commit"),
        ({}, ""),
    ],
)
def test_verify_finds_trims_that_lie(changes: dict[str, int], what: str) -> None:
    log = filled()
    log.maintain("seal")
    append(log, 10)
    log.maintain("seal")
    state = log.refresh()
    action = trimming.count_trim(log.sidecars, state, state.topic("t"), {0: 10})
    assert action is not None
    (part,) = action.trim.partitions
    lying = replace(action, trim=replace(action.trim, partitions=(replace(part, **changes),)))
    log.committer.commit(log.committer.intend(lying))
    report = log.verify()
    assert report.ok == (not changes)
    assert all(what in problem.what and problem.object.endswith(".json") for problem in report.problems)


def test_another_client_that_seals_less_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its seal wins the race of the entry, and ours is dropped."""
    log = filled()
    other = TxnLog.open(log.store)
    other.refresh()
    for number in range(10, 15):
        append(log, number)
    seal, raced = log.committer.seal, [True]

    def race(**how: Any) -> Any:
        if raced:
            raced.clear()
            other.committer.seal()
        return seal(**how)

    monkeypatch.setattr(log.committer, "seal", race)
    assert log.delete_records("t", 15) == [DeletedRecords("t", 0, 0, 15)]


def test_what_cannot_be_sealed_is_not_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.UNSEALABLE_BATCHES", 0)
    log = filled()
    for dry_run in (True, False):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.delete_records("t", 9, dry_run=dry_run)
        assert caught.value.values["latest"] == 0
    monkeypatch.undo()
    monkeypatch.setattr("txnformat.protocol.sealing.PARTITIONS_MAX", 0)  # a seal takes none
    with pytest.raises(ConflictError) as failed:
        log.delete_records("t", 9)
    assert failed.value.kind == "not-sealed"


def test_log_starts_that_others_move_all_the_time_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled()
    other = TxnLog.open(log.store)
    counted, moved = trimming.count_trim, iter(range(1, 100))

    def race(*given: Any) -> Any:
        found = counted(*given)
        monkeypatch.setattr(trimming, "count_trim", counted)
        other.delete_records("t", {0: next(moved) % 10})
        monkeypatch.setattr(trimming, "count_trim", race)
        return found

    monkeypatch.setattr(trimming, "count_trim", race)
    monkeypatch.setattr(trimming, "ATTEMPTS", 3)
    with pytest.raises(ConflictError) as caught:
        log.delete_records("t", 9)
    assert caught.value.kind == "trim-superseded"


def test_a_lag_does_not_count_what_was_removed() -> None:
    log = sealed_singly(40)
    log.maintain("seal")
    with Consumer(log, "readers", max_poll_records=2) as consumer:
        consumer.subscribe(["t"])
        consumer.poll(timeout_ms=0)
        consumer.commit()
    log.delete_records("t", 18)
    (group,) = log.metrics().groups
    (part,) = group.partitions
    assert part.lag_records == 22
    assert log.groups.describe("readers").positions[0].lag == 22
    for number in range(40, 60):
        append(log, number)
        log.maintain("seal")
    (group,) = log.metrics().groups
    assert group.partitions[0].lag_records >= 42
