"""The rules of deciding, one test each."""

from __future__ import annotations

import pytest

from tests.unit.core.memory_log import ABORT, COMMIT, NOW_MS, ORDERS, Log, idempotent, opened, rows
from txnformat.core.assemble import next_timestamp_ms
from txnformat.core.decide import decide
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    AllocateIds,
    AppRef,
    Done,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    TakeCheckpoint,
    Undecidable,
    Write,
)
from txnformat.core.operations import Append, Cause, Checkpoint, CreateTopic, EndTxn, InitProducer
from txnformat.core.state import INTENT_WINDOW_ENTRIES, IntentWindow
from txnformat.core.transactions.state import LastEnd
from txnformat.errors import (
    ConflictError,
    InvalidInputError,
    InvalidTransactionStateError,
    NotFoundError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    ProducerIdConflictError,
    StaleAppVersionError,
    StorageError,
    UnknownProducerIdError,
)
from txnformat.keys import snapshot_key
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.strategies import make_append, make_topic


def test_a_repeated_end_of_the_same_outcome_is_done_in_its_entry() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows()))
    log.commit(Write(producer, end=COMMIT))
    ended = log.state.entry
    assert log.commit(Write(producer, end=COMMIT)) == Done(ended)
    assert log.state.entry == ended


@pytest.mark.parametrize(("first", "then"), [(COMMIT, ABORT), (ABORT, COMMIT)])
def test_a_repeated_end_of_the_opposite_outcome_is_refused(first: Outcome, then: Outcome) -> None:
    log, producer = opened()
    log.commit(Write(producer, rows()))
    log.commit(Write(producer, end=first))
    error = log.refusal(Write(producer, end=then))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == ("transaction-committed" if first is COMMIT else "transaction-aborted")


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_end_after_an_init_that_aborted_the_transaction_is_fenced(outcome: Outcome) -> None:
    log, producer = opened()
    log.commit(Write(producer, rows()))
    log.commit(OpenProducer("etl"))
    assert log.state.transactional_ids["etl"].last_end == LastEnd(0, ABORT, Cause.INIT, log.state.entry)
    assert isinstance(log.refusal(Write(producer, end=outcome)), ProducerFencedError)


def test_a_lower_epoch_is_fenced() -> None:
    log, producer = opened()
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(Write(producer, rows())), ProducerFencedError)


def test_an_append_to_a_transaction_that_an_init_aborted_is_fenced() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows()))
    log.commit(OpenProducer("etl"))
    assert isinstance(log.refusal(Write(producer, rows(2))), ProducerFencedError)


def test_an_append_to_a_transaction_that_the_producer_ended_itself_is_no_fencing() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), COMMIT))
    error = log.refusal(Write(producer, rows(2)))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "transaction-ended"


def test_a_higher_epoch_is_refused() -> None:
    log, producer = opened()
    error = log.refusal(Write(replace(producer, epoch=1), rows()))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "unknown-epoch"


@pytest.mark.parametrize("producer", [ProducerRef(0, 0, "other"), ProducerRef(7, 0, "etl")])
def test_an_identity_that_the_log_never_gave_is_refused(producer: ProducerRef) -> None:
    log, _ = opened()
    error = log.refusal(Write(producer, rows()))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "unknown-transactional-id"


def test_a_commit_with_nothing_is_refused() -> None:
    log, producer = opened()
    error = log.refusal(Write(producer, end=COMMIT))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "no-transaction"


def test_an_abort_is_legal_in_every_state_of_its_epoch_and_bumps_it() -> None:
    log, producer = opened()
    for epoch in range(3):
        assert producer.epoch == epoch
        if epoch == 1:
            log.commit(Write(producer, rows()))
        assert isinstance(log.commit(Write(producer, end=ABORT)), Included)
        producer = log.producer()
    assert producer.epoch == 3


def test_an_exact_repeat_gets_the_original_entry_and_offsets() -> None:
    log, producer = idempotent()
    log.commit(Write(appends=rows(-1, 3, "before")))
    log.commit(Write(producer, rows()))
    appended = log.state.entry
    log.commit(Write(producer, rows(2, content="next")))
    assert log.commit(Write(producer, rows())) == Done(appended, {TopicPartition(ORDERS.topic_id, 0): 3})


