"""How much of a backlog one micro-batch takes, in offset order. Pure.

As Kafka's source does, every partition gives its share of the backlog: partitions that lag for the same time
are read to the same time, so no watermark runs ahead of the records of a larger partition. Here the limit is
exact, and no partition with a backlog is left out as long as the limit has a record for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Available", "granted"]


class Available(NamedTuple):
    """The unread offsets of a partition."""

    offsets: npt.NDArray[np.int64]
    """Ascending, from the next offset to the end: where the number of bytes is known."""
    size: npt.NDArray[np.int64]
    """Compressed bytes from the first of the offsets up to each."""

    @property
    def lag(self) -> int:
        """Offsets."""
        return int(self.offsets[-1] - self.offsets[0])


def granted(backlogs: Sequence[Available], rows_max: int | None, bytes_max: int | None) -> list[int]:
    """Return how many offsets a micro-batch takes of each partition: some, when there are any.

    ``rows_max``: offsets at most, 1 or more. Records are no more than that: aborted ones and markers have
    offsets, too. ``bytes_max``: compressed bytes at most, about, 1 or more; one record at least comes
    whatever its size.
    """
    lags = [backlog.lag for backlog in backlogs]
    by_rows = lags if rows_max is None else _shares(lags, rows_max)
    if bytes_max is None:
        return by_rows
    sizes = [max(1, int(backlog.size[-1])) if backlog.lag else 0 for backlog in backlogs]
    found = [
        min(rows, _offsets(backlog, size))
        for rows, backlog, size in zip(by_rows, backlogs, _shares(sizes, bytes_max), strict=True)
    ]
    if not any(found) and any(by_rows):
        found[int(np.argmax(by_rows))] = 1
    return found


def _shares(amounts: Sequence[int], limit: int) -> list[int]:
    """Return of each amount its share of ``limit``: all of them together exactly that, or everything.

    At least 1 of each that is more than 0, or, where there are more of those than the limit, 1 of the largest
    ones.
    """
    total = sum(amounts)
    if total <= limit:
        return list(amounts)
    order = sorted((index for index in range(len(amounts)) if amounts[index]), key=lambda at: -amounts[at])
    shares = [0] * len(amounts)
    for index in order[:limit]:
        shares[index] = 1
    left, rest = limit - len(order), total - len(order)
    if left <= 0:
        return shares
    for index in order:
        shares[index] += left * (amounts[index] - 1) // rest
    missing = limit - sum(shares)
    for index in sorted(order, key=lambda at: -(left * (amounts[at] - 1) % rest))[:missing]:
        shares[index] += 1
    return shares


def _offsets(backlog: Available, size: int) -> int:
    """Return how many offsets have about ``size`` bytes, at least 1 of those that there are."""
    if not backlog.lag or not size:
        return 0
    place = np.interp(size, backlog.size, backlog.offsets) if backlog.size[-1] > size else backlog.offsets[-1]
    return max(1, int(place) - int(backlog.offsets[0]))
