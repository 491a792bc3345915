"""Figures of subscriptions over readable records, and what an acknowledgement covers. Pure.

Offsets of markers and of aborted records hold nothing that is read. Where records are, the caller says:
visible runs, ranges of consecutive offsets below the last stable offset, which never change. See the
specification, section 5.11.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.subscriptions.state import PartitionAcks

__all__ = ["BacklogCounts", "backlog_of", "covering"]


class BacklogCounts(NamedTuple):
    """Records of a partition that a subscription has not acknowledged."""

    records: int
    """All of them, the pending ones included."""
    pending: int
    """The number of them acknowledged by a transaction that has not ended."""


def backlog_of(acks: PartitionAcks, visible: Ranges) -> BacklogCounts:
    """Return how many visible records are not acknowledged; ``visible``: at least all from the mark on and
    below the last stable offset.
    """
    wanted = visible.above(acks.mark)
    return BacklogCounts(
        wanted.offsets() - acks.acked.common_offsets(wanted), acks.held().common_offsets(wanted)
    )


def covering(offsets: Iterable[int], visible: Ranges, acknowledged: Ranges, *, since: int = 0) -> Ranges:
    """Return what acknowledging the visible records at ``offsets`` individually has to cover.

    Each covers itself and the offsets after the visible record before it, but those that are acknowledged
    (:meth:`~txnformat.core.subscriptions.state.PartitionAcks.whole`): so what follows one another becomes one
    range. ``visible`` has at least all in [``since``, the last of ``offsets``]; gaps below ``since`` are not
    looked at.
    """
    records = np.unique(offsets if isinstance(offsets, np.ndarray) else np.fromiter(offsets, np.int64))
    if not len(records):
        return NO_RANGES
    run = np.searchsorted(visible.starts, records, side="right") - 1
    # The end of the run before; of a record that is not the first of its run the one before it is visible.
    before = np.concatenate(([since], visible.ends))[np.maximum(run, 0)]
    gap = np.where(visible.starts[np.maximum(run, 0)] == records, np.minimum(before, records), records)
    return (Ranges.between(gap, records) - acknowledged) | Ranges.between(records, records + 1)
