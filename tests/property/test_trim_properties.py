"""Random histories whose oldest records are removed while they grow: readers see the rest, as it was, and are told what is gone."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.property.cut_histories import (
    TOPICS,
    CutHistory,
    small_pieces,
)
from tests.property.random_writer import snapshot_of
from tests.property.trimmed_histories import Trimmer
from txnformat.core.snapshot.codec import decode_snapshot, encode_snapshot
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.randoms(use_true_random=False),
    st.integers(5, 50),
    st.sampled_from([2, 1_000]),
    st.sampled_from([1, 3, 100_000]),
)
def test_what_is_removed_is_gone_and_the_rest_stays_as_it_was(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, segments of any size are sealed and listed, and logs are opened anew."""
    with small_pieces(listed_rows, batches_max):
        store = MemoryStore()
        log = TxnLog.create(store)
        log.upgrade()
        history = CutHistory(random, log, grows=True, batch_bytes=1)
        for topic in TOPICS:
            log.subscriptions.create(topic, "before")
        trimmer = Trimmer(random, log, history)
        for _ in range(steps):
            history.step()
            chance = random.random()
            if chance < 0.2:
                trimmer.trim()
            elif chance < 0.5:
                trimmer.acknowledge()
        history.close()
        trimmer.trim()
        for topic in TOPICS:
            log.subscriptions.create(topic, "after")
        log.maintain("seal")
        opened = TxnLog.open(store)
        trimmer.check(opened)
        state = opened.state
        data = encode_snapshot(state)
        again = decode_snapshot(data, snapshot_of(state, data), state.log_id)
        assert encode_snapshot(again) == data
        report = opened.verify(deep=True)
        assert report.ok, report.problems
