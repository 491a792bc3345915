"""ProducerStateManagerTest and UnifiedLogTest: the last stable offset, the abort index, late transactions."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from txnformat.admin.metrics import measure
from txnformat.client.commit_counts import CommitCounts
from txnformat.core.operations import TIMEOUT_MS
from txnformat.core.state import LogState
from txnformat.core.transactions.abort_index import AbortedTransaction, collect
from txnformat.errors import OffsetOutOfRangeError
from txnformat.types import IsolationLevel, Outcome, TopicPartition

DATA = Path(__file__).resolve().parents[1] / "golden" / "data"
GOLDEN: dict[str, Any] = json.loads((DATA / "abort_index_sequence.json").read_text(encoding="utf-8"))
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
KEY = TopicPartition(ORDERS.topic_id, 0)


@case("ProducerStateManagerTest", "testTxnFirstOffsetMetadataCached")
def test_the_first_offset_of_a_transaction_is_that_of_its_first_append_in_the_partition() -> None:
    chain = Chain("etl")
    chain.do(chain.write(None, 7))
    for _ in range(3):
        chain.send("etl", 2)
        assert chain.partition().open == {(0, 0): 7}
        assert chain.state.transactional_ids["etl"].partitions[KEY] == 7
    chain.send("etl", 1, 1)
    assert chain.partition(1).open == {(0, 0): 0}, "each partition has its own"


@case("ProducerStateManagerTest", "testFirstUnstableOffset")
@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
def test_the_oldest_open_transaction_holds_the_last_stable_offset_whatever_the_order_of_the_ends(
    order: tuple[str, ...],
) -> None:
    chain = Chain("a", "b", "c")
    firsts = {name: chain.send(name, 4) for name in "abc"}  # 0, 4, 8
    for name in "abc":
        chain.send(name, 1)
    assert chain.stable() == 0
    stable = 0
    for number, name in enumerate(order):
        end = chain.end(name, (COMMIT, ABORT)[number % 2])
        del firsts[name]
        assert chain.stable() == min(firsts.values(), default=end)
        assert chain.stable() >= stable
        stable = chain.stable()
    assert chain.stable() == chain.partition().log_end == 18


@case("ProducerStateManagerTest", "testFirstUnstableOffsetAfterTruncation", "testTruncateFullyAndStartAt")
@case(
    "UnifiedLogTest",
    "testTruncateBelowFirstUnstableOffset",
    "testTruncateFullyAndStartBelowFirstUnstableOffset",
    "testProducerIdMapTruncateTo",
    "testProducerIdMapTruncateToWithNoSnapshots",
    "testProducerIdMapTruncateFullyAndStartAt",
)
def test_the_state_after_an_earlier_entry_knows_nothing_of_what_came_later() -> None:
    chain = Chain("a", "b")  # entries 0 to 2
    chain.send("a", 2)  # 3: offsets 0-1
    chain.send("b", 2)  # 4: offsets 2-3
    chain.end("a", COMMIT)  # 5: offset 4
    chain.send("a", 3)  # 6: offsets 5-7
    chain.end("b", ABORT)  # 7: offset 8
    expected = {2: (0, 0), 3: (0, 2), 4: (0, 4), 5: (2, 5), 6: (2, 8), 7: (5, 9)}
    windows = {2: set(), 3: {(0, 0)}, 4: {(0, 0), (1, 0)}, 5: {(1, 0)}, 6: {(1, 0), (0, 1)}, 7: {(0, 1)}}
    for entry, (stable, end) in expected.items():
        for state in (chain.states[entry], chain.folded(entry)):
            partition = state.partition(KEY)
            assert (partition.last_stable_offset, partition.log_end) == (stable, end), entry
            assert set(partition.sequences) == windows[entry], entry
            assert len(chain.index(state)) == (1 if entry == 7 else 0)
    assert chain.states[2].partition(KEY).open == {}


@case("ProducerStateManagerTest", "testLastStableOffsetCompletedTxn")
def test_an_index_entry_has_the_last_stable_offset_of_the_moment_without_its_own_transaction() -> None:
    chain = Chain("a", "b", "c")
    for name in "abc":
        chain.send(name, 10)  # 0, 10, 20
    chain.end("b", ABORT)  # 30: a is open
    chain.end("a", ABORT)  # 31: c is open
    chain.end("c", ABORT)  # 32: nothing is open
    assert chain.index() == [
        AbortedTransaction(1, 10, 30, 0),
        AbortedTransaction(0, 0, 31, 20),
        AbortedTransaction(2, 20, 32, 33),
    ]


def late(state: LogState, now_ms: int) -> tuple[int, int]:
    """Return how many transactions are late, in the log and in partition 0."""
    found = measure(state, "memory:", now_ms, CommitCounts())
    return found.late_transactions, found.partitions[0].late_transactions


@case(
    "ProducerStateManagerTest",
    "testHasLateTransaction",
    "testHasLateTransactionInitializedAfterReload",
    "testHasLateTransactionUpdatedAfterPartialTruncation",
    "testHasLateTransactionUpdatedAfterFullTruncation",
)
def test_a_transaction_is_late_by_its_first_append_until_it_ends_also_after_a_reload() -> None:
    chain = Chain("a", "b")
    chain.send("a", 1)
    started = chain.state.timestamp_ms
    chain.now_ms += TIMEOUT_MS // 2
    chain.send("a", 1)
    chain.send("b", 1)
    both = len(chain.entries) - 1
    for state in (chain.state, chain.reopened(3), chain.reopened(both), chain.folded()):
        assert late(state, started + TIMEOUT_MS - 1) == (0, 0)
        assert late(state, started + TIMEOUT_MS) == (1, 1)
        assert late(state, started + 2 * TIMEOUT_MS) == (2, 2)
    chain.end("a", COMMIT)
    assert late(chain.state, started + TIMEOUT_MS + 1) == (0, 0)
    assert late(chain.state, started + 2 * TIMEOUT_MS) == (1, 1)
    assert late(chain.states[both - 1], started + 2 * TIMEOUT_MS) == (1, 1), "before b began"
    assert late(chain.states[2], started + 2 * TIMEOUT_MS) == (0, 0), "before a began"


@case("UnifiedLogTest", "testFirstUnstableOffsetNoTransactionalData")
def test_without_transactions_everything_is_stable() -> None:
    chain = Chain()
    chain.do(chain.write(None, 3), chain.write(None, 2))
    assert chain.stable() == chain.partition().log_end == 5
    assert chain.offsets() == list(range(5))


@case("UnifiedLogTest", "testFirstUnstableOffsetWithTransactionalData")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_open_transaction_holds_the_last_stable_offset_at_its_first_record_until_the_entry_that_ends_it(
    outcome: Outcome,
) -> None:
    chain = Chain("etl")
    chain.do(chain.write(None, 3))
    chain.send("etl", 2)
    chain.do(chain.write(None, 4))
    chain.send("etl", 2)
    assert chain.stable() == 3
    assert chain.end("etl", outcome) == 12
    assert chain.stable() == 12, "the marker is durable with its entry: no high watermark comes later"


@case("UnifiedLogTest", "testFetchUpToLastStableOffset")
def test_read_committed_ends_at_the_last_stable_offset_and_asking_for_more_is_an_error() -> None:
    chain = Chain("a", "b")
    chain.do(chain.write(None, 2))  # 0-1
    chain.send("a", 2)  # 2-3
    chain.send("b", 2)  # 4-5
    chain.do(chain.write(None, 2))  # 6-7
    assert chain.offsets() == [0, 1]
    assert chain.offsets(UNCOMMITTED) == list(range(8))
    chain.end("b", COMMIT)  # 8
    assert chain.offsets() == [0, 1]
    assert chain.offsets(start=2) == [], "the position at the last stable offset is a wait, and no error"
    with pytest.raises(OffsetOutOfRangeError) as caught:
        chain.offsets(start=3)
    assert caught.value.values["latest"] == 2
    chain.end("a", ABORT)  # 9
    assert chain.offsets() == [0, 1, 4, 5, 6, 7]
    assert chain.offsets(UNCOMMITTED) == list(range(8)), "markers are no records"


@case("UnifiedLogTest", "testReadCommittedWithConcurrentHighWatermarkUpdates")
def test_no_reader_sees_undecided_data_or_a_part_of_a_transaction_at_any_entry() -> None:
    """Kafka's case races a reader with the high watermark. Here a reader has the state of one entry: try
    every one."""
    chain = Chain("a", "b")
    decided: dict[str, list[int]] = {"a": [], "b": []}
    visible: list[set[int]] = []
    for number in range(12):
        name = "ab"[number % 2]
        offset = chain.send(name, 2)
        decided[name] += [offset, offset + 1]
        if number % 3 == 2:
            chain.end(name, COMMIT)
            visible.append(set(decided.pop(name)))
            decided[name] = []
    for state in chain.states:
        seen = set(chain.offsets(state=state)) if KEY in state.partitions else set()
        stable = state.partition(KEY).last_stable_offset
        assert all(offset < stable for offset in seen)
        for transaction in visible:
            # Of a transaction that goes on beyond the last stable offset, offset order shows what lies below.
            below = {offset for offset in transaction if offset < stable}
            assert seen & transaction in (set(), below)
        assert not seen & {offset for open_ in decided.values() for offset in open_}


def golden_chain() -> tuple[Chain, dict[int, int], dict[int, str]]:
    """Return Kafka's history, the last stable offset after each marker, and the name of each producer."""
    names = {1: "one", 2: "two", 3: "three", 4: "four"}
    chain = Chain(*names.values())
    stable: dict[int, int] = {}
    for step in GOLDEN["steps"]:
        name = names.get(step["producer_id"])
        if "marker" in step:
            assert chain.partition().log_end == step["offset"]
            chain.end(str(name), Outcome(step["marker"]))
            stable[step["offset"]] = chain.stable()
        else:
            chain.send(name, step["records"])
    return chain, stable, names


