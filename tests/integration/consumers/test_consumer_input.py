"""Consumer: one clear error for whatever is asked wrongly, and nothing has changed."""

from __future__ import annotations

import copy
import datetime
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.consumers.consuming import World, drained, refuses
from txnformat.consumers.positions import is_in_range, reset_position
from txnformat.consumers.settings import OffsetReset
from txnformat.core.records.state import PartitionState
from txnformat.types import IsolationLevel
from txnlog import (
    Consumer,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    TxnLogError,
)


def test_all_that_is_wrong_with_the_settings_is_told_at_once() -> None:
    world = World()
    error = refuses(
        InvalidInputError,
        "invalid-settings",
        lambda: Consumer(
            world.log,
            isolation="none",
            auto_offset_reset="first",
            max_poll_records=0,
            columns=["n", "n", 3],  # type: ignore[list-item]
        ),
    )
    assert isinstance(error, InvalidInputError)
    assert error.problems == [
        "isolation is 'none', not one of read_committed, read_uncommitted",
        "auto_offset_reset is 'first', not one of earliest, latest, none",
        "columns has 3, not a name",
        "columns has 'n' twice",
        "max_poll_records is 0, not a whole number from 1 on",
    ]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"isolation": "snapshot"}, "read it with log.read"),
        ({"isolation": None}, "not one of read_committed"),
        ({"auto_offset_reset": None}, "not one of earliest"),
        ({"max_poll_records": True}, "max_poll_records is True"),
        ({"columns": "n"}, "columns is 'n', not a list"),
        ({"columns": 5}, "columns is 5, not a list"),
        ({"columns": []}, "columns is empty"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], told: str) -> None:
    world = World()
    assert told in str(
        refuses(InvalidInputError, "invalid-settings", lambda: Consumer(world.log, **settings))
    )


def test_a_path_is_no_log() -> None:
    refuses(InvalidInputError, "not-a-log", lambda: Consumer("/data/log"))  # type: ignore[arg-type]


def test_it_can_be_neither_pickled_nor_copied() -> None:
    with World().consumer() as consumer:
        for call in (lambda: pickle.dumps(consumer), lambda: copy.deepcopy(consumer)):
            refuses(InvalidInputError, "not-picklable", call)


