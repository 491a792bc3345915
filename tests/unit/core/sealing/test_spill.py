"""Spilling: what it takes, what it leaves, the bytes of its object, and every spill and seal that does not
fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.decide import decide
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import At, apply_operation
from txnformat.core.intents import (
    Action,
    EnableFeatures,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    RemoveTopic,
    SealSegments,
    SpillExtents,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import Checkpoint, Seal, Spill
from txnformat.core.records.invariants import check_partition_step
from txnformat.core.sealing.spills import Spilled, SpilledRows, spilled_from, unspilled
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.snapshot.spilled import decode_spill, encode_spill
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.errors import CorruptDataError, InvalidInputError, TxnLogError
from txnformat.keys import data_key, snapshot_key, table_key
from txnformat.persistent import replace
from txnformat.protocol.sealing import seal_due, sealable, sealable_end, with_spills, write_segments
from txnformat.protocol.spilling import log_ends, spillable, write_spill
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord, ObjectRecord, OffsetRange, Outcome, TopicPartition
from txnformat.verify.report import Record
from txnformat.verify.sidecars import check_spill
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.strategies import make_append, make_topic

ORDERS = make_topic("orders")
KEY = TopicPartition(ORDERS.topic_id, 0)
HELD, QUICK, LATE = ProducerRef(0, 0, "held"), ProducerRef(1, 0, "quick"), ProducerRef(2, 0, "late")
UUID = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"
NO_BOUND = 1
"""Of extents in the state: whatever there is is spilled."""


def step(state: LogState, action: Action) -> LogState:
    intent = Intent(f"intent {state.entry + 1}", state.entry + 1, action)
    assembled = assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
    assert assembled.entry is not None, assembled.verdicts
    assert check_state(state, assembled.entry, assembled.after) == []
    assert check_whole(assembled.after) == []
    return assembled.after


def rejected(state: LogState, action: Action) -> TxnLogError:
    verdict = decide(state, Intent("another", state.entry + 1, action))
    assert isinstance(verdict, Rejected)
    return verdict.error


def written(ref: ProducerRef | None, sequence: int, count: int, content: str) -> Write:
    first = -1 if ref is None else sequence
    return Write(ref, (make_append(ORDERS, {0: (first, count)}, content=content),))


def history() -> LogState:
    """Offsets: 0-1 plain, 2-3 held (open), 4-6 quick, 7 abort of quick, 8-9 late (open), 10 plain, 11-12
    quick, 13 commit of quick."""
    state = LogState(UUID, entry_sha256=sha256_hex(b"format"))
    actions: tuple[Action, ...] = (
        EnableFeatures((LIFECYCLE,)),
        ORDERS,
        *(OpenProducer(name) for name in ("held", "quick", "late")),
        written(None, 0, 2, "a"),
        written(HELD, 0, 2, "b"),
        written(QUICK, 0, 3, "c"),
        Write(QUICK, end=Outcome.ABORT),
        written(LATE, 0, 2, "d"),
        written(None, 0, 1, "e"),
        written(replace(QUICK, epoch=1), 0, 2, "f"),
        Write(replace(QUICK, epoch=1), end=Outcome.COMMIT),
    )
    for action in actions:
        state = step(state, action)
    return state


class World:
    """A state whose objects are in a store, sealed as far as it goes and spilled behind."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.driver = Driver(self.store, SystemClock(), CountedIds())
        self.state = self.before = self.seal(history())

    def seal(self, state: LogState) -> LogState:
        seal = self.written_seal(state)
        return state if seal is None else step(state, SealSegments(seal))

    def written_seal(self, state: LogState) -> Seal | None:
        return self.driver.run(write_segments(state))

    def written_spill(self, state: LogState, ends: dict[TopicPartition, int] | None = None) -> Spill:
        spill = self.driver.run(write_spill(state, NO_BOUND, ends))
        assert spill is not None
        return spill

    def whole(self, state: LogState) -> LogState:
        return self.driver.run(with_spills(state, {KEY: 0}))

    def read(self, named: ObjectRecord) -> Spilled:
        return decode_spill(self.store.get(named.key), named)


WORLD = World()
BEFORE = WORLD.before
SPILL = WORLD.written_spill(BEFORE)
AFTER = step(BEFORE, SpillExtents(SPILL))


