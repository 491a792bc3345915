"""A removal by force: open transactions in its way are aborted, prepared ones lose what they have in the
partition when they are named."""

from __future__ import annotations

import pytest

from tests.unit.core.lifecycle.checked_log import AUDIT, AUDIT_KEY, KEY, Checked, both, log_of
from tests.unit.core.memory_log import COMMIT, ORDERS, rows
from tests.unit.core.transactions.staging import staged
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    FreePartitions,
    Included,
    OpenProducer,
    SealSegments,
    TrimTopic,
    Undecidable,
    Write,
)
from txnformat.core.lifecycle.operations import Trim, TrimmedPartition
from txnformat.core.operations import Cause, EndTxn, GiveUp, Marker
from txnformat.core.state import FEATURES, INTENT_WINDOW_ENTRIES, IntentWindow
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InvalidTransactionStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    UnsupportedFeatureError,
)
from txnformat.persistent import replace
from txnformat.types import Outcome
from txnlog_testing.seal_of import seal_of


def free(*ends: tuple[int, int], prepared: tuple[str, ...] = ()) -> FreePartitions:
    return FreePartitions(ORDERS.topic_id, ends or ((0, 1),), prepared)


def held(*, prepared: bool = False) -> Checked:
    """Return a log in which "etl" has records 0 and 1 of two topics, and "other" records 2 and 3 of one."""
    log = log_of(OpenProducer("etl"), OpenProducer("other"))
    log.commit(Write(log.producer(), both()))  # type: ignore[arg-type]
    log.commit(Write(log.producer("other"), rows(content="other")))
    if prepared:
        log.commit(Write(log.producer(), prepare=True))
    return log


def operations(verdict: object) -> tuple[object, ...]:
    assert isinstance(verdict, Included)
    return verdict.operations


def test_open_transactions_that_begin_below_are_aborted_as_a_whole_and_the_others_stay() -> None:
    log = held()
    (end,) = operations(log.commit(free((0, 2))))
    assert isinstance(end, EndTxn)
    assert (end.transactional_id, end.outcome, end.cause) == ("etl", Outcome.ABORT, Cause.OPERATOR)
    assert {marker.topic_partition for marker in end.markers} == {KEY, AUDIT_KEY}
    assert log.state.partition(KEY).last_stable_offset == 2
    assert log.state.transactional_ids["other"].status is TransactionStatus.ONGOING
    error = log.refusal(Write(replace(log.producer(), epoch=0), rows(content="more")))
    assert isinstance(error, ProducerFencedError)
    assert error.kind == "aborted-by-operator"


def test_several_ends_in_one_entry_have_markers_that_follow_each_other() -> None:
    log = held(prepared=True)
    found = operations(log.commit(free((0, 4), prepared=("etl",))))
    assert [type(op) for op in found] == [EndTxn, GiveUp]
    partition = log.state.partition(KEY)
    assert [int(one) for one in partition.markers.array()["offset"]] == [4, 5]
    assert partition.last_stable_offset == partition.log_end == 6


def test_a_prepared_transaction_has_to_be_named_and_keeps_the_rest() -> None:
    log = held(prepared=True)
    error = log.refusal(free((0, 1)))
    assert isinstance(error, InvalidTransactionStateError)
    assert (error.kind, error.values["transactional_ids"]) == ("transaction-prepared", ["etl"])
    assert isinstance(log.refusal(free((0, 1), prepared=("other",))), InvalidTransactionStateError)
    (lost,) = operations(log.commit(free((0, 1), prepared=("etl", "unknown"))))
    assert isinstance(lost, GiveUp)
    assert lost.markers == (Marker(*KEY, 4),)
    known = log.state.transactional_ids["etl"]
    assert (known.status, set(known.partitions)) == (TransactionStatus.PREPARED, {AUDIT_KEY})
    assert log.state.partition(KEY).last_stable_offset == 2
    (end,) = operations(log.commit(Write(log.producer(), end=COMMIT)))
    assert isinstance(end, EndTxn)
    assert [marker.topic_partition for marker in end.markers] == [AUDIT_KEY], "its end skips what is gone"
    rows_there = log.state.partition(KEY).aborted.array()
    assert [(int(one["first_offset"]), int(one["last_offset"])) for one in rows_there] == [(0, 4)]
    assert len(log.state.partition(AUDIT_KEY).aborted) == 0


