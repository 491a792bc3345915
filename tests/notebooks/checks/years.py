"""Checks of `notebooks/06_years.ipynb`: each function runs after the cell that it is named after, on the
notebook's names."""

from __future__ import annotations

from typing import Any


def after_cell_09(n: Any) -> None:
    assert n.report.removed
    assert {one.topic for one in n.report.compacted} == {"events", "prices"}
    assert n.before > len(n.prices) == 4


def after_cell_11(n: Any) -> None:
    assert n.steps["maintained"]["data files"] > n.steps["written"]["data files"]
    assert n.steps["vacuumed"]["data files"] < n.steps["written"]["data files"] / 2


def after_cell_13(n: Any) -> None:
    assert n.log.read("prices").read_all().to_pylist() == n.prices
    assert min(n.days) > 0
    assert n.log.verify(deep=True).ok
