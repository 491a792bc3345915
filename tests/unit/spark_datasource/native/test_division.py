"""Dividing a plan: whole files natively, the rest by ranges; held against a look at every single row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_datasource.native.division import Reason, divide
from spark_datasource.native.ranges import clipped, clipped_sealed, spans_of
from txnformat.core.records.scan import PLANNED, PartitionPlan, Stored
from txnformat.persistent import Rows
from txnformat.reading.plan import SealedRange
from txnformat.types import FileRecord, ObjectRecord, OffsetRange

HASH = "0" * 64


def record(number: int, rows: int, size: int = 1000, key: str = "") -> FileRecord:
    """Return the record of a file."""
    return FileRecord(key or f"t-00000000/data/{number}.parquet", size, HASH, 8, HASH, rows)


def planned(*rows: tuple[int, int, int, int]) -> Rows:
    """Return planned rows of (base offset, rows, file, row group)."""
    found = np.zeros(len(rows), PLANNED)
    for place, (base, take, file, group) in enumerate(rows):
        found[place]["base_offset"], found[place]["end_offset"] = base, base + take
        found[place]["take"], found[place]["file"], found[place]["row_group"] = take, file, group
        found[place]["row_group_count"], found[place]["size"] = 1, 10 * take
    return found


def plan(number: int, rows: Rows) -> PartitionPlan:
    """Return the plan of a partition."""
    return PartitionPlan(number, OffsetRange(0, 10**6), rows)


def test_a_file_goes_natively_iff_all_of_its_rows_are_read() -> None:
    whole = plan(0, planned((0, 5, 1, 0), (5, 5, 1, 1)))
    files = {1: record(1, 10)}
    assert len(divide([whole], files, bytes_min=0).native) == 1
    for changed in (
        {1: record(1, 11)},  # rows that are no part of the log
        {1: record(1, 10, size=999)},
    ):
        found = divide([whole], changed, bytes_min=1000)
        assert found.native == ()
        assert found.rest == {0: (OffsetRange(0, 10),)}
    for name, value in (("skip", 1), ("row_group", 1), ("row_group", 3), ("stored", Stored.PART)):
        rows = whole.rows.copy()
        rows[name][-1 if name == "row_group" and value == 3 else 0] = value
        found = divide([plan(0, rows)], files, bytes_min=0)
        assert found.native == (), name
        assert list(found.reasons) == [Reason.PARTLY]


def test_a_file_of_several_partitions_is_whole_with_all_of_them() -> None:
    plans = [plan(0, planned((0, 5, 1, 0))), plan(1, planned((0, 5, 1, 1), (5, 5, 2, 0)))]
    files = {1: record(1, 10), 2: record(2, 10)}
    found = divide(plans, files, bytes_min=0)
    assert [one.record for one in found.native] == [files[1]]
    assert found.rest == {1: (OffsetRange(5, 10),)}
    assert divide(plans[:1], files, bytes_min=0).native == ()


def test_two_numbers_of_one_object_are_one_file() -> None:
    files = {1: record(1, 10, key="same"), 2: record(2, 10, key="same")}
    rows = planned((0, 5, 1, 0), (5, 5, 2, 1))
    assert len(divide([plan(0, rows)], files, bytes_min=0).native) == 1
    twice = planned((0, 10, 1, 0), (10, 10, 2, 0))
    assert divide([plan(0, twice)], files, bytes_min=0).native == ()


def test_rows_that_overlap_are_read_by_no_range() -> None:
    """No writer makes them; if one did, a range of the rest would give rows of a native file again."""
    rows = planned((0, 10, 1, 0), (5, 10, 2, 0))
    found = divide([plan(0, rows)], {1: record(1, 10), 2: record(2, 99)}, bytes_min=0)
    assert found.native == ()
    assert found.rest == {0: (OffsetRange(0, 15),)}


def test_embedded_rows_are_the_rest() -> None:
    key = "t-00000000/data/00000000000000000000-00000000-0000-4000-8000-000000000000.parquet@00000000000000000005+7"
    files = {1: record(1, 5, key=key)}
    assert files[1].place is not None
    found = divide([plan(0, planned((0, 5, 1, 0)))], files, bytes_min=0)
    assert list(found.reasons) == [Reason.EMBEDDED]


def test_too_many_ranges_push_the_smallest_files_to_the_rest() -> None:
    rows = planned(*((10 * n, 10, n, 0) for n in range(100)))
    files = {n: record(n, 10 if n % 2 else 99, size=1 + n) for n in range(100)}
    few = divide([plan(0, rows)], files, bytes_min=0, ranges_max=20)
    assert len(few.rest[0]) <= 20
    assert few.native
    assert min(one.record.size for one in few.native) > 50
    assert few.reasons[Reason.SCATTERED].files + few.native_amount.files == 50
    assert len(divide([plan(0, rows)], files, bytes_min=0, ranges_max=0).rest[0]) == 1


def test_what_the_caller_refuses_is_the_rest_with_its_reason() -> None:
    rows = planned((0, 10, 1, 0), (10, 10, 2, 0))
    files = {1: record(1, 10), 2: record(2, 10)}
    found = divide(
        [plan(0, rows)],
        files,
        bytes_min=0,
        refuse=lambda one: Reason.TYPE if one.record is files[2] else None,
    )
    assert found.native_amount.files == 1
    assert found.reasons[Reason.TYPE] == (1, 10, 100)


def test_nothing_is_divided_into_nothing() -> None:
    for plans in ([], [plan(0, planned())]):
        found = divide(plans, {}, bytes_min=0)
        assert (found.native, dict(found.rest), dict(found.reasons)) == ((), {}, {})


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[PartitionPlan], dict[int, FileRecord]]:
    """Plans in which files have batches of several partitions, and some batches are not read, cut or not
    there."""
    partitions, count = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    offsets = [draw(st.integers(0, 5)) for _ in range(partitions)]
    rows: dict[int, list[tuple[int, int, int, int]]] = {number: [] for number in range(partitions)}
    files = {}
    for file in range(count):
        total = 0
        for group in range(draw(st.integers(1, 4))):
            number, take = draw(st.integers(0, partitions - 1)), draw(st.integers(1, 4))
            total += take
            if draw(st.integers(0, 5)):
                rows[number].append((offsets[number], take, file, group))
            offsets[number] += take + draw(st.integers(0, 1))
        files[file] = record(file, total + (draw(st.integers(0, 5)) == 0), size=draw(st.integers(1, 100)))
    return [plan(number, planned(*rows[number])) for number in range(partitions)], files


@given(histories(), st.integers(0, 60), st.integers(0, 4))
def test_each_planned_row_is_read_once(
    history: tuple[list[PartitionPlan], dict[int, FileRecord]], bytes_min: int, ranges_max: int
) -> None:
    plans, files = history
    found = divide(plans, files, bytes_min=bytes_min, ranges_max=ranges_max)
    expected = Counter(
        (one.partition, offset)
        for one in plans
        for row in one.rows
        for offset in range(row["base_offset"], row["end_offset"])
    )
    takes = Counter[str]()
    for one in plans:
        for row in one.rows:
            takes[files[int(row["file"])].key] += int(row["take"])
    read: Counter[tuple[int, int]] = Counter()
    for file in found.native:
        # Spark reads all of a file: the plan has to know each of its rows.
        assert takes[file.record.key] == file.record.rows
        assert file.record.size >= bytes_min
        for number, row in zip(file.partitions.tolist(), file.rows, strict=True):
            read.update((number, offset) for offset in range(row["base_offset"], row["end_offset"]))
    for one in plans:
        for row in clipped(one.rows, found.rest.get(one.partition, ())):
            read.update((one.partition, offset) for offset in range(row["base_offset"], row["end_offset"]))
    assert read == expected
    for ranges in found.rest.values():
        assert list(ranges) == sorted(ranges)
        assert all(left.end <= right.start for left, right in pairwise(ranges))
    if ranges_max == 0:
        assert all(len(ranges) == 1 for ranges in found.rest.values())
    assert found.native_amount.rows + sum(one.rows for one in found.reasons.values()) == expected.total()


def test_spans_leave_out_what_is_not_chosen() -> None:
    rows = planned((0, 5, 1, 0), (7, 3, 1, 1), (10, 2, 2, 0), (20, 1, 1, 2))
    mask = np.array([True, True, False, True])
    assert spans_of(rows, mask) == (OffsetRange(0, 10), OffsetRange(20, 21))
    assert spans_of(rows[:0], mask[:0]) == ()


def test_clipped_rows_keep_their_places_in_the_file() -> None:
    (row,) = planned((10, 10, 1, 0))
    rows = np.array([row])
    rows["skip"] = 3
    found = clipped(rows, [OffsetRange(0, 12), OffsetRange(15, 16), OffsetRange(18, 40)])
    assert found[["base_offset", "end_offset", "skip", "take"]].tolist() == [
        (10, 12, 3, 2),
        (15, 16, 8, 1),
        (18, 20, 11, 2),
    ]
    rows["stored"], rows["take"] = Stored.WHOLE, 4  # of a compacted file: offsets may be missing
    (cut,) = clipped(rows, [OffsetRange(11, 15)])
    assert (cut["stored"], cut["take"], cut["base_offset"], cut["end_offset"]) == (Stored.PART, 4, 11, 15)
    (same,) = clipped(rows, [OffsetRange(10, 20)])
    assert same["stored"] == Stored.WHOLE


def test_clipped_sealed_parts_share_the_size() -> None:
    part = SealedRange(0, OffsetRange(0, 100), ObjectRecord("a", 1, HASH), 1_000, batches=10)
    found = list(clipped_sealed(part, [OffsetRange(10, 30), OffsetRange(90, 200)]))
    assert found == [
        replace(part, range=OffsetRange(10, 30), size=200, batches=2),
        replace(part, range=OffsetRange(90, 100), size=100, batches=1),
    ]
