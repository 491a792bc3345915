"""The writer: applies the shop's transactions to a system, and says on stdout which one it begins and which
one is done.

It may be killed at any time.
"""

from __future__ import annotations

import sys
import time

from demo.cdc.changes import changes
from demo.cdc.systems import opened

__all__ = ["write"]


def write(system: str, path: str, seed: int, count: int, rate: float) -> None:
    """Go on where the last writer stopped, to the end. ``rate``: transactions a second at most."""
    target = opened(system, path)
    done = target.done()
    for change in changes(seed, count):
        if change.number <= done:
            continue
        began = time.monotonic()
        print(f"begun {change.number}", flush=True)
        target.apply(change)
        print(f"done {change.number}", flush=True)
        time.sleep(max(0.0, began + 1 / rate - time.monotonic()))


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
