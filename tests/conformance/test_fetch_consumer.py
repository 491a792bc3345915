"""FetcherTest and its relatives, by a consumer: what polls return, where it stands then, and how far it
lags.
"""

from __future__ import annotations

import pytest

from tests.conformance.cases import case
from tests.integration.consumers.consuming import World, drained, numbers
from txnformat.errors import OffsetOutOfRangeError
from txnlog import Producer

PARTITION = ("t", 0)
SEALED = pytest.mark.parametrize("seals", [False, True], ids=["in the state", "sealed"])


def settle(world: World, seals: bool) -> None:
    """Seal what can be sealed, if wanted."""
    if seals:
        world.writing.maintain("seal")


@case("FetcherTest", "testFetcherIgnoresControlRecords")
@SEALED
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_marker_moves_the_position_and_is_never_returned(isolation: str, seals: bool) -> None:
    world = World()
    world.append(1)
    settle(world, seals)
    with world.consumer(isolation=isolation) as consumer:
        (row,) = consumer.poll_dicts()
        assert (row["n"], row["_offset"]) == (1, 0)
        assert consumer.position("t", 0) == 2, "by that very poll"
        assert consumer.poll(0) is None


@case("FetcherTest", "testReadCommittedLagMetric")
def test_the_lag_ends_at_the_last_stable_offset_and_goes_with_the_assignment() -> None:
    """Kafka's is a difference of offsets; here markers and aborted records are left out."""
    world = World(2)
    with Producer(world.writing) as plain:
        plain.send("t", [{"n": n} for n in range(50)], partition=0)
    world.begin(*range(50, 100))
    with (
        world.consumer(0) as committed,
        world.consumer(0, isolation="read_uncommitted") as uncommitted,
    ):
        assert (committed.lag(), uncommitted.lag()) == ({PARTITION: 50}, {PARTITION: 100})
        for consumer in (committed, uncommitted):
            assert numbers(consumer.poll(0, 3)) == [0, 1, 2]
        assert (committed.lag(), uncommitted.lag()) == ({PARTITION: 47}, {PARTITION: 97})
        world.producer("open").abort()
        assert (committed.lag(), uncommitted.lag()) == ({PARTITION: 47}, {PARTITION: 97})
        world.append(100)
        assert (committed.lag(), uncommitted.lag()) == ({PARTITION: 48}, {PARTITION: 98})
        committed.assign([])
        assert committed.lag() == {}


@case("FetcherTest", "testConsumerPositionUpdatedWhenSkippingAbortedTransactions")
@case("FetcherTest", "testSkippingAbortedTransactions", "testUpdatePositionOnEmptyBatch")
@SEALED
def test_a_poll_that_returns_nothing_of_an_aborted_transaction_moves_the_position_behind_it(
    seals: bool,
) -> None:
    world = World()
    world.abort(1, 2)
    settle(world, seals)
    with world.consumer() as consumer:
        assert consumer.poll(0) is None
        assert consumer.position("t", 0) == 3
        world.append(3)
        settle(world, seals)
        assert drained(consumer) == [3]
        assert consumer.position("t", 0) == 5


@case("FetcherTest", "testReturnCommittedTransactions")
@case("CompletedFetchTest", "testCommittedTransactionRecordsIncluded", "testAbortedTransactionRecordsRemoved")
@SEALED
@pytest.mark.parametrize("commits", [True, False])
def test_ten_records_are_polled_when_they_are_committed_and_at_once_at_read_uncommitted(
    commits: bool, seals: bool
) -> None:
    world = World()
    ten = list(range(10))
    with world.consumer() as committed, world.consumer(isolation="read_uncommitted") as uncommitted:
        writer = world.begin(*ten)
        assert numbers(uncommitted.poll(0, 10)) == ten
        assert uncommitted.position("t", 0) == 10
        assert (drained(committed), committed.position("t", 0)) == ([], 0)
        (writer.commit if commits else writer.abort)()
        settle(world, seals)
        assert numbers(committed.poll(0, 10)) == (ten if commits else None)
        assert committed.position("t", 0) == 11
        assert drained(uncommitted) == []
        assert committed.positions() == uncommitted.positions() == {PARTITION: 11}


