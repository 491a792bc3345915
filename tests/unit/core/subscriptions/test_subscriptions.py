"""Subscriptions in the core: how they come and go, and what nobody can acknowledge."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import COMMIT, ORDERS, Log, rows
from tests.unit.core.subscriptions.acknowledging import (
    CREATE,
    NAME,
    RECORDS,
    TOPIC,
    acks_of,
    below,
    each,
    now,
    seen,
    some,
    subscribed,
    within,
)
from txnformat.core.intents import Acks, ChangeTopic, Included, OpenProducer, Write
from txnformat.core.lifecycle.idle import expirable
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
    CreateSubscription,
    DeleteSubscription,
    SubscriptionStart,
)
from txnformat.core.subscriptions.state import ACK_RANGES_MAX
from txnformat.errors import (
    AckConflictError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OffsetOutOfRangeError,
)
from txnformat.persistent import replace

# --- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acks", "kind"),
    [
        (some(), "invalid-ack"),
        (some((3, 3)), "invalid-ack"),
        (some((5, 3)), "invalid-ack"),
        (some((-1, 3)), "invalid-ack"),
        (some((0, 2**70)), "invalid-ack"),
        (some((1, 3), (2, 4)), "acknowledged-twice"),
        (some((2, 3), (2, 3)), "acknowledged-twice"),
        (below(0), "invalid-ack"),
        (below(-1, mode=AckMode.SEEK), "invalid-ack"),
        (replace(below(1), partitions=(AckedPartition(0),)), "invalid-ack"),
        (replace(below(1), partitions=(AckedPartition(0, each(1), 1),)), "invalid-ack"),
        (replace(some(), partitions=(AckedPartition(0, each(1), 1),)), "invalid-ack"),
        (replace(some(), partitions=()), "empty-ack"),
        (replace(some(), partitions=(AckedPartition(0, each(1)),) * 2), "partition-twice"),
    ],
)
def test_what_acknowledges_nothing_or_twice_is_refused(acks: Acks, kind: str) -> None:
    log, _ = subscribed()
    error = log.refusal(now(acks))
    assert (type(error), error.kind) == (InvalidInputError, kind)


def test_what_nobody_can_have_read_cannot_be_acknowledged() -> None:
    log, (producer,) = subscribed()
    log.commit(Write(producer, rows()))
    beyond = RECORDS + 1
    for acks in (
        some((RECORDS, beyond)),
        below(beyond),
        below(beyond, mode=AckMode.SEEK),
        some((0, 10**9)),
        below(10**30),
    ):
        error = log.refusal(now(acks))
        assert isinstance(error, OffsetOutOfRangeError)
        seek = acks.mode is AckMode.SEEK  # a position may be the end, a record lies before it
        end = acks.partitions[0].position or acks.partitions[0].ranges[-1][1]
        assert (error.values["got"], error.values["latest"]) == (
            (end, RECORDS) if seek else (end - 1, RECORDS - 1)
        )
        assert error.values["earliest"] == 0
    assert isinstance(log.commit(now(below(RECORDS))), Included)
    log.commit(Write(producer, end=COMMIT))
    assert isinstance(log.commit(now(some((RECORDS, RECORDS + 2)))), Included)


def test_acknowledgements_of_what_does_not_exist_are_refused() -> None:
    log, _ = subscribed()
    unknown = "00000000-0000-4000-8000-000000000000"
    actions: list[tuple[Write | CreateSubscription | DeleteSubscription, str]] = [
        (now(replace(below(1), topic_id=unknown)), "topic-gone"),
        (now(below(1, partition=77)), "unknown-partition"),
        (now(below(1, partition=-1)), "unknown-partition"),
        (now(replace(below(1), subscription="nobody")), "unknown-subscription"),
        (replace(CREATE, subscription="new", topic_id=unknown), "topic-gone"),
        (replace(CREATE, subscription="new", starts=(SubscriptionStart(77, 0),)), "unknown-partition"),
        (DeleteSubscription(TOPIC, "nobody"), "unknown-subscription"),
    ]
    for action, kind in actions:
        error = log.refusal(action)
        assert isinstance(error, NotFoundError)
        assert error.kind == kind


def test_there_are_never_more_separate_ranges_than_the_cap() -> None:
    records = 2 * ACK_RANGES_MAX + 10
    log = Log(ORDERS, CREATE, Write(appends=rows(-1, records)), OpenProducer("etl"))
    producer = log.producer()
    odd = each(*range(1, 2 * ACK_RANGES_MAX, 2))
    log.commit(now(some(*odd[:5_000])))
    log.commit(within(producer, some(*odd[5_000:])))
    for write in (now(some(*each(records - 1))), within(producer, some(*each(records - 1)))):
        error = log.refusal(write)
        assert (type(error), error.kind) == (InvalidInputError, "too-many-ack-ranges")
    assert isinstance(log.commit(now(some((0, 1)))), Included), "the oldest can always be"
    log.commit(Write(producer, end=COMMIT))
    assert acks_of(log).range_count() == ACK_RANGES_MAX - 1


# --- create, delete, grow -----------------------------------------------------------------------------------


def test_a_subscription_begins_where_it_is_told() -> None:
    log, _ = subscribed()
    starts = (SubscriptionStart(0, 7), SubscriptionStart(1, RECORDS))
    log.commit(CreateSubscription(TOPIC, "late", starts))
    late = log.state.subscriptions[TOPIC, "late"]
    assert [late.partition(number).mark for number in range(3)] == [7, RECORDS, 0]
    assert late.created_entry == log.state.entry
    for wrong, kind in (
        ((SubscriptionStart(0, 1), SubscriptionStart(0, 1)), "partition-twice"),
        ((SubscriptionStart(0, -1),), "negative-offset"),
    ):
        assert log.refusal(CreateSubscription(TOPIC, "later", wrong)).kind == kind
    beyond = CreateSubscription(TOPIC, "later", (SubscriptionStart(0, RECORDS + 1),))
    assert isinstance(log.refusal(beyond), OffsetOutOfRangeError)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 300])
def test_a_subscription_has_a_name_like_a_topic(name: str) -> None:
    log, _ = subscribed()
    assert log.refusal(CreateSubscription(TOPIC, name)).kind == "invalid-subscription-name"


def test_a_subscription_is_there_once_and_goes_when_nothing_is_pending() -> None:
    log, (producer,) = subscribed()
    error = log.refusal(CREATE)
    assert (type(error), error.kind) == (ConflictError, "subscription-exists")
    log.commit(within(producer, some(*each(4, 2))))
    error = log.refusal(DeleteSubscription(TOPIC, NAME))
    assert (type(error), error.kind, error.values["offset"]) == (AckConflictError, "ack-pending", 2)
    log.commit(Write(producer, end=COMMIT))
    assert isinstance(log.commit(DeleteSubscription(TOPIC, NAME)), Included)
    assert log.state.subscriptions == {}
    assert isinstance(log.commit(CREATE), Included)
    assert seen(log) == (0, []), "it begins anew"


def test_a_partition_that_a_topic_gets_later_is_wanted_from_its_beginning() -> None:
    log, _ = subscribed()
    count = log.state.topics[TOPIC].partitions
    assert log.refusal(now(below(1, partition=count))).kind == "unknown-partition"
    log.commit(ChangeTopic(TOPIC, count + 1))
    more = replace(rows(-1, 2, "more", count)[0], partition_count=count + 1)
    log.commit(Write(appends=(more,)))
    log.commit(now(some(*each(1), partition=count)))
    assert acks_of(log, count).acked.pairs() == [(1, 2)]


def test_a_subscription_never_expires() -> None:
    log, _ = subscribed()
    log.commit(now(below(3)))
    wanted = expirable(replace(log.state, timestamp_ms=2**60), 2**60)
    assert wanted is not None
    log.commit(wanted)
    assert log.state.transactional_ids == {}
    assert seen(log) == (3, [])
