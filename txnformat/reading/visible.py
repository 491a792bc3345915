"""Offsets of a partition that hold a record which a committed reader sees, and the range that an acknowledgement of one covers.

Below the last stable offset that never changes, so it is found out once, from metadata alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from txnformat.core.ranges import NO_RANGES, Ranges
from txnformat.core.state import LogState
from txnformat.core.subscriptions.backlog import covering
from txnformat.errors import NotFoundError
from txnformat.reading.plan import plan_range
from txnformat.reading.sealed import SidecarCache
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["Visible"]

Int64s = NDArray[np.int64]


class Visible:
    """Visible records of one partition, from a subscription's mark on.

    Markers and aborted records lie between them. An acknowledgement of a record covers what lies between it and the
    visible record before it, too: so acknowledgements that follow each other are one range.
    """

    def __init__(self, key: TopicPartition) -> None:
        self._key = key
        self._from = 0
        self._to = 0
        self._offsets = NO_RANGES

    def follow(self, sidecars: SidecarCache, state: LogState, start: int) -> Ranges:
        """Return the visible offsets from ``start`` (inclusive) to the last stable offset.

        Requests: 1 GET for each sealed segment and batch table that was not looked at before.
        """
        partition = state.partition(self._key)
        end = max(start, partition.last_stable_offset)
        if start < self._from or start > self._to:
            self._from, self._to, self._offsets = start, start, NO_RANGES
        if end > self._to:
            plan = plan_range(sidecars, state, self._key, OffsetRange(self._to, end))
            rows = plan.partitions[0].rows
            more = Ranges.between(rows["base_offset"], rows["base_offset"] + rows["take"])
            self._offsets, self._to = self._offsets | more, end
        if start > self._from:  # what is acknowledged need not be kept
            self._from, self._offsets = start, self._offsets.above(start)
        return self._offsets

    def spans(self, offsets: Int64s, acknowledged: Ranges, names: dict[str, Any]) -> Ranges:
        """Return what acknowledging these records covers; :meth:`follow` comes first.

        ``offsets``: at or above the start that was followed from, ascending, none twice. ``acknowledged``: what is
        acknowledged already. ``names``: for the error. Raises NotFoundError: kind ``unknown-record``: there is no visible record
        at one of them.
        """
        missing = offsets[~self._offsets.holds(offsets)]
        if len(missing):
            raise NotFoundError(
                "there is no record at this offset: it is of a marker, or of an aborted transaction",
                kind="unknown-record",
                hint="acknowledge records that were received",
                offset=int(missing[0]),
                **names,
            )
        return covering(offsets, self._offsets, acknowledged, since=self._from)