@case("FetcherTest", "testReadCommittedWithCommittedAndAbortedTransactions")
@case("FetcherTest", "testReturnAbortedTransactionsInUncommittedMode")
@SEALED
@pytest.mark.parametrize("max_records", [1, 2, 500])
def test_interleaved_transactions_are_polled_in_pieces_of_any_size(max_records: int, seals: bool) -> None:
    world = World()
    with world.consumer() as reading, world.consumer(isolation="read_uncommitted") as everything:
        first, second = world.begin(10, 11, producer="1"), world.begin(20, producer="2")
        first.commit()
        second.send("t", [{"n": 21}], partition=0)
        second.flush()
        assert drained(reading, max_records) == [10, 11], "up to the one that is open"
        second.abort()
        first, second = world.begin(12, producer="1"), world.begin(22, producer="2")
        first.send("t", [{"n": 13}], partition=0)
        first.flush()
        first.abort()
        settle(world, seals)
        assert drained(reading, max_records) == []
        assert reading.position("t", 0) == 7
        second.commit()
        settle(world, seals)
        assert drained(reading, max_records) == [22]
        assert drained(everything, max_records) == [10, 11, 20, 21, 12, 22, 13]
        assert reading.positions() == everything.positions() == {PARTITION: 11}


@case("FetchCollectorTest", "testReadCommittedWithAbortedTransaction")
@SEALED
def test_polls_one_after_the_other_have_the_next_offsets_behind_what_was_aborted(seals: bool) -> None:
    world = World()
    world.abort(*range(20))
    settle(world, seals)
    with world.consumer() as consumer:
        assert consumer.poll(0) is None
        assert consumer.position("t", 0) == 21
        world.append(*range(100, 120))
        settle(world, seals)
        assert numbers(consumer.poll(0)) == list(range(100, 120))
        assert consumer.position("t", 0) == 42
        assert consumer.poll(0) is None


@case(
    "OffsetFetcherTest",
    "testListOffsetSendsReadUncommitted",
    "testListOffsetSendsReadCommitted",
    "testListOffsetsSendsIsolationLevel",
)
@pytest.mark.parametrize(("isolation", "latest"), [("read_committed", 2), ("read_uncommitted", 5)])
@pytest.mark.parametrize("how", ["auto_offset_reset", "seek_to_end", "seek"])
def test_a_consumer_that_begins_at_the_latest_offset_begins_at_that_of_its_isolation_level(
    how: str, isolation: str, latest: int
) -> None:
    world = World()
    world.append(1)
    writer = world.begin(2, 3, 4)
    policy = "latest" if how == "auto_offset_reset" else "earliest"
    with world.consumer(isolation=isolation, auto_offset_reset=policy) as consumer:
        if how == "seek_to_end":
            consumer.seek_to_end(PARTITION)
        elif how == "seek":
            with pytest.raises(OffsetOutOfRangeError):
                consumer.seek("t", 0, latest + 1)
            consumer.seek("t", 0, latest)
        assert consumer.position("t", 0) == latest
        writer.commit()
        assert drained(consumer) == ([2, 3, 4] if isolation == "read_committed" else [])


@case("FetchRequestTest", "testFetchRequestV4WithReadCommitted")
def test_a_poll_for_one_record_returns_it_however_large_it_is() -> None:
    world = World()
    world.append(*range(1_000))
    with world.consumer() as consumer:
        assert numbers(consumer.poll(0, 1)) == [0]
        assert consumer.position("t", 0) == 1


@case(
    "ReplicaManagerTest", "testReadCommittedFetchLimitedAtLSO", "testDelayedFetchIncludesAbortedTransactions"
)
@pytest.mark.parametrize("commits", [True, False])
def test_a_poll_waits_its_time_for_an_open_transaction_and_the_next_one_knows_how_it_ended(
    commits: bool,
) -> None:
    world = World()
    with world.consumer() as consumer:
        writer = world.begin(1, 2, 3)
        before = world.clock.now().wall_ms
        assert consumer.poll(1_000) is None
        assert world.clock.now().wall_ms - before >= 1_000
        assert consumer.position("t", 0) == 0
        (writer.commit if commits else writer.abort)()
        assert drained(consumer) == ([1, 2, 3] if commits else [])
        assert consumer.position("t", 0) == 4
