"""Checks of `notebooks/04_consumers.ipynb`: each function runs after the cell that it is named after, on the
notebook's names."""

from __future__ import annotations

from typing import Any


def after_cell_05(n: Any) -> None:
    assert sum(n.first.lag().values()) == n.log.groups.describe("billing").lag == 75


def after_cell_07(n: Any) -> None:
    assert n.log.groups.describe("billing").lag == 50
    assert n.log.read("totals").read_all().num_rows == 2  # nothing of the broken step


def after_cell_09(n: Any) -> None:
    assert sum(n.second.lag().values()) == 0
    assert sum(n.totals["orders"].to_pylist()) == 130  # each order once
    assert {row["worker"] for row in n.totals.to_pylist()[2:]} == {
        "second"
    }  # the fenced one wrote nothing more


def after_cell_11(n: Any) -> None:
    assert n.history[-1] == (130, 130)
    assert all(results <= orders for orders, results in n.history)
    assert n.history == sorted(n.history)
    assert sum(n.log.read("totals", version_as_of=n.halfway).read_all()["orders"].to_pylist()) == 50


def after_cell_13(n: Any) -> None:
    assert len(n.axes.lines) == 2


def after_cell_15(n: Any) -> None:
    assert n.mine.equals(n.theirs)  # nothing is reserved
    assert n.log.subscriptions.describe("orders", "packing").unacknowledged == 120  # packed once
