"""``opentelemetry-instrument``: commands and programs are traced without a line of code, and what they trace
arrives however they end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from importlib.metadata import entry_points
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.telemetry.exporting import Exported, instrumented, spans_in
from txnformat.spans import flush, here, span
from txnlog import Producer, TxnLog
from txnlog.instrumentor import TxnLogInstrumentor
from txnlog.otel import DURATION, instrument, uninstrument

ROWS = pa.schema([("n", pa.int64())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log with a topic of one record."""
    log = TxnLog.create(tmp_path / "log")
    log.create_topic("orders", ROWS)
    with Producer(log) as producer:
        producer.send("orders", [{"n": 1}])
    log.close()
    return tmp_path / "log"


def command(folder: Path, root: Path, *arguments: str, **beside: str) -> subprocess.CompletedProcess[str]:
    start, environment = instrumented(folder, "txnlog")
    return subprocess.run(
        [*start, *arguments],
        env={**environment, "TXNLOG_ROOT": str(root), **beside},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def top(folder: Path) -> Exported:
    """Return the one span of a command."""
    (found,) = (one for one in spans_in(folder) if one.name.split(" ")[0] == "txnlog")
    return found


def test_a_command_is_a_span_and_its_work_is_within(tmp_path: Path, root: Path) -> None:
    done = command(tmp_path, root, "compact", "orders", "--min-lag-ms", "0")
    assert done.returncode == 0, done.stderr
    whole = top(tmp_path)
    assert (whole.name, whole.kind, whole.parent_id, whole.is_error) == (
        "txnlog compact",
        "INTERNAL",
        None,
        False,
    )
    assert whole.attributes["txnlog.command"] == "compact"
    assert whole.attributes["process.exit.code"] == 0
    others = [one for one in spans_in(tmp_path) if one is not whole and one.span_id != whole.span_id]
    assert {one.name for one in others} >= {"open", "compact orders"}
    assert {one.trace_id for one in others} == {whole.trace_id}


def test_a_command_that_fails_says_so_by_kind_and_tells_no_argument(tmp_path: Path, root: Path) -> None:
    done = command(tmp_path, root, "groups", "describe", "a-secret")
    assert done.returncode == 3
    whole = top(tmp_path)
    assert (whole.name, whole.is_error) == ("txnlog groups describe", True)
    assert whole.attributes["process.exit.code"] == 3
    assert whole.attributes["error.type"] == "unknown-group"
    assert "a-secret" not in (tmp_path / "spans").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "name", "code", "error"),
    [
        (("topics", "--help"), "txnlog topics", 0, None),
        (("a-secret",), "txnlog", 2, "UsageError"),
        (("topics", "--a-secret"), "txnlog topics", 2, "NoSuchOption"),
    ],
)
def test_what_is_no_command_has_no_name(
    tmp_path: Path, root: Path, arguments: tuple[str, ...], name: str, code: int, error: str | None
) -> None:
    assert command(tmp_path, root, *arguments).returncode == code
    whole = top(tmp_path)
    assert (whole.name, whole.attributes["process.exit.code"]) == (name, code)
    assert whole.attributes.get("error.type") == error


