"""Segment lists of a real log: merged in levels and divided into leaves, they describe what the seals say,
and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random

import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.columns.arrow_file import encode_arrow_file
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.intents import SealSegments
from txnformat.core.operations import Checkpoint, Seal
from txnformat.core.sealing.segment_list import (
    ListLeaf,
    SegmentPart,
    decode_root,
    decode_segment_list,
    encode_root,
    encode_segment_list,
    leaves_of,
)
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, CorruptDataError
from txnformat.persistent import replace
from txnformat.protocol.sealing import write_segments
from txnformat.protocol.segment_lists import write_list
from txnformat.reading.sealed import SidecarCache
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import ObjectRecord, OffsetRange, SegmentListRecord, TopicPartition
from txnformat.verify.log import verify_log
from txnlog import Producer, TxnLog
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.stores.counting import CountingStore

SCHEMA = pa.schema([("n", pa.int64())])
PARTITIONS = 5
Parts = dict[TopicPartition, list[tuple[int, int, str]]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txnformat.protocol.sealing.LISTED_ROWS", 2)
    monkeypatch.setattr("txnformat.protocol.segment_lists.LEAF_BYTES", 1_500)


def fill(log: TxnLog, rng: Random, rounds: int) -> None:
    """Append to some partitions, and seal, again and again."""
    with Producer(log) as producer:
        for turn in range(rounds):
            for topic in rng.sample(log.topics(), rng.randrange(1, 3)):
                for number in rng.sample(range(PARTITIONS), rng.randrange(1, PARTITIONS)):
                    producer.send(topic, [{"n": turn}] * rng.randrange(1, 4), partition=number)
            producer.flush()
            log.committer.seal(merge=rng.randrange(6) == 0)


def seals_of(store: MemoryStore, entries: range) -> Iterator[Seal]:
    for number in entries:
        data = store.get(keys.entry_key(number))
        assert data is not None
        yield from (op for op in decode_entry(data, number).operations if isinstance(op, Seal))


def sealed(store: MemoryStore, log: TxnLog) -> Parts:
    """Return what the entries say: of each partition (start, end, key of the .index)."""
    found: Parts = defaultdict(list)
    for op in seals_of(store, range(log.state.entry + 1)):
        for segment in op.segments:
            for part in segment.partitions:
                key = TopicPartition(segment.topic_id, part.partition)
                found[key].append((part.start_offset, part.end_offset, segment.index.key))
    return found


def make(store: MemoryStore | CountingStore, seed: int, rounds: int) -> TxnLog:
    log = TxnLog.create(store)
    for name in ("a", "b", "c"):
        log.create_topic(name, SCHEMA, partitions=PARTITIONS)
    fill(log, Random(seed), rounds)
    return log


@pytest.mark.parametrize("seed", range(4))
def test_every_range_is_described_as_the_seals_say(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_ranges(seed, monkeypatch)


def test_maintenance_says_how_many_lists_it_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_ranges(3, monkeypatch) > 0


def check_ranges(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many lists maintenance merged in the end."""
    monkeypatch.setattr("txnformat.protocol.sealing.LIST_ROWS_MAX", 40)
    store, rng = MemoryStore(), Random(seed)
    log = make(store, seed, 45)
    state = log.refresh()
    assert any(one.leaves for one in state.segment_lists)
    assert len(state.segment_lists) > 1
    expected, cache = sealed(store, log), SidecarCache(store)
    for key, parts in expected.items():
        end = parts[-1][1]
        for _ in range(10):
            first, last = sorted(rng.sample(range(end + 1), 2))
            wanted = OffsetRange(first, last)
            found = [(*part.range, part.record.index.key) for part in cache.segments(state, key, wanted)]
            assert found == [one for one in parts if one[0] < last and one[1] > first], wanted
    assert verify_log(store).problems == ()
    restored = decode_snapshot(*_snapshot(state))
    assert restored.segment_lists == state.segment_lists
    report = log.maintain("seal")
    assert report.merged_lists == sum(
        len(op.replaced_lists) for op in seals_of(store, range(state.entry + 1, log.state.entry + 1))
    )
    rows = [one.rows for one in log.state.segment_lists]
    assert all(size > 2 * sum(rows[index + 1 :]) for index, size in enumerate(rows[:-1]))
    cache = SidecarCache(store)
    everything = OffsetRange(0, 10**9)
    assert expected == {
        key: [(*part.range, part.record.index.key) for part in cache.segments(log.state, key, everything)]
        for key in expected
    }
    assert not log.committer.seal(merge=True), "there is nothing left to merge"
    return report.merged_lists


