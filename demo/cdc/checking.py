"""Says whether orders and payments that were read together agree.

Pure; it knows the shop's rules and nothing of the systems.

A join is *torn* when the rows that were read break one of the rules that hold after every transaction of the
shop: a payment has its order; the payments of an order come to the total of its newest version; the newest
balance of a customer is the total of the customer's orders.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pyarrow as pa

__all__ = ["ORDER_COLUMNS", "PAYMENT_COLUMNS", "Join", "join"]

ORDER_COLUMNS = ("order_id", "version", "customer", "cents")
PAYMENT_COLUMNS = ("payment_id", "order_id", "customer", "cents", "balance")
"""The columns that a join reads."""


class Join(NamedTuple):
    """A join of orders and payments."""

    orders: int
    """Orders that were read."""
    difference: int
    """Cents: the totals of all orders, less all payments."""
    orphans: int
    """Payments without an order."""
    unpaid: int
    """Orders whose payments do not come to their total."""
    balances: int
    """Customers whose balance is not the total of their orders."""

    @property
    def is_torn(self) -> bool:
        """Whether a rule is broken."""
        return bool(self.orphans or self.unpaid or self.balances)


def join(orders: pa.Table, payments: pa.Table) -> Join:
    """Join what was read. Rows are in any order; ``orders`` has all versions."""
    newest: dict[int, tuple[int, int, int]] = {}
    for order, version, customer, cents in _rows(orders, ORDER_COLUMNS):
        newest[order] = max(newest.get(order, (0, 0, 0)), (version, customer, cents))
    paid: dict[int, int] = defaultdict(int)
    balances: dict[int, tuple[int, int]] = {}
    orphans = 0
    for payment, order, customer, cents, balance in _rows(payments, PAYMENT_COLUMNS):
        paid[order] += cents
        balances[customer] = max(balances.get(customer, (-1, 0)), (payment, balance))
        orphans += order not in newest
    owed: dict[int, int] = defaultdict(int)
    for _, customer, cents in newest.values():
        owed[customer] += cents
    return Join(
        orders=len(newest),
        difference=sum(owed.values()) - sum(paid.values()),
        orphans=orphans,
        unpaid=sum(paid.get(order, 0) != cents for order, (_, _, cents) in newest.items()),
        balances=sum(
            owed.get(customer, 0) != balances.get(customer, (0, 0))[1] for customer in owed | balances
        ),
    )


def _rows(table: pa.Table, columns: tuple[str, ...]) -> zip[tuple[int, ...]]:
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
