"""Spark's Python workers trace where ``opentelemetry-instrument`` started the driver: what they trace
arrives, in one trace with the driver's span."""

from __future__ import annotations

import pickle
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from pyspark.sql.types import LongType, StructType

from spark_datasource.datasource import TxnLogDataSource
from spark_datasource.read.splits import Split
from tests.jvm import spark_environment
from tests.meta.markdown import ROOT
from tests.spark.conftest import find_java
from tests.spark.traced_job import SPLITS, STREAMED
from tests.telemetry.exporting import Exported, instrumented, spans_in
from txnformat.spans import span
from txnlog import Producer, TxnLog
from txnlog.otel import instrument, uninstrument


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    """The spans of the job and of all of its workers by id. Their processors keep spans for an hour."""
    if find_java() is None:
        pytest.fail("Spark needs Java 17 or later: `make test` finds or installs it", pytrace=False)
    folder = tmp_path_factory.mktemp("traced")
    TxnLog.create(folder / "log").close()
    start, environment = instrumented(folder, "python")
    done = subprocess.run(
        [*start, "-m", "tests.spark.traced_job", str(folder)],
        cwd=ROOT,
        env={
            **environment,
            "PYSPARK_PYTHON": start[1],
            "PYSPARK_DRIVER_PYTHON": start[1],
            "SPARK_LOCAL_IP": "127.0.0.1",
            **spark_environment(folder, "--driver-memory 512m"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {one.span_id: one for one in spans_in(folder)}


def test_spans_of_workers_arrive_although_spark_ends_them(spans: dict[str, Exported]) -> None:
    """Two entries: the topic that the first write creates is in its own. Each batch and each write has one
    commit."""
    found = Counter(one.name for one in spans.values())
    assert found["upload orders"] == SPLITS
    assert (found["commit orders"], found["commit copies"]) == (1, 1)
    assert found["attempt"] >= 2
    assert found["read orders"] >= 2  # the batch's, the stream's
    assert found["upload copies"] >= 1
    reads = [one.attributes["messaging.batch.message_count"] for one in spans.values() if "read " in one.name]
    assert sum(reads) == 2 * STREAMED
    (job,) = (one for one in spans.values() if one.name == "job")
    assert all(one.pid != job.pid for one in spans.values() if one is not job)


def test_they_are_one_trace_below_the_driver_s_span(spans: dict[str, Exported]) -> None:
    assert {one.trace_id for one in spans.values()} == {
        one.trace_id for one in spans.values() if one.name == "job"
    }
    above = {(one.name, spans[one.parent_id].name) for one in spans.values() if one.parent_id is not None}
    assert above >= {
        ("plan", "job"),
        ("upload orders", "plan"),
        ("read orders", "plan"),
        ("upload copies", "plan"),
        ("commit orders", "plan"),
        ("commit copies", "job"),
        ("attempt", "commit orders"),
    }


def test_what_is_sent_to_tasks_has_no_trace_where_nothing_is_traced(tmp_path: Path) -> None:
    with TxnLog.create(tmp_path / "log") as log:
        log.create_topic("t", StructType().add("n", LongType()))
        with Producer(log) as producer:
            producer.send("t", [{"n": 1}])

    def planned() -> bytes:
        source = TxnLogDataSource({"path": str(tmp_path / "log"), "topic": "t"})
        reader = source.reader(source.schema())
        return pickle.dumps((source, reader, reader.partitions()))

    assert b"trace" not in planned()
    instrument(TracerProvider())
    try:
        with span("seal"):
            assert b"trace" in planned()
    finally:
        uninstrument()
    assert b"trace" not in planned()
    assert "trace" not in Split("id", 0, (), (), (), {}).__dict__
