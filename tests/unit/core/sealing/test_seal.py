"""Sealing: what it takes, what it leaves, the bytes of sidecars, and every seal that does not fit."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.columns.arrow_file import encode_arrow_file
from txnformat.core.assemble import assemble
from txnformat.core.decide import decide
from txnformat.core.entry import sha256_hex
from txnformat.core.fold import At, apply_operation
from txnformat.core.intents import (
    Action,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    SealSegments,
    Write,
)
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Seal, SealedPartition
from txnformat.core.records.batch_table import encode_batch_table
from txnformat.core.records.state import SEGMENT
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    SegmentPart,
    decode_segment_list,
    encode_segment_list,
)
from txnformat.core.sealing.sidecar import (
    INDEX_ROW,
    BatchOutcome,
    decode_index,
    decode_markers,
    decode_txnindex,
    encode_index,
)
from txnformat.core.state import LogState
from txnformat.core.transactions import abort_index
from txnformat.core.wire.document import METADATA_BYTES_MAX
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.keys import data_key, table_key, topic_directory
from txnformat.persistent import replace
from txnformat.protocol.sealing import UNSEALABLE_BATCHES, seal_due, sealable, stable_ends, write_segments
from txnformat.reading.plan import plan_read
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import (
    FileRecord,
    ObjectRecord,
    OffsetRange,
    Outcome,
    SegmentListRecord,
    SegmentRecord,
    TopicPartition,
)
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.strategies import make_append, make_topic

ORDERS = make_topic("orders")
KEY = TopicPartition(ORDERS.topic_id, 0)
ETL, OTHER = ProducerRef(0, 0, "etl"), ProducerRef(1, 0, "other")


def step(state: LogState, action: Action) -> LogState:
    intent = Intent(f"intent {state.entry + 1}", state.entry + 1, action)
    assembled = assemble(state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
    assert assembled.entry is not None, assembled.verdicts
    return assembled.after


def written(ref: ProducerRef | None, sequence: int, count: int, content: str) -> Write:
    first = -1 if ref is None else sequence
    return Write(ref, (make_append(ORDERS, {0: (first, count)}, content=content),))


def history() -> LogState:
    """Offsets: 0-3 etl, 4-5 other, 6 abort of etl, 7-9 plain, 10-11 other, 12 commit of other, 13-14 etl
    (open)."""
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    for action in (
        ORDERS,
        OpenProducer("etl"),
        OpenProducer("other"),
        written(ETL, 0, 4, "a"),
        written(OTHER, 0, 2, "b"),
        Write(ETL, end=Outcome.ABORT),
        written(None, 0, 3, "c"),
        written(OTHER, 2, 2, "d"),
        Write(OTHER, end=Outcome.COMMIT),
        written(replace(ETL, epoch=1), 0, 2, "e"),
    ):
        state = step(state, action)
    return state


STATE = history()


class Sealed:
    """The history, sealed with real sidecars on a store in memory."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        seal = Driver(self.store, SystemClock(), CountedIds()).run(write_segments(STATE))
        assert seal is not None
        self.seal: Seal = seal
        self.state = step(STATE, SealSegments(seal))

    def read(self, named: ObjectRecord | None) -> tuple[bytes | None, ObjectRecord]:
        assert named is not None
        return self.store.get(named.key), named


SEALED = Sealed()
RECORD = SEALED.seal.segments[0].record
LIST = SegmentListRecord(table_key(0, ORDERS.topic_id), 1, "f" * 64)


def test_what_lies_below_the_last_stable_offset_is_sealed_and_leaves_the_state() -> None:
    partition = SEALED.state.partition(KEY)
    assert sealable(STATE) == {KEY: OffsetRange(0, 13)}
    assert (partition.sealed_end, partition.log_end) == (13, 15)
    assert partition.extents.array()["base_offset"].tolist() == [13]
    assert (len(partition.markers), len(partition.aborted)) == (0, 0)
    assert list(SEALED.state.files.numbers()) == [4], "only the open transaction's file is needed"
    assert SEALED.state.files[4] == STATE.files[4]
    assert SEALED.state.extents == 1
    assert partition.aborted_transactions == 1
    assert check_whole(SEALED.state) == []
    assert sealable(SEALED.state) == {}


