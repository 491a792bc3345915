"""Fault cases of drivers: a batch that is given up, and ``kill -9`` at every step of a batch. The next driver
goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.drivers import Driver, cluster
from tests.chaos.faults import Fault, wait_until
from tests.chaos.scene import ROWS, Scene
from tests.rounds import rounds


def test_case_2_a_task_fails_as_often_as_it_may(tmp_path: Path) -> None:
    """The batch fails, Spark calls abort, nothing of it is in the log, and a restart writes it.

    Guards: tasks only upload; without that, the task that did not fail has written its rows, and writes them
    again.
    """
    with cluster(tmp_path / "spark") as place, ExitStack() as drivers:
        scene = Scene(tmp_path, place, master="local[2,2]")  # a task may fail once
        tail = drivers.enter_context(scene.tail())
        driver = drivers.enter_context(scene.start())
        following = drivers.enter_context(scene.start())
        scene.feed()
        driver.wait_ready()
        scene.begin(driver)
        scene.wait_all(tail, driver)

        # Faults are carried out by name: the task does not fail before the other one has uploaded as well.
        driver.control.arm("hold", Fault(point="write/uploaded", how="wait", partition=0))
        driver.control.arm("task", Fault(point="write/uploaded", how="raise", partition=0, times=2))
        driver.control.arm("other", Fault(point="write/uploaded", how="note", partition=1))
        driver.control.arm("abort", Fault(point="abort/done", how="note"))
        batch = scene.feed()
        assert driver.control.wait_hit("other", alive=driver.check_alive).place.batch == batch
        driver.control.release("hold")
        attempts = [driver.control.wait_hit("task", time, alive=driver.check_alive) for time in (1, 2)]
        assert [hit.place.attempt for hit in attempts] == [0, 1]
        assert driver.control.wait_hit("abort", alive=driver.check_alive).place.batch == batch
        error = driver.wait_end().error
        assert error is not None
        assert "InjectedError" in error
        assert scene.begun(batch)
        assert not scene.noted(batch)
        assert not scene.holds(batch)
        assert len(scene.orphans()) == 3  # two attempts of the one task, one of the other

        following.wait_ready()
        scene.begin(following)
        scene.wait_all(tail, following)
        found = scene.examine(tail)
    assert found.violations == ()
    assert found.rows == 2 * ROWS


class Relay:
    """Drivers that follow each other on one checkpoint. The next one starts Spark while the one before
    works.
    """

    def __init__(self, scene: Scene, drivers: ExitStack) -> None:
        self.scene = scene
        self._drivers = drivers
        self.driver = self.prepare()
        self.take_over(self.driver)

    def prepare(self) -> Driver:
        """Start a driver that waits."""
        return self._drivers.enter_context(self.scene.start())

    def check(self) -> None:
        """Have a driver that works, whatever became of the last one."""
        if not self.driver.is_alive:
            self.take_over(self.prepare())

    def take_over(self, driver: Driver) -> None:
        """Let it go on with the query."""
        driver.wait_ready()
        self.scene.begin(driver)
        self.driver = driver


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relay]:
    folder = tmp_path_factory.mktemp("driver")
    with cluster(folder / "spark") as place, ExitStack() as drivers:
        yield Relay(Scene(folder, place), drivers)


OTHER_STEPS = [
    pytest.param([Fault(point="write/start", victim="driver")], False, id="before-write"),
    pytest.param([Fault(point="commit/start", victim="driver")], False, id="after-files"),
    pytest.param([Fault(point="commit/done", victim="driver")], True, id="before-spark-notes"),
]
"""Steps of `make campaigns`: what they leave is what the steps around the entry leave."""


@pytest.mark.parametrize(
    ("faults", "lands"),
    [
        *rounds([], OTHER_STEPS),
        pytest.param([Fault(point="commit/before-entry", victim="driver")], False, id="before-entry"),
        pytest.param([Fault(point="commit/after-entry", victim="driver")], True, id="after-entry"),
        pytest.param(
            [Fault(point="commit/done", how="raise"), Fault(point="abort/done", victim="driver")],
            True,
            id="during-abort",
        ),
    ],
)
def test_case_7_the_driver_is_killed(
    relay: Relay, faults: list[Fault], lands: bool, request: pytest.FixtureRequest
) -> None:
    """At each step of a batch; Spark repeats it, for it has not noted that it is done.

    Guards: the version in the entry; without it, what had landed is there twice (``test_chaos_campaign.py``).
    An abort that does nothing; if it deletes files, those of a batch that had landed are gone, and reads
    fail.
    """
    relay.check()
    scene, driver = relay.scene, relay.driver
    following = relay.prepare()
    name = request.node.callspec.id
    for number, fault in enumerate(faults):
        driver.control.arm(f"{name}-{number}", fault)
    with scene.tail() as tail:
        batch = scene.feed()
        for number, _ in enumerate(faults):
            hit = driver.control.wait_hit(f"{name}-{number}", alive=driver.check_alive)
            assert hit.place.batch == batch
            assert hit.driver
        driver.wait_killed()
        assert scene.begun(batch)
        assert not scene.noted(batch)
        assert scene.holds(batch) == lands
        relay.take_over(following)
        scene.wait_all(tail, following)
        wait_until(lambda: scene.noted(batch), "Spark to note the batch", following.check_alive)
        found = scene.examine(tail)
    assert found.violations == ()
    assert found.rows == scene.batches * ROWS
