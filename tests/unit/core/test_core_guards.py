"""Guards against what a correct writer never leaves behind: clear errors, never silently wrong records."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from txnformat import keys
from txnformat.core.entry import decode_entry, encode_entry
from txnformat.core.intents import AllocateIds, Intent, ProducerRef, TopicAppend, Write
from txnformat.core.records.batch_table import decode_batch_table, encode_batch_table
from txnformat.core.records.scan import plan_partition
from txnformat.core.records.state import EXTENT, PartitionState
from txnformat.core.state import LogState
from txnformat.core.transactions.fold import NUMBER_MAX
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.log import TxnLog
from txnformat.persistent import Columns, replace
from txnformat.protocol.follow import fold_bytes
from txnformat.store.memory import MemoryStore
from txnformat.types import BatchRecord, IsolationLevel, ObjectRecord, OffsetRange, TopicPartition
from txnlog_testing.entries import changed_entry
from txnlog_testing.simulator.clients import create_topic
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.strategies import make_append
from writers.upload import TopicUpload, topic_append

UUID = "00000000-0000-4000-8000-000000000000"
NONE = int(np.iinfo(np.int64).min)
BATCH = BatchRecord(0, 0, 0, 1, 5, 100, NONE, NONE)


@pytest.mark.parametrize("create", [TxnLog.create, TxnLog.open_or_create])
def test_a_log_that_lost_its_format_json_does_not_get_another(
    create: Callable[[MemoryStore], TxnLog],
) -> None:
    """Another log id would make every entry unreadable for good, also once the old format.json is
    restored.
    """
    store = MemoryStore()
    log = TxnLog.create(store)
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    old = store.get(keys.FORMAT_KEY)
    assert old is not None
    store.delete(keys.FORMAT_KEY)
    with pytest.raises(CorruptDataError) as error:
        create(store)
    assert error.value.kind == "format-missing"
    assert store.get(keys.FORMAT_KEY) is None
    store.create(keys.FORMAT_KEY, old)
    assert TxnLog.open(store).topics() == ["t"]


def test_a_read_of_no_columns_counts_the_records() -> None:
    store = MemoryStore()
    log = TxnLog.create(store)
    topic = log.create_topic("t", pa.schema([("n", pa.int64())]))
    upload = TopicUpload(
        store, log.committer.ids, directory=topic.directory, schema=topic.schema, born=log.state.entry
    )
    upload.add(0, pa.table({"n": [1, 2, 3]}))
    write = Write(appends=(topic_append(topic.topic_id, 1, upload.finish()),))
    log.committer.commit(log.committer.intend(write))
    assert log.read("t", columns=[]).read_all().num_rows == 3
    assert log.read("t", columns=[], start=1, end=2).read_all().num_rows == 1


def _plan_with_table(table: list[BatchRecord]) -> None:
    """Plan a read of one extent of 10 records in 2 batches that a batch table says."""
    extent = np.zeros(1, EXTENT)
    extent["records"], extent["batch_count"], extent["file"], extent["producer_id"] = 10, 2, -1, -1
    extent["file_count"] = 1
    partition = PartitionState(log_end=10, extents=Columns(EXTENT).append(extent))
    data = encode_batch_table([(0, table)])
    named = ObjectRecord(keys.table_key(0, UUID), len(data), hashlib.sha256(data).hexdigest())
    plan = plan_partition(
        0, partition, OffsetRange(0, 10), IsolationLevel.READ_COMMITTED, {0: decode_batch_table(data, named)}
    )
    assert plan.rows["take"].sum() == 10


def test_a_batch_table_is_held_against_the_totals_of_its_append() -> None:
    """Records too many or too few would get the offsets of others."""
    _plan_with_table([BATCH, BATCH])
    for wrong in ([BATCH], [BATCH, BATCH, BATCH], [BATCH, replace(BATCH, records=4)], []):
        with pytest.raises(CorruptDataError, match="10 records in 2 batches"):
            _plan_with_table(wrong)


@pytest.mark.parametrize("name", ["file", "row_group", "row_group_count", "records", "size", "partition"])
def test_a_batch_table_with_an_impossible_number_is_refused(name: str) -> None:
    changed: dict[str, Any] = {name: -1}
    with pytest.raises(CorruptDataError, match="cannot be"):
        _plan_with_table([BATCH, BATCH, replace(BATCH, **changed)])


def _appended(change: Callable[[dict[str, Any]], None], producer: ProducerRef | None) -> LogState:
    """Fold an append whose JSON was changed."""
    hand = Hand()
    topic = create_topic("t", 1, hand.new_id())
    state = hand.empty()
    for action in (AllocateIds("unit", 1), topic):
        state = hand.others_commit(state, Intent(hand.new_id(), state.entry + 1, action))
    first = 0 if producer else -1
    append: TopicAppend = make_append(topic, {0: (first, 2)}, content="a")
    write = Write(producer=producer, appends=(append,))
    made, _ = hand.entry(state, Intent(hand.new_id(), state.entry + 1, write))
    after = fold_bytes(state, changed_entry(made.data, lambda entry: change(entry["operations"][0])))
    assert after.partition(TopicPartition(topic.topic_id, 0)).log_end == 2
    return after


@pytest.mark.parametrize("producer", [None, ProducerRef(0, 0)], ids=["bulk", "idempotent"])
def test_an_append_beyond_the_largest_offset_is_refused(producer: ProducerRef | None) -> None:
    """The next append would not fit into 64 bits, and every reader would stop with a bare OverflowError."""

    def huge(operation: dict[str, Any]) -> None:
        operation["partitions"][0]["records"] = NUMBER_MAX + 1
        operation["batches"] = [{**operation["batches"][0], "records": NUMBER_MAX + 1}]

    _appended(lambda _operation: None, producer)
    with pytest.raises(CorruptDataError, match="largest offset"):
        _appended(huge, producer)


def test_an_append_without_files_is_refused() -> None:
    """Its batches would point at the files of another append."""
    with pytest.raises(CorruptDataError, match="at least one file"):
        _appended(lambda operation: operation.update(files=[]), None)


def test_a_block_of_ids_beyond_the_largest_is_refused() -> None:
    hand = Hand()
    state = hand.others_commit(hand.empty(), Intent(hand.new_id(), 0, AllocateIds("unit", 1)))
    made, _ = hand.entry(state, Intent(hand.new_id(), 1, AllocateIds("unit", 1)))
    data = changed_entry(made.data, lambda entry: entry["operations"][0].update(last=2**63 - 1))
    with pytest.raises(CorruptDataError, match="largest id"):
        fold_bytes(state, data)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_a_log_with_a_missing_entry_is_not_opened_as_a_shorter_one(from_snapshot: bool) -> None:
    """A writer would take the empty slot, and everything after it would be lost without a word."""
    store = MemoryStore()
    log = TxnLog.create(store)
    for _ in range(130 if from_snapshot else 20):
        log.committer.commit(log.committer.intend(AllocateIds("unit", 1)))
    log.close()
    newest = log.refresh().entry
    assert bool(log.state.checkpoints) is from_snapshot
    store.delete(keys.entry_key(newest - 5))
    with pytest.raises(CorruptDataError) as error:
        TxnLog.open(store)
    assert error.value.kind == "missing-entry"
    assert error.value.values["object"] == keys.entry_key(newest - 5)


def test_an_entry_that_is_small_only_as_stored_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reader decompresses more than a cap: each would stop at such an entry, for ever."""
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", pa.schema([("n", pa.int64())]))
    data = log.store.get(keys.entry_key(log.state.entry))
    assert data is not None
    entry = replace(decode_entry(data, log.state.entry), engine="x" * 10 * 2**20)
    assert len(encode_entry(entry)) < 2**16
    monkeypatch.setattr("txnformat.core.wire.entry_bytes.METADATA_BYTES_MAX", 9 * 2**20)
    with pytest.raises(InvalidInputError) as caught:
        encode_entry(entry)
    assert caught.value.kind == "entry-too-large"