def test_the_window_holds_the_last_five_appends() -> None:
    log, producer = idempotent()
    for number in range(6):
        log.commit(Write(producer, rows(number, 1, f"rows {number}")))
    assert isinstance(log.commit(Write(producer, rows(1, 1, "rows 1"))), Done)
    assert isinstance(log.refusal(Write(producer, rows(0, 1, "rows 0"))), OutOfOrderSequenceError)


def test_the_same_sequences_with_other_content_are_a_fork() -> None:
    log, producer = idempotent()
    log.commit(Write(producer, rows()))
    assert isinstance(log.refusal(Write(producer, rows(content="other"))), ProducerIdConflictError)


@pytest.mark.parametrize(("sequence", "records"), [(3, 2), (1, 2), (0, 3), (0, 1)], ids=str)
def test_a_gap_and_every_partial_overlap_are_out_of_order(sequence: int, records: int) -> None:
    log, producer = idempotent()
    log.commit(Write(producer, rows()))
    error = log.refusal(Write(producer, rows(sequence, records, "other")))
    assert isinstance(error, OutOfOrderSequenceError)
    assert error.values["expected"] == 2


def test_a_repeat_in_part_is_refused() -> None:
    """The known part has named the file, and a key is named by one append."""
    log, producer = idempotent()
    log.commit(Write(producer, rows(0, 2, "rows", 0)))
    error = log.refusal(Write(producer, rows(0, 2, "rows", 0, 1)))
    assert isinstance(error, OutOfOrderSequenceError)
    assert (error.kind, error.values["partition"]) == ("repeated-in-part", 0)


def test_a_file_is_named_by_one_append_or_stage() -> None:
    log, producer = idempotent()
    known = rows(-1)
    log.commit(Write(appends=known))
    error = log.refusal(Write(appends=known))
    assert isinstance(error, ConflictError)
    assert (error.kind, error.values["object"]) == ("file-named", known[0].files[0].key)
    (other,) = rows(0, 2, "other")
    assert isinstance(log.refusal(Write(producer, (replace(other, files=known[0].files),))), ConflictError)
    assert isinstance(log.refusal(Write(producer, (replace(other, files=other.files * 2),))), ConflictError)
    assert isinstance(log.commit(Write(producer, (other,))), Included)


def test_two_appends_of_one_write_do_not_name_one_file() -> None:
    log, producer = idempotent()
    (first,), (second,) = rows(0, 2, "rows", 0), rows(0, 2, "more", 1)
    again = replace(second, files=first.files)
    assert isinstance(log.refusal(Write(producer, (first, again))), ConflictError)
    assert isinstance(log.commit(Write(producer, (first, second))), Included)


def test_an_entry_of_an_earlier_writer_that_names_a_file_again_is_folded() -> None:
    """Earlier versions appended the rest of an append of which the log held a part: their logs are read."""
    log, producer = idempotent()
    verdict = log.commit(Write(producer, rows()))
    assert isinstance(verdict, Included)
    (op,) = verdict.operations
    assert isinstance(op, Append)
    part = replace(op.partitions[0], base_offset=2, base_sequence=2)
    after = apply_operation(
        log.state, replace(op, partitions=(part,)), At(log.state.entry + 1, log.state.timestamp_ms + 1)
    )
    assert [one.log_end for one in after.partitions.values()] == [4]


def test_a_producer_that_the_partition_does_not_know_begins_at_sequence_0() -> None:
    log, producer = idempotent()
    assert isinstance(log.refusal(Write(producer, rows(1))), UnknownProducerIdError)


def test_a_producer_id_that_was_never_given_is_unknown() -> None:
    log, _ = idempotent()
    assert isinstance(log.refusal(Write(ProducerRef(1_000, 0), rows())), UnknownProducerIdError)
    assert isinstance(log.commit(Write(ProducerRef(999, 0), rows())), Included)


def test_sequences_begin_at_0_in_each_transaction() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(), COMMIT))
    assert isinstance(log.refusal(Write(log.producer(), rows(2))), UnknownProducerIdError)
    assert isinstance(log.commit(Write(log.producer(), rows(content="next"))), Included)


