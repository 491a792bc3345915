"""Deleting a topic: what the caller is told, what the programs that use the topic are told, and what it
costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.integration.clients.failing import ENTRY, NUMBERS, Plan, rows
from tests.older_logs import older_log
from txnformat.admin.topics import TopicDeletion
from txnformat.core.intents import CommitResult, Intent
from txnformat.core.invariants import check_whole
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    ConflictError,
    Consumer,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    Producer,
    ProducerFencedError,
    Subscription,
    TxnLog,
    UnsupportedFeatureError,
    read_values,
)
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore


def filled(store: Any = None) -> TxnLog:
    """Return a log with records in two topics, a subscription and a group's position in each."""
    log = TxnLog.create(store or MemoryStore())
    for topic in ("t", "u"):
        log.create_topic(topic, NUMBERS, partitions=2)
        with Producer(log) as producer:
            producer.send(topic, rows(*range(10)), partition=0)
        log.subscriptions.create(topic, "work")
        with Consumer(log, "readers", enable_auto_commit=False) as consumer:
            consumer.assign([(topic, 0)])
            assert consumer.poll(0, 3) is not None
            consumer.commit()
    return log


def read(log: TxnLog, topic: str = "t") -> list[int]:
    found: list[int] = TxnLog.open(log.store).read(topic, columns=["n"]).read_all()["n"].to_pylist()
    return found


def is_gone(call: Callable[[], object]) -> None:
    with pytest.raises(NotFoundError) as caught:
        call()
    assert caught.value.kind == "topic-gone"


@pytest.fixture(params=["deleted", "made again", "made again alike, with records"])
def delete(request: pytest.FixtureRequest) -> Callable[[TxnLog], None]:
    """Return what deletes topic ``t``, and perhaps makes another one of that name."""

    def apply(log: TxnLog) -> None:
        log.delete_topic("t")
        if request.param != "deleted":
            log.create_topic("t", NUMBERS, partitions=2)
        if request.param == "made again alike, with records":
            with Producer(log) as producer:
                producer.send("t", rows(*range(100, 200)), partition=0)

    return apply


def test_a_topic_is_deleted_and_its_name_is_free() -> None:
    log = filled()
    topic = log.state.topic("t")
    assert log.delete_topic("t") == TopicDeletion("t", topic.topic_id, log.state.entry, 2)
    assert log.topics() == ["u"]
    with pytest.raises(NotFoundError) as caught:
        log.read("t")
    assert caught.value.kind == "unknown-topic"
    assert [row["n"] for row in log.read("u").read_all().to_pylist()] == list(range(10))
    again = log.create_topic("t", NUMBERS)
    assert again.topic_id != topic.topic_id
    assert again.directory != topic.directory
    assert read(log) == []
    with Producer(log) as producer:
        producer.send("t", rows(7))
    opened = TxnLog.open(log.store)
    assert read(opened) == [7]
    assert opened.subscriptions.describe("u", "work").partitions
    with pytest.raises(NotFoundError):
        opened.subscriptions.describe("t", "work")
    assert len(list(opened.history())) == opened.state.entry + 1
    assert [one.topic for one in opened.groups.describe("readers").positions] == ["u"]
    assert opened.verify(deep=True).ok


def test_a_topic_that_is_not_there_and_an_older_log() -> None:
    log = older_log(MemoryStore())
    with pytest.raises(NotFoundError) as caught:
        log.delete_topic("t")
    assert caught.value.kind == "unknown-topic"
    log.create_topic("t", NUMBERS)
    with pytest.raises(UnsupportedFeatureError) as refused:
        log.delete_topic("t")
    assert refused.value.kind == "upgrade-required"


@pytest.mark.parametrize("force", ["etl", b"etl", 1, None, ["etl", 3], {"etl"}, 0])
def test_what_cannot_be_forced_is_bad_input(force: Any) -> None:
    log = filled()
    entry = log.refresh().entry
    with pytest.raises(InvalidInputError) as caught:
        log.delete_topic("t", force=force)
    assert caught.value.kind == "invalid-force"
    assert log.refresh().entry == entry


