"""Random histories whose oldest records are removed while they grow: readers see the rest, as it was, and are
told what is gone."""

from __future__ import annotations

from random import Random

from tests.property.cut_histories import TOPICS, CutHistory, any_log, cut_histories, small_pieces
from tests.property.random_writer import check_snapshot
from tests.property.trimmed_histories import Trimmer
from txnformat.store.memory import MemoryStore
from txnlog import TxnLog


@cut_histories(examples=25)
def test_what_is_removed_is_gone_and_the_rest_stays_as_it_was(
    random: Random, steps: int, listed_rows: int, batches_max: int
) -> None:
    """While transactions of all buffers are open, segments of any size are sealed and listed, and logs are
    opened anew."""
    with small_pieces(listed_rows, batches_max):
        store = MemoryStore()
        log = any_log(random, store)
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
        check_snapshot(opened.state)
        report = opened.verify(deep=True)
        assert report.ok, report.problems
