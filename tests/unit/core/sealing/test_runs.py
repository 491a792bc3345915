"""A ``.runs``: what it holds comes back, and one that no writer makes is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from txnformat.core.entry import sha256_hex
from txnformat.core.lifecycle.operations import CompactedRange, CompactedSegment, Replace, ReplacedList
from txnformat.core.operation_codec import decode_operation, encode_operation
from txnformat.core.operations import Seal, SealedSegment
from txnformat.core.records.scan import Stored, plan_runs, planned_runs
from txnformat.core.sealing.sidecar import (
    COMPACTED_FILES,
    INDEX_ROW,
    RUN_ROW,
    SegmentIndex,
    compacted_number,
    decode_index,
    encode_runs,
)
from txnformat.errors import CorruptDataError, InternalError
from txnformat.keys import data_key, sidecar_key, table_key
from txnformat.types import FileRecord, IsolationLevel, ObjectRecord, OffsetRange, SegmentListRecord

TOPIC = "9a6f2a90-8a35-4a63-9d1b-1b8a1f8a2c33"
UUID, OTHER = "3e0f7d52-5f0b-4a0a-8f3c-2b0a3c4d5e6f", "4f0b5c7e-0d53-4b1e-8f6e-1a2b3c4d5e6f"
SHA = "ab" * 32
DIRECTORY = "t-00000000"
KEY = sidecar_key(DIRECTORY, 7, UUID, "runs")
FILES = {
    0: FileRecord(data_key(DIRECTORY, 7, UUID), 100, SHA, 20, SHA, 5),
    1: FileRecord(data_key(DIRECTORY, 8, OTHER), 100, SHA, 20, SHA, 5),
}


def runs(count: int = 3) -> Any:
    rows = np.zeros(count, RUN_ROW)
    rows["partition"] = [0, 0, 1][:count]
    rows["row_group"], rows["row_group_count"] = np.arange(count), 1
    rows["start_offset"], rows["end_offset"] = [0, 10, 3][:count], [8, 13, 9][:count]
    rows["records"], rows["size"] = [5, 3, 6][:count], 10
    rows["file"] = [0, 1, 1][:count]
    rows["min_entry"], rows["max_entry"] = 2, 5
    rows["min_commit_entry"], rows["max_commit_entry"] = [3, 4, 4][:count], [6, 5, 9][:count]
    return rows


def decoded(rows: Any, files: dict[int, FileRecord] | None = None, key: str = KEY) -> Any:
    data = encode_runs(rows, FILES if files is None else files)
    return decode_index(data, ObjectRecord(key, len(data), sha256_hex(data)))


def test_what_it_holds_comes_back_with_numbers_of_files_that_no_other_file_has() -> None:
    found = decoded(runs())
    assert found.is_compacted
    numbers = [compacted_number(file) for file in FILES.values()]
    assert found.files == dict(zip(numbers, FILES.values(), strict=True))
    assert min(numbers) >= COMPACTED_FILES
    assert found.runs["file"].tolist() == [numbers[0], numbers[1], numbers[1]]
    assert found.runs_of(0, OffsetRange(0, 100))["start_offset"].tolist() == [0, 10]
    assert found.runs_of(0, OffsetRange(8, 100))["start_offset"].tolist() == [10]
    assert found.runs_of(0, OffsetRange(0, 10))["start_offset"].tolist() == [0]
    assert len(found.runs_of(2, OffsetRange(0, 100))) == 0
    assert len(decoded(np.zeros(0, RUN_ROW)).runs) == 0


def test_the_newest_entry_of_a_partition_is_that_of_its_runs_in_a_range_or_of_all_its_batches() -> None:
    rows = runs()
    rows["max_entry"] = [3, 5, 4]
    found = decoded(rows)
    assert [found.newest_entry(0, OffsetRange(0, end)) for end in (10, 11)] == [3, 5]
    assert [found.newest_entry(number, OffsetRange(0, 100)) for number in (1, 2)] == [4, -1]
    batches = np.zeros(3, INDEX_ROW)
    batches["partition"], batches["entry"] = [0, 0, 1], [2, 6, 9]
    index = SegmentIndex(batches, {})
    assert [index.newest_entry(number, OffsetRange(0, 1)) for number in range(3)] == [6, 9, -1]


def test_a_reader_of_batches_gets_no_runs() -> None:
    """A reader that does not know runs must not take a compacted segment for an empty one."""
    found = decoded(runs())
    with pytest.raises(InternalError):
        found.partition(0)
    with pytest.raises(InternalError):
        len(found.rows)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda rows: rows["partition"].__setitem__(2, -1), "order"),
        (lambda rows: rows["start_offset"].__setitem__(1, 7), "order"),
        (lambda rows: rows["records"].__setitem__(0, 0), "bounds"),
        (lambda rows: rows["records"].__setitem__(0, 9), "bounds"),
        (lambda rows: rows["row_group"].__setitem__(0, -1), "bounds"),
        (lambda rows: rows["row_group_count"].__setitem__(0, 0), "bounds"),
        (lambda rows: rows["start_offset"].__setitem__(0, -1), "bounds"),
        (lambda rows: rows["min_entry"].__setitem__(0, -1), "bounds"),
        (lambda rows: rows["min_entry"].__setitem__(0, 4), "bounds"),
        (lambda rows: rows["max_entry"].__setitem__(0, 1), "bounds"),
        (lambda rows: rows["max_commit_entry"].__setitem__(0, 2), "bounds"),
        (lambda rows: rows["min_timestamp_ms"].__setitem__(0, 1), "bounds"),
        (lambda rows: rows["min_log_ms"].__setitem__(0, 1), "bounds"),
    ],
)
def test_rows_that_cannot_be_are_refused(change: Callable[[Any], None], what: str) -> None:
    rows = runs()
    change(rows)
    with pytest.raises(CorruptDataError, match=what):
        decoded(rows)


def test_files_of_others_older_ones_and_equal_ones_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="younger"):
        decoded(runs(), key=sidecar_key(DIRECTORY, 8, UUID, "runs"))
    with pytest.raises(CorruptDataError, match="one key"):
        decoded(runs(), {0: FILES[0], 1: FileRecord(FILES[0].key, 101, SHA, 20, SHA, 5)})
    foreign = FileRecord(data_key("other-00000000", 7, UUID), 100, SHA, 20, SHA, 5)
    with pytest.raises(CorruptDataError, match="key"):
        decoded(runs(1), {0: foreign})


def test_a_seal_names_batches_and_a_compaction_names_runs() -> None:
    index = ObjectRecord(sidecar_key(DIRECTORY, 7, UUID, "index"), 1, SHA)
    seal = Seal((SealedSegment(TOPIC, ObjectRecord(KEY, 1, SHA), partitions=()),))
    part = CompactedRange(0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0)
    named = ReplacedList("a", SegmentListRecord(table_key(7, UUID), 1, SHA))
    for op in (seal, Replace(TOPIC, (CompactedSegment(index, (part,)),), (named,))):
        with pytest.raises(CorruptDataError, match="key"):
            decode_operation(encode_operation(op), 1, path="entry")


# --- plans --------------------------------------------------------------------------------------------------


def test_a_run_is_taken_whole_only_if_nothing_of_it_is_out_of_range_or_too_late() -> None:
    rows = runs()[:2]
    stored = planned_runs(rows, OffsetRange(0, 100))["stored"].tolist()
    assert stored == [Stored.WHOLE, Stored.WHOLE]
    assert planned_runs(rows, OffsetRange(1, 100))["stored"].tolist() == [Stored.PART, Stored.WHOLE]
    assert planned_runs(rows, OffsetRange(0, 12))["stored"].tolist() == [Stored.WHOLE, Stored.PART]
    assert planned_runs(rows, OffsetRange(0, 100), until=5)["stored"].tolist() == [Stored.PART, Stored.WHOLE]


def test_a_version_and_a_share_choose_runs() -> None:
    rows, whole = runs()[:2], OffsetRange(0, 100)
    snapshot = IsolationLevel.SNAPSHOT
    assert plan_runs(rows, whole, snapshot, as_of=3)["base_offset"].tolist() == [0]
    assert len(plan_runs(rows, whole, snapshot, as_of=2)) == 0
    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        assert len(plan_runs(rows, whole, level)) == 2
    shares = [OffsetRange(0, 4), OffsetRange(4, 11), OffsetRange(11, 13)]
    cut = [plan_runs(rows, share, IsolationLevel.READ_COMMITTED) for share in shares]
    assert [part["base_offset"].tolist() for part in cut] == [[0], [4, 10], [11]]
    assert plan_runs(rows, OffsetRange(8, 10), IsolationLevel.READ_COMMITTED)["base_offset"].tolist() == []