def test_a_name_without_a_prepared_transaction_ends_nothing() -> None:
    log = filled()
    producer = Producer(log, "open", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    producer.flush()
    entry = log.refresh().entry
    for name in ("no-such-id", "open", ""):
        for remove in (
            lambda names: log.delete_topic("t", force=names),
            lambda names: log.delete_records("t", {0: 1}, force=names),
        ):
            with pytest.raises(InvalidInputError) as caught:
                remove([name])
            assert caught.value.kind == "invalid-force"
            assert repr(name) in str(caught.value)
    assert log.refresh().entry == entry
    producer.commit()


def test_open_and_prepared_transactions_hold_the_topic_until_they_are_forced() -> None:
    log = filled()
    producers = {
        name: Producer(log, name, buffer=buffer) for name, buffer in (("a", "inline"), ("b", "deferred"))
    }
    for producer in producers.values():
        producer.init()
        producer.begin()
        for topic in ("t", "u"):
            producer.send(topic, rows(50), partition=1)
        producer.flush()
    with pytest.raises(ConflictError) as held:
        log.delete_topic("t")
    assert (held.value.kind, held.value.values["transactional_ids"]) == ("topic-in-use", ["a", "b"])
    producers["b"].prepare()
    with pytest.raises(InvalidTransactionStateError) as prepared:
        log.delete_topic("t", force=True)
    assert prepared.value.kind == "transaction-prepared"
    done = log.delete_topic("t", force=["b"])
    assert (done.aborted, done.given_up) == (("a",), ("b",))
    with pytest.raises(ProducerFencedError):
        producers["a"].commit()
    producers["b"].commit()
    assert read(log, "u") == [*range(10), 50]
    for producer in producers.values():
        producer.close()
    report = TxnLog.open(log.store).verify(deep=True)
    assert report.ok, report.problems


def test_a_deletion_whose_answer_is_lost_is_told_as_it_was() -> None:
    plan = Plan()
    log = TxnLog.open(FaultyStore(filled().store, plan))
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(50))
        producer.flush()
        plan.next(*ENTRY, Fault(FaultKind.APPLIED_LOST_ANSWER))
        assert log.delete_topic("t", force=True).aborted == ("etl",)
        with pytest.raises(ProducerFencedError):
            producer.commit()


def test_two_processes_delete_a_topic_at_once() -> None:
    log = filled()
    logs = [TxnLog.open(log.store) for _ in range(2)]
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(50))
        producer.flush()
        intend, first = logs[0].committer.intend, []

        def overtaken(action: Any) -> Any:
            first.append(logs[1].delete_topic("t", force=True))
            return intend(action)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logs[0].committer, "intend", overtaken)
            assert logs[0].delete_topic("t", force=True) == first[0]
        assert first[0].aborted == ("etl",)
        with pytest.raises(ProducerFencedError):
            producer.commit()


def test_a_deletion_is_one_entry() -> None:
    store = CountingStore(filled().store)
    log = TxnLog.open(store)
    before = Counter(store.counts.requests)
    log.delete_topic("t")
    spent = Counter(store.counts.requests) - before
    assert spent == {(RequestKind.CREATE, KeyClass.ENTRY): 1, (RequestKind.GET, KeyClass.ENTRY): 1}


# --- those that use it --------------------------------------------------------------------------------------


def test_a_producer_is_told_once_of_records_that_go_nowhere(delete: Callable[[TxnLog], None]) -> None:
    log = filled()
    with Producer(log, linger_ms=60_000) as producer:
        producer.send("t", rows(1))
        producer.send("u", rows(1))
        delete(TxnLog.open(log.store))
        is_gone(producer.flush)
        assert read(log, "u") == list(range(10))
        producer.send("u", rows(2))
    assert sorted(read(log, "u")) == sorted([*range(10), 1, 2])
    assert "t" not in log.topics() or 1 not in read(log)


