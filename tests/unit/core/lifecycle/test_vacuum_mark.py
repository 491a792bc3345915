"""Below the floor of the vacuum's mark no operation names an object: neither a decision nor the fold allows
it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from tests.integration.golden_entries import FORMS
from tests.property.random_writer import snapshot_of
from tests.unit.core.memory_log import ABORT, COMMIT, ORDERS, Log, idempotent, rows
from txnformat import keys
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    Action,
    Done,
    EnableFeatures,
    Included,
    MarkVacuum,
    OpenProducer,
    SealSegments,
    TakeCheckpoint,
    TopicAppend,
    Undecidable,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.operations import VacuumMark
from txnformat.core.lifecycle.vacuum import named_objects
from txnformat.core.operations import Append, Checkpoint, CreateTopic, Operation, Seal, Spill, Stage
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.core.state import INTENT_WINDOW_ENTRIES, LIFECYCLE, IntentWindow, LogState
from txnformat.errors import ConflictError, CorruptDataError, UnsupportedFeatureError, UploadExpiredError
from txnformat.persistent import replace
from txnformat.types import SegmentListRecord
from txnlog_testing.seal_of import seal_of
from txnlog_testing.strategies import in_table, make_append, make_topic

FLOOR = 2
OTHER = make_topic("returns")
UUID = "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f"
SHA = "0" * 64
KEY = re.compile("/([0-9]{20})-")


def born(value: Any, entry: int) -> Any:
    """Return an intent or an operation with other numbers in the keys of its objects."""
    if isinstance(value, str):
        return KEY.sub(f"/{entry:020d}-", value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(born(one, entry) for one in value)
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return value
    return replace(value, **{name: born(getattr(value, name), entry) for name in fields})


def log_at_4() -> Log:
    """Return a log with an aborted and an open transaction."""
    log = Log(ORDERS, OpenProducer("etl"))
    log.commit(Write(log.producer(), rows(), end=ABORT))
    log.commit(EnableFeatures((LIFECYCLE,)))
    log.commit(Write(log.producer(), rows(content="open")))
    assert log.state.entry == 4
    return log


def marked(floor: int = FLOOR) -> Log:
    log = log_at_4()
    assert isinstance(log.commit(MarkVacuum(floor)), Included)
    return log


def test_a_mark_moves_the_floor_and_a_snapshot_keeps_it() -> None:
    log = marked()
    assert log.state.vacuum_floor == FLOOR
    assert check_whole(log.state) == []
    assert log.commit(MarkVacuum(3)) == Included((VacuumMark(3),))
    data = encode_snapshot(log.state)
    assert decode_snapshot(data, snapshot_of(log.state, data), log.state.log_id).vacuum_floor == 3


@pytest.mark.parametrize("floor", [1, FLOOR])
def test_a_mark_that_does_not_move_the_floor_up_is_refused(floor: int) -> None:
    error = marked().refusal(MarkVacuum(floor))
    assert isinstance(error, ConflictError)
    assert error.kind == "vacuum-superseded"


def test_a_log_must_be_upgraded_before_a_mark() -> None:
    error = Log(ORDERS, OpenProducer("a")).refusal(MarkVacuum(1))
    assert isinstance(error, UnsupportedFeatureError)
    assert error.kind == "upgrade-required"


@pytest.mark.parametrize("floor", [1, FLOOR, 6, 7])
def test_a_mark_that_does_not_go_up_to_an_earlier_entry_is_corrupt(floor: int) -> None:
    state = marked().state
    with pytest.raises(CorruptDataError, match="does not go up to an earlier entry"):
        apply_operation(state, VacuumMark(floor), At(state.entry + 1, 2**40))
    assert apply_operation(state, VacuumMark(5), At(state.entry + 1, 2**40)).vacuum_floor == 5


def test_a_mark_in_a_log_without_the_feature_is_corrupt() -> None:
    state = Log(ORDERS, OpenProducer("a")).state
    with pytest.raises(CorruptDataError, match="lacks the feature"):
        apply_operation(state, VacuumMark(1), At(state.entry + 1, 2**40))


def test_a_snapshot_with_a_floor_that_no_mark_can_have_set_is_corrupt() -> None:
    state = marked().state
    state = replace(state, vacuum_floor=state.entry)
    data = encode_snapshot(state)
    with pytest.raises(CorruptDataError, match="vacuum_floor"):
        decode_snapshot(data, snapshot_of(state, data), state.log_id)


def seal(log: Log, entry: int) -> SealSegments:
    return SealSegments(born(seal_of(log.state), entry))


def seal_with_list(log: Log, entry: int) -> SealSegments:
    named = SegmentListRecord(keys.table_key(entry, UUID), 100, SHA, rows=1)
    new = replace(born(seal_of(log.state), 10), segment_list=named, listed_segments=1)
    return SealSegments(new)


def seal_sidecar(kind: str) -> Callable[[Log, int], SealSegments]:
    def made(log: Log, entry: int) -> SealSegments:
        (segment,) = born(seal_of(log.state), 10).segments
        return SealSegments(Seal((replace(segment, **{kind: born(getattr(segment, kind), entry)}),)))

    return made


NAMING: dict[str, Callable[[Log, int], Action]] = {
    "append": lambda log, entry: Write(None, (born(bulk(), entry),)),
    "append in a transaction": lambda log, entry: Write(
        log.producer(), (born(rows(2, content="late")[0], entry),)
    ),
    "append that commits": lambda log, entry: Write(
        log.producer(), (born(rows(2, content="late")[0], entry),), end=COMMIT
    ),
    "append's table": lambda log, entry: Write(None, (table_born(bulk(), entry),)),
    "append to a topic that it creates": lambda log, entry: Write(
        None, (born(make_append(OTHER, {0: (-1, 2)}, content="late"), entry),), create=(OTHER,)
    ),
    "stage": lambda log, entry: Write(
        log.producer("deferred"), (born(in_table(rows(content="late")[0]), entry),), deferred=True
    ),
    "stage's table": lambda log, entry: Write(
        log.producer("deferred"), (table_born(rows(content="late")[0], entry),), deferred=True
    ),
    "stage by another writer": lambda log, entry: Write(
        log.producer("deferred"),
        (born(in_table(rows(content="late")[0]), entry),),
        deferred=True,
        follows=log.state.transactional_ids["deferred"].used_entry,
    ),
    "seal": seal,
    "seal's markers": seal_sidecar("markers"),
    "seal's txnindex": seal_sidecar("txnindex"),
    "seal's list": seal_with_list,
}
"""Every way to name an object for the first time, born in an entry."""


def bulk() -> TopicAppend:
    return rows(-1, content="late")[0]


def table_born(append: TopicAppend, entry: int) -> TopicAppend:
    """Return an append with an old table and young files."""
    young: TopicAppend = born(in_table(append), 10)
    return replace(young, table=born(young.table, entry))


def naming_log(floor: int = FLOOR) -> Log:
    log = marked(floor)
    log.commit(OpenProducer("deferred"))
    return log


@pytest.mark.parametrize("name", NAMING)
def test_a_decision_names_no_object_that_was_born_below_the_floor(name: str) -> None:
    log = naming_log()
    error = log.refusal(NAMING[name](log, FLOOR - 1))
    assert isinstance(error, UploadExpiredError)
    assert (error.values["born"], error.values["floor"]) == (FLOOR - 1, FLOOR)
    assert isinstance(log.commit(NAMING[name](log, FLOOR)), Included), (
        "the floor itself may be named: the log may have been quiet since"
    )


@pytest.mark.parametrize("name", NAMING)
def test_an_entry_that_names_an_object_born_below_the_floor_is_corrupt(name: str) -> None:
    log = naming_log()
    before = log.state
    intent = log.intent(NAMING[name](log, FLOOR))
    entry = log.assemble(intent).entry
    assert entry is not None
    at = At(before.entry + 1, 2**40)
    operations = [born(op, FLOOR - 1) for op in entry.operations]
    naming = next(index for index, op in enumerate(operations) if list(named_objects(op)))
    state = before
    for op in operations[:naming]:
        state = apply_operation(state, op, at)
    with pytest.raises(CorruptDataError, match="born below the floor"):
        apply_operation(state, operations[naming], at)
    stale = replace(entry, operations=tuple(operations))
    problems = check_state(before, stale, log.state)
    assert [one for one in problems if one.startswith("I21")]


def test_a_mark_counts_for_what_follows_it_in_its_entry() -> None:
    log = log_at_4()
    late = log.intent(Write(None, (born(bulk(), 1),)))
    verdicts = log.assemble(log.intent(MarkVacuum(FLOOR)), late).verdicts
    assert [type(one).__name__ for one in verdicts.values()] == ["Included", "Rejected"]
    other = log_at_4()
    late = other.intent(Write(None, (born(bulk(), 1),)))
    verdicts = other.assemble(late, other.intent(MarkVacuum(FLOOR))).verdicts
    assert [type(one).__name__ for one in verdicts.values()] == ["Included", "Included"]


DONE: dict[str, Callable[[Log], Action]] = {
    "append": lambda log: Write(log.producer(), rows()),
    "append that commits": lambda log: Write(log.producer(), rows(), end=COMMIT),
    "stage": lambda log: Write(log.producer(), (in_table(rows()[0]),), deferred=True),
    "seal": lambda log: SealSegments(seal_of(log.state)),
}


@pytest.mark.parametrize("name", DONE)
def test_what_the_log_holds_already_is_done_however_old_its_objects_are(name: str) -> None:
    """By the intent's id in the window."""
    log = Log(ORDERS, OpenProducer("etl"))
    log.commit(EnableFeatures((LIFECYCLE,)))
    if name == "seal":
        log.commit(Write(None, (bulk(),)))
    intent = log.intent(DONE[name](log))
    assert isinstance(log.assemble(intent).verdicts[intent.intent_id], Included)
    entry = log.state.entry
    log.commit(MarkVacuum(log.state.entry))
    verdict = log.assemble(intent).verdicts[intent.intent_id]
    assert isinstance(verdict, Done)
    assert verdict.entry == entry


