"""A Spark driver in a process of its own, there to be killed: ``python -m tests.chaos.driver <job.json>``.

It runs one streaming query, and says in files of its control folder who it is, how far it is, and how it
ended.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import os
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.chaos import jobs
from tests.chaos.faults import DRIVER_FILE, read_whole, wait_until, write_whole
from tests.chaos.jobs import Job
from tests.chaos.origin import INPUT_DDL, TOPIC, TOPIC_DDL, with_origin
from tests.chaos.source import BROKEN, CONTROL, ChaosSource
from tests.jvm import java_options
from txnformat.persistent import replace

CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "tests.chaos.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",  # so that a task's rows come in several batches
    "spark.sql.files.maxPartitionBytes": "1024",  # and a file's rows in several tasks
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.streaming.minBatchesToRetain": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.task.maxFailures": "1000",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.stage.maxConsecutiveAttempts": "1000",
    "spark.executor.instances": "2",
}
"""Of every driver; a job's own go before them."""


LEAN = Path(__file__).parent / "lean"
"""Comes first on the path of the Pythons that Spark starts: they find no pandas, which none of these jobs
needs there."""


def session(job: Job) -> SparkSession:
    """Start Spark."""
    builder = SparkSession.builder.master(job.master).appName("txnlog-chaos")
    here = str(Path(job.control))
    places = {"spark.local.dir": f"{here}/local", "spark.sql.warehouse.dir": f"{here}/warehouse"}
    java = dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), java_options())
    for name, value in {**CONF, **java, **places, **job.conf}.items():
        builder = builder.config(name, value)
    os.environ["PYTHONPATH"] = f"{LEAN}:{os.environ['PYTHONPATH']}"
    spark = builder.getOrCreate()
    spark.dataSource.register(ChaosSource)
    return spark


def start(spark: SparkSession, job: Job) -> StreamingQuery:
    """Start the query."""
    own = {CONTROL: job.control, **({} if job.broken is None else {BROKEN: job.broken})}
    if job.flow is None:
        rows = _rows_of_files(spark, job)
        options = {"topic": TOPIC, **job.options, **own}
    else:
        rows = _named(job.flow)(spark, job, own)
        options = {**job.options, **own}

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        versions = {"txnAppId": "chaos", "txnVersion": str(batch_id)}
        frame.write.format("txnlog").options(**versions, **options).mode("append").save(job.log)

    writer = rows.writeStream.outputMode(job.output_mode).option("checkpointLocation", job.checkpoint)
    for_each = write_batch if job.for_each_batch else _named(job.for_each)(job) if job.for_each else None
    if for_each is not None:
        writer = writer.foreachBatch(for_each)
    else:
        writer = writer.format("txnlog").options(**options)
    writer = (
        writer.trigger(availableNow=True) if job.available_now else writer.trigger(processingTime=job.trigger)
    )
    return writer.start(job.log) if for_each is None else writer.start()


def _named(name: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, own = name.partition(":")
    return getattr(importlib.import_module(module), own)


def _rows_of_files(spark: SparkSession, job: Job) -> DataFrame:
    rows = (
        spark.readStream.schema(INPUT_DDL)
        .option("maxFilesPerTrigger", job.files_per_trigger)
        .options(**job.read_options)
        .json(job.input)
    )
    if job.shuffle:
        rows = rows.repartition(job.shuffle, "key")
    return rows.mapInArrow(partial(with_origin, job.control), TOPIC_DDL)


def finish(query: StreamingQuery, job: Job) -> None:
    """Let the query run for as long as the job says; raise what it fails with."""
    if job.available_now:
        query.awaitTermination()
        return
    control = Path(job.control)
    while not query.awaitTermination(1):  # seconds; the file is looked for meanwhile
        if (control / jobs.STOP_FILE).exists():
            query.stop()
        elif (control / jobs.FINISH_FILE).exists():
            query.processAllAvailable()
            query.stop()


def _said(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}"


def main(path: str) -> int:
    """Do the job of a file."""
    job = Job(**json.loads(Path(path).read_text()))
    control = Path(job.control)
    spark = session(job)
    jvm: Any = spark.sparkContext._gateway
    write_whole(control / DRIVER_FILE, {"python": os.getpid(), "jvm": jvm.proc.pid})
    if job.waits:
        write_whole(control / jobs.READY_FILE, {})
        change = wait_until(
            lambda: read_whole(control / jobs.BEGIN_FILE), "the query to be wanted", seconds=3_600
        )
        job = replace(job, **change)
    result: dict[str, Any] = {"job": asdict(job), "error": None, "progress": []}
    try:
        for restart in itertools.count(1):
            query = start(spark, job)
            write_whole(control / jobs.STARTED_FILE, {"query": str(query.id), "run": str(query.runId)})
            with contextlib.suppress(StreamingQueryException):  # the query says it itself
                finish(query, job)
            result["error"] = _said(query.exception())
            result["progress"] += [json.loads(one.json) for one in query.recentProgress]
            if result["error"] is None or restart > job.restarts or (control / jobs.FINISH_FILE).exists():
                break
            write_whole(control / jobs.FAILURE_FILES.format(restart), result["error"])
    except Exception as error:  # noqa: BLE001  # whatever it is, the test is told
        result["error"] = _said(error)
    write_whole(control / jobs.RESULT_FILE, result)
    spark.stop()
    return 0 if result["error"] is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
