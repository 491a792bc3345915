"""The reader: joins orders and payments again and again, each way of a system in turn, until its stdin is
closed.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from collections.abc import Iterator

import msgspec

from demo.cdc.checking import Join, join
from demo.cdc.systems import opened

__all__ = ["Read", "read"]


class Read(msgspec.Struct, frozen=True):
    """A join, and when it was made."""

    way: str
    began: float
    """Seconds of the machine's monotonic clock, as is ``ended``."""
    ended: float
    found: Join


def read(system: str, path: str, seed: int) -> Iterator[Read]:
    """Yield joins without an end. ``seed``: says which table is opened first."""
    draws = random.Random(seed)
    ways = opened(system, path).ways
    while True:
        for name, way in ways.items():
            orders_first = draws.random() < 0.5
            began = time.monotonic()
            tables = way(orders_first)
            yield Read(name, began, time.monotonic(), join(*tables))


def _main(system: str, path: str, seed: int) -> None:
    for one in read(system, path, seed):
        sys.stdout.buffer.write(msgspec.json.encode(one) + b"\n")
        if select.select([sys.stdin], [], [], 0)[0]:
            return


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    sys.stdout.flush()
    # Threads of deltalake now and then end a process that takes itself apart: "terminate called without an
    # active exception".
    os._exit(0)
