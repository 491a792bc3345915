"""Fault cases of tasks: exceptions, executors and Python workers killed, stages repeated.

What keeps a stream exact in all of them: nothing that a task uploads is in the log until the driver's one
entry names it, and Spark hands the driver one message for each task. ``test_chaos_campaign.py`` breaks that,
and sees the oracle find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.drivers import Driver, cluster
from tests.chaos.faults import Fault
from tests.chaos.jobs import CLUSTER
from tests.chaos.processes import processes
from tests.chaos.scene import ROWS, Scene

Running = tuple[Scene, Driver]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A query on two executors, for the cases whose faults it survives."""
    folder = tmp_path_factory.mktemp("tasks")
    with cluster(folder / "spark") as place:
        scene = Scene(folder, place, master=CLUSTER)
        with scene.start() as driver:
            driver.wait_ready()
            scene.begin(driver)
            yield scene, driver


def check(running: Running, case: str, *faults: Fault) -> None:
    """Feed a file for each fault, see the fault hit, all rows arrive, and the rest as it has to be."""
    scene, driver = running
    with scene.tail() as tail:
        for number, fault in enumerate(faults):
            driver.control.arm(f"{case}-{number}", fault)
            batch = scene.feed()
            hit = driver.control.wait_hit(f"{case}-{number}", alive=driver.check_alive)
            assert hit.place.batch == batch
            assert not hit.driver
            scene.wait_all(tail, driver)
        found = scene.examine(tail)
    assert found.violations == ()
    assert found.rows == scene.batches * ROWS


def test_case_1_a_task_fails_and_its_repetition_does_not(running: Running) -> None:
    """Before its first row, with some of them, and with its file uploaded.

    Guards: tasks only upload. Without (a sink that commits in the task): what the third attempt uploaded is
    there twice.
    """
    check(
        running,
        "case-1",
        Fault(point="write/start", how="raise", partition=1, attempt=0),
        Fault(point="write/row", how="raise", partition=0, attempt=0, nth=2),
        Fault(point="write/uploaded", how="raise", partition=1, attempt=0),
    )
    assert running[0].orphans()  # what the third one uploaded is there, and nobody's


def test_case_3_an_executor_is_killed(running: Running) -> None:
    """Before the first row of a task, with some of them, and after the last, with its file uploaded.

    Guards: as case 1.
    """
    before = set(running[1].executors())
    check(
        running,
        "case-3",
        Fault(point="write/start", victim="jvm", partition=0, attempt=0),
        Fault(point="write/row", victim="jvm", partition=1, attempt=0, nth=2),
        Fault(point="write/uploaded", victim="jvm", partition=1, attempt=0),
    )
    victims = [running[1].control.wait_hit(f"case-3-{number}").victims for number in range(3)]
    assert len({pid for pids in victims for pid in pids}) == 3
    assert before - set(running[1].executors())
    assert not {pid for pids in victims for pid in pids} & set(processes())


def test_case_4_a_python_worker_is_killed(running: Running) -> None:
    """The one that writes, in the middle and after its upload; and the one that gives it its rows, of the
    same task.

    Guards: as case 1.
    """
    check(
        running,
        "case-4",
        Fault(point="write/row", partition=0, attempt=0, nth=2),
        Fault(point="write/uploaded", partition=1, attempt=0),
        Fault(point="read/row", partition=1, attempt=0, nth=2),
    )


def test_case_6_a_stage_is_repeated_because_its_input_is_gone(tmp_path: Path) -> None:
    """An executor is killed that holds a part of the shuffle before the sink, when a task there has uploaded
    its file.

    The second attempt of the stage numbers the attempts of its tasks from 0 again: the same batch, partition
    and attempt come a second time, with another file.

    Guards: as case 1; and names of files that are unlike any other: by batch, partition and attempt the two
    are the same (SPARK-24552). Without, the second attempt finds the file of the first, and the query fails.
    """
    both = {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}  # each executor does a part of the shuffle
    with cluster(tmp_path / "spark") as place:
        scene = Scene(tmp_path, place, master=CLUSTER, shuffle=2, conf=both)
        with scene.tail() as tail, scene.start() as driver:
            driver.control.arm("lost", Fault(point="write/uploaded", victim="jvm", partition=0, attempt=0))
            driver.control.arm("again", Fault(point="write/start", how="note", partition=0, attempt=0, nth=2))
            scene.feed()
            driver.wait_ready()
            scene.begin(driver)
            lost = driver.control.wait_hit("lost", alive=driver.check_alive)
            again = driver.control.wait_hit("again", alive=driver.check_alive)
            assert again.place.batch == lost.place.batch == 0
            assert again.place.task != lost.place.task
            scene.wait_all(tail, driver)
            found = scene.examine(tail)
    assert found.violations == ()
    assert found.rows == ROWS
    assert scene.orphans()
