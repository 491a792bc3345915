"""Pulsar's tests of the transaction buffer: the last stable offset (its maximum read position) and aborted
transactions."""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, COMMIT, Chain
from tests.conformance.pulsar import AT_COMMIT, BUFFERS, again, new_log, opened, plain, read, send, stable
from tests.integration.clients.failing import Plan, faulty
from txnformat.core.intents import Done, OpenProducer, Write
from txnformat.core.records.state import ABORTED
from txnformat.core.records.visibility import committed_mask
from txnformat.core.sealing.sidecar import decode_txnindex
from txnformat.core.transactions.abort_index import AbortedTransaction, collect
from txnformat.errors import InvalidTransactionStateError, ProducerFencedError
from txnformat.reading.sealed import SidecarCache
from txnformat.store.requests import KeyClass, RequestKind
from txnformat.types import NO_PRODUCER, OffsetRange, Outcome, TopicPartition
from txnlog import StorageError, TxnLog
from txnlog_testing.stores.faulty import Fault, FaultKind
from writers.settings import Buffer

# --- the last stable offset ---------------------------------------------------------------------------------


@case("MetadataTransactionBufferTest", "openTxnAppend_pinsMaxReadPosition")
def test_an_open_transaction_pins_the_stable_offset_at_its_first_message() -> None:
    chain = Chain("a")
    chain.send(None, 3)
    first = chain.send("a", 2)
    assert (first, chain.stable(), chain.partition().log_end) == (3, 3, 5)
    assert list(chain.partition().open.values()) == [3]
    assert chain.index() == [], "it is not aborted either"


@case("MetadataTransactionBufferTest", "concurrentOpenTxns_minPositionPins")
def test_of_several_open_transactions_the_oldest_pins() -> None:
    chain = Chain("a", "b")
    chain.send("b", 1)
    chain.send("a", 1)
    assert chain.stable() == 0
    chain.end("b", COMMIT)
    assert chain.stable() == 1, "now the other one, whose first message is at 1"
    chain.end("a", COMMIT)
    assert chain.stable() == chain.partition().log_end == 4


@case("MetadataTransactionBufferTest", "commitEvent_dropsTxn_advancesMaxReadPosition")
def test_a_commit_releases_the_stable_offset_up_to_the_log_end() -> None:
    chain = Chain("a")
    chain.send("a", 2)
    end = chain.end("a", COMMIT)
    assert (chain.stable(), end) == (3, 3)
    assert chain.partition().open == {}
    assert chain.offsets() == [0, 1]


@case("MetadataTransactionBufferTest", "abortEvent_marksAborted_isTxnAbortedTrue")
def test_an_abort_puts_the_transaction_into_the_abort_index() -> None:
    chain = Chain("a")
    chain.send("a", 2)
    chain.end("a", ABORT)
    assert chain.index() == [AbortedTransaction(0, 0, 2, 3)]
    assert (chain.offsets(), chain.partition().open) == ([], {})


@case("TransactionTest", "testMaxReadPositionForNormalPublish")
def test_plain_messages_move_the_stable_offset_unless_a_transaction_is_open() -> None:
    log = new_log()
    plain(log, 1)
    assert stable(log) == 1
    producer = opened(log, "one")
    send(producer, 2)
    plain(log, 3)
    assert (stable(log), log.offsets("t")[0].log_end) == (1, 3)
    producer.commit()
    assert stable(log) == 4
    plain(log, 4)
    assert stable(log) == 5


@case("TopicTransactionBufferTest", "testGetLastMessageIdsWithOngoingTransactions")
def test_the_last_message_that_can_be_read_is_the_one_before_the_oldest_open_transaction() -> None:
    """Upstream's interleaving, step by step; the last message is told by its offset."""
    log = new_log()

    def last() -> int:
        offsets = again(log).read("t", columns=["_offset"]).read_all().column(0).to_pylist()
        return int(offsets[-1])

    plain(log, 0, 1, 2)
    one, two = opened(log, "one"), opened(log, "two")
    send(one, 3)
    plain(log, 4)
    send(two, 5)
    assert (last(), stable(log)) == (2, 3), "one and two are open"
    one.commit()
    assert (last(), stable(log)) == (4, 5), "the plain message behind the committed one; two is open"
    two.abort()
    assert (last(), stable(log)) == (4, 8), "what was aborted is never last"
    three = opened(log, "three")
    send(three, 6)
    assert (last(), stable(log)) == (4, 8)
    three.abort()
    assert (last(), stable(log)) == (4, 10)


@case("TopicTransactionBufferTest", "testGetLastMessageIdsWithOpenTransactionAtLedgerHead")
def test_a_transaction_that_opens_at_the_head_of_the_unsealed_part_holds_nothing_of_the_sealed() -> None:
    log = new_log()
    plain(log, 0, 1, 2)
    log.maintain("seal")
    assert log.state.extents == 0
    send(opened(log, "one"), 3)
    assert stable(log) == 3
    assert read(log) == [0, 1, 2]


