"""The commit log under seeded histories with faults: invariants after every step, and every answer true.

A failing seed is replayed with ``python -m txnlog_testing.replay SEED``. `make simulate` runs more histories
than `make faults`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txnlog_testing.replay import main as replay
from txnlog_testing.simulator.simulator import (
    REQUIRED_HITS,
    STEPS_MIN,
    WRITERS_MIN,
    run_histories,
    run_history,
)

ROOT = Path(__file__).resolve().parents[2]
IS_LONG = "TXNLOG_CHUNKS" in os.environ
CHUNKS = int(os.environ.get("TXNLOG_CHUNKS", "1"))
"""Chunks of histories, which processes of the test run share: `make simulate CHUNKS=` runs as many as it is
told."""
HISTORIES = 450 if IS_LONG else 80
"""Histories of a chunk. 450 are enough to meet everything in REQUIRED_HITS, with room to spare."""
MISSED_MAX = 0 if IS_LONG else 12
"""How much of REQUIRED_HITS the short chunk of `make faults` may miss: some of it happens in one history of a
hundred."""

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("seed", [1, 7])  # 7: with a long past
def test_same_seed_gives_same_trace(seed: int) -> None:
    assert run_history(seed).trace_hash == run_history(seed, keep_lines=True).trace_hash
    assert run_history(seed).trace_hash != run_history(seed + 1).trace_hash


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_trace_does_not_depend_on_the_hash_seed_of_the_interpreter(hash_seed: str) -> None:
    there = subprocess.run(
        [sys.executable, "-m", "txnlog_testing.replay", "7", "--hash"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert there.stdout.strip() == run_history(7).trace_hash


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_history_breaks_a_rule(chunk: int) -> None:
    hits, steps, entries = run_histories(range(chunk * HISTORIES, (chunk + 1) * HISTORIES))
    print(f"{HISTORIES} histories, {steps} steps, {entries} entries")
    for name, count in sorted(hits.items()):
        print(f"{count:7d} {name}")
    missed = sorted(name for name in REQUIRED_HITS if not hits[name])
    assert len(missed) <= MISSED_MAX, f"{HISTORIES} histories never met {missed}"


def test_a_history_has_enough_steps_and_writers() -> None:
    assert STEPS_MIN >= 60
    assert WRITERS_MIN >= 3
    history = run_history(3)
    assert history.steps >= STEPS_MIN
    assert history.writers >= WRITERS_MIN


def test_replay_shows_the_steps_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(["3"]) == 0
    shown = capsys.readouterr().out
    assert "create log/" in shown
    assert "seed 3:" in shown
    assert "no violation" in shown
