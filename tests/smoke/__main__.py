"""Tries every feature with the pyspark of this interpreter: ``python -m tests.smoke classic|connect``.

Prints one JSON object: versions, and for each feature "yes" or what went wrong. The source is registered by
nobody: Spark has to find it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.smoke.features import FEATURES, OFFERS, Place
from txnformat.log import TxnLog
from txnlog_testing.temporary import own_temporary_directory

__all__: list[str] = []


def session(kind: str, folder: Path) -> Any:
    """Return a session of a kind. ``remote("local[2]")`` starts a Connect server and a client of it."""
    from pyspark.sql import SparkSession

    if kind == "classic":
        builder = SparkSession.builder.master("local[2]")
    else:
        builder = SparkSession.builder.remote("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def attempt(spark: Any, run: Any, folder: Path) -> str:
    """Return "yes", or the error in one line."""
    folder.mkdir(parents=True)
    path = str(folder / "log")
    try:
        with TxnLog.create(path) as log:
            run(Place(spark, log, path, folder))
    except Exception as error:  # noqa: BLE001  # whatever it is: it is the result
        lines = [
            line.strip() for line in str(error).partition("JVM stacktrace")[0].splitlines() if line.strip()
        ]
        told = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)] or lines[:1]
        chosen = next((line for line in lines if "TXNLOG_" in line), told[-1] if told else "")
        return re.sub(r" \(/[^)]*\)", "", f"{type(error).__name__}: {chosen}")[:300]  # paths of a machine
    return "yes"


def offers() -> dict[str, str]:
    """Return which classes this pyspark has."""
    found = {}
    for what, name in OFFERS.items():
        modules = ("pyspark.sql.datasource", "pyspark.sql.streaming.datasource")
        there = any(_has(module, name) for module in modules)
        found[what] = "yes" if there else "no"
    return found


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def main(kind: str) -> None:
    """Try everything and print the result."""
    import pandas
    import pyarrow
    import pyspark

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="txnlog-smoke-") as name:
        spark = session(kind, Path(name))
        try:
            features = {
                feature.name: attempt(spark, feature.run, Path(name) / str(number))
                for number, feature in enumerate(FEATURES)
            }
        finally:
            spark.stop()
    versions = {"python": platform.python_version(), "pyspark": pyspark.__version__}
    versions |= {"pyarrow": pyarrow.__version__, "pandas": pandas.__version__}
    json.dump({"versions": versions, "features": features, "offers": offers()}, sys.stdout)


if __name__ == "__main__":
    with own_temporary_directory():
        main(sys.argv[1])
