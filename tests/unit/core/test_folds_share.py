"""States share their parts: no state that somebody holds ever changes, and a commit costs what it changes,
however much the state has."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
import uuid
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import pytest

from txnformat import keys
from txnformat.core.app_versions.state import VersionAt
from txnformat.core.assemble import assemble
from txnformat.core.entry import CommitEntry, sha256_hex
from txnformat.core.fold import apply, apply_operation
from txnformat.core.folding import At
from txnformat.core.groups.operations import CommitOffsets, GroupKey, JoinGroup, PositionCommit
from txnformat.core.groups.state import Committed, GroupState
from txnformat.core.intents import AppRef, GroupOffsets, Intent, ProducerRef, TopicAppend, Write
from txnformat.core.invariants import check_state
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
    PendingPartition,
)
from txnformat.core.producers.state import AppendedRange
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState, ProducerIdBlock, UsedAt
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode, CreateSubscription
from txnformat.persistent import replace
from txnformat.types import IDEMPOTENT_EPOCH, BatchRecord, FileRecord, Outcome, TopicPartition

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
    (file,) = first.files
    return replace(
        first,
        files=(replace(file, key=file.key.replace("/data/0", "/data/1")),),
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


Step = tuple[list[Operation], list[Operation]]
STEPS: dict[str, Step] = {
    "app_version": ([], [AppVersion("n", "a", 1, 0), AppVersion("n", "b", 1, 0)]),
    "create_topic": ([], [_topic(1), _topic(2)]),
    "partitions": ([], [_append(20), _append(21)]),
    "producers": ([], [_append(20, 0, 0), _append(21, 1, 0)]),
    "sequences": ([], [_append(20, 0, 0), _append(21, 1, 0)]),
    "open": ([], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")]),
    "transactional_ids": (
        [], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")]
    ),
    "undecided": ([], [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")]),
    "groups": ([], [JoinGroup(group="g", generation=1, member="m", session_timeout_ms=10, intent=0), JoinGroup(group="h", generation=1, member="m", session_timeout_ms=10, intent=0)]),
    "committed": ([], [_position(1), _position(2)]),
    "pending": ([], [_position(1, 0), _position(2, 1)]),
    "pending of one": ([], [_position(1, 0), _position(2, 0)]),
    "subscriptions": ([], [_ack(1), _ack(2)]),
    "acks": ([], [_ack(1), _ack(2)]),
    "pending acks": (
        [], [_ack(1, 0), _ack(2, 1)]
    ),
    "ends": (
        [_append(20, 100, 0, "x0"), _append(21, 101, 0, "x1")],
        [_end(0, Marker(TOPIC, 0, 22)), _end(1, Marker(TOPIC, 0, 23))],
    ),
    "ends of positions": (
        [_position(1, 0), _position(2, 1)], [_end(0), _end(1)]
    ),
    "positions that are broken": (
        [_position(1, 0, expected=""), _position(2, 0, expected="")],
        [_position(1), _position(2)],
    ),
    "ends of acks": (
        [_ack(1, 0), _ack(2, 1)],
        [_end(0), _end(1)],
    ),
    "expired groups": (
        [JoinGroup(group="g", generation=1, member="m", session_timeout_ms=10, intent=0), JoinGroup(group="h", generation=1, member="m", session_timeout_ms=10, intent=0)],
        [Expire((), (), (), ("g",), 0), Expire((), (), (), ("h",), 0)],
    ),
    "expired ids": (
        [], [Expire(("x0",), (), (), (), 0), Expire(("x1",), (), (), (), 0)]
    ),
    "expired producers": (
        [_append(20, 0, 0), _append(21, 1, 0)],
        [Expire((), (0,), (), (), 0), Expire((), (1,), (), (), 0)],
    ),
    "blocks": (
        [], [AllocateProducerIds("o", 104, 109, 0), AllocateProducerIds("o", 110, 119, 0)]
    ),
    "expired blocks": (
        [AllocateProducerIds("o", 104, 109, 0)],
        [Expire((), (), (0,), (), 0), Expire((), (), (104,), (), 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_state_that_somebody_holds_never_changes(name: str) -> None:
    before, operations = STEPS[name]
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
    **{name: [*before, *operations] for name, (before, operations) in STEPS.items()},
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


MANY = 20_000
OTHER = _uuid(999)
WRITER = ProducerRef(100, 0, "x0")


def _with_many(state: LogState, what: str) -> LogState:
    """Return a state with many more of something, which the commits that are measured do not name."""
    numbers = range(1_000, 1_000 + MANY)
    part = state.partition(KEY)
    match what:
        case "producers":
            more: dict[str, Any] = {"producers": {number: UsedAt(0, 0) for number in numbers}}
        case "partitions":
            more = {"partitions": {TopicPartition(OTHER, number): part for number in numbers}}
        case "groups":
            more = {"groups": {f"h{number}": GroupState() for number in numbers}}
        case "transactional_ids":
            known = state.transactional_ids["x1"]
            more = {
                "transactional_ids": {f"y{number}": known for number in numbers},
                "owners": {number: f"y{number}" for number in numbers},
            }
        case "blocks":
            more = {"blocks": {number: ProducerIdBlock("o", number, number, 0) for number in numbers}}
        case "app_versions":
            more = {"app_versions": {("n", f"a{number}"): VersionAt(1, 0) for number in numbers}}
        case "undecided":
            return replace(state, undecided=frozenset(f"y{number}" for number in numbers))
        case "positions":
            committed: dict[GroupKey, Committed] = {
                f"p{number}": Committed("x", "", 0, 0, 0) for number in numbers
            }
            return replace(state, groups={"g": GroupState(commits=1, committed=committed)})
        case "producers of the partition":
            window = (AppendedRange(0, 0, "0" * 16, 0, 0),)
            known_to_it = replace(part, sequences={(number, IDEMPOTENT_EPOCH): window for number in numbers})
            more = {
                "producers": {number: UsedAt(0, 0) for number in numbers},
                "partitions": {KEY: known_to_it},
            }
        case "open transactions of the partition":
            more = {"partitions": {KEY: replace(part, open={(number, 0): 0 for number in numbers})}}
        case _:
            return state
    return replace(state, **{name: {**getattr(state, name), **items} for name, items in more.items()})


def _commits(state: LogState, turn: int) -> list[Write]:
    """Return a commit of each kind; ``turn`` counts those before it."""

    def append(producer: ProducerRef | None, sequence: int) -> TopicAppend:
        one = _append(state.partition(KEY).log_end)
        part = PendingPartition(0, 1, 1, sequence if producer else -1, "0" * 16, 1, 0, 0)
        return TopicAppend(TOPIC, 4, one.files, (part,), one.batches)

    writer, own = replace(WRITER, epoch=turn), ProducerRef(turn, IDEMPOTENT_EPOCH)
    position = GroupOffsets("g", positions=(PositionCommit(f"p{1_000 + turn}", "y"),))
    return [
        Write(writer, (append(writer, 0),), Outcome.COMMIT, offsets=(position,)),
        Write(own, (append(own, 0),)),
        Write(appends=(append(None, -1),), app=AppRef("n", f"b{turn}", 1)),
        Write(offsets=(position,)),
    ]


def _cost(state: LogState, write: Write, *, checked: bool) -> tuple[LogState, int, int]:
    """Return the state after a commit that is decided, folded and perhaps checked, the lines of Python that
    ran, and the bytes that it took at most."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    intent = Intent(_uuid(state.entry), state.entry + 1, write)
    before, tracing = sys.gettrace(), tracemalloc.is_tracing()
    tracemalloc.start()
    tracemalloc.reset_peak()
    begun, _ = tracemalloc.get_traced_memory()
    sys.settrace(trace)
    try:
        done = assemble(state, [intent], store_time_ms=state.timestamp_ms + 1, write_id=LOG)
        assert done.entry is not None, done.verdicts
        problems = check_state(state, done.entry, done.after) if checked else []
    finally:
        sys.settrace(before)
        _, peak = tracemalloc.get_traced_memory()
        if not tracing:
            tracemalloc.stop()
    assert problems == []
    return done.after, lines, peak - begun


