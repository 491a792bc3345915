"""What key compaction leaves in a partition's state, and the map of keys."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from txnformat.core.folding import At
from txnformat.core.lifecycle.cleaned import HORIZONS_MAX, apply_cleaned
from txnformat.core.lifecycle.offset_map import OffsetMap
from txnformat.core.lifecycle.operations import CleanedPartition
from txnformat.core.records.state import DeleteHorizon, PartitionState
from txnformat.errors import CorruptDataError

BEFORE = PartitionState(
    log_end=100,
    sealed_end=100,
    listed_end=90,
    cleaned_end=40,
    cleaned_entry=7,
    horizons=(DeleteHorizon(20, 1_000), DeleteHorizon(40, 2_000)),
)


def cleaned(
    cleaned_end: int, swept_end: int = 0, commit_entry: int = -1, before: PartitionState = BEFORE
) -> PartitionState:
    return apply_cleaned(before, CleanedPartition(0, cleaned_end, swept_end, commit_entry), At(50, 3_000))


def test_an_entry_says_how_far_keys_were_compared_and_which_versions_it_costs() -> None:
    after = cleaned(80, commit_entry=9)
    assert (after.cleaned_end, after.cleaned_entry) == (80, 9)
    assert after.horizons == (*BEFORE.horizons, DeleteHorizon(80, 3_000))
    assert cleaned(80, commit_entry=3).cleaned_entry == 7


@pytest.mark.parametrize(
    ("cleaned_end", "swept_end", "horizons"),
    [
        (40, 0, [(20, 1_000), (40, 2_000)]),
        (80, 20, [(40, 2_000), (80, 3_000)]),
        (80, 39, [(40, 2_000), (80, 3_000)]),
        (80, 40, [(80, 3_000)]),
        (80, 80, []),
        (40, 40, []),
    ],
)
def test_a_tombstone_was_first_covered_at_the_first_horizon_above_it(
    cleaned_end: int, swept_end: int, horizons: list[tuple[int, int]]
) -> None:
    after = cleaned(cleaned_end, swept_end)
    assert [(one.end_offset, one.timestamp_ms) for one in after.horizons] == horizons


@pytest.mark.parametrize("values", [(39,), (91,), (80, 81), (80, 0, 50)])
def test_what_goes_back_or_too_far_is_corrupt(values: Any) -> None:
    with pytest.raises(CorruptDataError, match="a key compaction goes back"):
        cleaned(*values)


def test_of_many_horizons_the_closest_two_become_one_of_the_later_time() -> None:
    times = [1_000 * number for number in range(HORIZONS_MAX)]
    times[5] += 999  # close to the next one
    full = PartitionState(
        log_end=100,
        sealed_end=100,
        listed_end=90,
        cleaned_end=40,
        horizons=tuple(DeleteHorizon(number + 1, time) for number, time in enumerate(times)),
    )
    after = apply_cleaned(full, CleanedPartition(0, 80, 0, -1), At(50, 10**6))
    assert len(after.horizons) == HORIZONS_MAX
    assert DeleteHorizon(6, times[5]) not in after.horizons
    assert DeleteHorizon(7, times[6]) in after.horizons
    assert after.horizons[-1] == DeleteHorizon(80, 10**6)


# --- the map of keys ----------------------------------------------------------------------------------------


def hashes(numbers: list[int]) -> Any:
    """Return hashes of which many have the same first half."""
    return np.array([(number % 3, number // 3) for number in numbers], np.uint64).reshape(-1, 2)


@pytest.mark.parametrize("seed", range(40))
def test_the_map_knows_the_last_offset_of_each_key_that_it_took_in(seed: int) -> None:
    random = Random(seed)
    slots = random.choice([1, 2, 7, 64, 10**6])
    found, expected, offset = OffsetMap(slots), dict[int, int](), 0
    for _ in range(random.randint(1, 12)):
        numbers = [random.randrange(30) for _ in range(random.randint(0, 20))]
        offsets = np.arange(offset, offset + len(numbers))
        offset += len(numbers)
        taken = found.put(hashes(numbers), offsets)
        expected |= dict(zip(numbers[:taken], offsets[:taken].tolist(), strict=True))
        if taken < len(numbers):
            break
    assert len(expected) <= slots
    assert expected or not offset, "it has room for one key at least"
    asked = list(range(40))
    assert found.latest(hashes(asked)).tolist() == [expected.get(number, -1) for number in asked]


def test_a_map_with_room_takes_in_everything() -> None:
    found = OffsetMap(30)
    for begin in range(0, 300, 30):
        assert found.put(hashes([number % 20 for number in range(30)]), np.arange(begin, begin + 30)) == 30