@case("TransactionTest", "testPersistentTopicGetLastDispatchablePositionWithTxn")
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_the_last_readable_message_does_not_move_while_a_transaction_sends_nor_when_it_aborts(
    commits: bool,
) -> None:
    log = new_log()
    plain(log, 1)
    producer = opened(log, "one")
    send(producer, 2, 3, 4)
    assert read(log) == [1]
    producer.abort()
    assert read(log) == [1]
    assert stable(log) == 5, "the range of the aborted messages can be passed"
    producer.begin()
    send(producer, 5, 6, 7)
    assert read(log) == [1]
    if commits:
        producer.commit()
    else:
        producer.abort()
    assert read(log) == ([1, 5, 6, 7] if commits else [1])


@AT_COMMIT
@case("TransactionTest", "testMaxReadPositionForNormalPublish")
def test_with_offsets_at_the_commit_nothing_pins_the_stable_offset(buffer: Buffer) -> None:
    log = new_log()
    producer = opened(log, "one", buffer)
    send(producer, 1)
    plain(log, 2)
    assert stable(log) == log.offsets("t")[0].log_end == 1
    producer.commit()
    assert stable(log) == log.offsets("t")[0].log_end
    assert read(log) == [2, 1]


@case("TopicTransactionBufferTest", "testGetMaxPositionAfterTBReady")
def test_positions_are_given_after_the_state_was_read_and_never_before() -> None:
    """While the newest entries cannot be read the question fails; it is never answered from what was known
    before."""
    plan = Plan()
    log = faulty(plan)
    writer = again(log)
    plain(writer, 1)
    plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    with pytest.raises(StorageError):
        log.offsets("t")
    plan.clear()
    assert stable(log) == 1


# --- transactions that ended --------------------------------------------------------------------------------


@case("MetadataTransactionBufferTest", "terminalTxns_prunedFromCache_visibilityUnchanged")
def test_of_ended_transactions_only_the_abort_index_is_left() -> None:
    """However many a partition has had: no open one, no sequence window, and each is visible as it ended."""
    chain = Chain("a")
    expected = []
    for number in range(20):
        offset = chain.send("a", 2)
        chain.end("a", ABORT if number % 2 else COMMIT)
        expected += [] if number % 2 else [offset, offset + 1]
    partition = chain.partition()
    assert (partition.open, partition.sequences) == ({}, {})
    assert len(chain.state.transactional_ids) == 1
    assert len(chain.index()) == 10
    assert chain.offsets() == expected


@case("TransactionCoordinatorV5Test", "sweepGc_repairsAndRetainsHeaderWhenOpsRemain")
def test_that_a_transaction_aborted_is_known_for_as_long_as_its_messages_are_there() -> None:
    """The state forgets the end of an old transaction; the abort index, and its sidecar, do not.

    A header that goes first would turn committed messages into aborted ones there; here the default is the
    other way round, and what it needs to be right outlives the id's own record.
    """
    log = new_log()
    producer = opened(log, "one")
    send(producer, 1)
    producer.abort()
    for n in range(2, 12):
        producer.begin()
        send(producer, n)
        producer.commit()
    last_end = log.refresh().transactional_ids["one"].last_end
    assert last_end is not None
    assert last_end.epoch == 10, "the state knows the last end alone"
    for _ in ("as appended", "sealed"):
        assert read(log) == list(range(2, 12))
        assert log.outcome("one", 0).outcome is ABORT, "history has it"
        log.maintain("seal")


@case("MetadataTransactionBufferTest", "appendToCommittedTxn_failsTxnConflict")
@case("TransactionLowWaterMarkTest", "testTransactionBufferLowWaterMark", "testTBLowWaterMarkEndToEnd")
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_late_message_of_a_transaction_that_has_ended_is_refused(outcome: Outcome) -> None:
    """Whether or not a later transaction of the same id is open, and it never joins that one."""
    chain = Chain("a")
    old = chain.producer("a")
    chain.send("a", 1)
    chain.do(Write(old, end=outcome))
    late = chain.write(old, 1, sequence=1, content="late")
    assert isinstance(chain.refusal(late), InvalidTransactionStateError)
    chain.send("a", 1)
    assert isinstance(chain.refusal(late), InvalidTransactionStateError)
    chain.do(OpenProducer("a"))
    assert isinstance(chain.refusal(late), InvalidTransactionStateError | ProducerFencedError)
    assert chain.partition().log_end == 4, (
        "the message, its marker, the next transaction's and the marker of its abort"
    )


