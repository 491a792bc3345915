"""The deferred buffer in the core: stages give no offsets, the commit gives all of them, an abort leaves
nothing."""

from __future__ import annotations

import pytest

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import ABORT, COMMIT, NOW_MS, ORDERS, Log, opened
from tests.unit.core.transactions.staging import stage, staged
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    ChangeTopic,
    Done,
    Included,
    OpenProducer,
    ProducerRef,
    Rejected,
    SealSegments,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Cause, EndTxn, PlacedPartition, Stage
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.transactions.state import TransactionStatus
from txnformat.errors import (
    ConflictError,
    CorruptDataError,
    InternalError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from txnformat.persistent import replace
from txnformat.types import TopicPartition
from txnlog_testing.seal_of import seal_of
from txnlog_testing.strategies import make_append, make_topic

AUDIT = make_topic("audit")
KEY = TopicPartition(ORDERS.topic_id, 0)
OTHER_KEY = TopicPartition(ORDERS.topic_id, 1)


def test_a_stage_gives_no_offsets_and_nobody_waits_for_it() -> None:
    log, producer = opened()
    verdict = stage(log, producer, 0, 3)
    assert isinstance(verdict, Included)
    assert [type(op) for op in verdict.operations] == [Stage]
    partition = log.state.partition(KEY)
    assert (partition.log_end, partition.last_stable_offset, len(partition.extents)) == (0, 0, 0)
    known = log.state.transactional_ids["etl"]
    assert known.status is TransactionStatus.ONGOING
    assert known.staged_records() == {KEY: 3}
    assert len(log.state.files) == len(log.state.tables) == 1
    assert check_whole(log.state) == []


def test_a_stage_that_names_the_entry_before_it_is_done_once_whatever_it_brings() -> None:
    log, producer = opened()
    log.commit(Write(producer, staged(0, 3, "before"), deferred=True))
    follows = log.state.transactional_ids["etl"].used_entry
    first = log.commit(Write(producer, staged(3, 2), deferred=True, follows=follows))
    assert isinstance(first, Included)
    entry = log.state.entry
    # Other rows, in another partition, as a query that is computed anew may give them: no sequence tells.
    again = log.commit(Write(producer, staged(0, 2, "anew", partitions=(1,)), deferred=True, follows=follows))
    assert again == Done(entry)
    assert log.state.transactional_ids["etl"].staged_records() == {KEY: 5}
    log.commit(Write(producer, end=ABORT))
    late = log.commit(Write(producer, staged(3, 2), deferred=True, follows=follows))
    assert isinstance(late, Rejected), "an epoch that is over goes first"


def test_the_commit_places_all_stages_in_their_order_behind_what_came_meanwhile() -> None:
    log, producer = opened()
    stage(log, producer, 0, 3, "first", partitions=(0, 1))
    log.commit(Write(appends=(make_append(ORDERS, {0: (-1, 4)}, content="bulk"),)))
    stage(log, producer, 3, 2, "second")
    verdict = log.commit(Write(producer, staged(5, 1, "third"), COMMIT, deferred=True))
    assert isinstance(verdict, Included)
    end = verdict.operations[-1]
    assert isinstance(end, EndTxn)
    assert end.placed == (
        PlacedPartition(ORDERS.topic_id, 0, 4, 6),
        PlacedPartition(ORDERS.topic_id, 1, 0, 3),
    )
    assert [(marker.partition, marker.offset) for marker in end.markers] == [(0, 10), (1, 3)]
    extents = log.state.partition(KEY).extents.array()
    assert extents["base_offset"].tolist()[-3:] == [4, 7, 9]
    assert extents["base_sequence"].tolist()[-3:] == [0, 3, 5]
    assert extents["entry"].tolist()[-3:] == [log.state.entry] * 3
    assert log.state.partition(KEY).last_stable_offset == 11
    assert log.state.extents == 2 + 4  # the bulk append has two batches
    assert log.state.transactional_ids["etl"].staged == ()
    assert check_whole(log.state) == []


def test_an_abort_leaves_nothing_in_the_log_and_the_state() -> None:
    log, producer = opened()
    stage(log, producer, 0, 3, "first")
    stage(log, producer, 3, 3, "second")
    verdict = log.commit(Write(producer, end=ABORT))
    assert isinstance(verdict, Included)
    assert verdict.operations[0].markers == ()  # type: ignore[union-attr]
    assert log.state.partition(KEY).log_end == 0
    assert (len(log.state.files), len(log.state.tables), log.state.undecided) == (0, 0, frozenset())
    assert check_whole(log.state) == []


def test_a_successor_that_opens_forgets_what_was_staged() -> None:
    log, producer = opened()
    stage(log, producer)
    log.commit(OpenProducer("etl"))
    assert log.state.transactional_ids["etl"].status is TransactionStatus.EMPTY
    assert len(log.state.files) == 0
    assert check_whole(log.state) == []


def test_a_repeated_stage_is_done_once_and_gaps_are_refused() -> None:
    log, producer = opened()
    stage(log, producer, 0, 3, "first", partitions=(0, 1))
    entry = log.state.entry
    assert stage(log, producer, 0, 3, "first", partitions=(0, 1)) == Done(entry, {})
    error = log.refusal(Write(producer, staged(4, 1, "gap"), deferred=True))
    assert isinstance(error, OutOfOrderSequenceError)
    assert log.state.transactional_ids["etl"].staged_records() == {KEY: 3, OTHER_KEY: 3}


def test_a_repeated_stage_after_the_topic_grew_is_done_and_a_new_one_is_to_be_distributed_again() -> None:
    log, producer = opened()
    stage(log, producer)
    entry = log.state.entry
    log.commit(ChangeTopic(ORDERS.topic_id, 5))
    assert stage(log, producer) == Done(entry, {})
    assert isinstance(log.refusal(Write(producer, staged(2, 1, "new"), deferred=True)), ConflictError)
    assert isinstance(log.commit(Write(producer, end=COMMIT)), Included), "what is staged stays where it is"


def test_a_transaction_appends_or_stages_never_both() -> None:
    log, producer = opened()
    stage(log, producer)
    inline = make_append(ORDERS, {0: (0, 1)}, content="inline")
    with pytest.raises(InternalError):
        raise log.refusal(Write(producer, (inline,)))
    log, producer = opened()
    log.commit(Write(producer, (inline,)))
    with pytest.raises(InternalError):
        raise log.refusal(Write(producer, staged(1, 1), deferred=True))


def test_a_stage_after_the_end_is_refused() -> None:
    log, producer = opened()
    stage(log, producer)
    log.commit(Write(producer, end=COMMIT))
    error = log.refusal(Write(producer, staged(2, 1, "late"), deferred=True))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "transaction-ended"


def test_a_snapshot_keeps_what_is_staged() -> None:
    log, producer = opened()
    stage(log, producer, 0, 3, "first", partitions=(0, 1))
    stage(log, producer, 3, 2, "second")
    data = encode_snapshot(log.state)
    again = decode_snapshot(data, checkpoint_of(log.state, data), log.state.log_id)
    assert again.transactional_ids == log.state.transactional_ids
    assert again.undecided == log.state.undecided
    assert state_digest(again) == state_digest(log.state)
    log.state = again
    log.commit(Write(producer, end=COMMIT))
    assert log.state.partition(KEY).log_end == 6


def test_a_seal_keeps_files_and_tables_that_only_stages_refer_to() -> None:
    log, producer = opened()
    stage(log, producer, 0, 3)
    log.commit(Write(appends=(make_append(ORDERS, {0: (-1, 4)}, content="bulk"),)))
    log.commit(SealSegments(seal_of(log.state)))
    assert (len(log.state.files), len(log.state.tables)) == (1, 1)
    assert check_whole(log.state) == []
    log.commit(Write(producer, end=COMMIT))
    assert log.state.partition(KEY).log_end == 8
    assert check_whole(log.state) == []


def _stage_operation(log: Log, producer: ProducerRef) -> Stage:
    verdict = stage(log, producer)
    assert isinstance(verdict, Included)
    made = verdict.operations[0]
    assert isinstance(made, Stage)
    return made


@pytest.mark.parametrize(
    "change",
    [
        {"partition_count": 2},
        {"producer_id": 7},
        {"epoch": 1},
        {"transactional_id": "other"},
        {"topic_id": AUDIT.topic_id},
        {"partitions": "gap"},
        {"partitions": "twice"},
        {"partitions": "beyond"},
        {"files": "schema"},
    ],
    ids=lambda change: f"{next(iter(change))}-{next(iter(change.values()))}",
)
def test_a_stage_that_does_not_fit_is_corrupt(change: dict[str, object]) -> None:
    log, producer = opened()
    before = log.state
    made = _stage_operation(log, producer)
    (part,) = made.partitions
    special = {
        "gap": (replace(part, base_sequence=1),),
        "twice": (part, part),
        "beyond": (replace(part, partition=3),),
        "schema": (replace(made.files[0], schema_id=1),),
    }
    changed = {name: special.get(str(value), value) for name, value in change.items()}
    at = At(before.entry + 1, NOW_MS)
    assert apply_operation(before, made, at).transactional_ids["etl"].staged
    with pytest.raises(CorruptDataError):
        apply_operation(before, replace(made, **changed), at)


def test_a_stage_that_joins_appended_or_prepared_records_is_corrupt() -> None:
    log, producer = opened()
    made = _stage_operation(log, producer)
    at = At(log.state.entry + 1, NOW_MS)
    file = replace(made.files[0], key=made.files[0].key.replace("/data/0", "/data/1"))
    later = replace(made, files=(file,), partitions=(replace(made.partitions[0], base_sequence=2),))
    apply_operation(log.state, later, at)
    log.commit(Write(producer, prepare=True))
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, later, at)
    log, producer = opened()
    log.commit(Write(producer, (make_append(ORDERS, {1: (0, 1)}, content="inline"),)))
    with pytest.raises(CorruptDataError):
        apply_operation(log.state, made, at)


@pytest.mark.parametrize("wrong", ["records", "base_offset", "missing", "twice", "abort", "timeout"])
def test_a_commit_that_places_otherwise_is_corrupt(wrong: str) -> None:
    log, producer = opened()
    stage(log, producer, 0, 3)
    before = log.state
    verdict = log.commit(Write(producer, end=COMMIT))
    assert isinstance(verdict, Included)
    (end,) = verdict.operations
    assert isinstance(end, EndTxn)
    (part,) = end.placed
    changes = {
        "records": {"placed": (replace(part, records=2),)},
        "base_offset": {"placed": (replace(part, base_offset=1),)},
        "missing": {"placed": (), "markers": ()},
        "twice": {"placed": (part, part)},
        "abort": {"outcome": ABORT},
        "timeout": {"cause": Cause.TIMEOUT},
    }
    with pytest.raises(CorruptDataError):
        apply_operation(before, replace(end, **changes[wrong]), At(before.entry + 1, NOW_MS))  # type: ignore[arg-type]
