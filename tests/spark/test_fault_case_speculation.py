"""Fault case 5: Spark runs a slow task twice, one attempt wins, and the other finishes when nobody waits for
it any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.chaos.drivers import Driver, cluster
from tests.chaos.faults import Fault, wait_until
from tests.chaos.scene import ROWS, Scene, data_files, named_files
from tests.chaos.standalone import standalone

CONF = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",  # one of two tasks is done
    "spark.speculation.minTaskRuntime": "100ms",
    # Spark ends the Python worker of a loser, if it comes to that: this one is slow to notice.
    "spark.python.task.killTimeout": "3600s",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Scene, Driver]]:
    """A query on executors of two hosts."""
    folder = tmp_path_factory.mktemp("speculation")
    with cluster(folder / "spark") as place, standalone(place) as master:
        scene = Scene(folder, place, master=master, conf=CONF)
        with scene.start() as driver:
            driver.wait_ready()
            scene.begin(driver)
            yield scene, driver


@pytest.mark.parametrize(
    "loser",
    [pytest.param(0, id="original-loses", marks=pytest.mark.campaign), pytest.param(1, id="copy-loses")],
)
def test_case_5_the_loser_finishes_after_the_commit(running: tuple[Scene, Driver], loser: int) -> None:
    """The loser has all its rows, and waits; the winner's batch is committed, the next one is about to be.
    Then it ends.

    Its file is whole and in the store, and no entry names it.

    Guards: tasks only upload. Without (a sink that commits in the task): batches are in several entries, with
    the rows of the loser. Names of files that are unlike any other: without, the loser never gets to the end
    of its upload.
    """
    scene, driver = running
    control, name = driver.control, f"loser-{loser}"
    with scene.tail() as tail:
        # The winner waits for the loser to be there: the copy begins only when the original is slow.
        waits = Fault(point="write/before-data", how="wait", batch=scene.batches, partition=1, attempt=loser)
        control.arm(f"{name}-waits", waits)
        control.arm(f"{name}-ends", replace(waits, point="write/uploaded", how="note"))
        control.arm(f"{name}-winner", replace(waits, point="write/row", attempt=1 - loser))
        batch = scene.feed()
        ours, theirs = (
            control.wait_hit(f"{name}-{who}", alive=driver.check_alive) for who in ("waits", "winner")
        )
        assert ours.place.task != theirs.place.task
        control.release(f"{name}-winner")
        scene.wait_all(tail, driver)
        wait_until(lambda: scene.noted(batch), "Spark to note the batch", driver.check_alive)

        control.arm(f"{name}-next", Fault(point="commit/before-entry", how="wait", batch=batch + 1))
        scene.feed()
        control.wait_hit(f"{name}-next", alive=driver.check_alive)
        before = data_files(scene.log)
        assert control.hit(f"{name}-ends") is None
        control.release(f"{name}-waits")
        ends = control.wait_hit(f"{name}-ends", alive=driver.check_alive)
        assert ends.place.pid == ours.place.pid
        late = data_files(scene.log) - before
        assert len(late) == 1
        control.release(f"{name}-next")
        scene.wait_all(tail, driver)
        found = scene.examine(tail)
    assert found.violations == ()
    assert found.rows == scene.batches * ROWS
    assert not late & named_files(scene.log)