def test_the_txnindex_is_kafkas_byte_for_byte() -> None:
    data, named = SEALED.read(RECORD.txnindex)
    # Producer 0 aborted offsets 0 to 6; the other transaction was open from 4 on.
    assert data == bytes.fromhex("0000" + "0" * 16 + "0" * 16 + f"{6:016x}" + f"{4:016x}")
    assert decode_txnindex(data, named, 0, 1) == [abort_index.AbortedTransaction(0, 0, 6, 4)]


def test_the_index_and_the_markers_hold_every_row() -> None:
    index = decode_index(*SEALED.read(RECORD.index))
    rows = index.partition(0)
    assert rows["base_offset"].tolist() == [0, 2, 4, 7, 9, 10]
    aborted, committed, plain = BatchOutcome.ABORTED, BatchOutcome.COMMITTED, BatchOutcome.PLAIN
    assert rows["outcome"].tolist() == [aborted, aborted, committed, plain, plain, committed]
    assert rows["commit_entry"].tolist() == [-1, -1, 8, 6, 6, 8]
    assert index.files == {number: STATE.files[number] for number in range(4)}
    assert len(index.partition(1)) == 0
    markers = decode_markers(*SEALED.read(RECORD.markers))
    assert markers[["offset", "producer_id", "commit"]].tolist() == [(6, 0, 0), (12, 1, 1)]


def test_a_transaction_that_was_open_at_the_sealed_end_is_in_the_next_segment_too() -> None:
    state = step(SEALED.state, Write(replace(ETL, epoch=1), end=Outcome.ABORT))
    driver = Driver(SEALED.store, SystemClock(), CountedIds())
    driver.ids.new()
    seal = driver.run(write_segments(state))
    assert seal is not None
    (part,) = seal.segments[0].partitions
    assert (part.start_offset, part.end_offset, part.aborted, part.aborted_records) == (13, 16, 1, 2)
    after = step(state, SealSegments(seal))
    assert after.partition(KEY).aborted_transactions == 2
    assert (after.extents, len(after.files), len(after.segments)) == (0, 0, 2)


def _part(**changes: int) -> Callable[[Seal], Seal]:
    def change(seal: Seal) -> Seal:
        (segment,) = seal.segments
        part: SealedPartition = replace(segment.partitions[0], **changes)
        return replace(seal, segments=(replace(segment, partitions=(part,)),))

    return change


@pytest.mark.parametrize(
    "change",
    [
        _part(start_offset=1),
        _part(end_offset=14),
        _part(end_offset=15),
        _part(end_offset=2, batches=1, markers=0, records=2, aborted=1, size=1),
        _part(batches=7),
        _part(records=12),
        _part(markers=1),
        _part(aborted=0),
        _part(size=0),
        _part(partition=1),
        lambda seal: replace(seal, segments=()),
        lambda seal: replace(seal, segments=(replace(seal.segments[0], partitions=()),)),
        lambda seal: replace(seal, segments=(replace(seal.segments[0], txnindex=None),)),
        lambda seal: replace(seal, segments=(replace(seal.segments[0], topic_id="x"),)),
        lambda seal: replace(seal, segment_list=LIST, listed_segments=2),
        lambda seal: replace(seal, segment_list=LIST, listed_segments=0),
        lambda seal: replace(seal, segment_list=replace(LIST, first=1), listed_segments=1),
        lambda seal: replace(seal, segment_list=LIST, listed_segments=1, replaced_lists=("x",)),
    ],
)
def test_a_seal_that_does_not_fit_is_corrupt(change: Callable[[Seal], Seal]) -> None:
    apply_operation(STATE, SEALED.seal, At(STATE.entry + 1, 1))
    with pytest.raises(CorruptDataError):
        apply_operation(STATE, change(SEALED.seal), At(STATE.entry + 1, 1))


