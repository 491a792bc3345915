"""TransactionIndexTest: the abort index, in the state and as ``.txnindex`` of a sealed segment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.operations import Seal
from txnformat.core.sealing.sidecar import decode_txnindex
from txnformat.core.transactions.abort_index import ENTRY_BYTES, AbortedTransaction, collect, decode, encode
from txnformat.errors import CorruptDataError, InternalError, StorageError
from txnformat.persistent import replace
from txnformat.protocol.sealing import write_segments
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.types import ObjectRecord
from txnformat.verify.report import ProblemKind, Record
from txnformat.verify.sidecars import check_txnindex, expected_segments
from txnlog import Producer, TxnLog
from txnlog_testing.simulator.hand import Hand

DATA = Path(__file__).resolve().parents[1] / "golden" / "data"
VECTORS: dict[str, Any] = json.loads((DATA / "abort_index_collect.json").read_text(encoding="utf-8"))
NUMBERS = pa.schema([("n", pa.int64())])


def aborting(count: int) -> Chain:
    """Return a log with ``count`` aborted transactions of two records each: offsets 0 to 2, 3 to 5, …"""
    chain = Chain("etl")
    for _ in range(count):
        chain.send("etl", 2)
        chain.end("etl", ABORT)
    return chain


@case("TransactionIndexTest", "testPositionSetCorrectlyWhenOpened")
def test_an_index_that_was_loaded_goes_on_behind_its_last_entry() -> None:
    chain = aborting(3)
    loaded = len(chain.entries) - 1
    chain.send("etl", 2)
    chain.end("etl", ABORT)
    expected = [AbortedTransaction(0, 3 * n, 3 * n + 2, 3 * n + 3) for n in range(4)]
    assert chain.index(chain.reopened(loaded)) == expected
    chain.seal()
    chain.send("etl", 2)
    chain.end("etl", ABORT)
    second = chain.seal()
    (part,) = second.segments[0].partitions
    assert part.aborted == 1, "a segment has no entry of those before"
    assert chain.partition().aborted_transactions == 5


@case("TransactionIndexTest", "testSanityCheck")
def test_an_index_with_an_entry_of_before_its_segment_is_damage_that_verify_reports() -> None:
    """An object is named with its hash, so this needs a writer with a defect; readers use ``.index``, not
    this."""
    chain = aborting(2)
    chain.seal()
    chain.send("etl", 1)
    before = chain.end("etl", ABORT)
    sealed = chain.seal()
    segment = sealed.segments[0]
    named = segment.record.txnindex
    assert named is not None
    right = chain.sidecar(named)
    state = chain.states[-2]
    (expected,) = expected_segments(state, decode_entry(chain.entries[-1], state.entry + 1)).values()
    report = Record()
    check_txnindex(report, named, right, expected)
    assert report.problems == []
    wrong = encode([AbortedTransaction(0, 3, 5, 6)]) + right
    check_txnindex(report, replace(named, size=len(wrong), sha256=sha256_hex(wrong)), wrong, expected)
    assert [problem.kind for problem in report.problems] == [ProblemKind.SIDECAR_DIFFERS]
    assert before == 8


@case("TransactionIndexTest", "testLastOffsetMustIncrease")
@pytest.mark.parametrize("last_offset", [5, 6])
def test_a_last_offset_that_stays_is_never_written_or_read(last_offset: int) -> None:
    entries = [AbortedTransaction(0, 0, 6, 7), AbortedTransaction(1, 3, last_offset, 7)]
    with pytest.raises(InternalError):
        encode(entries)
    with pytest.raises(CorruptDataError):
        decode(encode(entries[:1]) + encode(entries[1:]))


@case("TransactionIndexTest", "testLastOffsetCannotDecrease")
def test_the_index_is_in_the_order_of_the_markers_though_transactions_began_in_another() -> None:
    chain = Chain("a", "b", "c")
    for name in "abc":
        chain.send(name, 1)
    for name in "cab":
        chain.end(name, ABORT)
    assert [(entry.producer_id, entry.last_offset) for entry in chain.index()] == [(2, 3), (0, 4), (1, 5)]
    assert decode(encode(chain.index())) == chain.index()
    with pytest.raises(InternalError):
        encode(sorted(chain.index(), key=lambda entry: entry.first_offset))


@case("TransactionIndexTest", "testCollectAbortedTransactions")
@pytest.mark.parametrize(
    "vector", VECTORS["cases"], ids=lambda one: f"{one['fetch_offset']}-{one['upper_bound']}"
)
def test_what_a_fetch_gets_and_where_the_search_ends_is_kafkas(vector: dict[str, Any]) -> None:
    entries = [AbortedTransaction(*values) for values in VECTORS["entries"]]
    collected = collect(entries, vector["fetch_offset"], vector["upper_bound"])
    assert [entries.index(entry) for entry in collected.entries] == vector["found"]
    assert collected.is_complete is vector["is_complete"]


@case("TransactionIndexTest", "testCollectAbortedTransactions")
def test_a_search_ends_at_the_first_entry_whose_last_stable_offset_reaches_the_end_of_the_fetch() -> None:
    entries = [AbortedTransaction(*values) for values in VECTORS["entries"]]
    for number, entry in enumerate(entries):
        seen = iter(entries)
        assert collect(seen, 0, entry.last_stable_offset).is_complete
        assert list(seen) == entries[number + 1 :], "it looked no further, and no less far"
    assert not collect(entries, 0, entries[-1].last_stable_offset + 1).is_complete


@case("TransactionIndexTest", "testTruncate")
def test_an_earlier_state_has_the_entries_with_a_marker_below_its_end_and_a_seal_cuts_there() -> None:
    chain = aborting(4)
    everything = chain.index()
    assert len(everything) == 4
    for state in chain.states[2:]:
        end = state.partitions[next(iter(chain.state.partitions))].log_end if state.partitions else 0
        assert chain.index(state) == [entry for entry in everything if entry.last_offset < end]
    chain.seal()
    assert chain.index() == []
    assert chain.partition().aborted_transactions == 4


@case("TransactionIndexTest", "testAbortedTxnSerde")
def test_an_entry_is_read_back_as_it_was_written() -> None:
    entries = [AbortedTransaction(n, 2**40 + n, 2**41 + n, 2**42 + n) for n in range(5)]
    assert decode(encode(entries)) == entries
    data = encode(entries)
    named = ObjectRecord("orders/segments/x.txnindex", len(data), sha256_hex(data))
    assert decode_txnindex(data, named, 1, 3) == entries[1:4]


@case("TransactionIndexTest", "testBinaryCompatibilityWithHandWrittenClass")
def test_an_entry_is_34_bytes_that_were_written_by_hand() -> None:
    by_hand = bytes.fromhex("000000000000000003e700000000000007d00000000000000bb80000000000000fa0")
    assert ENTRY_BYTES == len(by_hand) == 34
    assert encode([AbortedTransaction(999, 2000, 3000, 4000)]) == by_hand
    assert decode(by_hand) == [AbortedTransaction(999, 2000, 3000, 4000)]


def sealed_log(root: Path) -> list[int]:
    """Make a log with an aborted and a committed transaction in a sealed segment; returns what is
    committed.
    """
    log = TxnLog.create(root)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer="inline") as producer:
        for outcome in (ABORT, COMMIT):
            producer.begin()
            producer.send("t", [{"n": int(outcome is COMMIT)}])
            producer.flush()
            (producer.commit if outcome is COMMIT else producer.abort)()
    assert log.maintain("seal").segments == 1
    return [1]


@case("TransactionIndexTest", "testRenameIndex", "testUpdateParentDir")
def test_a_log_whose_directory_was_renamed_keeps_its_index(tmp_path: Path) -> None:
    committed = sealed_log(tmp_path / "before")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "before").rename(tmp_path / "deeper" / "after")
    log = TxnLog.open(tmp_path / "deeper" / "after")
    assert log.read("t").read_all().column("n").to_pylist() == committed
    assert log.verify().ok
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", [{"n": 7}])
        producer.flush()
        producer.abort()
    assert log.maintain("seal").segments == 1
    assert log.verify().ok
    assert log.read("t").read_all().column("n").to_pylist() == committed


@case("TransactionIndexTest", "testFlush")
@case("UnifiedLogTest", "testAppendToTransactionIndexFailure")
def test_an_index_that_cannot_be_stored_leaves_its_segment_unnamed_and_the_state_as_it_was() -> None:
    """In Kafka the log directory fails, and the last stable offset stays. Here nothing refers to what is not
    stored."""
    chain = aborting(1)
    hand = Hand()
    refused = CreateResult(CreateOutcome.REFUSED, StorageError("no space left", kind="disk-full"))
    hand.creates = [None, None, refused]
    with pytest.raises(StorageError):
        hand.run(write_segments(chain.state))
    assert sorted(key.rsplit(".")[-1] for key in hand.objects if "/segments/" in key) == ["index", "markers"]
    assert chain.stable() == 3
    assert chain.offsets() == []
    again = hand.run(write_segments(chain.state))
    assert isinstance(again, Seal)
    txnindex = again.segments[0].record.txnindex
    assert txnindex is not None
    assert decode(hand.objects[txnindex.key]) == chain.index(), "it is there before an entry can name it"


@case("TransactionIndexTest", "testIsEmptyWhenFileDoesNotExist")
def test_a_segment_in_which_nothing_was_aborted_has_no_index() -> None:
    chain = Chain("etl")
    chain.send("etl", 2)
    chain.end("etl", COMMIT)
    (segment,) = chain.seal().segments
    assert segment.record.txnindex is None
    assert segment.partitions[0].aborted == 0
    assert encode([]) == b""


@case("TransactionIndexTest", "testIsEmptyWhenFileIsEmpty")
def test_a_partition_without_an_abort_has_no_part_of_its_segments_index() -> None:
    chain = Chain("a", "b")
    chain.send("a", 2, 0)
    chain.send("b", 2, 1)
    chain.end("a", ABORT)
    chain.end("b", COMMIT)
    (segment,) = chain.seal().segments
    assert [(part.partition, part.aborted) for part in segment.partitions] == [(0, 1), (1, 0)]
    named = segment.record.txnindex
    assert named is not None
    assert decode_txnindex(chain.sidecar(named), named, 1, 0) == []
    assert chain.offsets() == []


@case("TransactionIndexTest", "testIsEmptyWhenFileIsNotEmpty")
def test_a_segment_with_an_abort_names_its_index_and_says_how_many_entries_it_has() -> None:
    chain = aborting(2)
    (segment,) = chain.seal().segments
    named = segment.record.txnindex
    assert named is not None
    assert (named.size, segment.partitions[0].aborted) == (2 * ENTRY_BYTES, 2)
    with pytest.raises(CorruptDataError, match="fewer entries"):
        decode_txnindex(chain.sidecar(named), named, 0, 3)


@case("TransactionIndexTest", "testIterableReturnsIndependentIterators")
def test_two_readers_of_one_index_do_not_move_each_other_and_later_entries_reach_neither() -> None:
    chain = aborting(3)
    state = chain.state
    first, second = iter(chain.index(state)), iter(chain.index(state))
    assert next(first) == next(second)
    assert collect(first, 3, 4).entries == (chain.index(state)[1],)
    assert list(second) == chain.index(state)[1:]
    chain.send("etl", 1)
    chain.end("etl", ABORT)
    assert (len(chain.index(state)), len(chain.index())) == (3, 4)
