"""The columns of a compacted file compared with the runs that the log names. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from txnformat.verify.references import STORED_RUN, FileUse
from txnformat.verify.report import ProblemKind, Record

__all__ = ["StoredRuns"]

REPORT = "run no writer on this log before its cause is known, and please report it"


class StoredRuns:
    """Looks at the rows of a compacted file, in order; of other files, and of rows that no run names, it
    looks at nothing.

    ``counts``: rows of each row group.
    """

    def __init__(self, use: FileUse, counts: Sequence[int]) -> None:
        self._key = use.record.key
        self._runs: Iterator[tuple[int, tuple[int, ...]]] = iter(sorted(use.runs.items()))
        self._is_there = bool(use.runs)
        self._begins = [0, *accumulate(counts)]
        self._begin_row = 0
        self._row = 0
        self._expected: dict[str, int] = {}
        self._got: dict[str, int] = {}
        self._last = -1
        self._problems: list[tuple[str, object, object]] = []

    def look(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows."""
        while self._is_there and batch.num_rows:
            if not self._expected and not self._begin():
                return
            if self._row < self._begin_row:
                passed = min(batch.num_rows, self._begin_row - self._row)
                self._row += passed
                batch = batch.slice(passed)
                continue
            part = batch.slice(0, self._expected["records"] - self._got["records"])
            self._row += part.num_rows
            batch = batch.slice(part.num_rows)
            self._add(part)
            if self._got["records"] == self._expected["records"]:
                self._end()

    def _begin(self) -> bool:
        found = next(self._runs, None)
        if found is None:  # no run of this log has the rest
            self._is_there = False
            return False
        self._expected = dict(zip(STORED_RUN, found[1], strict=True))
        self._got = {"records": 0}
        self._begin_row = self._begins[min(found[0], len(self._begins) - 1)]
        self._last = -1
        return True

    def _add(self, part: pa.RecordBatch) -> None:
        self._got["records"] += part.num_rows
        columns: dict[str, Any] = {}
        for name in ("_partition", "_offset", "_entry", "_commit_entry"):
            column = part.column(name)
            if column.null_count:
                self._problems.append((f"{name} is null in a run", 0, column.null_count))
                column = column.fill_null(-1)
            columns[name] = column.to_numpy()
        offsets = columns["_offset"]
        if np.any(np.diff(offsets, prepend=self._last) <= 0):
            self._problems.append(("offsets of a run do not ascend", "ascending", offsets[:5].tolist()))
        self._last = int(offsets[-1])
        partitions = np.unique(columns["_partition"]).tolist()
        if partitions != [self._expected["partition"]]:
            self._problems.append(
                ("a run has records of other partitions", self._expected["partition"], partitions[:5])
            )
        self._got.setdefault("start_offset", int(offsets[0]))
        self._got["end_offset"] = int(offsets[-1]) + 1
        for name in ("entry", "commit_entry"):
            values = columns[f"_{name}"]
            for bound, choose in (("min", min), ("max", max)):
                here = int(choose(values.min(), values.max()))
                known = self._got.get(f"{bound}_{name}", here)
                self._got[f"{bound}_{name}"] = choose(known, here)

    def _end(self) -> None:
        expected = {name: value for name, value in self._expected.items() if name != "partition"}
        got = {name: self._got[name] for name in expected}
        if expected != got:
            self._problems.append(("a run differs from what the log says of it", expected, got))
        self._expected = {}

    def report(self, record: Record) -> None:
        """Note what was found."""
        for what, expected, got in self._problems[:10]:
            record.add(ProblemKind.BATCHES, self._key, what, expected, got, REPORT)
