"""The keeper of the processes beside Spark: who is replaced, and whose end is no problem."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.faults import wait_until
from tests.pipeline.processes import Outside, Task
from tests.pipeline.producers import produce
from tests.pipeline.sealer import seal
from tests.pipeline.topics import ORDERS, ORDERS_SCHEMA
from txnlog import TxnLog


def test_after_the_end_nobody_is_replaced(tmp_path: Path) -> None:
    """Spark may need drivers after it, and whoever starts one tends: those who ended are no problem then."""
    place = str(tmp_path / "log")
    TxnLog.create(place).close()
    task = Task(
        run=seal,
        slot="sealer",
        is_fenced=False,
        log=place,
        seed=1,
        folder=str(tmp_path / "outside"),
        history=str(tmp_path / "history"),
    )
    with Outside([task], lambda _: (None, False)) as outside:
        wait_until(task.began.exists, "the sealer")
        outside.end()
        outside._looked = 0.0  # as if time had passed
        outside.tend()
        assert outside.problems == []
        assert not outside._slots


def test_who_stood_still_as_it_opened_takes_the_place_from_its_successor(tmp_path: Path) -> None:
    """Of two who open one transactional id the last one has it: that the other one ends as fenced is no
    problem."""
    place = str(tmp_path / "log")
    with TxnLog.create(place) as log:
        log.create_topic(ORDERS, ORDERS_SCHEMA, partitions=1, key_columns=["key"])
    (tmp_path / "history").mkdir()
    task = Task(
        run=produce,
        slot="producer-auto",
        log=place,
        seed=1,
        folder=str(tmp_path / "outside"),
        history=str(tmp_path / "history"),
        settings={"kind": "auto", "number": 0},
    )
    fenced = "producer: fenced by one that was continued"
    with Outside([task], lambda one: (1, True) if one.incarnation == 0 else (None, False)) as outside:

        def tend() -> None:
            outside.tend()
            assert outside.problems == []

        wait_until(lambda: outside.ends[fenced] > 0, "the successor to be fenced", tend)
        outside.end()
    assert outside.problems == []
    assert outside.zombies["producer"] == 1
    assert outside.ends[fenced] == 1