@case("TransactionLowWaterMarkTest", "testLowWaterMarkForDifferentTC")
def test_the_ends_of_one_id_say_nothing_of_the_transactions_of_another() -> None:
    """Pulsar takes every older transaction of one coordinator for ended; an id here has an epoch of its
    own.
    """
    chain = Chain("a", "b", "c")
    for name in ("a", "b", "c"):
        chain.send(name, 1)
    for _ in range(3):
        chain.end("c", COMMIT)
        chain.send("c", 1)
    chain.send("a", 1)  # older than all of them, and open
    assert chain.stable() == 0
    chain.end("a", COMMIT)
    chain.end("b", ABORT)
    assert chain.offsets()[:2] == [0, 2]


@case("MetadataTransactionBufferTest", "unknownTxn_isTxnAbortedReturnsFalse")
def test_a_batch_whose_transaction_is_not_in_the_abort_index_is_committed() -> None:
    """Below the last stable offset: a message without an entry that ended its transaction cannot be there."""
    chain = Chain("a")
    chain.send("a", 1)
    chain.end("a", ABORT)
    rows = chain.partition().extents.array()
    last = rows["base_offset"] + rows["records"] - 1
    for producer_id, visible in ((99, True), (NO_PRODUCER, True), (0, False)):
        ids = rows["producer_id"].copy()
        ids[:] = producer_id
        transactional = rows["transactional"] == 1
        aborted = chain.partition().aborted.array()
        assert aborted.dtype == ABORTED
        mask = committed_mask(rows["base_offset"], last, ids, transactional, aborted)
        assert mask.tolist() == [visible]


@case("MetadataTransactionBufferTest", "publishOrdering_opRecordWrittenBeforeMlAppend")
def test_a_message_and_the_claim_of_its_transaction_are_one_step() -> None:
    """There is no order in which they could be torn: the entry that gives offsets also opens the transaction.

    What was uploaded and has no entry is no message; the entry's number stays free for others.
    """
    plan = Plan()
    log = faulty(plan, embedding=False)
    producer = opened(log, "one")
    plan.next(RequestKind.CREATE, KeyClass.ENTRY, Fault(FaultKind.DISK_FULL))
    producer.send("t", [{"n": 1}])
    before = log.refresh()
    with pytest.raises(StorageError):
        producer.flush()
    assert log.store.list("t-"), "the file is there"
    assert log.refresh() == before
    assert (read(log, "read_uncommitted"), stable(log)) == ([], 0)
    plain(log, 2)
    assert read(log) == [2]
    producer.flush()
    assert read(log, "read_uncommitted") == [2, 1]
    (offsets,) = log.offsets("t")
    assert offsets.held_by is not None
    assert (offsets.held_by.transactional_id, offsets.held_by.first_offset) == ("one", 1)


# --- aborted transactions in sealed segments ----------------------------------------------------------------


def _abort_each(log: TxnLog, *numbers: int) -> None:
    for n in numbers:
        producer = opened(log, f"txn-{n}")
        send(producer, n)
        producer.abort()


def _sidecars(log: TxnLog) -> list[list[AbortedTransaction]]:
    """Return the aborted transactions of partition 0, segment after segment, found by offset as a reader
    finds them."""
    state = log.refresh()
    key = TopicPartition(state.topic("t").topic_id, 0)
    wanted = OffsetRange(0, state.partition(key).sealed_end)
    found = []
    for part in SidecarCache(log.store).segments(state, key, wanted):
        named = part.record.txnindex
        first, count = int(part.row["first_aborted"]), int(part.row["aborted"])
        found.append([] if named is None else decode_txnindex(log.store.get(named.key), named, first, count))
    return found


@case("SegmentAbortedTxnProcessorTest", "testPutAbortedTxnIntoProcessor")
@case("TopicTransactionBufferRecoverTest", "testTransactionBufferIndexSystemTopic")
@case("TopicTransactionBufferRecoverTest", "testTransactionBufferSegmentSystemTopic")
def test_aborted_transactions_are_found_in_every_sealed_segment_and_behind_them() -> None:
    """Upstream's two sealed segments and the unsealed rest; also by a process that opens the log
    afterwards.
    """
    log = new_log()
    for start in (0, 5):
        _abort_each(log, *range(start, start + 5))
        log.maintain("seal")
    _abort_each(log, *range(10, 14))
    plain(log, 100)
    for known in (log, again(log)):
        sealed = _sidecars(known)
        assert [len(each) for each in sealed] == [5, 5]
        unsealed = known.state.partition(TopicPartition(known.state.topic("t").topic_id, 0)).aborted.array()
        firsts = [entry.first_offset for each in sealed for entry in each] + unsealed["first_offset"].tolist()
        assert firsts == list(range(0, 28, 2)), "each is one message and its marker"
        found = collect(sealed[1], 10, 20)
        assert [entry.first_offset for entry in found.entries] == [10, 12, 14, 16, 18]
        assert known.read("t").read_all().column("n").to_pylist() == [100]


