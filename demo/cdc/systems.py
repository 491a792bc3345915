"""Both systems as the demo uses them: two tables each, a transaction of the shop applied to both, and ways to read the two.

A writer that was killed goes on behind what is there, and writes nothing twice, in either system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from demo.cdc.changes import ORDERS, PAYMENTS, Change
from demo.cdc.checking import ORDER_COLUMNS, PAYMENT_COLUMNS
from txnlog import Producer, TxnLog

__all__ = ["SYSTEMS", "Both", "Delta", "System", "Txnlog"]

Both = tuple[pa.Table, pa.Table]
"""Orders and payments."""
Way = Callable[[bool], Both]
"""Reads orders and payments; the argument: orders first."""
SCHEMAS = {"orders": ORDERS, "payments": PAYMENTS}
COLUMNS = {"orders": list(ORDER_COLUMNS), "payments": list(PAYMENT_COLUMNS)}


class System(ABC):
    """Orders and payments in one of the systems."""

    @abstractmethod
    def done(self) -> int:
        """Return the number of the shop's last transaction that both tables have; 0: none. Makes ready to write."""

    @abstractmethod
    def apply(self, change: Change) -> None:
        """Write a transaction of the shop, or leave it out if the shop has rolled it back."""

    @property
    @abstractmethod
    def ways(self) -> Mapping[str, Way]:
        """The ways to read both tables, by name; the first one is the one that users meet first."""

    @abstractmethod
    def everything(self) -> Both:
        """Return both tables with all columns."""


class Txnlog(System):
    """Two topics. The rows of a transaction go into the log before it is decided, as Kafka's producers do it."""

    def __init__(self, path: str) -> None:
        self._log = TxnLog.open_or_create(path)
        for name, schema in SCHEMAS.items():
            self._log.create_topic(name, schema, exist_ok=True)
        self._producer: Producer | None = None

    def done(self) -> int:
        """Open the producer, which aborts what a killed one has left open, and look how far the topic is."""
        self._producer = Producer(self._log, "shop", buffer="inline")
        self._producer.init()
        numbers = self._log.read("orders", columns=["source"]).read_all()["source"]
        return pc.max(numbers).as_py() or 0

    def apply(self, change: Change) -> None:
        """Send the orders, let them go into the log, send the payments, and commit or abort."""
        producer = self._producer
        if producer is None:
            raise RuntimeError("call done() first")
        producer.begin()
        producer.send("orders", list(change.orders))
        producer.flush()
        producer.send("payments", list(change.payments))
        if change.rolled_back:
            producer.flush()
            producer.abort()
        else:
            producer.commit()

    @property
    def ways(self) -> Mapping[str, Way]:
        return {"one snapshot": self._snapshot, "two reads": self._two_reads}

    def _snapshot(self, orders_first: bool) -> Both:
        """Read both topics at one entry."""
        moment = self._log.snapshot()
        return _both(lambda name: moment.read(name, columns=COLUMNS[name]).read_all(), orders_first)

    def _two_reads(self, orders_first: bool) -> Both:
        """Read each topic as it is at that time: nothing makes these two one moment."""
        return _both(lambda name: self._log.read(name, columns=COLUMNS[name]).read_all(), orders_first)

    def everything(self) -> Both:
        moment = self._log.snapshot()
        return _both(lambda name: moment.read(name).read_all(), orders_first=True)


class Delta(System):
    """Two tables, each with a commit of its own: Delta has no transaction over tables.

    The writer keeps a transaction until it knows that the shop does not roll it back. Each commit has the number of the shop's transaction as
    Delta's application version, so that a restarted writer repeats in each table what that table lacks.
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
        return {"newest versions": self._newest, "versions matched by hand": self._matched}

    def _newest(self, orders_first: bool) -> Both:
        """Read each table as it is, as a query that names two tables does."""
        return _both(
            lambda name: DeltaTable(self._paths[name]).to_pyarrow_table(columns=COLUMNS[name]), orders_first
        )

    def _matched(self, orders_first: bool) -> Both:
        """Take both tables back to the last transaction of the shop that both have.

        It works for one writer whose every transaction changes both tables, and for readers that know the name of its application.
        """
        opened: dict[str, DeltaTable] = {}
        for name in ("orders", "payments") if orders_first else ("payments", "orders"):
            opened[name] = DeltaTable(self._paths[name])
        orders, payments = opened["orders"], opened["payments"]
        while (left := _version(orders)) != (right := _version(payments)):
            ahead = orders if left > right else payments
            ahead.load_as_version(ahead.version() - 1)
        return _both(lambda name: opened[name].to_pyarrow_table(columns=COLUMNS[name]), orders_first)

    def everything(self) -> Both:
        return _both(lambda name: DeltaTable(self._paths[name]).to_pyarrow_table(), orders_first=True)


SYSTEMS: dict[str, Callable[[str], System]] = {"delta": Delta, "txnlog": Txnlog}


def _version(table: DeltaTable) -> int:
    """Return the number of the shop's last transaction that a version of a table has; 0: none."""
    return table.transaction_version(Delta.APP) or 0


def _both(read: Callable[[str], Any], orders_first: bool) -> Both:
    """Read both tables in an order; return orders and payments."""
    names = ("orders", "payments") if orders_first else ("payments", "orders")
    found = {name: read(name) for name in names}
    return found["orders"], found["payments"]
