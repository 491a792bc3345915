"""ProducerStateManagerTest, UnifiedLogTest and LogLoaderTest: producer state over snapshots, damage and
reopening."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.cases import case
from tests.conformance.chain import ABORT, ORDERS
from txnformat import keys
from txnformat.core.decide import decide
from txnformat.core.intents import (
    Action,
    AllocateIds,
    Done,
    Included,
    Intent,
    OpenProducer,
    ProducerRef,
    Rejected,
    TakeCheckpoint,
    Verdict,
    Write,
)
from txnformat.core.operations import Checkpoint
from txnformat.core.producers.state import WINDOW_APPENDS
from txnformat.core.snapshot.codec import state_digest
from txnformat.core.state import LogState
from txnformat.errors import ConflictError, OutOfOrderSequenceError, ProducerFencedError, StorageError
from txnformat.protocol.effects import GetObject, Simultaneous
from txnformat.protocol.follow import open_view
from txnformat.protocol.snapshots import TAIL_ENTRIES_MIN, snapshot_due, write_hint, write_snapshot
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.simulator.hand import Hand
from txnlog_testing.strategies import make_append

KEY = TopicPartition(ORDERS.topic_id, 0)
ETL, PLAIN = ProducerRef(0, 0, "etl"), ProducerRef(1, 0)


def write(producer: ProducerRef, sequence: int, records: int = 1, end: Outcome | None = None) -> Write:
    """Return an append to partition 0; its content follows from its sequences."""
    content = f"{producer} {sequence} {records}"
    return Write(producer, (make_append(ORDERS, {0: (sequence, records)}, content=content),), end)


class Stored:
    """A log on a store: the topic, the transactional id ``etl`` (producer 0) and ids from 1 on."""

    def __init__(self, *actions: Action) -> None:
        self.hand = Hand()
        self.states: list[LogState] = []
        self.do(ORDERS, OpenProducer("etl"), AllocateIds("process"), *actions)

    @property
    def state(self) -> LogState:
        return self.states[-1] if self.states else self.hand.empty()

    def do(self, *actions: Action) -> None:
        for action in actions:
            intent = Intent(self.hand.new_id(), self.state.entry + 1, action)
            self.states.append(self.hand.others_commit(self.state, intent))

    def snapshot(self, at: int | None = None) -> Checkpoint:
        """Write a snapshot of the state after an entry (default: the newest), name it, and hint at it."""
        state = self.state if at is None else self.states[at]
        checkpoint = self.hand.run(write_snapshot(self.hand.view(state)))
        self.do(TakeCheckpoint(checkpoint))
        self.hand.run(write_hint(checkpoint))
        return checkpoint

    def opened(self) -> LogState:
        """Return the newest state as a process gets it that opens the log; nothing is deleted or written."""
        before = dict(self.hand.objects)
        state = self.hand.run(open_view()).state
        assert self.hand.objects == before
        assert state_digest(state) == state_digest(self.state)
        return state

    def fetched(self) -> set[str]:
        """Return the keys that were asked for since this was called last."""
        found = set()
        for effect in self.hand.effects:
            requests = effect.requests if isinstance(effect, Simultaneous) else (effect,)
            found |= {one.key for one in requests if isinstance(one, GetObject)}
        self.hand.effects.clear()
        return found

    def verdict(self, state: LogState, action: Action) -> Verdict:
        return decide(state, Intent(self.hand.new_id(), state.entry + 1, action))


def started_at_entry_0(keys_fetched: set[str]) -> bool:
    return keys.entry_key(0) in keys_fetched


def appends(count: int) -> list[Action]:
    return [write(PLAIN, number) for number in range(count)]


@case("ProducerStateManagerTest", "testTakeSnapshot")
def test_a_snapshot_is_where_an_opener_begins() -> None:
    stored = Stored(*appends(3))
    at = stored.state.entry
    named = stored.snapshot()
    stored.do(write(PLAIN, 3))
    stored.fetched()
    stored.opened()
    fetched = stored.fetched()
    assert named.entry == at
    assert named.key in fetched
    assert not fetched & {keys.entry_key(entry) for entry in range(at + 1)}


@case("ProducerStateManagerTest", "testSkipSnapshotIfOffsetUnchanged")
def test_a_second_snapshot_of_the_same_entry_is_neither_due_nor_named() -> None:
    stored = Stored(*appends(2))
    state = stored.state
    stored.snapshot()
    again = stored.hand.run(write_snapshot(stored.hand.view(state)))
    verdict = stored.verdict(stored.state, TakeCheckpoint(again))
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.error, ConflictError)
    assert verdict.error.kind == "checkpoint-superseded"
    assert not snapshot_due(stored.state, True, 0.0)


@case("ProducerStateManagerTest", "testReadWriteSnapshot", "testLoadFromSnapshotRetainsNonExpiredProducers")
def test_every_producer_comes_back_with_all_five_appends_and_its_open_transaction() -> None:
    """Kafka's snapshot keeps one append of five: after a restart a repeat may be taken for new data."""
    stored = Stored(
        *appends(WINDOW_APPENDS + 1), write(ETL, 0, 2), write(ETL, 2, 1), write(ProducerRef(9, 0), 0)
    )
    stored.snapshot()
    partition = stored.opened().partition(KEY)
    assert {who: len(known) for who, known in partition.sequences.items()} == {
        (1, 0): 5,
        (0, 0): 2,
        (9, 0): 1,
    }
    assert partition.open == {(0, 0): WINDOW_APPENDS + 1}
    assert partition.sequences == stored.state.partition(KEY).sequences
    for number in range(WINDOW_APPENDS + 1):
        verdict = stored.verdict(stored.opened(), write(PLAIN, number))
        if number == 0:
            assert isinstance(verdict, Rejected)
            assert isinstance(verdict.error, OutOfOrderSequenceError)
        else:
            assert isinstance(verdict, Done)
            assert verdict.offsets == {KEY: number}


