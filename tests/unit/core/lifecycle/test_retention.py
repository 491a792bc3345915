"""What nobody uses any more leaves the state, and never comes back as something new."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import COMMIT, NOW_MS, ORDERS, Log, idempotent, opened, rows
from tests.unit.core.transactions.staging import stage
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import AllocateIds, ExpireIdle, Included, OpenProducer, ProducerRef, Write
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.idle import (
    EXPIRED_MAX,
    PRODUCER_RETENTION_MS,
    TRANSACTIONAL_ID_RETENTION_MS,
    expirable,
)
from txnformat.core.operations import Expire, InitProducer
from txnformat.core.state import LogState
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InvalidTransactionStateError,
    UnknownProducerIdError,
)
from txnformat.persistent import replace
from txnformat.types import TopicPartition

KEY = TopicPartition(ORDERS.topic_id, 0)
LONG = 2**50


def at_time(state: LogState, timestamp_ms: int) -> LogState:
    """Return the state as if log time had gone on."""
    return replace(state, timestamp_ms=timestamp_ms)


def expired(log: Log, store_ms: int) -> Expire | None:
    found = expirable(log.state, store_ms)
    return None if found is None else found.expire


def forget(log: Log) -> Expire:
    """Expire everything that is idle, however young."""
    wanted = expirable(at_time(log.state, LONG), LONG)
    assert wanted is not None
    verdict = log.commit(wanted)
    assert isinstance(verdict, Included)
    (done,) = verdict.operations
    assert isinstance(done, Expire)
    return done


def test_a_producer_is_remembered_for_a_day_after_its_last_append() -> None:
    log, producer = idempotent()
    log.commit(Write(producer, rows()))
    later = log.state.timestamp_ms + PRODUCER_RETENTION_MS
    found = expirable(at_time(log.state, later), LONG)
    assert found is not None
    assert found.expire == Expire((), (0,), (0,))
    log.commit(Write(producer, rows(2, 1, "more")))
    found = expirable(at_time(log.state, later), LONG)
    assert found is not None
    assert found.expire == Expire((), (), (0,)), "the producer is in use"


def test_both_the_logs_time_and_the_stores_must_have_passed() -> None:
    log, producer = idempotent()
    log.commit(Write(producer, rows()))
    used = log.state.timestamp_ms
    assert expired(log, used + PRODUCER_RETENTION_MS) is None, "log time stands still"
    log.state = at_time(log.state, used + PRODUCER_RETENTION_MS)
    assert expired(log, used + PRODUCER_RETENTION_MS - 2) is None, "log time runs ahead"


def test_a_transactional_id_is_remembered_for_seven_days_after_its_last_use() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), COMMIT))
    used = log.state.timestamp_ms
    log.state = at_time(log.state, used + TRANSACTIONAL_ID_RETENTION_MS - 1)
    assert expired(log, LONG) is None
    log.state = at_time(log.state, used + TRANSACTIONAL_ID_RETENTION_MS)
    assert expired(log, LONG) == Expire(("etl",), (), ())


@pytest.mark.parametrize("what", ["append", "stage", "prepare"])
def test_an_id_with_an_open_or_prepared_transaction_stays(what: str) -> None:
    log, producer = opened()
    if what == "stage":
        stage(log, producer)
    else:
        log.commit(Write(producer, rows(), prepare=what == "prepare"))
    assert expirable(at_time(log.state, LONG), LONG) is None


def test_an_expired_id_opens_as_a_new_one_and_the_old_producer_is_unknown() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), COMMIT))
    assert forget(log).transactional_ids == ("etl",)
    assert "etl" not in log.state.transactional_ids
    error = log.refusal(Write(log_producer_after(producer), rows(0, 1, "late")))
    assert (type(error), error.kind) == (InvalidTransactionStateError, "unknown-transactional-id")
    log.commit(OpenProducer("etl"))
    again = log.producer()
    assert (again.producer_id, again.epoch) == (1, 0)
    assert (
        log.refusal(Write(log_producer_after(producer), rows(0, 1, "late"))).kind
        == "unknown-transactional-id"
    )
    assert check_whole(log.state) == []


def log_producer_after(producer: ProducerRef) -> ProducerRef:
    return replace(producer, epoch=producer.epoch + 1)


def test_an_expired_producers_repeat_is_never_taken_for_something_new() -> None:
    log, producer = idempotent()
    first = Write(producer, rows())
    log.commit(first)
    done = forget(log)
    assert (done.producers, done.blocks) == ((0,), (0,))
    assert log.state.partition(KEY).sequences == {}
    assert isinstance(log.refusal(first), UnknownProducerIdError)
    assert isinstance(log.refusal(Write(producer, rows(2, 1, "next"))), UnknownProducerIdError)
    assert log.state.partition(KEY).log_end == 2
    assert check_whole(log.state) == []


def test_ids_that_were_not_given_out_yet_stay_good_above_the_bound_and_are_refused_below() -> None:
    log, _ = idempotent()
    log.commit(Write(ProducerRef(5, 0), rows()))
    forget(log)
    assert log.state.retired_below == 6
    assert isinstance(log.refusal(Write(ProducerRef(4, 0), rows(0, 1, "never used"))), UnknownProducerIdError)
    assert isinstance(log.commit(Write(ProducerRef(6, 0), rows(0, 1, "x"))), Included)
    log.commit(AllocateIds("another"))
    assert [*log.state.blocks][-1] == 1_000, "ids are never given twice"


def test_a_living_producer_below_the_bound_goes_on_in_every_partition() -> None:
    log, _ = idempotent()
    log.commit(Write(ProducerRef(2, 0), rows()))
    log.commit(Write(ProducerRef(5, 0), rows(content="other")))
    log.commit(ExpireIdle(Expire((), (5,), ()), LONG, 0))
    assert log.state.retired_below == 6
    assert isinstance(log.commit(Write(ProducerRef(2, 0), rows(0, 2, "elsewhere", 1))), Included)


def test_what_was_used_meanwhile_stays_and_nothing_is_no_entry() -> None:
    log, producer = idempotent()
    log.commit(Write(producer, rows()))
    cutoff = log.state.timestamp_ms
    log.commit(Write(producer, rows(2, 1, "more")))
    error = log.refusal(ExpireIdle(Expire((), (0,), ()), cutoff, 0))
    assert (type(error), error.kind) == (ConflictError, "nothing-expired")


def test_one_entry_expires_a_bounded_number() -> None:
    log = Log(*(OpenProducer(f"id {number:05}") for number in range(EXPIRED_MAX + 1)))
    assert len(forget(log).transactional_ids) == EXPIRED_MAX
    assert len(forget(log).transactional_ids) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"transactional_ids": ("nobody",)},
        {"transactional_ids": ("open",)},
        {"transactional_ids": ("etl", "etl")},
        {"producers": (7,)},
        {"producers": (1, 1)},
        {"blocks": (5,)},
        {"blocks": (2, 2)},
    ],
    ids=str,
)
def test_an_expiry_that_does_not_fit_is_corrupt(change: dict[str, tuple[object, ...]]) -> None:
    log = Log(ORDERS, OpenProducer("etl"), OpenProducer("open"), AllocateIds("process"))
    log.commit(Write(log.producer("open"), rows(0, 1, "a", 1)))
    log.commit(Write(ProducerRef(2, 0), rows()))
    log.commit(Write(ProducerRef(3, 0), rows(0, 1, "b", 2)))
    sound = Expire(("etl",), (2, 3), (2,))
    at = At(log.state.entry + 1, NOW_MS)
    assert apply_operation(log.state, sound, at).retired_below == 4
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, replace(sound, **change), at)


def test_an_id_that_expires_and_opens_in_one_entry_is_a_new_one_and_no_broken_invariant() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), COMMIT))
    before = log.state
    gone = log.intent(ExpireIdle(Expire(("etl",), (), ()), LONG, LONG))
    done = log.assemble(gone, log.intent(OpenProducer("etl")))
    assert done.entry is not None
    assert [type(operation) for operation in done.entry.operations] == [Expire, InitProducer]
    assert (log.producer().producer_id, log.producer().epoch) == (1, 0)
    assert check_state(before, done.entry, log.state) == []
