"""Case 15: triggers and output modes: exact, or refused with what to do."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.spark.case_stream import Stream, when


def test_case_15_triggers_take_turns_on_one_checkpoint(stream: Stream) -> None:
    """Once takes all that is there as one batch; what it leaves is gone on with by any other."""
    for trigger in ({"availableNow": True}, {"once": True}, {"processingTime": "20 milliseconds"}):
        stream.feed(2)
        if "processingTime" in trigger:
            stream.catch_up(trigger=trigger)
        else:
            stream.run(trigger=trigger)
        assert stream.numbers() == stream.wanted
    assert stream.versions() == [0, 1, 2, 3, 4]
    assert stream.check().rows == len(stream.wanted)


def test_case_15_real_time_is_refused(stream: Stream) -> None:
    """By Spark, which knows the sinks that it may use there."""
    entry = stream.entry()
    rates = stream.spark.readStream.format("rate").load().selectExpr("value AS n")
    with pytest.raises(PySparkException, match="sink allowlist for Real-Time Mode"):
        stream.start(rates, mode="update", trigger={"realTime": "5 minutes"})
    assert stream.entry() == entry


def test_case_15_continuous_writes_nothing(stream: Stream) -> None:
    """Spark starts such a query and never runs a task of a Python sink: nothing of it can look as if it were
    done."""
    entry = stream.entry()
    rates = stream.spark.readStream.format("rate").load().selectExpr("value AS n")
    writer = (
        rates.writeStream.format("txnlog").option("topic", "other").trigger(continuous="100 milliseconds")
    )
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start(stream.path)
    try:
        when(lambda: query.exception() is not None or len(stream.notes("offsets")) > 1, "an epoch")
    finally:
        query.stop()
    assert (stream.notes("commits"), stream.entry()) == ([], entry)


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_case_15_other_output_modes_are_refused(stream: Stream, mode: str) -> None:
    """A log is only appended to. Without our refusal of complete, every batch would append all counts
    again.
    """
    stream.feed()
    entry = stream.entry()
    told = stream.fails(stream.source().groupBy("key").count(), mode=mode)
    if mode == "update":
        assert "does not support Update mode" in told  # Spark's own
    else:
        assert "[TXNLOG_UNSUPPORTED_OPERATION] output mode complete" in told
        assert "foreachBatch" in told
    assert stream.entry() == entry