def _snapshot(state: LogState) -> tuple[bytes, Checkpoint, str]:
    data = encode_snapshot(state)
    key = keys.snapshot_key(state.entry, state.log_id)
    return data, Checkpoint(state.entry, key, len(data), sha256_hex(data), state_digest(state)), state.log_id


def gets(store: CountingStore) -> int:
    return store.counts.count(RequestKind.GET, KeyClass.TABLE)


def test_a_read_of_one_partition_fetches_a_root_and_a_leaf_of_each_list() -> None:
    store = CountingStore(MemoryStore())
    log = make(store, 7, 40)
    state = log.refresh()
    key = max(state.partitions)
    end = state.partition(key).sealed_end
    cache = SidecarCache(store)
    for wanted, most in ((OffsetRange(0, end), 3 * len(state.segment_lists)), (OffsetRange(end - 1, end), 2)):
        before = gets(store)
        assert cache.segments(state, key, wanted)
        assert gets(store) - before <= most
        before = gets(store)
        assert cache.segments(state, key, wanted)
        assert gets(store) == before, "they are kept"


def test_a_seal_whose_list_part_lost_a_race_lands_without_it() -> None:
    """Else the list would bring back what the other process has replaced."""
    store = MemoryStore()
    log = make(store, 3, 20)
    with Producer(log) as producer:
        producer.send("a", [{"n": 1}], partition=0)
    state = log.refresh()
    driver = Driver(store, SystemClock(), CountedIds())
    ours = driver.run(write_segments(state))
    theirs = driver.run(write_list(state))
    assert ours is not None
    assert ours.segments
    assert ours.segment_list is not None
    listing = Seal((), theirs.record, state.segments.end, replaced_lists=theirs.replaced)
    log.committer.commit(log.committer.intend(SealSegments(listing)))
    log.committer.commit(log.committer.intend(SealSegments(ours)))
    assert log.state.segment_lists[-1] == theirs.record
    assert len(log.state.segments) == len(ours.segments)
    assert verify_log(store).problems == ()
    with pytest.raises(ConflictError, match="another process has sealed"):
        log.committer.commit(log.committer.intend(SealSegments(replace(ours, segments=()))))


ROOT_KEY = keys.table_key(1, "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11")


def _leaf(first: int, last: int, rows: int = 1) -> ListLeaf:
    topic = "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11"
    key = keys.table_key(10 * first + last, topic)
    return ListLeaf(
        TopicPartition(topic, first), TopicPartition(topic, last), rows, ObjectRecord(key, 1, "f" * 64)
    )


@pytest.mark.parametrize(
    ("leaves", "count", "rows"),
    [
        ([_leaf(0, 1), _leaf(1, 2)], 3, 2),
        ([_leaf(0, 1), _leaf(1, 2)], 2, 3),
        ([_leaf(1, 0), _leaf(1, 2)], 2, 2),
        ([_leaf(1, 2), _leaf(0, 1)], 2, 2),
        ([_leaf(1, 1), _leaf(1, 1)], 2, 2),
        ([_leaf(0, 1)._replace(record=ObjectRecord(ROOT_KEY, 0, "f" * 64))], 1, 1),
        ([_leaf(0, 1)._replace(record=ObjectRecord(ROOT_KEY, 1, "x"))], 1, 1),
        ([_leaf(0, 1)._replace(record=ObjectRecord("_txnlog/log/1", 1, "f" * 64))], 1, 1),
    ],
)
def test_a_root_that_is_not_what_the_entry_names_is_corrupt(
    leaves: list[ListLeaf], count: int, rows: int
) -> None:
    data = encode_root(leaves)
    with pytest.raises(CorruptDataError):
        decode_root(data, SegmentListRecord(ROOT_KEY, len(data), sha256_hex(data), 0, rows, count))


