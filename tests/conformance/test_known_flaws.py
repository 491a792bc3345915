"""Flaws that Jepsen, or Kafka's and Redpanda's own trackers, found in systems of this kind; right here.

Requests that come late are in ``test_known_flaws_delayed.py``.
"""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest

from tests.conformance.cases import case
from tests.conformance.scenes import BUFFERS, INLINE, NUMBERS, Scene
from tests.conformance.scenes import read as numbers
from tests.integration.clients.failing import ENTRY, Plan, QuickClock, faulty, read, rows
from txnformat import keys
from txnformat.core.intents import ProducerRef, Write
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import (
    CommitStateUnknownError,
    NotFoundError,
    Outcome,
    Producer,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore, Gate

# --- unclear answers ----------------------------------------------------------------------------------------

WRITE_FAULTS = [
    Fault(FaultKind.FAIL_BEFORE),
    Fault(FaultKind.APPLIED_LOST_ANSWER),
    Fault(FaultKind.APPLIED_LATE),
    Fault(FaultKind.CONFLICT_409),
    Fault(FaultKind.EXISTS_AFTER_OWN_SUCCESS),
    Fault(FaultKind.SERVER_ERROR),
    Fault(FaultKind.SERVER_ERROR, applied=True),
    Fault(FaultKind.DISK_FULL),
    Fault(FaultKind.PERMISSION_DENIED),
]


@case("KnownFlaws", "an unclear error is taken for a failure")
@BUFFERS
@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("fault", WRITE_FAULTS, ids=str)
def test_a_commit_that_failed_is_not_there_and_one_that_is_there_did_not_fail(
    fault: Fault, readable: bool, buffer: str
) -> None:
    """Success: there. A definite error: not there, and never will be. Unknown: either, and the repeat
    tells.
    """
    plan = Plan()
    log = faulty(plan)
    assert isinstance(log.store, FaultyStore)
    producer = Producer(log, "p", buffer=buffer)
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    plan.next(*ENTRY, fault)
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    if not readable:
        plan.always(RequestKind.GET, KeyClass.ENTRY, Fault(FaultKind.FAIL_BEFORE))
    answer: Exception | None = None
    try:
        producer.commit()
    except (CommitStateUnknownError, StorageError) as error:
        answer = error
    plan.clear()
    if answer is None:
        assert read(log) == [1]
    elif not isinstance(answer, CommitStateUnknownError):
        assert read(log) == []
        log.store.release()
        assert read(log) == []
    if answer is not None:
        producer.commit()  # the application believes neither, and repeats
    log.store.release()
    assert read(log) == read(log, "read_uncommitted") == [1]
    assert log.outcome("p", 0).outcome is Outcome.COMMIT


# --- many clients at once -----------------------------------------------------------------------------------


class Client:
    """Runs transactions of unique values over two partitions, and remembers what it was told."""

    def __init__(self, number: int, store: FaultyStore, clock: QuickClock, buffer: str) -> None:
        self._rng = random.Random(f"{number} {buffer}")
        self._first = 1_000 * number
        self._producer = Producer(TxnLog.open(store, clock=clock), f"client-{number}", buffer=buffer)
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """Value to (partition, offset)."""
        self.aborted: set[int] = set()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Run 15 transactions."""
        try:
            self._until_clear("init")
            for number in range(15):
                self._transaction(self._first + 10 * number)
        except BaseException as error:
            self.failure = error
            raise

    def _until_clear(self, call: str) -> object:
        for _ in range(1_000):
            try:
                return getattr(self._producer, call)()
            except (CommitStateUnknownError, StorageError):
                continue
        raise AssertionError(f"{call} stays unclear")

    def _transaction(self, first: int) -> None:
        values = {partition: [first + 2 * partition, first + 2 * partition + 1] for partition in range(2)}
        self._producer.begin()
        for partition, each in values.items():
            self._producer.send("t", [{"n": value} for value in each], partition)
        if self._rng.random() < 0.3:
            self._until_clear("flush")
            self._until_clear("abort")
            self.aborted.update(value for each in values.values() for value in each)
            return
        info = self._until_clear("commit")
        for (_, partition), offset in info.offsets.items():  # type: ignore[attr-defined]
            for at, value in enumerate(values[partition]):
                self.acknowledged[value] = (partition, offset + at)


Polled = list[tuple[int, int, int]]


def poll(log: TxnLog) -> Polled:
    """Return (partition, offset, value) of everything that is committed."""
    found = log.read("t", columns=["_partition", "_offset", "n"]).read_all().to_pylist()
    return [(row["_partition"], row["_offset"], row["n"]) for row in found]


@case(
    "KnownFlaws",
    "duplicates",
    "one offset has two values",
    "aborted records are read",
    "acknowledged records are lost in a healthy cluster",
    "offsets of zero are reported",
    "producers and consumers stay stuck",
)
@BUFFERS
@pytest.mark.parametrize("healthy", [True, False])
def test_many_clients_at_once_show_none_of_jepsens_anomalies(healthy: bool, buffer: str) -> None:
    """Four clients, a reader that polls all the while, and a sealer; with answers lost on the way, and
    without."""
    clock = QuickClock()
    inner = MemoryStore(clock)
    TxnLog.create(inner, clock=clock).create_topic("t", NUMBERS, partitions=2)
    rng = random.Random(0)

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        lost = not healthy and operation is RequestKind.CREATE and rng.random() < 0.1
        lost = lost and key_class(key) is KeyClass.ENTRY
        return Fault(rng.choice([FaultKind.APPLIED_LOST_ANSWER, FaultKind.FAIL_BEFORE])) if lost else None

    clients = [Client(number, FaultyStore(inner, schedule), clock, buffer) for number in range(4)]
    threads = [threading.Thread(target=client.run) for client in clients]
    reader = TxnLog.open(inner, clock=clock)
    polls: list[Polled] = []
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        polls.append(poll(reader))
        reader.maintain("seal")
        threads[len(polls) % 4].join(0.02)
    assert [client.failure for client in clients] == [None] * 4
    last = poll(TxnLog.open(inner, clock=clock))
    values = Counter(value for _, _, value in last)
    places = {value: (partition, offset) for partition, offset, value in last}
    assert max(values.values()) == 1, "duplicate"
    assert len({place[:2] for place in last}) == len(last), "two values at one offset"
    for client in clients:
        assert client.acknowledged.items() <= places.items(), "lost, or at another offset than was reported"
        assert not client.aborted & values.keys(), "aborted read"
    assert values.keys() == {value for client in clients for value in client.acknowledged}
    for earlier, later in zip(polls, [*polls[1:], last], strict=True):
        for partition in range(2):
            before = [row for row in earlier if row[0] == partition]
            assert [row for row in later if row[0] == partition][: len(before)] == before, (
                "skipped, or unread"
            )
    for ends in reader.offsets("t"):
        assert ends.last_stable_offset == ends.log_end, "stuck"
        assert ends.held_by is None


@case("KnownFlaws", "acknowledged records vanish with the coordinator's memory")
def test_an_open_transaction_lives_in_the_log_and_in_no_process() -> None:
    """Half of it was appended by a process that is gone; one that has just opened the log commits all
    of it.
    """
    scene = Scene()
    scene.begin("p", [1, 2])
    fresh = TxnLog.open(scene.log.store)
    known = fresh.state.transactional_ids["p"]
    assert len(known.partitions) == 1
    ref = ProducerRef(known.producer_id, known.epoch, "p")
    fresh.committer.commit(fresh.committer.intend(Write(ref, end=Outcome.COMMIT)))
    assert numbers(TxnLog.open(scene.log.store)) == [1, 2]


@case("KnownFlaws", "an abort hides other epochs of its producer")
@pytest.mark.parametrize("seals", [False, True])
def test_an_abort_hides_its_own_transaction_and_no_other_of_the_same_producer(seals: bool) -> None:
    """Committed before, aborted, committed behind; another producer's transaction overlaps all three."""
    scene = Scene(seals=seals)
    scene.begin("other", [100])
    for first, commits in ((0, True), (10, False), (20, True), (30, False)):
        scene.begin("p", [first])
        scene.go_on("p", [first + 1])
        (scene.commit if commits else scene.abort)("p")
    scene.go_on("other", [101])
    scene.commit("other")
    found = scene.check_sealed()
    assert found[0, "read_committed"] == [100, 0, 1, 20, 21, 101]
    assert scene.log.offsets("t")[0].aborted_transactions == 2


@case("KnownFlaws", "an open transaction blocks all readers")
def test_transactions_that_are_not_in_the_log_block_nobody() -> None:
    """Of two that overlap the second commits first: with inline buffers it waits for the other, else it is
    there."""
    for buffer, expected in ((INLINE, []), ("auto", [3, 4])):
        scene = Scene(None, buffer)
        scene.begin("first", [1, 2])
        scene.begin("second", [3, 4])
        scene.commit("second")
        assert scene.check()[0, "read_committed"] == expected
        scene.commit("first")
        assert sorted(scene.check()[0, "read_committed"]) == [1, 2, 3, 4]


@case("KnownFlaws", "close never returns")
def test_close_waits_for_the_call_under_way_and_returns_whatever_the_store_does() -> None:
    store = MemoryStore(clock := QuickClock())
    TxnLog.create(store, clock=clock).create_topic("t", NUMBERS)
    armed = threading.Event()
    gate = Gate()
    plan = Plan()
    log = TxnLog.open(
        FaultyStore(store, plan, before_create=lambda key: gate(key) if armed.is_set() else None), clock=clock
    )
    producer = Producer(log, "p", buffer=INLINE)
    producer.init()
    producer.begin()
    producer.send("t", rows(1))
    armed.set()
    calls = [threading.Thread(target=producer.commit), threading.Thread(target=producer.close)]
    calls[0].start()
    gate.wait_until_held()
    calls[1].start()
    gate.open()
    for call in calls:
        call.join()
    assert read(log) == [1]
    producer = Producer(log, "q", buffer=INLINE)
    producer.init()
    producer.begin()
    producer.send("t", rows(2))
    producer.flush()
    plan.always(*ENTRY, Fault(FaultKind.FAIL_BEFORE))
    for _ in range(3):
        with pytest.raises((CommitStateUnknownError, StorageError)):
            producer.close()
    plan.clear()
    producer.close()
    assert read(log) == [1]


# --- damage -------------------------------------------------------------------------------------------------


def written(store: MemoryStore, *, snapshots: bool = False) -> TxnLog:
    log = TxnLog.create(store)
    log.create_topic("t", NUMBERS)
    with Producer(log, "p", buffer=INLINE) as producer:
        for number in range(3):
            with producer.transaction() as txn:
                txn.send("t", [{"n": number}, {"n": 10 + number}])
        if snapshots:
            producer.begin()
            while not log.refresh().checkpoints:
                producer.send("t", [{"n": 99}])
                producer.flush()
                log.close()
            producer.abort()
    return log


@case("KnownFlaws", "a flipped bit reads as the end of the log")
def test_a_flipped_bit_in_an_entry_never_makes_the_log_shorter() -> None:
    """Any bit of the last two entries: an error, or, in names that only the last one has, the same rows."""
    store = MemoryStore()
    log = written(store)
    rng = random.Random(1)
    refused = 0
    for number in (log.state.entry - 1, log.state.entry):
        key = keys.entry_key(number)
        good = store.get(key)
        assert good is not None
        for at in range(0, len(good), 4):
            damaged = bytearray(good)
            damaged[at] ^= 1 << rng.randrange(8)
            store.put(key, bytes(damaged))
            try:
                found = numbers(TxnLog.open(store))
            except (CorruptDataError, UnsupportedFeatureError, NotFoundError):
                refused += 1
            else:
                assert number == log.state.entry
                assert found == [0, 10, 1, 11, 2, 12]
        for short in (b"", good[: len(good) // 2], good[:-1]):
            store.put(key, short)
            with pytest.raises(CorruptDataError):
                TxnLog.open(store)
        store.put(key, good)
    assert refused > 250


@case("KnownFlaws", "a damaged snapshot reads as an empty log")
@pytest.mark.parametrize("damage", ["flipped", "short", "empty", "missing"])
def test_with_a_damaged_snapshot_the_log_is_what_its_entries_say(damage: str) -> None:
    store = MemoryStore()
    log = written(store, snapshots=True)
    snapshots = [info.key for info in store.list("_txnlog/snapshots/")]
    assert snapshots
    expected = numbers(log)
    for key in snapshots:
        good = store.get(key)
        assert good is not None
        if damage == "missing":
            store.delete(key)
        else:
            flipped = good[:100] + bytes([good[100] ^ 4]) + good[101:]
            store.put(key, {"flipped": flipped, "short": good[:-9], "empty": b""}[damage])
    found = TxnLog.open(store)
    assert (found.state.entry, numbers(found)) == (log.state.entry, expected)