def test_sequences_that_are_known_are_done_however_old_their_objects_are() -> None:
    """By their natural key: the repeat is another intent."""
    log, producer = idempotent()
    log.commit(EnableFeatures((LIFECYCLE,)))
    log.commit(Write(producer, rows()))
    log.commit(MarkVacuum(log.state.entry))
    assert isinstance(log.commit(Write(producer, rows())), Done)
    assert isinstance(log.refusal(Write(producer, rows(2, content="next"))), UploadExpiredError)
    assert isinstance(log.commit(Write(producer, (born(rows(2, content="next")[0], 9),))), Included)


def test_a_snapshot_is_named_by_its_entry_and_has_no_age() -> None:
    log = marked()
    named = Checkpoint(1, keys.snapshot_key(1, UUID), 100, SHA, SHA)
    assert isinstance(log.commit(TakeCheckpoint(named)), Included)


def test_a_floor_that_is_lower_proves_that_a_mark_has_not_landed() -> None:
    for floor, expected in ((FLOOR + 1, Included), (FLOOR, Undecidable)):
        log = marked()
        intent = log.intent(MarkVacuum(floor))
        log.state = replace(log.state, window=IntentWindow(log.state.entry + INTENT_WINDOW_ENTRIES))
        assert isinstance(log.assemble(intent).verdicts[intent.intent_id], expected)


