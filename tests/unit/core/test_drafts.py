"""Drafts: the fold of an entry copies a mapping once, and no state that somebody holds ever changes."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Sequence

import pytest

from txnformat import keys
from txnformat.core.drafts import GONE_MIN, draft, drafted_set, put, replace, without
from txnformat.core.entry import CommitEntry, sha256_hex
from txnformat.core.fold import apply, apply_operation
from txnformat.core.folding import At
from txnformat.core.groups.operations import CommitOffsets, JoinGroup, PositionCommit
from txnformat.core.operations import (
    AllocateProducerIds,
    Append,
    AppendedPartition,
    AppVersion,
    Cause,
    Checkpoint,
    CreateTopic,
    EndTxn,
    Expire,
    InitProducer,
    Marker,
    Operation,
)
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode, CreateSubscription
from txnformat.types import BatchRecord, FileRecord, Outcome, TopicPartition

TOPIC = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
LOG = "7d2b3c52-6c0b-4a43-9e39-5d9f9a1d0f10"
KEY = TopicPartition(TOPIC, 0)


def _uuid(number: int) -> str:
    return str(uuid.UUID(int=number + (4 << 76)))


def _topic(number: int, topic_id: str | None = None) -> CreateTopic:
    made, name = topic_id or _uuid(number), f"t{number}"
    fields = ({"name": "id", "type": "int64"},)
    return CreateTopic(made, name, keys.topic_directory(name, made), 4, fields, (), None, 0)


def _append(
    offset: int, producer_id: int = -1, epoch: int = -1, transactional_id: str | None = None
) -> Append:
    sequence = 0 if producer_id >= 0 else -1
    key = keys.data_key(keys.topic_directory("t0", TOPIC), 0, _uuid(offset))
    return Append(
        topic_id=TOPIC, producer_id=producer_id, epoch=epoch, transactional_id=transactional_id, partition_count=4,
        files=(FileRecord(key, 100, "0" * 64, 50, "0" * 64, 1, 0),),
        partitions=(AppendedPartition(0, 1, 1, "0" * 16, 1, 0, 0, base_sequence=sequence, base_offset=offset),),
        batches=(BatchRecord(0, 0, 0, 1, 1, 1, 0, 0),), table=None, section=0, intent=0,
    )  # fmt: skip


def _append_to(partition: int) -> Append:
    """Return an append of one record to another partition than the first."""
    first = _append(0)
    return replace(
        first,
        partitions=(replace(first.partitions[0], partition=partition),),
        batches=(replace(first.batches[0], partition=partition),),
    )


def _init(number: int) -> InitProducer:
    return InitProducer(
        transactional_id=f"x{number}", producer_id=100 + number, epoch=0, aborted=(), intent=0
    )


def _position(number: int, owner: int | None = None, *, expected: str | None = None) -> CommitOffsets:
    commits = (PositionCommit(f"p{number}", "x", "", expected),)
    if owner is None:
        return CommitOffsets("g", (), commits, None, None, -1, -1, 0)
    return CommitOffsets("g", (), commits, None, f"x{owner}", 100 + owner, 0, 0)


def _ack(number: int, owner: int | None = None) -> Ack:
    part = (AckedPartition(0, ((2 * number + 1, 2 * number + 2),)),)
    if owner is None:
        return Ack(TOPIC, "s", AckMode.INDIVIDUAL, part, None, -1, -1, 0)
    return Ack(TOPIC, "s", AckMode.INDIVIDUAL, part, f"x{owner}", 100 + owner, 0, 0)


def _end(number: int, *markers: Marker) -> EndTxn:
    return EndTxn(
        transactional_id=f"x{number}", producer_id=100 + number, epoch=0, outcome=Outcome.ABORT,
        cause=Cause.PRODUCER, markers=markers, placed=(), intent=0,
    )  # fmt: skip


def _folded(*operations: Operation) -> LogState:
    """Return a state that no fold owns anything of."""
    state = LogState(log_id=LOG, entry_sha256="0" * 64)
    batches: tuple[Sequence[Operation], ...] = (
        [_topic(0, TOPIC), AllocateProducerIds("o", 0, 99, 0), CreateSubscription(TOPIC, "s", (), 0)],
        [_init(number) for number in range(4)],
        [_append(offset) for offset in range(20)],
        operations,
    )
    for batch in batches:
        if batch:
            state = _apply(state, batch)
    return state


def _apply(state: LogState, operations: Iterable[Operation]) -> LogState:
    entry = CommitEntry(
        entry=state.entry + 1, log_id=LOG, write_id="w", previous=state.entry_sha256,
        timestamp_ms=state.timestamp_ms + 1, engine="e", intents=("i",), operations=tuple(operations),
    )  # fmt: skip
    return apply(state, entry, f"{entry.entry:064d}")


Step = tuple[list[Operation], list[Operation], Callable[[LogState], object]]
STEPS: dict[str, Step] = {
    "app_version": ([], [AppVersion("n", "a", 1, 0), AppVersion("n", "b", 1, 0)], lambda s: s.app_versions),
    "create_topic": ([], [_topic(1), _topic(2)], lambda s: s.topics),
    "names": ([], [_topic(1), _topic(2)], lambda s: s.topic_ids),
    "partitions": ([], [_append(20), _append(21)], lambda s: s.partitions),
    "producers": ([], [_append(20, 0, 0), _append(21, 1, 0)], lambda s: s.producers),
    "sequences": ([], [_append(20, 0, 0), _append(21, 1, 0)], lambda s: s.partitions[KEY].sequences),
    "open": ([], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")], lambda s: s.partitions[KEY].open),
    "transactional_ids": (
        [], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")], lambda s: s.transactional_ids
    ),
    "undecided": ([], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")], lambda s: s.undecided),
    "groups": ([], [JoinGroup(group="g", generation=1, member="m", session_timeout_ms=10, intent=0), JoinGroup(group="h", generation=1, member="m", session_timeout_ms=10, intent=0)], lambda s: s.groups),
    "committed": ([], [_position(1), _position(2)], lambda s: s.groups["g"].committed),
    "pending": ([], [_position(1, 0), _position(2, 1)], lambda s: s.groups["g"].pending),
    "pending of one": ([], [_position(1, 0), _position(2, 0)], lambda s: s.groups["g"].pending["x0"]),
    "subscriptions": ([], [_ack(1), _ack(2)], lambda s: s.subscriptions),
    "acks": ([], [_ack(1), _ack(2)], lambda s: s.subscriptions[TOPIC, "s"].partitions),
    "pending acks": (
        [], [_ack(1, 0), _ack(2, 1)], lambda s: s.subscriptions[TOPIC, "s"].partitions[0].pending
    ),
    "ends": (
        [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")],
        [_end(0, Marker(TOPIC, 0, 22)), _end(1, Marker(TOPIC, 0, 23))],
        lambda s: s.partitions[KEY].open,
    ),
    "ends of positions": (
        [_position(1, 0), _position(2, 1)], [_end(0), _end(1)], lambda s: s.groups["g"].pending
    ),
    "positions that are broken": (
        [_position(1, 0, expected=""), _position(2, 0, expected="")],
        [_position(1), _position(2)],
        lambda s: s.groups["g"].pending["x0"],
    ),
    "ends of acks": (
        [_ack(1, 0), _ack(2, 1)],
        [_end(0), _end(1)],
        lambda s: s.subscriptions[TOPIC, "s"].partitions,
    ),
    "expired groups": (
        [JoinGroup(group="g", generation=1, member="m", session_timeout_ms=10, intent=0), JoinGroup(group="h", generation=1, member="m", session_timeout_ms=10, intent=0)],
        [Expire((), (), (), ("g",), 0), Expire((), (), (), ("h",), 0)],
        lambda s: s.groups,
    ),
    "expired ids": (
        [], [Expire(("x0",), (), (), (), 0), Expire(("x1",), (), (), (), 0)], lambda s: s.transactional_ids
    ),
    "expired producers": (
        [_append(20, 0, 0), _append(21, 1, 0)],
        [Expire((), (0,), (), (), 0), Expire((), (1,), (), (), 0)],
        lambda s: s.producers,
    ),
    "blocks": (
        [], [AllocateProducerIds("o", 104, 109, 0), AllocateProducerIds("o", 110, 119, 0)], lambda s: s.blocks
    ),
    "expired blocks": (
        [AllocateProducerIds("o", 104, 109, 0)],
        [Expire((), (), (0,), (), 0), Expire((), (), (104,), (), 0)],
        lambda s: s.blocks,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_operations_of_one_entry_share_one_copy(name: str) -> None:
    """A copy for each would cost the square of their number: 67 kB of application versions took 8.6 s."""
    before, (first, second), part = STEPS[name]
    state = _folded(*before)
    at = At(state.entry + 1, state.timestamp_ms + 1)
    one = apply_operation(state, first, at)
    copy = part(one)
    two = apply_operation(one, second, at)
    assert part(two) is copy


@pytest.mark.parametrize("name", STEPS)
def test_a_state_that_somebody_holds_never_changes(name: str) -> None:
    before, operations, _ = STEPS[name]
    state = _folded(*before)
    digest, held = state_digest(state), pickle.dumps(state)
    after = _apply(state, operations)
    told = state_digest(after)
    assert (state_digest(state), pickle.dumps(state)) == (digest, held)
    again = _apply(state, operations)
    assert state_digest(again) == told == state_digest(after)
    later = _apply(after, [AppVersion("n", "later", 1, 0), _position(9), _ack(9)])
    assert state_digest(after) == told != state_digest(later)


IN_ONE_ENTRY: dict[str, list[Operation]] = {
    **{name: [*before, *operations] for name, (before, operations, _) in STEPS.items()},
    "a producer appends between two that expire": [
        _append(20, 0, 0),
        Expire((), (0,), (), (), 0),
        _append(21, 1, 0),
        Expire((), (1,), (), (), 0),
    ],
    "an ack is pending between two ends": [_ack(1, 0), _end(0), _ack(2, 1), _ack(3, 2), _end(1), _end(2)],
    "an id acknowledges in another partition after its end": [
        _append_to(1),
        _ack(1, 0),
        _end(0),
        replace(_ack(0, 0), partitions=(AckedPartition(1, ((0, 1),)),), epoch=1),
        replace(_end(0), epoch=1),
    ],
    "a position is pending between two ends": [
        _position(1, 0, expected=""),
        _end(0),
        _position(2, 1, expected=""),
        _position(2),
        _position(3, 2),
        _end(2),
    ],
}


@pytest.mark.parametrize("name", IN_ONE_ENTRY)
def test_what_a_fold_looks_up_once_stays_true(name: str) -> None:
    """The indexes of ``At`` answer for the operations before, not for the state that the entry began with."""
    together = apart = _folded()
    at = At(together.entry + 1, together.timestamp_ms + 1)
    for operation in IN_ONE_ENTRY[name]:
        together = apply_operation(together, operation, at)
        apart = apply_operation(apart, operation, At(at.entry, at.timestamp_ms))
    assert state_digest(together) == state_digest(apart)


def test_open_transactions_stand_in_the_order_of_their_first_offsets() -> None:
    """So the oldest is found without a look at the others; a snapshot names them by producer."""
    state = _folded(_append(20, 103, 0, "x3"), _append(21, 100, 0, "x0"))
    assert [*state.partitions[KEY].open.values()] == [20, 21]
    data = encode_snapshot(state)
    checkpoint = Checkpoint(
        state.entry, keys.snapshot_key(state.entry, LOG), len(data), sha256_hex(data), state_digest(state)
    )
    opened = decode_snapshot(data, checkpoint, LOG)
    assert [*opened.partitions[KEY].open.items()] == [((103, 0), 20), ((100, 0), 21)]
    assert opened.partitions[KEY].last_stable_offset == 20


def test_a_draft_belongs_to_one_owner() -> None:
    mine, yours = object(), object()
    first = put({"a": 1}, "b", 2, mine)
    assert put(first, "c", 3, mine) is first
    second = put(first, "d", 4, yours)
    assert first == {"a": 1, "b": 2, "c": 3}
    assert second is not first
    assert without(first, ["a", "z"], yours) == {"b": 2, "c": 3}
    assert draft(first, mine) is first
    values = drafted_set(frozenset("ab"), mine, more="c", fewer="a")
    assert drafted_set(values, mine, more="d") is values
    assert drafted_set(values, yours) is not values
    assert values == frozenset("bcd")
    assert type(pickle.loads(pickle.dumps(first))) is dict
    assert type(pickle.loads(pickle.dumps(values))) is frozenset


def test_a_draft_is_made_anew_when_many_items_are_gone() -> None:
    """The first item of a dict is found by stepping over the places of those that are gone."""
    owner = object()
    mapping = {number: str(number) for number in range(3_000)}
    copy = draft(mapping, owner)
    for number in range(2_990):
        assert without(copy, (number, -1), owner) is copy
        assert copy.gone <= GONE_MIN + len(copy) // 16  # type: ignore[attr-defined]  # a draft's own
        assert next(iter(copy)) == number + 1
    assert copy == {number: str(number) for number in range(2_990, 3_000)}
    assert [*copy] == [*range(2_990, 3_000)]
    assert len(mapping) == 3_000
