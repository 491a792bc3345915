"""One Spark for all Spark tests, in the shape that `make test` and a laptop share; and logs to read.

Its sessions are of two kinds, classic and Connect, over one JVM, which serves Connect beside: a test with
``BOTH_SESSIONS`` runs in both, every other in a classic one.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.jvm import java_options, spark_home
from tests.spark.case_stream import Stream, open_stream
from tests.unit.spark_datasource.stream_steps import Cluster
from txnformat.log import TxnLog

ROOT = Path(__file__).resolve().parents[2]

Read = Callable[..., DataFrame]
Numbers = Callable[..., DataFrame]


def find_java() -> str | None:
    """Return the Java that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


@pytest.fixture(scope="session")
def classic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two slots, the source registered, and a Connect server."""
    if find_java() is None:
        pytest.fail(
            "Spark needs Java 17 or later and there is none: `make test` finds or installs it", pytrace=False
        )
    from spark_datasource.datasource import register

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_HOME", str(spark_home(folder)))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", str(ROOT))  # workers import the checkout, installed or not
        session = (
            SparkSession.builder.master("local[2]")
            .appName("txnlog-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
            .config("spark.local.dir", str(folder / "local"))
            .config("spark.driver.extraJavaOptions", f"{java_options()} -Dderby.system.home={folder}")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "Asia/Kolkata")  # neither UTC nor whole hours
            .config("spark.log.level", "OFF")
            .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", "0")
            .getOrCreate()
        )
        register(session)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def connect(classic: SparkSession) -> Iterator[Any]:
    """A Connect session; the source is not registered there: Spark has to find it."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # The server's own object says which port it got: the ready-made builder wants one that is fixed.
    service = getattr(classic._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    session = ConnectSession.builder.remote(f"sc://127.0.0.1:{port}").create()
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    yield session
    session.stop()


@pytest.fixture
def spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The session of a test."""
    kind = getattr(request, "param", "classic")
    session = request.getfixturevalue(kind)
    if kind == "connect":
        monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # pyspark.sql.functions build Connect's columns
    return session


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
def stream(request: pytest.FixtureRequest, classic: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """A log, input, a checkpoint and the oracle of the fault cases; a parameter says what the topic's keys
    are."""
    with open_stream(classic, tmp_path, getattr(request, "param", ["key"])) as stream:
        yield stream


@pytest.fixture
def read(spark: SparkSession, path: str) -> Read:
    """Load a topic of the log: ``read("numbers", isolation="read_uncommitted")``."""

    def load(topic: str, *, schema: Any = None, **options: Any) -> DataFrame:
        reader = spark.read.format("txnlog").option("topic", topic).options(**options)
        frame = (reader.schema(schema) if schema is not None else reader).load(path)
        if schema is None:
            frame.schema  # noqa: B018  # where load() of Connect asks nothing, this pins and raises
        return frame

    return load


@pytest.fixture
def numbers(spark: SparkSession) -> Numbers:
    """Make rows n = start (inclusive) … end (exclusive) in several tasks."""

    def make(start: int, end: int, *more: str, tasks: int = 2) -> DataFrame:
        return spark.range(start, end, numPartitions=tasks).selectExpr("id AS n", *more)

    return make


@pytest.fixture
def topics(log: TxnLog) -> None:
    """Topics with different schemas: numbers of three partitions, texts of one."""
    log.create_topic("numbers", StructType().add("n", "long"), partitions=3)
    log.create_topic("texts", StructType().add("n", "long").add("text", "string"))