def test_what_somebody_else_has_sealed_is_refused_and_the_same_intent_is_done() -> None:
    verdict = decide(SEALED.state, Intent("another", SEALED.state.entry + 1, SealSegments(SEALED.seal)))
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.error, ConflictError)
    assert verdict.error.kind == "seal-superseded"
    later = step(STATE, Write(replace(ETL, epoch=1), end=Outcome.COMMIT))
    assert isinstance(decide(later, Intent("x", later.entry + 1, SealSegments(SEALED.seal))), Included)


@pytest.mark.parametrize("kind", ["index", "markers", "txnindex"])
def test_every_flipped_bit_of_a_sidecar_is_found(kind: str) -> None:
    data, named = SEALED.read(getattr(RECORD, kind))
    assert data is not None
    decoders: dict[str, Callable[[bytes | None, ObjectRecord], object]] = {
        "index": decode_index,
        "markers": decode_markers,
        "txnindex": lambda data, named: decode_txnindex(data, named, 0, 1),
    }
    decode = decoders[kind]
    for position in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(CorruptDataError) as caught:
            decode(bytes(damaged), named)
        assert caught.value.kind == "corrupt-sidecar"
        assert caught.value.values["object"] == named.key
    with pytest.raises(CorruptDataError, match="nothing"):
        decode(None, named)


def test_an_index_that_is_named_but_makes_no_sense_is_refused() -> None:
    rows = decode_index(*SEALED.read(RECORD.index)).rows.copy()
    files = decode_index(*SEALED.read(RECORD.index)).files
    rows["base_offset"][1] = 0
    for data in (encode_index(rows, files), b"no arrow", encode_index(rows[:0], files)[:-9]):
        with pytest.raises(CorruptDataError) as caught:
            decode_index(data, ObjectRecord(RECORD.index.key, len(data), sha256_hex(data)))
        assert caught.value.kind == "corrupt-sidecar"


def test_an_index_has_no_more_files_than_keys_of_files() -> None:
    """A million numbers of files with one key compress to nothing, and each would become an object."""
    index = decode_index(*SEALED.read(RECORD.index))
    rows = np.repeat(index.rows[:1], 3)
    rows["base_offset"] = rows["file"] = np.arange(3)
    file = next(iter(index.files.values()))
    whole = encode_index(rows, dict.fromkeys(range(3), file))
    assert decode_index(
        whole, ObjectRecord(RECORD.index.key, len(whole), sha256_hex(whole))
    ).files == dict.fromkeys(range(3), file)
    batch = pa.ipc.open_file(pa.BufferReader(whole)).get_batch(0)
    columns = [
        column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in batch.columns
    ]
    place = batch.schema.names.index("file_key")
    columns[place] = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int32()), pa.array([file.key]))
    data = encode_arrow_file(pa.record_batch(columns, schema=batch.schema))
    with pytest.raises(CorruptDataError, match="3 files with 1 keys"):
        decode_index(data, ObjectRecord(RECORD.index.key, len(data), sha256_hex(data)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda one: replace(one, index=replace(one.index, size=one.index.size + 1)), "two sizes or hashes"),
        (lambda one: replace(one, index=replace(one.index, sha256="f" * 64)), "two sizes or hashes"),
        (lambda one: replace(one, topic_id=str(uuid.UUID(int=1, version=4))), "two segments with"),
        (lambda one: replace(one, txnindex=None), "two segments with"),
    ],
)
def test_a_segment_list_says_one_thing_of_a_sidecar(
    change: Callable[[SegmentRecord], SegmentRecord], told: str
) -> None:
    row = np.zeros(1, SEGMENT)[0]
    parts: ListedSegments = {
        TopicPartition(one.topic_id, number): (SegmentPart(one, row),)
        for number, one in enumerate((RECORD, change(RECORD)))
    }
    data = encode_segment_list(parts)
    with pytest.raises(CorruptDataError, match=told):
        decode_segment_list(data, ObjectRecord("_txnlog/x", len(data), sha256_hex(data)), {})