@case("SegmentAbortedTxnProcessorTest", "testTxnSegmentStats")
def test_the_number_of_aborted_transactions_counts_sealed_and_unsealed() -> None:
    log = new_log()
    _abort_each(log, 1, 2, 3)
    assert log.offsets("t")[0].aborted_transactions == 3
    log.maintain("seal")
    _abort_each(log, 4, 5)
    (offsets,) = again(log).offsets("t")
    assert offsets.aborted_transactions == 5
    (measured,) = log.metrics().partitions
    assert (measured.records, measured.aborted_records) == (5, 5)


@case("SegmentAbortedTxnProcessorTest", "testFuturesCanCompleteWhenItIsCanceled")
def test_of_two_who_seal_the_same_offsets_one_is_told_and_neither_waits() -> None:
    log = new_log()
    _abort_each(log, 1, 2, 3)
    other = again(log)
    other.refresh()
    log.maintain("seal")
    entry = log.refresh().entry
    other.committer.seal()  # its view is older than the seal
    assert again(log).state.entry == entry, "the second is superseded, and nothing of it is in the log"
    assert [len(each) for each in _sidecars(other)] == [3]


@case("TopicTransactionBufferRecoverTest", "testSnapshotSegment")
@BUFFERS
def test_aborted_messages_stay_hidden_through_seals_and_reopenings(buffer: Buffer) -> None:
    """Rounds of plain, committed, aborted and still open messages; a process that opens the log knows all of
    them."""
    log = new_log()
    expected: list[int] = []
    for number in range(3):
        base = 100 * number
        for n in range(4):
            producer = opened(log, f"txn-{number}-{n}", buffer)
            send(producer, base + 10 + n)
            plain(log, base + n)
            if n % 2:
                producer.commit()
            else:
                producer.abort()
        log.maintain("seal")
        seen = read(log)
        expected += [base + n for n in (0, 1, 2, 3, 11, 13)]
        assert sorted(seen) == sorted(expected)
        assert read(log) == seen
    waiting = opened(log, "waiting", buffer)
    send(waiting, 999)
    assert sorted(read(log)) == sorted(expected)
    waiting.abort()
    assert sorted(read(log)) == sorted(expected)


@case("MetadataTransactionBufferTest", "recoveryDiscoveredAbortedTxn_persistsAbortedRecordAtSegmentLac")
def test_an_abort_that_another_process_makes_has_the_exact_offsets_of_the_transaction() -> None:
    """A client that finds a transaction need not guess its position: its first offset and its marker are in
    the log."""
    chain = Chain("dead", "b")
    chain.send(None, 5)
    chain.send("dead", 2)  # 5-6
    chain.send("b", 3)  # 7-9
    found = chain.folded()  # another process finds it
    assert list(found.transactional_ids["dead"].partitions.values()) == [5]
    chain.do(OpenProducer("dead"))  # marker at 10
    chain.end("b", COMMIT)
    assert chain.index() == [AbortedTransaction(0, 5, 10, 7)]
    assert chain.offsets() == [0, 1, 2, 3, 4, 7, 8, 9]


@case("MetadataTransactionBufferTest", "recoveryDiscoveredAbortedTxns_filteredImmediatelyAfterRecovery")
def test_a_process_that_opens_the_log_filters_every_aborted_transaction_at_once() -> None:
    """Several that were aborted one after the other: from any snapshot and the entries behind it, and from
    entry 0."""
    chain = Chain("a", "b")
    for _ in range(3):
        chain.send("a", 1)
        chain.send("b", 1)
        chain.end("a", ABORT)
        chain.end("b", ABORT)
    chain.send(None, 1)
    assert chain.offsets() == [12]
    for entry in range(len(chain.entries)):
        assert chain.offsets(state=chain.reopened(entry)) == [12], entry
    assert chain.offsets(state=chain.folded()) == [12]


@case("TransactionCoordinatorV5Test", "endTransaction_idempotent_onRetryWithSameAction")
@case("TransactionCoordinatorV5Test", "endTransaction_idempotentRetry_republishesEvents")
@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_repeated_end_gives_the_original_entry_and_writes_nothing(outcome: Outcome) -> None:
    """Nothing is published again: whoever missed the end finds it where it is, in the chain."""
    chain = Chain("a")
    producer = chain.producer("a")
    chain.send("a", 1)
    behind = chain.state
    chain.end("a", outcome)
    ended = chain.state.entry
    assert chain.decide(Write(producer, end=outcome)) == Done(ended)
    assert (chain.state.entry, chain.partition().log_end) == (ended, 2)
    assert behind.transactional_ids["a"].last_end is None
    known = chain.reopened(behind.entry).transactional_ids["a"].last_end
    assert known is not None
    assert (known.outcome, known.entry) == (outcome, ended)