def test_what_is_held_back_leaves_the_state_with_its_files_and_comes_back_as_it_was() -> None:
    partition = AFTER.partition(KEY)
    assert (partition.sealed_end, partition.spilled_end, partition.log_end) == (2, 14, 14)
    assert (len(partition.extents), len(partition.markers), len(partition.aborted)) == (0, 0, 0)
    assert (AFTER.extents, len(AFTER.files), len(AFTER.tables)) == (0, 0, 1)
    assert partition.aborted_transactions == 1
    assert (partition.open, partition.sequences) == (
        BEFORE.partition(KEY).open,
        BEFORE.partition(KEY).sequences,
    )
    assert spillable(AFTER, NO_BOUND) == sealable(AFTER) == {}
    whole, was = WORLD.whole(AFTER), BEFORE.partition(KEY)
    now = whole.partition(KEY)
    for name in ("extents", "markers", "aborted"):
        assert getattr(now, name).array().tolist() == getattr(was, name).array().tolist()
    assert dict(zip(whole.files.numbers(), whole.files, strict=True)) == dict(
        zip(BEFORE.files.numbers(), BEFORE.files, strict=True)
    )


def test_a_snapshot_holds_spills_and_a_state_without_them_has_the_digest_of_before() -> None:
    data = encode_snapshot(AFTER)
    named = Checkpoint(
        AFTER.entry, snapshot_key(AFTER.entry, UUID), len(data), sha256_hex(data), state_digest(AFTER)
    )
    restored = decode_snapshot(data, named, UUID)
    assert restored.partition(KEY).spills == AFTER.partition(KEY).spills
    assert state_digest(restored) == state_digest(AFTER)
    moved = replace(AFTER.partition(KEY), spills=(replace(AFTER.partition(KEY).spills[0], start_offset=3),))
    unknown = replace(AFTER.partition(KEY), spills=(replace(AFTER.partition(KEY).spills[0], table=77),))
    for wrong in (moved, unknown):
        state = replace(AFTER, partitions={KEY: wrong})
        data = encode_snapshot(state)
        named = replace(named, size=len(data), sha256=sha256_hex(data), digest=state_digest(state))
        with pytest.raises(CorruptDataError):
            decode_snapshot(data, named, UUID)


TOTALS = ("extents", "batches", "markers", "aborted", "records", "size")
CUT = dict(zip(TOTALS, (1, 1, 0, 0, 2, int(BEFORE.partition(KEY).extents.array()["size"][0])), strict=True))
"""Totals of the first extent, whose second offset is left out."""


def _part(**changes: object) -> Callable[[Spill], Spill]:
    return lambda spill: replace(spill, partitions=(replace(spill.partitions[0], **changes),))


@pytest.mark.parametrize(
    "change",
    [
        _part(start_offset=0),
        _part(start_offset=3),
        _part(end_offset=13),
        _part(end_offset=15),
        _part(end_offset=2),
        _part(end_offset=2, **dict.fromkeys(TOTALS, 0)),
        _part(end_offset=3, **CUT),
        _part(end_offset=5),
        _part(extents=5),
        _part(batches=99),
        _part(markers=1),
        _part(aborted=0),
        _part(records=9),
        _part(size=0),
        _part(partition=1),
        _part(topic_id=UUID),
        _part(replaced=(table_key(1, UUID),)),
    ],
)
def test_a_spill_that_does_not_fit_is_corrupt(change: Callable[[Spill], Spill]) -> None:
    apply_operation(BEFORE, SPILL, At(BEFORE.entry + 1, 1))
    with pytest.raises(CorruptDataError):
        apply_operation(BEFORE, change(SPILL), At(BEFORE.entry + 1, 1))


def test_a_log_whose_readers_do_not_know_spills_has_none() -> None:
    older = replace(BEFORE, features=BEFORE.features._replace(reader=frozenset({"base-1"})))
    assert spillable(older, NO_BOUND) == {}
    assert rejected(older, SpillExtents(SPILL)).kind == "upgrade-required"
    with pytest.raises(CorruptDataError):
        apply_operation(older, SPILL, At(BEFORE.entry + 1, 1))


