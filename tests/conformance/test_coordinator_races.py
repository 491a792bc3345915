"""Instances that race for one transactional id, in threads and in processes: one winner per epoch, nothing
stuck."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conformance.cases import ROOT, case
from tests.conformance.core_log import COMMIT, NAME, CoreLog
from tests.conformance.epochs import BOUNDARIES, at_epoch
from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry
from txnformat.core.intents import Done, Included, OpenProducer, Write
from txnformat.core.invariants import check_whole
from txnformat.core.operations import EndTxn, InitProducer
from txnformat.core.state import LogState
from txnformat.store.base import ObjectStore
from txnformat.store.memory import MemoryStore
from txnlog import Producer, ProducerFencedError, TxnLog

SCHEMA = pa.schema([("racer", pa.int64()), ("epoch", pa.int64())])
THREADS = 6


def _entries(store: ObjectStore, state: LogState) -> list[CommitEntry]:
    found: list[CommitEntry] = []
    for number in range(state.entry + 1):
        data = store.get(keys.entry_key(number))
        assert data is not None
        found.append(decode_entry(data, number))
    return found


def _in_threads(actions: list[Callable[[], None]]) -> None:
    """Run all at once; whatever one of them raises is raised."""
    ready = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        ready.wait(300)
        action()

    with ThreadPoolExecutor(len(actions)) as pool:
        for future in [pool.submit(run, action) for action in actions]:
            future.result(120)


def _check(log: TxnLog, openings: list[tuple[int, str]], name: str) -> None:
    """One opening per epoch, one end per epoch, every acknowledged commit is there, and nobody is left
    waiting."""
    state = log.refresh()
    assert check_whole(state) == []
    entries = _entries(log.store, state)
    operations = [op for entry in entries for op in entry.operations]
    opened = [op.epoch for op in operations if isinstance(op, InitProducer) and op.transactional_id == name]
    assert sorted(opened) == sorted(epoch for epoch, _ in openings), "each epoch was handed out once"
    assert len(set(opened)) == len(opened)
    ends = [op for op in operations if isinstance(op, EndTxn) and op.transactional_id == name]
    assert all(count == 1 for count in Counter(end.epoch for end in ends).values())
    told = sorted(epoch for epoch, outcome in openings if outcome == "committed")
    assert sorted(end.epoch for end in ends if end.outcome is COMMIT) == told
    rows = log.read("t", columns=["epoch"]).read_all().column("epoch").to_pylist()
    assert sorted(rows) == sorted(2 * told)
    assert len({op.producer_id for op in operations if isinstance(op, InitProducer)}) == 1
    with Producer(log, name) as last, last.transaction() as txn:
        txn.send("t", pa.table({"racer": [-1], "epoch": [-1]}))
    assert not any(log.refresh().undecided)
    for offsets in log.offsets("t"):
        assert offsets.last_stable_offset == offsets.log_end


def _created(store: ObjectStore) -> TxnLog:
    log = TxnLog.create(store)
    log.create_topic("t", SCHEMA)
    return log


@case(
    "TransactionCoordinatorConcurrencyTest",
    "testConcurrentNewInitProducerIdRequests",
    "testConcurrentInitProducerIdRequestsOneNewOneContinuing",
    "testConcurrentContinuingInitProducerIdRequests",
    "testConcurrentInitProducerIdRequestsWithRetry",
)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_threads_that_open_one_id_at_once_get_an_epoch_each_and_the_last_one_wins(
    shared: bool, known: bool
) -> None:
    """Whether the id is new or known, and whether they share one log object (and so its entries) or not."""
    log = _created(MemoryStore())
    openings: list[tuple[int, str]] = []
    if known:
        first = Producer(log, NAME)
        first.init()
        assert first.epoch == 0
        openings.append((0, "fenced"))
    producers: list[Producer] = []

    def open_it() -> None:
        producer = Producer(log if shared else TxnLog.open(log.store), NAME)
        producer.init()
        producers.append(producer)

    _in_threads([open_it] * THREADS)
    epochs = sorted(producer.epoch or 0 for producer in producers)
    assert epochs == list(range(known, THREADS + known))
    for producer in producers:
        producer.begin()
        producer.send("t", pa.table({"racer": [0, 0], "epoch": [producer.epoch] * 2}))
        if producer.epoch == epochs[-1]:
            producer.commit()
            openings.append((epochs[-1], "committed"))
        else:
            with pytest.raises(ProducerFencedError):
                producer.commit()
            openings.append((producer.epoch or 0, "fenced"))
    _check(log, openings, NAME)


@case(
    "TransactionCoordinatorConcurrencyTest",
    "testConcurrentInitProducerRequestsAtPidBoundary",
    "testConcurrentInitProducerRequestsWithRetryAtPidBoundary",
)
@pytest.mark.parametrize("epoch", BOUNDARIES)
def test_inits_that_wait_together_at_the_end_of_kafkas_epochs_come_one_by_one(epoch: int) -> None:
    """And each that is repeated gets its own answer again."""
    log = CoreLog()
    log.open("before")
    log.open()
    at_epoch(log, epoch)
    producer_id = log.id().producer_id
    waiting = [log.intent(OpenProducer(NAME)) for _ in range(THREADS)]
    for number in range(THREADS):
        made = log.assemble(*waiting[number:])
        assert list(made.verdicts) == [waiting[number].intent_id]
        assert isinstance(made.verdicts[waiting[number].intent_id], Included)
        assert (log.id().producer_id, log.id().epoch) == (producer_id, epoch + number + 1)
    for number, intent in enumerate(waiting):
        verdict = log.assemble(intent).verdicts[intent.intent_id]
        assert verdict == Done(log.state.entry - THREADS + 1 + number, intent_id=intent.intent_id)


@case(
    "TransactionCoordinatorConcurrencyTest", "testConcurrentGoodPathSequence", "testConcurrentRandomSequences"
)
@case(
    "TransactionCoordinatorConcurrencyTest",
    "testConcurrentGoodPathWithConcurrentPartitionLoading",
    "testConcurrentLoadUnloadPartitions",
)
@case("TransactionMarkerChannelManagerTest", "shouldOnlyWriteTxnCompletionOnce")
def test_transactions_of_many_ids_at_once_while_others_load_the_log_again_and_again() -> None:
    """Random sequences of steps, crashes included: each id's commits are there, in order and whole, and
    nothing else."""
    store = MemoryStore()
    log = _created(store)
    committed: dict[int, list[int]] = {}
    stop = threading.Event()

    def produce(racer: int) -> None:
        draw = random.Random(racer)
        mine = log if racer % 2 else TxnLog.open(store)
        committed[racer] = []
        number = 0
        producer = Producer(mine, f"id {racer}", buffer=draw.choice(["inline", "auto"]))
        producer.init()
        for _ in range(12):
            producer.begin()
            sent = []
            for _ in range(draw.randint(0, 3)):
                number += 1
                sent.append(number)
                producer.send("t", pa.table({"racer": [racer], "epoch": [number]}))
                if draw.random() < 0.5:
                    producer.flush()
            what = draw.choice(["commit", "commit", "abort", "crash"])
            if what == "commit":
                producer.commit()
                committed[racer] += sent
            elif what == "abort":
                producer.abort()
            else:  # its successor opens the id
                producer = Producer(mine, f"id {racer}", buffer=draw.choice(["inline", "auto"]))
                producer.init()
        producer.close()

    def load() -> None:
        while not stop.is_set():
            with TxnLog.open(store) as loaded:
                assert check_whole(loaded.state) == []

    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    try:
        _in_threads([lambda racer=racer: produce(racer) for racer in range(THREADS)])  # type: ignore[misc]
    finally:
        stop.set()
        loader.join(300)
    found: dict[int, list[int]] = {racer: [] for racer in committed}
    for row in TxnLog.open(store).read("t").read_all().to_pylist():
        found[row["racer"]].append(row["epoch"])
    assert found == committed
    assert not any(log.refresh().undecided)


@case(
    "TransactionCoordinatorConcurrencyTest",
    "testConcurrentInitProducerIdRequestsOneNewOneContinuing",
    "testConcurrentContinuingInitProducerIdRequests",
)
def test_processes_that_race_for_one_id_have_one_winner_per_epoch_and_none_is_stuck(tmp_path: Path) -> None:
    """Each opens, appends twice, commits, and opens again: whoever was overtaken in between is fenced, and
    tries anew."""
    path = tmp_path / "log"
    with TxnLog.create(str(path)) as log:
        log.create_topic("t", SCHEMA)
    command = [sys.executable, "-m", "tests.conformance.racing_producer", "race", str(path)]
    racers = [
        subprocess.Popen([*command, str(racer), "3"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for racer in range(3)
    ]
    openings: list[tuple[int, str]] = []
    for process in racers:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        openings += [(epoch, outcome) for epoch, outcome in map(json.loads, output.splitlines())]
    assert sum(outcome == "committed" for _, outcome in openings) == 9
    with TxnLog.open(str(path)) as log:
        _check(log, openings, "one id")


@case("TransactionCoordinatorTest", "shouldFailToAbortTransactionOnHandleInitPidWhenProducerEpochIsSmaller")
def test_of_a_commit_and_an_init_at_the_same_time_exactly_one_decides_the_transaction() -> None:
    """Many rounds: either the commit is acknowledged and there, or its producer is fenced and it is not."""
    store = MemoryStore()
    log = _created(store)
    outcomes: Counter[str] = Counter()
    for number in range(30):
        old = Producer(TxnLog.open(store), NAME, buffer="inline" if number % 2 else "auto")
        old.init()
        old.begin()
        old.send("t", pa.table({"racer": [number], "epoch": [old.epoch]}))
        old.flush()
        newer = Producer(TxnLog.open(store), NAME)
        told: list[str] = []

        def commit(old: Producer = old, told: list[str] = told) -> None:
            try:
                old.commit()
                told.append("committed")
            except ProducerFencedError:
                told.append("fenced")

        _in_threads([commit, newer.init])
        outcomes[told[0]] += 1
        rows = log.read("t", columns=["racer"]).read_all().column("racer").to_pylist()
        assert (number in rows) == (told == ["committed"])
        assert rows == sorted(set(rows))
        newer.close()
    assert sum(outcomes.values()) == 30
    assert not any(log.refresh().undecided)


def test_a_race_is_decided_by_the_slot_and_not_by_the_clock() -> None:
    """Two views of one entry: both decide an end; the entry that is created first is the one that is
    folded.
    """
    log = CoreLog()
    producer = log.open()
    log.append(producer)
    commit, init = log.intent(Write(producer, end=COMMIT)), log.intent(OpenProducer(NAME))
    for first, second in ((commit, init), (init, commit)):
        twin = CoreLog()
        twin.states, twin.entries = list(log.states), list(log.entries)
        assert isinstance(twin.assemble(first).verdicts[first.intent_id], Included)
        verdict = twin.assemble(second).verdicts[second.intent_id]
        assert isinstance(verdict, Included) == (first is commit)
