"""ReplicaManagerTest and PartitionTest: that an append belongs to an open transaction is verified before it
is written.

Kafka's partition leaders ask the transaction's coordinator, and keep a guard until the answer is there. Here
the entry that would place the records is decided on the state that holds the transactions: one step verifies
and appends.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ORDERS, Chain
from tests.conformance.core_log import CoreLog, kinds, rows
from tests.conformance.scenes import NUMBERS
from tests.integration.clients.failing import ENTRY, Plan, faulty, read
from txnformat.core.assemble import assemble
from txnformat.core.fold import At, apply_operation
from txnformat.core.intents import AllocateIds, Included, OpenProducer, ProducerRef, Rejected, Write
from txnformat.core.operations import Append
from txnformat.core.snapshot.codec import state_digest
from txnformat.errors import (
    CorruptDataError,
    InvalidTransactionStateError,
    ProducerFencedError,
    SequenceError,
    UnknownProducerIdError,
)
from txnformat.persistent import replace
from txnformat.store.memory import MemoryStore
from txnformat.types import Outcome, TopicPartition
from txnlog import Producer, StorageError, TxnLog
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.faulty import Fault, FaultKind

KEY = TopicPartition(ORDERS.topic_id, 0)
UNKNOWN = ProducerRef(7, 0, "etl")


def refused(chain: Chain, write: Write) -> str:
    """Return the kind of the error with which an append is refused, of which nothing stays behind."""
    before = state_digest(chain.state)
    error = chain.refusal(write)
    assert state_digest(chain.state) == before
    return error.kind


@case("ReplicaManagerTest", "testTransactionVerificationFlow")
@case("PartitionTest", "testMaybeStartTransactionVerification")
def test_an_append_without_its_transaction_is_refused_and_taken_as_soon_as_there_is_one() -> None:
    chain = Chain()
    first = chain.write(UNKNOWN, 3, sequence=0)
    assert refused(chain, first) == "unknown-transactional-id"
    assert refused(chain, first) == "unknown-transactional-id", "asking does not help"
    chain.do(OpenProducer("etl"))
    wrong = replace(chain.producer("etl"), epoch=1)
    assert refused(chain, replace(first, producer=wrong)) == "unknown-epoch"
    chain.do(replace(first, producer=chain.producer("etl")))
    assert chain.partition().open == {(0, 0): 0}
    chain.do(chain.write(chain.producer("etl"), 1, sequence=3))
    assert chain.partition().log_end == 4


@case("ReplicaManagerTest", "testTransactionVerificationBlocksOutOfOrderSequence")
def test_the_second_append_is_refused_when_the_first_was() -> None:
    chain = Chain()
    assert refused(chain, chain.write(UNKNOWN, 1, sequence=0)) == "unknown-transactional-id"
    chain.do(OpenProducer("etl"))
    producer = chain.producer("etl")
    second = chain.write(producer, 1, sequence=1)
    assert isinstance(chain.refusal(second), SequenceError)
    assert chain.partition().open == {}
    chain.do(chain.write(producer, 1, sequence=0), second)
    assert chain.partition().log_end == 2


@case("ReplicaManagerTest", "testTransactionVerificationRejectsLowerProducerEpoch")
def test_an_append_of_an_older_epoch_is_fenced_while_the_newer_ones_transaction_is_open() -> None:
    chain = Chain("etl")
    old = chain.producer("etl")
    chain.do(*[OpenProducer("etl")] * 5)
    new = chain.producer("etl")
    assert new.epoch == 5
    chain.do(chain.write(new, 1, sequence=0))
    for epoch in range(5):
        error = chain.refusal(chain.write(replace(old, epoch=epoch), 1, sequence=1))
        assert isinstance(error, ProducerFencedError)
    assert chain.partition().open == {(0, 5): 0}


@case("ReplicaManagerTest", "testTransactionVerificationGuardOnMultiplePartitions")
def test_one_append_to_several_partitions_is_verified_and_placed_by_one_entry() -> None:
    log = CoreLog()
    producer = log.open()
    assert kinds(log.apply(Write(producer, rows(0, 1)))) == ["Append"]
    assert [log.partition(number).log_end for number in range(3)] == [2, 2, 0]
    stale = replace(producer, epoch=1)
    assert refused(log, Write(stale, rows(1, 2))) == "unknown-epoch"
    assert [log.partition(number).log_end for number in range(3)] == [2, 2, 0], "in none of them"


@case("ReplicaManagerTest", "testExceptionWhenUnverifiedTransactionHasMultipleProducerIds")
def test_a_transactional_id_appends_under_its_own_producer_id_only() -> None:
    chain = Chain("etl", "other")
    other = ProducerRef(chain.producer("other").producer_id, 0, "etl")
    error = chain.refusal(chain.write(other, 1, sequence=0))
    assert isinstance(error, InvalidTransactionStateError)
    assert error.kind == "unknown-transactional-id"
    # A write has one identity. In an entry, appends under one transactional id could have several: it is not
    # folded.
    verdict = chain.decide(chain.write(chain.producer("etl"), 1, partitions=(0,)))
    assert isinstance(verdict, Included)
    (append,) = verdict.operations
    assert isinstance(append, Append)
    (part,) = append.partitions
    forged = replace(append, producer_id=other.producer_id, partitions=(replace(part, partition=1),))
    with pytest.raises(CorruptDataError):
        apply_operation(chain.state, forged, At(chain.state.entry + 1, chain.state.timestamp_ms + 1))


@case("ReplicaManagerTest", "testVerificationForTransactionalPartitionsOnly")
def test_appends_outside_transactions_need_none_also_beside_a_transaction_in_one_entry() -> None:
    chain = Chain("etl")
    chain.do(AllocateIds("process"))
    transactional = chain.producer("etl")
    idempotent = ProducerRef(next(n for n in range(10_000) if chain.state.may_begin(n)), 0)
    chain.do(chain.write(idempotent, 1, sequence=0))
    assert chain.partition().open == {}
    verdicts = chain.group(
        chain.write(transactional, 1, sequence=0, partitions=(1,)),
        chain.write(idempotent, 1, sequence=1),
        chain.write(replace(transactional, epoch=9), 1, sequence=0, partitions=(2,)),
    )
    assert [isinstance(verdict, Included) for verdict in verdicts] == [True, True, False]
    assert [chain.partition(number).log_end for number in range(3)] == [2, 1, 0]
    assert [len(chain.partition(number).open) for number in range(3)] == [0, 1, 0]
    without = replace(transactional, transactional_id=None)
    assert isinstance(chain.refusal(chain.write(without, 1, sequence=0)), UnknownProducerIdError)


@case(
    "ReplicaManagerTest",
    "testDisabledTransactionVerification",
    "testTransactionVerificationDynamicDisablement",
)
def test_verification_costs_no_request_so_nothing_turns_it_off() -> None:
    store = CountingStore(MemoryStore())
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS, partitions=4)
    with Producer(log, "etl", buffer="inline") as producer, Producer(log, linger_ms=10**9) as plain:
        producer.begin()
        plain.send("t", [{"n": -1}], partition=0)
        plain.flush()  # its producer id is given now
        costs = []
        for sender, partition in ((plain, 0), (producer, 1), (producer, 1), (producer, 2), (plain, 3)):
            with store.measure() as measured:
                sender.send("t", [{"n": partition}], partition=partition)
                sender.flush()
            costs.append(measured.counts.requests)
        assert costs[1:] == costs[:-1], "the first append to a partition costs what every other costs"
        late = Producer(log, "etl", buffer="inline")
        late.init()
        producer.send("t", [{"n": 9}], partition=3)
        with pytest.raises(ProducerFencedError):
            producer.flush()
        assert log.offsets("t")[3].log_end == 1


@case("ReplicaManagerTest", "testTransactionAddPartitionRetry")
@pytest.mark.parametrize("winner", ["append", *Outcome], ids=str)
def test_an_append_that_lost_its_slot_is_decided_again_on_what_the_winner_left(winner: str) -> None:
    """An append of somebody else only moves it; the end of its transaction refuses it."""
    chain = Chain("etl", "other")
    producer = chain.producer("etl")
    chain.do(chain.write(producer, 1, sequence=0))
    intent = chain.intent(chain.write(producer, 2, sequence=1))
    base_offsets = []
    for wins in (False, True):
        if wins and winner == "append":
            chain.send("other", 3)
        elif wins:
            chain.end("etl", Outcome(winner))
        made = assemble(chain.state, [intent], store_time_ms=chain.now_ms, write_id="an attempt")
        verdict = made.verdicts[intent.intent_id]
        if isinstance(verdict, Included):
            (append,) = verdict.operations
            assert isinstance(append, Append)
            base_offsets.append(append.partitions[0].base_offset)
        else:
            assert isinstance(verdict, Rejected)
            assert verdict.error.kind == "transaction-ended"
            assert made.entry is None
    assert base_offsets == ([1, 4] if winner == "append" else [1])


@case("ReplicaManagerTest", "testVerificationErrorConversionsTV2")
@pytest.mark.parametrize(
    "kind", [FaultKind.FAIL_BEFORE, FaultKind.SERVER_ERROR, FaultKind.CONFLICT_409], ids=str
)
def test_an_append_is_repeated_while_the_store_fails_for_a_moment_and_is_there_once(kind: FaultKind) -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "etl", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", [{"n": 1}])
    plan.next(*ENTRY, Fault(kind), Fault(kind))
    producer.flush()
    producer.commit()
    assert read(log) == [1]
    assert log.offsets("t")[0].log_end == 2
    producer.close()


@case("ReplicaManagerTest", "testVerificationErrorConversionsTV1")
def test_an_append_that_the_store_refuses_is_told_and_can_be_repeated() -> None:
    plan = Plan()
    log = faulty(plan)
    producer = Producer(log, "etl", buffer="inline")
    producer.init()
    producer.begin()
    producer.send("t", [{"n": 1}])
    plan.always(*ENTRY, Fault(FaultKind.DISK_FULL))
    for _ in range(2):
        with pytest.raises(StorageError) as caught:
            producer.flush()
        assert caught.value.kind == "disk-full"
        assert log.offsets("t")[0].log_end == 0
    plan.clear()
    producer.flush()
    producer.commit()
    assert read(log) == [1]
    producer.close()
