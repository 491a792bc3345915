"""Numbers of a producer: sequences, epochs and ids, and what becomes of a producer whose numbers do not fit
the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.conformance.core_log import NAME, CoreLog, orders
from tests.conformance.core_log import rows as some_rows
from tests.integration.clients.failing import BUFFERS, ENTRY, NUMBERS, Plan, faulty, read, rows
from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, encode_entry
from txnformat.core.intents import AllocateIds, ProducerRef, Write
from txnformat.core.operations import Append, Upgrade
from txnformat.core.producers.state import AppendedRange, SequenceVerdict, classify
from txnformat.core.state import FEATURES
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    InvalidTransactionStateError,
    Producer,
    ProducerIdConflictError,
    ProducerStatus,
    SequenceError,
    StorageError,
    TxnLog,
    UnknownProducerIdError,
    UnsupportedFeatureError,
)
from txnlog_testing.stores.faulty import Fault, FaultKind


def _sequences(log: TxnLog) -> list[tuple[int, int]]:
    """Return (epoch, base sequence) of every append of partition 0, in log order, from the entries' bytes."""
    found: list[tuple[int, int]] = []
    for number in range(log.refresh().entry + 1):
        data = log.store.get(keys.entry_key(number))
        assert data is not None
        for operation in decode_entry(data, number).operations:
            if isinstance(operation, Append):
                found += [(operation.epoch, part.base_sequence) for part in operation.partitions]
    return found


