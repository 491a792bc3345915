"""Consumed positions in transactions: they come with the records, or not at all, on every buffer."""

from __future__ import annotations

import pytest

from tests.integration.clients.failing import (
    BUFFERS,
    NUMBERS,
    Plan,
    QuickClock,
    faulty,
    read,
    rows,
    unclear_commit,
)
from txnformat.consumers.group_offsets import GroupMetadata, OffsetAndMetadata
from txnformat.core.groups.operations import OffsetCommit
from txnformat.core.intents import GroupOffsets, JoinAsMember, Write
from txnformat.errors import TxnLogError
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import TopicPartition
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    Producer,
    ProducerStatus,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import FaultKind

RAW = ("raw", 0)


def made(store: object = None, clock: QuickClock | None = None) -> TxnLog:
    """Return a log with ten records to read and a topic to write to."""
    log = TxnLog.create(store or MemoryStore(), clock=clock)  # type: ignore[arg-type]
    log.create_topic("raw", NUMBERS)
    log.create_topic("t", NUMBERS)
    with Producer(log) as producer:
        producer.send("raw", rows(*range(10)))
    return log


def committed(log: TxnLog, group: str = "etl") -> int | str | None:
    state = log.refresh()
    found = state.groups.get(group)
    return None if found is None else found.value(TopicPartition(state.topic_ids["raw"], 0))


def opened(log: TxnLog, name: str = "p", buffer: str = "auto") -> Producer:
    producer = Producer(log, name, buffer=buffer)
    producer.init()
    producer.begin()
    return producer


def commit_plainly(log: TxnLog, offset: int) -> None:
    offsets = GroupOffsets("etl", (OffsetCommit(log.state.topic_ids["raw"], 0, offset),))
    log.committer.commit(log.committer.intend(Write(offsets=(offsets,))))


def take(producer: Producer, *, flushes: bool) -> None:
    """Fail in the middle of a transaction."""
    with producer.transaction() as txn:
        txn.send("t", rows(4))
        txn.send_offsets("etl", {RAW: 6})
        if flushes:
            txn.flush()
        raise ZeroDivisionError


def overtaken(log: TxnLog, producer: Producer) -> None:
    """Let somebody else commit while a transaction holds the position."""
    with producer.transaction() as txn:
        txn.send("t", rows(1))
        txn.send_offsets("etl", {RAW: 4}, expected={RAW: None})
        txn.flush()
        commit_plainly(log, 7)


@BUFFERS
@pytest.mark.parametrize("flushes", [False, True])
def test_records_and_positions_come_with_the_commit(buffer: str, flushes: bool) -> None:
    log = made()
    with Producer(log, "p", buffer=buffer) as producer:
        with producer.transaction() as txn:
            txn.send("t", rows(1, 2))
            txn.send_offsets("etl", {RAW: 4})
            if flushes:
                txn.flush()
            assert committed(log) in (None, -1)
            txn.send("t", rows(3))
            txn.send_offsets("etl", {RAW: OffsetAndMetadata(5, "a note")})
        assert (read(log), committed(log)) == ([1, 2, 3], 5)
        with pytest.raises(ZeroDivisionError):
            take(producer, flushes=flushes)
    assert (read(log), committed(log)) == ([1, 2, 3], 5)


@BUFFERS
def test_positions_alone_are_a_transaction(buffer: str) -> None:
    log = made()
    with Producer(log, "p", buffer=buffer) as producer, producer.transaction() as txn:
        txn.send_offsets("etl", {RAW: 4})
    assert committed(log) == 4


@pytest.mark.parametrize("embed_bytes", [0, 65_536])
def test_positions_cost_no_request_of_their_own(embed_bytes: int) -> None:
    store = CountingStore(MemoryStore())
    log = made(store)
    with Producer(log, "p", embed_bytes=embed_bytes) as producer:
        producer.begin()
        with store.measure() as measured:
            producer.send("t", rows(1))
            producer.send_offsets("etl", {RAW: 4}, expected={RAW: None})
        assert not dict(measured.counts.requests)
        with store.measure() as measured:
            producer.commit()
        files = {} if embed_bytes else {RequestClass(RequestKind.OPEN_WRITE, KeyClass.DATA): 1}
        assert dict(measured.counts.requests) == files | {RequestClass(RequestKind.CREATE, KeyClass.ENTRY): 1}
    assert committed(log) == 4


@BUFFERS
def test_who_finds_another_position_than_it_read_from_can_only_abort(buffer: str) -> None:
    log = made()
    producer = opened(log, buffer=buffer)
    producer.send("t", rows(1))
    producer.send_offsets("etl", {RAW: 4}, expected={RAW: None})
    commit_plainly(log, 7)
    with pytest.raises(ConflictError) as caught:
        producer.commit()
    assert caught.value.kind == "offsets-changed"
    assert producer.status is ProducerStatus.ABORT_REQUIRED
    with pytest.raises(InvalidTransactionStateError):
        producer.commit()
    producer.abort()
    assert (read(log), committed(log)) == ([], 7)
    producer.begin()
    producer.send("t", rows(2))
    producer.commit()
    assert read(log) == [2], "and goes on with the next"
    producer.close()


