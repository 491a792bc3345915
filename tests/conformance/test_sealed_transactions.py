"""LogCleanerTest and LogCleanerManagerTest: what compaction must hold beside transactions, held by a seal."""

from __future__ import annotations

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, ORDERS, Chain
from txnformat.core.intents import AllocateIds, Done, OpenProducer, ProducerRef, Write
from txnformat.core.sealing.sidecar import BatchOutcome, decode_index, decode_txnindex
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.errors import OutOfOrderSequenceError, ProducerFencedError
from txnformat.persistent import replace
from txnformat.protocol.sealing import sealable
from txnformat.types import IsolationLevel, OffsetRange, TopicPartition

UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED
KEY = TopicPartition(ORDERS.topic_id, 0)


def outcomes(chain: Chain, number: int = -1) -> list[tuple[int, BatchOutcome]]:
    """Return (base offset, outcome) of each batch of partition 0 in a sealed segment, the newest by
    default.
    """
    record = list(chain.state.segments)[number]
    rows = decode_index(chain.sidecar(record.index), record.index).partition(0)
    return [(int(row["base_offset"]), BatchOutcome(row["outcome"])) for row in rows]


@case("LogCleanerTest", "testBasicTransactionAwareCleaning")
def test_aborted_records_stay_hidden_and_the_index_stays_right_when_they_are_sealed() -> None:
    chain = Chain("a", "b")
    chain.send("a", 2)  # 0-1
    chain.send("b", 2)  # 2-3
    chain.do(chain.write(None, 1))  # 4
    chain.end("b", ABORT)  # 5
    chain.end("a", COMMIT)  # 6
    chain.send("b", 1)  # 7
    chain.end("b", ABORT)  # 8
    committed, everything, index = chain.offsets(), chain.offsets(UNCOMMITTED), chain.index()
    assert committed == [0, 1, 4]
    (segment,) = chain.seal().segments
    assert (chain.offsets(), chain.offsets(UNCOMMITTED)) == (committed, everything)
    named = segment.record.txnindex
    assert named is not None
    assert decode_txnindex(chain.sidecar(named), named, 0, 2) == index
    kinds = BatchOutcome.COMMITTED, BatchOutcome.ABORTED, BatchOutcome.PLAIN, BatchOutcome.ABORTED
    assert outcomes(chain) == list(zip((0, 2, 4, 7), kinds, strict=True))
    chain.check_reopening()


@case("LogCleanerTest", "testCleanWithTransactionsSpanningSegments", "testAbortedTransactionSpanningSegments")
def test_an_aborted_transaction_over_several_segments_is_aborted_and_indexed_in_each() -> None:
    """A segment ends where the oldest open transaction begins, which may be inside of a decided one."""
    chain = Chain("a", "b")
    chain.send("a", 2)  # 0-1
    chain.send("b", 2)  # 2-3
    chain.send("a", 1)  # 4
    chain.end("a", ABORT)  # 5
    entry = AbortedTransaction(0, 0, 5, 2)
    assert chain.index() == [entry]
    chain.seal()
    assert chain.partition().sealed_end == 2
    chain.do(chain.write(None, 1))  # 6
    chain.end("b", COMMIT)  # 7
    chain.seal()
    assert chain.partition().sealed_end == 8
    assert [outcomes(chain, number) for number in (0, 1)] == [
        [(0, BatchOutcome.ABORTED)],
        [(2, BatchOutcome.COMMITTED), (4, BatchOutcome.ABORTED), (6, BatchOutcome.PLAIN)],
    ]
    for record in chain.state.segments:
        assert record.txnindex is not None
        assert decode_txnindex(chain.sidecar(record.txnindex), record.txnindex, 0, 1) == [entry]
    for start in range(8):
        assert chain.offsets(start=start) == [offset for offset in (2, 3, 6) if offset >= start]
    assert chain.partition().aborted_transactions == 1
    chain.check_reopening()


@case("LogCleanerTest", "testCommittedTransactionSpanningSegments")
def test_a_committed_transaction_over_several_segments_is_visible_in_each() -> None:
    chain = Chain("a", "b")
    chain.send("a", 1)  # 0
    chain.send("b", 1)  # 1
    chain.send("a", 1)  # 2
    chain.end("a", COMMIT)  # 3
    ended_a = chain.state.entry
    chain.seal()
    chain.send("b", 1)  # 4
    chain.end("b", COMMIT)  # 5
    ended_b = chain.state.entry
    chain.seal()
    assert chain.offsets() == [0, 1, 2, 4]
    assert [chain.offsets(start=start)[:1] for start in (1, 2, 3)] == [[1], [2], [4]]
    commits = []
    for record in chain.state.segments:
        assert record.txnindex is None
        rows = decode_index(chain.sidecar(record.index), record.index).partition(0)
        commits.append(rows["commit_entry"].tolist())
    assert commits == [[ended_a], [ended_b, ended_a, ended_b]]


@case("LogCleanerTest", "testLogCleanerRetainsProducerLastSequence", "testDuplicateCheckAfterCleaning")
def test_sequences_and_repeats_are_known_after_a_seal() -> None:
    chain = Chain()
    chain.do(AllocateIds("process"))
    producer = ProducerRef(0, 0)
    sent = [chain.write(producer, 2, partitions=(0, 1)) for _ in range(3)]
    chain.do(*sent)
    windows = chain.partition().sequences
    chain.seal()
    assert chain.partition().sealed_end == 6
    assert chain.partition().sequences == windows
    for number, write in enumerate(sent):
        verdict = chain.decide(write)
        assert isinstance(verdict, Done)
        assert verdict.offsets == {TopicPartition(ORDERS.topic_id, part): 2 * number for part in (0, 1)}
    assert isinstance(chain.refusal(chain.write(producer, 1, sequence=7)), OutOfOrderSequenceError)
    chain.do(chain.write(producer, 1, sequence=6))
    chain.check_reopening()


@case("LogCleanerTest", "testLogCleanerRetainsLastSequenceEvenIfTransactionAborted")
def test_a_producer_is_fenced_and_its_end_repeated_after_its_aborted_transaction_was_sealed() -> None:
    """Windows of a transaction go with its end: its epoch is what keeps a zombie out, sealed or not."""
    chain = Chain("etl")
    producer = chain.producer("etl")
    late = chain.write(producer, 1, sequence=2)
    chain.do(chain.write(producer, 2, sequence=0))
    chain.end("etl", ABORT)
    ended = chain.state.entry
    chain.seal()
    assert chain.partition().sealed_end == 3
    assert chain.refusal(late).kind == "transaction-ended"
    assert chain.decide(Write(producer, end=ABORT)) == Done(ended)
    chain.do(OpenProducer("etl"))
    assert isinstance(
        chain.refusal(chain.write(replace(producer, epoch=1), 1, sequence=0)), ProducerFencedError
    )
    chain.do(chain.write(chain.producer("etl"), 1, sequence=0))


@case("LogCleanerManagerTest", "testUndecidedTransactionalDataNotCleanable")
def test_undecided_records_and_what_lies_behind_them_are_not_sealed() -> None:
    chain = Chain("etl")
    chain.do(chain.write(None, 2))  # 0-1
    chain.send("etl", 2)  # 2-3
    chain.do(chain.write(None, 2))  # 4-5
    assert sealable(chain.state) == {KEY: OffsetRange(0, 2)}
    chain.seal()
    assert sealable(chain.state) == {}
    chain.end("etl", COMMIT)
    assert sealable(chain.state) == {KEY: OffsetRange(2, 7)}
