"""The fold stops at an entry that no correct writer makes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.golden_entries import FORMS
from tests.unit.core.entries import assert_corrupt, entry_for
from txnformat.core.entry import CommitEntry, decode_entry, encode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.intents import Action, AllocateIds, AppRef, OpenProducer, ProducerRef, Write
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import Append, AppVersion, Checkpoint, EndTxn, InitProducer, Upgrade
from txnformat.core.state import LogState
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.keys import snapshot_key
from txnformat.persistent import replace
from txnformat.types import Outcome
from txnlog_testing.entries import changed_entry, replaced_in_entry
from txnlog_testing.strategies import make_append, make_topic

ORDERS = make_topic("orders")
PRODUCER = ProducerRef(0, 0, "etl")
APPEND = Write(PRODUCER, (make_append(ORDERS, {0: (0, 2), 1: (0, 3)}, content="rows"),))


def after(*actions: Action) -> LogState:
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    for action in actions:
        state = apply(state, *entry_for(state, action))
    return state


def with_operation(entry: CommitEntry, index: int = -1, **changes: Any) -> CommitEntry:
    operations = list(entry.operations)
    operations[index] = replace(operations[index], **changes)
    return replace(entry, operations=tuple(operations))


OPEN = after(ORDERS, OpenProducer("etl"))
ONGOING = after(ORDERS, OpenProducer("etl"), APPEND)


@pytest.mark.parametrize(
    "wrong",
    [{"previous": "0" * 64}, {"log_id": "1a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"}, {"entry": 3}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_entry_that_does_not_chain_is_corrupt(wrong: dict[str, Any]) -> None:
    entry, _ = entry_for(OPEN, APPEND)
    assert_corrupt(OPEN, replace(entry, **wrong), "broken-chain")


def test_log_time_that_does_not_advance_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, APPEND)
    assert_corrupt(OPEN, replace(entry, timestamp_ms=OPEN.timestamp_ms))


def append_of(entry: CommitEntry) -> Append:
    (append,) = entry.operations
    assert isinstance(append, Append)
    return append


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_offset": 1},
        {"partition": 3},
        {"records": 3},
        {"batch_count": 2},
        {"base_sequence": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_an_append_that_does_not_fit_its_partition_is_corrupt(wrong: dict[str, Any]) -> None:
    entry, _ = entry_for(OPEN, APPEND)
    first, *others = append_of(entry).partitions
    assert_corrupt(OPEN, with_operation(entry, partitions=(replace(first, **wrong), *others)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": 1},
        {"producer_id": 1},
        {"transactional_id": "other"},
        {"partition_count": 2},
        {"topic_id": make_topic("audit").topic_id},
        {"transactional_id": None, "producer_id": 1},
    ],
    ids=str,
)
def test_an_append_with_an_identity_or_topic_that_the_log_does_not_have_is_corrupt(
    wrong: dict[str, Any],
) -> None:
    entry, _ = entry_for(OPEN, APPEND)
    assert_corrupt(OPEN, with_operation(entry, **wrong))


def test_an_epoch_that_goes_back_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, OpenProducer("etl"))
    assert entry.operations == (InitProducer("etl", 0, 1),)
    assert_corrupt(OPEN, with_operation(entry, epoch=0))


def test_another_producer_id_for_a_known_transactional_id_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, OpenProducer("etl"))
    assert_corrupt(OPEN, with_operation(entry, producer_id=1))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_markers_that_do_not_match_the_transactions_partitions_are_corrupt(outcome: Outcome) -> None:
    entry, _ = entry_for(ONGOING, Write(PRODUCER, end=outcome))
    (end,) = entry.operations
    assert isinstance(end, EndTxn)
    first, second = end.markers
    for markers in ((first,), (first, first), (first, second, second), (first, replace(second, offset=4))):
        assert_corrupt(ONGOING, with_operation(entry, markers=markers))


def test_an_init_that_forgets_or_invents_markers_is_corrupt() -> None:
    entry, _ = entry_for(ONGOING, OpenProducer("etl"))
    (init,) = entry.operations
    assert isinstance(init, InitProducer)
    assert_corrupt(ONGOING, with_operation(entry, aborted=init.aborted[:1]))
    nothing_open, _ = entry_for(OPEN, OpenProducer("etl"))
    assert_corrupt(OPEN, with_operation(nothing_open, aborted=init.aborted))


def test_a_commit_of_nothing_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, Write(PRODUCER, end=Outcome.ABORT))
    assert_corrupt(OPEN, with_operation(entry, outcome=Outcome.COMMIT))


def test_a_topic_that_is_created_twice_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, make_topic("audit"))
    assert_corrupt(OPEN, with_operation(entry, name="orders"))
    assert_corrupt(OPEN, with_operation(entry, topic_id=ORDERS.topic_id))


def test_a_block_of_producer_ids_that_were_given_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, AllocateIds("process"))
    assert_corrupt(OPEN, with_operation(entry, first=0))


def test_an_application_version_that_does_not_grow_is_corrupt() -> None:
    write = Write(
        appends=(make_append(ORDERS, {0: (-1, 1)}, content="a"),), app=AppRef("spark-batch", "job", 3)
    )
    state = after(ORDERS, write)
    entry, _ = entry_for(state, AllocateIds("process"))
    for version in (2, 3):
        stale = replace(entry, operations=(AppVersion("spark-batch", "job", version),))
        assert_corrupt(state, stale)


def test_a_checkpoint_that_does_not_advance_is_corrupt() -> None:
    entry, _ = entry_for(OPEN, AllocateIds("process"))
    own = Checkpoint(entry.entry, snapshot_key(entry.entry, ORDERS.topic_id), 1, "0" * 64, "0" * 64)
    assert_corrupt(OPEN, replace(entry, operations=(own,)))
    past = replace(own, entry=0)
    assert_corrupt(replace(OPEN, checkpoints=(past,)), replace(entry, operations=(past,)))


def test_an_unknown_operation_is_an_unsupported_feature() -> None:
    entry, _ = entry_for(OPEN, AllocateIds("process"))
    written = changed_entry(encode_entry(entry), lambda doc: doc["operations"][0].update(operation="compact"))
    with pytest.raises(UnsupportedFeatureError):
        decode_entry(written, entry.entry)


def test_an_unknown_reader_feature_is_an_unsupported_feature() -> None:
    entry, _ = entry_for(OPEN, AllocateIds("process"))
    known = replace(entry, operations=(Upgrade(("base-1",), ("base-1", "new"), ("base-1",)),))
    assert apply(OPEN, known, "0" * 64).features.writer == {"base-1", "new"}
    unknown = replace(entry, operations=(Upgrade(("base-1", "new"), (), ()),))
    with pytest.raises(UnsupportedFeatureError) as caught:
        apply(OPEN, unknown, "0" * 64)
    assert caught.value.values["features"] == ["new"]


def test_an_entry_that_is_refused_changes_nothing() -> None:
    entry, _ = entry_for(ONGOING, Write(PRODUCER, end=Outcome.COMMIT))
    before = dict(ONGOING.partitions)
    assert_corrupt(ONGOING, with_operation(entry, epoch=7))
    assert ONGOING.partitions == before


def test_an_intent_id_that_is_no_text_is_corrupt() -> None:
    """Half a surrogate pair is legal JSON, but could never be written to a snapshot."""
    entry, _ = entry_for(OPEN, AllocateIds("process"))
    data = replaced_in_entry(encode_entry(entry), entry.intents[0].encode(), b"\\ud800")
    with pytest.raises(CorruptDataError) as caught:
        decode_entry(data, entry.entry)
    assert caught.value.values["expected"] == "JSON"


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (4, -1)])
def test_an_append_has_a_producer_and_an_epoch_or_neither(producer_id: int, epoch: int) -> None:
    append = {**encode_operation(FORMS["append"][0]), "producer_id": producer_id, "epoch": epoch}
    with pytest.raises(CorruptDataError, match="-1 exactly when producer_id is -1"):
        decode_operation(append, 1, path="entry")