@case("ProducerStateManagerTest", "testFetchSnapshotEmptySnapShot")
@case("UnifiedLogTest", "testInitializationOfProducerSnapshotsUpgradePath")
@case(
    "LogLoaderTest",
    "testRecoverLastSegmentWithNoSnapshots",
    "testSkipLoadingIfEmptyProducerStateBeforeTruncation",
)
def test_a_log_without_snapshots_gives_the_same_producers_from_entry_0() -> None:
    stored = Stored(*appends(3), write(ETL, 0, 2))
    partition = stored.opened().partition(KEY)
    assert started_at_entry_0(stored.fetched())
    assert partition.sequences[1, 0][-1].last_sequence == 2
    assert partition.open == {(0, 0): 3}


@case("ProducerStateManagerTest", "testRecoverFromSnapshotUnfinishedTransaction")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_transaction_that_is_open_in_a_snapshot_goes_on_and_ends(outcome: Outcome) -> None:
    stored = Stored(write(ETL, 0, 2))
    stored.snapshot()
    assert stored.opened().partition(KEY).last_stable_offset == 0
    stored.do(write(ETL, 2, 1), Write(ETL, end=outcome))
    partition = stored.opened().partition(KEY)
    assert (partition.last_stable_offset, partition.open) == (4, {})
    assert len(partition.aborted) == int(outcome is ABORT)


@case("ProducerStateManagerTest", "testRecoverFromSnapshotFinishedTransaction")
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_transaction_that_ended_before_a_snapshot_stays_ended_and_its_epoch_fenced(
    outcome: Outcome,
) -> None:
    stored = Stored(write(ETL, 0, 2), Write(ETL, end=outcome))
    ended = stored.state.entry
    stored.snapshot()
    opened = stored.opened()
    assert opened.partition(KEY).open == {}
    assert opened.transactional_ids["etl"].epoch == 1
    assert stored.verdict(opened, Write(ETL, end=outcome)) == Done(ended)
    assert isinstance(stored.verdict(opened, write(ETL, 2)), Rejected)
    assert isinstance(stored.verdict(opened, write(ProducerRef(0, 1, "etl"), 0)), Included)


@case("ProducerStateManagerTest", "testRecoverFromSnapshotEmptyTransaction")
def test_an_init_before_a_snapshot_fences_after_it() -> None:
    stored = Stored(OpenProducer("etl"))
    stored.snapshot()
    opened = stored.opened()
    assert opened.partition(KEY).open == {}
    verdict = stored.verdict(opened, write(ETL, 0))
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.error, ProducerFencedError)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "testLoadFromEmptySnapshotFile": lambda data: b"",
    "testLoadFromTruncatedSnapshotFile": lambda data: data[: len(data) // 2],
    "testLoadFromCorruptSnapshotFile": lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
}


