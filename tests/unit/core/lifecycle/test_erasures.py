"""Erasures in the state: the request, what is rewritten, the certificate; every rule, in the decision and in
the fold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.property.random_writer import snapshot_of
from tests.unit.core.lifecycle.replaced_world import KEY, compacted, intent, listed, operation
from tests.unit.core.memory_log import COMMIT, ORDERS, Log, rows
from txnformat.core.entry import CommitEntry
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import Done, Included, MarkVacuum, OpenProducer, RemoveTopic, Write
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.invariants import check_erasures_step
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CompleteErasure,
    Erased,
    ErasedPartition,
    KeptVersions,
    PartitionEnd,
    RequestErasure,
)
from txnformat.core.lifecycle.state import COMPLETE_MAX, OPEN_MAX, REWRITING_MAX, ErasureState
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import Operation
from txnformat.core.records.scan import check_not_erased
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, CorruptDataError, NotFoundError, UnsupportedFeatureError

ID = "5d0c0a10-7d53-4c5c-9d55-0a7c6b1a2f01"
SHA = "cd" * 32
ALL = (PartitionEnd(0, 6),)


def asked(erasure_id: str = ID, **values: Any) -> RequestErasure:
    op = RequestErasure(erasure_id, ORDERS.topic_id, ("name",), SHA, "the desk")
    return msgspec.structs.replace(op, **values)


def begun(*actions: Any) -> Log:
    log = listed()
    for action in (asked(), *actions):
        assert isinstance(log.commit(action), Included)
    return log


def known(log: Log, erasure_id: str = ID) -> ErasureState:
    return log.state.erasures[erasure_id]


def certificate(log: Log, **values: Any) -> CompleteErasure:
    one = known(log)
    op = CompleteErasure(
        ID,
        one.topic_id,
        one.entry,
        one.columns,
        one.condition,
        one.requested_by,
        one.records,
        one.files,
        one.replaced_entry,
        one.rewritten_entry,
        log.state.vacuum_floor,
        KeptVersions.NO,
    )
    return msgspec.structs.replace(op, **values)


def folded(log: Log, op: Operation, entry: int | None = None) -> LogState:
    return apply_operation(log.state, op, At(log.state.entry + 1 if entry is None else entry, 2**42))


def erasing(log: Log, **values: Any) -> Any:
    """Return the intent to leave one of four records, as part of the erasure."""
    erased = Erased(ID, 3, 1, (ErasedPartition(0, 2),))
    return intent(operation(compacted(log, records=1), erased=msgspec.structs.replace(erased, **values)))


def test_an_erasure_goes_from_the_request_to_the_certificate() -> None:
    log = begun()
    first = known(log)
    assert (first.entry, first.topic, first.ends_entry) == (log.state.entry, ORDERS.name, -1)
    steps: list[Any] = [AdvanceErasure(ID), erasing(log), AdvanceErasure(ID, ALL)]
    for action in steps:
        before = log.state
        assembled = log.assemble(log.intent(action))
        assert assembled.entry is not None
        assert check_state(before, assembled.entry, log.state) == []
    one = known(log)
    assert (one.records, one.files, one.ends_entry) == (3, 1, first.entry + 1)
    assert (one.replaced_entry, one.rewritten_entry) == (first.entry + 2, log.state.entry)
    assert (one.ends, one.reached) == ((), ())
    assert log.state.partition(KEY).erased_entry == 2
    log.commit(MarkVacuum(one.rewritten_entry))
    assert isinstance(log.commit(certificate(log)), Included)
    assert known(log).complete_entry == log.state.entry
    assert check_whole(log.state) == []
    data = encode_snapshot(log.state)
    again = decode_snapshot(data, snapshot_of(log.state, data), log.state.log_id)
    assert again.erasures == log.state.erasures
    assert again.partition(KEY).erased_entry == 2


def test_a_version_below_what_was_erased_is_refused() -> None:
    log = begun()
    log.commit(erasing(log))
    with pytest.raises(NotFoundError, match="were erased") as caught:
        check_not_erased(log.state.partition(KEY), 1, "orders", 0)
    assert caught.value.kind == "version-trimmed"
    check_not_erased(log.state.partition(KEY), 2, "orders", 0)


def test_a_repeated_request_is_done_and_a_log_must_be_upgraded_first() -> None:
    log = begun()
    again = log.commit(asked(requested_by="another desk"))
    assert isinstance(again, Done)
    assert again.entry == known(log).entry
    other = "6e1d1b20-7d53-4c5c-9d55-0a7c6b1a2f02"
    joined = log.commit(asked(other))
    assert isinstance(joined, Done), "the condition is that of an erasure which is there"
    assert joined.entry == known(log).entry
    assert isinstance(log.commit(asked(other, condition="ef" * 32)), Included)
    old = listed(upgraded=False)
    assert isinstance(old.refusal(asked()), UnsupportedFeatureError)
    for wrong in (asked(), asked("gone", topic_id=ID)):
        with pytest.raises(CorruptDataError, match="an erasure is of no topic"):
            folded(old, wrong)
    with pytest.raises(CorruptDataError, match="requested before"):
        folded(log, asked())


def test_transactions_that_had_begun_are_waited_for() -> None:
    log = listed()
    producer = log.producer()
    log.commit(Write(producer, rows()))
    log.commit(asked())
    log.commit(AdvanceErasure(ID, ALL))
    assert (known(log).ends_entry, known(log).reached) == (-1, ALL)
    log.commit(OpenProducer("other"))
    log.commit(Write(producer, end=COMMIT))
    log.commit(Write(log.producer("other"), rows(content="other")))
    log.commit(AdvanceErasure(ID))
    assert known(log).ends_entry == log.state.entry
    assert known(log).ends == (PartitionEnd(0, 11),)
    assert known(log).rewritten_entry == -1
    assert check_whole(log.state) == []


@pytest.mark.parametrize("ends", [(PartitionEnd(0, 7),), (PartitionEnd(0, 5),), (PartitionEnd(1, 1),)])
def test_an_advance_stays_between_the_last_one_and_what_is_listed(ends: tuple[PartitionEnd, ...]) -> None:
    log = listed()
    log.commit(Write(log.producer(), rows()))
    log.commit(asked())
    log.commit(AdvanceErasure(ID, ALL))
    op = AdvanceErasure(ID, ends)
    error = log.refusal(op)
    assert isinstance(error, ConflictError)
    assert error.kind == "erasure-superseded"
    with pytest.raises(CorruptDataError, match="goes back, or beyond"):
        folded(log, op)


def test_partitions_ascend_and_nothing_happens_in_the_entry_of_the_request() -> None:
    log = begun()
    twice = AdvanceErasure(ID, (PartitionEnd(0, 1), PartitionEnd(0, 2)))
    with pytest.raises(CorruptDataError, match="do not ascend"):
        folded(log, twice)
    with pytest.raises(CorruptDataError, match="in this entry"):
        folded(log, AdvanceErasure(ID), log.state.entry)
    fresh = listed()
    first, second = fresh.intent(asked()), fresh.intent(AdvanceErasure(ID))
    verdicts = fresh.assemble(first, second).verdicts
    assert isinstance(verdicts[first.intent_id], Included)
    assert not isinstance(verdicts[second.intent_id], Included)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"erasure_id": "5d0c0a10-7d53-4c5c-9d55-0a7c6b1a2f02"}, "not there, or complete"),
        ({"partitions": (ErasedPartition(1, 1),)}, "do not ascend"),
        ({"partitions": (ErasedPartition(0, 1), ErasedPartition(0, 1))}, "do not ascend"),
        ({"partitions": (ErasedPartition(0, 99),)}, "not committed yet"),
    ],
)
def test_a_replace_is_part_of_an_erasure_of_its_topic(values: dict[str, Any], what: str) -> None:
    log = begun()
    with pytest.raises(CorruptDataError, match=what):
        folded(log, erasing(log, **values).replace)


def test_a_replace_of_an_unknown_erasure_is_refused() -> None:
    log = listed()
    error = log.refusal(erasing(log))
    assert error.kind == "unknown-erasure"


@pytest.mark.parametrize(
    "values",
    [
        {"records": 1},
        {"files": 9},
        {"replaced_entry": 1},
        {"rewritten_entry": 1},
        {"floor": 1},
        {"floor": 2**40},
    ],
)
def test_a_certificate_repeats_what_the_state_has(values: dict[str, Any]) -> None:
    log = begun(AdvanceErasure(ID, ALL))
    log.commit(MarkVacuum(log.state.entry))
    wrong = certificate(log, **values)
    assert log.refusal(wrong).kind == "erasure-superseded"
    for op in (wrong, certificate(log, condition="ef" * 32)):
        with pytest.raises(CorruptDataError, match="a certificate differs"):
            folded(log, op)


def test_a_certificate_needs_a_vacuum_above_the_last_replace() -> None:
    log = begun(AdvanceErasure(ID, ALL))
    late = log.state.entry
    assert isinstance(log.commit(erasing(log)), Included)  # another client, with parts of its own
    assert known(log).needed_floor == log.state.entry + 1
    log.commit(MarkVacuum(late))
    assert log.refusal(certificate(log)).kind == "erasure-superseded"
    log.commit(MarkVacuum(known(log).needed_floor))
    assert isinstance(log.commit(certificate(log)), Included)
    again = log.commit(certificate(log))
    assert isinstance(again, Done)
    assert again.entry == known(log).complete_entry
    assert log.refusal(AdvanceErasure(ID)).kind == "erasure-superseded"


def test_there_is_no_certificate_before_everything_is_rewritten() -> None:
    log = begun(AdvanceErasure(ID))
    log.commit(MarkVacuum(log.state.entry))
    assert (known(log).rewritten_entry, known(log).needed_floor) == (-1, 0)
    assert log.refusal(certificate(log)).kind == "erasure-superseded"


def test_what_is_rewritten_stays_so() -> None:
    log = begun(AdvanceErasure(ID, ALL))
    done = log.commit(AdvanceErasure(ID, ALL))
    assert isinstance(done, Done)
    with pytest.raises(CorruptDataError, match="that is rewritten"):
        folded(log, AdvanceErasure(ID, ALL))


def test_the_deletion_of_the_topic_leaves_only_files_to_delete() -> None:
    log = begun()
    log.commit(RemoveTopic(ORDERS.topic_id, force=True))
    assert known(log).rewritten_entry == log.state.entry
    assert known(log).directory == ORDERS.directory
    assert check_whole(log.state) == []


@pytest.mark.parametrize(("count", "rewritten"), [(REWRITING_MAX, -1), (OPEN_MAX, 5)])
def test_too_many_erasures_are_refused(count: int, rewritten: int) -> None:
    log = begun()
    one = msgspec.structs.replace(known(log), rewritten_entry=rewritten, condition="ef" * 32)
    made = {f"{number:08x}-0000-4000-8000-000000000000": one for number in range(count)}
    log.state = msgspec.structs.replace(log.state, erasures=made)
    assert log.refusal(asked()).kind == "too-many-erasures"
    with pytest.raises(CorruptDataError, match="one too many"):
        folded(log, asked())


def test_of_complete_erasures_the_newest_stay_in_the_state() -> None:
    log = begun(AdvanceErasure(ID, ALL))
    log.commit(MarkVacuum(log.state.entry))
    one = msgspec.structs.replace(known(log), complete_entry=log.state.entry)
    made = {
        f"{number:08x}-0000-4000-8000-000000000000": msgspec.structs.replace(one, complete_entry=number)
        for number in range(COMPLETE_MAX)
    }
    log.state = msgspec.structs.replace(log.state, erasures={ID: known(log), **made})
    log.commit(certificate(log))
    assert len(log.state.erasures) == COMPLETE_MAX
    assert "00000000-0000-4000-8000-000000000000" not in log.state.erasures
    assert known(log).complete_entry == log.state.entry


def test_columns_of_a_request_ascend() -> None:
    with pytest.raises(CorruptDataError, match="columns"):
        decode_operation(encode_operation(asked(columns=("b", "a"))), 1, path="x")


def test_an_erasure_that_is_abandoned_leaves_the_state_and_may_be_asked_for_again() -> None:
    log = begun()
    assert isinstance(log.commit(AbandonErasure(ID, "another desk")), Included)
    assert log.state.erasures == {}
    assert log.refusal(AbandonErasure(ID, "x")).kind == "unknown-erasure"
    assert log.refusal(AdvanceErasure(ID)).kind == "unknown-erasure"
    with pytest.raises(CorruptDataError, match="not there, or complete"):
        folded(log, AbandonErasure(ID, "x"))
    assert isinstance(log.commit(asked()), Included)


def test_an_erasure_is_abandoned_in_a_later_entry_and_never_when_it_is_complete() -> None:
    log = begun(AdvanceErasure(ID, ALL))
    with pytest.raises(CorruptDataError, match="in the entry of its request"):
        folded(log, AbandonErasure(ID, "x"), known(log).entry)
    log.commit(MarkVacuum(log.state.entry))
    log.commit(certificate(log))
    assert log.refusal(AbandonErasure(ID, "x")).kind == "erasure-superseded"
    with pytest.raises(CorruptDataError, match="not there, or complete"):
        folded(log, AbandonErasure(ID, "x"))


def test_an_erasure_does_not_vanish_without_being_abandoned() -> None:
    log = begun()
    before = log.state
    entry = CommitEntry(
        entry=before.entry + 1,
        log_id=ID,
        write_id=ID,
        previous=SHA,
        timestamp_ms=2**42,
        engine="x",
        intents=(),
        operations=(),
    )
    after = msgspec.structs.replace(before, entry=entry.entry, erasures={})
    assert "neither complete nor abandoned" in "".join(check_erasures_step(before, entry, after))
    told = msgspec.structs.replace(entry, operations=(AbandonErasure(ID, ""),))
    assert list(check_erasures_step(before, told, after)) == []
