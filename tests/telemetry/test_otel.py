"""Spans, durations and measures as OpenTelemetry's own SDK gets them; and nothing of it while they are
off.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    messaging_attributes,
    process_attributes,
)
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.trace import SpanKind, StatusCode

from tests.meta.markdown import ROOT, codes, section, tables
from txnformat import keys
from txnformat.admin.metrics import METRICS
from txnformat.client import committer as committers
from txnformat.errors import InvalidInputError, StorageError
from txnformat.store.base import CreateOutcome, CreateResult
from txnformat.store.memory import MemoryStore
from txnformat.store.wrapped import WrappedStore
from txnlog import Producer, TxnLog
from txnlog.otel import ATTRIBUTES, DURATION, SPANS, instrument, observe, uninstrument

ROWS = pa.schema([("n", pa.int64())])


class Traced:
    """Where spans and durations go."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def spans(self, name: str) -> list[ReadableSpan]:
        found = self.exporter.get_finished_spans()
        return [one for one in found if one.name.split(" ")[0] == name]

    def points(self, name: str) -> Sequence[Any]:
        data = self.reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    instrument(made.tracers, made.meters)
    try:
        yield made
    finally:
        uninstrument()
        made.tracers.shutdown()
        made.meters.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def written(store: Any) -> TxnLog:
    log = TxnLog.create(store)
    log.create_topic("orders", ROWS)
    log.create_topic("bills", ROWS)
    with Producer(log, "p") as producer, producer.transaction() as txn:
        txn.send("orders", [{"n": 1}, {"n": 2}])
        txn.send("bills", [{"n": 3}])
    return log


def test_every_call_has_its_span(traced: Traced) -> None:
    log = written(MemoryStore(name="traced"))
    with Producer(log) as producer:
        producer.send("orders", [{"n": 4}])
    assert log.read("orders").read_all().num_rows == 3
    log.maintain("seal")
    log.compact("orders", min_lag_ms=0)
    elsewhere = {"txnlog", "upload"}  # test_instrumented.py, test_spark_telemetry.py
    assert {one.name.split(" ")[0] for one in traced.exporter.get_finished_spans()} == set(SPANS) - elsewhere
    for one in traced.exporter.get_finished_spans():
        name = one.name.split(" ")[0]
        assert one.kind is SPANS[name]
        found = attributes(one)
        assert found["messaging.system"] == "txnlog"
        assert found["messaging.operation.name"] == name
        assert found["txnlog.log"] == log.url
        assert one.status.status_code is StatusCode.UNSET
    (both, one_topic) = [one for one in traced.spans("commit") if attributes(one).get("txnlog.topics")]
    assert both.name == "commit"
    assert attributes(both)["txnlog.topics"] == ("bills", "orders")
    assert attributes(both)["messaging.batch.message_count"] == 3
    assert attributes(both)["messaging.operation.type"] == "send"
    assert attributes(both)["txnlog.commit.outcomes"] == ("committed",)
    assert one_topic.name == "commit orders"
    assert attributes(one_topic)["messaging.destination.name"] == "orders"
    assert "messaging.operation.type" not in attributes(traced.spans("commit")[0])
    (read,) = traced.spans("read")
    assert read.kind is SpanKind.CONSUMER
    assert attributes(read)["messaging.batch.message_count"] == 3
    assert attributes(read)["messaging.operation.type"] == "receive"


def test_a_commit_has_its_attempts_as_children_and_belongs_to_the_caller_s_span(traced: Traced) -> None:
    """In the main thread, whose calls run in another one."""
    store = MemoryStore()
    first, second = written(store), TxnLog.open(store)
    with Producer(first) as producer:
        producer.send("orders", [{"n": 5}])
    traced.exporter.clear()
    tracer = traced.tracers.get_tracer("test")
    with tracer.start_as_current_span("mine") as mine:
        assert threading.current_thread() is threading.main_thread()
        second.committer.commit(second.committer.intend(second.topic_operation("more", ROWS)))
    (commit,) = traced.spans("commit")
    assert commit.parent is not None
    assert commit.parent.span_id == mine.get_span_context().span_id
    attempts = traced.spans("attempt")
    assert [attributes(one)["txnlog.attempt.outcome"] for one in attempts] == ["exists", "created"]
    entry = second.state.entry
    assert [attributes(one)["txnlog.entry"] for one in attempts] == [
        entry - 2,
        entry,
    ]  # an id of a producer, and the records
    assert attributes(commit)["txnlog.entry"] == entry
    for one in attempts:
        assert one.parent is not None
        assert commit.context is not None
        assert one.parent.span_id == commit.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid


class Refusing(WrappedStore):
    """Refuses entries."""

    def create(self, key: str, data: bytes) -> CreateResult:
        if keys.parse_entry_key(key) is None:
            return super().create(key, data)
        refused = StorageError("a secret", kind="permission-denied", hint="a secret")
        return CreateResult(CreateOutcome.REFUSED, refused)