NO_NEW_NAMES = {Checkpoint, CreateTopic}
"""Operations that hold keys of no object which they name for the first time: a directory, a snapshot."""


@pytest.mark.parametrize("operation", [op for forms in FORMS.values() for op in forms], ids=repr)
def test_every_operation_that_holds_a_key_says_that_it_names_an_object(operation: Operation) -> None:
    """What a new operation names cannot be forgotten in the rule."""
    found = {key for key in _texts(msgspec.to_builtins(operation)) if KEY.search(key)}
    known = set(named_objects(operation)) | set(getattr(operation, "replaced_lists", ()))
    if isinstance(operation, Spill):
        known.update(key for part in operation.partitions for key in part.replaced)
    assert found <= known or type(operation) in NO_NEW_NAMES


def test_the_forms_have_every_operation() -> None:
    assert {type(op) for forms in FORMS.values() for op in forms} == set(get_args(Operation))
    naming = {type(op) for forms in FORMS.values() for op in forms if list(named_objects(op))}
    assert naming >= {Append, Stage, Seal}


def _texts(value: object) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set().union(*map(_texts, value.values()))
    if isinstance(value, list | tuple):
        return set().union(*map(_texts, value))
    return set()


def test_a_state_of_an_older_program_has_no_floor() -> None:
    assert LogState("log").vacuum_floor == 0
