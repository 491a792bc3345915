"""A seeded stream of changes, after the shop of TPC-C: orders with lines, payments, and what each customer
has paid in all.

Pure.

A transaction of the shop changes both tables, so that they agree after each one:

* a payment has its order, and the payments of an order come to the total of its newest version;
* the newest balance of a customer is the total of the customer's orders.

Some transactions amend an order that is there. Some are rolled back, and their numbers of orders are given
out again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

__all__ = ["ORDERS", "PAYMENTS", "Change", "changes", "expected"]

_LINE = pa.struct([("item", pa.int32()), ("quantity", pa.int32()), ("price", pa.int64())])
ORDERS = pa.schema(
    [
        ("order_id", pa.int64()),
        ("version", pa.int32()),
        ("customer", pa.int32()),
        ("lines", pa.list_(_LINE)),
        ("cents", pa.int64()),
        ("source", pa.int64()),
    ]
)
"""A row for each version of an order. ``cents``: the sum of quantity · price over the lines; ``source``: the
number of the shop's transaction."""
PAYMENTS = pa.schema(
    [
        ("payment_id", pa.int64()),
        ("order_id", pa.int64()),
        ("customer", pa.int32()),
        ("cents", pa.int64()),
        ("balance", pa.int64()),
        ("source", pa.int64()),
    ]
)
"""``cents`` is below 0 where an amended order became cheaper; ``balance``: all that the customer has paid,
this payment included."""

CUSTOMERS = 40
ITEMS = 1_000
ROLLED_BACK = 1 / 8
"""Share of the transactions that the shop rolls back."""
AMENDED = 1 / 4
"""Share of the transactions that amend an order, where there is one."""


@dataclass(frozen=True, slots=True)
class Change:
    """A transaction of the shop."""

    number: int
    """From 1."""
    orders: tuple[dict[str, Any], ...]
    payments: tuple[dict[str, Any], ...]
    rolled_back: bool


@dataclass(slots=True)
class _Shop:
    """The shop's own tables."""

    orders: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The newest version of each order, by its number."""
    balances: dict[int, int] = field(default_factory=dict)
    payments: int = 0


def changes(seed: int, count: int) -> Iterator[Change]:
    """Yield ``count`` transactions: the same ones for the same seed, in the order in which the shop has made
    them.
    """
    draws = random.Random(seed)
    shop = _Shop()
    for number in range(1, count + 1):
        amends = bool(shop.orders) and draws.random() < AMENDED
        orders = (
            [_amended(draws, shop, number)]
            if amends
            else [_placed(draws, len(shop.orders) + more, number) for more in range(draws.randint(1, 5))]
        )
        payments = _paid(draws, shop, orders, number)
        rolled_back = draws.random() < ROLLED_BACK
        if not rolled_back:
            shop.orders.update((one["order_id"], one) for one in orders)
            shop.balances.update((one["customer"], one["balance"]) for one in payments)
            shop.payments += len(payments)
        yield Change(number, tuple(orders), tuple(payments), rolled_back)


def expected(seed: int, count: int) -> tuple[pa.Table, pa.Table]:
    """Return orders and payments, rows of all transactions that were not rolled back, in their order."""
    kept = [one for one in changes(seed, count) if not one.rolled_back]
    return (
        pa.Table.from_pylist([row for one in kept for row in one.orders], ORDERS),
        pa.Table.from_pylist([row for one in kept for row in one.payments], PAYMENTS),
    )


def _placed(draws: random.Random, order_id: int, number: int) -> dict[str, Any]:
    lines = [
        {
            "item": draws.randrange(ITEMS),
            "quantity": draws.randint(1, 10),
            "price": draws.randint(100, 10_000),
        }
        for _ in range(draws.randint(5, 15))
    ]
    customer = draws.randrange(CUSTOMERS)
    return _order(order_id, 1, customer, lines, number)


def _amended(draws: random.Random, shop: _Shop, number: int) -> dict[str, Any]:
    """Return the next version of some order: one line has another quantity."""
    old = shop.orders[draws.randrange(len(shop.orders))]
    lines = [dict(line) for line in old["lines"]]
    line = draws.choice(lines)
    line["quantity"] += draws.choice((-1, 1)) if line["quantity"] > 1 else 1
    return _order(old["order_id"], old["version"] + 1, old["customer"], lines, number)


def _order(
    order_id: int, version: int, customer: int, lines: list[dict[str, Any]], number: int
) -> dict[str, Any]:
    cents = sum(line["quantity"] * line["price"] for line in lines)
    return {
        "order_id": order_id,
        "version": version,
        "customer": customer,
        "lines": lines,
        "cents": cents,
        "source": number,
    }


def _paid(
    draws: random.Random, shop: _Shop, orders: list[dict[str, Any]], number: int
) -> list[dict[str, Any]]:
    """Return payments of all that the orders cost more than before; some orders are paid in two parts."""
    balances = dict(shop.balances)
    found: list[dict[str, Any]] = []
    for order in orders:
        before = shop.orders.get(order["order_id"])
        due = order["cents"] - (0 if before is None else before["cents"])
        first = due // 2 if draws.random() < 0.5 else due
        for cents in (first, due - first) if first != due else (due,):
            customer = order["customer"]
            balances[customer] = balances.get(customer, 0) + cents
            found.append(
                {
                    "payment_id": shop.payments + len(found),
                    "order_id": order["order_id"],
                    "customer": customer,
                    "cents": cents,
                    "balance": balances[customer],
                    "source": number,
                }
            )
    return found
