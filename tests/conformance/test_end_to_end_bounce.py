"""Copying in transactions while copiers are killed, or the store goes away: each record once, in order, and
no other.

A second reader follows the output's last stable offsets all the while: it must get the same records in the
same order as who reads at the end.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.cases import case
from tests.integration.clients.failing import QuickClock
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind, key_class
from txnlog import (
    CommitStateUnknownError,
    InvalidTransactionStateError,
    Producer,
    ProducerStatus,
    StorageError,
    TxnLog,
)
from txnlog_testing.stores.faulty import Fault, FaultKind, FaultyStore

ROOT = Path(__file__).parents[2]
RECORDS = pa.schema([("key", pa.string()), ("source", pa.int64()), ("n", pa.int64())])


def seeded(log: TxnLog, inputs: int, outputs: int, count: int) -> None:
    """Create the topics, with ``count`` records in each input partition; the number of a record is its
    offset."""
    log.create_topic("input", RECORDS, partitions=inputs)
    log.create_topic("output", RECORDS, partitions=outputs, key_columns=["key"])
    log.create_topic("progress", pa.schema([("next", pa.int64())]), partitions=inputs)
    with Producer(log) as producer:
        for source in range(inputs):
            numbers = range(count)
            keys = [f"{source} {n % 7}" for n in numbers]
            producer.send("input", pa.table({"key": keys, "source": [source] * count, "n": numbers}), source)


def rows(log: TxnLog, partition: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return (source, number) of committed records of an output partition."""
    found = log.read("output", partitions=[partition], start=start, end=end).read_all()
    return list(zip(found["source"].to_pylist(), found["n"].to_pylist(), strict=True))


class Follower:
    """A read_committed reader of all output partitions that never goes back."""

    def __init__(self, log: TxnLog) -> None:
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.seen: dict[int, list[tuple[int, int]]] = {}
        self._positions: dict[int, int] = {}
        self.polls = 0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow in a thread; at the end once more, up to the end."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        self.poll()

    def _follow(self) -> None:
        while not self._stop.wait(0.1):
            self.poll()

    def poll(self) -> None:
        """Read what has become stable."""
        for partition, ends in enumerate(self._log.offsets("output")):
            start = self._positions.get(partition, 0)
            self.seen.setdefault(partition, []).extend(
                rows(self._log, partition, start, ends.last_stable_offset)
            )
            self._positions[partition] = ends.last_stable_offset
        self.polls += 1


def check_output(log: TxnLog, follower: Follower, inputs: int, count: int) -> None:
    """Each record once; per source and partition in order; the follower has seen the same."""
    ends = log.offsets("output")
    found = {partition: rows(log, partition, 0, each.log_end) for partition, each in enumerate(ends)}
    assert [each.last_stable_offset for each in ends] == [each.log_end for each in ends]
    everything = sorted(row for each in found.values() for row in each)
    assert everything == [(source, n) for source in range(inputs) for n in range(count)]
    for each in found.values():
        for source in range(inputs):
            numbers = [n for of, n in each if of == source]
            assert numbers == sorted(numbers)
    assert follower.seen == found


# --- copiers that are killed --------------------------------------------------------------------------------


class Copier:
    """One copier, started again whenever it was ended, at steps that a seed chooses."""

    def __init__(self, path: Path, partition: int, buffer: str, signals: list[signal.Signals]) -> None:
        self._command = [sys.executable, str(ROOT / "tests/conformance/copier.py")]
        self._command += [str(path), str(partition), buffer, "40"]
        self._signals = signals
        self._rng = random.Random(f"{partition} {buffer}")
        self.ended_at: list[str] = []
        self.failure = ""

    def run(self) -> None:
        """Run until it has copied everything."""
        for number in (*self._signals, None):
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
            ) as process:
                assert process.stdout is not None
                assert process.stderr is not None
                step = ""
                for _ in range(self._rng.randrange(2, 12) if number else 1_000_000):
                    step = process.stdout.readline().strip() or step
                    if step == "done":
                        break
                if number is not None:
                    process.send_signal(number)
                    self.ended_at.append(step)
                process.stdout.read()
                errors = process.stderr.read()
                code = process.wait(300)
            if errors or (number is not signal.SIGKILL and code != 0):
                self.failure = f"{code}: {errors}"
                return