def test_a_flush_in_the_background_leaves_it_to_the_next_call_to_tell(
    delete: Callable[[TxnLog], None],
) -> None:
    log = filled()
    with Producer(log, linger_ms=60_000) as producer:
        producer.send("t", rows(1))
        producer.send("u", rows(2))
        delete(TxnLog.open(log.store))
        producer._flush_held()  # as the linger does
        is_gone(producer.flush)
        producer.flush()
    assert sorted(read(log, "u")) == sorted([*range(10), 2])


def test_a_transaction_is_told_and_can_only_be_aborted(delete: Callable[[TxnLog], None]) -> None:
    log = filled()
    with Producer(log, "etl") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.send("u", rows(1))
        delete(TxnLog.open(log.store))
        is_gone(producer.commit)
        is_gone(producer.commit)
        producer.abort()
        producer.begin()
        producer.send("u", rows(77))
        producer.commit()
    assert read(log, "u") == [*range(10), 77]


CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda one: one.poll(0),
    "lag": lambda one: one.lag(),
    "seek_to_end": lambda one: one.seek_to_end(),
    "seek_to_beginning": lambda one: one.seek_to_beginning(),
    "seek": lambda one: one.seek("t", 0, 99),
    "commit": lambda one: one.commit(),
}


@pytest.mark.parametrize("name", CONSUMER_CALLS)
@pytest.mark.parametrize("subscribes", [True, False])
def test_a_consumer_is_told(delete: Callable[[TxnLog], None], name: str, subscribes: bool) -> None:
    log = filled()
    consumer = Consumer(log, "others", enable_auto_commit=False, auto_offset_reset="earliest")
    if subscribes:
        consumer.subscribe(["t", "u"])
    else:
        consumer.assign([("t", 0), ("u", 0)])
    assert consumer.poll(0, 2) is not None
    delete(TxnLog.open(log.store))
    log.refresh()
    is_gone(lambda: CONSUMER_CALLS[name](consumer))
    assert check_whole(log.refresh()) == []
    consumer.close()


def test_a_consumer_that_waits_for_records_is_told() -> None:
    log = filled()
    with Consumer(log) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_end()
        assert consumer.poll(0) is None
        TxnLog.open(log.store).delete_topic("t")
        is_gone(lambda: consumer.poll(60_000))


def test_a_consumer_of_a_partition_without_records_is_told() -> None:
    log = filled()
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 1)])
        assert consumer.poll(0) is None
        TxnLog.open(log.store).delete_topic("t")
        log.refresh()
        is_gone(lambda: consumer.poll(0))


def test_a_subscription_is_told(delete: Callable[[TxnLog], None]) -> None:
    log = filled()
    subscription = Subscription(log, "t", "work")
    batch = subscription.receive(2, timeout_ms=0)
    assert batch is not None
    delete(TxnLog.open(log.store))
    for call in (
        lambda: subscription.acknowledge(batch),
        lambda: subscription.receive(1, timeout_ms=0),
    ):
        is_gone(call)


def test_a_snapshot_is_told_and_a_read_that_was_planned_goes_on(delete: Callable[[TxnLog], None]) -> None:
    log = filled()
    snapshot, planned = log.snapshot(), log.read("t", columns=["n"])
    delete(TxnLog.open(log.store))
    assert planned.read_all()["n"].to_pylist() == list(range(10))
    log.refresh()
    is_gone(lambda: snapshot.read("t"))
    assert snapshot.read("u").read_all().num_rows == 10


def test_a_version_from_before_the_new_topic_shows_nothing_of_the_old_one() -> None:
    log = filled()
    before = log.refresh().entry
    log.delete_topic("t")
    log.create_topic("t", NUMBERS)
    with pytest.raises(NotFoundError) as caught:
        log.read("t", version_as_of=before)
    assert caught.value.kind == "unknown-topic"


