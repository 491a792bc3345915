"""Metadata columns of planned batches: what the log says of each record, besides its row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat.persistent import Rows
from txnformat.reading.pruning import PLAN_FIELDS

__all__ = ["UTC", "PlannedColumns"]

UTC = pa.timestamp("us", tz="UTC")


class PlannedColumns:
    """Metadata columns of the records that planned rows of appended batches take, one batch after the other.

    ``timestamp_column``: the topic's; None: records have the log time of their append. ``names``: of the
    wanted columns.
    """

    def __init__(
        self, topic: str, partition: int, timestamp_column: str | None, rows: Rows, names: Sequence[str]
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._timestamp_column = timestamp_column
        self._rows = rows
        self._names = names
        self.ends = np.cumsum(rows["take"])
        """Records up to the end of each batch."""
        self._last: dict[str, tuple[Any, pa.Array]] = {}
        """Columns of one value, and that value."""

    def of(self, start: int, end: int, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of the records from number ``start`` (inclusive) to ``end`` (exclusive);
        ``own``: their column of timestamps.
        """
        if not self._names:
            return {}
        first, last = 0, 1
        if len(self.ends) > 1:
            first = int(np.searchsorted(self.ends, start, side="right"))
            last = int(np.searchsorted(self.ends, end, side="left")) + 1
        rows = self._rows[first:last]
        counts = np.diff(np.minimum(self.ends[first:last], end), prepend=start)
        return {name: self._column(name, rows, counts, first, start, own) for name in self._names}

    def _column(
        self, name: str, rows: Rows, counts: Rows, first: int, start: int, own: Mapping[str, Any]
    ) -> Any:
        count = int(counts.sum())
        if name == "_topic":
            return self._same(name, self._topic, pa.string(), count)
        if name == "_partition":
            return self._same(name, self._partition, pa.int32(), count)
        if name == "_offset":
            bases = rows["base_offset"] - (self.ends[first : first + len(rows)] - rows["take"])
            if (bases == bases[0]).all():  # no offset between them is missing
                return pa.array(np.arange(bases[0] + start, bases[0] + start + count))
            return pa.array(np.repeat(bases, counts) + np.arange(start, start + count))
        if name == "_timestamp" and self._timestamp_column is not None:
            return own[self._timestamp_column].cast(UTC)
        is_time = name == "_timestamp"
        numbers = rows["timestamp_ms"] * 1_000 if is_time else rows[PLAN_FIELDS[name]]
        type_ = UTC if is_time else pa.int64()
        nothing = np.zeros(len(numbers), bool) if is_time else numbers < 0
        value = int(numbers[0])
        if len(numbers) == 1 or (numbers == value).all():
            return self._same(name, None if nothing[0] else value, type_, count)
        mask = np.repeat(nothing, counts) if nothing.any() else None
        return pa.array(np.repeat(numbers, counts), mask=mask).view(type_)

    def _same(self, name: str, value: Any, type_: pa.DataType, count: int) -> pa.Array:
        """Return a column of one value: part of the last one, if that had the same value and is as long."""
        known = self._last.get(name)
        if known is None or known[0] != value or len(known[1]) < count:
            known = self._last[name] = (value, pa.repeat(pa.scalar(value, type_), count))
        return known[1].slice(0, count)
