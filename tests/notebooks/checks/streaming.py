"""Checks of `notebooks/03_streaming.ipynb`: each function runs after the cell that it is named after, on the
notebook's names."""

from __future__ import annotations

from typing import Any


def after_cell_03(n: Any) -> None:
    assert n.log.read("payments").read_all().num_rows == 800


def after_cell_05(n: Any) -> None:
    assert n.ids("receipts") == list(range(800))


def after_cell_07(n: Any) -> None:
    assert n.ids("receipts") == list(range(1200))
    assert n.log.refresh().entry == n.entries


def after_cell_09(n: Any) -> None:
    assert n.held_back == (1200, 1300)
    assert n.ids("receipts") == n.ids("receipts_by_commit") == [*range(1300), *range(5_000, 5_040)]


def after_cell_11(n: Any) -> None:
    assert sum(n.rows) == 1340
    assert n.lag[-1] == 0
    assert not n.query.isActive