def test_segments_go_to_the_list_and_are_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 2)
    store, ids = MemoryStore(), CountedIds()
    driver = Driver(store, SystemClock(), ids)
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    state = step(state, ORDERS)
    for number in range(12):
        state = step(state, written(None, 0, 2, f"write {number}"))
        seal = driver.run(write_segments(state))
        assert seal is not None
        state = step(state, SealSegments(seal))
        assert check_whole(state) == []
        assert len(state.segments) <= 4, "the state stays small"
    partition = state.partition(KEY)
    assert 0 < partition.listed_end < partition.sealed_end == 24
    cache = SidecarCache(store)
    found = cache.segments(state, KEY, OffsetRange(0, 24))
    assert [part.range for part in found] == [OffsetRange(n, n + 2) for n in range(0, 24, 2)]
    assert [part.range for part in cache.segments(state, KEY, OffsetRange(3, 5))] == [(2, 4), (4, 6)]
    entries = [cache.index(part.record.index).partition(0)["entry"].tolist() for part in found]
    assert entries == [[entry] for entry in range(1, 24, 2)]
    store.delete(state.segment_lists[0].key)
    fresh = SidecarCache(store)
    assert fresh.segments(state, KEY, OffsetRange(partition.listed_end, 24))
    with pytest.raises(CorruptDataError) as caught:
        fresh.segments(state, KEY, OffsetRange(0, 24))
    assert caught.value.kind == "corrupt-sidecar"


def test_who_seals_and_when() -> None:
    assert STATE.extents == 7
    assert not seal_due(STATE, 0, appended_by_us=False, uniform=0.0, bound=4)
    assert seal_due(STATE, 4, appended_by_us=True, uniform=0.9, bound=4), "we crossed the bound"
    assert not seal_due(STATE, 5, appended_by_us=True, uniform=0.0, bound=4), "somebody else did"
    assert seal_due(STATE, 5, appended_by_us=True, uniform=0.01, bound=3), "beyond twice the bound"
    assert not seal_due(STATE, 5, appended_by_us=True, uniform=0.5, bound=3)
    assert not seal_due(STATE, 0, appended_by_us=True, uniform=0.0, bound=7), "not crossed"
    opened = step(step(step(LogState("x"), ORDERS), OpenProducer("etl")), written(ETL, 0, 4, "a"))
    assert not seal_due(opened, 0, appended_by_us=True, uniform=0.0, bound=1), "nothing lies below the LSO"


def with_table(state: LogState, store: MemoryStore, partitions: dict[int, int], name: str) -> LogState:
    """Append to a topic, ``partitions`` batches of a record each, as a batch table."""
    append = make_append(
        WIDE, {number: (-1, count) for number, count in partitions.items()}, content=name, records_per_batch=1
    )
    data = encode_batch_table([(0, append.batches)])
    key = table_key(0, f"00000000-0000-4000-8000-{state.entry:012x}")
    store.create(key, data)
    named = ObjectRecord(key, len(data), sha256_hex(data))
    return step(state, Write(appends=(replace(append, batches=(), table=named),)))


WIDE = replace(make_topic("wide"), partitions=3)


def wide() -> tuple[MemoryStore, LogState]:
    store = MemoryStore()
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    state = step(state, WIDE)
    for partitions in ({0: 4, 1: 4, 2: 4}, {0: 3, 1: 9}, {0: 1, 1: 1, 2: 1}):
        state = with_table(state, store, partitions, f"append {state.entry}")
    return store, state


