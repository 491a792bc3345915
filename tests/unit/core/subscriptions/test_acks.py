"""Subscriptions in the core: what may be acknowledged, at once and in transactions."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import ABORT, COMMIT, rows
from tests.unit.core.subscriptions.acknowledging import (
    CREATE,
    KEY,
    NAME,
    RECORDS,
    TOPIC,
    acks_of,
    below,
    conflict,
    each,
    now,
    reread,
    seek,
    seen,
    some,
    subscribed,
    within,
)
from txnformat.core.intents import Acks, EndTransaction, Included, OpenProducer, ProducerRef, Write
from txnformat.core.operations import Cause
from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.subscriptions.decide import check_nack
from txnformat.core.subscriptions.operations import (
    AckedPartition,
    AckMode,
)
from txnformat.core.subscriptions.state import PartitionAcks, PendingAcks
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    AckConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    ProducerFencedError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition

# --- at once ------------------------------------------------------------------------------------------------


def test_what_is_acknowledged_in_any_order_joins_to_one_mark() -> None:
    log, _ = subscribed()
    log.commit(now(some(*each(4, 2))))
    assert seen(log) == (0, [(2, 3), (4, 5)])
    reread(log)
    log.commit(now(some((3, 4))))
    assert seen(log) == (0, [(2, 5)])
    log.commit(now(some((0, 2))))
    assert seen(log) == (5, [])
    assert log.state.subscriptions[KEY].used_entry == log.state.entry
    reread(log)


def test_a_cumulative_acknowledgement_takes_everything_below_it() -> None:
    log, _ = subscribed()
    log.commit(now(some(*each(3, 7))))
    log.commit(now(below(7)))
    assert seen(log) == (8, []), "what touches the mark is below it"
    log.commit(now(below(9)))
    assert seen(log) == (9, [])


def test_nothing_is_acknowledged_twice() -> None:
    log, _ = subscribed()
    log.commit(now(below(3), some(*each(5))))
    for write, offset in (
        (now(some(*each(2))), 2),
        (now(some(*each(5))), 5),
        (now(some((3, 8))), 5),
        (now(some((2, 8))), 2),
        (now(below(3)), 2),
        (now(below(1)), 0),
    ):
        conflict(log, write, "already-acknowledged", offset)
    assert seen(log) == (3, [(5, 6)])


def test_one_conflict_and_nothing_of_the_write_is_applied() -> None:
    log, (producer,) = subscribed()
    log.commit(now(some(*each(5))))
    both = Acks(TOPIC, NAME, AckMode.INDIVIDUAL, (AckedPartition(1, each(0)), AckedPartition(0, each(4, 5))))
    conflict(log, Write(producer, rows(), COMMIT, acks=(both,)), "already-acknowledged", 5)
    conflict(log, now(some(*each(7)), below(9), some(*each(8))), "already-acknowledged", 8)
    assert seen(log) == (0, [(5, 6)])
    assert acks_of(log, 1) == PartitionAcks()


def test_two_subscriptions_of_a_topic_know_nothing_of_each_other() -> None:
    log, (producer,) = subscribed()
    log.commit(replace(CREATE, subscription="audit"))
    log.commit(now(some(*each(5))))
    other = replace(some(*each(5)), subscription="audit")
    assert isinstance(log.commit(within(producer, some(*each(6)), other)), Included)
    assert log.state.transactional_ids["etl"].subscriptions == {KEY, (TOPIC, "audit")}
    reread(log)
    log.commit(Write(producer, end=COMMIT))
    assert seen(log) == (0, [(5, 7)])
    assert log.state.subscriptions[TOPIC, "audit"].partition(0).acked.pairs() == [(5, 6)]


# --- in transactions: the matrix ----------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "mark"), [(COMMIT, 6), (ABORT, 0)])
def test_what_a_transaction_acknowledges_is_in_force_with_its_commit_only(
    outcome: Outcome, mark: int
) -> None:
    log, (producer,) = subscribed()
    log.commit(within(producer, some((0, 2), (4, 6))))
    log.commit(within(producer, some((2, 4))))
    assert seen(log) == (0, [])
    assert acks_of(log).pending["etl"].ranges.pairs() == [(0, 6)]
    assert log.state.transactional_ids["etl"].status is TransactionStatus.ONGOING
    reread(log)
    log.commit(Write(producer, end=outcome))
    assert seen(log) == (mark, [])
    assert acks_of(log).pending == {}
    assert log.state.partition(TopicPartition(TOPIC, 0)).log_end == RECORDS, "acks have no marker"
    reread(log)


@pytest.mark.parametrize(("outcome", "mark"), [(COMMIT, 6), (ABORT, 0)])
def test_a_cumulative_acknowledgement_of_a_transaction_waits_for_its_end(outcome: Outcome, mark: int) -> None:
    log, (producer,) = subscribed()
    log.commit(now(some(*each(2))))
    log.commit(within(producer, below(6)))
    assert acks_of(log).held().pairs() == [(0, 2), (3, 6)]
    reread(log)
    log.commit(Write(producer, end=outcome))
    assert seen(log) == (mark, [] if mark else [(2, 3)])


def test_an_individual_acknowledgement_meets_what_is_pending_whoever_holds_it() -> None:
    log, (first, second) = subscribed("first", "second")
    log.commit(within(first, some((3, 5))))
    for write in (within(second, some((2, 6))), within(first, some((2, 6))), now(some((2, 6)))):
        conflict(log, write, "ack-pending", 3, "first")
    log.commit(within(second, some((5, 6))))
    log.commit(Write(first, end=ABORT))
    assert isinstance(log.commit(within(second, some((3, 5)))), Included), "free again"


def test_an_individual_acknowledgement_meets_what_is_below_a_pending_position() -> None:
    log, (first, second) = subscribed("first", "second")
    log.commit(within(first, below(5)))
    for write in (within(second, some(*each(4))), within(first, some(*each(4))), now(some(*each(4)))):
        conflict(log, write, "ack-pending", 4, "first")
    assert isinstance(log.commit(within(second, some(*each(5)))), Included)
    assert isinstance(log.commit(within(first, some(*each(6)))), Included)
    assert isinstance(log.commit(now(some(*each(7)))), Included)


def test_an_individual_acknowledgement_in_a_transaction_meets_what_is_acknowledged() -> None:
    log, (producer,) = subscribed()
    log.commit(now(some(*each(5))))
    conflict(log, within(producer, some(*each(4, 5))), "already-acknowledged", 5)
    log.commit(within(producer, some(*each(4))))
    log.commit(Write(producer, end=COMMIT))
    assert seen(log) == (0, [(4, 6)])


def test_one_transaction_at_a_time_holds_everything_below_a_position() -> None:
    log, (first, second) = subscribed("first", "second")
    log.commit(now(below(2)))
    log.commit(within(first, below(5)))
    for position in (3, 5, 9):
        conflict(log, within(second, below(position)), "ack-pending", 2, "first")
        conflict(log, now(below(position)), "ack-pending", 2, "first")
    for position in (3, 5):
        conflict(log, within(first, below(position)), "ack-pending", position - 1, "first")
    conflict(log, within(first, below(2)), "already-acknowledged", 1)
    assert isinstance(log.commit(within(first, below(9))), Included)
    log.commit(Write(first, end=COMMIT))
    assert seen(log) == (9, [])


def test_a_cumulative_acknowledgement_meets_what_others_hold_individually_below_it() -> None:
    """Pulsar does not look, and lets two transactions win one message."""
    log, (first, second) = subscribed("first", "second")
    log.commit(within(first, some(*each(7, 3))))
    conflict(log, within(second, below(8)), "ack-pending", 3, "first")
    conflict(log, now(below(4)), "ack-pending", 3, "first")
    assert isinstance(log.commit(within(second, below(3))), Included)
    assert isinstance(log.commit(Write(first, end=COMMIT)), Included)
    assert isinstance(log.commit(Write(second, end=COMMIT)), Included)
    assert seen(log) == (4, [(7, 8)])


def test_a_transaction_joins_its_own_individual_acknowledgements_with_its_position() -> None:
    log, (producer,) = subscribed()
    log.commit(within(producer, some(*each(3, 7))))
    log.commit(within(producer, below(5)))
    held = acks_of(log).pending["etl"]
    assert (held.position, held.ranges.pairs()) == (5, [(7, 8)])
    reread(log)
    log.commit(Write(producer, end=COMMIT))
    assert seen(log) == (5, [(7, 8)])


def test_a_nack_of_what_is_pending_or_acknowledged_is_refused() -> None:
    log, (producer,) = subscribed()
    log.commit(now(below(2)))
    log.commit(within(producer, some(*each(4))))
    check_nack(log.state, TOPIC, NAME, {0: each(2, 3, 5)})
    for offset, kind in ((1, "already-acknowledged"), (4, "ack-pending")):
        with pytest.raises(AckConflictError) as raised:
            check_nack(log.state, TOPIC, NAME, {0: each(2, offset)})
        assert (raised.value.kind, raised.value.values["offset"]) == (kind, offset)
    with pytest.raises(OffsetOutOfRangeError):
        check_nack(log.state, TOPIC, NAME, {0: each(RECORDS)})
    with pytest.raises(NotFoundError):
        check_nack(log.state, TOPIC, "nobody", {0: each(2)})
    log.commit(Write(producer, end=ABORT))
    check_nack(log.state, TOPIC, NAME, {0: each(4)})


def test_a_conflict_leaves_the_transaction_open() -> None:
    log, (producer,) = subscribed()
    log.commit(now(some(*each(5))))
    log.commit(Write(producer, rows(), acks=(some(*each(3)),)))
    conflict(log, within(producer, some(*each(5))), "already-acknowledged", 5)
    assert log.state.transactional_ids["etl"].status is TransactionStatus.ONGOING
    assert isinstance(log.commit(Write(producer, end=ABORT)), Included)
    assert seen(log) == (0, [(5, 6)])


def test_records_and_acknowledgements_of_one_entry_come_together() -> None:
    log, (producer,) = subscribed()
    verdict = log.commit(Write(producer, rows(0, 2), COMMIT, acks=(below(4),)))
    assert isinstance(verdict, Included)
    assert [type(op).__name__ for op in verdict.operations] == ["Append", "Ack", "EndTxn"]
    assert seen(log) == (4, [])


def test_a_transaction_of_nothing_but_acknowledgements_commits_in_one_entry() -> None:
    log, (producer,) = subscribed()
    log.commit(Write(producer, end=COMMIT, acks=(below(4),)))
    assert seen(log) == (4, [])
    assert isinstance(log.commit(Write(log.producer(), acks=(below(5),), prepare=True)), Included)


def test_a_repeated_commit_changes_nothing() -> None:
    log, (producer,) = subscribed()
    log.commit(within(producer, below(4)))
    log.commit(Write(producer, end=COMMIT))
    before = log.state
    assert not isinstance(log.commit(Write(producer, end=COMMIT)), Included)
    assert log.state is before


@pytest.mark.parametrize("cause", ["init", Cause.TIMEOUT, Cause.OPERATOR])
def test_whoever_ends_the_transaction_what_it_held_is_free(cause: object) -> None:
    log, (producer,) = subscribed()
    log.commit(within(producer, some(*each(4))))
    if isinstance(cause, Cause):
        time = log.state.transactional_ids["etl"].expires_ms if cause is Cause.TIMEOUT else None
        ended = EndTransaction("etl", producer.producer_id, producer.epoch, cause, time)
        assert isinstance(log.commit(ended), Included)
    else:
        log.commit(OpenProducer("etl"))
    assert acks_of(log) == PartitionAcks()
    assert log.refusal(within(producer, some(*each(4)))).kind != "internal", "that epoch is over"
    assert isinstance(log.commit(now(some(*each(4)))), Included)


def test_acknowledgements_of_an_older_epoch_are_fenced() -> None:
    log, (producer,) = subscribed()
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(within(producer, below(4))), ProducerFencedError)


def test_a_prepared_transaction_takes_no_more_and_keeps_its_own() -> None:
    log, (producer,) = subscribed()
    log.commit(Write(producer, acks=(some(*each(4)),), prepare=True))
    assert isinstance(log.refusal(within(producer, some(*each(5)))), InvalidTransactionStateError)
    conflict(log, now(some(*each(4))), "ack-pending", 4, "etl")
    log.commit(Write(producer, end=COMMIT))
    assert seen(log) == (0, [(4, 5)])


def test_acknowledgements_of_a_producer_without_a_transactional_id_are_plain() -> None:
    log, _ = subscribed()
    log.commit(Write(ProducerRef(77, 0), acks=(below(4),)))
    assert seen(log) == (4, [])


# --- seek ---------------------------------------------------------------------------------------------------


def test_a_seek_sets_the_mark_and_forgets_what_is_acknowledged_above() -> None:
    log, _ = subscribed()
    log.commit(now(below(8), some(*each(12)), some(*each(3), partition=1)))
    log.commit(seek(5))
    assert seen(log) == (5, [])
    assert acks_of(log, 1).acked.pairs() == [(3, 4)], "it is about the partitions that it names"
    log.commit(seek(RECORDS))
    assert seen(log) == (RECORDS, [])
    log.commit(seek(0))
    assert acks_of(log) == PartitionAcks()


def test_a_seek_waits_until_nothing_is_pending() -> None:
    log, (first, second) = subscribed("first", "second")
    log.commit(now(some(*each(2))))
    log.commit(within(first, some(*each(9, 6))))
    conflict(log, seek(0), "ack-pending", 6, "first")
    log.commit(within(second, below(3)))
    conflict(log, seek(0), "ack-pending", 0, "second")
    log.commit(Write(first, end=ABORT))
    log.commit(Write(second, end=COMMIT))
    assert isinstance(log.commit(seek(0)), Included)


def test_a_seek_is_never_in_a_transaction() -> None:
    log, (producer,) = subscribed()
    error = log.refusal(within(producer, below(3, mode=AckMode.SEEK)))
    assert (type(error), error.kind) == (InvalidInputError, "seek-in-transaction")


def test_what_all_hold_is_put_together_once() -> None:
    acks = PartitionAcks(
        pending={f"x{one}": PendingAcks(Ranges.of([(3 * one + 9, 3 * one + 10)])) for one in range(5)}
    )
    held = acks.held_together()
    assert acks.held_together() is held
    plain = acks.acknowledged(Ranges.of([(100, 101)]))
    assert plain.held_together() is held
    ended = plain.with_pending("y", NO_RANGES, 4).ended("y", commit=False)
    assert ended._held == held, "not forgotten"
