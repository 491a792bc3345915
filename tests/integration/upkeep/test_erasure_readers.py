"""Readers that follow a topic while records of it are erased: consumers, subscriptions, and readers in the
order of commits."""

from __future__ import annotations

import pytest

from tests.erasure.world import CANARY, complete, made, write
from txnformat.reading.commits import committed_between
from txnformat.store.requests import RequestKind
from txnlog import AckConflictError, Consumer, Producer, Subscription, TxnLog
from txnlog_testing.stores.faulty import FaultyStore

WHERE = f"name LIKE '{CANARY}%'"


@pytest.fixture
def log() -> TxnLog:
    found = made()
    write(found, "a", f"{CANARY}1", "b")  # offsets 0 to 2, the marker at 3
    write(found, f"{CANARY}2", "c", f"{CANARY}3")
    return found


def erase(log: TxnLog) -> None:
    status = log.erase("t", WHERE, requested_by="the desk").status
    assert status is not None
    complete(log)
    (found,) = log.erasures()
    assert found.missing == ()


def test_a_consumer_goes_on_over_the_gaps_and_has_no_lag(log: TxnLog) -> None:
    with Consumer(log, group="g", max_poll_records=1) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning()
        assert [row["_offset"] for row in consumer.poll_dicts()] == [0]
        consumer.commit()
    erase(log)
    with Consumer(log, group="g") as consumer:
        consumer.assign([("t", 0)])
        assert [row["_offset"] for row in consumer.poll_dicts()] == [2, 5]
        consumer.commit()
        assert consumer.lag() == {("t", 0): 0}
        consumer.seek("t", 0, 1)
        assert [row["_offset"] for row in consumer.poll_dicts()] == [2, 5]


def test_a_subscription_does_not_wait_for_what_is_gone(log: TxnLog) -> None:
    log.subscriptions.create("t", "s")
    before = Subscription(log, "t", "s")
    assert len(before.receive_dicts(2, timeout_ms=0)) == 2
    erase(log)
    before.acknowledge([(0, 0), (0, 1)])  # the second one is gone
    after = Subscription(log, "t", "s")
    assert [row["_offset"] for row in after.receive_dicts(9, timeout_ms=0)] == [2, 5]
    after.acknowledge([(0, 2), (0, 5)])
    partitions = log.subscriptions.describe("t", "s").partitions
    assert [one.unacknowledged for one in partitions] == [0, 0]


def _held(log: TxnLog) -> Subscription:
    """Return a subscription that has received offsets 0 and 1."""
    log.subscriptions.create("t", "s")
    held = Subscription(log, "t", "s")
    assert len(held.receive_dicts(2, timeout_ms=0)) == 2
    return held


def _marks(log: TxnLog) -> list[int]:
    return [one.mark for one in log.subscriptions.describe("t", "s").partitions]


def test_a_record_that_is_gone_is_acknowledged_in_peace_after_another_client_covered_its_offset(
    log: TxnLog,
) -> None:
    held = _held(log)
    erase(log)
    other = Subscription(log, "t", "s")
    other.acknowledge([(0, 2)])  # and the gap before it, offset 1
    assert _marks(log) == [0, 0]
    held.acknowledge([(0, 0), (0, 1)])
    assert _marks(log) == [3, 0]
    entry = log.refresh().entry
    held.acknowledge([(0, 1)])  # below the mark
    held.acknowledge_cumulative([(0, 1)])
    held.negative_acknowledge([(0, 1)])
    assert log.refresh().entry == entry
    with pytest.raises(AckConflictError) as got:
        held.acknowledge([(0, 1), (0, 2)])
    assert got.value.values["offset"] == 2, "that record is there, and somebody has processed it"
    with pytest.raises(AckConflictError):
        held.acks([(0, 1)], cumulative=False)
    assert [row["_offset"] for row in other.receive_dicts(9, timeout_ms=0)] == [5]


def test_a_cumulative_acknowledgement_counts_up_to_a_record_that_is_gone(log: TxnLog) -> None:
    log.subscriptions.create("t", "s")
    held = Subscription(log, "t", "s")
    assert len(held.receive_dicts(6, timeout_ms=0)) == 6
    erase(log)
    Subscription(log, "t", "s").acknowledge([(0, 5)])  # and the gap before it, from 3 on
    held.acknowledge_cumulative([(0, 4)])
    assert _marks(log) == [6, 0]
    with pytest.raises(AckConflictError):
        held.acknowledge_cumulative([(0, 2), (0, 4)])


def test_a_transaction_that_covers_a_gap_does_not_keep_the_record_that_was_there(log: TxnLog) -> None:
    held = _held(log)
    erase(log)
    other = Subscription(log, "t", "s")
    with Producer(log, "worker") as producer:
        producer.begin()
        producer.acknowledge(other, [(0, 2)])
        token = producer.prepare()
        held.acknowledge([(0, 0), (0, 1)])
        log.abort_prepared(token)
    assert _marks(log) == [1, 0]
    held.acknowledge([(0, 1)])
    assert _marks(log) == [2, 0]


def test_the_offset_is_covered_while_the_acknowledgement_is_on_its_way(log: TxnLog) -> None:
    done = False

    def plan(operation: RequestKind, key: str, nth: int) -> None:
        nonlocal done
        if not done and armed and operation is RequestKind.CREATE:
            done = True
            Subscription(log, "t", "s").acknowledge([(0, 2)])

    armed = False
    late = TxnLog.open(FaultyStore(log.store, plan), clock=log.committer.clock)
    held = _held(late)
    erase(log)
    armed = True
    held.acknowledge([(0, 0), (0, 1)])
    assert (done, _marks(log)) == (True, [3, 0])
    done = False
    with pytest.raises(AckConflictError):
        held.acknowledge([(0, 2)])


def test_a_record_of_a_negative_acknowledgement_that_is_gone_is_not_waited_for(log: TxnLog) -> None:
    log.subscriptions.create("t", "s")
    subscription = Subscription(log, "t", "s")
    assert len(subscription.receive_dicts(6, timeout_ms=0)) == 6
    subscription.negative_acknowledge([(0, 1), (0, 2)])
    erase(log)
    assert [row["_offset"] for row in subscription.receive_dicts(9, timeout_ms=0)] == [2]


def test_a_window_of_commits_shows_the_rest_and_does_not_alarm(log: TxnLog) -> None:
    until = log.refresh().entry

    def window() -> list[int]:
        found = committed_between(log.sidecars, log.refresh(), "t", -1, until)
        return [int(part.rows["take"].sum()) for part in found.partitions]

    assert window() == [6, 0]
    erase(log)
    assert window() == [3, 0]
