"""A system as the demo uses it: two tables, a transaction of the shop applied to both, and ways to read the
two.

A writer that was killed goes on behind what is there, and writes nothing twice, in either system.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import pyarrow as pa

from demo.cdc.changes import ORDERS, PAYMENTS, Change
from demo.cdc.checking import ORDER_COLUMNS, PAYMENT_COLUMNS

__all__ = ["COLUMNS", "SCHEMAS", "SYSTEMS", "Both", "System", "Way", "both", "opened"]

Both = tuple[pa.Table, pa.Table]
"""Orders and payments."""
Way = Callable[[bool], Both]
"""Reads orders and payments; the argument: orders first."""
SYSTEMS: Mapping[str, str] = {"delta": "Delta (deltalake)", "txnlog": "txnlog"}
"""The systems, and what people call them."""
SCHEMAS = {"orders": ORDERS, "payments": PAYMENTS}
COLUMNS = {"orders": list(ORDER_COLUMNS), "payments": list(PAYMENT_COLUMNS)}
"""The columns that a join reads."""


class System(ABC):
    """Orders and payments in one of the systems."""

    @abstractmethod
    def done(self) -> int:
        """Return the number of the shop's last transaction that both tables have; 0: none.

        Makes ready to write.
        """

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


def opened(system: str, path: str) -> System:
    """Return a system, with empty tables if it has none.

    Imports what that system needs, and nothing of the other one.
    """
    if system == "delta":
        from demo.cdc.delta import Delta

        return Delta(path)
    from demo.cdc.topics import Topics

    return Topics(path)


def both(read: Callable[[str], pa.Table], orders_first: bool) -> Both:
    """Read both tables in an order; return orders and payments."""
    names = ("orders", "payments") if orders_first else ("payments", "orders")
    found = {name: read(name) for name in names}
    return found["orders"], found["payments"]