@pytest.mark.parametrize("buffer", ["inline", "deferred"])
def test_a_broken_hold_ends_in_an_abort_of_the_with_block(buffer: str) -> None:
    log = made()
    with Producer(log, "p", buffer=buffer) as producer:
        with pytest.raises(ConflictError) as caught:
            overtaken(log, producer)
        assert caught.value.kind == "offsets-hold-broken"
        assert producer.status is ProducerStatus.READY
    assert (read(log), committed(log)) == ([], 7)


def test_of_two_instances_that_read_the_same_one_commits() -> None:
    log = made()
    first, second = opened(log, "first"), opened(log, "second")
    for producer in (first, second):
        producer.send("t", rows(1))
        producer.send_offsets("etl", {RAW: 4}, expected={RAW: None})
    first.commit()
    with pytest.raises(ConflictError, match="another consumer has committed"):
        second.commit()
    second.close()
    assert (read(log), committed(log)) == ([1], 4)


@pytest.mark.parametrize("expected", [None, 0])
def test_a_dead_instance_holds_a_position_no_longer_than_its_timeout(expected: int | None) -> None:
    """Also when nobody else commits anything: whoever is refused has ended what is over."""
    clock = QuickClock()
    log = made(MemoryStore(clock), clock)
    if expected is not None:
        commit_plainly(log, expected)
    dead = opened(log, "dead", "inline")
    dead.send_offsets("etl", {RAW: 4}, expected={RAW: expected})
    dead.flush()
    with Producer(log, "q") as producer:
        with pytest.raises(ConflictError) as caught, producer.transaction() as txn:
            txn.send_offsets("etl", {RAW: 5}, expected={RAW: expected})
        assert caught.value.kind == "offsets-held"
        clock.set_back(-61_000)
        with producer.transaction() as txn:
            txn.send_offsets("etl", {RAW: 5}, expected={RAW: expected})
    assert committed(log) == 5
    assert log.outcome("dead", 0).cause == "timeout"


def test_a_generation_that_is_over_is_refused() -> None:
    log = made()
    for _ in range(2):
        log.committer.commit(log.committer.intend(JoinAsMember("etl", "a process", 1_000)))
    with Producer(log, "p") as producer:
        with producer.transaction() as txn:
            with pytest.raises(ConflictError) as caught:
                txn.send_offsets(GroupMetadata("etl", 1), {RAW: 4})
            assert caught.value.kind == "member-fenced"
            txn.send_offsets(GroupMetadata("etl", 2), {RAW: 4})
        producer.begin()
        producer.send("t", rows(1))
        producer.send_offsets(GroupMetadata("etl", 2), {RAW: 5})
        log.committer.commit(log.committer.intend(JoinAsMember("etl", "another process", 1_000)))
        with pytest.raises(ConflictError) as caught:
            producer.commit()
        assert caught.value.kind == "member-fenced"
    assert (read(log), committed(log)) == ([], 4)


@BUFFERS
@pytest.mark.parametrize(
    ("kind", "landed"), [(FaultKind.APPLIED_LOST_ANSWER, True), (FaultKind.FAIL_BEFORE, False)]
)
def test_after_an_unknown_commit_both_are_there_or_neither(
    buffer: str, kind: FaultKind, landed: bool
) -> None:
    plan = Plan()
    log = faulty(plan)
    log.create_topic("raw", NUMBERS)
    with Producer(log) as producer:
        producer.send("raw", rows(*range(10)))
    producer = opened(log, buffer=buffer)
    producer.send("t", rows(1))
    producer.send_offsets("etl", {RAW: 4})
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    plan.clear()
    producer.commit()
    assert (read(log), committed(log)) == ([1], 4)
    producer.begin()
    producer.send("t", rows(2))
    producer.send_offsets("etl", {RAW: 5})
    unclear_commit(plan, kind)
    with pytest.raises(CommitStateUnknownError):
        producer.commit()
    plan.clear()
    if landed:
        with pytest.raises(InvalidTransactionStateError):
            producer.abort()
    else:
        producer.abort()
    assert (read(log), committed(log)) == (([1, 2], 5) if landed else ([1], 4))


@BUFFERS
def test_a_prepared_transaction_has_its_positions(buffer: str) -> None:
    log = made()
    producer = opened(log, buffer=buffer)
    producer.send("t", rows(1))
    producer.send_offsets("etl", {RAW: 4}, expected={RAW: None})
    token = str(producer.prepare())
    assert committed(log) == -1
    with pytest.raises(TxnLogError, match="prepared transaction"):
        commit_plainly(log, 9)
    log.commit_prepared(token)
    assert (read(log), committed(log)) == ([1], 4)


