"""OpenTelemetry: spans and durations of what logs do in this process, and the measures of a log as metrics.

Nothing of it happens, and nothing is imported, before :func:`instrument` or :func:`observe` is called, or
``opentelemetry-instrument`` calls the first (:mod:`txnlog.instrumentor`). ``pip install 'txnlog[otel]'``;
exporters are the program's own.

The module is light: what instruments a program imports it at the beginning of every process, also where Spark
forks its workers.

Names follow OpenTelemetry's conventions for messaging
(https://opentelemetry.io/docs/specs/semconv/messaging/) where these have one: ``messaging.system`` is
``txnlog``, a commit of records is a ``send``, a read a ``receive``; all else begins with ``txnlog.``.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from txnformat.errors import needing

with needing("opentelemetry", "txnlog.otel", extra="otel"):
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import CallbackOptions, Histogram, MeterProvider, Observation
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from txnformat.errors import TxnLogError
from txnformat.spans import set_tracer
from txnformat.version import __version__

if TYPE_CHECKING:
    from txnformat.admin.prometheus import Metric, Sample
    from txnformat.log import TxnLog

__all__ = ["instrument", "observe", "uninstrument"]

T = TypeVar("T")

SYSTEM = "txnlog"
SPANS: Mapping[str, SpanKind] = {
    "open": SpanKind.CLIENT,
    "commit": SpanKind.PRODUCER,
    "attempt": SpanKind.CLIENT,
    "plan": SpanKind.INTERNAL,
    "read": SpanKind.CONSUMER,
    "seal": SpanKind.INTERNAL,
    "compact": SpanKind.INTERNAL,
    "upload": SpanKind.CLIENT,
    "txnlog": SpanKind.INTERNAL,
}
"""Every span, and its kind."""

DESTINATION = "messaging.destination.name"
ATTRIBUTES: Mapping[str, str] = {
    "log": "txnlog.log",
    "entry": "txnlog.entry",
    "topic": DESTINATION,
    "records": "messaging.batch.message_count",
    "size": "txnlog.bytes",
    "topics": "txnlog.topics",
    "intents": "txnlog.commit.intents",
    "outcomes": "txnlog.commit.outcomes",
    "outcome": "txnlog.attempt.outcome",
    "seals": "txnlog.seals",
    "partitions": "txnlog.partitions",
    "command": "txnlog.command",
    "exit_code": "process.exit.code",
}
"""Names of attributes here, by those of :mod:`txnformat.spans`."""

DURATION = "messaging.client.operation.duration"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds, as the conventions advise."""


