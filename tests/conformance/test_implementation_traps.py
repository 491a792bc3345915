"""Mistakes that implementations of Kafka's transactions made, each tried here."""

from __future__ import annotations

import random
import struct
import threading
from pathlib import Path

import pytest

from tests.conformance.cases import case
from tests.conformance.numbered import Numbered
from tests.conformance.scenes import AT_COMMIT, INLINE, NUMBERS, Scene, open_often, read
from txnformat.core.intents import ProducerRef, Write
from txnformat.core.transactions.abort_index import AbortedTransaction, decode, encode
from txnformat.errors import CorruptDataError, UnsupportedFeatureError
from txnformat.store.memory import MemoryStore
from txnlog import (
    InvalidTransactionStateError,
    OffsetOutOfRangeError,
    Outcome,
    OutOfOrderSequenceError,
    Producer,
    ProducerFencedError,
    TxnLog,
    TxnLogError,
)
from txnlog_testing.stores.faulty import FaultyStore, Gate
from txnlog_testing.strategies import make_append

INT32_MAX = 2**31 - 1


@pytest.fixture
def log() -> TxnLog:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", NUMBERS)
    return log


# --- sequences ----------------------------------------------------------------------------------------------


@case("ImplementationTraps", "a sequence of 2147483647 is followed by 0")
def test_sequences_go_on_beyond_32_bits(log: TxnLog) -> None:
    """An append that ends at 2^31 - 1, one that goes beyond it, one that begins there; 0 again is a gap."""
    producer = Numbered(log)
    producer.append(0, INT32_MAX - 9)
    producer.append(INT32_MAX - 9, 10)
    for wrapped in (0, 1):
        with pytest.raises(OutOfOrderSequenceError):
            producer.append(wrapped, 5)
    producer.append(2**31, 20)
    assert producer.append(2**31 + 20, 1).repeated is False
    assert producer.append(INT32_MAX - 9, 10).repeated, "known, on the other side of the border"
    assert log.offsets("t")[0].log_end == 2**31 + 21


@case("ImplementationTraps", "the latest sequence is the largest one")
def test_after_an_epoch_bump_small_sequences_are_the_latest(log: TxnLog) -> None:
    """100 records in one transaction, 1 in the next: what follows is sequence 1, not 100."""
    with Producer(log, "p", buffer=INLINE) as producer:
        with producer.transaction() as txn:
            txn.send("t", [{"n": number} for number in range(100)])
        producer.begin()
        producer.send("t", [{"n": 100}])
        producer.flush()
        ref = ProducerRef(producer.producer_id or 0, producer.epoch or 0, "p")
        append = make_append(log.refresh().topic("t").created, {0: (100, 1)}, content="wrong")
        with pytest.raises(OutOfOrderSequenceError) as caught:
            log.committer.commit(log.committer.intend(Write(ref, (append,))))
        assert caught.value.values["expected"] == 1
        producer.send("t", [{"n": 101}])
        producer.commit()
    assert read(log) == list(range(102))


@case("ImplementationTraps", "deduplication knows one batch after a restart")
@pytest.mark.parametrize("snapshot", [False, True])
def test_the_last_five_appends_are_known_to_somebody_who_has_just_opened_the_log(
    log: TxnLog, snapshot: bool
) -> None:
    """Also when what they open is a snapshot. The sixth from the end is refused, not appended again."""
    producer = Numbered(log)
    offsets = [producer.append(10 * number, 10).offsets for number in range(6)]
    if snapshot:
        with Producer(log, "busy", buffer=INLINE) as busy:
            busy.begin()
            while not log.refresh().checkpoints:
                busy.send("t", [{"n": 0}])
                busy.flush()
                log.close()  # waits for a snapshot that is under way
    end = log.offsets("t")[0].log_end
    for number in range(1, 6):
        fresh = TxnLog.open(log.store)
        assert bool(fresh.state.checkpoints) is snapshot
        answer = producer.append(10 * number, 10, fresh)
        assert (answer.repeated, answer.offsets) == (True, offsets[number])
    with pytest.raises(OutOfOrderSequenceError):
        producer.append(0, 10, TxnLog.open(log.store))
    assert log.offsets("t")[0].log_end == end


# --- what readers see ---------------------------------------------------------------------------------------


@case(
    "ImplementationTraps",
    "the last stable offset runs ahead of what was applied",
    "records past the last stable offset are dispatched",
    "aborted records are visible",
)
@pytest.mark.parametrize("buffer", [INLINE, *AT_COMMIT])
@pytest.mark.parametrize("seed", range(3))
def test_after_every_entry_readers_see_neither_undecided_nor_aborted_records(seed: int, buffer: str) -> None:
    """Random histories of three transactional producers and a plain one, sealed now and then."""
    rng = random.Random(seed)
    scene = Scene(None, buffer)
    is_open = dict.fromkeys(("p1", "p2", "p3"), False)
    for number in range(0, 250, 10):
        name = rng.choice(list(is_open))
        chance = rng.random()
        if chance < 0.15:
            scene.plain([number])
        elif not is_open[name]:
            scene.begin(name, [number, number + 1])
            is_open[name] = True
        elif chance < 0.5:
            scene.go_on(name, [number], flush=chance < 0.4)
        else:
            (scene.commit if chance < 0.75 else scene.abort)(name)
            is_open[name] = False
        if rng.random() < 0.1:
            scene.log.maintain("seal")
        scene.check()


@case("ImplementationTraps", "records past the last stable offset are dispatched")
def test_a_committed_read_cannot_be_asked_beyond_the_last_stable_offset_nor_does_an_old_plan_grow() -> None:
    scene = Scene()
    scene.plain([1])
    scene.begin("p", [2, 3])
    for start, end in ((0, 2), (2, None), (0, 3)):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            read(scene.log, start=start, end=end)
        assert caught.value.values["latest"] == 1
    pinned = scene.log.refresh()
    scene.commit("p")
    plan = scene.log.plan("t", state=pinned)
    assert sum(int(part.rows["take"].sum()) for part in plan.partitions) == 1
    assert read(scene.log) == [1, 2, 3]