@pytest.mark.parametrize("known", [True, False], ids=["known", "not known yet"])
def test_a_consumer_that_commits_by_itself_keeps_its_other_positions_and_can_choose_anew(
    delete: Callable[[TxnLog], None], known: bool
) -> None:
    log = filled()
    consumers = {
        group: Consumer(log, group, enable_auto_commit=True, auto_offset_reset="earliest")
        for group in ("one", "other")
    }
    for consumer in consumers.values():
        consumer.subscribe(["t", "u"])
        count = 0
        while batch := consumer.poll(0):
            count += batch.num_rows
        assert count == 20
    delete(TxnLog.open(log.store))
    if known:
        log.refresh()
        is_gone(lambda: consumers["one"].poll(0))
    consumers["one"].subscribe(["u"])
    assert consumers["one"].poll(0) is None
    for group, consumer in consumers.items():
        consumer.close()
        positions = log.groups.describe(group).positions
        assert [(one.topic, one.partition, one.current_offset) for one in positions] == [
            ("u", 0, 10),
            ("u", 1, 0),
        ]


@pytest.mark.parametrize("is_made_again", [True, False])
@pytest.mark.parametrize("begins_before", [True, False])
def test_a_value_in_chunks_is_not_put_together_from_another_topic(
    begins_before: bool, is_made_again: bool
) -> None:
    log = filled()
    log.create_topic("k", "kafka")

    def send(value: bytes) -> None:
        with Producer(log, "etl", chunk_bytes=1_024) as producer:
            producer.begin()
            producer.send("k", value=value)
            producer.commit()

    send(b"a" * 10_000)
    values = read_values(log, "k", start=4 if begins_before else None, held_bytes_max=2_000)
    record = None if begins_before else next(values)
    log.delete_topic("k")
    if is_made_again:
        log.create_topic("k", "kafka")
        send(b"b" * 10_000)
    is_gone(lambda: next(values) if record is None else record.read())


RACES: dict[str, Callable[[TxnLog], object]] = {
    "create": lambda log: log.create_topic("t", NUMBERS),
    "alter": lambda log: log.alter_topic("t", partitions=3),
    "trim": lambda log: log.delete_records("t", {0: 5}),
}


@pytest.mark.parametrize("name", RACES)
def test_a_topic_that_is_deleted_during_a_call_is_gone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    log = filled()
    if name == "create":
        log.delete_topic("t")
    if name == "trim":
        log.maintain("seal")
    commit = log.committer.commit

    def committed(intent: Intent) -> CommitResult:
        result = commit(intent)
        TxnLog.open(log.store).delete_topic("t")
        log.refresh()  # as another thread does
        return result

    monkeypatch.setattr(log.committer, "commit", committed)
    is_gone(lambda: RACES[name](log))


def test_a_topic_that_is_deleted_before_its_records_are_sealed_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = filled()

    def seal(**_: Any) -> list[Any]:
        TxnLog.open(log.store).delete_topic("t")
        return []

    monkeypatch.setattr(log.committer, "seal", seal)
    is_gone(lambda: log.delete_records("t", {0: 5}))


# --- what is sealed and listed ------------------------------------------------------------------------------


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a list of segments be written whenever a segment is there."""
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_SEGMENTS", 0)


@pytest.mark.usefixtures("listing")
def test_rows_of_lists_mean_nothing_and_are_left_out_of_the_next_list() -> None:
    log = filled()
    log.maintain("seal")
    log.maintain("seal")
    assert log.refresh().segment_lists
    old = log.state.topic("t")
    log.delete_topic("t")
    assert TxnLog.open(log.store).verify().ok
    log.create_topic("t", NUMBERS)
    for number in range(30):
        with Producer(log) as producer:
            producer.send("t", rows(number), partition=0)
            producer.send("u", rows(number), partition=1)
    log.maintain("seal")
    opened = TxnLog.open(log.store)
    assert sorted(read(opened)) == list(range(30))
    assert opened.verify(deep=True).ok
    (newest, *_) = opened.state.segment_lists
    data = log.store.get(newest.key)
    assert data is not None
    assert old.topic_id not in str(pa.ipc.open_file(data).read_all()["topic_id"].to_pylist())


def test_objects_that_a_vacuum_deleted_are_not_missed() -> None:
    log = filled()
    log.maintain("seal")
    directory = log.refresh().topic("t").directory
    log.delete_topic("t")
    for info in list(log.store.list(directory)):
        log.store.delete(info.key)
    report = log.verify(deep=True)
    assert report.ok, report.problems