def test_one_seal_takes_few_enough_batches_and_reads_each_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches an append has: all of them in one .index could be more than a reader takes."""
    store, state = wide()
    counting = CountingStore(store)
    driver = Driver(counting, SystemClock(), CountedIds())
    with counting.measure() as measured:
        assert driver.run(write_segments(state)) is not None
    assert measured.counts.count(RequestKind.GET, KeyClass.TABLE) == 3
    with counting.measure() as measured:
        assert len(plan_read(SidecarCache(counting), state, "wide").partitions) == 3
    assert measured.counts.count(RequestKind.GET, KeyClass.TABLE) == 3
    monkeypatch.setattr("txnformat.protocol.sealing.BATCHES_MAX", 8)
    ends = stable_ends(state)
    seals = []
    state = with_table(state, store, {0: 2}, "what comes later")
    while (seal := driver.run(write_segments(state, ends))) is not None:
        seals.append(
            {part.partition: part.batches for segment in seal.segments for part in segment.partitions}
        )
        state = step(state, SealSegments(seal))
        assert check_whole(state) == []
    assert seals == [{0: 8}, {1: 4, 2: 4}, {1: 9}, {1: 1, 2: 1}], "an append is never cut"
    assert sealable(state) == {TopicPartition(WIDE.topic_id, 0): OffsetRange(8, 10)}


def test_an_append_with_too_many_batches_is_never_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, state = wide()
    monkeypatch.setattr("txnformat.protocol.sealing.UNSEALABLE_BATCHES", 8)
    key = TopicPartition(WIDE.topic_id, 1)
    assert sealable(state)[key] == OffsetRange(0, 4)
    monkeypatch.setattr("txnformat.protocol.sealing.UNSEALABLE_BATCHES", 3)
    assert sealable(state) == {}


def test_the_largest_index_can_be_read() -> None:
    """With the longest keys, and a file for each batch."""
    rows = np.zeros(1_000, INDEX_ROW)
    rows["file"] = np.arange(1_000)
    key = data_key(topic_directory("n" * 249, ORDERS.topic_id), 0, ORDERS.topic_id)
    files = {number: FileRecord(key, 1, f"{number:064}", 1, f"{number:064}", 1) for number in range(1_000)}
    with pa.ipc.open_file(pa.BufferReader(encode_index(rows, files))) as reader:
        size = reader.read_all().nbytes
    assert size < 1_000 * METADATA_BYTES_MAX / UNSEALABLE_BATCHES


def test_a_seal_made_from_a_newer_view_waits_for_it() -> None:
    stale = step(LogState(STATE.log_id, entry_sha256=sha256_hex(b"format")), ORDERS)
    listing = Seal((), LIST, 1)
    for seal in (SEALED.seal, listing):
        verdict = decide(stale, Intent("x", stale.entry + 1, SealSegments(seal)))
        assert isinstance(verdict, Rejected)
    assert isinstance(decide(SEALED.state, Intent("x", STATE.entry + 2, SealSegments(listing))), Included)


def test_a_committed_transaction_over_the_seam_may_have_held_back_the_lso_of_an_abort() -> None:
    """Its first offset is sealed, so what is left does not say what the abort index entry's last stable
    offset was."""
    state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
    third = ProducerRef(2, 0, "third")
    actions: list[Action] = [
        ORDERS,
        OpenProducer("etl"),
        OpenProducer("other"),
        OpenProducer("third"),
        written(ETL, 0, 2, "a"),  # 0-1
        written(OTHER, 0, 2, "b"),  # 2-3
        written(third, 0, 2, "c"),  # 4-5
        written(ETL, 2, 2, "d"),  # 6-7
        Write(OTHER, end=Outcome.ABORT),  # 8, while offset 0 is open
        Write(ETL, end=Outcome.COMMIT),  # 9
    ]
    for action in actions:
        state = step(state, action)
    seal = Driver(MemoryStore(), SystemClock(), CountedIds()).run(write_segments(state))
    assert seal is not None
    after = step(state, SealSegments(seal))
    assert after.partition(KEY).sealed_end == 4
    assert check_whole(after) == []
