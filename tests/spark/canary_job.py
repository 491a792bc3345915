"""A Spark job whose every credential is a canary, in a process of its own: ``python -m tests.spark.canary_job
JSON``.

It gives them in every way that there is, reads, writes, streams, explains and fails, at the most talkative
log levels, and leaves everything that could have them in its folder. :mod:`tests.spark.test_spark_secrets`
searches there.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import sys
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_datasource.datasource import register
from tests.jvm import java_options

__all__: list[str] = []

NAMES = {"access.key": "key", "secret.key": "secret", "session.token": "token"}
"""Names that Spark hides by itself."""


def main(text: str) -> None:
    """Run the job that JSON describes: folder, url, endpoint, and the canaries of each way."""
    job = json.loads(text)
    folder, ways = Path(job["folder"]), job["canaries"]
    logging.basicConfig(filename=folder / "python.log", level=logging.DEBUG)
    logging.getLogger("py4j").setLevel(
        logging.INFO
    )  # as pyspark's own shell has it: its DEBUG lines are every call
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", str(folder / "events"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.extraJavaOptions", java_options())
        .config("spark.hadoop.fs.s3a.bucket.launched.access.key", ways["launch"]["key"])
        .config("spark.hadoop.fs.s3a.bucket.launched.secret.key", ways["launch"]["secret"])
        .config("spark.hadoop.fs.s3a.bucket.launched.session.token", ways["launch"]["token"])
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ALL")
    register(session)
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        _work(session, job, ways)
    (folder / "shown.txt").write_text(shown.getvalue())
    _listen(session, folder)
    _processes(folder)
    shutil.copytree(folder / "local", folder / "local-then")
    session.stop()


def _options(job: dict[str, Any], way: dict[str, str]) -> dict[str, str]:
    return {
        **{f"storage.{name}": value for name, value in way.items()},
        "storage.endpoint_url": job["endpoint"],
        "storage.region": "us-east-1",
        "storage.addressing_style": "path",
    }


def _work(session: SparkSession, job: dict[str, Any], ways: dict[str, dict[str, str]]) -> None:
    url, folder = job["url"], Path(job["folder"])
    options = _options(job, ways["options"])

    def read(given: dict[str, str]) -> Any:
        return session.read.format("txnlog").option("topic", "t").options(**given).load(url)

    frame = session.range(5).selectExpr("id AS n")
    frame.write.format("txnlog").mode("append").option("topic", "t").options(**options).save(url)
    loaded = read(options)
    loaded.explain(extended=True)
    print(loaded.count(), loaded._jdf.queryExecution().toString(), repr(loaded))
    stream = session.readStream.format("txnlog").option("topic", "t").options(**options).load(url)
    query = (
        stream.writeStream.format("txnlog")
        .option("topic", "u")
        .options(**options)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(url)
    )
    query.awaitTermination()
    print(query.lastProgress, query.id)
    query._jsq.explain(True)  # to the JVM's own stdout
    view = {**_options(job, ways["view"]), "topic": "t", "path": url}
    listed = ", ".join(f"'{name}' '{value}'" for name, value in view.items())
    command = f"CREATE OR REPLACE TEMPORARY VIEW v USING txnlog OPTIONS ({listed})"
    session.sql(f"EXPLAIN EXTENDED {command}").show(truncate=False)
    session.sql(command)
    session.sql("EXPLAIN EXTENDED SELECT count(*) FROM v").show(truncate=False)
    print(session.sql("SELECT count(*) FROM v").first())
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    for name, value in {
        "access.key": ways["hadoop"]["key"],
        "secret.key": ways["hadoop"]["secret"],
        "session.token": ways["hadoop"]["token"],
        "endpoint": job["endpoint"],
        "endpoint.region": "us-east-1",
        "connection.ssl.enabled": "false",
        "path.style.access": "true",
    }.items():
        hadoop.set(f"fs.s3a.{name}", value)
    register(session)
    print(read({}).count())
    for name in list(dict(session.conf.getAll)):
        if name.startswith("spark.hadoop.fs.s3a"):
            session.conf.unset(name)
    for name in ("access.key", "secret.key", "session.token"):
        hadoop.unset(f"fs.s3a.{name}")
    register(session)
    plain = {
        name: value
        for name, value in options.items()
        if name.rpartition(".")[2] not in ("key", "secret", "token")
    }
    print(read(plain).count())  # the environment's
    other = session.newSession()  # not registered
    view = {**_options(job, {}), "topic": "t", "path": url}
    view |= {f"storage.{name}": ways["names"][part] for name, part in NAMES.items()}
    listed = ", ".join(f"'{name}' '{value}'" for name, value in view.items())
    command = f"CREATE OR REPLACE TEMPORARY VIEW w USING txnlog OPTIONS ({listed})"
    other.sql(f"EXPLAIN EXTENDED {command}").show(truncate=False)
    other.sql(command)
    print(other.sql("SELECT count(*) FROM w").first())
    wrong: list[Callable[[], Any]] = [
        lambda: read(
            {**options, "storage.endpoint_url": "http://127.0.0.1:1", "storage.connect_timeout_s": "1"}
        ).count(),
        lambda: read({**options, "storage.secert": "x"}).count(),
        lambda: read({**options, "storage.endpoint_url": f"http://u:{ways['options']['secret']}@h"}).count(),
        lambda: session.read.format("txnlog").option("topic", "none").options(**options).load(url).count(),
        lambda: (
            session.read.format("txnlog")
            .option("topic", "t")
            .load(f"s3://{ways['url']['key']}:{ways['url']['secret']}@b/x")
        ),
        lambda: read({**options, "storage.token": ""}).selectExpr("nothing").count(),
        lambda: (
            frame.selectExpr("n AS other")
            .write.format("txnlog")
            .mode("append")
            .option("topic", "t")
            .options(**options)
            .save(url)
        ),
    ]
    for call in wrong:
        try:
            call()
        except Exception:  # noqa: BLE001  # whatever Spark makes of it is looked at
            print("FAILED", traceback.format_exc())
        else:
            print("PASSED")


def _listen(session: SparkSession, folder: Path) -> None:
    """Keep what the UI's REST API says."""
    base = f"{session.sparkContext.uiWebUrl}/api/v1/applications/{session.sparkContext.applicationId}"
    for number, path in enumerate(
        [
            "environment",
            "jobs",
            "stages?details=true",
            "executors",
            "sql?details=true&planDescription=true&length=1000",
        ]
    ):
        with urllib.request.urlopen(f"{base}/{path}") as answer:  # our own
            (folder / f"ui-{number}.json").write_bytes(answer.read())


def _processes(folder: Path) -> None:
    """Keep the command lines of this process and of all that it started, as ps shows them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (
                    os.getpgid(int(entry.name)) == os.getpgid(0)
                    or str(folder).encode() in (entry / "cmdline").read_bytes()
                ):
                    found.append((entry / "cmdline").read_bytes())
    (folder / "ps.txt").write_bytes(b"\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read())
