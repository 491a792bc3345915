"""Case 10: a query is started again from its checkpoint, whatever Spark has noted of its last batches.

The guard of all: the batch's number is in the entry as the query's version. Without it every test fails.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from tests.chaos.faults import Fault
from tests.spark.case_stream import Stream, when


def test_case_10_after_a_clean_stop(stream: Stream) -> None:
    stream.feed(2)
    stream.catch_up()
    stream.feed()
    stream.run()
    assert stream.notes("commits") == stream.notes("offsets") == stream.versions() == [0, 1, 2]
    assert stream.check().rows == len(stream.wanted)


@pytest.mark.parametrize("point", ["commit/before-entry", "commit/after-entry"])
def test_case_10_after_a_stop_during_the_commit(stream: Stream, point: str) -> None:
    """Spark waits for our commit, and does not note that it is done: the batch is written again by the next
    run."""
    stream.feed(2)
    stream.control.arm("commit", Fault(point=point, how="wait", batch=1))
    with stream.running() as query:
        stream.control.wait_hit("commit")
        stopping = threading.Thread(target=query.stop)
        stopping.start()
        try:
            when(lambda: not query.isActive, "the query to be stopped")
            assert stopping.is_alive()
        finally:
            stream.control.release("commit")
            stopping.join()
        assert query.exception() is None
    assert (stream.notes("offsets"), stream.versions()) == ([0, 1], [0, 1])
    there = {row.attempt for row in stream.content()}
    stream.control.arm("again", Fault(point="commit/start", how="wait", batch=1))
    stream.control.release("again")
    stream.feed()
    stream.run()
    assert stream.control.hit("again") is not None
    assert there <= {row.attempt for row in stream.content()}  # the first commit stays
    assert stream.check().rows == len(stream.wanted)


def test_case_10_the_last_notes_are_gone(stream: Stream) -> None:
    """Of all batches whose end is not noted, Spark writes only the last one again."""
    stream.feed(4)
    stream.run()
    there = stream.content()
    for name, batches in (("one", [3]), ("two", [1, 2, 3])):
        entry = stream.entry()
        stream.forget("commits", *(batch for batch in batches if batch in stream.notes("commits")))
        stream.control.arm(name, Fault(point="commit/start", how="wait", batch=3))
        stream.control.release(name)
        stream.run()
        assert stream.control.hit(name) is not None
        assert (stream.entry(), stream.content()) == (entry, there)
        assert stream.notes("commits")[-1] == 3
    stream.feed()
    stream.run()
    assert stream.check().rows == len(stream.wanted)


def test_case_10_the_last_batch_is_gone_from_the_checkpoint(stream: Stream, tmp_path: Path) -> None:
    """Spark then begins at the one before, which is no repetition of the last: it is refused, every time.

    The guard: a version below the newest one is stale. Without it the batches after it are there twice.
    """
    stream.feed(3)
    stream.run()
    away = tmp_path / "away"
    stream.checkpoint.rename(away)
    shutil.copytree(away, stream.checkpoint)
    stream.forget("commits", 1, 2)
    stream.forget("offsets", 2)
    entry = stream.entry()
    for _ in range(2):
        told = stream.fails()
        assert "[TXNLOG_STALE_APP_VERSION] the log holds a later batch of this query" in told
        assert "continue with the newest checkpoint" in told
        assert stream.entry() == entry
    shutil.rmtree(stream.checkpoint)
    away.rename(stream.checkpoint)
    stream.feed()
    stream.run()
    assert stream.check().rows == len(stream.wanted)
