"""Any number of processes may do all maintenance at the same time, beside writers, and be killed at any
time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.maintaining.campaign import run
from tests.rounds import rounds


@pytest.mark.parametrize("seed", rounds([1], [*range(1, 9)]))
def test_whole_rounds_of_several_processes_that_are_killed_lose_nothing(tmp_path: Path, seed: int) -> None:
    kills = rounds(4, 40)
    done = run(tmp_path / "log", steps=rounds(8, 60), rounds=rounds(6, 60), kills=kills, seed=seed)
    assert done["kill"] == kills
