"""A short run of `make erasure`: one of its processes is a query of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.erasure.campaign import run


@pytest.mark.campaign
def test_processes_that_are_killed_leave_no_canary_and_lose_nothing_else(tmp_path: Path) -> None:
    outcome = run(tmp_path / "log", 40, 3, 1, rows=10, stream_steps=3)
    assert outcome.ok, outcome
    assert outcome.canaries >= 40
    assert outcome.copied == outcome.canaries
