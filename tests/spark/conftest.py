"""One Spark session for all Spark tests, in the shape that `make test` and a laptop share; and logs to read."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from txnformat.log import TxnLog

ROOT = Path(__file__).resolve().parents[2]

Read = Callable[..., DataFrame]


def find_java() -> str | None:
    """Return the Java that Spark will start."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two slots, and the source registered."""
    if find_java() is None:
        pytest.fail(
            "Spark needs Java 17 or later and there is none: `make test` finds or installs it", pytrace=False
        )
    from spark_datasource.datasource import register

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
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
            .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={folder}")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "Asia/Kolkata")  # neither UTC nor whole hours
            .config("spark.log.level", "OFF")
            .getOrCreate()
        )
        register(session)
        yield session
        session.stop()


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
def read(spark: SparkSession, path: str) -> Read:
    """Load a topic of the log: ``read("numbers", isolation="read_uncommitted")``."""

    def load(topic: str, *, schema: Any = None, **options: Any) -> DataFrame:
        reader = spark.read.format("txnlog").option("topic", topic).options(**options)
        return (reader.schema(schema) if schema is not None else reader).load(path)

    return load
