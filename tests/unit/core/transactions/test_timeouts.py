"""Transactions that others end: timeouts by the store's time or by watching, operators, prepared
transactions."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import ABORT, COMMIT, NOW_MS, ORDERS, Log, opened, rows
from tests.unit.core.transactions.staging import stage, staged
from txnformat.core.decide import decide
from txnformat.core.entry import CommitEntry
from txnformat.core.fold import At, apply, apply_operation
from txnformat.core.intents import Done, EndTransaction, Included, OpenProducer, ProducerRef, Rejected, Write
from txnformat.core.operations import Cause, EndTxn, InitProducer, Marker, Operation
from txnformat.core.transactions.state import (
    DEFERRED_TIMEOUT_MS_MAX,
    MAX_TRANSACTION_TIMEOUT_MS,
    TransactionStatus,
)
from txnformat.errors import (
    CorruptDataError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    ProducerFencedError,
    TransactionTimedOutError,
)
from txnformat.persistent import replace
from txnformat.protocol.commit import CommitSettings, commit_group
from txnformat.protocol.effects import Times
from txnformat.protocol.expiry import Watch
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.hand import Hand

KEY = TopicPartition(ORDERS.topic_id, 0)
MINUTE = 60_000
DAY = 24 * 60 * MINUTE


def times(store_ms: int, boot_ms: int | None = 0) -> Times:
    return Times(store_ms, boot_ms, store_ms)


def begun() -> int:
    """Return log time of the append: entry 2 of a log whose entries come at the same store time."""
    return NOW_MS + 2


def over(log: Log, *, store_time_ms: int | None = None, observed_entry: int | None = None) -> EndTransaction:
    known = log.state.transactional_ids["etl"]
    return EndTransaction("etl", known.producer_id, known.epoch, Cause.TIMEOUT, store_time_ms, observed_entry)


def by_operator(log: Log, *, force: bool = False) -> EndTransaction:
    known = log.state.transactional_ids["etl"]
    return EndTransaction("etl", known.producer_id, known.epoch, Cause.OPERATOR, force=force)


def with_open() -> tuple[Log, ProducerRef]:
    log, producer = opened()
    log.commit(Write(producer, rows()))
    assert log.state.timestamp_ms == begun()
    return log, producer


def test_a_timeout_runs_from_the_first_append_and_is_judged_by_the_stores_time() -> None:
    log, producer = with_open()
    log.commit(Write(producer, rows(2, 1, "more")))
    early = log.refusal(over(log, store_time_ms=begun() + MINUTE - 1))
    assert (type(early), early.kind) == (InvalidTransactionStateError, "transaction-not-expired")
    verdict = log.commit(over(log, store_time_ms=begun() + MINUTE))
    assert isinstance(verdict, Included)
    (end,) = verdict.operations
    assert isinstance(end, EndTxn)
    assert (end.outcome, end.cause) == (ABORT, Cause.TIMEOUT)
    known = log.state.transactional_ids["etl"]
    assert (known.status, known.epoch) == (TransactionStatus.COMPLETE_ABORT, 1)
    partition = log.state.partition(KEY)
    assert partition.last_stable_offset == partition.log_end == 4


def test_a_staging_transactions_timeout_runs_from_its_last_stage() -> None:
    log, producer = opened()
    stage(log, producer)
    first = log.state.timestamp_ms
    stage(log, producer, 2, 1, "second")
    last = log.state.timestamp_ms
    assert last > first
    assert log.state.transactional_ids["etl"].expires_ms == last + DAY
    assert isinstance(log.refusal(over(log, store_time_ms=first + DAY)), InvalidTransactionStateError)
    assert isinstance(log.commit(over(log, store_time_ms=last + DAY)), Included)


def test_a_log_whose_time_ran_ahead_does_not_time_out_what_is_young() -> None:
    log, _ = with_open()
    ten_years = 10 * 365 * DAY
    watch = Watch()
    assert watch.expired(log.state, times(begun() + 1)) == []
    ahead = log.state.transactional_ids["etl"]
    assert ahead.expires_ms == begun() + MINUTE
    # Log time is ten years later, the store's is not.
    assert isinstance(decide(log.state, log.intent(over(log, store_time_ms=begun() + 1))), Rejected)
    assert [one.store_time_ms for one in watch.expired(log.state, times(begun() + ten_years))] == [
        begun() + ten_years
    ]


def test_watching_proves_a_timeout_without_any_clock_that_agrees() -> None:
    log, producer = with_open()
    watch = Watch()
    wrong = begun() - 10 * 365 * DAY  # log time is ten years ahead of the store's
    assert watch.expired(log.state, times(wrong, 1_000)) == []
    log.commit(Write(producer, rows(2, 1, "more")))
    assert watch.expired(log.state, times(wrong, 1_000 + MINUTE - 1)) == []
    (end,) = watch.expired(log.state, times(wrong, 1_000 + MINUTE))
    assert (end.store_time_ms, end.observed_entry) == (None, 2)
    assert isinstance(log.commit(end), Included)


def test_watching_begins_anew_with_each_stage_and_each_transaction() -> None:
    log, producer = opened()
    stage(log, producer)
    watch = Watch()
    wrong = begun() - 10 * 365 * DAY
    watch.note(log.state, 0)
    stage(log, producer, 2, 1, "second")
    watch.note(log.state, DAY - 1)
    assert watch.expired(log.state, times(wrong, DAY)) == []
    (end,) = watch.expired(log.state, times(wrong, 2 * DAY - 1))
    stage(log, producer, 3, 1, "third")
    assert isinstance(log.refusal(end), InvalidTransactionStateError), "it did something meanwhile"


def test_without_a_clock_that_counts_suspended_time_watching_proves_nothing() -> None:
    log, _ = with_open()
    watch = Watch()
    wrong = begun() - DAY
    assert watch.expired(log.state, times(wrong, None)) == []
    assert watch.expired(log.state, times(wrong, None)) == []


def test_a_producer_whose_transaction_timed_out_may_begin_another() -> None:
    log, producer = with_open()
    log.commit(over(log, store_time_ms=begun() + MINUTE))
    entry = log.state.entry
    for late in (Write(producer, rows(2, 1, "late")), Write(producer, end=COMMIT)):
        assert isinstance(log.refusal(late), TransactionTimedOutError)
    assert log.commit(Write(producer, end=ABORT)) == Done(entry)
    next_one = log.producer()
    assert isinstance(log.commit(Write(next_one, rows(0, 1, "again"), COMMIT)), Included)


def test_after_a_timeout_and_a_successor_the_old_instance_is_fenced() -> None:
    log, producer = with_open()
    log.commit(over(log, store_time_ms=begun() + MINUTE))
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(Write(producer, rows(2, 1, "late"))), ProducerFencedError)


def test_an_operators_abort_fences_the_producer() -> None:
    log, producer = with_open()
    assert isinstance(log.commit(by_operator(log)), Included)
    for late in (
        Write(producer, rows(2, 1, "late")),
        Write(producer, end=COMMIT),
        Write(producer, end=ABORT),
    ):
        error = log.refusal(late)
        assert (type(error), error.kind) == (ProducerFencedError, "aborted-by-operator")


def test_ending_anothers_transaction_again_is_done_and_a_committed_one_is_refused() -> None:
    log, producer = with_open()
    end = by_operator(log)
    log.commit(end)
    assert log.commit(end) == Done(log.state.entry)
    log, producer = with_open()
    end = by_operator(log)
    log.commit(Write(producer, end=COMMIT))
    error = log.refusal(end)
    assert (type(error), error.kind) == (InvalidTransactionStateError, "transaction-committed")


def test_ending_what_is_not_open_or_not_known_is_refused() -> None:
    log, _ = opened()
    assert log.refusal(by_operator(log)).kind == "no-transaction"
    unknown = EndTransaction("nobody", 0, 0, Cause.OPERATOR)
    assert isinstance(log.refusal(unknown), NotFoundError)


def test_a_prepared_transaction_waits_for_its_outcome() -> None:
    log, producer = with_open()
    log.commit(Write(producer, rows(2, 1, "last"), prepare=True))
    entry = log.state.entry
    known = log.state.transactional_ids["etl"]
    assert (known.status, known.expires_ms) == (TransactionStatus.PREPARED, None)
    assert log.commit(Write(producer, prepare=True)) == Done(entry)
    assert Watch().expired(log.state, times(begun() + DAY * 365, 0)) == []
    for refused in (
        OpenProducer("etl"),
        Write(producer, rows(3, 1, "late")),
        over(log, store_time_ms=begun() + DAY * 365),
        by_operator(log),
    ):
        error = log.refusal(refused)
        assert (type(error), error.kind) == (InvalidTransactionStateError, "transaction-prepared")
        assert error.values["epoch"] == 0
    assert isinstance(log.commit(Write(producer, end=COMMIT)), Included)
    assert log.state.partition(KEY).last_stable_offset == 4


def test_what_is_staged_last_is_prepared_with_it() -> None:
    log, producer = opened()
    verdict = log.commit(Write(producer, staged(), prepare=True, deferred=True))
    assert isinstance(verdict, Included)
    log.commit(Write(producer, end=COMMIT))
    assert log.state.partition(KEY).log_end == 3


@pytest.mark.parametrize("end", Outcome)
def test_force_ends_a_prepared_transaction_for_good(end: Outcome) -> None:
    log, producer = with_open()
    log.commit(Write(producer, prepare=True))
    assert isinstance(log.commit(by_operator(log, force=True)), Included)
    assert isinstance(log.refusal(Write(producer, end=end)), ProducerFencedError)


def test_nothing_cannot_be_prepared() -> None:
    log, producer = opened()
    assert log.refusal(Write(producer, prepare=True)).kind == "no-transaction"


@pytest.mark.parametrize(
    ("timeout_ms", "deferred_timeout_ms"),
    [(0, DAY), (-1, DAY), (MAX_TRANSACTION_TIMEOUT_MS + 1, DAY), (1, 0), (1, DEFERRED_TIMEOUT_MS_MAX + 1)],
)
def test_timeouts_outside_of_the_logs_bounds_are_refused(timeout_ms: int, deferred_timeout_ms: int) -> None:
    log = Log(ORDERS)
    error = log.refusal(OpenProducer("etl", timeout_ms, deferred_timeout_ms))
    assert (type(error), error.kind) == (InvalidInputError, "invalid-transaction-timeout")
    longest = OpenProducer("etl", MAX_TRANSACTION_TIMEOUT_MS, DEFERRED_TIMEOUT_MS_MAX)
    assert isinstance(log.commit(longest), Included)


def test_a_writer_ends_others_expired_transactions_with_its_own_entry() -> None:
    log, _ = with_open()
    hand = Hand()
    hand.wall_ms = begun() + MINUTE
    intent = log.intent(OpenProducer("other"))
    view, answers = hand.run(commit_group(hand.view(log.state), [intent], CommitSettings(), watch=Watch()))
    assert list(answers) == [intent.intent_id]
    assert len(hand.requests()) == 1
    assert view.state.transactional_ids["etl"].status is TransactionStatus.COMPLETE_ABORT
    assert view.state.undecided == frozenset()


def test_a_repeat_that_needs_no_entry_writes_none_to_end_others_transactions() -> None:
    log, _ = with_open()
    log.commit(OpenProducer("other"))
    done = log.intent(Write(log.producer("other"), rows(0, 1, "x", 1), COMMIT))
    log.assemble(done)
    hand = Hand()
    hand.wall_ms = begun() + MINUTE
    view, answers = hand.run(commit_group(hand.view(log.state), [done], CommitSettings(), watch=Watch()))
    assert answers[done.intent_id].repeated  # type: ignore[union-attr]
    assert view.state.entry == log.state.entry
    assert hand.slots_created() == []


def test_the_commit_of_an_expired_transaction_goes_before_anybodys_end_of_it() -> None:
    log, producer = with_open()
    hand = Hand()
    hand.wall_ms = begun() + 10 * MINUTE
    intent = log.intent(Write(producer, end=COMMIT))
    view, _ = hand.run(commit_group(hand.view(log.state), [intent], CommitSettings(), watch=Watch()))
    assert view.state.transactional_ids["etl"].status is TransactionStatus.COMPLETE_COMMIT


def test_in_a_log_whose_time_ran_ahead_only_ends_of_others_are_written() -> None:
    log, _ = with_open()
    hand = Hand()
    hand.wall_ms = begun() - 10 * 365 * DAY
    intent = log.intent(OpenProducer("other"))
    _, answers = hand.run(commit_group(hand.view(log.state), [intent], CommitSettings()))
    assert answers[intent.intent_id].kind == "log-time-ahead"  # type: ignore[union-attr]
    end = log.intent(over(log, observed_entry=2))
    view, answers = hand.run(commit_group(hand.view(log.state), [end], CommitSettings()))
    assert view.state.undecided == frozenset()
    assert view.state.timestamp_ms == log.state.timestamp_ms + 1


def test_after_a_successor_a_late_commit_of_what_timed_out_is_fenced_too() -> None:
    log, producer = with_open()
    log.commit(over(log, store_time_ms=begun() + MINUTE))
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(Write(producer, end=COMMIT)), ProducerFencedError)


def test_who_adds_to_a_transaction_whose_time_is_over_learns_it_and_who_commits_is_in_time() -> None:
    log, producer = with_open()
    for wanted, status in (
        (Write(producer, rows(2, 1, "late")), TransactionStatus.COMPLETE_ABORT),
        (Write(producer, rows(2, 1, "last"), COMMIT), TransactionStatus.COMPLETE_COMMIT),
        (Write(producer, rows(2, 1, "last"), prepare=True), TransactionStatus.PREPARED),
    ):
        hand = Hand()
        hand.wall_ms = begun() + MINUTE
        intent = log.intent(wanted)
        view, answers = hand.run(
            commit_group(hand.view(log.state), [intent], CommitSettings(), watch=Watch())
        )
        assert view.state.transactional_ids["etl"].status is status
        is_late = status is TransactionStatus.COMPLETE_ABORT
        assert isinstance(answers[intent.intent_id], TransactionTimedOutError) == is_late


def test_an_entry_whose_timeout_ends_a_prepared_transaction_is_corrupt() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), prepare=True))
    end = EndTxn("etl", 0, 0, ABORT, Cause.OPERATOR, (Marker(ORDERS.topic_id, 0, 2),))
    at = At(log.state.entry + 1, NOW_MS + DAY)
    assert apply_operation(log.state, end, at).undecided == frozenset()
    with pytest.raises(CorruptDataError, match="a timeout ends a prepared transaction"):
        apply_operation(log.state, replace(end, cause=Cause.TIMEOUT), at)


@pytest.mark.parametrize("beside", ["end", "prepare", "append", "stage"])
def test_an_entry_that_opens_an_id_and_does_something_else_with_it_is_corrupt(beside: str) -> None:
    log, producer = opened()
    opens = InitProducer("etl", 0, 1, ())
    successor = replace(producer, epoch=1)
    others: dict[str, tuple[Operation, ...]] = {"end": (EndTxn("etl", 0, 1, ABORT, Cause.PRODUCER, ()),)}
    if beside not in others:
        other = Log(ORDERS, OpenProducer("etl"), OpenProducer("etl"))
        verdict = other.commit(
            Write(
                successor,
                staged() if beside == "stage" else rows(),
                deferred=beside == "stage",
                prepare=beside == "prepare",
            )
        )
        assert isinstance(verdict, Included)
        others[beside] = verdict.operations
    entry = CommitEntry(
        entry=log.state.entry + 1,
        log_id=log.state.log_id,
        write_id="write",
        previous=log.state.entry_sha256,
        timestamp_ms=NOW_MS + DAY,
        engine="another",
        intents=("intent",),
        operations=(opens, *others[beside]),
    )
    assert apply(log.state, replace(entry, operations=(opens,)), "hash").transactional_ids["etl"].epoch == 1
    with pytest.raises(CorruptDataError, match="an entry opens a producer, and does something else"):
        apply(log.state, entry, "hash")


@pytest.mark.parametrize("cap", ["_GROUP_BYTES_MAX", "ITEMS_MAX"])
def test_ends_that_leave_no_room_for_those_who_wait_let_them_into_the_next_entry(
    cap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, late = with_open()
    log.commit(OpenProducer("large"))
    large = log.intent(Write(log.producer("large"), rows(0, 1, "x", 1)))
    adds = log.intent(Write(late, rows(2, 1, "late")))
    monkeypatch.setattr(f"txnformat.core.assemble.{cap}", 1)  # one intent fills an entry
    hand = Hand()
    hand.wall_ms = begun() + MINUTE
    view, answers = hand.run(
        commit_group(hand.view(log.state), [large, adds], CommitSettings(), watch=Watch())
    )
    assert answers[large.intent_id].entry == log.state.entry + 2  # type: ignore[union-attr]
    assert isinstance(answers[adds.intent_id], TransactionTimedOutError)
    assert view.state.entry == log.state.entry + 2


def test_a_commit_that_waits_behind_an_append_of_its_transaction_is_in_time_too() -> None:
    log, producer = with_open()
    hand = Hand()
    hand.wall_ms = begun() + MINUTE
    adds, commits = log.intent(Write(producer, rows(2, 1, "last"))), log.intent(Write(producer, end=COMMIT))
    view, answers = hand.run(
        commit_group(hand.view(log.state), [adds, commits], CommitSettings(), watch=Watch())
    )
    assert view.state.transactional_ids["etl"].status is TransactionStatus.COMPLETE_COMMIT
    entries = {answers[intent.intent_id].entry for intent in (adds, commits)}  # type: ignore[union-attr]
    assert entries == {log.state.entry + 1}
