"""Over random histories, the production filter equals every independent formulation of read_committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from txnformat.core.records.visibility import committed_mask, last_stable_offset
from txnformat.core.transactions.abort_index import AbortedTransaction, collect, decode, encode
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

PRODUCERS = 4


class Step(NamedTuple):
    """One append: records of a producer (inside a transaction or not), or the end of a transaction."""

    producer_id: int
    records: int
    transactional: bool
    ends: Outcome | None


STEPS = st.builds(
    Step,
    producer_id=st.sampled_from([NO_PRODUCER, *range(PRODUCERS)]),
    records=st.integers(1, 4),
    transactional=st.sampled_from([True, True, True, False]),
    ends=st.sampled_from([None, None, Outcome.ABORT, Outcome.COMMIT]),
)


class History(NamedTuple):
    """A whole partition, and what it is at its end."""

    batches: list[Batch]
    log_end: int
    last_stable_offset: int


def _history(steps: Sequence[Step]) -> History:
    batches: list[Batch] = []
    open_first_offsets: dict[int, int] = {}
    offset = 0
    for step in steps:
        producer_id = step.producer_id
        if step.ends is not None and producer_id != NO_PRODUCER:
            # Also without an open transaction: such a marker must change nothing.
            batches.append(Batch(offset, offset, producer_id, True, step.ends))
            open_first_offsets.pop(producer_id, None)
            offset += 1
            continue
        # A producer inside a transaction writes nothing outside of it (INVALID_TXN_STATE in Kafka).
        transactional = producer_id != NO_PRODUCER and (
            step.transactional or producer_id in open_first_offsets
        )
        if transactional:
            open_first_offsets.setdefault(producer_id, offset)
        batches.append(Batch(offset, offset + step.records - 1, producer_id, transactional))
        offset += step.records
    return History(batches, offset, last_stable_offset(0, offset, open_first_offsets.values()))


# Without ends for all, some transaction stays open early on, and hardly anything is decided: mostly, all are
# ended.
ENDINGS: st.SearchStrategy[list[Step]] = st.permutations(
    [
        Step(producer, 1, True, outcome)
        for producer in range(PRODUCERS)
        for outcome in (Outcome.ABORT, Outcome.COMMIT)
    ]
) | st.just([])
HISTORIES = st.builds(
    lambda steps, endings: _history([*steps, *endings]),
    st.lists(STEPS, min_size=1, max_size=25) | st.lists(STEPS, min_size=25, max_size=60),
    ENDINGS,
)


def _production(batches: Sequence[Batch], aborted: Sequence[AbortedTransaction]) -> list[int]:
    columns = batch_columns(batches)
    mask = committed_mask(*columns, aborted_ranges(aborted))
    return [int(offset) for offset in columns.base_offsets[mask]]


@given(HISTORIES, st.data())
def test_every_formulation_shows_the_same_batches_of_any_decided_range(
    history: History, data: st.DataObject
) -> None:
    stable = history.last_stable_offset
    start = data.draw(st.integers(0, stable), label="start")
    end = data.draw(st.integers(start, stable), label="end")
    upper_bound = data.draw(st.integers(end, history.log_end + 3), label="upper_bound")
    batches = [batch for batch in history.batches if batch.last_offset >= start and batch.base_offset < end]
    aborted = collect(abort_index_of(history.batches), start, upper_bound).entries

    outcomes = replay(history.batches)
    expected = [
        batch.base_offset for batch in batches if batch.marker is None and outcomes[batch.base_offset]
    ]

    assert _production(batches, aborted) == expected
    columns = batch_columns(batches)
    assert columns.base_offsets[range_filter(columns, aborted)].tolist() == expected
    assert brute_force(batches, aborted) == expected
    fetched = [FetchedAbort(entry.producer_id, entry.first_offset) for entry in aborted]
    for wording in Wording:
        fetch = CompletedFetch(start, fetched, wording)
        assert fetch.committed(batches) == expected
        assert fetch.position == (batches[-1].last_offset + 1 if batches else start)


@given(HISTORIES)
def test_over_the_whole_log_both_wordings_agree_without_any_seed(history: History) -> None:
    batches = [batch for batch in history.batches if batch.last_offset < history.last_stable_offset]
    fetched = [
        FetchedAbort(entry.producer_id, entry.first_offset) for entry in abort_index_of(history.batches)
    ]
    head, last = (CompletedFetch(0, fetched, wording, seeded=False).committed(batches) for wording in Wording)
    assert head == last


@given(HISTORIES, st.data())
def test_more_aborted_transactions_than_needed_and_twice_each_show_the_same(
    history: History, data: st.DataObject
) -> None:
    stable = history.last_stable_offset
    start = data.draw(st.integers(0, stable), label="start")
    batches = [
        batch for batch in history.batches if batch.last_offset >= start and batch.base_offset < stable
    ]
    index = abort_index_of(history.batches)
    needed = collect(index, start, stable).entries
    shuffled = data.draw(st.permutations([*index, *index]), label="index")
    assert _production(batches, shuffled) == _production(batches, needed)


@given(HISTORIES, st.data())
def test_collect_misses_nothing_that_overlaps_the_range(history: History, data: st.DataObject) -> None:
    """The stop rule is an optimisation: what it leaves unread cannot touch the range."""
    start = data.draw(st.integers(0, history.log_end), label="start")
    end = data.draw(st.integers(start, history.log_end), label="end")
    index = abort_index_of(history.batches)
    overlapping = tuple(entry for entry in index if entry.last_offset >= start and entry.first_offset < end)
    assert collect(index, start, end).entries == overlapping


@given(HISTORIES)
def test_the_abort_index_survives_its_bytes(history: History) -> None:
    index = abort_index_of(history.batches)
    assert decode(encode(index)) == index


@given(HISTORIES)
def test_the_last_stable_offset_never_moves_back(history: History) -> None:
    stable = [_last_stable_offset_of(history.batches[:count]) for count in range(len(history.batches) + 1)]
    assert stable == sorted(stable)
    assert stable[-1] == history.last_stable_offset


def _last_stable_offset_of(batches: Sequence[Batch]) -> int:
    log_end = batches[-1].last_offset + 1 if batches else 0
    decided = replay(batches)
    undecided = [b.base_offset for b in batches if b.marker is None and b.base_offset not in decided]
    return last_stable_offset(0, log_end, undecided)
