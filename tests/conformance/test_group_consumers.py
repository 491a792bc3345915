"""TransactionsTest, librdkafka's and kafkatest's: consumers of groups beside transactions that take their
offsets along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import BUFFERS, ENTRY, NUMBERS, Plan, QuickClock, faulty, read, rows
from tests.integration.consumers.consuming import World, drained, numbers
from txnformat.store.memory import MemoryStore
from txnformat.types import TopicPartition
from txnlog import (
    CommitStateUnknownError,
    ConflictError,
    Consumer,
    OffsetAndMetadata,
    Producer,
    ProducerFencedError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind

RECORDS = 60
PARTITIONS = 3
GROUP = "copiers"


def filled(aborts: bool = True) -> TxnLog:
    """Return a log with numbers in ``one``, some of them aborted, and an empty ``two``."""
    clock = QuickClock()
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    for topic in ("one", "two"):
        log.create_topic(topic, NUMBERS, partitions=PARTITIONS)
    with Producer(log, "seed", buffer="inline") as producer:
        for first in range(0, RECORDS, 10):
            for outcome in ("abort", "commit") if aborts else ("commit",):
                producer.begin()
                for n in range(first, first + 10):
                    producer.send("one", rows(n if outcome == "commit" else -1 - n), partition=n % PARTITIONS)
                producer.flush()
                (producer.commit if outcome == "commit" else producer.abort)()
    return log


def copied(log: TxnLog) -> list[int]:
    """Return what is committed in ``two``, sorted."""
    log = TxnLog.open(log.store, clock=log.committer.clock)
    found: list[int] = log.read("two").read_all()["n"].to_pylist()
    return sorted(found)


class Copier:
    """A consumer of ``one`` and a producer to ``two``: what is read and what is written come in one step."""

    def __init__(
        self, log: TxnLog, name: str, random: Random, *, gives: str = "consumer", buffer: str = "auto"
    ) -> None:
        self.log = TxnLog.open(log.store, clock=log.committer.clock)
        self.consumer = Consumer(self.log, GROUP)
        self.producer = Producer(self.log, name, buffer=buffer)
        self.producer.init()
        self.consumer.subscribe(["one"])
        self._random = random
        self._gives = gives

    def step(self) -> bool:
        """Copy some records in a transaction, which is committed or aborted; False: there are none."""
        batch = self.consumer.poll(0, self._random.randint(1, 12))
        if batch is None:
            return False
        self.producer.begin()
        for row in batch.to_pylist():
            self.producer.send("two", rows(row["n"]), partition=row["_partition"])
        if self._random.random() < 0.3:
            self.producer.flush()
        if self._gives == "consumer":
            self.producer.send_offsets(self.consumer)
        else:
            self.producer.send_offsets(self.consumer.group_metadata, self.consumer.positions())
        if self._random.random() < 0.4:
            self.producer.abort()
            self.consumer.seek_to_committed()
        else:
            self.producer.commit()
        return True

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


@case("TransactionsTest", "testClassicSendOffsetsWithGroupMetadata", "testAsyncSendOffsetsWithGroupMetadata")
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicSendOffsetsWithGroupMetadata",
    "testAsyncSendOffsetsWithGroupMetadata",
)
@case("librdkafka-0103-transactions", "do_test_consumer_producer_txn")
@BUFFERS
@pytest.mark.parametrize("gives", ["consumer", "metadata"])
@pytest.mark.parametrize("seals", [False, True], ids=["in the state", "sealed"])
def test_what_is_copied_in_transactions_that_commit_and_abort_is_copied_once(
    seals: bool, gives: str, buffer: str
) -> None:
    log = filled()
    random = Random(f"{seals} {gives} {buffer}")
    while True:
        copier = Copier(log, "copier", random, gives=gives, buffer=buffer)
        steps = random.randint(1, 8)
        went_on = [copier.step() for _ in range(steps)]
        copier.close()
        if seals:
            log.maintain("seal")
        if not all(went_on):
            break
    assert copied(log) == list(range(RECORDS))
    with Consumer(log, GROUP) as consumer:
        consumer.subscribe(["one"])
        assert consumer.lag() == {("one", number): 0 for number in range(PARTITIONS)}
        assert drained(consumer) == []


@case("kafkatest-transactions", "group_mode_transactions_test.test_transactions")
@BUFFERS
def test_copiers_that_take_over_from_each_other_in_the_middle_of_transactions_copy_once(buffer: str) -> None:
    """Each new member fences the one before, whose open transaction cannot be committed with the group's
    offsets."""
    log = filled()
    random = Random(buffer)
    copiers: dict[str, Copier] = {}
    kinds: list[str] = []
    steps = 0
    went_on = True
    while went_on:
        steps += 1
        name = random.choice(("left", "right"))
        if name not in copiers:
            copiers[name] = Copier(log, name, random, buffer=buffer)
        try:
            went_on = copiers[name].step()
        except ConflictError as error:
            kinds.append(error.kind)
            copiers.pop(name).close()
    assert set(kinds) == {"member-fenced"}
    assert len(kinds) < steps < 1_000
    for copier in copiers.values():
        copier.close()
    assert copied(log) == list(range(RECORDS))


@case("librdkafka-0103-transactions", "do_test_txn_abort_control_message_leader_epoch")
def test_a_group_that_read_nothing_but_an_aborted_record_and_its_marker_commits_behind_them() -> None:
    world = World()
    world.abort(1)
    with Consumer(world.log, "g") as consumer:
        consumer.subscribe(["t"])
        assert consumer.poll(0) is None
        consumer.commit()
        assert consumer.committed("t", 0) == 2


@case("KnownFlaws", "the position after an abort is anywhere")
@BUFFERS
def test_after_an_abort_the_position_is_where_polls_left_it_and_the_committed_one_where_it_was(
    buffer: str,
) -> None:
    log = filled(aborts=False)
    with Consumer(log, GROUP, max_poll_records=5) as consumer, Producer(log, "p", buffer=buffer) as producer:
        consumer.assign([("one", 0)])
        first = numbers(consumer.poll(0))
        before = consumer.position("one", 0)
        for commits in (False, False, True):
            producer.begin()
            producer.send("two", rows(*first or []), partition=0)
            producer.send_offsets(consumer)
            producer.flush()
            (producer.commit if commits else producer.abort)()
            assert consumer.position("one", 0) == before
            assert consumer.committed("one", 0) == (before if commits else None)
            consumer.seek_to_committed()
            if not commits:
                assert consumer.position("one", 0) == 0
                assert numbers(consumer.poll(0)) == first, "the same records again"
        assert consumer.position("one", 0) == before
    assert copied(log) == first


class Ending(QuickClock):
    """A clock that does something while somebody waits: at the n-th wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self.call: tuple[int, Callable[[], object]] | None = None

    def sleep(self, seconds: float, wake: object = None) -> None:
        super().sleep(seconds)
        self.waits += 1
        if self.call is not None and self.waits >= self.call[0]:
            (_, call), self.call = self.call, None
            call()


