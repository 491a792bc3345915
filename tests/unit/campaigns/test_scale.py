"""A share of `make bench-scale`: what it says of lists, segments and snapshots; its times are for the
benchmark."""

from __future__ import annotations

from bench.scale import beside_producers, measure


def test_many_seals_leave_few_lists_and_a_small_state() -> None:
    advanced: list[int] = []
    few, many = measure(10_000, 100), measure(60_000, 100, advanced.append)
    assert (few.batches, many.batches) == (10_000, 60_000) == (10_000, sum(advanced))
    assert many.segments == 60 * 100
    assert many.lists <= 9, "log3 of 6,000 and one"
    assert many.listed_rows + 17 * 100 >= many.segments
    assert many.snapshot_bytes < 1.5 * few.snapshot_bytes + 20_000


def test_commits_beside_producers_are_made_by_the_real_code() -> None:
    beside = beside_producers(30, 4, 5)
    assert (beside.producers, beside.partitions) == (30, 4)
    assert min(beside.plain_us, beside.idempotent_us) > 0
