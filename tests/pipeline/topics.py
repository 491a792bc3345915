"""The topics of the pipeline: ``orders`` is read, ``even`` and ``odd`` are written."""

from __future__ import annotations

import pyarrow as pa

from tests.chaos.origin import TOPIC_SCHEMA

__all__ = ["ORDERS", "ORDERS_SCHEMA", "ROUTED_DDL", "ROUTED_SCHEMA", "SIDES", "SIDE_SCHEMA", "side_of"]

ORDERS = "orders"
SIDES = ("even", "odd")

ORDERS_SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.string())])  # n: no two records have the same

_MADE = pa.schema([("part", pa.int64()), ("at", pa.int64()), ("doubled", pa.int64())])
_ORIGIN = [field for field in TOPIC_SCHEMA if field.name not in ORDERS_SCHEMA.names]
SIDE_SCHEMA = pa.schema([*ORDERS_SCHEMA, *_MADE, *_ORIGIN])
"""``part`` and ``at``: partition and offset of the record in ``orders``; then which attempt of which task
made it."""

ROUTED_SCHEMA = pa.schema([*ORDERS_SCHEMA, *_MADE, ("topic", pa.string()), *_ORIGIN])
"""As rows are handed to the sink."""
ROUTED_DDL = ", ".join(
    f"{field.name} {'string' if field.type == pa.string() else 'long'}" for field in ROUTED_SCHEMA
)


def side_of(n: int) -> str:
    """Return the topic to which a record goes."""
    return SIDES[n % 2]