@case("TransactionManagerTest", "testDefaultSequenceNumber", "testEpochUpdateAfterBumpFromEndTxnResponseInV2")
@pytest.mark.parametrize("commit", [True, False])
def test_sequences_begin_at_0_in_each_epoch_and_follow_each_other(commit: bool) -> None:
    log = faulty(Plan())
    with Producer(log, "etl", buffer="inline") as producer:
        for _ in range(2):
            producer.begin()
            for number in range(3):
                producer.send("t", rows(*range(number + 1)))
                producer.flush()
            producer.commit() if commit else producer.abort()
    assert _sequences(log) == [(0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (1, 3)]
    with Producer(log, linger_ms=10**9) as plain:
        for _ in range(3):
            plain.send("t", rows(1, 2))
            plain.flush()
    assert _sequences(log)[6:] == [(0, 0), (0, 2), (0, 4)]


@case("TransactionManagerTest", "testSequenceNumberOverflow")
@pytest.mark.parametrize("last", [2**31 - 1, 2**31, 2**32 - 1, 2**53])
def test_sequences_never_wrap(last: int) -> None:
    """Kafka goes from 2147483647 to 0; here a 0 is no next number, and the next number always is."""
    window = (AppendedRange(last - 9, last, "digest", 0, 1),)
    assert classify(window, last + 1, 10, "more")[0] is SequenceVerdict.NEW
    assert classify(window, 0, 10, "more")[0] is SequenceVerdict.OUT_OF_ORDER
    log = CoreLog(AllocateIds("process"))
    log.do(Write(ProducerRef(0, 0), some_rows()))
    key = orders(0)
    partition = replace(log.state.partition(key), sequences={(0, 0): window})
    log.replace_state(replace(log.state, partitions={**log.state.partitions, key: partition}))
    assert (
        log.refusal(Write(ProducerRef(0, 0), some_rows(sequence=0, records=3))).kind
        == "out-of-order-sequence"
    )
    log.do(Write(ProducerRef(0, 0), some_rows(sequence=last + 1)))
    assert log.state.partition(key).sequences[0, 0][-1].last_sequence == last + 2


@case(
    "TransactionManagerTest",
    "testAbortTransactionAndReuseSequenceNumberOnError",
    "testBumpTransactionalEpochOnAbortableError",
    "testBumpTransactionalEpochOnRecoverableAddPartitionRequestError",
)
@BUFFERS
@pytest.mark.parametrize("where", [ENTRY, (RequestKind.OPEN_WRITE, KeyClass.DATA)])
def test_after_a_failed_flush_and_an_abort_numbers_fit_whatever_the_log_has(
    buffer: str, where: tuple[RequestKind, KeyClass]
) -> None:
    """An epoch is used up exactly when the log has an end of it; its sequences begin at 0 in any case."""
    plan = Plan()
    log = faulty(plan, embedding=False)
    with Producer(log, "etl", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        if buffer == "auto":  # the fault strikes when the file that takes both flushes is closed
            plan.always(*where, Fault(FaultKind.DISK_FULL))
        producer.flush()
        producer.send("t", rows(2))
        plan.always(*where, Fault(FaultKind.DISK_FULL))
        with pytest.raises(StorageError):
            producer.commit()
        plan.clear()
        producer.abort()
        expected = 0 if buffer == "auto" else 1
        assert producer.epoch == expected == log.refresh().transactional_ids["etl"].epoch
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert _sequences(log)[-1] == (expected, 0)
    assert read(log) == [3]


def _fork(producer: Producer) -> Producer:
    """Return a producer that has the same identity: as after a fork, or in a cloned machine."""
    twin = Producer(
        producer._log, producer.settings.transactional_id, buffer="inline" if _id(producer) else "auto"
    )
    twin._session.at = replace(twin._session.at, ref=producer._session.at.ref, status=ProducerStatus.READY)
    return twin


def _id(producer: Producer) -> str | None:
    return producer.settings.transactional_id


def _fatal(producer: Producer, error: type[SequenceError], first: Callable[[], object]) -> None:
    """The call finds out; from then on every call says the same, and closing is possible."""
    with pytest.raises(error) as found:
        first()
    assert producer.status is ProducerStatus.FENCED
    for call in (lambda: producer.send("t", rows(1)), producer.flush, producer.init):
        with pytest.raises(error) as again:
            call()
        assert str(again.value) == str(found.value)
    producer.close()


@case(
    "TransactionManagerTest",
    "testFailIfNotReadyForSendIdempotentProducerFatalError",
    "testProducerIdReset",
)
def test_a_plain_producer_whose_numbers_somebody_else_used_ends_and_a_new_one_has_its_own() -> None:
    """Kafka's client takes a new epoch and sends again: what the other had sent is then there twice, or not
    at all."""
    log = faulty(Plan())
    one = Producer(log, linger_ms=10**9)
    one.init()
    two = _fork(one)
    one.send("t", rows(1))
    one.flush()
    two.send("t", rows(2))
    _fatal(two, ProducerIdConflictError, two.flush)
    one.send("t", rows(3))
    one.flush()
    one.close()
    with Producer(log) as fresh:
        assert fresh.producer_id != one.producer_id
        fresh.send("t", rows(4))
    assert read(log) == [1, 3, 4]


@case(
    "TransactionManagerTest",
    "testBumpEpochAndResetSequenceNumbersAfterUnknownProducerId",
    "testAbortTransactionAndResetSequenceNumberOnUnknownProducerId",
    "testBumpTransactionalEpochOnUnknownProducerIdError",
)
def test_a_plain_producer_that_the_log_no_longer_knows_ends_and_a_new_one_begins_at_0() -> None:
    """Never does it go on from 0 by itself: nobody could tell its next records from its last ones sent
    again.
    """
    log = faulty(Plan())
    producer = Producer(log, linger_ms=10**9)
    producer.init()
    producer._session.at = replace(producer._session.at, ref=ProducerRef(4711, 0))
    producer.send("t", rows(1))
    _fatal(producer, UnknownProducerIdError, producer.flush)
    with Producer(log) as fresh:
        fresh.send("t", rows(2))
    assert _sequences(log) == [(0, 0)]
    assert read(log) == [2]


@case("TransactionManagerTest", "testInvalidTxnStateInAddPartitions")
@pytest.mark.parametrize("commit", [True, False])
def test_an_append_to_a_transaction_that_its_twin_has_ended_is_refused_and_an_abort_settles_it(
    commit: bool,
) -> None:
    """Kafka's client is of no more use then; here the abort tells what became of it, and the producer goes
    on."""
    log = faulty(Plan())
    with Producer(log, "etl", buffer="inline") as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.flush()
        twin = _fork(producer)
        twin.begin()
        twin._session.at = replace(twin._session.at, appended=True)
        twin.commit() if commit else twin.abort()
        producer.send("t", rows(2))
        with pytest.raises(InvalidTransactionStateError) as caught:
            producer.flush()
        assert caught.value.kind == "transaction-ended"
        if commit:
            with pytest.raises(InvalidTransactionStateError) as caught:
                producer.abort()
            assert caught.value.kind == "transaction-committed"
        else:
            producer.abort()
        with producer.transaction() as txn:
            txn.send("t", rows(3))
    assert read(log) == ([1, 3] if commit else [3])


@case("TransactionManagerTest", "testFatalErrorWhenProduceResponseWithInvalidPidMapping")
@pytest.mark.parametrize("stranger", [ProducerRef(99, 0, NAME), ProducerRef(0, 1, NAME)])
@pytest.mark.parametrize("call", ["flush", "commit", "abort"])
def test_a_producer_whose_identity_the_log_does_not_know_ends_and_can_be_closed(
    call: str, stranger: ProducerRef
) -> None:
    """Its id has expired, or its log is an older copy: no call can cure that, and every one says the same."""
    log = faulty(Plan())
    producer = Producer(log, NAME, buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    producer.flush()
    producer._session.at = replace(producer._session.at, ref=stranger)
    producer.send("t", rows(2))
    calls: dict[str, Callable[[], object]] = {
        "flush": producer.flush,
        "commit": producer.commit,
        "abort": producer.abort,
    }
    for each in (call, *calls):
        with pytest.raises(InvalidTransactionStateError) as caught:
            calls[each]()
        assert caught.value.kind in ("unknown-transactional-id", "unknown-epoch")
    statuses = [producer.status]
    producer.close()
    statuses.append(producer.status)
    assert statuses == [ProducerStatus.FENCED, ProducerStatus.CLOSED]
    with Producer(log, NAME) as fresh, fresh.transaction() as txn:
        txn.send("t", rows(3))
    assert read(log) == [3]


@case("TransactionManagerTest", "testUnsupportedFindCoordinator", "testUnsupportedInitTransactions")
@case("ProducerIdManagerTest", "testRetryBackoffOnVersionMismatch")
def test_a_log_of_the_future_is_read_and_refuses_producers() -> None:
    """It asks writers for something that this version does not have: a clear error before anything is
    written."""
    store = MemoryStore()
    with TxnLog.create(store) as log:
        log.create_topic("t", NUMBERS)
        state = log.state
    reader, writer, maintenance = (tuple(sorted(names)) for names in FEATURES)
    upgrade = Upgrade(reader, (*writer, "from-the-future"), maintenance)
    entry = CommitEntry(
        entry=state.entry + 1,
        log_id=state.log_id,
        write_id="a later version",
        previous=state.entry_sha256,
        timestamp_ms=state.timestamp_ms + 1,
        engine="txnlog-py/9",
        intents=("upgrade",),
        operations=(upgrade,),
    )
    store.create(keys.entry_key(entry.entry), encode_entry(entry))
    with TxnLog.open(store) as log:
        assert log.read("t").read_all().num_rows == 0
        for name in (None, "etl"):
            producer = Producer(log, name)
            with pytest.raises(UnsupportedFeatureError, match="from-the-future"):
                producer.init()
        assert log.refresh().entry == entry.entry