@contextmanager
def pending(clock: Ending) -> Iterator[tuple[TxnLog, Producer]]:
    """Yield a log with an offset (50) of ``g`` in force, and a producer with another one (60) pending."""
    log = TxnLog.create(MemoryStore(clock), clock=clock)
    log.create_topic("t", NUMBERS)
    with Producer(log) as plain:
        plain.send("t", rows(*range(100)))
    with Consumer(log, "g") as consumer:
        consumer.assign([("t", 0)])
        consumer.commit({("t", 0): 50})
    with Producer(log, "p", buffer="inline") as producer:
        producer.begin()
        producer.send_offsets("g", {("t", 0): 60})
        producer.flush()
        yield log, producer


@case("librdkafka-0105-transactions_mock", "do_test_unstable_offset_commit")
@case(
    "OffsetMetadataManagerTest",
    "testFetchOffsetsWithPendingTransactionalOffsets",
    "testFetchAllOffsetsWithPendingTransactionalOffsets",
)
@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("how", ["committed", "assign", "subscribe"])
def test_who_asks_for_a_position_that_is_pending_waits_until_it_is_decided(how: str, commits: bool) -> None:
    clock = Ending()
    with pending(clock) as (log, producer), Consumer(log, "g", auto_offset_reset="none") as consumer:
        clock.call = clock.waits + 3, producer.commit if commits else producer.abort
        expected = 60 if commits else 50
        if how == "committed":
            assert consumer.committed("t", 0) == expected
        else:
            consumer.assign([("t", 0)]) if how == "assign" else consumer.subscribe(["t"])
            assert consumer.position("t", 0) == expected
            assert numbers(consumer.poll(0, 1)) == [expected]
        assert clock.call is None