@case(
    "ProducerStateManagerTest",
    "testLoadFromEmptySnapshotFile",
    "testLoadFromTruncatedSnapshotFile",
    "testLoadFromCorruptSnapshotFile",
)
@case("LogLoaderTest", "testCorruptedLogRecoveryDoesNotDeleteProducerStateSnapshotsPostRecovery")
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_snapshot_is_not_used_and_the_one_before_it_is(damage: Callable[[bytes], bytes]) -> None:
    stored = Stored(write(PLAIN, 0))
    older = stored.snapshot()
    stored.do(write(PLAIN, 1))
    newer = stored.snapshot()
    stored.do(write(PLAIN, 2))
    stored.hand.objects[newer.key] = damage(stored.hand.objects[newer.key])
    stored.fetched()
    assert stored.opened().partition(KEY).sequences[1, 0][-1].last_sequence == 2
    fetched = stored.fetched()
    assert older.key in fetched
    assert not started_at_entry_0(fetched)
    stored.hand.objects[older.key] = damage(stored.hand.objects[older.key])
    assert stored.opened().partition(KEY).sequences[1, 0][-1].last_sequence == 2
    assert started_at_entry_0(stored.fetched()), "without any snapshot, the entries themselves"


@case("ProducerStateManagerTest", "testReloadSnapshots")
def test_snapshots_are_found_by_listing_when_the_hint_is_gone() -> None:
    stored = Stored(write(PLAIN, 0))
    stored.snapshot()
    stored.do(write(PLAIN, 1))
    newest = stored.snapshot()
    del stored.hand.objects[keys.LATEST_KEY]
    stored.fetched()
    stored.opened()
    fetched = stored.fetched()
    assert newest.key in fetched
    assert not started_at_entry_0(fetched)


@case("ProducerStateManagerTest", "testTruncateAndReloadRemovesOutOfRangeSnapshots")
@case("UnifiedLogTest", "testLoadingLogDeletesProducerStateSnapshotsPastLogEndOffset")
@case(
    "LogLoaderTest",
    "testProducerSnapshotsRecoveryAfterUncleanShutdown",
    "testLoadingLogKeepsLargestStrayProducerStateSnapshot",
)
def test_a_snapshot_that_no_entry_names_is_never_used_whatever_entry_it_is_called_after() -> None:
    """Left by a crash before its entry, or of another history: it holds what this log does not say."""
    stored = Stored(write(PLAIN, 0))
    named = stored.snapshot()
    other = Stored(*appends(9))
    crashed = other.hand.run(write_snapshot(other.hand.view(other.state)))
    for entry in (named.entry + 1, stored.state.entry, stored.state.entry + 50):
        stray = keys.snapshot_key(entry, stored.hand.new_id())
        stored.hand.objects[stray] = other.hand.objects[crashed.key]
    for hint in (True, False):
        if not hint:
            del stored.hand.objects[keys.LATEST_KEY]
        stored.fetched()
        assert stored.opened().partition(KEY).sequences[1, 0][-1].last_sequence == 0
        assert named.key in stored.fetched()


@case("UnifiedLogTest", "testProducerSnapshotAfterSegmentRollOnAppend")
def test_who_crosses_the_bound_of_the_tail_writes_a_snapshot_and_nobody_before() -> None:
    stored = Stored()
    for number in range(TAIL_ENTRIES_MIN - 2):
        stored.do(write(PLAIN, number))
        assert not snapshot_due(stored.state, True, 0.99)
        assert not snapshot_due(stored.state, False, 0.0), "another process leaves it to the author"
    stored.do(write(PLAIN, TAIL_ENTRIES_MIN - 2))
    assert snapshot_due(stored.state, True, 0.99)
    assert stored.state.entry == TAIL_ENTRIES_MIN + 1
    stored.snapshot()
    assert not snapshot_due(stored.state, True, 0.0)
    stored.opened()


@case("UnifiedLogTest", "testRecoveryPointNotIncrementedOnProducerStateSnapshotFlushFailure")
def test_a_snapshot_that_cannot_be_stored_is_not_named_and_harms_nobody() -> None:
    stored = Stored(*appends(2))
    stored.hand.creates = [
        CreateResult(CreateOutcome.REFUSED, StorageError("no space left", kind="disk-full"))
    ]
    with pytest.raises(StorageError):
        stored.snapshot()
    assert stored.state.checkpoints == ()
    assert not [key for key in stored.hand.objects if key.startswith(keys.SNAPSHOT_PREFIX)]
    stored.opened()
    assert stored.snapshot().entry == stored.state.entry - 1
