"""The short run of `make kill-rounds`; and that it would find what it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.killing import rounds
from tests.killing.__main__ import main, summary
from tests.killing.rounds import run_history
from tests.killing.workers import Nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.parametrize(("buffer", "kills"), [("auto", 8), ("inline", 9), ("deferred", 8)])
def test_however_often_it_is_killed_every_output_is_there_once(
    buffer: str, kills: int, nursery: Nursery, tmp_path: Path
) -> None:
    history = run_history(nursery, str(tmp_path / "logs"), 25 + kills, kills, notes=tmp_path, buffer=buffer)
    assert history.problems == []
    assert history.kills >= kills
    assert sum(history.points.values()) == history.kills
    assert history.inputs > 0
    assert (history.duplicates, history.losses) == (0, 0)


@pytest.mark.parametrize(
    ("way", "found"), [("positions_after", "duplicates"), ("positions_before", "losses")]
)
def test_the_rounds_find_what_a_job_without_transactions_does(
    way: str, found: str, nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kills, and positions that are committed by themselves."""
    monkeypatch.setattr(rounds, "BY_TIME", 0)  # so that it is the same every time
    monkeypatch.setattr(rounds, "TOGETHER", 0)
    history = run_history(nursery, str(tmp_path / "logs"), 7, 6, notes=tmp_path, way=way, flushes=False)
    assert history.problems
    figures = summary([history], 1.0, "local disk")
    assert figures[found] > 0
    assert figures["problems"][0]["seed"] == 7


def test_a_seed_is_the_same_history_again(
    nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for kills by time, and for two workers that meet."""
    monkeypatch.setattr(rounds, "BY_TIME", 0)
    monkeypatch.setattr(rounds, "TOGETHER", 0)
    first, again = (run_history(nursery, str(tmp_path / name), 11, 4, notes=tmp_path) for name in "ab")
    assert first == again
    assert first.records > 0


def test_the_command_prints_seeds_and_writes_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--kills", "2", "--seed", "7", "--json", str(tmp_path / "result.json")]) == 0
    printed = capsys.readouterr()
    assert "seeds 7 to 7, 2 kills each" in printed.err
    assert "0 duplicates, 0 losses, 0 problems" in printed.out
    assert '"kills": 2' in (tmp_path / "result.json").read_text()
