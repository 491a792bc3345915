"""What the chaos tests stand on: faults are hit where they were armed, and nothing of a driver is left
behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import processes
from tests.chaos.drivers import cluster
from tests.chaos.faults import Fault, wait_until
from tests.chaos.inputs import feed
from tests.chaos.jobs import CLUSTER, LOCAL, Job
from tests.chaos.origin import TOPIC, TOPIC_SCHEMA
from tests.chaos.outside import Tail, examine, versions_of
from txnformat.persistent import replace
from txnlog import TxnLog


@pytest.mark.campaign
def test_faults_are_hit_where_they_were_armed_and_nothing_is_left(tmp_path: Path) -> None:
    log = TxnLog.create(tmp_path / "log", embedding=False)  # a fault waits behind the request of a file
    log.create_topic(TOPIC, TOPIC_SCHEMA, partitions=2, key_columns=["key"])
    for batch in range(3):
        feed(tmp_path / "input", f"{batch}", range(batch * 100, batch * 100 + 100))
    job = Job(
        log=str(tmp_path / "log"),
        input=str(tmp_path / "input"),
        checkpoint=str(tmp_path / "checkpoint"),
        control="",
        master=CLUSTER,
        for_each_batch=True,
        waits=True,
    )
    with Tail(job.log, 2) as tail, cluster(tmp_path / "spark") as place:
        with place.start(job) as driver:
            driver.wait_ready()
            driver.control.arm("executor", Fault(point="write/row", victim="jvm", partition=1))
            driver.control.arm("task", Fault(point="write/after-data", how="raise", nth=4, times=2))
            driver.control.arm("commit", Fault(point="commit/before-entry", how="wait", nth=3))
            driver.begin()
            executor = driver.control.wait_hit("executor", alive=driver.check_alive)
            assert not executor.driver
            assert executor.place.partition == 1
            assert executor.victims[0] not in driver.pids()
            task = driver.control.wait_hit("task", time=2, alive=driver.check_alive)
            assert task.place.point == "write/after-data"
            assert task.victims == (task.place.pid,)
            commit = driver.control.wait_hit("commit", alive=driver.check_alive)
            assert commit.driver
            assert commit.place.partition is None
            assert tail.wait_count(200, seconds=60)  # two batches; the third waits
            driver.freeze()
            wait_until(
                lambda: _states(processes.driver_processes(*driver.pids())) == {"T"},
                "the driver to stand still",
            )
            driver.thaw()
            wait_until(lambda: "T" not in _states(processes.marked(driver.mark)), "the driver to go on")
            driver.kill()
            assert processes.marked(driver.mark) == []
        with place.start(replace(job, master=LOCAL)) as driver:
            driver.begin()
            driver.finish()
            assert driver.wait_end().error is None
        found = examine(log, list(range(300)), [tail.end()], next(iter(versions_of(log))))
    assert found.violations == ()
    assert found.rows == 300


def test_what_a_test_leaves_running_ends_with_the_block(tmp_path: Path) -> None:
    """Also what stands still, and what has left group and session."""
    with processes.keeper() as family, pytest.MonkeyPatch.context() as patch:
        for name, value in family.items():
            patch.setenv(name, value)
        import subprocess

        left = subprocess.Popen(["setsid", "sleep", "600"])
        stopped = subprocess.Popen(["sh", "-c", "kill -STOP $$"])
    assert left.wait(300) == -9
    assert stopped.wait(300) == -9


def _states(pids: list[int]) -> set[str]:
    table = processes.processes()
    return {table[pid].state for pid in pids if pid in table} - {"Z"}
