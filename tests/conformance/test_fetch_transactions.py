"""FetcherTest and its relatives: which records a reader gets of committed, aborted and open transactions.

Kafka's cases hand a consumer prepared batches, markers and lists of aborted transactions. Here the same
histories are written by producers, and read back from the log, while everything is in the state and after all
of it was sealed. The position of a reader is where its plan's range ends.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from tests.conformance.scenes import NUMBERS, Scene, rows
from txnformat.core.records.visibility import committed_mask
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import IsolationLevel
from txnlog import Producer, TxnLog
from txnlog_testing.models.reference_filters import aborted_ranges
from txnlog_testing.stores.counting import CountingStore

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
SEALED = pytest.mark.parametrize("seals", [False, True], ids=["in the state", "sealed"])


def fetched(
    log: TxnLog, start: int | None = None, isolation: IsolationLevel = COMMITTED, end: int | None = None
) -> tuple[dict[int, int], int]:
    """Return number by offset of the records that a read of ``t`` gets, and the reader's position
    afterwards.
    """
    table = log.read(
        "t", isolation=isolation, start=start, end=end, columns=["_offset", "n"], partitions=[0]
    ).read_all()
    plan = log.plan("t", isolation=isolation, start=start, end=end, partitions=[0])
    found = dict(zip(table["_offset"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert len(found) == table.num_rows
    return found, plan.partitions[0].range.end


@case("FetcherTest", "testFetcherIgnoresControlRecords")
@case("ShareCompletedFetchTest", "testGapsForControlRecordsInAcquiredRange")
@SEALED
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_marker_takes_an_offset_and_is_never_among_the_records(outcome: str, seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", rows(0, 10))
    (scene.commit if outcome is COMMIT else scene.abort)("p")
    everything = {offset: offset for offset in range(10)}
    assert fetched(scene.log, isolation=UNCOMMITTED) == (everything, 11)
    assert fetched(scene.log) == (everything if outcome is COMMIT else {}, 11)
    assert fetched(scene.log, 10) == ({}, 11), "from the marker on"
    scene.check()


@case("ShareCompletedFetchTest", "testGapsWithControlRecordsAtBeginningAndEnd")
@SEALED
def test_a_range_that_begins_and_ends_with_a_marker_holds_the_records_between_them(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", [0])
    scene.commit("p")  # 1
    scene.begin("p", rows(1, 5))  # 2-6
    scene.commit("p")  # 7
    for isolation in (COMMITTED, UNCOMMITTED):
        assert fetched(scene.log, 1, isolation, end=8) == ({offset: offset - 1 for offset in range(2, 7)}, 8)
        assert fetched(scene.log, 7, isolation) == ({}, 8)


@case("FetcherTest", "testSkippingAbortedTransactions")
@SEALED
def test_records_of_an_aborted_transaction_are_skipped_and_what_follows_is_not(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", [1, 2])
    scene.abort("p")  # 2
    assert fetched(scene.log) == ({}, 3)
    scene.plain([3])
    assert fetched(scene.log) == ({3: 3}, 4)
    scene.check()


@case("FetcherTest", "testReturnCommittedTransactions")
@SEALED
def test_records_of_a_committed_transaction_are_returned_by_their_first_read(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", [1, 2])
    assert fetched(scene.log) == ({}, 0)
    scene.commit("p")
    assert fetched(scene.log) == ({0: 1, 1: 2}, 3)
    scene.check()


@case("FetcherTest", "testReturnAbortedTransactionsInUncommittedMode")
@SEALED
def test_read_uncommitted_returns_aborted_and_open_transactions(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", [1, 2])
    assert fetched(scene.log, isolation=UNCOMMITTED) == ({0: 1, 1: 2}, 2)
    scene.abort("p")
    assert fetched(scene.log, isolation=UNCOMMITTED) == ({0: 1, 1: 2}, 3)
    assert fetched(scene.log) == ({}, 3)


@case("FetcherTest", "testReadCommittedWithCommittedAndAbortedTransactions")
@SEALED
def test_of_two_producers_that_take_turns_only_what_was_committed_is_returned(seals: bool) -> None:
    """Each of them aborts one transaction and commits one, and records of all four lie between each other."""
    scene = Scene(seals=seals)
    scene.begin("1", [10, 11])  # 0-1, to be committed
    scene.begin("2", [20])  # 2, to be aborted
    scene.commit("1")  # 3
    scene.go_on("2", [21])  # 4
    scene.abort("2")  # 5
    scene.begin("1", [12])  # 6, to be aborted
    scene.begin("2", [22])  # 7, to be committed
    scene.go_on("1", [13])  # 8
    scene.abort("1")  # 9
    scene.commit("2")  # 10
    assert fetched(scene.log) == ({0: 10, 1: 11, 7: 22}, 11)
    for start in range(11):
        expected = {offset: n for offset, n in {0: 10, 1: 11, 7: 22}.items() if offset >= start}
        assert fetched(scene.log, start) == (expected, 11)
    scene.check()


@case("FetcherTest", "testMultipleAbortMarkers")
def test_an_abort_that_is_sent_twice_leaves_one_marker_and_hides_nothing_of_the_next_transaction() -> None:
    chain = Chain("etl")
    chain.send("etl", 2)  # 0-1
    aborting = chain.producer("etl")
    assert chain.end("etl", ABORT) == 3
    entries = len(chain.entries)
    again = chain.write(aborting, 1, sequence=0, end=ABORT)
    chain.decide(again)
    assert (len(chain.entries), chain.partition().log_end) == (entries, 3), "answered from the log"
    chain.send("etl", 2)  # 3-4
    chain.end("etl", COMMIT)  # 5
    assert chain.offsets() == [3, 4]
    chain.seal()
    assert chain.offsets() == [3, 4]
    # And were the transaction in the index twice, before another one that was aborted:
    entry = AbortedTransaction(0, 0, 2, 3)
    assert visible([(0, 1, 0), (3, 4, 0), (6, 7, 1)], [entry, entry, AbortedTransaction(1, 6, 8, 9)]) == [
        3,
        4,
    ]


@case("FetcherTest", "testReadCommittedAbortMarkerWithNoData")
@SEALED
def test_a_read_that_begins_behind_an_aborted_transaction_skips_its_marker_only(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", rows(0, 5))  # 0-4
    scene.abort("p")  # 5
    scene.begin("p", [6, 7, 8])
    scene.commit("p")  # 9
    for start in (4, 5, 6):
        assert fetched(scene.log, start) == ({6: 6, 7: 7, 8: 8}, 10)
    # Its records may be gone, while another transaction behind it was aborted, too.
    aborted = [AbortedTransaction(1, 0, 5, 6), AbortedTransaction(2, 10, 12, 13)]
    assert visible([(6, 8, 1), (10, 11, 2)], aborted) == [6, 7, 8]


def visible(batches: list[tuple[int, int, int]], aborted: list[AbortedTransaction]) -> list[int]:
    """Return the offsets that are read of batches (first offset, last offset, producer id) of
    transactions.
    """
    first, last, producers = (np.array(column, np.int64) for column in zip(*batches, strict=True))
    mask = committed_mask(first, last, producers, np.ones(len(batches), np.bool_), aborted_ranges(aborted))
    kept = zip(first[mask].tolist(), last[mask].tolist(), strict=True)
    return [offset for begin, end in kept for offset in range(begin, end + 1)]


@case("FetcherTest", "testReadCommittedWithCompactedTopic")
def test_an_aborted_transaction_whose_marker_no_read_has_seen_hides_its_records_and_no_others() -> None:
    """Producer 2 aborts (6 to 28), producer 1 too (0 to 41), and producer 3 commits between their records.

    Kafka's batches are what compaction has left of this history. The read ends before the marker of producer
    1, and begins, a second time, behind the first records of both.
    """
    chain = Chain("1", "2", "3")

    def write(name: str, records: int, first: int) -> None:
        assert chain.send(name, records) == first

    write("1", 3, 0)
    write("3", 2, 3)
    write("1", 1, 5)
    write("2", 12, 6)
    write("1", 4, 18)
    write("1", 6, 22)
    assert chain.end("2", ABORT) == 29
    write("1", 1, 29)
    write("3", 3, 30)
    write("1", 2, 33)
    assert chain.end("3", COMMIT) == 36
    write("1", 5, 36)
    assert chain.end("1", ABORT) == 42
    expected = [3, 4, 30, 31, 32]
    for sealed in (False, True):
        assert chain.partition().sealed_end == (42 if sealed else 0)
        assert chain.offsets() == chain.offsets(end=41) == expected
        assert chain.offsets(start=16, end=41) == [30, 31, 32]
        if not sealed:
            chain.seal()
    left = [(3, 4, 3), (15, 17, 2), (22, 23, 1), (30, 32, 3), (39, 40, 1)]
    aborted = [AbortedTransaction(2, 6, 28, 0), AbortedTransaction(1, 0, 41, 42)]
    assert visible(left, aborted) == expected


@case("FetcherTest", "testEmptyControlBatch")
@SEALED
def test_a_transaction_without_records_has_no_marker_and_disturbs_no_reader(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("empty", partition=0)
    scene.abort("empty")
    scene.begin("empty", partition=0)
    scene.commit("empty")
    assert scene.log.offsets("t")[0].log_end == 0
    scene.begin("p", [0, 1])
    scene.commit("p")
    assert fetched(scene.log) == ({0: 0, 1: 1}, 3)
    # The same by an end that is in the log.
    chain = Chain("p")
    entries = len(chain.entries)
    assert chain.end("p", ABORT) == 0
    assert len(chain.entries) == entries + 1
    chain.send("p", 2)
    assert chain.end("p", COMMIT) == 3
    assert chain.offsets() == [0, 1]


@case("FetcherTest", "testConsumerPositionUpdatedWhenSkippingAbortedTransactions")
@SEALED
def test_the_position_is_behind_what_was_skipped(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", [1, 2])
    scene.abort("p")
    found, position = fetched(scene.log)
    assert (found, position) == ({}, 3)
    scene.plain([9])
    assert fetched(scene.log, position) == ({3: 9}, 4), "nothing is read twice, and nothing is left out"


@case("FetcherTest", "testUpdatePositionOnEmptyBatch")
def test_a_sealed_range_of_which_nothing_is_to_be_read_is_passed_without_a_request() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send("t", [{"n": n} for n in range(17)])
        producer.flush()
        producer.abort()
    assert log.maintain("seal").segments == 1
    with store.measure() as measured:
        assert fetched(log, 3) == ({}, 18)
    for what in (KeyClass.SIDECAR, KeyClass.DATA):
        assert measured.counts.count(key_class=what) == 0
    assert measured.counts.count(RequestKind.GET, KeyClass.ENTRY) == 2, "it was looked whether there is more"


@case("CompletedFetchTest", "testAbortedTransactionRecordsRemoved")
@SEALED
def test_ten_aborted_records_are_ten_for_read_uncommitted_and_none_for_read_committed(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", rows(0, 10))
    scene.abort("p")
    assert len(fetched(scene.log)[0]) == 0
    assert len(fetched(scene.log, isolation=UNCOMMITTED)[0]) == 10


@case("CompletedFetchTest", "testCommittedTransactionRecordsIncluded")
@SEALED
def test_ten_committed_records_are_ten_for_both(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", rows(0, 10))
    scene.commit("p")
    assert len(fetched(scene.log)[0]) == len(fetched(scene.log, isolation=UNCOMMITTED)[0]) == 10


@case("FetchCollectorTest", "testReadCommittedWithAbortedTransaction")
@SEALED
def test_reads_one_after_the_other_go_on_behind_what_was_aborted(seals: bool) -> None:
    scene = Scene(seals=seals)
    scene.begin("p", rows(0, 20))
    scene.abort("p")
    found, position = fetched(scene.log)
    assert (found, position) == ({}, 21)
    scene.begin("p", rows(100, 20))
    scene.commit("p")
    found, position = fetched(scene.log, position)
    assert found == {21 + n: 100 + n for n in range(20)}
    assert position == 42
