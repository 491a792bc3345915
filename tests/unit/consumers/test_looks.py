"""When a follower looks next: looks are counted, and the wait from a commit to the look that finds it, on a
clock that only waiting moves."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median

import pytest

from txnformat.consumers.looks import CLOSE_LOOKS, Looks

MINUTE_MS = 60_000
READ_MS = 3
"""From the beginning of a look to its answer."""


def follow(
    looks: Looks, commits: Sequence[int], until_ms: int, clock_ms: int = 0, read_ms: int = READ_MS
) -> tuple[int, list[int]]:
    """Return the number of looks until then, and how long each commit (log times, ascending) waited for the
    answer to the look that found it.

    ``clock_ms``: what the follower's clock shows at log time 0.
    """
    now, count, seen, waited = 0, 0, 0, []
    while now < until_ms:
        count += 1
        there = [time for time in commits[seen:] if time <= now]
        asked = now
        now += read_ms
        seen += len(there)
        waited += [now - time for time in there]
        if there:
            looks.news(there[-1], asked + clock_ms)
            continue
        looks.nothing()
        wait = looks.wait_ms(now + clock_ms)
        assert wait >= 1
        now += wait
    return count, waited


@pytest.mark.parametrize(("interval_ms", "expected"), [(1_000, 60), (250, 240), (60_000, 1)])
def test_an_idle_follower_looks_once_an_interval(interval_ms: int, expected: int) -> None:
    looks = Looks(interval_ms, is_free=False)
    follow(looks, [], MINUTE_MS)
    count, _ = follow(looks, [], MINUTE_MS)
    assert 0.9 * expected <= count <= expected


def test_waits_double_after_news_up_to_the_interval() -> None:
    looks = Looks(1_000, is_free=False)
    found = []
    for _ in range(7):
        looks.nothing()
        found.append(looks.wait_ms(0))
    assert found == [50, 100, 200, 400, 800, 1_000, 1_000]
    looks.news(5, 5)
    looks.nothing()
    assert looks.wait_ms(5) == 50


def test_where_a_look_costs_nothing_the_interval_does_not_matter() -> None:
    drawn = random.Random(1)
    commits = sorted(drawn.sample(range(MINUTE_MS), 40))
    for interval_ms in (250, 1_000, 60_000):
        _, waited = follow(Looks(interval_ms, is_free=True), commits, MINUTE_MS + 100)
        assert len(waited) == 40
        assert max(waited) <= 30


@pytest.mark.parametrize("period_ms", [40, 200, 700, 1_700, 10_000])
@pytest.mark.parametrize("clock_ms", [0, 1_000_000, -1_000_000])
def test_a_regular_commit_is_expected_whatever_the_clocks_show(period_ms: int, clock_ms: int) -> None:
    count = 60
    commits = [number * period_ms + 17 for number in range(1, count + 1)]
    looked, waited = follow(Looks(1_000, is_free=False), commits, commits[-1] + 1_000, clock_ms)
    assert len(waited) == count
    assert median(waited[10:]) <= 60
    assert looked <= commits[-1] / 1_000 + 3 * count


def test_the_time_that_a_look_takes_does_not_add_up() -> None:
    commits = [number * 2_000 for number in range(1, 80)]
    _, waited = follow(Looks(1_000, is_free=False), commits, commits[-1] + 2_000, read_ms=100)
    assert max(waited[30:]) <= 100 + 50 + 100, (
        "a look that came just before it, a wait, and the look that finds it"
    )


def test_a_rhythm_with_jitter_is_looked_for_more_widely_and_no_closer() -> None:
    drawn = random.Random(2)
    commits, time = [], 0
    for _ in range(100):
        time += drawn.randint(1_200, 2_200)
        commits.append(time)
    looked, waited = follow(Looks(1_000, is_free=False), commits, time + 1_000)
    _, waited_without = follow_without_rhythm(commits, time + 1_000)
    assert median(waited) <= 150 < median(waited_without)
    assert looked <= time / 1_000 + CLOSE_LOOKS * len(commits)


def test_a_commit_that_is_late_is_read_after_half_of_its_delay_more() -> None:
    """The last commit comes later than all before it: the rhythm has a spread of nothing."""
    for late_ms in range(0, 1_500, 90):
        commits = [number * 2_000 for number in range(1, 12)]
        commits.append(commits[-1] + 2_000 + late_ms)
        _, waited = follow(Looks(1_000, is_free=False), commits, commits[-1] + 2_000)
        assert waited[-1] <= 60 + late_ms // 2


def follow_without_rhythm(commits: Sequence[int], until_ms: int) -> tuple[int, list[int]]:
    class Forgetful(Looks):
        def news(self, log_time_ms: int, asked_ms: int) -> None:
            super().news(log_time_ms, asked_ms)
            self._commits.clear()

    return follow(Forgetful(1_000, is_free=False), commits, until_ms)


def test_commits_without_a_rhythm_are_not_expected() -> None:
    """They cost the looks after news: at once, and after 50, 100, 200, 400 and 800 ms."""
    drawn = random.Random(3)
    commits, time = [], 0
    for _ in range(60):
        time += drawn.choice([80, 900, 4_000, 9_000])
        commits.append(time)
    looked, _ = follow(Looks(1_000, is_free=False), commits, time)
    assert looked <= time / 1_000 + 5 * len(commits)


def test_a_rhythm_that_stops_is_forgotten_after_three_commits_that_did_not_come() -> None:
    commits = [number * 2_000 for number in range(1, 20)]
    end = commits[-1]
    looked, _ = follow(Looks(1_000, is_free=False), commits, end)
    looked_later, _ = follow(Looks(1_000, is_free=False), commits, end + 10 * MINUTE_MS)
    assert looked_later - looked <= 10 * 60 + 4 * CLOSE_LOOKS


def test_news_of_the_same_entry_again_is_no_rhythm() -> None:
    looks = Looks(1_000, is_free=False)
    for now in range(0, 100, 10):
        looks.news(7, now)
    for _ in range(6):
        looks.nothing()
    assert looks.wait_ms(100) == 1_000
