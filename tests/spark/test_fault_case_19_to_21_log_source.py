"""Cases 19 to 21: the source is a log, in which others work meanwhile: maintenance, seals, a transaction that
stays open.

Each in both orders. There is no vacuum yet; what there is of maintenance runs at every step of a micro-batch:
timeouts, expiry, seals, snapshots and bundles.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.chaos.faults import Fault
from tests.rounds import rounds
from tests.spark.case_log_stream import ORDERS, LogStream, open_log_stream
from tests.spark.case_stream import when
from txnformat import keys
from txnformat.protocol.tail import write_bundles
from txnlog import Producer

BOTH = pytest.mark.parametrize("order", ["offset", "commit"])


@pytest.fixture
def copy(classic: SparkSession, tmp_path: Path, order: str) -> Iterator[LogStream]:
    with open_log_stream(classic, tmp_path, order=order) as stream:
        yield stream


STEPS = (
    *(
        "initial/done",
        "latest/start",
        "latest/done",
        "splits/start",
        "splits/done",
        "fetch/start",
        "fetch/row",
    ),
    *("write/start", "write/uploaded", "commit/before-entry", "commit/after-entry", "commit/done"),
)


def maintain(stream: LogStream) -> None:
    """Do all that there is of maintenance, whether it is due or not."""
    stream.give_up(2)  # something that has ended and can be sealed
    log = stream.log
    report = log.maintain()
    assert report.batches > 0
    log.committer._write_snapshot()
    log.committer._driver.run(write_bundles(0))
    log.committer.close()


@BOTH
def test_case_19_maintenance_runs_throughout(copy: LogStream, order: str) -> None:
    """Somebody is stopped at a step of a micro-batch until all of it is done: every step, in two queries
    after another.

    Nothing of it takes away what a plan names: segment files stay, sidecars are added. Vacuum is not there
    yet. The suite takes the steps of the first query in the order of commits, and those of the second one in
    the order of offsets.
    """
    assert STEPS[0] == "initial/done"  # of a new query only
    first, second = [*STEPS[:8]], [*STEPS[8:]]
    parts = rounds([first if order == "commit" else second], [first, second])
    for steps in parts:
        with contextlib.ExitStack() as queries:
            query = None
            for step in steps:
                copy.control.arm(step.replace("/", "-"), Fault(point=step, how="wait"))
                copy.append(7, 5)
                query = query or queries.enter_context(copy.running())
                copy.control.wait_hit(step.replace("/", "-"))
                maintain(copy)
                copy.control.release(step.replace("/", "-"))
                if step == STEPS[0]:
                    assert copy.notes("commits") == []
                query.processAllAvailable()
    assert {one.key for one in copy.log.store.list(keys.SNAPSHOT_PREFIX)}
    assert copy.check().rows == len(copy.wanted) == 12 * sum(len(steps) for steps in parts)


@BOTH
@pytest.mark.parametrize("step", ["splits/done", "fetch/start", "fetch/row"])
def test_case_20_the_source_is_sealed_between_plan_and_read(copy: LogStream, step: str) -> None:
    """Splits name what they read by its place in segment files, which sealing does not touch.

    In a part of the tests it is sealed already, and sealed again.
    """
    copy.append(6, 6, 6)
    if step == "fetch/start":
        copy.seal()
        copy.append(4)
    copy.control.arm("read", Fault(point=step, how="wait"))
    with copy.running() as query:
        copy.control.wait_hit("read")
        copy.give_up(3)
        copy.seal()
        copy.append(5)
        copy.seal()
        copy.control.release("read")
        query.processAllAvailable()
    assert copy.check().rows == len(copy.wanted)


@pytest.mark.parametrize(
    ("first", "order"),
    [
        ("earliest", "commit"),
        ("latest", "offset"),
        *rounds([], [("earliest", "offset"), ("latest", "commit")]),
    ],
)
def test_case_20_the_source_is_sealed_between_a_crash_and_the_repetition(copy: LogStream, first: str) -> None:
    """The repetition has the rows of the first attempt, though the log has grown and was sealed, and the
    query is started anew.

    Guards: the end of a micro-batch is written down before it is read; and with the end of the first one
    where it began, since Spark asks for that again: without it, ``latest`` is a later offset then, and the
    first micro-batch is lost.
    """
    copy.read_options |= {"startingOffsets": first}
    if first == "latest":
        copy.append(3)
    missed = set(copy.wanted) if first == "latest" else set()
    for number, (point, lands) in enumerate([("commit/before-entry", False), ("commit/after-entry", True)]):
        with failing(copy, f"crash-{number}", point, "latest/done" if number else "initial/done") as begun:
            copy.append(8)
            begun()
        assert (len(copy.versions()) > number) is lands
        planned = copy.notes("offsets")[-1]
        end = read_end(copy, planned)
        before = {row.n for row in copy.content()}
        copy.give_up(4)
        copy.append(9)
        copy.seal()
        copy.run()
        assert read_end(copy, planned) == end  # the repetition was no other batch
        batch = {row.n for row in copy.content() if row.batch == planned}
        assert 0 < len(batch) <= 10
        assert batch <= before if lands else not batch & before
    wanted = [n for n in copy.wanted if n not in missed]
    assert copy.check(wanted).rows == len(wanted) == 34


@contextlib.contextmanager
def failing(stream: LogStream, name: str, point: str, step: str) -> Iterator[Any]:
    """Start a query, stop it at a step, and yield what lets it go on until it has failed at a point.

    A query's first micro-batch comes at once, with or without records: it has to be stopped as soon as it
    knows where it begins.
    """
    stream.control.arm(f"{name}-step", Fault(point=step, how="wait"))
    stream.control.arm(name, Fault(point=point, how="raise"))
    query = stream.start(trigger={"processingTime": "20 milliseconds"})

    def fail() -> None:
        stream.control.release(f"{name}-step")
        stream.control.wait_hit(name)
        when(lambda: not query.isActive, "the query to fail")
        assert "InjectedError" in str(query.exception())

    try:
        stream.control.wait_hit(f"{name}-step")
        yield fail
    finally:
        stream.control.release(f"{name}-step")
        query.stop()


def read_end(stream: LogStream, batch: int) -> Any:
    """Return what Spark has written down as the end of a micro-batch."""
    return json.loads((stream.checkpoint / "offsets" / str(batch)).read_text().split("\n")[2])


@BOTH
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_case_21_a_transaction_stays_open_for_long(copy: LogStream, order: str, ends: str) -> None:
    """In the order of offsets the query waits at it, in that of commits it goes on; with its end nothing is
    lost, or twice."""
    copy.append(10)
    with Producer(copy.log, "long", buffer="inline") as producer, copy.running() as query:
        producer.begin()
        held = copy.records(6)
        producer.send(ORDERS, held)
        producer.flush()
        copy.append(10, 10)
        query.processAllAvailable()
        there = copy.numbers()
        behind = [*range(10), *range(16, 36)]
        assert there == (list(range(10)) if order == "offset" else behind)
        assert query.isActive
        producer.commit() if ends == "commit" else producer.abort()
        copy.append(3)
        query.processAllAvailable()
    wanted = [*range(10), *((row["n"] for row in held) if ends == "commit" else ()), *range(16, 39)]
    assert copy.numbers() == sorted(wanted)
    assert copy.check(wanted).rows == len(wanted)


@BOTH
def test_case_21_the_time_of_the_open_transaction_is_over(copy: LogStream, order: str) -> None:
    """Its producer is gone. With ``endExpired`` the query itself ends it; without, others do, such as the
    next who commits."""
    producer = Producer(copy.log, "gone", buffer="inline", transaction_timeout_ms=1)
    producer.init()
    producer.begin()
    producer.send(ORDERS, copy.records(6))
    producer.flush()
    copy.read_options |= {"endExpired": "true"}
    copy.run()
    assert copy.numbers() == []
    assert copy.log.refresh().undecided == frozenset()
    copy.append(4)
    copy.run()
    assert copy.check(list(range(6, 10))).rows == 4
