"""Listing and describing transactional ids, as Kafka's coordinator answers its tools."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import NUMBERS, QuickClock, rows
from txnformat.core.intents import ProducerRef, Write
from txnformat.core.transactions.state import TransactionStatus
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnlog import InvalidInputError, NotFoundError, Producer
from txnlog_testing.stores.counting import CountingStore


def _log() -> tuple[TxnLog, QuickClock]:
    clock = QuickClock()
    log = TxnLog.create(CountingStore(MemoryStore(clock)), clock=clock)
    log.create_topic("t", NUMBERS, partitions=3)
    return log, clock


def _begun(log: TxnLog, name: str, *partitions: int) -> Producer:
    producer = Producer(log, name, buffer="inline")
    producer.init()
    producer.begin()
    for partition in partitions or (0,):
        producer.send("t", rows(1), partition=partition)
    producer.flush()
    return producer


@pytest.fixture(scope="module")
def many() -> TxnLog:
    """Return a log with ids in every state, of several ages: producer ids 0 to 9, in the order of these
    lines."""
    log, clock = _log()
    for name in ("t0", "t1", "my-special-0"):
        _begun(log, name)
    clock.sleep(1)
    for name in ("t2", "your-special-1"):
        producer = _begun(log, name)
        ref = ProducerRef(producer.producer_id or 0, producer.epoch or 0, name)
        log.committer.commit(log.committer.intend(Write(ref, prepare=True)))
    clock.sleep(1)
    _begun(log, "t4").commit()
    for name in ("t5", "t6", "their-special-2"):
        _begun(log, name).abort()
    Producer(log, "t7").init()
    clock.sleep(1)
    return log


OPEN = {"t0", "t1", "my-special-0"}
PREPARED = {"t2", "your-special-1"}
ABORTED = {"t5", "t6", "their-special-2"}
FILTERS: list[tuple[dict[str, Any], set[str]]] = [
    ({}, OPEN | PREPARED | ABORTED | {"t4", "t7"}),
    ({"min_duration_ms": -1}, OPEN | PREPARED | ABORTED | {"t4", "t7"}),
    ({"min_duration_ms": 0}, OPEN | PREPARED),
    ({"min_duration_ms": 1_500}, OPEN | PREPARED),
    ({"min_duration_ms": 2_500}, OPEN),
    ({"min_duration_ms": 60_000}, set()),
    ({"states": ["Ongoing"]}, OPEN),
    ({"states": "ongoing"}, OPEN),
    ({"states": ["Prepared", "CompleteCommit"]}, PREPARED | {"t4"}),
    ({"states": ["Empty"]}, {"t7"}),
    ({"pattern": ".*special-.*"}, {"my-special-0", "your-special-1", "their-special-2"}),
    ({"pattern": "special"}, set()),
    ({"pattern": "nothing"}, set()),
    ({"pattern": ".*special-.*", "min_duration_ms": 1_000}, {"my-special-0", "your-special-1"}),
    ({"pattern": "t.", "states": ["CompleteAbort", "CompleteCommit"]}, {"t4", "t5", "t6"}),
]


@case("TransactionStateManagerTest", "testListTransactionsFiltering")
@pytest.mark.parametrize(
    ("filters", "expected"), FILTERS, ids=range(len(FILTERS))
)  # sets have no order of their own
def test_a_list_has_the_ids_that_meet_every_filter(
    many: TxnLog, filters: dict[str, Any], expected: set[str]
) -> None:
    assert {one.transactional_id for one in many.transactions.list(**filters)} == expected


@case("TransactionStateManagerTest", "testListTransactionsFiltering")
def test_a_list_is_filtered_by_producer_id_together_with_the_rest(many: TxnLog) -> None:
    ids = {one.transactional_id: one.producer_id for one in many.transactions.list()}
    assert len(set(ids.values())) == len(ids)

    def named(*names: str, **filters: Any) -> set[str]:
        found = many.transactions.list(producer_ids={ids[name] for name in names}, **filters)
        return {one.transactional_id for one in found}

    assert named("t5") == {"t5"}
    assert named("t5", "t6", "t0") == {"t5", "t6", "t0"}
    assert named("t4", "t5", states=["CompleteCommit"]) == {"t4"}
    assert named("t4", "t5", pattern="their.*") == set()
    assert many.transactions.list(producer_ids={4711}) == ()


@case("TransactionStateManagerTest", "testListTransactionsFiltering")
@pytest.mark.parametrize("states", [["UnknownState"], ["Ongoing", "PrepareCommit"], ["Dead"]])
def test_a_state_that_no_id_can_be_in_is_an_error_and_not_an_empty_list(
    many: TxnLog, states: list[str]
) -> None:
    """Kafka answers with nothing and mentions the filter besides: a mistyped state looks like an idle log."""
    with pytest.raises(InvalidInputError) as caught:
        many.transactions.list(states=states)
    assert caught.value.kind == "unknown-transaction-state"


@case("TransactionStateManagerTest", "testListTransactionsFilteringWithInvalidPattern")
@pytest.mark.parametrize("pattern", ["(ab(cd", "[", "*"])
def test_a_pattern_that_is_none_is_refused(many: TxnLog, pattern: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(pattern)) as caught:
        many.transactions.list(pattern=pattern)
    assert caught.value.kind == "invalid-pattern"


@case("TransactionCoordinatorTest", "testDescribeTransactionsWithEmptyTransactionalId")
@pytest.mark.parametrize("name", ["", "x" * 250])
def test_an_id_that_can_be_none_is_described_as_a_mistake(name: str) -> None:
    log, _ = _log()
    with pytest.raises(InvalidInputError):
        log.transactions.describe(name)


@case("TransactionCoordinatorTest", "testDescribeTransactions")
def test_a_description_has_what_the_coordinator_knows_at_every_step() -> None:
    """Identity, state, timeout, start, duration, partitions with their offsets; unknown ids are told as
    such.
    """
    log, clock = _log()
    with pytest.raises(NotFoundError) as caught:
        log.transactions.describe("etl")
    assert caught.value.kind == "unknown-transactional-id"
    producer = Producer(log, "etl", buffer="inline")
    producer.init()
    empty = log.transactions.describe("etl")
    assert (empty.producer_id, empty.producer_epoch, empty.state) == (0, 0, TransactionStatus.EMPTY)
    assert (empty.start_timestamp_ms, empty.duration_ms, empty.partitions) == (None, None, ())
    assert empty.timeout_ms == 60_000
    producer.begin()
    for partition in (2, 0):
        producer.send("t", rows(1, 2), partition=partition)
        producer.flush()
    started = log.refresh().transactional_ids["etl"].started_ms
    clock.sleep(7)
    is_open = log.transactions.describe("etl")
    assert (is_open.state, is_open.start_timestamp_ms) == (TransactionStatus.ONGOING, started)
    assert is_open.duration_ms is not None
    assert is_open.duration_ms >= 7_000 - 10
    assert started is not None
    assert (is_open.expires_ms, is_open.late) == (started + 60_000, False)
    assert [
        (one.topic, one.partition, one.start_offset, one.latest_offset) for one in is_open.partitions
    ] == [
        ("t", 0, 0, 2),
        ("t", 2, 0, 2),
    ]
    producer.commit()
    ended = log.transactions.describe("etl")
    assert (ended.producer_epoch, ended.state, ended.partitions) == (1, TransactionStatus.COMPLETE_COMMIT, ())
    assert (ended.start_timestamp_ms, ended.duration_ms) == (None, None)
    assert isinstance(log.store, CountingStore)
    with log.store.measure() as measured:
        log.transactions.describe("etl")
    assert measured.counts.count() <= 1