def instrument(
    tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Make spans of what logs do in this process from now on, and measure how long it takes.

    Parameters
    ----------
    tracer_provider : opentelemetry.trace.TracerProvider, optional
        Gets the spans. By default the global one, as it is at each span.
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        Gets the histogram ``messaging.client.operation.duration`` (seconds). By default the global one.

    Notes
    -----
    Calls that wait in one group are committed by one of them: its span has the attempts. Called again, it
    replaces what was set before. Spark's workers are processes of their own, and trace what they are
    instrumented for: ``opentelemetry-instrument`` does it (docs/operate.md).
    """
    meter = metrics.get_meter(SYSTEM, __version__, meter_provider)
    duration = meter.create_histogram(
        DURATION,
        unit="s",
        description="Duration of an operation of a log.",
        explicit_bucket_boundaries_advisory=BUCKETS,
    )
    tracer = trace.get_tracer(SYSTEM, __version__, tracer_provider)
    set_tracer(_Tracer(tracer, duration, tracer_provider, meter_provider))


def uninstrument() -> None:
    """Make no spans any more."""
    set_tracer(None)


class _Tracer:
    """Makes spans of OpenTelemetry."""

    def __init__(
        self,
        tracer: trace.Tracer,
        duration: Histogram,
        tracers: TracerProvider | None,
        meters: MeterProvider | None,
    ) -> None:
        self.tracer = tracer
        self.duration = duration
        self.has_ended = False
        """Whether a span has ended since the last flush."""
        self._tracers = tracers
        self._meters = meters
        self._flushing: threading.Thread | None = None

    def span(self, name: str, attributes: dict[str, Any], *, is_current: bool, parent: str | None) -> _Span:
        return _Span(self, name, attributes, is_current, parent)

    def here(self) -> str | None:
        return _carrier().get(_PARENT)

    @contextlib.contextmanager
    def under(self, parent: str) -> Iterator[None]:
        token = context.attach(_above(parent))
        try:
            yield
        finally:
            context.detach(token)

    def flush(self, seconds: float, *, is_last: bool) -> None:
        # A provider's own flush waits as long as its exporter tries. One that still waits is left alone: a
        # collector that does not answer holds
        # up one call, and not every one.
        if not (is_last or self.has_ended) or (self._flushing is not None and self._flushing.is_alive()):
            return
        self.has_ended = False
        self._flushing = threading.Thread(target=self._flush, args=(is_last,), daemon=True)
        self._flushing.start()
        self._flushing.join(seconds)

    def _flush(self, is_last: bool) -> None:
        providers: list[object] = [self._tracers or trace.get_tracer_provider()]
        if is_last:
            providers.append(self._meters or metrics.get_meter_provider())
        for provider in providers:
            with contextlib.suppress(Exception):  # an exporter's; a provider without one has no such method
                getattr(provider, "force_flush", _nothing)()

    def carried(self, call: Callable[[], T]) -> Callable[[], T]:
        here = contextvars.copy_context()
        return lambda: here.run(call)


_PARENT = "traceparent"
_PROPAGATOR = TraceContextTextMapPropagator()


def _carrier() -> dict[str, str]:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier


def _above(parent: str) -> context.Context:
    """Return the context of a span of another process; of what is none, that of here."""
    return _PROPAGATOR.extract({_PARENT: parent})


def _nothing() -> None: ...


class _Span:
    """One span, and its duration."""

    def __init__(
        self, owner: _Tracer, name: str, attributes: dict[str, Any], is_current: bool, parent: str | None
    ) -> None:
        self._owner = owner
        self._name = name
        self._attributes = attributes
        self._is_current = is_current
        self._parent = parent
        self._error = ""

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        named = _named(self._name, self._attributes)
        above = None
        if self._parent is not None and not trace.get_current_span().get_span_context().is_valid:
            above = _above(self._parent)
        self._span = self._owner.tracer.start_span(
            _title(self._name, named), above, kind=SPANS[self._name], attributes=named
        )
        self._token = context.attach(trace.set_span_in_context(self._span)) if self._is_current else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.failed(error)
        if self._token is not None:
            context.detach(self._token)
        self._span.end()
        self._owner.has_ended = True
        labels = {"messaging.system": SYSTEM, "messaging.operation.name": self._name}
        if self._error:
            labels["error.type"] = self._error
        self._owner.duration.record(time.perf_counter() - self._began, labels)

    def set(self, **attributes: Any) -> None:
        """Add attributes."""
        named = _named(self._name, attributes)
        self._span.set_attributes(named)
        if DESTINATION in named:
            self._span.update_name(_title(self._name, named))

    def failed(self, error: BaseException) -> None:
        """Note an error by its kind; its text may have names that only the log's readers may see."""
        self._error = error.kind if isinstance(error, TxnLogError) else type(error).__name__
        self._span.set_attribute("error.type", self._error)
        self._span.set_status(Status(StatusCode.ERROR, self._error))


def _title(name: str, named: Mapping[str, Any]) -> str:
    """Return the name of a span: the operation, and the topic or the command if it is about one."""
    what = named.get(DESTINATION) or named.get(ATTRIBUTES["command"])
    return f"{name} {what}" if what else name


def _named(name: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the conventions call them."""
    found = {ATTRIBUTES[key]: value for key, value in attributes.items() if value is not None}
    found |= {"messaging.system": SYSTEM, "messaging.operation.name": name}
    topics = attributes.get("topics")
    if topics is not None and len(topics) == 1:  # a name is for one destination
        found[DESTINATION] = topics[0]
    if name == "read":
        found["messaging.operation.type"] = "receive"
    elif topics:
        found["messaging.operation.type"] = "send"
    return found


# --- Metrics of a log ---------------------------------------------------------------------------------------

_UNITS = {"seconds": "s", "bytes": "By"}


def observe(log: TxnLog, meter_provider: MeterProvider | None = None) -> None:
    """Give the measures of a log (``log.metrics()``) to OpenTelemetry, each time that its readers collect.

    Parameters
    ----------
    log : TxnLog
        Is not kept alive by this: once it is gone, there are no measures of it.
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        By default the global one.

    Raises
    ------
    InvalidInputError
        ``log`` is no open log.

    Notes
    -----
    The names are those of ``log.metrics().to_prometheus()`` with dots: ``txnlog.partition.records``
    (docs/operate.md). A collection costs one GET when nothing is new. A summary becomes two counters,
    ``….sum`` and ``….count``. A collection that fails gives nothing, and the next one tries again.
    """
    from txnformat.log import check_log

    check_log(log, "observe")
    _Observed(log).register(metrics.get_meter(SYSTEM, __version__, meter_provider))


class _Observed:
    """The measures of one log; the first instrument of a collection measures for all."""

    def __init__(self, log: TxnLog) -> None:
        from txnformat.admin.metrics import METRICS

        self._log = weakref.ref(log)
        self._metrics = METRICS
        self._first = next(iter(METRICS))
        self._samples: Mapping[tuple[str, str], list[Sample]] = {}

    def register(self, meter: metrics.Meter) -> None:
        """Make an instrument for each metric."""
        for metric in self._metrics.values():
            for suffix in ("_sum", "_count") if metric.type == "summary" else ("",):
                self._make(meter, metric, suffix)

    def _make(self, meter: metrics.Meter, metric: Metric, suffix: str) -> None:
        name = metric.name.removesuffix("_total")
        unit = next((unit for word, unit in _UNITS.items() if name.endswith(word)), "1")
        name = name.removesuffix("_seconds").removesuffix("_bytes") if unit == "s" else name
        make = meter.create_observable_gauge if metric.type == "gauge" else meter.create_observable_counter

        def measured(_: CallbackOptions) -> Iterable[Observation]:
            if metric.name == self._first:
                self._measure()
            for sample in self._samples.get((metric.name, suffix), ()):
                yield Observation(sample.value, dict(sample.labels))

        make(
            (name + suffix).replace("_", "."),
            callbacks=[measured],
            unit="1" if suffix == "_count" else unit,
            description=metric.help,
        )

    def _measure(self) -> None:
        found: dict[tuple[str, str], list[Sample]] = {}
        log = self._log()
        try:
            for sample in () if log is None else log.metrics().samples():
                found.setdefault((sample.name, sample.suffix), []).append(sample)
        finally:  # old measures are not told again
            self._samples = found
