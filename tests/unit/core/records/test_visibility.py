"""The read_committed filter, case by case; the property tests hold it against other formulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from txnformat.core.records.visibility import (
    ABORTED_RANGE,
    committed_mask,
    last_stable_offset,
)
from txnformat.core.transactions.abort_index import AbortedTransaction
from txnformat.errors import InternalError
from txnformat.types import NO_PRODUCER, Outcome
from txnlog_testing.models.reference_filters import (
    Batch,
    CompletedFetch,
    FetchedAbort,
    Wording,
    abort_index_of,
    aborted_ranges,
    batch_columns,
    brute_force,
    range_filter,
    replay,
)

DATA = Path(__file__).resolve().parents[3] / "golden" / "data"
ABORT, COMMIT = Outcome.ABORT, Outcome.COMMIT


def _committed(batches: list[Batch], aborted: list[AbortedTransaction]) -> list[int]:
    columns = batch_columns(batches)
    mask = committed_mask(*columns, aborted_ranges(aborted))
    return [int(offset) for offset in columns.base_offsets[mask]]


def _transactional(*spans: tuple[int, int, int]) -> list[Batch]:
    return [Batch(base, last, producer_id, transactional=True) for base, last, producer_id in spans]


def test_nothing_aborted_hides_nothing() -> None:
    assert _committed(_transactional((0, 9, 1), (10, 19, 2)), []) == [0, 10]


def test_no_batches_give_an_empty_mask() -> None:
    assert _committed([], [AbortedTransaction(1, 0, 5, 6)]) == []


def test_only_the_producer_of_the_aborted_transaction_is_hidden() -> None:
    batches = _transactional((0, 9, 1), (10, 19, 2), (20, 29, 1))
    assert _committed(batches, [AbortedTransaction(1, 0, 30, 31)]) == [10]


def test_a_batch_of_one_record_that_begins_its_transaction_and_ends_the_range_is_hidden() -> None:
    assert _committed(_transactional((0, 0, 1)), [AbortedTransaction(1, 0, 5, 6)]) == []
    assert _committed(_transactional((0, 0, 2), (1, 1, 1)), [AbortedTransaction(1, 1, 5, 6)]) == [0]


def test_a_batch_below_the_first_offset_is_kept_when_the_transaction_begins_inside_of_it() -> None:
    """No producer writes this, but the rule is first_offset <= base_offset."""
    assert _committed(_transactional((0, 9, 1), (10, 19, 1)), [AbortedTransaction(1, 5, 30, 31)]) == [0]
    other = AbortedTransaction(2, 0, 30, 31)
    assert _committed(_transactional((0, 9, 1), (10, 19, 1)), [other, AbortedTransaction(1, 5, 30, 31)]) == [
        0
    ]


def test_an_ended_transaction_hides_nothing_while_another_is_still_active() -> None:
    batches = _transactional((0, 9, 1), (10, 19, 2), (21, 29, 1), (30, 39, 2))
    aborted = [AbortedTransaction(1, 0, 20, 10), AbortedTransaction(2, 10, 40, 41)]
    assert _committed(batches, aborted) == [21]


def test_a_transaction_leaves_at_its_own_last_offset() -> None:
    batches = _transactional((0, 9, 1), (11, 19, 1))
    assert _committed(batches, [AbortedTransaction(1, 0, 10, 11)]) == [11]


def test_a_transaction_does_not_reach_back_before_its_first_offset() -> None:
    batches = _transactional((0, 9, 1), (11, 19, 1))
    assert _committed(batches, [AbortedTransaction(1, 11, 20, 21)]) == [0]


def test_one_producer_aborts_commits_and_aborts_again() -> None:
    batches = _transactional((0, 9, 1), (11, 19, 1), (21, 29, 1), (31, 39, 1))
    aborted = [AbortedTransaction(1, 0, 10, 11), AbortedTransaction(1, 21, 30, 31)]
    assert _committed(batches, aborted) == [11, 31]


def test_aborted_transactions_follow_each_other_without_a_batch_between() -> None:
    batches = _transactional((0, 9, 1), (11, 19, 1), (21, 29, 1))
    aborted = [AbortedTransaction(1, 0, 10, 11), AbortedTransaction(1, 11, 20, 21)]
    assert _committed(batches, aborted) == [21]


def test_a_transaction_that_began_before_the_range_is_active_from_its_start() -> None:
    assert _committed(_transactional((100, 109, 1)), [AbortedTransaction(1, 3, 200, 201)]) == []


def test_batches_without_a_producer_or_outside_of_transactions_pass() -> None:
    batches = [Batch(0, 4, NO_PRODUCER, transactional=True), Batch(5, 9, 1), Batch(10, 14, NO_PRODUCER)]
    aborted = [AbortedTransaction(NO_PRODUCER, 0, 20, 21), AbortedTransaction(1, 0, 21, 22)]
    assert _committed(batches, aborted) == [0, 5, 10]


def test_entries_that_do_not_touch_the_range_or_come_twice_do_no_harm() -> None:
    entry = AbortedTransaction(1, 100, 110, 111)
    aborted = [AbortedTransaction(1, 0, 50, 51), entry, entry, AbortedTransaction(1, 500, 600, 601)]
    assert _committed(_transactional((100, 109, 1), (111, 119, 1)), aborted) == [111]


def test_the_order_of_the_aborted_transactions_does_not_matter() -> None:
    batches = _transactional((0, 9, 1), (10, 19, 2), (22, 29, 1), (30, 39, 2))
    aborted = [AbortedTransaction(2, 10, 20, 21), AbortedTransaction(1, 0, 21, 22)]
    assert _committed(batches, aborted) == _committed(batches, aborted[::-1]) == [22, 30]


def test_rows_with_further_fields_are_accepted() -> None:
    wider = np.zeros(1, [("entry", "<i8"), *ABORTED_RANGE.descr])
    wider[["producer_id", "first_offset", "last_offset"]] = [(1, 0, 10)]
    columns = batch_columns(_transactional((0, 9, 1), (11, 12, 1)))
    assert committed_mask(*columns, wider).tolist() == [False, True]


@pytest.mark.parametrize("spans", [((10, 19, 1), (0, 9, 1)), ((0, 10, 1), (10, 19, 1))])
def test_batches_out_of_order_are_refused_rather_than_leaked(spans: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(InternalError):
        _committed(_transactional(*spans), [])


def test_the_last_stable_offset_is_the_oldest_open_transactions_first_offset() -> None:
    assert last_stable_offset(0, 100, [70, 30, 50]) == 30
    assert last_stable_offset(0, 100, []) == 100
    assert last_stable_offset(0, 0, []) == 0


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    assert last_stable_offset(40, 100, [30, 50]) == 40


SEQUENCE: dict[str, Any] = json.loads((DATA / "abort_index_sequence.json").read_text(encoding="utf-8"))


def _golden_history() -> list[Batch]:
    history: list[Batch] = []
    offset = 0
    for step in SEQUENCE["steps"]:
        producer_id = NO_PRODUCER if step["producer_id"] is None else step["producer_id"]
        if "marker" in step:
            assert offset == step["offset"]
            history.append(Batch(offset, offset, producer_id, True, Outcome(step["marker"])))
            offset += 1
        else:
            last = offset + step["records"] - 1
            history.append(Batch(offset, last, producer_id, producer_id != NO_PRODUCER))
            offset = last + 1
    return history


def test_kafkas_golden_sequence_gives_its_abort_index() -> None:
    assert abort_index_of(_golden_history()) == [AbortedTransaction(*values) for values in SEQUENCE["index"]]


@pytest.mark.parametrize(("marker", "expected"), SEQUENCE["last_stable_offset_after"])
def test_kafkas_golden_sequence_gives_its_last_stable_offsets(marker: int, expected: int) -> None:
    open_first_offsets: dict[int, int] = {}
    for batch in _golden_history():
        if batch.last_offset > marker:
            break
        if batch.marker is not None:
            del open_first_offsets[batch.producer_id]
        elif batch.transactional:
            open_first_offsets.setdefault(batch.producer_id, batch.base_offset)
    assert last_stable_offset(0, marker + 1, open_first_offsets.values()) == expected


def test_kafkas_golden_sequence_is_filtered_alike_by_every_formulation() -> None:
    history = _golden_history()
    index = abort_index_of(history)
    expected = sorted(base for base, committed in replay(history).items() if committed)
    columns = batch_columns(history)
    assert 0 not in expected
    assert 36 in expected
    assert _committed(history, index) == expected
    assert columns.base_offsets[range_filter(columns, index)].tolist() == expected
    assert brute_force(history, index) == expected
    fetched = [FetchedAbort(entry.producer_id, entry.first_offset) for entry in index]
    for wording in Wording:
        fetch = CompletedFetch(0, fetched, wording)
        assert fetch.committed(history) == expected
        assert fetch.position == 90


def test_a_second_abort_marker_and_a_marker_without_data_are_harmless() -> None:
    history = [
        Batch(0, 4, 1, True),
        Batch(5, 5, 1, True, ABORT),
        Batch(6, 6, 1, True, ABORT),
        Batch(7, 7, 2, True, ABORT),
        Batch(8, 9, 1, True),
        Batch(10, 10, 1, True, COMMIT),
    ]
    index = abort_index_of(history)
    assert index == [AbortedTransaction(1, 0, 5, 6)]
    assert _committed(history, index) == [8]
    for wording in Wording:
        assert CompletedFetch(0, [FetchedAbort(1, 0)], wording).committed(history) == [8]


def test_a_range_of_nothing_but_aborted_batches_still_advances_the_position() -> None:
    fetch = CompletedFetch(0, [FetchedAbort(1, 0)], Wording.UP_TO_LAST_OFFSET)
    assert fetch.committed([Batch(0, 9, 1, True), Batch(10, 10, 1, True, ABORT)]) == []
    assert fetch.position == 11


def test_the_producer_at_head_wording_leaks_aborted_rows_unless_earlier_transactions_are_seeded() -> None:
    """Producer 1 began before the range and has only its marker in it: at the head, it hides producer 2."""
    fetched = [FetchedAbort(1, 0), FetchedAbort(2, 100)]
    batches = [
        Batch(100, 109, 2, True),
        Batch(110, 110, 1, True, ABORT),
        Batch(111, 111, 2, True, ABORT),
    ]
    leaking = CompletedFetch(100, fetched, Wording.PRODUCER_AT_HEAD, seeded=False)
    assert leaking.committed(batches) == [100]
    assert CompletedFetch(100, fetched, Wording.PRODUCER_AT_HEAD).committed(batches) == []
    for seeded in (False, True):
        fetch = CompletedFetch(100, fetched, Wording.UP_TO_LAST_OFFSET, seeded=seeded)
        assert fetch.committed(batches) == []