@pytest.mark.parametrize(("ending", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_interrupted_is_exported(
    tmp_path: Path, root: Path, ending: signal.Signals, code: int
) -> None:
    start, environment = instrumented(tmp_path, "txnlog")
    with subprocess.Popen(
        [*start, "produce", "orders"],
        env={**environment, "TXNLOG_ROOT": str(root)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as produce:
        assert produce.stdin is not None
        # More than one piece and more than a pipe holds: when this returns, it is reading.
        produce.stdin.write(b'{"n":1}\n' * 50_000)
        produce.stdin.flush()
        produce.send_signal(ending)
        _, told = produce.communicate(timeout=300)
    assert produce.returncode == code, told
    whole = top(tmp_path)
    assert (whole.name, whole.is_error) == ("txnlog produce", True)
    assert whole.attributes["process.exit.code"] == code
    assert whole.attributes["error.type"] == "Interrupted"


def test_a_command_belongs_to_the_span_that_has_started_it(tmp_path: Path, root: Path) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    done = command(tmp_path, root, "topics", TRACEPARENT=f"00-{trace_id}-{span_id}-01")
    assert done.returncode == 0, done.stderr
    whole = top(tmp_path)
    assert (whole.trace_id, whole.parent_id) == (f"0x{trace_id}", f"0x{span_id}")
    done = command(tmp_path / "other", root, "topics", TRACEPARENT="nonsense")
    assert (done.returncode, top(tmp_path / "other").parent_id) == (0, None)


def test_a_program_is_traced_without_a_line_of_code(tmp_path: Path, root: Path) -> None:
    start, environment = instrumented(tmp_path, "python")
    code = (
        "from txnlog import Producer, TxnLog\n"
        f"log = TxnLog.open({str(root)!r})\n"
        "with Producer(log) as producer:\n    producer.send('orders', [{'n': 2}])\n"
        "assert log.read('orders').read_all().num_rows == 2\n"
    )
    done = subprocess.run(
        [*start, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {one.name for one in spans_in(tmp_path)} >= {"open", "commit orders", "attempt", "read orders"}


def test_a_program_without_logs_is_instrumented_and_imports_nothing_heavy(tmp_path: Path) -> None:
    """Threads of pyarrow would run before Spark's daemon forks its workers."""
    start, environment = instrumented(tmp_path, "python")
    code = (
        "import sys\nfrom txnformat import spans\nassert spans._tracer is not None\n"
        "print(sorted({'pyarrow', 'numpy', 'msgspec', 'click', 'txnformat.log'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [*start, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_instrumentation_can_be_disabled_by_name(tmp_path: Path, root: Path) -> None:
    done = command(tmp_path, root, "topics", OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="txnlog")
    assert done.returncode == 0, done.stderr
    assert spans_in(tmp_path) == []


def test_a_command_that_nothing_traces_imports_nothing_of_it(root: Path) -> None:
    code = (
        "import sys\nfrom txnlog.cli.app import run\nfrom txnformat.spans import flush\n"
        f"code = run(['compact', 'orders', '--root', {str(root)!r}])\nflush(1, is_last=True)\n"
        "found = [name for name in sys.modules if name.startswith(('opentelemetry', 'txnlog.otel', "
        "'txnlog.instr'))]\n"
        "sys.exit(code or len(found))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_instrumentor_is_installed_and_takes_providers() -> None:
    (found,) = entry_points(group="opentelemetry_instrumentor", name="txnlog")
    assert found.load() is TxnLogInstrumentor
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = TxnLogInstrumentor()
    instrumentor.instrument(tracer_provider=tracers)
    try:
        assert instrumentor.is_instrumented_by_opentelemetry
        with span("seal"):
            pass
    finally:
        instrumentor.uninstrument()
    with span("seal"):
        pass
    assert [one.name for one in exporter.get_finished_spans()] == ["seal"]


def test_a_span_of_another_process_is_the_parent_where_there_is_none_here() -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    assert here() is None
    instrument(tracers)
    try:
        assert here() is None
        with span("plan"):
            there = here()
        with span("read", parent=there):
            pass
        with span("compact"), span("seal", parent=there):
            pass
    finally:
        uninstrument()
    assert here() is None
    plan, read, seal, compact = exporter.get_finished_spans()
    assert _parent(read) == _id(plan)
    assert _parent(seal) == _id(compact)
    assert there is not None
    assert there.startswith(f"00-{plan.context.trace_id:032x}-{_id(plan):016x}-")


def _id(one: ReadableSpan) -> int:
    assert one.context is not None
    return int(one.context.span_id)


def _parent(one: ReadableSpan) -> int | None:
    return None if one.parent is None else one.parent.span_id


class Hanging(SpanProcessor):
    """Has an exporter whose collector does not answer until it is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = threading.Event()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        self.asked += 1
        return self.released.wait(300)


def test_durations_are_handed_over_at_the_end_of_a_process_only() -> None:
    told = StringIO()
    exporter = ConsoleMetricExporter(out=told)
    meters = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)])
    instrument(TracerProvider(), meters)
    try:
        with span("seal"):
            pass
        flush(300)
        assert DURATION not in told.getvalue()
        flush(300, is_last=True)
        assert DURATION in told.getvalue()
    finally:
        uninstrument()
        meters.shutdown()


def test_a_collector_that_does_not_answer_holds_up_one_call() -> None:
    hanging = Hanging()
    tracers = TracerProvider()
    tracers.add_span_processor(hanging)
    instrument(tracers)
    try:
        flush(10)
        assert hanging.asked == 0  # no span has ended
        for _ in range(3):
            with span("seal"):
                pass
            flush(0.01)
        assert hanging.asked == 1
    finally:
        hanging.released.set()
        uninstrument()
