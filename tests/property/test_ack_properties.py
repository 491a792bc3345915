"""Subscriptions, held against a model that knows of every single offset; and a million acknowledgements."""

from __future__ import annotations

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.core.memory_log import Log
from tests.unit.core.subscriptions.acknowledging import (
    KEY,
    NAME,
    RECORDS,
    TOPIC,
    below,
    seek,
    some,
    subscribed,
)
from txnformat.core.fold import apply_operation
from txnformat.core.folding import At
from txnformat.core.intents import (
    EnableFeatures,
    Included,
    OpenProducer,
    Rejected,
    SealSegments,
    TrimTopic,
    Write,
)
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.lifecycle.operations import Trim, TrimmedPartition
from txnformat.core.ranges import Ranges
from txnformat.core.snapshot.subscriptions import encode_subscription
from txnformat.core.state import LIFECYCLE
from txnformat.core.subscriptions.operations import Ack, AckedPartition, AckMode
from txnformat.core.subscriptions.state import PartitionAcks
from txnformat.errors import AckConflictError
from txnformat.persistent import replace
from txnformat.types import Outcome, TopicPartition
from txnlog_testing.seal_of import seal_of

NAMES = ("a", "b", "c")
Found = tuple[str, int, str | None] | None


class Model:
    """Single offsets of one partition: "acked", or whose transaction holds them."""

    def __init__(self) -> None:
        self.status: dict[int, str] = {}
        self.position: dict[str, int] = {}

    def conflict(self, offsets: list[int]) -> Found:
        """Return the first conflict of individual acknowledgements."""
        for offset in sorted(offsets):
            held = self.status.get(offset)
            if held is not None:
                return (
                    ("already-acknowledged", offset, None)
                    if held == "acked"
                    else ("ack-pending", offset, held)
                )
        return None

    def conflict_below(self, position: int, who: str | None) -> Found:
        """Return the first conflict of a cumulative acknowledgement."""
        held = [self.status.get(offset) for offset in range(position)]
        if all(one == "acked" for one in held):
            return "already-acknowledged", position - 1, None
        for offset, one in enumerate(held):
            if one not in (None, "acked", who):
                return "ack-pending", offset, one
        if who is not None and position <= self.position.get(who, 0):
            return "ack-pending", position - 1, who
        return None

    def take(self, offsets: list[int], who: str | None) -> None:
        """Acknowledge what is free."""
        for offset in offsets:
            if self.status.get(offset) != "acked":
                self.status[offset] = who or "acked"

    def end(self, who: str, outcome: Outcome) -> None:
        """End a transaction."""
        self.position.pop(who, None)
        for offset in [offset for offset, held in self.status.items() if held == who]:
            del self.status[offset]
            if outcome is Outcome.COMMIT:
                self.status[offset] = "acked"

    def acked(self) -> Ranges:
        return Ranges.of([(one, one + 1) for one, held in self.status.items() if held == "acked"])

    def held(self) -> Ranges:
        return Ranges.of([(one, one + 1) for one, held in self.status.items() if held != "acked"])


WHO = st.none() | st.sampled_from(NAMES)
INDIVIDUAL = st.tuples(
    st.just("individual"),
    WHO,
    st.lists(st.tuples(st.integers(0, RECORDS - 1), st.integers(1, 3)), min_size=1, max_size=3),
)
STEPS = st.lists(
    st.one_of(
        INDIVIDUAL,
        INDIVIDUAL,
        st.tuples(st.just("cumulative"), WHO, st.integers(1, RECORDS)),
        st.tuples(st.just("end"), st.sampled_from(NAMES), st.sampled_from(Outcome)),
        st.tuples(st.just("open"), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("seek"), st.none(), st.integers(0, RECORDS)),
        st.tuples(st.just("trim"), st.none(), st.integers(1, RECORDS)),
    ),
    max_size=25,
)


def same(log: Log, write: Write, expected: Found) -> bool:
    """Commit; what is decided is what the model says. Return whether it was applied."""
    before = log.state
    intent = log.intent(write)
    assembled = log.assemble(intent)
    verdict = assembled.verdicts[intent.intent_id]
    if expected is None:
        assert isinstance(verdict, Included), verdict
        assert assembled.entry is not None
        assert check_state(before, assembled.entry, log.state) == []
        return True
    assert isinstance(verdict, Rejected)
    assert isinstance(verdict.error, AckConflictError), verdict.error
    values = verdict.error.values
    event(f"{verdict.error.kind} by {values.get('transactional_id')}")
    assert (verdict.error.kind, values["offset"], values.get("transactional_id")) == expected
    return False


