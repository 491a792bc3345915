"""Spark jobs that are killed with kill -9 at every step of a transaction: what they write is there once, in
all topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.transaction_job import RAW, RAW_PARTITIONS, ROWS, VERSIONS, Job
from tests.spark.transactions import version
from txnformat.types import TopicPartition
from txnlog import Producer, TxnLog

ROOT = Path(__file__).resolve().parents[2]
POINTS = [
    "begin/before-entry",
    "begin/after-entry",
    "before-write",
    "after-write",
    "during-write",
    "before-end",
    "commit/before-entry",
    "commit/after-entry",
    "after-commit",
]
Run = Callable[[Job], int]


@pytest.fixture
def run() -> Iterator[Run]:
    """Do a job in a process of its own, and return its exit status."""
    groups: list[int] = []

    def start(job: Job) -> int:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.transaction_job", job.argument()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
            | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
            | {"PYTHONWARNINGS": "ignore"},  # pyspark's, of pandas
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        groups.append(process.pid)
        return process.wait(timeout=300)

    yield start
    for group in groups:  # a JVM ends with its driver, by itself; this is for the day when it does not
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@pytest.fixture
def remote(classic: SparkSession) -> str:
    """The Connect server of the shared JVM."""
    service = getattr(classic._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


def values(log: TxnLog, topic: str, *columns: str) -> list[tuple[int, ...]]:
    if topic not in log.topics():
        return []
    found = log.read(topic, columns=list(columns)).read_all().to_pylist()
    return [tuple(row[column] for column in columns) for row in found]


def check_versions(log: TxnLog) -> int:
    """Check that each version up to the newest is there once in both topics, and nothing else; return how
    many they are."""
    newest = version(log)
    done = 0 if newest is None else newest + 1
    wanted = Counter((number, row) for number in range(done) for row in range(ROWS))
    for topic in ("first", "second"):
        assert Counter(values(log, topic, "version", "id")) == wanted, topic
    group = log.state.groups.get("job")
    assert (group.value("source") if group else None) == (f"version {newest}" if done else None)
    return done


def check_loop(log: TxnLog) -> int:
    """Check that the outputs are those of the records below the positions; return how many these are."""
    group = log.refresh().groups.get("etl")
    topic_id = log.state.topic("raw").topic_id
    keys = [TopicPartition(topic_id, number) for number in range(RAW_PARTITIONS)]
    done = {key.partition: max(0, int(group.value(key))) if group else 0 for key in keys}
    wanted = Counter((number, offset) for number, end in done.items() for offset in range(end))
    assert Counter(values(log, "first", "partition", "offset")) == wanted
    assert sum(count for (count,) in values(log, "second", "count")) == sum(done.values())
    return sum(done.values())


def test_a_job_with_versions_that_is_killed_at_every_point_writes_each_version_once(
    log: TxnLog, path: str, run: Run, remote: str
) -> None:
    done = 0
    for at in POINTS:
        assert run(Job(path=path, way="versions", remote=remote, at=at)) == -signal.SIGKILL, at
        before, done = done, check_versions(log)
        assert done == before + (at in ("commit/after-entry", "after-commit")), at
    assert run(Job(path=path, way="versions", remote=remote)) == 0
    assert check_versions(log) == VERSIONS
    assert log.refresh().undecided == frozenset()
    assert log.verify(deep=True).ok


def test_a_loop_over_a_group_that_is_killed_at_each_step_takes_each_record_once(
    log: TxnLog, path: str, run: Run, remote: str
) -> None:
    log.create_topic("raw", RAW, partitions=RAW_PARTITIONS)
    with Producer(log) as producer:
        for number in range(RAW_PARTITIONS):
            producer.send("raw", [{"n": n} for n in range(16 + number)], number)
    done = 0
    for at in (
        "begin/after-entry",
        "after-write",
        "during-write",
        "commit/before-entry",
        "commit/after-entry",
    ):
        assert run(Job(path=path, way="loop", remote=remote, at=at)) == -signal.SIGKILL, at
        before, done = done, check_loop(log)
        assert (done > before) == (at == "commit/after-entry"), at
    assert run(Job(path=path, way="loop", remote=remote)) == 0
    assert check_loop(log) == 16 + 17
    assert log.refresh().undecided == frozenset()
    assert log.verify(deep=True).ok


def test_a_classic_driver_dies_with_its_jvm_and_the_next_one_begins_anew(
    log: TxnLog, path: str, run: Run, remote: str
) -> None:
    assert run(Job(path=path, way="versions", at="during-write", nth=1)) == -signal.SIGKILL
    assert check_versions(log) == 0
    assert run(Job(path=path, way="versions", remote=remote)) == 0
    assert check_versions(log) == VERSIONS
    assert log.verify(deep=True).ok
