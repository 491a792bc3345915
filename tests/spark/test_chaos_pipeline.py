"""The short run of `make chaos-pipeline`: from topic to topics, exactly once; and that it would find what it
looks for.

The suite runs one history, in the order of commits; `make campaigns` runs both orders, and kills drivers too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.drivers import cluster
from tests.chaos.jobs import LOCAL
from tests.chaos.plans import VICTIMS, Kind
from tests.chaos.pool import Pool
from tests.pipeline.histories import run_pipeline
from tests.rounds import IS_FULL, rounds

KILLS = 6
"""And 3 of the other order, and in the suite: what the first victims are, and no more."""
FIRST: tuple[Kind, ...] = ("source", "task", "committer", "source", "zombie", "task", "driver")
THEN: tuple[Kind, ...] = ("source", "task", "committer")


@pytest.mark.campaign
@pytest.mark.parametrize("seed", rounds([1], [1, 2]))  # in the order of commits, and of offsets
def test_from_topic_to_topics_everything_is_there_once_whoever_is_killed(tmp_path: Path, seed: int) -> None:
    """Tasks in the driver: executors' JVMs are killed by the long run, as starts of Spark are what costs."""
    kills, first = (KILLS, FIRST) if seed == 1 and IS_FULL else (3, THEN)
    ends = first.count("driver") + first.count("zombie")
    with cluster(tmp_path / "spark") as place, Pool(place, LOCAL, ahead=ends) as pool:
        history = run_pipeline(pool, tmp_path / "run", seed, kills, first=first, kinds=THEN)
    assert history.problems == []
    assert history.kill_count >= kills
    assert {*history.kills} == {VICTIMS[kind][0] for kind in first if kind != "zombie"}
    assert history.zombies == first.count("zombie")
    assert history.outside.total() > 0
    assert history.rows == history.orders > 0
    assert history.given_up > 0
    assert (history.duplicates, history.losses, history.torn) == (0, 0, 0)