@given(STEPS)
@settings(max_examples=150)
def test_acknowledgements_agree_with_a_model_of_single_offsets(
    steps: list[tuple[str, str | None, object]],
) -> None:
    log, _ = subscribed(*NAMES)
    log.commit(SealSegments(seal_of(log.state)))
    log.commit(EnableFeatures((LIFECYCLE,)))
    key = TopicPartition(TOPIC, 0)
    model = Model()
    for what, who, argument in steps:
        producer = log.producer(who) if who is not None else None
        if isinstance(argument, list):
            ranges = Ranges.of([(start, min(start + count, RECORDS)) for start, count in argument])
            offsets = [offset for pair in ranges.pairs() for offset in range(*pair)]
            if same(log, Write(producer, acks=(some(*ranges.pairs()),)), model.conflict(offsets)):
                model.take(offsets, who)
        elif what == "cumulative" and isinstance(argument, int):
            if same(log, Write(producer, acks=(below(argument),)), model.conflict_below(argument, who)):
                model.take([*range(argument)], who)
                if who is not None:
                    model.position[who] = argument
        elif isinstance(argument, Outcome) and who is not None:
            if log.state.transactional_ids[who].subscriptions:
                assert same(log, Write(producer, end=argument), None)
                model.end(who, argument)
        elif what == "open" and who is not None:
            log.commit(OpenProducer(who))
            model.end(who, Outcome.ABORT)
        elif what == "trim" and isinstance(argument, int):
            start = log.state.partition(key).log_start
            if argument > start:
                trimmed = TrimmedPartition(0, argument, 2, 0, 0, 0, 0)
                assert isinstance(log.commit(TrimTopic(Trim(TOPIC, (trimmed,)), (start,))), Included)
        elif isinstance(argument, int):
            pending = model.held()
            found: Found = None
            if len(pending):
                first = int(pending.starts[0])
                found = ("ack-pending", first, model.status[first])
            if same(log, seek(argument), found):
                model.status = dict.fromkeys(range(argument), "acked")
        acks = log.state.subscriptions[KEY].partition(0)
        start = log.state.partition(key).log_start
        shown = log.state.acks(log.state.subscriptions[KEY], key)
        assert shown.whole() == model.acked() | Ranges.of([(0, start)] if start else [])
        assert acks.whole() == model.acked()
        assert acks.held() == model.held()
        assert acks.held_together() == PartitionAcks(pending=acks.pending).held_together()
        assert check_whole(log.state) == []


def test_a_million_acknowledgements_in_a_moving_window_stay_a_few_ranges() -> None:
    window, count, most = 5_000, 1_000_000, 300
    log, _ = subscribed()
    key = TopicPartition(TOPIC, 0)
    grown = replace(log.state.partition(key), log_end=count)
    state = replace(log.state, partitions={**log.state.partitions, key: grown})
    # Consumers take records in order, and are done with them in any order, but none lags behind by more than
    # the window.
    order = np.argsort(np.arange(count) + np.random.default_rng(7).integers(0, window, count), kind="stable")
    ranges = size = 0
    for entries, start in enumerate(range(0, count, most), 1):
        taken = Ranges.between(order[start : start + most], order[start : start + most] + 1)
        part = AckedPartition(key.partition, tuple(taken.pairs()))
        state = apply_operation(
            state, Ack(TOPIC, NAME, AckMode.INDIVIDUAL, (part,)), At(state.entry + entries, entries)
        )
        acks = state.subscriptions[KEY].partition(key.partition)
        ranges = max(ranges, acks.range_count())
        assert len(acks.acked) == 0 or acks.acked.ends[-1] - acks.mark <= 2 * window
        if entries % 300 == 0:
            size = max(size, len(str(encode_subscription(KEY, state.subscriptions[KEY]))))
    assert 100 < ranges <= window
    assert 1_000 < size < 100_000
    assert state.subscriptions[KEY].partition(key.partition) == PartitionAcks(count)
