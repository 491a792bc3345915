"""Consumer: what it costs, and what failures leave behind."""

from __future__ import annotations

import itertools
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.clients.failing import NUMBERS, Plan, QuickClock, rows
from tests.integration.clients.forked import do_in_child
from tests.integration.consumers.consuming import (
    DATA_GET,
    ENTRY_GET,
    HookedStore,
    World,
    drained,
    numbers,
    refuses,
)
from txnformat.consumers import fetching
from txnformat.reading import rows as row_reading
from txnformat.segments import segment_object
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog import (
    Consumer,
    InvalidTransactionStateError,
    Producer,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.counting import CountingStore, RequestClass
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

SIDECAR_GET = RequestClass(RequestKind.GET, KeyClass.SIDECAR)
TABLE_GET = RequestClass(RequestKind.GET, KeyClass.TABLE)


# --- requests -----------------------------------------------------------------------------------------------


def test_records_cost_their_column_chunks_and_each_footer_once_and_a_look_one_get(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", 0)
    world = World(partitions=50, embedding=False)
    with Producer(world.writing, "one-shot") as producer, producer.transaction() as txn:
        for partition in range(50):
            txn.send("t", rows(*range(100)), partition=partition)
    with world.consumer(max_poll_records=1_000) as consumer:
        with world.store.measure() as measured:
            found = [consumer.poll(), consumer.poll()]
        assert [len(numbers(batch) or ()) for batch in found] == [1_000, 1_000]
        assert measured.counts.requests == {DATA_GET: 1 + 20}, "a file of 50 partitions, one footer"
        with world.store.measure() as measured:
            assert len(drained(consumer)) == 3_000
        assert measured.counts.requests == {DATA_GET: 30, ENTRY_GET: 1}
        with world.store.measure() as measured:
            assert consumer.poll(0) is None
        assert measured.counts.requests == {ENTRY_GET: 1}


@pytest.mark.parametrize("is_sealed", [False, True])
def test_embedded_records_cost_a_get_for_each_entry_that_the_process_has_not_read(is_sealed: bool) -> None:
    """Of those that it has followed it has the records already; those before the snapshot it fetches, until
    they are sealed."""
    world = World()
    for number in range(20):
        world.append(number)
    if is_sealed:
        world.writing.maintain("seal")
    world.writing.committer.write_snapshot()
    for number in range(20, 25):
        world.append(number)
    store = CountingStore(world.memory)
    log = TxnLog.open(store, clock=world.clock)
    with Consumer(log, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        with store.measure() as measured:
            assert drained(consumer) == list(range(25))
    data = measured.counts.count(None, KeyClass.DATA)
    assert (data, measured.counts.requests[ENTRY_GET] - 1) == ((1, 0) if is_sealed else (0, 20)), (
        "and one look"
    )


def test_what_is_fetched_is_sliced_and_not_fetched_again() -> None:
    world = World(embedding=False)
    world.append(*range(1_000))
    with world.consumer(max_poll_records=10) as consumer, world.store.measure() as measured:
        assert [numbers(batch) for batch in itertools.islice(consumer.batches(), 100)] == [
            [*range(start, start + 10)] for start in range(0, 1_000, 10)
        ]
    assert measured.counts.requests == {DATA_GET: 1}


def test_aborted_records_and_open_ones_are_not_fetched() -> None:
    world = World()
    world.abort(1)
    world.begin(2)
    with world.consumer() as consumer, world.store.measure() as measured:
        assert consumer.poll(0) is None
        assert consumer.position("t", 0) == 2
        assert consumer.lag() == {("t", 0): 0}
    assert measured.counts.requests == {ENTRY_GET: 2}


def test_sealed_segments_cost_their_index_once_each_and_none_when_all_in_them_was_aborted() -> None:
    world = World(partitions=2)
    for start in (0, 10):
        for partition in range(2):
            world.append(start, start + 1, partition=partition)
        world.writing.maintain("seal")
    for partition in range(2):
        world.abort(20, partition=partition)
    world.writing.maintain("seal")
    world.append(30)
    with world.consumer() as consumer:
        with world.store.measure() as measured:
            assert numbers(consumer.poll(0, max_records=2)) == [0, 1]
        assert measured.counts.requests[SIDECAR_GET] == 1, "that of the next one when it is reached"
        consumer.seek_to_beginning()
        with world.store.measure() as rest:
            assert sorted(drained(consumer)) == [0, 0, 1, 1, 10, 10, 11, 11, 30]
        assert rest.counts.requests[SIDECAR_GET] == 1
        with world.store.measure() as measured:
            consumer.seek_to_beginning()
            assert consumer.lag() == {("t", 0): 5, ("t", 1): 4}
            consumer.seek("t", 0, 1)
            assert consumer.lag() == {("t", 0): 4, ("t", 1): 4}
        assert measured.counts.requests == {ENTRY_GET: 2}


def test_counting_lag_over_whole_segments_needs_no_index() -> None:
    world = World()
    for number in range(3):
        world.append(number, number)
        world.writing.maintain("seal")
    with world.consumer() as consumer, world.store.measure() as measured:
        assert consumer.lag() == {("t", 0): 6}
        assert measured.counts.requests == {ENTRY_GET: 1}
        consumer.seek("t", 0, 1)
        assert consumer.lag() == {("t", 0): 5}
        assert measured.counts.requests == {ENTRY_GET: 2, SIDECAR_GET: 1}


def test_a_batch_table_is_read_once_for_all_partitions() -> None:
    world = World(partitions=10)
    with Producer(world.writing, "p", buffer="deferred") as producer, producer.transaction() as txn:
        for partition in range(10):
            txn.send("t", rows(partition), partition=partition)
        txn.flush()
    with world.consumer() as consumer, world.store.measure() as measured:
        assert sorted(drained(consumer)) == list(range(10))
    assert measured.counts.requests[TABLE_GET] == 1


def test_seeking_within_what_is_known_asks_nobody() -> None:
    world = World()
    world.append(*range(10))
    with world.consumer() as consumer, world.store.measure() as measured:
        consumer.seek("t", 0, 5)
        consumer.seek_to_beginning()
        consumer.pause()
        consumer.resume()
        assert consumer.positions() == {("t", 0): 0}
    assert measured.counts.requests == {}


def test_the_constructor_asks_nobody(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())
    TxnLog.create(store)
    log = TxnLog(store)
    with store.measure() as measured:
        Consumer(log).close()
    assert measured.counts.requests == {}


def test_a_large_chunk_is_fetched_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WHOLE_BYTES", 0)
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(
        row_reading, "GROUP_BYTES", 0
    )  # these runs are small: several would be decoded together
    world = World(embedding=False)
    for number in range(20):
        world.append(number)
    with world.consumer() as consumer, world.store.measure() as measured:
        assert numbers(consumer.poll(0, max_records=1)) == [0]
        assert measured.counts.requests[DATA_GET] <= 2 * (1 + 1 + 4), (
            "this file, the next one, and some ahead"
        )
        assert drained(consumer) == list(range(1, 20))
        assert measured.counts.requests[DATA_GET] == 2 * 20


# --- memory -------------------------------------------------------------------------------------------------


def test_chunks_in_memory_are_bounded_and_who_waits_for_room_is_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(partitions=6)
    for partition in range(6):
        for start in range(0, 40, 10):
            world.append(*range(100 * partition + start, 100 * partition + start + 10), partition=partition)
    plan = world.log.plan("t")
    size = int(plan.partitions[0].rows["size"][0])
    monkeypatch.setattr(fetching, "CHUNK_BYTES", 2 * size + size // 2)  # two of a partition's four batches
    monkeypatch.setattr(fetching, "OPEN_BYTES_MAX", 6 * size)
    with world.consumer(max_poll_records=1) as consumer:
        begun: list[int] = []
        order: list[int] = []
        for batch in consumer.batches():
            reads = [one.read for one in consumer._reading.assigned.values()]
            begun.append(sum(read.weight for read in reads if read is not None))
            order.append(batch.column("_partition")[0].as_py())
        assert max(begun) <= 6 * size
        assert [order.count(partition) for partition in range(6)] == [40] * 6
        # Three chunks of 20 records are handed out in turns; then those that have waited are the first to
        # begin.
        assert set(order[:58]) == {0, 1, 2}
        assert set(order[62:118]) == {3, 4, 5}


def test_a_paused_partition_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(partitions=2)
    for partition in range(2):
        world.append(*range(10 * partition, 10 * partition + 5), partition=partition)
    monkeypatch.setattr(fetching, "OPEN_BYTES_MAX", 1)
    with world.consumer(max_poll_records=1) as consumer:
        assert [numbers(consumer.poll(0)) for _ in range(2)] == [[0], [1]], "no room for the other one"
        consumer.pause(("t", 0))
        assert drained(consumer) == [10, 11, 12, 13, 14]
        consumer.resume()
        assert drained(consumer) == [2, 3, 4]


def test_large_batches_are_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(partitions=2)
    for partition in (0, 0, 0, 1):
        world.append(*range(100), partition=partition)
    monkeypatch.setattr(fetching, "BATCH_BYTES_MAX", 2_000)
    with world.consumer(max_poll_records=1_000) as consumer:
        assert [batch.num_rows for batch in consumer.batches()] == [100] * 4


def test_footers_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FILES_BYTES_MAX", 1)
    world = World(partitions=2)
    for _ in range(3):
        world.append(1, partition=0)
        world.append(2, partition=1)
    with world.consumer() as consumer:
        assert len(drained(consumer)) == 6
        assert len(consumer._reading._fetcher._files._kept) == 1


# --- failures -----------------------------------------------------------------------------------------------


DATA = (RequestKind.GET_RANGE, KeyClass.DATA)


def test_records_that_cannot_be_fetched_come_later_and_keep_nobody_waiting() -> None:
    world = World(partitions=2, embedding=False)
    world.append(*range(5))
    world.append(*range(10, 15), partition=1)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    with Consumer(log, max_poll_records=2) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        plan.always(*DATA, Fault(FaultKind.PERMISSION_DENIED))
        for _ in range(2):
            with pytest.raises(StorageError):
                consumer.poll(0)
        assert consumer.positions() == {("t", 0): 0, ("t", 1): 0}
        plan.clear()
        plan.next(*DATA, *[Fault(FaultKind.PERMISSION_DENIED)])
        with pytest.raises(StorageError):
            consumer.poll(0)
        assert numbers(consumer.poll(0)) == [10, 11], "the other partition has its turn"
        assert sorted(drained(consumer)) == [0, 1, 2, 3, 4, 12, 13, 14]


def test_what_is_fetched_before_a_failure_is_handed_out_first() -> None:
    world = World(partitions=2, embedding=False)
    world.append(1, 2)
    world.append(11, 12, partition=1)
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    with Consumer(log) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        plan.next(*DATA, None, Fault(FaultKind.PERMISSION_DENIED), Fault(FaultKind.PERMISSION_DENIED))
        assert numbers(consumer.poll(0)) == [1, 2]
        with pytest.raises(StorageError):
            consumer.poll(0)
        assert consumer.positions() == {("t", 0): 3, ("t", 1): 0}
        assert drained(consumer) == [11, 12]


@pytest.mark.parametrize(("small", "requests"), [(0, 8), (2**18, 4)])
def test_a_poll_that_is_interrupted_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, small: int, requests: int
) -> None:
    """Ctrl-C at every request of a poll, and between the batches of a chunk."""
    monkeypatch.setattr(fetching, "WHOLE_BYTES", 0)
    monkeypatch.setattr(segment_object, "SMALL_FILE_BYTES", small)
    world = World(partitions=2, embedding=False)
    for start in (0, 10):
        world.append(start, start + 1)
        world.append(100 + start, partition=1)
    wanted = sorted(drained(world.consumer()))
    interrupted = 0
    for at in range(1, 20):
        seen = itertools.count(1)

        def interrupt() -> None:
            if next(seen) == at:  # noqa: B023  # used within this round
                raise KeyboardInterrupt

        store = HookedStore(world.memory, interrupt)
        with Consumer(TxnLog.open(store, clock=world.clock)) as consumer:
            consumer.subscribe(["t"])
            got: list[int] = []
            for _ in range(8):
                try:
                    got += numbers(consumer.poll(0, max_records=3)) or []
                except KeyboardInterrupt:
                    interrupted += 1
            assert sorted(got) == wanted, at
    assert interrupted >= requests


def test_a_look_that_fails_is_repeated_by_the_next_poll() -> None:
    world = World()
    plan = Plan()
    log = TxnLog.open(FaultyStore(world.memory, plan), clock=world.clock)
    with Consumer(log) as consumer:
        consumer.subscribe(["t"])
        world.append(1)
        plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
        with pytest.raises(StorageError):
            consumer.poll(0)
        plan.clear()
        assert drained(consumer) == [1]


# --- threads and processes ----------------------------------------------------------------------------------


def test_a_second_thread_is_refused_and_harms_nothing() -> None:
    inside, go_on = threading.Event(), threading.Event()

    class Waiting(QuickClock):
        def sleep(self, seconds: float, wake: threading.Event | None = None) -> None:
            super().sleep(seconds, wake)
            if threading.current_thread() is reader:
                inside.set()
                assert go_on.wait(300)

    world = World()
    found: list[object] = []
    consumer = Consumer(TxnLog.open(world.memory, clock=Waiting()))
    consumer.subscribe(["t"])
    reader = threading.Thread(target=lambda: found.append(consumer.poll(100)))
    reader.start()
    assert inside.wait(300)
    try:
        for call in (consumer.poll, consumer.close, consumer.lag, consumer.positions):
            error = refuses(InvalidTransactionStateError, "concurrent-use", call)
            assert "one thread at a time" in str(error)
    finally:
        go_on.set()
        reader.join(300)
    assert found == [None]
    world.append(1)
    assert drained(consumer) == [1], "one after the other they may"


@pytest.mark.usefixtures("frozen_garbage")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_refused_and_can_close(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("t", NUMBERS)
    with Producer(log) as producer:
        producer.send("t", rows(*range(100)))
    consumer = Consumer(log, max_poll_records=10)
    consumer.subscribe(["t"])
    assert numbers(consumer.poll()) == [*range(10)]

    def child() -> None:
        for call in (consumer.poll, consumer.positions, consumer.unsubscribe):
            error = refuses(InvalidTransactionStateError, "forked", call)
            assert "in the forked process" in str(error)
        consumer.close()
        with Consumer(log) as own:
            own.subscribe(["t"])
            assert len(drained(own)) == 100

    sys.stdout.flush()
    do_in_child(child)
    assert drained(consumer) == [*range(10, 100)]
