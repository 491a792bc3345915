"""Case 16: the query's columns change between runs, or the topic's under a running query."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.chaos.faults import Fault
from tests.chaos.origin import TOPIC
from tests.spark.case_stream import Stream, said

CHANGES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a column more": (lambda rows: rows.withColumn("more", F.lit(1)), "'more'"),
    "another type": (lambda rows: rows.withColumn("n", F.col("n").cast("string")), "'n'"),
    "a column less": (lambda rows: rows.drop("index"), "'index' is missing"),
}


def test_case_16_the_query_comes_back_with_other_columns(stream: Stream) -> None:
    """Every difference is named, nothing is written, and the batch is there once the columns fit again.

    The guard: plans hold the frame's columns against the topic's. Without it records of another shape would
    be uploaded.
    """
    stream.feed()
    stream.run()
    stream.feed()
    entry = stream.entry()
    for change, name in CHANGES.values():
        told = stream.fails(change(stream.rows()))
        assert "[TXNLOG_SCHEMA_MISMATCH]" in told
        assert name in told
        assert stream.entry() == entry
    stream.log.alter_topic(TOPIC, add_columns=pa.schema([("more", pa.int32())]))
    more, _ = CHANGES["a column more"]
    stream.run(more(stream.rows()))
    rows = stream.log.read(TOPIC, columns=["n", "more"]).read_all().to_pylist()
    assert {row["more"] for row in rows if row["n"] in stream.wanted[: len(rows) // 2]} == {None}
    assert {row["more"] for row in rows if row["n"] in stream.wanted[len(rows) // 2 :]} == {1}
    assert stream.check().rows == len(stream.wanted)


def alter_within_commit(stream: Stream, name: str, alter: Callable[[], object], frame: DataFrame) -> object:
    """Feed a file, change the topic while its batch is written and not committed, and let go on; return the
    query."""
    batch = len(stream.versions())
    stream.control.arm(name, Fault(point="commit/before-entry", how="wait", batch=batch))
    stream.feed()
    query = stream.start(frame)
    try:
        assert stream.control.wait_hit(name).place.batch == batch
        alter()
    finally:
        stream.control.release(name)
    return query


@pytest.mark.parametrize("stream", [["key"], []], ids=["keys", "no keys"], indirect=True)
def test_case_16_the_topic_is_altered_between_write_and_commit(stream: Stream) -> None:
    """Columns do not matter to what is uploaded already; partitions do where records go by key.

    The guards: the state of the topic is asked again after the lost race for the entry (without it, keys in
    the wrong partition), and there only the partition count of keyed topics matters (else needless failures).
    """
    stream.feed()
    stream.run()
    log = stream.log
    changes: list[tuple[str, Callable[[], object]]] = [
        ("add", lambda: log.alter_topic(TOPIC, add_columns=pa.schema([("more", pa.int32())]))),
        ("widen", lambda: log.alter_topic(TOPIC, widen={"more": pa.int64()})),
    ]
    for name, alter in changes:
        query = alter_within_commit(stream, name, alter, stream.rows())
        assert query.awaitTermination(300)  # type: ignore[attr-defined]
        assert stream.numbers() == stream.wanted
    entry = stream.entry()
    query = alter_within_commit(stream, "grow", lambda: log.alter_topic(TOPIC, partitions=3), stream.rows())
    if stream.log.state.topic(TOPIC).schema.key_columns:
        told = said(query)
        assert "[TXNLOG_PARTITION_COUNT_CHANGED]" in told
        assert "restart the query" in told
        assert stream.entry() == entry + 1  # that of alter_topic
    else:
        assert query.awaitTermination(300)  # type: ignore[attr-defined]
    stream.feed()
    stream.run()
    partitions: dict[str, set[int]] = {}
    keys = stream.log.read(TOPIC, columns=["key", "n", "_partition"]).read_all().to_pylist()
    for row in keys:
        if row["n"] >= stream.wanted[-80]:
            partitions.setdefault(row["key"], set()).add(row["_partition"])
    if stream.log.state.topic(TOPIC).schema.key_columns:
        assert {len(of) for of in partitions.values()} == {1}
    assert stream.check().rows == len(stream.wanted)