def test_a_root_that_is_right_is_read_and_leaves_are_found_by_partition() -> None:
    leaves = [_leaf(0, 1), _leaf(1, 1), _leaf(1, 4), _leaf(6, 6)]
    data = encode_root(leaves)
    named = SegmentListRecord(ROOT_KEY, len(data), sha256_hex(data), 0, 4, 4)
    found = decode_root(data, named)
    assert list(found) == leaves
    topic = leaves[0].first.topic_id
    numbers = {
        partition: [found.index(leaf) for leaf in leaves_of(found, TopicPartition(topic, partition))]
        for partition in range(8)
    }
    assert numbers == {0: [0], 1: [0, 1, 2], 2: [2], 3: [2], 4: [2], 5: [], 6: [3], 7: []}
    with pytest.raises(CorruptDataError):
        decode_root(data[:-1], named)
    with pytest.raises(CorruptDataError):
        decode_root(None, named)


def _forged(
    store: MemoryStore, named: SegmentListRecord, change: Callable[[list[ListLeaf]], object]
) -> SegmentListRecord:
    """Return a list that is ``named``, changed, and behind a hash of its own."""
    leaves = list(decode_root(store.get(named.key), named))
    change(leaves)
    data = encode_root(leaves)
    key = keys.table_key(9, "0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11")
    store.put(key, data)
    rows = sum(leaf.rows for leaf in leaves)
    return SegmentListRecord(key, len(data), sha256_hex(data), named.first, rows, len(leaves))


def _rows(leaves: list[ListLeaf]) -> None:
    leaves[0] = leaves[0]._replace(rows=leaves[0].rows + 1)


def _first(leaves: list[ListLeaf]) -> None:
    leaves[0] = leaves[0]._replace(first=TopicPartition("", 0))


def _last(leaves: list[ListLeaf]) -> None:
    leaves[-1] = leaves[-1]._replace(last=TopicPartition("z", 0))


