"""What keeps streams exact is taken away, piece by piece: the same faults then do damage, and it is seen.

What happens without the version in the entry, and when tasks commit, ``test_chaos_campaign.py`` shows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.drivers import Driver, cluster
from tests.chaos.faults import Fault, wait_until
from tests.chaos.scene import Scene
from txnformat.errors import TxnLogError


@pytest.mark.campaign
def test_case_6_without_names_of_its_own_for_every_file(tmp_path: Path) -> None:
    """The repetition of a task cannot write its file: the store has that of the first attempt, and
    keeps it.
    """
    with cluster(tmp_path / "spark") as place:
        scene = Scene(tmp_path, place, master="local[2,3]", broken="names-files-by-task")
        with scene.start() as driver:
            driver.control.arm("fault", Fault(point="write/uploaded", how="raise", partition=1))
            scene.feed()
            driver.wait_ready()
            scene.begin(driver)
            driver.control.wait_hit("fault", alive=driver.check_alive)
            error = driver.wait_end().error
    assert error is not None
    assert "TXNLOG_OBJECT_EXISTS" in error


@pytest.mark.campaign
def test_case_7_with_an_abort_that_deletes_files(tmp_path: Path) -> None:
    """Spark calls abort for a batch that is in the log: its files are gone."""
    with cluster(tmp_path / "spark") as place:
        scene = Scene(tmp_path, place, broken="deletes-at-abort", restarts=1)
        with scene.start() as driver:
            fail_once(scene, driver, Fault(point="commit/done", how="raise"))
        assert scene.log.verify(deep=True).problems
        with pytest.raises(TxnLogError):
            scene.examine()


def fail_once(scene: Scene, driver: Driver, fault: Fault) -> None:
    """Write a batch, with a fault, until Spark notes that it is done."""
    driver.control.arm("fault", fault)
    batch = scene.feed()
    driver.wait_ready()
    scene.begin(driver)
    driver.control.wait_hit("fault", alive=driver.check_alive)
    wait_until(lambda: scene.noted(batch), "Spark to note the batch", driver.check_alive)
