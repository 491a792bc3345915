"""Streams to a disk that becomes full or read-only, or a folder that may not be written to; the checkpoint
beside it, or elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_datasource.datasource import register
from tests.small_disk import mount, small_disk
from tests.spark.feeds import Feed, rows
from tests.spark.outages import batches
from txnformat.keys import LOG_PREFIX
from txnformat.log import TxnLog

DISK_BYTES = 2 * 2**20
PAGE_BYTES = 4096
"""What the smallest file takes of it."""

ROOMS = range(10)
"""Pages that are left when a query starts: each lets the batch come one or two files further."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small tmpfs."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def _fill(disk: Path, pages: int) -> Path:
    """Leave so many pages; return the file that takes the rest."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        status = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, (status.f_bavail - pages) * status.f_frsize)
    assert os.statvfs(disk).f_bavail == pages
    return filler


def test_case_18_root_and_checkpoint_on_one_disk_that_becomes_full_at_every_step(
    spark: SparkSession, disk: Path, tmp_path: Path
) -> None:
    with TxnLog.create(disk / "log", embedding=False) as log:
        feed = Feed(spark, str(disk / "log"), tmp_path)
        checkpoint = disk / "checkpoint"
        feed.add(0)
        feed.run(checkpoint=checkpoint)
        ended: list[str] = []
        for number, pages in enumerate(ROOMS, start=1):
            feed.add(number)
            filler = _fill(disk, pages)
            query = feed.query(checkpoint=checkpoint)
            try:
                query.awaitTermination(300)
            except PySparkException:
                told = str(query.exception())
                ended.append("ours" if "[TXNLOG_" in told else "Spark's")
                assert "[TXNLOG_DISK_FULL]" in told or "No space left on device" in told, told
                assert ("free space or raise the quota" in told) == ("[TXNLOG_" in told)
            else:
                ended.append("none")
            assert rows(log) in (list(range(number)), list(range(number + 1)))
            filler.unlink()
            feed.run(checkpoint=checkpoint)
            assert rows(log) == list(range(number + 1))
        assert {"ours", "Spark's", "none"} == set(ended)
        assert batches(checkpoint / "commits")[-1] == len(ROOMS)


def test_case_18_root_and_checkpoint_on_one_disk_that_becomes_read_only(
    spark: SparkSession, disk: Path, tmp_path: Path
) -> None:
    with TxnLog.create(disk / "log", embedding=False) as log:
        feed = Feed(spark, str(disk / "log"), tmp_path)
        feed.add(0)
        feed.run(checkpoint=disk / "checkpoint")
        feed.add(1)
        assert mount("-o", "remount,ro", str(disk)).returncode == 0
        assert "Read-only file system" in feed.fails(checkpoint=disk / "checkpoint")
        assert mount("-o", "remount,rw", str(disk)).returncode == 0
        feed.run(checkpoint=disk / "checkpoint")
        assert rows(log) == [0, 1]


def test_a_root_that_becomes_read_only_ends_the_query_with_one_clear_error(
    spark: SparkSession, disk: Path, tmp_path: Path
) -> None:
    with TxnLog.create(disk / "log", embedding=False) as log:
        feed = Feed(spark, str(disk / "log"), tmp_path)
        feed.add(0)
        feed.run()
        feed.add(1)
        assert mount("-o", "remount,ro", str(disk)).returncode == 0
        told = feed.fails()
        assert told.count("[TXNLOG_READ_ONLY_STORE]") == 1
        assert f"path=`{disk}/log/" in told
        assert "mount it writable" in told
        assert (rows(log), batches(feed.checkpoint / "offsets")) == ([0], [0, 1])
        assert mount("-o", "remount,rw", str(disk)).returncode == 0
        feed.run()
        assert rows(log) == [0, 1]


@pytest.fixture
def unprivileged(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the sink in processes that rights of files hold for, also where the tests run as root."""
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import ctypes, os, sys\n"
        "ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    python.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(spark.sparkContext, "pythonExec", str(python))
        register(spark)  # from here on its processes are started so
    yield
    register(spark)


@pytest.mark.usefixtures("unprivileged")
def test_a_folder_without_the_right_to_write_ends_the_query_with_one_clear_error(
    log: TxnLog, spark: SparkSession, path: str, tmp_path: Path
) -> None:
    shutil.rmtree(path)
    log = TxnLog.create(path, embedding=False)  # so that each batch writes a file
    feed = Feed(spark, path, tmp_path)
    feed.add(0)
    feed.run()
    feed.add(1)
    (data,) = Path(path).glob("t-*/data")
    for folder in (data, Path(path) / LOG_PREFIX):
        folder.chmod(0o555)
        told = feed.fails()
        folder.chmod(0o755)
        assert told.count("[TXNLOG_PERMISSION_DENIED]") == 1
        assert f"path=`{folder}/" in told
        assert "give this user the right to the path" in told
        assert (rows(log), batches(feed.checkpoint / "offsets")) == ([0], [0, 1])
    feed.run()
    assert rows(log) == [0, 1]
