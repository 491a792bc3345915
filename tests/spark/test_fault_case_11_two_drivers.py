"""Case 11: two drivers write from one checkpoint, or from a checkpoint and a copy of it.

The driver that is thought dead is a process of its own, frozen by SIGSTOP with all of its workers, and
continued when its successor, the shared session, has gone on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.drivers import Cluster, Driver, cluster
from tests.chaos.faults import Fault
from tests.chaos.jobs import Job
from tests.rounds import rounds
from tests.spark.case_stream import Stream, said, when

TAKEN_OVER = "[TXNLOG_STALE_INSTANCE] another run of this query has taken over"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("drivers")) as place:
        yield place


@pytest.fixture(scope="module")
def spare(place: Cluster) -> Iterator[list[Driver]]:
    """A driver for each test; they start while others run."""
    job = Job(log="", input="", checkpoint="", control="", waits=True)
    drivers: list[Driver] = []
    try:
        for _ in range(rounds(3, 4)):
            drivers.append(place.start(job))  # noqa: PERF401  # those that are there are ended below
        yield list(drivers)
    finally:
        for driver in drivers:
            driver.kill()


@pytest.fixture
def driver(spare: list[Driver], stream: Stream) -> Driver:
    """A driver that has written batch 0 of the stream."""
    driver = spare.pop()
    driver.wait_ready()
    stream.feed()
    driver.begin(log=stream.path, input=str(stream.input), checkpoint=str(stream.checkpoint))
    wait_noted(stream, 0, driver)
    return driver


def wait_noted(stream: Stream, batch: int, driver: Driver) -> None:
    """Wait until a driver has noted the end of a batch."""

    def is_noted() -> bool:
        driver.check_alive()
        return batch in stream.notes("commits")

    when(is_noted, f"batch {batch}")


@pytest.mark.parametrize(
    ("point", "told"),
    [
        *rounds([], [pytest.param("write/last", TAKEN_OVER, id="in its tasks")]),
        pytest.param("commit/before-entry", TAKEN_OVER, id="before its entry"),
        pytest.param("commit/after-entry", "CONCURRENT_STREAM_LOG_UPDATE", id="after its entry"),
    ],
)
def test_case_11_a_frozen_driver_wakes_up_beside_its_successor(
    stream: Stream, driver: Driver, point: str, told: str
) -> None:
    """Nothing is there twice or lost, and the one that was frozen ends with an error.

    The guards: the conditional PUT of the entry, after which the version is looked at again (without the
    version: rows twice); the instance of the version (without it the batch is found done, and only Spark's
    own notes stop that driver).
    """
    driver.control.arm("frozen", Fault(point=point, how="stop", victim="driver", batch=1))
    stream.feed()
    hit = driver.control.wait_hit("frozen", alive=driver.check_alive)
    assert hit.driver
    assert hit.place.batch == 1
    stream.run()  # the same batch, from the same checkpoint
    stream.feed(2)
    stream.run()
    there = stream.content()
    entry = stream.entry()
    assert sorted(row.n for row in there) == stream.wanted
    driver.thaw()
    error = driver.wait_end().error
    assert error is not None
    assert told in error
    assert (stream.entry(), stream.content()) == (entry, there)
    stream.feed()
    stream.run()
    assert stream.check().rows == len(stream.wanted)


def test_case_11_a_copied_checkpoint(stream: Stream, driver: Driver, tmp_path: Path) -> None:
    """Two runs of one query take turns: whoever comes second twice is stopped, and so is whoever was taken
    over from.

    The guards: what the committing process remembers of its run
    (:func:`spark_datasource.stream.sink._check_first`; without it the copy goes on, and writes nothing), and
    the instances of the version (without them the last batch of the driver is found done, whatever its rows
    are).
    """
    second, third = tmp_path / "second", tmp_path / "third"
    shutil.copytree(stream.checkpoint, second)
    stream.feed()
    wait_noted(stream, 1, driver)
    # Batch 1 of the other run may be a repetition; its batch 2 cannot be one.
    with stream.running(checkpoint=second) as query:
        stream.control.arm("held", Fault(point="commit/start", how="wait", batch=2))

        def is_repeated() -> bool:
            assert query.exception() is None
            return (second / "commits" / "1").exists()

        when(is_repeated, "the repetition")
        stream.feed()
        stream.control.wait_hit("held")
        wait_noted(stream, 2, driver)
        entry = stream.entry()
        stream.control.release("held")
        told = said(query)
    assert "[TXNLOG_STALE_INSTANCE] another run of this query has written this batch" in told
    assert stream.entry() == entry

    shutil.copytree(stream.checkpoint, third)
    driver.control.arm("held", Fault(point="commit/before-entry", how="wait", batch=3))
    stream.feed()
    driver.control.wait_hit("held", alive=driver.check_alive)
    stream.run(checkpoint=third)
    driver.control.release("held")
    error = driver.wait_end().error
    assert error is not None
    assert "[TXNLOG_STALE_INSTANCE] another run of this query has taken over" in error
    stream.feed()
    stream.run(checkpoint=third)
    assert stream.check().rows == len(stream.wanted)