def test_an_error_is_told_by_its_kind_and_not_by_its_text(traced: Traced) -> None:
    store = MemoryStore()
    written(store)
    log = TxnLog.open(Refusing(store))
    traced.exporter.clear()
    with pytest.raises(StorageError):
        log.create_topic("more", ROWS)
    for name in ("commit", "attempt"):
        (one,) = traced.spans(name)
        assert one.status.status_code is StatusCode.ERROR
        assert attributes(one)["error.type"] == "permission-denied"
        assert "secret" not in one.to_json()
    with pytest.raises(InvalidInputError):
        log.read("orders", isolation="read_committed", where="n >")
    (plan,) = traced.spans("plan")
    assert plan.status.status_code is StatusCode.ERROR
    failed = [point for point in traced.points(DURATION) if "error.type" in point.attributes]
    assert {point.attributes["messaging.operation.name"] for point in failed} == {"commit", "attempt", "plan"}


def test_a_read_that_is_given_up_ends_its_span(traced: Traced) -> None:
    log = written(MemoryStore())
    reader = log.read("orders")
    assert traced.spans("read") == []
    assert reader.read_next_batch().num_rows == 2
    del reader
    gc.collect()
    (one,) = traced.spans("read")
    assert attributes(one)["messaging.batch.message_count"] == 2


def test_durations_are_measured_for_each_operation(traced: Traced) -> None:
    log = written(MemoryStore())
    log.read("orders").read_all()
    points = {point.attributes["messaging.operation.name"]: point for point in traced.points(DURATION)}
    assert points.keys() == {"open", "commit", "attempt", "plan", "read"}
    assert points["commit"].count == len(traced.spans("commit"))
    assert all(point.sum >= 0 for point in points.values())


def test_names_are_those_of_the_conventions() -> None:
    known = {value for name, value in vars(messaging_attributes).items() if name.startswith("MESSAGING_")}
    used = {*ATTRIBUTES.values(), "messaging.system", "messaging.operation.name", "messaging.operation.type"}
    assert {name for name in used if name.startswith("messaging.")} <= known
    others = {process_attributes.PROCESS_EXIT_CODE}
    assert all(name.startswith(("messaging.", "txnlog.")) for name in used - others)
    assert error_attributes.ERROR_TYPE == "error.type"
    assert messaging_metrics.MESSAGING_CLIENT_OPERATION_DURATION == DURATION
    operations = {one.value for one in messaging_attributes.MessagingOperationTypeValues}
    assert {"send", "receive"} <= operations


def test_the_page_lists_the_spans() -> None:
    (table,) = tables(
        section((ROOT / "docs" / "operate.md").read_text(encoding="utf-8"), "### OpenTelemetry")
    )
    assert {codes(row[0])[0]: row[1] for row in table.rows} == {
        name: kind.name.lower() for name, kind in SPANS.items()
    }


def test_off_again_nothing_is_traced(traced: Traced) -> None:
    uninstrument()
    written(MemoryStore())
    assert traced.exporter.get_finished_spans() == ()


def test_while_it_is_off_nothing_of_it_is_imported_and_attributes_are_not_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from txnlog import Producer, TxnLog\n"
        f"log = TxnLog.create({str(tmp_path / 'log')!r})\n"
        "log.create_topic('t', pa.schema([('n', pa.int64())]))\n"
        "with Producer(log) as producer:\n    producer.send('t', [{'n': 1}])\n"
        "assert log.read('t').read_all().num_rows == 1\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry', 'txnlog.otel'))]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def computed(*_: object) -> None:
        raise AssertionError("attributes of a span that is not made")

    monkeypatch.setattr(committers, "tell", computed)
    written(MemoryStore())


def test_measures_of_a_log_are_metrics_with_the_same_values() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    log = written(MemoryStore(name="observed"))
    observe(log, provider)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    expected: dict[str, list[tuple[dict[str, str], float]]] = {}
    for sample in log.metrics().samples():
        name = METRICS[sample.name].name.removesuffix("_total") + sample.suffix
        if "seconds" in name:
            name = name.replace("_seconds", "")
        expected.setdefault(name.replace("_", "."), []).append((dict(sample.labels), sample.value))
    assert found.keys() == expected.keys()
    still = {name for name in expected if "commit.wait" not in name and "requests" not in name}
    for name in still:
        measured: Any = found[name].data.data_points
        points = [(dict(point.attributes), point.value) for point in measured]
        assert sorted(points, key=str) == sorted(expected[name], key=str), name
    assert found["txnlog.partition.bytes"].unit == "By"
    assert found["txnlog.commit.wait.sum"].unit == "s"
    del log
    gc.collect()
    after = reader.get_metrics_data()
    assert after is None or not [
        one for one in after.resource_metrics if any(s.metrics for s in one.scope_metrics)
    ]
    provider.shutdown()


def test_only_an_open_log_is_observed() -> None:
    with pytest.raises(InvalidInputError):
        observe("s3://bucket/log")  # type: ignore[arg-type]
