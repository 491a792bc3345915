"""The seal waits for at most one spill of a partition, which it may not cut, and only until the transactions
that began in that spill have ended."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.rounds import rounds
from txnformat.client.driver import Driver
from txnformat.clock import SystemClock
from txnformat.core.assemble import assemble
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import (
    Action,
    EnableFeatures,
    Intent,
    OpenProducer,
    ProducerRef,
    SealSegments,
    SpillExtents,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.records.state import PartitionState
from txnformat.core.state import LIFECYCLE, LogState
from txnformat.protocol.sealing import sealable_end, write_segments
from txnformat.protocol.spilling import write_spill
from txnformat.store.memory import MemoryStore
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.seal_of import CountedIds
from txnlog_testing.strategies import make_append, make_topic

ORDERS = make_topic("orders")
KEY = TopicPartition(ORDERS.topic_id, 0)
NAMES = ("a", "b", "c", "d")
STEPS = 60


class Overlapping:
    """A partition whose transactions overlap: at no time is none of them open. It is sealed and spilled as
    far as possible, at random times."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.driver = Driver(MemoryStore(), SystemClock(), CountedIds())
        self.state = LogState("0a8b4b7e-46a4-4d0f-9c3b-3f3e1f0f5a11", entry_sha256=sha256_hex(b"format"))
        self.inside: tuple[int, int] | None = None
        """The spill that the last stable offset is inside of,"""
        self.begun: frozenset[tuple[int, int]] = frozenset()
        """and the open transactions that began in it."""
        self.sequences: Counter[tuple[int, int]] = Counter()
        self.hits: Counter[str] = Counter()
        actions: list[Action] = [EnableFeatures((LIFECYCLE,)), ORDERS, *map(OpenProducer, NAMES)]
        for action in actions:
            self.commit(action)

    @property
    def partition(self) -> PartitionState:
        return self.state.partition(KEY)

    def commit(self, action: Action) -> None:
        number = self.state.entry + 1
        intent = Intent(f"intent {number}", number, action)
        assembled = assemble(self.state, [intent], store_time_ms=1_700_000_000_000, write_id="write")
        assert assembled.entry is not None, assembled.verdicts
        assert check_state(self.state, assembled.entry, assembled.after) == []
        self.state = assembled.after
        self.check()

    def check(self) -> None:
        partition = self.partition
        stable = partition.last_stable_offset
        inside = [one for one in partition.spills if one.start_offset < stable < one.end_offset]
        assert len(inside) <= 1
        if self.inside is not None:
            if partition.sealed_end < self.inside[1]:
                assert self.inside in [(one.start_offset, one.end_offset) for one in partition.spills]
                begun = frozenset(key for key, first in partition.open.items() if first < self.inside[1])
                assert begun <= self.begun, "a transaction that began behind the spill delays nothing of it"
                if not begun:
                    assert sealable_end(partition) >= self.inside[1]
                    self.hits["a spill waited until its last transaction had ended"] += 1
                self.begun = begun
            else:
                self.inside = None
        if inside:
            (one,) = inside
            assert sealable_end(partition) == one.start_offset
            if self.inside is None:
                self.inside = (one.start_offset, one.end_offset)
                self.begun = frozenset(key for key, first in partition.open.items() if first < one.end_offset)
                self.hits["the last stable offset is inside of a spill"] += 1
        else:
            assert sealable_end(partition) == stable, "nothing else holds a seal back"

    def append(self, name: str | None) -> None:
        content, ref, sequence = f"content {self.state.entry}", None, -1
        if name is not None:
            known = self.state.transactional_ids[name]
            ref = ProducerRef(known.producer_id, known.epoch, name)
            sequence = self.sequences[known.producer_id, known.epoch]
            self.sequences[known.producer_id, known.epoch] += 2
        self.commit(Write(ref, (make_append(ORDERS, {0: (sequence, 2)}, content=content),)))

    def end(self, name: str) -> None:
        known = self.state.transactional_ids[name]
        outcome = self.random.choice([Outcome.COMMIT, Outcome.ABORT])
        self.commit(Write(ProducerRef(known.producer_id, known.epoch, name), end=outcome))

    def open_names(self) -> list[str]:
        first = self.partition.open
        found = [name for name in NAMES if self.state.transactional_ids[name].partitions]
        known = self.state.transactional_ids
        return sorted(found, key=lambda name: first[known[name].producer_id, known[name].epoch])

    def upkeep(self) -> None:
        if self.random.random() < 0.4:
            seal = self.driver.run(write_segments(self.state))
            if seal is not None:
                wanted = sealable_end(self.partition)
                self.commit(SealSegments(seal))
                assert self.partition.sealed_end == wanted
        if self.random.random() < 0.4:
            spill = self.driver.run(write_spill(self.state, 1))
            if spill is not None:
                self.commit(SpillExtents(spill))

    def step(self) -> None:
        opened = self.open_names()
        choice = self.random.random()
        if choice < 0.3:
            self.append(None)
        elif choice < 0.5 or len(opened) < 2:
            self.append(self.random.choice(NAMES))
        elif choice < 0.8:
            self.end(opened[0])
        else:
            self.end(self.random.choice(opened[1:]))
        self.upkeep()


@given(st.randoms(use_true_random=False))
@settings(max_examples=rounds(15, 40), deadline=None)
def test_a_seal_waits_for_transactions_that_began_in_one_spill_and_for_no_others(random: Random) -> None:
    world = Overlapping(random)
    for _ in range(STEPS):
        world.step()
    assert check_whole(world.state) == []
    for what in world.hits:
        event(what)
    for name in world.open_names():
        world.end(name)
    seal = world.driver.run(write_segments(world.state))
    if seal is not None:
        world.commit(SealSegments(seal))
    assert (world.partition.sealed_end, world.partition.spills) == (world.partition.log_end, ())


def test_histories_meet_spills_that_wait() -> None:
    hits: Counter[str] = Counter()
    for seed in range(10):
        world = Overlapping(Random(seed))
        for _ in range(STEPS):
            world.step()
        hits += world.hits
    assert hits["the last stable offset is inside of a spill"] > 10
    assert hits["a spill waited until its last transaction had ended"] > 5


def test_what_stays_unsealed_does_not_grow_with_a_chain_of_transactions() -> None:
    """Each transaction begins before the one before it ends, for ever: what waits is what two transactions
    lasted, not what the chain did."""
    waits: list[int] = []
    for spills in (False, True):
        world = Overlapping(Random(1))
        lag, pace = [], 6
        for number in range(40):
            world.append(NAMES[number % 2])
            for _ in range(pace):
                world.append(None)
            if number:
                world.end(NAMES[(number + 1) % 2])
            spill = world.driver.run(write_spill(world.state, 1)) if spills else None
            if spill is not None:
                world.commit(SpillExtents(spill))
            seal = world.driver.run(write_segments(world.state))
            if seal is not None:
                world.commit(SealSegments(seal))
            lag.append(world.partition.log_end - world.partition.sealed_end)
        waits.append(max(lag))
        assert max(lag[20:]) == max(lag[2:12]), "it does not grow"
    assert waits[1] <= 2 * waits[0]
