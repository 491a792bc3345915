"""The short run of `make chaos`; and that it would find what it looks for.

The suite breaks one rule of the sink; `make campaigns` breaks each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import summary
from tests.chaos.drivers import cluster
from tests.chaos.history import run_history
from tests.chaos.jobs import CLUSTER, LOCAL
from tests.chaos.plans import KINDS, Kind
from tests.chaos.pool import Pool
from tests.rounds import rounds

SHORT: tuple[Kind, ...] = ("task", "executor", "zombie", "committer", "driver", "driver-jvm", "task")
FIRST: tuple[Kind, ...] = rounds(
    SHORT,
    (
        *("task", "executor", "task", "zombie", "committer", "task", "driver", "executor", "task"),
        *("driver-jvm", "committer", "task", "executor"),
    ),
)
KILLS = len(FIRST) - 1
"""As many as the first victims but the one that stands still; THEN is for those that had ended before they
were killed."""
ENDS = sum(kind in ("driver", "driver-jvm", "zombie") for kind in FIRST)
"""How often another driver goes on."""
THEN: tuple[Kind, ...] = ("task", "committer")


@pytest.mark.campaign
def test_whoever_is_killed_every_row_is_there_once(tmp_path: Path) -> None:
    """Each kind of victim at least once; starts of Spark are what costs, so drivers are not killed more often
    than that."""
    with cluster(tmp_path / "spark") as place, Pool(place, CLUSTER, ahead=ENDS) as pool:
        history = run_history(pool, str(tmp_path / "log"), tmp_path, 1, KILLS, first=FIRST, kinds=THEN)
    assert history.problems == []
    assert history.kill_count >= KILLS
    assert {*history.kills} == {text for kind, (text, _) in KINDS.items() if kind != "zombie"}
    assert history.zombies == 1
    assert history.points.total() == history.kill_count + history.zombies
    assert history.rows > 0
    assert (history.duplicates, history.losses, history.torn) == (0, 0, 0)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """Drivers with their tasks in them. One is enough: the Python that commits is killed, and the query goes
    on."""
    with cluster(tmp_path_factory.mktemp("spark")) as place, Pool(place, LOCAL, ahead=0) as pool:
        yield pool


@pytest.mark.parametrize(
    ("defect", "kind", "found"),
    [
        ("forgets-versions", "committer", "duplicates"),
        ("forgets-rows", "committer", "losses"),
        ("commits-in-tasks", "task", "torn"),
    ][: rounds(1, 3)],
)
def test_the_campaign_finds_a_sink_that_is_broken(
    defect: str, kind: Kind, found: str, local: Pool, tmp_path: Path
) -> None:
    """The same strikes, and a sink without one of its rules. The last strike may end one more driver; further
    ones mend nothing."""
    history = run_history(
        local, str(tmp_path / "log"), tmp_path, 3, 3, kinds=[kind], broken=defect, ends_max=2
    )
    assert history.kill_count == 3
    figures = summary([history], 1.0, on="local disk")
    assert figures[found] > 0
    assert figures["problems"][0]["seed"] == 3
