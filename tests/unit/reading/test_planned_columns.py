"""Metadata columns of planned batches, against a list of the records one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.records.scan import PLANNED
from txnformat.persistent import Rows
from txnformat.reading.planned_columns import PlannedColumns
from txnformat.reading.rows import METADATA_FIELDS

NUMBERS = st.integers(-1, 2)
BATCHES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(-5, 2), NUMBERS, NUMBERS),
    min_size=1,
    max_size=6,
)
"""Records, offsets that are missing before them, log time, entry of the commit, and producer."""


def _plan(batches: list[tuple[int, int, int, int, int]]) -> tuple[Rows, list[tuple[object, ...]]]:
    rows: Rows = np.zeros(len(batches), PLANNED)
    records: list[tuple[object, ...]] = []
    offset = 7
    for row, (take, gap, time, commit, producer) in zip(rows, batches, strict=True):
        offset += gap
        row["base_offset"], row["take"], row["timestamp_ms"] = offset, take, time
        row["entry"], row["commit_entry"], row["producer_id"], row["epoch"] = 3, commit, producer, 4
        known = [None if number < 0 else number for number in (producer, commit)]
        records += [("t", 5, offset + place, time, known[0], 4, 3, known[1]) for place in range(take)]
        offset += take
    return rows, records


@given(BATCHES, st.lists(st.integers(1, 6), min_size=40, max_size=40))
def test_each_record_has_what_its_batch_says(
    batches: list[tuple[int, int, int, int, int]], pieces: list[int]
) -> None:
    rows, records = _plan(batches)
    planned = PlannedColumns("t", 5, None, rows, list(METADATA_FIELDS))
    assert planned.ends[-1] == len(records)
    found: list[tuple[object, ...]] = []
    while len(found) < len(records):
        end = min(len(found) + pieces.pop(), len(records))
        columns = planned.of(len(found), end, {})
        assert {name: column.type for name, column in columns.items()} == {
            name: field.type for name, field in METADATA_FIELDS.items()
        }
        numbers = [
            columns["_timestamp"].cast(pa.int64()) if name == "_timestamp" else columns[name]
            for name in columns
        ]
        found += zip(*(column.to_pylist() for column in numbers), strict=True)
    wanted = dict.fromkeys(METADATA_FIELDS)
    order = [
        "_topic",
        "_partition",
        "_offset",
        "_timestamp",
        "_producer_id",
        "_producer_epoch",
        "_entry",
        "_commit_entry",
    ]
    assert list(wanted) == order
    assert found == [(*one[:3], one[3] * 1_000, *one[4:]) for one in records]  # type: ignore[operator]


def test_a_column_of_timestamps_is_taken_from_the_rows() -> None:
    rows, _ = _plan([(2, 0, 9, 1, 1), (1, 0, 9, 1, 1)])
    planned = PlannedColumns("t", 0, "at", rows, ["_timestamp"])
    own = pa.array([1, None], pa.timestamp("ms"))
    assert planned.of(1, 3, {"at": own})["_timestamp"].cast(pa.int64()).to_pylist() == [1_000, None]


@pytest.mark.parametrize("names", [[], ["_offset"]])
def test_only_what_is_asked_for(names: list[str]) -> None:
    rows, _ = _plan([(2, 0, 9, 1, 1)])
    assert list(PlannedColumns("t", 0, None, rows, names).of(0, 2, {})) == names