def test_two_writers_cannot_spill_the_same_offsets() -> None:
    other = WORLD.written_spill(BEFORE)
    assert other.table.key != SPILL.table.key
    assert rejected(AFTER, SpillExtents(other)).kind == "spill-superseded"
    assert isinstance(decide(BEFORE, Intent("x", BEFORE.entry + 1, SpillExtents(other))), Included)
    again = step(AFTER, written(None, 0, 9, "g"))
    both = WORLD.written_spill(again)
    (part,) = both.partitions
    assert (part.start_offset, part.end_offset, part.replaced) == (2, 23, (SPILL.table.key,))
    merged = step(again, SpillExtents(both))
    assert [one.start_offset for one in merged.partition(KEY).spills] == [2]
    assert len(merged.tables) == 1, "the object that was taken in is named no more"
    assert rejected(merged, SpillExtents(both)).kind == "spill-superseded"
    # Another writer has taken in other objects, or the same offsets by another one.
    third = step(merged, written(None, 0, 1, "h"))
    stale = replace(both, partitions=(replace(both.partitions[0], end_offset=24),))
    assert rejected(third, SpillExtents(stale)).kind == "spill-superseded"


def test_what_can_be_sealed_is_not_spilled() -> None:
    """Between the object and its entry the transaction ends: the offsets are below the last stable offset,
    and the seal takes them."""
    ended = step(BEFORE, Write(HELD, end=Outcome.COMMIT))
    assert ended.partition(KEY).last_stable_offset == 8
    assert rejected(ended, SpillExtents(SPILL)).kind == "spill-superseded"
    with pytest.raises(CorruptDataError):
        apply_operation(ended, SPILL, At(ended.entry + 1, 1))
    assert spillable(ended, NO_BOUND) == {}, "the seal comes first"


def test_a_seal_takes_a_spill_whole_and_is_the_same_as_without_it() -> None:
    states = {}
    for name, state in (("spilled", AFTER), ("plain", step(BEFORE, OpenProducer("as many entries")))):
        ended = step(state, Write(HELD, end=Outcome.COMMIT))
        if name == "spilled":
            assert ended.partition(KEY).last_stable_offset == 8
            assert sealable_end(ended.partition(KEY)) == 2, (
                "another transaction holds the middle of the spill"
            )
            assert sealable(ended) == {}
        states[name] = step(ended, Write(LATE, end=Outcome.ABORT))
    assert sealable(states["spilled"]) == sealable(states["plain"]) == {KEY: OffsetRange(2, 16)}
    seals = {name: WORLD.written_seal(state) for name, state in states.items()}
    bodies = []
    for seal in seals.values():
        assert seal is not None
        (segment,) = seal.segments
        named = (segment.index, segment.markers, segment.txnindex)
        bodies.append((segment.partitions, [one and WORLD.store.get(one.key) for one in named]))
    assert bodies[0] == bodies[1]
    assert seals["spilled"] is not None
    sealed = step(states["spilled"], SealSegments(seals["spilled"]))
    assert sealed.partition(KEY).spills == ()
    assert (sealed.extents, len(sealed.tables), len(sealed.files)) == (0, 0, 0)
    assert sealed.partition(KEY).aborted_transactions == 2


def test_a_seal_does_not_end_inside_of_a_spill() -> None:
    state = step(step(AFTER, Write(HELD, end=Outcome.COMMIT)), Write(LATE, end=Outcome.COMMIT))
    plain = step(step(BEFORE, Write(HELD, end=Outcome.COMMIT)), Write(LATE, end=Outcome.COMMIT))
    seal = WORLD.driver.run(write_segments(plain, {KEY: 8}))
    assert seal is not None
    assert seal.segments[0].partitions[0].end_offset == 8
    assert sealable(state, {KEY: 8}) == {}
    assert rejected(state, SealSegments(seal)).kind == "seal-superseded"
    with pytest.raises(CorruptDataError):
        apply_operation(state, seal, At(state.entry + 1, 1))