def test_a_successor_forgets_the_positions_of_what_was_left_open() -> None:
    log = made()
    left = opened(log, buffer="inline")
    left.send("t", rows(1))
    left.send_offsets("etl", {RAW: 4}, expected={RAW: None})
    left.flush()
    successor = opened(log)
    successor.send_offsets("etl", {RAW: 3}, expected={RAW: None})
    successor.commit()
    assert (read(log), committed(log)) == ([], 3)


def test_foreign_positions_are_kept_and_compared() -> None:
    log = made()
    with Producer(log, "p") as producer:
        with producer.transaction() as txn:
            txn.send_offsets("etl", positions={"kafka/raw/0": "17"}, expected_positions={"kafka/raw/0": None})
        assert log.state.groups["etl"].value("kafka/raw/0") == "17"
        with pytest.raises(ConflictError), producer.transaction() as txn:
            txn.send_offsets("etl", positions={"kafka/raw/0": "18"}, expected_positions={"kafka/raw/0": "16"})


BAD: list[tuple[type[TxnLogError], dict[str, object]]] = [
    (InvalidInputError, {"group": ""}),
    (InvalidInputError, {"group": "_hidden"}),
    (InvalidInputError, {"group": None}),
    (InvalidInputError, {"group": "etl"}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: -1}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: True}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: "4"}}),
    (InvalidInputError, {"group": "etl", "offsets": {"raw": 4}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: 4}, "expected": {("raw", 1): 2}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: 4}, "expected": {RAW: -2}}),
    (InvalidInputError, {"group": "etl", "offsets": [("raw", 0, 4)]}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: 4}, "expected": 3}),
    (InvalidInputError, {"group": "etl", "positions": {"a": 4}}),
    (InvalidInputError, {"group": "etl", "positions": {7: "4"}}),
    (InvalidInputError, {"group": "etl", "positions": {"a": "4"}, "expected_positions": {"a": 3}}),
    (InvalidInputError, {"group": "etl", "positions": {"a": "4"}, "expected_positions": {"b": "3"}}),
    (InvalidInputError, {"group": "etl", "positions": {"": "4"}}),
    (InvalidInputError, {"group": "etl", "positions": {"a": ""}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: OffsetAndMetadata(4, "x" * 5_000)}}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: OffsetAndMetadata(4, 5)}}),  # type: ignore[arg-type]
    (InvalidInputError, {"group": "etl", "offsets": {RAW: OffsetAndMetadata(4, b"x")}}),  # type: ignore[arg-type]
    (InvalidInputError, {"group": "etl", "offsets": [RAW]}),
    (InvalidInputError, {"group": "etl", "offsets": {RAW: 4}, "expected": 4}),
    (InvalidInputError, {"group": "etl", "positions": "a"}),
    (InvalidInputError, {"group": "etl", "positions": {1: "4"}}),
    (InvalidInputError, {"group": "etl", "positions": {"a": 4}}),
    (InvalidInputError, {"group": "etl", "positions": {"a": "4"}, "expected_positions": {"a": 3}}),
    (InvalidInputError, {"group": GroupMetadata("etl", True), "offsets": {RAW: 4}}),
    (InvalidInputError, {"group": GroupMetadata("etl", 1.0), "offsets": {RAW: 4}}),  # type: ignore[arg-type]
    (NotFoundError, {"group": "etl", "offsets": {("nothing", 0): 4}}),
    (NotFoundError, {"group": "etl", "offsets": {("raw", 7): 4}}),
    (OffsetOutOfRangeError, {"group": "etl", "offsets": {RAW: 11}}),
    (ConflictError, {"group": "etl", "offsets": {RAW: 4}, "expected": {RAW: 2}}),
]


@pytest.mark.parametrize(("error", "given"), BAD, ids=[str(given) for _, given in BAD])
def test_bad_positions_are_one_clear_error_and_nothing_is_taken(
    error: type[TxnLogError], given: dict[str, object]
) -> None:
    log = made()
    with Producer(log, "p") as producer:
        with producer.transaction() as txn:
            txn.send("t", rows(1))
            with pytest.raises(error):
                txn.send_offsets(**given)  # type: ignore[arg-type]
        assert read(log) == [1]
        assert committed(log) is None


def test_only_a_transaction_takes_positions() -> None:
    log = made()
    with Producer(log) as plain, pytest.raises(InvalidTransactionStateError) as caught:
        plain.send_offsets("etl", {RAW: 4})
    assert caught.value.kind == "not-transactional"
    with Producer(log, "p") as producer, pytest.raises(InvalidTransactionStateError) as caught:
        producer.send_offsets("etl", {RAW: 4})
    assert caught.value.kind == "no-transaction"


def test_positions_may_reach_the_last_stable_offset_and_not_beyond() -> None:
    log = made()
    other = opened(log, "other", buffer="inline")
    other.send("raw", rows(10))
    other.flush()
    with Producer(log, "p") as producer, producer.transaction() as txn:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            txn.send_offsets("etl", {RAW: 11})
        assert caught.value.values["latest"] == 10
        txn.send_offsets("etl", {RAW: 10})
    other.close()
    assert committed(log) == 10