def test_a_prepared_transaction_with_nothing_left_stays_prepared_until_its_end() -> None:
    log = log_of(OpenProducer("etl"))
    log.commit(Write(log.producer(), rows()))
    log.commit(Write(log.producer(), prepare=True))
    log.commit(free((0, 2), prepared=("etl",)))
    known = log.state.transactional_ids["etl"]
    assert (known.status, known.partitions) == (TransactionStatus.PREPARED, {})
    (end,) = operations(log.commit(Write(log.producer(), end=COMMIT)))
    assert isinstance(end, EndTxn)
    assert end.markers == ()


def test_a_trim_can_follow_and_later_transactions_are_not_in_its_way() -> None:
    log = held()
    log.commit(free((0, 4)))
    log.commit(OpenProducer("late"))
    log.commit(Write(log.producer("late"), rows(content="late")))
    log.commit(SealSegments(seal_of(log.state)))
    part = TrimmedPartition(0, 4, -1, 0, 0, 0, 0)
    assert isinstance(log.commit(TrimTopic(Trim(ORDERS.topic_id, (part,)), (0,))), Included)
    error = log.refusal(free((0, 4)))
    assert isinstance(error, ConflictError)
    assert error.kind == "nothing-held"


def test_a_transaction_that_has_ended_or_stages_is_not_in_the_way() -> None:
    log = log_of(OpenProducer("etl"), OpenProducer("stager"))
    log.commit(Write(log.producer(), rows(), end=COMMIT))
    log.commit(Write(log.producer("stager"), staged(), deferred=True))
    error = log.refusal(free((0, 2)))
    assert isinstance(error, ConflictError)
    assert error.kind == "nothing-held"


def test_what_is_asked_of_the_caller() -> None:
    log = held()
    assert isinstance(log.refusal(free((0, 5))), OffsetOutOfRangeError)
    assert isinstance(
        log.refusal(replace(free(), topic_id="00000000-0000-4000-8000-000000000000")), NotFoundError
    )
    log.state = replace(log.state, features=FEATURES)
    assert isinstance(log.refusal(free()), UnsupportedFeatureError)


def test_a_transaction_below_proves_that_no_entry_has_ended_it() -> None:
    for is_free in (False, True):
        log = held()
        if is_free:
            log.commit(free((0, 4)))
        first = log.state.entry + INTENT_WINDOW_ENTRIES
        intent = log.intent(free((0, 4)))
        log.state = replace(log.state, window=IntentWindow(first))
        verdict = log.assemble(intent).verdicts[intent.intent_id]
        assert isinstance(verdict, Undecidable if is_free else Included)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"epoch": 7}, "identity"),
        ({"transactional_id": "other"}, "identity"),
        ({"markers": (Marker(*KEY, 5),)}, "not at the log end"),
        ({"markers": (Marker(*KEY, 4), Marker(*KEY, 5))}, "exactly the partitions"),
        ({"markers": (Marker(ORDERS.topic_id, 1, 0),)}, "has nothing there"),
    ],
)
def test_what_does_not_fit_is_corrupt(changes: dict[str, object], what: str) -> None:
    state = held(prepared=True).state
    known = state.transactional_ids["etl"]
    op = replace(GiveUp("etl", known.producer_id, known.epoch, (Marker(*KEY, 4),)), **changes)
    with pytest.raises(CorruptDataError, match=what):
        apply_operation(state, op, At(state.entry + 1, state.timestamp_ms + 1))


def test_an_open_transaction_or_a_log_without_the_feature_loses_nothing() -> None:
    for state in (held().state, replace(held(prepared=True).state, features=FEATURES)):
        known = state.transactional_ids["etl"]
        op = GiveUp("etl", known.producer_id, known.epoch, (Marker(*KEY, 4),))
        with pytest.raises(CorruptDataError, match="is not prepared, or the log lacks the feature"):
            apply_operation(state, op, At(state.entry + 1, state.timestamp_ms + 1))


def test_an_aborted_id_is_not_opened_in_the_same_entry() -> None:
    log = held()
    forced, opening = log.intent(free((0, 4))), log.intent(OpenProducer("etl"))
    verdicts = log.assemble(forced, opening).verdicts
    assert set(verdicts) == {forced.intent_id}
    assert AUDIT.topic_id in log.state.topics
