"""Pulsar's tests of acknowledgements in transactions, through its client: what is left out meanwhile, and
what comes again.

A batch is one append of many messages there and here; an acknowledgement always names single messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.pulsar import again, new_log, opened, plain
from tests.conformance.subscribers import (
    BATCHES,
    SUB,
    acks_of,
    figures,
    fill,
    numbers,
    received,
    refused,
    subscribed,
    worker,
)
from tests.integration.clients.failing import Plan, QuickClock, faulty
from txnformat.core.operations import TIMEOUT_MS
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import InvalidTransactionStateError, Producer, StorageError, Subscription, read_values
from txnlog_testing.stores.faulty import Fault, FaultKind

CUMULATIVE = pytest.mark.parametrize("cumulative", [False, True], ids=["individual", "cumulative"])

# --- abort, and again ---------------------------------------------------------------------------------------


@case(
    "TransactionEndToEndTest",
    "txnIndividualAckTestNoBatchAndSharedSub",
    "txnIndividualAckTestBatchAndSharedSub",
    "txnIndividualAckTestNoBatchAndFailoverSub",
    "txnIndividualAckTestBatchAndFailoverSub",
)
@case("V5TransactionScalableTest", "testTransactionalAckAbortRedeliversThenCommitSticks")
@BATCHES
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "failover"])
def test_acknowledged_messages_come_again_after_an_abort_and_never_after_a_commit(
    shared: bool, batched: bool
) -> None:
    """Shared: another instance is there all the time. Failover: one takes over from the first, which is
    gone.
    """
    log = subscribed(0)
    producer = opened(log, "one")
    instance = worker(log)
    for turn in range(2):
        expected = list(range(20 * turn, 20 * turn + 20))
        fill(log, expected, batched=batched)
        if turn:
            producer.begin()
        for message in received(instance, 1):
            producer.acknowledge(instance, message)
            producer.flush()
        other = worker(log)
        assert numbers(instance) == numbers(other) == [], "pending: for nobody"
        if not shared:
            instance.close()
            instance = other
        producer.abort()
        messages = received(instance)
        assert [each["n"] for each in messages] == expected
        assert not shared or numbers(other) == expected
        producer.begin()
        producer.acknowledge(instance, messages)
        producer.commit()
        assert numbers(instance) == numbers(worker(log)) == []
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()
        refused(other.acknowledge, messages, kind="already-acknowledged")


@case("TransactionEndToEndTest", "txnAckTestBatchAndCumulativeSub", "txnAckTestNoBatchAndCumulativeSub")
@BATCHES
def test_a_cumulative_acknowledgement_goes_forward_only_and_an_abort_takes_all_of_it_back(
    batched: bool,
) -> None:
    log = subscribed(0)
    instance = worker(log)
    producer = opened(log, "one")
    for turn in range(2):
        expected = list(range(31 * turn, 31 * turn + 31))
        fill(log, expected, batched=batched)
        if turn:
            producer.begin()
        messages = received(instance)
        assert [each["n"] for each in messages] == expected
        for message in messages[::3]:
            producer.acknowledge_cumulative(instance, message)
            producer.flush()
        for earlier in (messages[-1], messages[-2]):
            refused(producer.acknowledge_cumulative, instance, earlier)
        assert numbers(worker(log)) == []
        producer.abort()
        assert numbers(instance) == numbers(worker(log)) == expected
        producer.begin()
        for message in messages[::3]:
            producer.acknowledge_cumulative(instance, message)
        producer.commit()
        with pytest.raises(InvalidTransactionStateError):
            producer.commit()
        instance.redeliver_unacknowledged()
        assert numbers(instance) == numbers(worker(log)) == []


@case("TransactionEndToEndTest", "testCumulativeAckRedeliverMessages")
def test_of_two_transactions_one_holds_everything_below_a_position() -> None:
    log = subscribed(5)
    instance = worker(log)
    one, other = opened(log, "one"), opened(log, "other")
    third = received(instance)[2]
    assert third["n"] == 2
    one.acknowledge_cumulative(instance, third)
    one.flush()
    refused(other.acknowledge_cumulative, worker(log), third)
    other.abort()
    one.abort()
    other.begin()
    other.acknowledge(instance, [(0, 1)])
    other.flush()
    one.begin()
    refused(one.acknowledge_cumulative, instance, third)  # Pulsar does not look: both would win message 1
    one.abort()
    other.abort()
    instance.redeliver_unacknowledged()
    messages = received(instance)
    assert [each["n"] for each in messages] == [0, 1, 2, 3, 4]
    other.begin()
    other.acknowledge_cumulative(instance, messages[-1])
    other.commit()
    instance.redeliver_unacknowledged()
    assert numbers(instance) == []


@case("TransactionEndToEndTest", "testIndividualAckAbortFilterAckSetInPendingAckState")
def test_of_one_batch_only_what_the_aborted_transaction_had_comes_again() -> None:
    """Three messages are committed, three aborted, three acknowledged at once."""
    log = subscribed(9)
    instance = worker(log)
    messages = received(instance)
    one, other = opened(log, "one"), opened(log, "other")
    one.acknowledge(instance, messages[:3])
    one.flush()
    other.acknowledge(instance, messages[3:6])
    other.flush()
    instance.acknowledge(messages[6:])
    assert numbers(instance) == []
    other.abort()
    assert numbers(instance) == [3, 4, 5]
    assert numbers(worker(log)) == [3, 4, 5], "0 to 2 are pending still"
    one.commit()
    assert numbers(worker(log)) == [3, 4, 5]


@case("TransactionEndToEndTest", "testFilterMsgsInPendingAckStateWhenConsumerDisconnect")
@BATCHES
def test_the_next_instance_does_not_receive_what_is_pending(batched: bool) -> None:
    log = subscribed(10, batched=batched)
    instance = worker(log)
    messages = received(instance)
    one, other = opened(log, "one"), opened(log, "other")
    one.acknowledge(instance, messages[:3])
    one.flush()
    other.acknowledge(instance, messages[3:6])
    other.flush()
    instance.close()
    heir = worker(log)
    assert numbers(heir) == [6, 7, 8, 9]
    one.commit()
    other.abort()
    assert numbers(heir) == [3, 4, 5]
    assert numbers(worker(log)) == [3, 4, 5, 6, 7, 8, 9]


@case("TransactionEndToEndTest", "testMsgsInPendingAckStateWouldNotGetTheConsumerStuck")
@BATCHES
def test_what_lies_behind_pending_messages_is_received(batched: bool) -> None:
    """However few are asked for at once: pending ones do not count."""
    log = subscribed(30, batched=batched)
    instance = worker(log)
    producer = opened(log, "one")
    producer.acknowledge(instance, received(instance)[:25])
    producer.flush()
    heir = worker(log)
    assert [each["n"] for each in heir.receive_dicts(2, timeout_ms=0)] == [25, 26]
    assert numbers(heir, 2) == [27, 28, 29]
    fill(log, [30])
    assert numbers(heir, 2) == [30]
    producer.abort()
    assert sorted(numbers(heir, 2)) == list(range(25))


@case("TransactionEndToEndTest", "txnTransactionRedeliverNullDispatcher")
@CUMULATIVE
def test_an_abort_needs_no_instance_of_the_subscription(cumulative: bool) -> None:
    log = subscribed()
    instance = worker(log)
    producer = opened(log, "one")
    message = instance.receive_dicts(1, timeout_ms=0)
    (producer.acknowledge_cumulative if cumulative else producer.acknowledge)(instance, message)
    producer.flush()
    instance.close()
    producer.abort()
    assert figures(log) == (10, 0)
    assert numbers(worker(log)) == list(range(10))


@case("TransactionEndToEndTest", "transactionTimeoutTest")
def test_messages_of_a_transaction_that_times_out_come_again() -> None:
    clock = QuickClock()
    log = subscribed(1, clock=clock)
    instance = worker(log)
    producer = opened(log, "one")
    (message,) = received(instance)
    producer.acknowledge(instance, message)
    producer.flush()
    assert received(instance) == []
    clock.sleep((TIMEOUT_MS + 1_000) / 1_000)
    assert [action.transactional_id for action in again(log).committer.end_expired()] == ["one"]
    heir = worker(log)
    assert received(heir) == [message]
    instance.redeliver_unacknowledged()
    assert received(instance) == [message]
    instance.acknowledge(message)
    assert figures(log) == (0, 0)


# --- figures ------------------------------------------------------------------------------------------------


@case("TransactionProduceTest", "ackCommitTest", "ackAbortTest")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_figures_count_pending_messages_until_the_end(commit: bool) -> None:
    log = subscribed(10, partitions=3)
    instance = worker(log)
    messages = received(instance)
    producer = opened(log, "one")
    assert figures(log) == (30, 0)
    producer.acknowledge(instance, messages)
    producer.flush()
    assert figures(log) == (30, 30)
    instance.redeliver_unacknowledged()
    assert received(instance) == []
    if commit:
        producer.commit()
        assert figures(log) == (0, 0)
        instance.redeliver_unacknowledged()
        assert received(instance) == []
    else:
        producer.abort()
        assert figures(log) == (30, 0)
        assert sorted(numbers(instance)) == list(range(30))


@case("TransactionEndToEndTest", "testAckWithTransactionReduceUnAckMessageCount")
@BATCHES
def test_a_commit_takes_what_it_acknowledges_from_the_backlog(batched: bool) -> None:
    log = subscribed(50, batched=batched)
    instance = worker(log)
    producer = opened(log, "one")
    producer.acknowledge(instance, instance.receive_dicts(25, timeout_ms=0))
    producer.commit()
    assert figures(log) == (25, 0)
    assert instance.backlog()[0].unacknowledged == 25


@case("TransactionEndToEndTest", "testAckWithTransactionReduceUnackCountNotInPendingAcks")
def test_an_instance_that_never_received_a_message_may_acknowledge_it() -> None:
    """Nothing is kept of who received what: the figures follow from acknowledgements alone."""
    log = subscribed(5)
    messages = received(worker(log))
    producer = opened(log, "one")
    producer.acknowledge(worker(log), messages[1])
    producer.flush()
    unacknowledged, pending = figures(log)
    assert unacknowledged - pending == 4
    producer.commit()
    assert figures(log) == (4, 0)


@case("TransactionEndToEndTest", "testUnackMessageAfterAckAllMessages")
@CUMULATIVE
def test_nothing_is_left_when_all_messages_are_acknowledged(cumulative: bool) -> None:
    log = subscribed(10, batched=False)
    fill(log, range(10, 20))
    instance = worker(log)
    messages = received(instance)
    if cumulative:
        instance.acknowledge_cumulative(messages[-1])
    else:
        for message in messages[::-1]:
            instance.acknowledge(message)
    assert figures(log) == (0, 0)
    assert (acks_of(log).mark, acks_of(log).range_count()) == (20, 0)
    instance.redeliver_unacknowledged()
    assert received(instance) == []


@case("TransactionEndToEndTest", "txnMessageAckTest")
def test_messages_of_a_transaction_are_acknowledged_like_others() -> None:
    log = subscribed(0)
    instance = worker(log)
    producer = opened(log, "one")
    for n in range(10):
        producer.send("t", [{"n": n}], partition=0)
        producer.flush()
    assert received(instance) == []
    producer.commit()
    messages = received(instance)
    assert [each["n"] for each in messages] == list(range(10))
    for message in messages[::2]:
        instance.acknowledge(message)
    assert received(instance) == []
    assert acks_of(log).mark < log.offsets("t")[0].last_stable_offset
    instance.redeliver_unacknowledged()
    rest = received(instance)
    assert [each["n"] for each in rest] == [1, 3, 5, 7, 9]
    for message in rest:
        instance.acknowledge(message)
    assert received(instance) == []
    # Only the marker of the commit lies behind it.
    assert acks_of(log).mark == log.offsets("t")[0].last_stable_offset - 1
    assert figures(log) == (0, 0)


@case("TransactionConsumeTest", "testMessageRedelivery")
def test_messages_of_an_aborted_transaction_are_never_received_however_often_one_asks() -> None:
    log = subscribed(1)
    producer = opened(log, "one", "inline")
    for n in range(10, 20):
        producer.send("t", [{"n": n}], partition=0)
        producer.flush()
    producer.abort()
    plain(log, 2)
    instance = worker(log)
    for _ in range(2):
        messages = received(instance)
        assert [each["n"] for each in messages] == [0, 2]
        instance.negative_acknowledge(messages)
        assert received(instance) == messages
        instance.redeliver_unacknowledged()
    assert figures(log) == (2, 0)


# --- several subscriptions, batches, large values -----------------------------------------------------------


@case("TransactionEndToEndTest", "oneTransactionOneTopicWithMultiSubTest")
def test_one_transaction_acknowledges_in_two_subscriptions_of_a_topic() -> None:
    log = subscribed(1)
    log.subscriptions.create("t", "second")
    first, second = worker(log), worker(log, "second")
    producer = opened(log, "one")
    for instance in (first, second):
        producer.acknowledge(instance, received(instance))
    producer.flush()
    topic_id = log.refresh().topic("t").topic_id
    assert log.state.transactional_ids["one"].subscriptions == {(topic_id, SUB), (topic_id, "second")}
    assert figures(log) == figures(log, "second") == (1, 1)
    producer.commit()
    assert figures(log) == figures(log, "second") == (0, 0)


@case("V5TransactionScalableTest", "testMultipleSubscriptionsIndependentTransactionalAcks")
def test_subscriptions_of_a_topic_end_their_transactions_without_each_other() -> None:
    """One transaction of each acknowledges the same messages: no conflict, and one commits while the other
    aborts."""
    log = subscribed(10, partitions=2)
    log.subscriptions.create("t", "second")
    first, second = worker(log), worker(log, "second")
    one, other = opened(log, "one"), opened(log, "other")
    one.acknowledge(first, received(first))
    one.flush()
    other.acknowledge(second, received(second))
    other.flush()
    one.commit()
    other.abort()
    assert figures(log) == (0, 0)
    assert figures(log, "second") == (20, 0)
    assert received(worker(log)) == []
    assert sorted(numbers(second)) == list(range(20))


@case("TransactionTest", "testTransactionAckMessageList", "testTransactionAckMessages")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize(
    "form", [lambda batch: batch, lambda batch: batch.to_pylist()], ids=["messages", "list"]
)
def test_many_messages_are_acknowledged_in_one_call(
    commit: bool, form: Callable[[pa.RecordBatch], Any]
) -> None:
    log = subscribed(50, batched=False)
    instance = worker(log)
    batch = instance.receive(50, timeout_ms=0)
    assert batch is not None
    producer = opened(log, "one")
    producer.acknowledge(instance, form(batch))
    producer.commit() if commit else producer.abort()
    assert numbers(instance) == numbers(worker(log)) == ([] if commit else list(range(50)))


@case("TransactionTest", "testPendingAckBatchMessageCommit")
def test_two_transactions_each_acknowledge_a_message_of_one_batch() -> None:
    log = subscribed(5)
    instance = worker(log)
    messages = received(instance)
    one, two, three = (opened(log, name) for name in ("one", "two", "three"))
    one.acknowledge(instance, messages[0])
    one.flush()
    two.acknowledge(instance, messages[1])
    two.flush()
    one.commit()
    two.abort()
    three.acknowledge(instance, messages[1])
    three.commit()
    assert numbers(worker(log)) == [2, 3, 4]


@case("PendingAckPersistentTest", "testTransactionConflictExceptionWhenAckBatchMessage")
def test_one_message_of_a_batch_in_conflict_refuses_the_call_and_nothing_else() -> None:
    log = subscribed(3)
    instance = worker(log)
    messages = received(instance)
    instance.acknowledge(messages[0])
    one, other = opened(log, "one"), opened(log, "other")
    one.acknowledge(instance, messages[1])
    one.flush()
    refused(other.acknowledge, worker(log), messages[1:])
    other.abort()
    other.begin()
    other.acknowledge(instance, messages[2])
    other.flush()
    refused(other.acknowledge, instance, messages[0], kind="already-acknowledged")
    other.abort()
    one.commit()
    assert numbers(worker(log)) == [2]


@case("TransactionConsumeTest", "testAckChunkMessage")
def test_a_value_of_several_chunks_is_acknowledged_with_all_of_them() -> None:
    """Here the chunks are records of the topic: their acknowledgement leaves no backlog."""
    log = new_log()
    log.create_topic("values", "kafka")
    log.subscriptions.create("values", SUB)
    with Producer(log, "one", chunk_bytes=1_024) as producer, producer.transaction() as txn:
        txn.send("values", key="large", value=b"a" * 6_000)
    (value,) = read_values(log, "values")
    instance = Subscription(log, "values", SUB)
    chunks = instance.receive(timeout_ms=0)
    assert chunks is not None
    assert chunks.num_rows == 6
    assert chunks.column("_offset").to_pylist()[-1] == value.offset
    producer = opened(log, "two")
    producer.acknowledge(instance, chunks)
    producer.abort()
    assert instance.receive(timeout_ms=0) == chunks
    producer.begin()
    producer.acknowledge_cumulative(instance, [(value.partition, value.offset)])
    producer.commit()
    assert log.subscriptions.describe("values", SUB).unacknowledged == 0


@case("TransactionTest", "testGetConnectExceptionForAckMsgWhenCnxIsNull")
def test_an_acknowledgement_without_a_connection_is_an_error_and_may_be_repeated() -> None:
    plan = Plan()
    log = faulty(plan)
    plain(log, *range(10))
    log.subscriptions.create("t", SUB)
    instance = Subscription(log, "t", SUB)
    (message,) = instance.receive_dicts(1, timeout_ms=0)
    producer = opened(log, "one")
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(StorageError):
        producer.acknowledge(instance, message)
    plan.clear()
    assert figures(log) == (10, 0)
    producer.acknowledge(instance, message)
    producer.commit()
    assert figures(log) == (9, 0)