@pytest.mark.parametrize("change", [_rows, _first, _last])
def test_a_leaf_has_the_rows_that_its_root_says(
    change: Callable[[list[ListLeaf]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a root of some kilobytes could count one leaf a thousand times, or hide rows of a partition."""
    store = MemoryStore()
    log = make(store, 5, 40)
    state = log.state
    number = next(index for index, one in enumerate(state.segment_lists) if one.leaves)
    forged = _forged(store, state.segment_lists[number], change)
    lists = (*state.segment_lists[:number], forged, *state.segment_lists[number + 1 :])
    state = replace(state, segment_lists=lists)
    cache = SidecarCache(store)
    with pytest.raises(CorruptDataError, match="that the root names"):
        _ = [cache.segments(state, key, OffsetRange(0, 10**9)) for key in state.partitions]
    monkeypatch.setattr("txnformat.core.sealing.lists.RATIO", 10**6)
    with pytest.raises(CorruptDataError, match="that the root names"):
        Driver(store, SystemClock(), CountedIds()).run(write_list(state))


def test_what_is_kept_of_an_object_is_not_given_for_other_words_about_its_key() -> None:
    store = MemoryStore()
    log = make(store, 5, 40)
    state = log.state
    cache = SidecarCache(store)
    named = next(one for one in state.segment_lists if one.leaves)
    key = min(state.partitions)
    assert cache.listed(named, state, key)
    for other in (
        SegmentListRecord(named.key, named.size, "f" * 64, named.first, named.rows, named.leaves),
        SegmentListRecord(named.key, named.size, named.sha256, named.first, named.rows, named.leaves - 1),
        SegmentListRecord(named.key, named.size, named.sha256, named.first, named.rows),
    ):
        with pytest.raises(CorruptDataError):
            cache.listed(other, state, key)
    with pytest.raises(CorruptDataError):
        cache.table(ObjectRecord(named.key, named.size, named.sha256))
    index = state.segments[state.segments.end - 1].index if len(state.segments) else None
    if index is not None:
        assert cache.index(index).files
        with pytest.raises(CorruptDataError):
            cache.index(ObjectRecord(index.key, index.size, "f" * 64))


def _ends(part: SegmentPart, start: int, end: int) -> SegmentPart:
    row = part.row.copy()
    row["start_offset"], row["end_offset"] = start, end
    return SegmentPart(part.record, row)


@pytest.mark.parametrize(
    "change",
    [
        lambda parts: [parts[0], _ends(parts[1], *[parts[0].range.end] * 2), *parts[1:]],
        lambda parts: [_ends(parts[0], 1, parts[0].range.end), *parts[1:]],
        lambda parts: [*parts[:-1], _ends(parts[-1], parts[-1].range.start, parts[-1].range.end - 1)],
        lambda parts: [_ends(parts[0], 0, 10**6), _ends(parts[1], 10**6, 0), *parts],
        lambda parts: parts[:-1],
        lambda parts: parts[1:],
        lambda parts: [_ends(parts[0], 0, -5)],
    ],
)
def test_a_list_that_hides_or_repeats_offsets_is_refused(
    change: Callable[[list[SegmentPart]], list[SegmentPart]],
) -> None:
    """A reader that follows it would miss records, get them twice, or never get on."""
    store = MemoryStore()
    log = make(store, 5, 40)
    log.committer.seal(merge=True)
    state = log.state
    everything = OffsetRange(0, 10**9)
    key = max(state.partitions, key=lambda key: len(SidecarCache(store).segments(state, key, everything)))
    found = SidecarCache(store).segments(state, key, everything)
    count = next(
        index for index, part in enumerate(found, 1) if part.range.end == state.partition(key).listed_end
    )
    data = encode_segment_list({key: tuple(change(found[:count]))})
    store.put(ROOT_KEY, data)
    forged = SegmentListRecord(ROOT_KEY, len(data), sha256_hex(data), 0)
    state = replace(state, segment_lists=(forged,))
    with pytest.raises(CorruptDataError, match=r"follow each other|a gap before") as caught:
        SidecarCache(store).segments(state, key, everything)
    assert caught.value.kind == "corrupt-sidecar"


def test_rows_of_a_list_are_in_order() -> None:
    store = MemoryStore()
    log = make(store, 5, 40)
    parts = {
        key: SidecarCache(store).segments(log.state, key, OffsetRange(0, 10**9))
        for key in log.state.partitions
    }
    data = encode_segment_list({key: tuple(found) for key, found in parts.items() if found})
    table = pa.ipc.open_file(data).read_all().combine_chunks()
    order = list(range(table.num_rows))
    turned = table.take(sorted(order, key=lambda row: -table["partition"][row].as_py()))
    made = encode_arrow_file(turned.combine_chunks().to_batches()[0])
    with pytest.raises(CorruptDataError, match="not in the order"):
        decode_segment_list(made, ObjectRecord(ROOT_KEY, len(made), sha256_hex(made)), {})


def test_verify_says_which_object_of_a_divided_list_is_wrong() -> None:
    store = MemoryStore()
    log = make(store, 5, 40)
    named = next(one for one in log.state.segment_lists if one.leaves)
    root = store.get(named.key)
    assert root is not None
    leaf = decode_root(root, named)[0].record.key
    data = store.get(leaf)
    assert data is not None
    for key, intact in ((named.key, root), (leaf, data)):
        store.put(key, intact[:-1] + b"?")
        assert [(problem.kind, problem.object) for problem in verify_log(store).problems] == [
            ("wrong-hash", key)
        ]
        store.delete(key)
        assert [(problem.kind, problem.object) for problem in verify_log(store).problems] == [
            ("missing", key)
        ]
        store.put(key, intact)
    assert verify_log(store).problems == ()
