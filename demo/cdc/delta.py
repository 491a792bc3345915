"""Orders and payments in Delta: two tables."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from demo.cdc.changes import Change
from demo.cdc.systems import COLUMNS, SCHEMAS, Both, System, Way, both

__all__ = ["Delta"]


class Delta(System):
    """Two tables, each with a commit of its own: Delta has no transaction over tables.

    The writer keeps a transaction until it knows that the shop does not roll it back. Each commit has the
    number of the shop's transaction as Delta's application version, so that a restarted writer repeats in
    each table what that table lacks.
    """

    APP = "shop"

    def __init__(self, path: str) -> None:
        self._paths = {name: f"{path}/{name}" for name in SCHEMAS}
        for name, schema in SCHEMAS.items():
            DeltaTable.create(self._paths[name], schema, mode="ignore")
        self._tables: dict[str, DeltaTable] = {}

    def done(self) -> int:
        """Open both tables, and look how far they are."""
        self._tables = {name: DeltaTable(path) for name, path in self._paths.items()}
        return min(_version(table) for table in self._tables.values())

    def apply(self, change: Change) -> None:
        """Commit the orders, then the payments."""
        if change.rolled_back:
            return
        for name, rows in (("orders", change.orders), ("payments", change.payments)):
            table = self._tables[name]
            if _version(table) < change.number:
                write_deltalake(
                    table,
                    pa.Table.from_pylist(list(rows), SCHEMAS[name]),
                    mode="append",
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(self.APP, change.number)]
                    ),
                )

    @property
    def ways(self) -> Mapping[str, Way]:
        """By opening both tables, or by opening the versions of both that have the same transactions of the
        shop.
        """
        return {"newest versions": self._newest, "versions matched by hand": self._matched}

    def _newest(self, orders_first: bool) -> Both:
        """Read each table as it is, as a query that names two tables does."""
        return both(
            lambda name: DeltaTable(self._paths[name]).to_pyarrow_table(columns=COLUMNS[name]), orders_first
        )

    def _matched(self, orders_first: bool) -> Both:
        """Take both tables back to the last transaction of the shop that both have.

        It works for one writer whose every transaction changes both tables, and for readers that know the
        name of its application.
        """
        opened: dict[str, DeltaTable] = {}
        for name in ("orders", "payments") if orders_first else ("payments", "orders"):
            opened[name] = DeltaTable(self._paths[name])
        orders, payments = opened["orders"], opened["payments"]
        while (left := _version(orders)) != (right := _version(payments)):
            ahead = orders if left > right else payments
            ahead.load_as_version(ahead.version() - 1)
        return both(lambda name: opened[name].to_pyarrow_table(columns=COLUMNS[name]), orders_first)

    def everything(self) -> Both:
        """Read both tables."""
        return both(lambda name: DeltaTable(self._paths[name]).to_pyarrow_table(), orders_first=True)


def _version(table: DeltaTable) -> int:
    """Return the number of the shop's last transaction that a version of a table has; 0: none."""
    return table.transaction_version(Delta.APP) or 0