def _costs(what: str, *, checked: bool) -> list[tuple[int, int]]:
    """Return lines and bytes of each kind of commit: the least of several, for interpreters fill caches of
    their own.

    The first commits are not counted: they make maps of the dicts that the test has made.
    """
    state = replace(_with_many(_folded(), what), next_producer_id=100_000)
    lines: list[list[int]] = [[] for _ in range(4)]
    peaks: list[list[int]] = [[] for _ in range(4)]
    for turn in range(4):
        for kind in range(4):
            state, ran, peak = _cost(state, _commits(state, turn)[kind], checked=checked)
            if turn:
                lines[kind].append(ran)
                peaks[kind].append(peak)
    return list(zip(map(min, lines), map(min, peaks), strict=True))


CHECKED = (
    "producers",
    "partitions",
    "groups",
    "transactional_ids",
    "blocks",
    "app_versions",
    "undecided",
    "producers of the partition",
)


@pytest.mark.parametrize("what", [*CHECKED, "positions", "open transactions of the partition"])
def test_a_commit_runs_as_many_lines_and_takes_as_much_memory_beside_many(what: str) -> None:
    """A copy of what the state has would take hundreds of kilobytes, and a look at each of it tens of
    thousands of lines.

    The invariants of a step look at all positions of a group and all open transactions of a partition that it
    names.
    """
    checked = what in CHECKED
    plain, beside = _costs("nothing", checked=checked), _costs(what, checked=checked)
    for (lines, peak), (lines_many, peak_many) in zip(plain, beside, strict=True):
        assert lines_many <= lines + 200
        assert peak_many <= peak + 50_000
