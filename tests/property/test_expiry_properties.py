"""Random producers without transactional ids, and random expiries: nothing is taken twice, nobody living is
forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.full_state import checkpoint_of
from tests.unit.core.memory_log import ORDERS, Log, rows
from txnformat.core.intents import AllocateIds, Done, ExpireIdle, Included, ProducerRef, Rejected, Write
from txnformat.core.invariants import check_whole
from txnformat.core.operations import Expire
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot, state_digest
from txnformat.errors import OutOfOrderSequenceError, SequenceError, UnknownProducerIdError

PRODUCERS = st.integers(0, 5)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), PRODUCERS, st.integers(0, 2)),
        st.tuples(st.just("repeat"), PRODUCERS, st.integers(0, 2)),
        st.tuples(st.just("expire"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("reopen"), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=40,
)


@dataclass
class Model:
    """What the rules say, from what was done."""

    sent: dict[tuple[int, int], int] = field(default_factory=dict)
    """Next sequence by (producer, partition), of those that are remembered."""
    used: dict[int, int] = field(default_factory=dict)
    """Log time of the last append of those that are remembered."""
    bound: int = 0
    records: int = 0

    def may_append(self, producer: int) -> bool:
        return producer in self.used or producer >= self.bound

    def forget(self, cutoff_ms: int) -> set[int]:
        gone = {producer for producer, used in self.used.items() if used <= cutoff_ms}
        self.used = {producer: used for producer, used in self.used.items() if producer not in gone}
        self.sent = {key: end for key, end in self.sent.items() if key[0] not in gone}
        self.bound = max([self.bound, *(producer + 1 for producer in gone)])
        return gone


@given(STEPS)
def test_what_is_forgotten_never_comes_back_as_new_and_what_lives_goes_on(
    steps: list[tuple[str, int, int]],
) -> None:
    log, model = Log(ORDERS, AllocateIds("process")), Model()
    contents: dict[tuple[int, int], str] = {}
    for number, (what, one, partition) in enumerate(steps):
        key = (one, partition)
        if what == "append":
            sequence, content = model.sent.get(key, 0), f"rows {number}"
            verdict = log.commit(Write(ProducerRef(one, 0), rows(sequence, 1, content, partition)))
            if model.may_append(one):
                assert isinstance(verdict, Included), verdict
                model.sent[key], contents[key] = sequence + 1, content
                model.used[one] = log.state.timestamp_ms
                model.records += 1
            else:
                assert isinstance(verdict, Rejected)
                assert isinstance(verdict.error, UnknownProducerIdError)
        elif what == "repeat" and key in contents:
            sequence = model.sent.get(key, 1) - 1
            verdict = log.commit(Write(ProducerRef(one, 0), rows(sequence, 1, contents[key], partition)))
            if key in model.sent:
                assert isinstance(verdict, Done), "the log holds it"
            else:  # its sequences are forgotten, and it is never taken for something new
                assert isinstance(verdict, Rejected), verdict
                assert isinstance(verdict.error, SequenceError)
                assert not isinstance(verdict.error, OutOfOrderSequenceError)
        elif what == "expire":
            cutoff_ms = log.state.timestamp_ms - one
            named = Expire((), tuple(sorted(log.state.producers)), ())
            verdict = log.commit(ExpireIdle(named, cutoff_ms, 0))
            gone = model.forget(cutoff_ms)
            assert isinstance(verdict, Included if gone else Rejected)
        elif what == "reopen":
            data = encode_snapshot(log.state)
            again = decode_snapshot(data, checkpoint_of(log.state, data), log.state.log_id)
            assert state_digest(again) == state_digest(log.state)
            log.state = again
        assert set(log.state.producers) == set(model.used)
        assert log.state.retired_below == model.bound
        assert check_whole(log.state) == []
    assert sum(one.log_end for one in log.state.partitions.values()) == model.records
