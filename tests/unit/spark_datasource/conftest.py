"""Logs, Spark's processes without Spark, and readers as queries have them: no test here starts a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_datasource.stream.reader import TxnLogStreamReader
from tests.integration.clients.failing import NUMBERS
from tests.unit.spark_datasource.reading import StillClock, make_reader, schema_of
from tests.unit.spark_datasource.stream_steps import Cluster, Query
from txnformat.log import TxnLog
from txnformat.store.memory import MemoryStore
from txnlog_testing.stores.counting import CountingStore
from txnlog_testing.stores.latency import FarStore

Open = Callable[..., TxnLogStreamReader]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TxnLog]:
    """An empty log on disk."""
    with TxnLog.create(tmp_path / "log") as log:
        yield log


@pytest.fixture
def path(log: TxnLog, tmp_path: Path) -> str:
    """Where that log is."""
    return str(tmp_path / "log")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Spark's processes, without Spark."""
    return Cluster(monkeypatch)


@pytest.fixture
def query(cluster: Cluster, path: str, log: TxnLog) -> Query:
    """A query to topic ``t``, which does not exist yet."""
    return Query(cluster, path, topic="t")


@pytest.fixture
def memory_log() -> TxnLog:
    """Topics t (2 partitions) and u; each request is said to be a round trip."""
    log = TxnLog.create(CountingStore(FarStore(MemoryStore())))
    log.create_topic("t", NUMBERS, partitions=2)
    log.create_topic("u", NUMBERS)
    return log


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def start(memory_log: TxnLog, clock: StillClock) -> Open:
    """Return a reader as a query that is started has it."""

    def opened(**options: object) -> TxnLogStreamReader:
        given = {"topic": "t", "columns": "n", **options}
        if "subscribePattern" in given:
            del given["topic"]
        schema = schema_of(memory_log, "t", str(given["columns"]))
        return make_reader(memory_log.store, schema, clock, **given)

    return opened
