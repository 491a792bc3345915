"""Checks of `notebooks/05_consistent_joins.ipynb`: each function runs after the cell that it is named after,
on the notebook's names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def after_cell_05(n: Any) -> None:
    orders, payments = (pa.Table.from_pylist(rows) for rows in n.transaction(1))
    assert n.wrong(orders, payments) == 0
    assert n.wrong(orders.slice(1), payments) == 1  # payments without an order
    assert n.wrong(orders, payments.slice(1)) == 1
    assert n.wrong(pa.concat_tables([orders, orders]), payments) == len(orders)


def after_cell_11(n: Any) -> None:
    """How many joins of Delta's tables are torn depends on the machine."""
    for joins, kills in n.seen.values():
        assert len(kills) == 4
        assert len(joins) >= 4 * (12 + 3)
    _, (joins, _) = n.seen.values()
    assert not sum(number for _, number in joins)


def after_cell_15(n: Any) -> None:
    assert n.found == n.expected
    assert len(n.found) >= 100
    assert n.wrong(n.orders, n.payments) == 0