@case("librdkafka-0105-transactions_mock", "do_test_unstable_offset_commit")
@case("OffsetMetadataManagerTest", "testFetchOffsetsWithPendingTransactionalOffsets")
@pytest.mark.parametrize("how", ["committed", "assign"])
def test_a_position_that_stays_pending_is_an_error_after_the_time_that_was_given(how: str) -> None:
    clock = Ending()
    with pending(clock) as (log, _), Consumer(log, "g", default_api_timeout_ms=200) as consumer:
        before = clock.now().wall_ms
        with pytest.raises(ConflictError) as caught:
            consumer.committed("t", 0) if how == "committed" else consumer.assign([("t", 0)])
        assert caught.value.kind == "offsets-pending"
        assert clock.now().wall_ms - before >= 200


@case(
    "TransactionsTest",
    "testClassicOffsetMetadataInSendOffsetsToTransaction",
    "testAsyncOffsetMetadataInSendOffsetsToTransaction",
)
@case(
    "TransactionsWithTieredStoreTest",
    "testClassicOffsetMetadataInSendOffsetsToTransaction",
    "testAsyncOffsetMetadataInSendOffsetsToTransaction",
)
@BUFFERS
def test_the_text_beside_an_offset_is_kept_with_it(buffer: str) -> None:
    log = filled(aborts=False)
    with Producer(log, "p", buffer=buffer) as producer, producer.transaction() as txn:
        txn.send_offsets(GROUP, {("one", 0): OffsetAndMetadata(10, "some metadata"), ("one", 1): 3})
    committed = log.refresh().groups[GROUP].committed
    topic_id = log.state.topic_ids["one"]
    found = [
        (one.value, one.metadata)
        for one in map(committed.__getitem__, [TopicPartition(topic_id, n) for n in (0, 1)])
    ]
    assert found == [(10, "some metadata"), (3, "")]
    with Consumer(log, GROUP) as consumer:
        assert consumer.committed("one", 0) == 10


@case("TransactionsTest", "testFencingOnSendOffsets")
@case("TransactionsWithTieredStoreTest", "testClassicFencingOnSendOffsets", "testAsyncFencingOnSendOffsets")
@BUFFERS
def test_offsets_of_an_older_instance_are_refused_and_the_newer_ones_stand(buffer: str) -> None:
    log = filled(aborts=False)
    older, newer = (Producer(log, "transactional-producer", buffer=buffer) for _ in range(2))
    older.init()
    older.begin()
    older.send("two", rows(1), partition=0)
    older.flush()
    newer.init()
    newer.begin()
    newer.send("two", rows(24), partition=0)
    newer.send_offsets(GROUP, {("one", 0): 20})
    older.send_offsets(GROUP, {("one", 0): 10})
    with pytest.raises(ProducerFencedError):
        older.commit()
    newer.commit()
    with Consumer(log, GROUP) as consumer:
        assert consumer.committed("one", 0) == 20
    assert copied(log) == [24]
    for producer in (older, newer):
        producer.close()


@case("TransactionsTest", "testSendOffsetsToTransactionTimeout")
@case("TransactionsWithTieredStoreTest", "testSendOffsetsToTransactionTimeout")
@BUFFERS
def test_offsets_that_a_store_which_is_away_never_takes_end_in_a_bounded_time(buffer: str) -> None:
    plan = Plan()
    log = faulty(plan)
    with Producer(log) as plain:
        plain.send("t", rows(100))
    with Producer(log, "p", buffer=buffer) as producer:
        producer.begin()
        producer.send("t", rows(1))
        producer.send_offsets(GROUP, {("t", 0): 1})
        before = log.committer.clock.now().wall_ms
        plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
        with pytest.raises(CommitStateUnknownError):
            producer.commit()
        assert 0 < log.committer.clock.now().wall_ms - before < 5 * 60_000
        plan.clear()
        producer.abort()
    assert read(log) == [100]
    assert GROUP not in log.refresh().groups