WRONG: list[tuple[type[TxnLogError], str, Callable[[Consumer], object], str]] = [
    (NotFoundError, "unknown-topic", lambda c: c.assign([("v", 0)]), "`v`"),
    (NotFoundError, "unknown-partition", lambda c: c.assign([("t", 0), ("t", 2), ("t", -1)]), "('t', -1)"),
    (InvalidInputError, "invalid-partitions", lambda c: c.assign("t"), "'t' is not a pair"),  # type: ignore[arg-type]
    (InvalidInputError, "invalid-partitions", lambda c: c.assign(5), "5 is not a pair"),  # type: ignore[arg-type]
    (InvalidInputError, "invalid-partitions", lambda c: c.assign([("t", 0), ("t", "1"), "t"]), "'t' is"),  # type: ignore[list-item]
    (InvalidInputError, "invalid-partitions", lambda c: c.assign([("t", True)]), "('t', True)"),
    (InvalidTransactionStateError, "already-assigned", lambda c: c.subscribe(["t"]), "unsubscribe first"),
    (InvalidInputError, "not-assigned", lambda c: c.position("t", 1), "('t', 1) is not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.seek("t", 1, 0), "not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.seek_to_end(("t", 0), ("t", 1)), "not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.seek_to_beginning(("t", 0), ("t", 1)), "not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.seek_to_time(0, ("t", 0), ("t", 1)), "not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.pause(("t", 0), ("v", 0)), "not assigned"),
    (InvalidInputError, "not-assigned", lambda c: c.resume(("v", 0)), "not assigned"),
    (InvalidInputError, "invalid-partitions", lambda c: c.pause("t", 0), "'t' is not a pair"),  # type: ignore[arg-type]
    (InvalidInputError, "invalid-offset", lambda c: c.seek("t", 0, -1), "-1 is not an offset"),
    (InvalidInputError, "invalid-offset", lambda c: c.seek("t", 0, True), "True"),
    (InvalidInputError, "invalid-offset", lambda c: c.seek("t", 0, "5"), "'5'"),  # type: ignore[arg-type]
    (OffsetOutOfRangeError, "offset-out-of-range", lambda c: c.seek("t", 0, 4), "earliest=`0` latest=`3`"),
    (InvalidInputError, "invalid-timestamp", lambda c: c.seek_to_time("yesterday"), "datetime"),
    (InvalidInputError, "invalid-timestamp", lambda c: c.seek_to_time(datetime.date(2026, 1, 1)), "2026"),  # type: ignore[arg-type]
    (InvalidInputError, "invalid-timestamp", lambda c: c.offsets_for_times({("t", 0): 1.5}), "1.5"),  # type: ignore[dict-item]
    (InvalidInputError, "invalid-partitions", lambda c: c.offsets_for_times([("t", 0)]), "mapping"),  # type: ignore[arg-type]
    (NotFoundError, "unknown-partition", lambda c: c.offsets_for_times({("t", 7): 0}), "('t', 7)"),
    (InvalidInputError, "invalid-poll", lambda c: c.poll(-1), "timeout_ms is -1"),
    (InvalidInputError, "invalid-poll", lambda c: c.poll(0.5), "timeout_ms is 0.5"),  # type: ignore[arg-type]
    (InvalidInputError, "invalid-poll", lambda c: c.poll(0, 0), "max_records is 0"),
]


@pytest.mark.parametrize(("error", "kind", "call", "told"), WRONG, ids=range(len(WRONG)))
def test_calls_that_are_refused(
    error: type[TxnLogError], kind: str, call: Callable[[Consumer], object], told: str
) -> None:
    world = World(partitions=2)
    world.append(1, 2)
    world.begin(3)
    with world.consumer(0) as consumer:
        assert told in str(refuses(error, kind, lambda: call(consumer)))
        assert consumer.assignment() == [("t", 0)]
        assert consumer.paused() == []
        assert drained(consumer) == [1, 2]


@pytest.mark.parametrize(
    ("topics", "error", "kind"),
    [
        ("t", InvalidInputError, "invalid-topics"),
        (5, InvalidInputError, "invalid-topics"),
        ([], InvalidInputError, "invalid-topics"),
        (["t", ["t"]], InvalidInputError, "invalid-topics"),
        (["t", "v"], NotFoundError, "unknown-topic"),
    ],
)
def test_topics_that_are_refused(topics: Any, error: type[TxnLogError], kind: str) -> None:
    world = World()
    with Consumer(world.log) as consumer:
        refuses(error, kind, lambda: consumer.subscribe(topics))
        assert consumer.assignment() == []
        consumer.subscribe(["t"])
        refuses(error, kind, lambda: consumer.subscribe(topics))
        assert consumer.assignment() == [("t", 0)]


def test_columns_that_a_topic_lacks_are_told_before_anything_is_read() -> None:
    world = World()
    with Consumer(world.log, columns=["n", "m"]) as consumer:
        for call in (lambda: consumer.subscribe(["t"]), lambda: consumer.assign([("t", 0)])):
            assert "'m'" in str(refuses(InvalidInputError, "unknown-column", call))
        assert consumer.assignment() == []


def test_either_subscribed_or_assigned_and_not_before_nothing_to_poll() -> None:
    world = World()
    with Consumer(world.log) as consumer:
        refuses(InvalidTransactionStateError, "nothing-assigned", consumer.poll)
        consumer.subscribe(["t"])
        refuses(InvalidTransactionStateError, "already-subscribed", lambda: consumer.assign([("t", 0)]))
        consumer.unsubscribe()
        refuses(InvalidTransactionStateError, "nothing-assigned", consumer.poll)
        consumer.assign([("t", 0)])
        assert consumer.poll(0) is None


def test_after_close_every_call_says_so_and_close_may_be_repeated() -> None:
    consumer = World().consumer()
    consumer.close()
    consumer.close()
    assert "closed" in repr(consumer)
    for call in (
        consumer.poll,
        consumer.positions,
        consumer.lag,
        consumer.unsubscribe,
        consumer.seek_to_end,
        consumer.assignment,
        lambda: list(consumer.batches()),
        lambda: consumer.subscribe(["t"]),
    ):
        refuses(InvalidTransactionStateError, "consumer-closed", call)


def test_without_a_policy_a_partition_without_a_position_is_an_error_until_somebody_seeks() -> None:
    world = World()
    world.append(1, 2)
    with world.consumer(auto_offset_reset="none") as consumer:
        for call in (consumer.poll, consumer.positions, consumer.lag, lambda: consumer.position("t", 0)):
            error = refuses(OffsetOutOfRangeError, "no-offset", call)
            assert error.values == {"topic": "t", "partition": 0, "earliest": 0, "latest": 3}
        consumer.seek("t", 0, 1)
        assert drained(consumer) == [2]


def test_a_position_that_is_not_there_any_more_is_begun_anew_or_an_error() -> None:
    level = IsolationLevel.READ_COMMITTED
    partition = PartitionState(log_start=5, log_end=20, open={(1, 0): 12})
    assert [is_in_range(partition, position) for position in (4, 5, 12, 20, 21)] == [
        False, True, True, True, False,
    ]  # fmt: skip
    for policy, place in [(OffsetReset.EARLIEST, 5), (OffsetReset.LATEST, 12)]:
        assert reset_position(partition, level, policy, ("t", 0), 4) == place
    error = refuses(
        OffsetOutOfRangeError,
        "offset-out-of-range",
        lambda: reset_position(partition, level, OffsetReset.NONE, ("t", 0), 4),
    )
    assert error.values == {"got": 4, "topic": "t", "partition": 0, "earliest": 5, "latest": 12}
