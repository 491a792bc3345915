"""Case 22: how far a query is stands in the log, in the transaction with what it wrote, and in Spark's own
offset log.

A crash between the two leaves the log one micro-batch ahead of Spark. The guards: the micro-batch's number is
the version of the transaction, so its repetition is done; and the positions are in the entry that commits the
records.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_datasource.write.transaction import NAMESPACE
from tests.chaos.drivers import Driver, cluster
from tests.chaos.faults import Fault, wait_until
from tests.chaos.jobs import Job
from tests.chaos.oracle import check_attempts, check_batches, check_exactly_once, check_seen, check_versions
from tests.chaos.origin import TOPIC, TOPIC_SCHEMA
from tests.chaos.outside import Tail, final_rows, versions_of
from tests.rounds import rounds
from tests.spark.case_log_stream import SCHEMA, LogStream, open_log_stream
from tests.spark.two_offset_logs import APP, COLUMNS, FLOW, FOR_EACH, GROUP, ORDERS, write_batch
from txnlog import Consumer, Producer, TxnLog

PARTITIONS = 2


@pytest.fixture
def etl(classic: SparkSession, tmp_path: Path) -> Iterator[LogStream]:
    with open_log_stream(classic, tmp_path, columns=COLUMNS) as stream:
        yield stream


def positions(log: TxnLog) -> dict[int, int]:
    """Return the next offset of the group in each partition."""
    with Consumer(log, GROUP) as consumer:
        return {number: consumer.committed(ORDERS, number) or 0 for number in range(PARTITIONS)}


def check_agrees(log: TxnLog) -> int:
    """Check that what is written is what the positions cover; return how many records that is."""
    ends = positions(log)
    log.refresh()
    covered = log.read(ORDERS, columns=["n"], end=ends).read_all().column("n").to_pylist()
    made = log.read(TOPIC, columns=["n"]).read_all().column("n").to_pylist()
    assert sorted(made) == sorted(covered)
    return len(made)


def check(log: TxnLog, wanted: list[int], tail: Tail) -> None:
    """Check that every record was written once, in whole micro-batches, one in an entry, also as a reader saw
    it."""
    made = final_rows(log)
    assert check_exactly_once(made, wanted) == (0, 0, [])
    assert check_attempts(made) == check_batches(made) == []
    assert check_versions(versions_of(log)[NAMESPACE, APP], made) == []
    tail.wait_count(len(made), 60)
    assert check_seen(made, tail.end()) == []
    assert log.verify(deep=True).ok


class Crash(Exception):
    """Of the process, as far as Spark sees it."""


def run(etl: LogStream, *, crash: str = "", app: str = APP) -> str | None:
    """Process what is there; return what the query failed with."""

    def reached(step: str) -> None:
        if step == crash:
            raise Crash(step)

    write = partial(write_batch, log=etl.path, control=str(etl.control.folder), app=app, reached=reached)
    writer = etl.source().writeStream.foreachBatch(write)
    query: Any = writer.option("checkpointLocation", str(etl.checkpoint)).trigger(availableNow=True).start()
    try:
        wait_until(lambda: not query.isActive, "the query to end")
        return None if query.exception() is None else str(query.exception())
    finally:
        query.stop()


@pytest.mark.parametrize(("crash", "lands"), [("written", False), ("end", False), ("ended", True)])
def test_case_22_a_crash_before_and_after_the_transaction(etl: LogStream, crash: str, lands: bool) -> None:
    etl.append(6)
    assert run(etl) is None
    assert check_agrees(etl.log) == 6
    etl.append(4)
    etl.give_up(2)
    etl.append(4)
    told = run(etl, crash=crash)
    assert told is not None
    assert "Crash" in told
    assert (etl.notes("offsets"), etl.notes("commits")) == ([0, 1], [0])
    after = check_agrees(etl.log)
    assert (after > 6) is lands
    etl.append(3)
    etl.seal()
    assert run(etl) is None
    assert check_agrees(etl.log) == 17
    assert len(versions_of(etl.log)[NAMESPACE, APP]) == len(etl.notes("commits"))
    check(etl.log, etl.wanted, etl.tail)


def test_case_22_sparks_offsets_are_lost_and_the_logs_are_taken(etl: LogStream) -> None:
    """A new checkpoint begins at the group's positions, under another name; a plain consumer could as
    well.
    """
    etl.append(6, 6)
    assert run(etl) is None
    etl.append(5)
    assert run(etl, crash="ended") is not None
    shutil.rmtree(etl.checkpoint)
    done = check_agrees(etl.log)
    assert done == 17
    etl.append(4)
    told = run(etl)  # under the old name the numbers begin again: refused, before anything is written
    assert told is not None
    assert "StaleAppVersionError: the log holds a later version of this job" in told
    assert check_agrees(etl.log) == done
    shutil.rmtree(etl.checkpoint)
    starting = {str(number): offset for number, offset in positions(etl.log).items()}
    etl.read_options |= {"startingOffsets": str(starting).replace("'", '"')}
    assert run(etl, app="etl-2") is None
    assert check_agrees(etl.log) == 21
    numbers = [row.n for row in etl.content()]
    assert sorted(numbers) == sorted(etl.wanted)


def test_case_22_drivers_are_killed_between_the_two(tmp_path: Path) -> None:
    """``kill -9`` before the entry that commits, behind it, and before Spark notes that the micro-batch is
    done.

    The suite kills one driver, behind the entry: Spark's offsets and the log's differ then.
    """
    log = TxnLog.create(tmp_path / "log", embedding=False)
    log.create_topic(ORDERS, SCHEMA, partitions=PARTITIONS, key_columns=["key"])
    log.create_topic(TOPIC, TOPIC_SCHEMA, partitions=PARTITIONS, key_columns=["key"])
    job = Job(
        log=str(tmp_path / "log"),
        input="",
        checkpoint=str(tmp_path / "checkpoint"),
        control="",
        flow=FLOW,
        for_each=FOR_EACH,
        read_options={"startingOffsets": "earliest", "maxRowsPerTrigger": "10"},
        waits=True,
    )
    every = [("end/before-entry", 0, False), ("end/after-entry", 0, True), ("ended/here", 1, True)]
    kills = rounds(every[1:2], every)
    with cluster(tmp_path / "spark") as place, ExitStack() as drivers, Tail(job.log, PARTITIONS) as tail:
        following = drivers.enter_context(place.start(job))
        for point, batch, lands in kills:
            driver, following = following, drivers.enter_context(place.start(job))
            before = check_agrees(log)
            driver.wait_ready()
            driver.control.arm("kill", Fault(point=point, victim="driver", batch=batch))
            append(log, 10)
            driver.begin()
            hit = driver.control.wait_hit("kill", alive=driver.check_alive)
            assert hit.driver
            driver.wait_killed()
            assert (check_agrees(log) > before) is lands
            log.maintain("seal")
        last(following)
        wanted = log.read(ORDERS, columns=["n"]).read_all().column("n").to_pylist()
        assert check_agrees(log) == len(wanted) == 10 * len(kills)
        check(log, wanted, tail)


def last(driver: Driver) -> None:
    """Let a driver process what there is."""
    driver.begin()
    driver.wait_started()
    driver.finish()
    assert driver.wait_end().error is None


def append(log: TxnLog, count: int) -> None:
    """Commit records, over both partitions, that have the next numbers."""
    log.refresh()
    start = log.read(ORDERS, columns=["n"]).read_all().num_rows
    with Producer(log) as producer:
        producer.send(ORDERS, [{"n": n, "key": f"key-{n % 7}"} for n in range(start, start + count)])