@case("ImplementationTraps", "lag and end offsets come from the high watermark")
def test_lag_and_ends_are_those_of_the_last_stable_offset(tmp_path: Path) -> None:
    """A committed reader that has read everything has no lag, however much is undecided behind; nor do
    markers count."""
    scene = Scene(tmp_path)
    scene.begin("p", [1, 2])
    scene.commit("p")
    scene.begin("q", [3, 4, 5])
    (ends,) = scene.log.offsets("t")
    assert (ends.last_stable_offset, ends.log_end) == (3, 6)
    assert len(read(scene.log, end=ends.last_stable_offset)) == 2
    (measured,) = scene.log.metrics().partitions
    assert (measured.last_stable_offset, measured.log_end, measured.lag, measured.records) == (3, 6, 3, 2)
    scene.abort("q")
    (measured,) = scene.log.metrics().partitions
    assert (measured.last_stable_offset, measured.lag) == (7, 0)
    assert scene.log.offsets("t")[0].last_stable_offset == 7


@case("ImplementationTraps", "the version of an abort index entry is read from one byte")
@pytest.mark.parametrize("version", [1, 0x0100, 0x7F00, -1, -0x0100])
def test_both_bytes_of_the_version_of_an_abort_index_entry_count(version: int) -> None:
    """0x0100 has a low byte of 0, and 1 a high byte of 0."""
    data = encode([AbortedTransaction(1, 2, 3, 4), AbortedTransaction(5, 6, 7, 8)])
    assert struct.unpack_from(">h", data, 34) == (0,)
    damaged = data[:34] + struct.pack(">h", version) + data[36:]
    with pytest.raises((UnsupportedFeatureError, CorruptDataError)) as caught:
        decode(damaged)
    assert (caught.value.values["position"], caught.value.values["got"]) == (34, version)
    assert isinstance(caught.value, UnsupportedFeatureError) is (version > 0)


# --- fencing ------------------------------------------------------------------------------------------------


@case("ImplementationTraps", "an abort by fencing races a late commit")
@pytest.mark.parametrize("late", ["commit", "init"])
@pytest.mark.parametrize("buffer", [INLINE, *AT_COMMIT])
def test_of_a_fence_and_a_commit_for_one_slot_the_first_entry_decides_for_both(
    buffer: str, late: str
) -> None:
    """One of the two is held back at the door of the store while the other takes its slot."""
    store = MemoryStore()
    TxnLog.create(store).create_topic("t", NUMBERS)
    armed = threading.Event()
    gate = Gate()
    held = TxnLog.open(FaultyStore(store, before_create=lambda key: gate(key) if armed.is_set() else None))
    quick = TxnLog.open(store)
    old = Producer(held if late == "commit" else quick, "p", buffer=buffer)
    new = Producer(held if late == "init" else quick, "p", buffer=buffer)
    old.init()
    old.begin()
    old.send("t", [{"n": 1}])
    old.flush()
    calls = {"commit": old.commit, "init": new.init}
    errors: list[TxnLogError] = []

    def call_late() -> None:
        try:
            calls[late]()
        except TxnLogError as error:
            errors.append(error)

    held.refresh()
    armed.set()
    thread = threading.Thread(target=call_late)
    thread.start()
    gate.wait_until_held()
    calls["init" if late == "commit" else "commit"]()
    gate.open()
    thread.join()
    if late == "commit":
        assert [type(error) for error in errors] == [ProducerFencedError]
    assert bool(errors) is (late == "commit")
    committed = [] if late == "commit" else [1]
    assert read(TxnLog.open(store)) == committed
    known = quick.refresh().transactional_ids["p"]
    assert known.partitions == {}
    assert known.epoch == new.epoch
    with new.transaction() as txn:
        txn.send("t", [{"n": 2}])
    with pytest.raises(ProducerFencedError), old.transaction() as txn:
        txn.send("t", [{"n": 3}])
    assert read(TxnLog.open(store)) == [*committed, 2]


@case("ImplementationTraps", "epochs overflow at 32767")
@case("KnownFlaws", "a transaction is stuck at the last epoch")
def test_nothing_happens_to_a_transaction_at_the_end_of_16_bits(log: TxnLog) -> None:
    """Ends and fences at 32,766, 32,767 and 32,768: none is stuck, each is fenced, none has another producer
    id."""
    open_often(log, "p", 32_766)
    ended: list[tuple[int, Outcome]] = []
    for commits in (True, False, True, False):
        with Producer(log, "p", buffer=INLINE) as producer:
            producer.begin()
            producer.send("t", [{"n": len(ended)}])
            producer.flush()
            epoch = producer.epoch or 0
            producer.commit() if commits else producer.abort()
            ended.append((epoch, Outcome.COMMIT if commits else Outcome.ABORT))
            old = ProducerRef(0, epoch, "p")
            opposite = Outcome.ABORT if commits else Outcome.COMMIT
            with pytest.raises(InvalidTransactionStateError):
                log.committer.commit(log.committer.intend(Write(old, end=opposite)))
    assert [epoch for epoch, _ in ended] == [32_766, 32_768, 32_770, 32_772]
    assert [log.outcome("p", epoch).outcome for epoch, _ in ended] == [outcome for _, outcome in ended]
    assert read(log) == [0, 2]
    (ends,) = log.offsets("t")
    assert ends.last_stable_offset == ends.log_end
    assert log.refresh().transactional_ids["p"].producer_id == 0
