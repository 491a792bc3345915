"""Checks of `notebooks/01_quickstart.ipynb`: each function runs after the cell that it is named after, on the
notebook's names."""

from __future__ import annotations

from typing import Any


def after_cell_03(n: Any) -> None:
    assert n.log.topics() == ["alarms", "readings"]


def after_cell_07(n: Any) -> None:
    assert n.count("read_committed") == 40 + 30  # not the last 35: an open transaction lies before them
    assert n.count("read_uncommitted") == 40 + 25 + 30 + 20 + 35
    assert n.offsets.held_by.transactional_id == "rehearsal"
    assert n.offsets.last_stable_offset == n.offsets.held_by.first_offset
    assert n.log.offsets("alarms")[0].held_by is None  # other partitions are not held back


def after_cell_09(n: Any) -> None:
    assert n.committed.count_rows() == 40 + 30
    assert 0 < n.warm < 40 + 30
    assert n.found == n.warm


def after_cell_11(n: Any) -> None:
    for isolation in ("read_committed", "read_uncommitted"):
        assert n.table("readings", isolation=isolation).count() == n.count(isolation)
    assert sum(row.n for row in n.warmest.collect()) == 40 + 30


def after_cell_13(n: Any) -> None:
    assert [(status, records) for _, status, _, records in n.transactions()] == [
        ("committed", 40),
        ("aborted", 25),
        ("committed", 30),
        ("open", 20),
        ("committed", 35),
    ]


def after_cell_15(n: Any) -> None:
    assert n.count("read_committed") == 40 + 30 + 35
    assert n.offsets.last_stable_offset == n.offsets.log_end


def after_cell_17(n: Any) -> None:
    assert n.table("readings").count() == 40 + 30 + 35 + 1000
    assert n.table("readings").where("sensor LIKE 'spark-%'").count() == 1000