def test_an_equal_application_version_is_done_whatever_it_brings() -> None:
    log = Log(ORDERS)
    log.commit(Write(appends=rows(-1), app=AppRef("spark-batch", "job", 3)))
    written = log.state.entry
    assert log.commit(Write(appends=rows(-1, 5, "other"), app=AppRef("spark-batch", "job", 3))) == Done(
        written
    )


def test_a_stale_application_version_is_refused() -> None:
    log = Log(ORDERS)
    log.commit(Write(appends=rows(-1), app=AppRef("spark-batch", "job", 3)))
    error = log.refusal(Write(appends=rows(-1), app=AppRef("spark-batch", "job", 2)))
    assert isinstance(error, StaleAppVersionError)
    other = Write(appends=rows(-1, content="other"), app=AppRef("spark-stream", "job", 2))
    assert isinstance(log.commit(other), Included)


def test_a_write_that_creates_its_topic_adopts_the_one_that_was_there_first() -> None:
    log = Log(ORDERS)
    mine = make_topic("orders", 1)
    append = make_append(mine, {0: (-1, 2)}, content="rows")
    verdict = log.commit(Write(appends=(append,), create=(mine,)))
    assert isinstance(verdict, Included)
    assert [type(operation) for operation in verdict.operations] == [Append]
    assert log.state.partition(TopicPartition(ORDERS.topic_id, 0)).log_end == 2


@pytest.mark.parametrize(
    "mine",
    [make_topic("orders", 1, partitions=2), replace(make_topic("orders", 1), key_columns=("value",))],
    ids=["partitions", "key columns"],
)
def test_a_write_that_creates_its_topic_conflicts_with_a_different_one(mine: CreateTopic) -> None:
    log = Log(ORDERS)
    append = make_append(mine, {0: (-1, 2)}, content="rows")
    error = log.refusal(Write(appends=(append,), create=(mine,)))
    assert isinstance(error, ConflictError)
    assert error.kind == "topic-exists"


def test_a_topic_and_its_first_rows_are_one_entry() -> None:
    log = Log()
    verdict = log.commit(Write(appends=rows(-1), create=(ORDERS,)))
    assert isinstance(verdict, Included)
    assert [type(operation) for operation in verdict.operations] == [CreateTopic, Append]
    assert log.state.entry == 0


def test_a_topic_that_exists_is_not_created_again() -> None:
    error = Log(ORDERS).refusal(make_topic("orders", 1))
    assert isinstance(error, ConflictError)


def test_records_distributed_over_another_partition_count_are_refused() -> None:
    error = Log(ORDERS).refusal(Write(appends=(replace(rows(-1)[0], partition_count=2),)))
    assert isinstance(error, ConflictError)
    assert error.kind == "partition-count-changed"


def test_an_append_to_a_missing_topic_or_partition_is_refused() -> None:
    log = Log(ORDERS)
    other = make_append(make_topic("audit"), {0: (-1, 1)}, content="rows")
    assert isinstance(log.refusal(Write(appends=(other,))), NotFoundError)
    assert isinstance(log.refusal(Write(appends=rows(-1, 1, "rows", 3))), NotFoundError)


def test_a_write_without_effect_is_refused() -> None:
    assert isinstance(Log(ORDERS).refusal(Write()), InvalidInputError)


def test_an_end_counts_the_appends_of_its_own_entry_and_of_earlier_ones() -> None:
    log, producer = opened()
    log.commit(Write(producer, rows(0, 2, "rows", 0)))
    verdict = log.commit(Write(producer, rows(0, 3, "last", 1), COMMIT))
    assert isinstance(verdict, Included)
    end = verdict.operations[-1]
    assert isinstance(end, EndTxn)
    assert [(marker.partition, marker.offset) for marker in end.markers] == [(0, 2), (1, 3)]


@pytest.mark.parametrize("init_first", [True, False])
def test_an_init_never_shares_an_entry_with_another_step_of_its_id(init_first: bool) -> None:
    log, producer = opened()
    init, write = log.intent(OpenProducer("etl")), log.intent(Write(producer, rows()))
    group = (init, write) if init_first else (write, init)
    assembled = log.assemble(*group)
    assert set(assembled.verdicts) == {group[0].intent_id}