@case("UnifiedLogTest", "testTransactionIndexUpdated", "testLastStableOffsetWithMixedProducerData")
def test_kafkas_history_gives_kafkas_index_and_last_stable_offsets() -> None:
    chain, stable, names = golden_chain()
    ids = {number: chain.producer(name).producer_id for number, name in names.items()}
    assert chain.index() == [AbortedTransaction(ids[number], *rest) for number, *rest in GOLDEN["index"]]
    assert stable == {29: 8, 58: 8, 74: 36, 89: 90}
    aborted = {*range(5), *range(10, 14), *range(19, 29), 8, 9, *range(30, 36), *range(67, 74)}
    assert chain.offsets() == [n for n in range(90) if n not in {29, 58, 74, 89} | aborted]


@case("UnifiedLogTest", "testTransactionIndexUpdatedThroughReplication")
@case("LogLoaderTest", "testFullTransactionIndexRecovery")
@case("UnifiedLogTest", "testRebuildTransactionalState")
def test_who_only_follows_and_who_opens_later_has_the_same_index_and_state() -> None:
    chain, _, _ = golden_chain()
    expected = chain.index()
    assert len(expected) == 2
    assert chain.index(chain.folded()) == expected
    chain.check_reopening()
    for entry in (5, 12, 20):
        assert chain.index(chain.reopened(entry)) == expected


@case("UnifiedLogTest", "testAbortedTransactionSpanningMultipleSegments")
def test_an_aborted_transaction_with_data_in_earlier_segments_is_reported_for_each_of_them() -> None:
    """Data in segments 0 and 1, the marker in segment 2: the index entry is with the marker, and is found."""
    chain = Chain("a", "b")
    chain.send("a", 2)  # 0-1
    chain.do(chain.write(None, 2))  # 2-3
    chain.send("a", 2)  # 4-5
    chain.send("b", 1)  # 6
    chain.end("b", ABORT)  # 7
    chain.end("a", ABORT)  # 8
    entry = AbortedTransaction(0, 0, 8, 9)
    for start, end in ((0, 2), (2, 4), (4, 6), (8, 9)):
        assert entry in collect(chain.index(), start, end).entries
    assert collect(chain.index(), 9, 10).entries == ()
    assert chain.offsets() == chain.offsets(start=1) == chain.offsets(start=2) == [2, 3]
    chain.seal()
    assert chain.partition().sealed_end == 9
    assert chain.offsets() == chain.offsets(start=2) == [2, 3]
