"""The cost of telemetry: processor time of a commit and of a read of one record, off and on.

``python -m bench.lifecycle.telemetry``.

On a store in memory, so that nothing else takes time; median of rounds that take turns. On: the SDK of
OpenTelemetry with a processor that keeps no span, and a histogram.
"""

from __future__ import annotations

import statistics
import time
import timeit

import pyarrow as pa
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from txnformat.spans import span
from txnformat.store.memory import MemoryStore
from txnlog import Producer, TxnLog
from txnlog.otel import instrument, uninstrument

__all__ = ["main"]

ROUNDS = 15
CALLS = 200
SCHEMA = pa.schema([("n", pa.int64())])


def _commits() -> float:
    """Return microseconds of the processor for a transaction of one record, all threads of this process
    together.
    """
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", SCHEMA)
    table = pa.table({"n": [1]}, schema=SCHEMA)
    with Producer(log, "p") as producer:
        began = time.process_time()
        for _ in range(CALLS):
            with producer.transaction() as transaction:
                transaction.send("t", table)
        return (time.process_time() - began) / CALLS * 1e6


def _reads() -> float:
    log = TxnLog.create(MemoryStore())
    log.create_topic("t", SCHEMA)
    with Producer(log) as producer:
        producer.send("t", [{"n": 1}])
    began = time.process_time()
    for _ in range(CALLS):
        log.read("t").read_all()
    return (time.process_time() - began) / CALLS * 1e6


def main() -> None:
    """Print the table."""
    tracers = TracerProvider()
    tracers.add_span_processor(SpanProcessor())
    meters = MeterProvider([InMemoryMetricReader()])
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for state in ("off", "on"):
            if state == "on":
                instrument(tracers, meters)
            try:
                for name, measure in (("commit", _commits), ("read", _reads)):
                    found.setdefault((name, state), []).append(measure())
            finally:
                uninstrument()
    number = 1_000_000
    empty = timeit.timeit("with span('seal', log='x'): pass", globals={"span": span}, number=number)
    print(f"a span while off: {empty / number * 1e9:.0f} ns")
    for (name, state), values in found.items():
        print(f"{name} {state}: {statistics.median(values):.0f} us (fastest {min(values):.0f})")


if __name__ == "__main__":
    main()
