"""Case 23: a checkpoint is copied, the old query runs once more, and the new one takes over with other
rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import DataFrame

from tests.spark.case_stream import Stream

NO_ORIGIN = ["'' AS query", "0L AS batch", "0L AS task", "0L AS `index`", "'' AS attempt"]
"""A query that gives the same rows for the same input."""


def run(stream: Stream, checkpoint: Path, **options: str) -> None:
    """Write what is there as one batch."""
    stream.run(_rows(stream), checkpoint=checkpoint, **options)


def _rows(stream: Stream) -> DataFrame:
    source = stream.spark.readStream.schema("n long, key string").json(str(stream.input))
    return source.selectExpr("n", "key", *NO_ORIGIN)


def test_case_23_rows_that_nobody_wrote_are_not_passed_over(stream: Stream, tmp_path: Path) -> None:
    """The old query writes the sixth one as batch 1, the new one brings two of them as batch 1.

    The guard: the content of the version (:mod:`spark_datasource.write.repeats`). Without it the new query
    finds its batch done, and goes on: the rows of one file are lost without an error.
    """
    copy = tmp_path / "copy"
    stream.feed(2)
    run(stream, stream.checkpoint)
    shutil.copytree(stream.checkpoint, copy)
    stream.feed()
    run(stream, stream.checkpoint)
    stream.feed()
    entry, there = stream.entry(), stream.numbers()
    for _ in range(2):  # also when it is started again
        told = stream.fails(_rows(stream), checkpoint=copy)
        assert "[TXNLOG_DIFFERENT_REPEAT] batch 1 of query" in told
        assert "rows: 40 rows in the log, 80 in the repetition" in told
        assert "continue from the checkpoint of that run" in told
        assert (stream.entry(), stream.numbers()) == (entry, there)
    run(stream, stream.checkpoint)  # as it says
    stream.feed()
    run(stream, stream.checkpoint)
    assert stream.numbers() == stream.wanted


def test_case_23_who_accepts_it_goes_on(stream: Stream, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    stream.feed(2)
    run(stream, stream.checkpoint)
    shutil.copytree(stream.checkpoint, copy)
    stream.feed()
    run(stream, stream.checkpoint)
    stream.feed()
    run(stream, copy, allowDifferentRepeat="true")
    stream.feed()
    run(stream, copy)
    left_out = stream.wanted[120:160]
    assert stream.numbers() == [n for n in stream.wanted if n not in left_out]
