"""Case 17: the checkpoint is deleted, or an older state of it comes back."""

from __future__ import annotations

import shutil

import pytest

from tests.spark.case_stream import Stream


def test_case_17_a_deleted_checkpoint_begins_a_new_query(stream: Stream) -> None:
    """Spark makes another query id, and reads the input anew: nothing says that it is the same.
    docs/spark-read.md says so."""
    stream.feed(2)
    stream.run()
    before = stream.application
    shutil.rmtree(stream.checkpoint)
    stream.run()
    assert stream.application != before
    assert stream.versions() == [0, 1]
    stream.check(stream.wanted * 2)


@pytest.mark.parametrize("batches", [1, 2])
def test_case_17_with_an_application_id_it_is_refused(stream: Stream, batches: int) -> None:
    """Also with one batch, when the new query's first number is the newest one of the log.

    The guards: ``apps_beside`` with every batch, which has to grow. Without the first the rows are there
    twice; with "not lower" in place of "higher", the rows of the new query's first batch are left out for a
    repetition in the case of one batch, when they need not be the same.
    """
    stream.feed(batches)
    stream.run(txnAppId="clicks")
    away = stream.folder / "away"
    stream.checkpoint.rename(away)
    entry = stream.entry()
    for _ in range(2):
        told = stream.fails(txnAppId="clicks")
        assert "[TXNLOG_STALE_APP_VERSION]" in told
        assert "choose another txnAppId" in told
        assert stream.entry() == entry
    shutil.rmtree(stream.checkpoint)
    away.rename(stream.checkpoint)
    stream.feed()
    stream.run(txnAppId="clicks")
    assert stream.check().rows == len(stream.wanted)


def test_case_17_an_older_state_of_the_checkpoint_is_refused(stream: Stream) -> None:
    """It would write what came after it again. The guard: as with a lost last batch of case 10."""
    stream.feed()
    stream.run()
    older = stream.folder / "older"
    shutil.copytree(stream.checkpoint, older)
    stream.feed(2)
    stream.run()
    entry = stream.entry()
    told = stream.fails(checkpoint=older)
    assert "[TXNLOG_STALE_APP_VERSION] the log holds a later batch of this query" in told
    assert stream.entry() == entry
    stream.feed()
    stream.run()
    assert stream.check().rows == len(stream.wanted)