def test_a_seal_in_steps_counts_what_is_aborted_in_the_spill_behind() -> None:
    """A transaction has records in the first spill and its abort in the second."""
    state = WORLD.seal(history())
    first = WORLD.written_spill(state, {KEY: 7})
    state = step(state, SpillExtents(first))
    state = step(state, SpillExtents(_only_state(WORLD, state)))
    assert [(one.start_offset, one.end_offset) for one in state.partition(KEY).spills] == [(2, 7), (7, 14)]
    for ref in (HELD, LATE):
        state = step(state, Write(ref, end=Outcome.COMMIT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.sealing.BATCHES_MAX", 1)
        seal = WORLD.written_seal(state)
    assert seal is not None
    (part,) = seal.segments[0].partitions
    assert (part.start_offset, part.end_offset, part.aborted) == (2, 7, 1)
    apply_operation(state, seal, At(state.entry + 1, 1))
    for aborted in (-1, 2):
        wrong = replace(
            seal,
            segments=(replace(seal.segments[0], partitions=(replace(part, aborted=aborted),)),),
        )
        with pytest.raises(CorruptDataError):
            apply_operation(state, wrong, At(state.entry + 1, 1))
    state = step(state, SealSegments(seal))
    assert [one.start_offset for one in state.partition(KEY).spills] == [7]
    state = WORLD.seal(state)
    assert (state.partition(KEY).spills, state.partition(KEY).sealed_end) == ((), 16)


def _only_state(world: World, state: LogState) -> Spill:
    """Return the spill of what is in the state, without those before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("txnformat.protocol.spilling.RATIO", 0)
        return world.written_spill(state)


def test_spills_are_merged_so_that_few_are_left() -> None:
    state, most, written_rows = AFTER, 0, 0
    for number in range(60):
        state = step(state, written(None, 0, 1, f"write {number}"))
        spill = WORLD.written_spill(state)
        written_rows += sum(part.extents for part in spill.partitions)
        state = step(state, SpillExtents(spill))
        most = max(most, len(state.partition(KEY).spills))
        assert len(state.tables) == len(state.partition(KEY).spills)
    assert most <= 6
    assert written_rows <= 60 * 8, "a row is written a few times, not with each spill"


def test_a_deleted_topic_takes_its_spills_along() -> None:
    state = step(AFTER, RemoveTopic(ORDERS.topic_id, force=True, prepared=()))
    assert (state.partitions, len(state.tables)) == ({}, 0)
    assert rejected(state, SpillExtents(SPILL)).kind == "spill-superseded"


def test_a_spill_is_due_as_a_seal_is() -> None:
    assert BEFORE.extents == 6
    assert seal_due(BEFORE, 4, appended_by_us=True, uniform=0.9, bound=5)
    assert not seal_due(BEFORE, 6, appended_by_us=True, uniform=0.9, bound=5)
    assert not seal_due(AFTER, 0, appended_by_us=True, uniform=0.0, bound=5)
    older = replace(BEFORE, features=BEFORE.features._replace(reader=frozenset({"base-1"})))
    assert not seal_due(older, 4, appended_by_us=True, uniform=0.9, bound=5)


def test_what_is_appended_meanwhile_is_left_for_the_next_time() -> None:
    ends = log_ends(BEFORE)
    later = step(BEFORE, written(None, 0, 5, "later"))
    assert spillable(later, NO_BOUND, ends) == {KEY: OffsetRange(2, 14)}
    assert spillable(later, 16 * 40, None) == {}, "too few rows are not worth an object"


def test_every_flipped_bit_of_a_spill_is_found() -> None:
    data = WORLD.store.get(SPILL.table.key)
    assert data is not None
    for position in range(0, len(data), 61):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptDataError) as caught:
            decode_spill(bytes(damaged), SPILL.table)
        assert caught.value.kind == "corrupt-sidecar"
    with pytest.raises(CorruptDataError):
        decode_spill(None, SPILL.table)


def _encoded(spilled: Spilled) -> tuple[bytes, ObjectRecord]:
    data = encode_spill(spilled)
    return data, replace(SPILL.table, size=len(data), sha256=sha256_hex(data))


def test_an_object_that_is_named_but_makes_no_sense_is_refused() -> None:
    found = WORLD.read(SPILL.table)
    assert decode_spill(*_encoded(found)).files == found.files
    rows = found.partitions[KEY]
    endless = rows.extents.copy()
    endless["table"], endless["file"], endless["file_count"] = 5, -1, 2**31 - 1
    backwards = rows.extents[::-1].copy()
    wrong = [
        found._replace(files={}),
        found._replace(partitions={KEY: rows._replace(extents=endless)}, tables={5: SPILL.table}),
        found._replace(partitions={KEY: rows._replace(extents=backwards)}),
    ]
    for one in wrong:
        with pytest.raises(CorruptDataError) as caught:
            decode_spill(*_encoded(one))
        assert caught.value.kind == "corrupt-sidecar"
    for data in (b"no arrow", encode_spill(found)[:-9]):
        with pytest.raises(CorruptDataError) as caught:
            decode_spill(data, ObjectRecord(SPILL.table.key, len(data), sha256_hex(data)))
        assert caught.value.kind == "corrupt-sidecar"


def test_rows_that_are_not_those_of_the_entry_are_refused() -> None:
    found = WORLD.read(SPILL.table)
    (number,) = [one.table for one in AFTER.partition(KEY).spills]
    rows = found.partitions[KEY]
    other = FileRecord(data_key("others-00000000", 1, UUID), 100, "0" * 64, 10, "0" * 64, 1)
    for wrong in (
        found._replace(partitions={}),
        found._replace(partitions={KEY: rows._replace(markers=rows.markers[:1])}),
        found._replace(partitions={KEY: SpilledRows(rows.extents[1:], rows.markers, rows.aborted)}),
        found._replace(files=dict.fromkeys(found.files, other)),
    ):
        with pytest.raises(CorruptDataError):
            unspilled(AFTER, {KEY: 0}, {number: wrong})
    assert unspilled(AFTER, {KEY: 14}, {}) is AFTER


def test_an_invariant_is_told_by_each_state_that_breaks_it() -> None:
    partition = AFTER.partition(KEY)
    (spill,) = partition.spills
    for wrong in (
        replace(spill, start_offset=3),
        replace(spill, records=1),
        replace(spill, batches=0),
        replace(spill, aborted=9),
        replace(spill, table=99),
    ):
        state = replace(AFTER, partitions={KEY: replace(partition, spills=(wrong,))})
        assert any("I25" in problem for problem in check_whole(state))


def test_a_step_that_goes_back_or_spills_what_can_be_sealed_breaks_the_invariant() -> None:
    partition = AFTER.partition(KEY)
    (spill,) = partition.spills
    ended = replace(partition, open={})  # the last stable offset is the log end
    halves = (replace(spill, end_offset=8), replace(spill, start_offset=8))
    for old, new in (
        (partition, replace(partition, spills=())),
        (replace(ended, spills=()), ended),
        (replace(partition, spills=halves), replace(partition, sealed_end=5, spills=halves)),
    ):
        assert any("I25" in problem for problem in check_partition_step(old, new, AFTER))


def two_partitions() -> LogState:
    """A transaction holds partition 0 back, and another one partition 1."""
    state = LogState(UUID, entry_sha256=sha256_hex(b"format"))
    actions: tuple[Action, ...] = (
        EnableFeatures((LIFECYCLE,)),
        ORDERS,
        *(OpenProducer(name) for name in ("held", "quick", "late")),
        Write(HELD, (make_append(ORDERS, {0: (0, 2)}, content="held"),)),
        Write(LATE, (make_append(ORDERS, {1: (0, 2)}, content="late"),)),
        *(
            Write(None, (make_append(ORDERS, {0: (-1, 3), 1: (-1, 4)}, content=f"plain {number}"),))
            for number in range(4)
        ),
    )
    for action in actions:
        state = step(state, action)
    return state


def test_a_partition_that_can_be_sealed_by_now_is_left_out_and_the_rest_is_spilled() -> None:
    state = two_partitions()
    spill = WORLD.written_spill(state)
    assert len(spill.partitions) == 2
    ended = step(state, Write(LATE, end=Outcome.COMMIT))
    after = step(ended, SpillExtents(spill))
    other = TopicPartition(ORDERS.topic_id, 1)
    assert (after.partition(KEY).spilled_end, after.partition(other).spills) == (14, ())
    assert len(after.partition(other).extents) == len(ended.partition(other).extents)
    assert check_spill_of(after, spill) == []
    sealed = WORLD.seal(step(after, Write(HELD, end=Outcome.ABORT)))
    assert (sealed.extents, len(sealed.tables)) == (0, 0)


def check_spill_of(state: LogState, spill: Spill) -> list[object]:
    """Return what verify has to say of the object of a spill that a state names."""
    record = Record()
    whole = WORLD.whole(state)
    (one,) = state.partition(KEY).spills
    expected = spilled_from(whole, {KEY: (one.start_offset, one.end_offset)})
    data = WORLD.store.get(spill.table.key)
    assert data is not None
    assert check_spill(record, spill.table, data, expected) is not None
    return list(record.problems)


def test_a_spill_that_would_be_too_large_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnformat.core.snapshot.spilled.METADATA_BYTES_MAX", 2_500)
    monkeypatch.setattr("txnformat.protocol.spilling.BATCHES_MAX", 16)
    state = two_partitions()
    count = 0
    while (spill := WORLD.driver.run(write_spill(state, NO_BOUND))) is not None:
        state, count = step(state, SpillExtents(spill)), count + 1
    assert count > 2
    assert state.extents == 0
    monkeypatch.setattr("txnformat.core.snapshot.spilled.METADATA_BYTES_MAX", 10)
    with pytest.raises(InvalidInputError) as caught:
        WORLD.written_spill(two_partitions())
    assert caught.value.kind == "metadata-too-large"