def test_an_init_shares_an_entry_with_steps_of_other_ids() -> None:
    log, producer = opened()
    group = [log.intent(OpenProducer("other")), log.intent(Write(producer, rows()))]
    assembled = log.assemble(*group)
    assert assembled.entry is not None
    assert [type(operation) for operation in assembled.entry.operations] == [InitProducer, Append]
    assert [operation.intent for operation in assembled.entry.operations] == [0, 1]


def test_a_rejected_intent_is_left_out_of_the_entry_that_the_others_share() -> None:
    log, producer = opened()
    good, bad = log.intent(Write(producer, rows())), log.intent(Write(producer, rows(5)))
    assembled = log.assemble(bad, good)
    assert assembled.entry is not None
    assert assembled.entry.intents == (good.intent_id,)
    assert isinstance(assembled.verdicts[bad.intent_id], Rejected)


def test_an_intent_in_the_window_is_done_in_its_entry() -> None:
    log = Log()
    intent = log.intent(OpenProducer("etl"))
    log.assemble(intent)
    entry = log.state.entry
    log.commit(AllocateIds("process"))
    assert decide(log.state, intent) == Done(entry, intent_id=intent.intent_id)


def test_an_intent_is_undecidable_once_the_window_has_moved_past_its_first_slot() -> None:
    log = Log(ORDERS)
    intent = log.intent(OpenProducer("etl"))
    window = log.state.window
    for number in range(INTENT_WINDOW_ENTRIES):
        assert isinstance(decide(replace(log.state, window=window), intent), Included)
        window = window.push(1 + number, (f"other {number}",))
    window = window.push(1 + INTENT_WINDOW_ENTRIES, ("last",))
    assert window.first == 2
    assert decide(replace(log.state, window=window), intent) == Undecidable(2)


def test_a_natural_key_is_answered_even_when_the_window_has_moved_on() -> None:
    log = Log(ORDERS)
    write = Write(appends=rows(-1), app=AppRef("spark-batch", "job", 3))
    log.commit(write)
    moved = replace(log.state, window=IntentWindow(900))
    assert decide(moved, Intent("other", 0, write)) == Done(1)


def test_a_checkpoint_older_than_the_newest_is_refused() -> None:
    log = Log(ORDERS, AllocateIds("process"))
    named = [
        Checkpoint(entry, snapshot_key(entry, ORDERS.topic_id), 1, "0" * 64, "0" * 64) for entry in (0, 1)
    ]
    assert isinstance(log.commit(TakeCheckpoint(named[1])), Included)
    for one in named:
        error = log.refusal(TakeCheckpoint(one))
        assert isinstance(error, ConflictError)
        assert error.kind == "checkpoint-superseded"


def test_log_time_is_store_time_but_always_above_the_entry_before() -> None:
    state = Log(ORDERS).state
    assert state.timestamp_ms == NOW_MS
    assert next_timestamp_ms(state, NOW_MS + 5) == NOW_MS + 5
    assert next_timestamp_ms(state, NOW_MS) == NOW_MS + 1
    assert next_timestamp_ms(state, NOW_MS - 29_999) == NOW_MS + 1


def test_an_entry_more_than_30_s_ahead_of_store_time_is_not_written() -> None:
    with pytest.raises(StorageError) as caught:
        next_timestamp_ms(Log(ORDERS).state, NOW_MS - 30_000)
    assert caught.value.kind == "log-time-ahead"


def test_versions_beside_the_deciding_one_are_set_with_it_and_must_grow() -> None:
    log = Log(ORDERS)
    job, part = AppRef("spark-batch", "*/job", 3), AppRef("spark-batch", "orders/job", 3)
    verdict = log.commit(Write(appends=rows(-1), app=job, apps_beside=(part,)))
    assert isinstance(verdict, Included)
    assert {key[1]: known.version for key, known in log.state.app_versions.items()} == {
        "*/job": 3,
        "orders/job": 3,
    }
    written = log.state.entry
    other = AppRef("spark-batch", "audit/job", 3)
    assert log.commit(Write(appends=rows(-1, 5, "other"), app=job, apps_beside=(other,))) == Done(written)
    for version in (3, 2):
        late = AppRef("spark-batch", "orders/job", version)
        error = log.refusal(Write(appends=rows(-1), app=AppRef("spark-batch", "*/x", 9), apps_beside=(late,)))
        assert isinstance(error, StaleAppVersionError)
        assert error.values["newest"] == 3
