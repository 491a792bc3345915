"""Seals that are in one entry leave what seals in entries of their own leave; and the tables of rows that
they cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.limits.document_cases import LOG, TOPIC, entry_of
from tests.limits.fold_cases import HASH, append_of, topic_of
from txnformat import keys
from txnformat.core.entry import decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.operations import Operation, Seal, SealedPartition, SealedSegment
from txnformat.core.records.state import MARKER
from txnformat.core.state import LogState
from txnformat.persistent import Columns
from txnformat.types import ObjectRecord, SegmentListRecord

TOPIC_OF_TWO = topic_of(2)
INDEX = ObjectRecord(keys.sidecar_key(TOPIC_OF_TWO.directory, 0, TOPIC, "index"), 100, HASH)


def seal(partition: int, start: int, listed: int = 0, *replaced: str) -> Seal:
    part = SealedPartition(partition, start, start + 1, 1, 0, 0, 1, 1, 0, 0, 0, 0)
    segments = (SealedSegment(topic_id=TOPIC, index=INDEX, partitions=(part,)),)
    if not listed:
        return Seal(segments)
    return Seal(
        segments, SegmentListRecord(keys.table_key(listed, TOPIC), 100, HASH, 0, 1), listed, 0, replaced
    )


def folded(state: LogState, *entries: list[Operation]) -> LogState:
    for operations in entries:
        data = entry_of(state, operations)
        state = apply(state, decode_entry(data, state.entry + 1), sha256_hex(data))
    return state


def test_seals_in_one_entry_leave_what_seals_in_entries_of_their_own_leave() -> None:
    appends: list[Operation] = [append_of(TOPIC_OF_TWO, [0, 1], offset) for offset in range(4)]
    before = folded(LogState(log_id=LOG, entry_sha256=HASH), [TOPIC_OF_TWO], appends)
    more: list[Operation] = [
        seal(0, 0),
        seal(1, 0, 2),
        append_of(TOPIC_OF_TWO, [1], 4),
        seal(1, 1, 3, keys.table_key(2, TOPIC)),
        seal(0, 1),
        append_of(TOPIC_OF_TWO, [0], 4),
    ]
    together, apart = folded(before, more), folded(before, *([one] for one in more))
    for state in (together, apart):
        assert [*state.files.numbers()] == [*state.tables.numbers()] == [2, 3, 4, 5]
        assert [*state.segments.numbers()] == [3]
        assert (state.extents, state.listed_segments) == (6, 3)
    for key, partition in together.partitions.items():
        same = apart.partitions[key]
        assert partition.segments.array().tolist() == same.segments.array().tolist()
        assert (partition.listed_end, partition.sealed_end) == (same.listed_end, same.sealed_end)
        assert (
            partition.extents.array()["base_offset"].tolist() == same.extents.array()["base_offset"].tolist()
        )


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=40))
def test_rows_are_cut_and_found(steps: list[tuple[bool, int]]) -> None:
    rows = Columns(MARKER)
    expected: list[int] = []
    end = 0
    for appends, count in steps:
        before, was = rows, list(expected)
        if appends:
            more = np.zeros(count, MARKER)
            more["offset"] = np.arange(end, end + count)
            end += count
            rows = rows.append(more)
            expected += more["offset"].tolist()
        else:
            count = min(count, len(expected))
            rows, expected = rows.drop(count), expected[count:]
        assert rows.array()["offset"].tolist() == expected
        assert len(rows) == len(expected)
        assert before.array()["offset"].tolist() == was
        for offset in range(0, end + 2, 3):
            below = [one for one in expected if one < offset]
            assert rows.until("offset", offset)["offset"].tolist() == below
            assert rows.count_below("offset", offset) == len(below)
        held = sum(len(chunk) for chunk in rows._chunks) + rows._hidden
        assert held <= 2 * len(expected)
