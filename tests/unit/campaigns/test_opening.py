"""A share of `make bench-open`: its logs are whole, and opening one takes as many round trips as it says; its
times are for the benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.lifecycle.opening import LOST, WORLDS, grow, measure, measure_lost, round_trips
from bench.page import large_logs
from txnformat.store.local import LocalStore
from txnformat.verify.report import ProblemKind
from txnlog import TxnLog
from txnlog_testing.stores.counting import CountingStore

BY_NAME = {one.name: one for one in WORLDS}
SMALL = {
    "entries": replace(BY_NAME["entries"], commits=250),
    "topics": replace(BY_NAME["topics"], topics=3, commits=9),
    "partition": replace(BY_NAME["partition"], commits=2, batches=1_500),
}


@pytest.mark.parametrize("name", SMALL)
def test_a_log_that_is_made_for_measuring_is_whole(name: str, tmp_path: Path) -> None:
    done: list[int] = []
    world = SMALL[name]
    grow(tmp_path, world, done.append)
    assert len(done) == world.commits
    with TxnLog.open(tmp_path) as log:
        appended = sum(partition.log_end for partition in log.state.partitions.values())
        report = log.verify()
    assert appended == 2 * world.commits * world.partitions_of_commit * world.batches
    assert {problem.kind for problem in report.problems} <= {ProblemKind.MISSING}, "there are no data files"


def test_the_figures_of_a_log_with_snapshots(tmp_path: Path) -> None:
    grow(tmp_path, SMALL["entries"])
    assert round_trips(CountingStore(LocalStore(tmp_path))) == 4
    found = measure(tmp_path, "entries")
    assert (found.batches, found.partitions, found.open_round_trips) == (250, 10, 4)
    assert found.snapshot_bytes > 0
    assert found.tail_entries <= 101
    assert found.open_requests < 250
    lost = [measure_lost(tmp_path, what) for what in LOST]
    assert all(one.open_requests > 0 for one in lost)


def test_the_table_has_a_row_for_each_figure_and_a_column_for_each_log() -> None:
    lost = [
        {"what": LOST[what], "open_wall_ms": 1.5, "open_requests": 1_000, "open_memory_mib": 0.1}
        for what in LOST
    ]
    lines = large_logs([{"world": name, "open_ms": 2.0, "lost": lost} for name in ("a", "b")])
    assert lines[:3] == ["| | a | b |", "|---|---|---|", "| open ms | 2.0 | 2.0 |"]
    assert "| without the hint: open requests | 1,000 | 1,000 |" in lines