def bounce(path: Path, inputs: int, outputs: int, buffer: str, signals: list[signal.Signals]) -> None:
    count = 240
    log = TxnLog.create(path)
    seeded(log, inputs, outputs, count)
    copiers = [Copier(path, source, buffer, signals) for source in range(inputs)]
    follower = Follower(TxnLog.open(path))
    with follower.following():
        threads = [threading.Thread(target=copier.run) for copier in copiers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [copier.failure for copier in copiers] == [""] * inputs
    assert [len(copier.ended_at) for copier in copiers] == [len(signals)] * inputs
    check_output(TxnLog.open(path), follower, inputs, count)
    assert follower.polls > 3


@case("TransactionsBounceTest", "testWithGroupMetadata")
@case("kafkatest-transactions", "test_transactions (hard_bounce, clients)")
def test_copiers_that_are_killed_again_and_again_copy_each_record_once(tmp_path: Path) -> None:
    """Two copiers into three partitions that they share, killed with SIGKILL twice each."""
    bounce(tmp_path / "log", inputs=2, outputs=3, buffer="inline", signals=[signal.SIGKILL] * 2)
    known = TxnLog.open(tmp_path / "log").state.transactional_ids
    assert all(known[f"copier-{source}"].epoch > 2 for source in range(2)), (
        "each start has opened the id anew"
    )


@case(
    "kafkatest-transactions",
    "test_transactions (hard_bounce, clients, check_order)",
    "test_transactions (clean_bounce, clients, check_order)",
    "test_transactions (clean_bounce, clients)",
)
def test_a_copier_that_is_killed_or_terminated_copies_in_order(tmp_path: Path) -> None:
    """One partition on each side: the output is the input, in its order."""
    path = tmp_path / "log"
    bounce(path, inputs=1, outputs=1, buffer="auto", signals=[signal.SIGKILL, signal.SIGTERM])
    log = TxnLog.open(path)
    assert log.read("output", columns=["n"]).read_all().equals(log.read("input", columns=["n"]).read_all())


# --- a store that goes away ---------------------------------------------------------------------------------

HARD = [
    FaultKind.FAIL_BEFORE,
    FaultKind.APPLIED_LOST_ANSWER,
    FaultKind.EXISTS_AFTER_OWN_SUCCESS,
    FaultKind.APPLIED_LATE,
]
CLEAN = [FaultKind.SERVER_ERROR, FaultKind.CONFLICT_409, FaultKind.DISK_FULL]


def outages(inner: ObjectStore, kinds: list[FaultKind], rng: random.Random) -> FaultyStore:
    """Return a store of which a third of the entries, a fifth of their reads, and a tenth of the files go
    wrong."""

    def schedule(operation: RequestKind, key: str, nth: int) -> Fault | None:
        chance = rng.random()
        if operation is RequestKind.CREATE and key_class(key) is KeyClass.ENTRY and chance < 0.3:
            return Fault(rng.choice(kinds))
        if operation is RequestKind.OPEN_WRITE and chance < 0.1:
            return Fault(
                rng.choice([FaultKind.FAIL_BEFORE, FaultKind.APPLIED_LOST_ANSWER, FaultKind.DISK_FULL])
            )
        if operation is RequestKind.GET and key_class(key) is KeyClass.ENTRY and chance < 0.2:
            return Fault(FaultKind.FAIL_BEFORE)
        return None

    return FaultyStore(inner, schedule)


def until_clear(call: Callable[[], object]) -> None:
    """Repeat a call until the log has answered."""
    for _ in range(10_000):
        try:
            call()
        except (CommitStateUnknownError, StorageError):
            continue
        return
    raise AssertionError("the store never came back")


def copy_all(log: TxnLog, store: FaultyStore, count: int, buffer: str) -> None:
    """Copy partition 0 of the input in transactions of 10; whatever fails is repeated, or aborted and done
    again."""
    source = TxnLog.open(log.store, clock=log.committer.clock).read("input").read_all()
    producer = Producer(TxnLog.open(store, clock=log.committer.clock), "copier", buffer=buffer)
    until_clear(producer.init)
    position = attempt = 0
    while position < count:
        attempt += 1
        records = source.slice(position, 10)
        producer.begin()
        try:
            for half in (records.slice(0, 5), records.slice(5)):
                producer.send("output", half)
                until_clear(producer.flush)
            if attempt % 3 == 0:
                until_clear(producer.abort)
            else:
                until_clear(producer.commit)
                position += records.num_rows
        except InvalidTransactionStateError as error:
            if error.kind != "abort-required":
                raise
            until_clear(producer.abort)
        assert producer.status is ProducerStatus.READY
        if attempt % 5 == 0:
            store.release()  # requests that were given up arrive now


@case(
    "kafkatest-transactions",
    "test_transactions (hard_bounce, brokers)",
    "test_transactions (hard_bounce, brokers, check_order)",
    "test_transactions (clean_bounce, brokers)",
    "test_transactions (clean_bounce, brokers, check_order)",
)
@pytest.mark.parametrize("buffer", ["inline", "auto"])
@pytest.mark.parametrize("kinds", [HARD, CLEAN], ids=["hard", "clean"])
def test_copying_through_outages_of_the_store_loses_and_repeats_nothing(
    kinds: list[FaultKind], buffer: str
) -> None:
    clock = QuickClock()
    inner = MemoryStore(clock)
    log = TxnLog.create(inner, clock=clock)
    count = 240
    seeded(log, 1, 1, count)
    store = outages(inner, kinds, random.Random(f"{buffer} {kinds}"))
    follower = Follower(TxnLog.open(inner, clock=clock))
    with follower.following():
        copy_all(log, store, count, buffer)
    assert sum(store.counter.hits.values()) > 5
    store.release()
    check_output(TxnLog.open(inner, clock=clock), follower, 1, count)
    assert log.read("output", columns=["n"]).read_all().equals(log.read("input", columns=["n"]).read_all())
