"""A share of `make bench-folds`: its commits are made by the real code, and what is told fits; its times are
for the benchmark."""

from __future__ import annotations

from bench.lifecycle.folding import BESIDE, COMMITS, Sizes, compare, fold, text


def test_commits_beside_much_are_made_by_the_real_code() -> None:
    beside = {"nothing": BESIDE["nothing"], "some": Sizes(3, 10_000, 3, 3)}
    found = compare(beside, rounds=2, commits=8)
    assert {kind: list(times) for kind, times in found.items()} == {
        kind: ["nothing", "some"] for kind in COMMITS
    }
    assert all(len(times) == 2 and min(times) > 0 for each in found.values() for times in each.values())
    folded = fold(30, rounds=1)
    assert folded.entries == 30
    lines = text(found, folded)
    assert lines[0] == f"| beside | {' | '.join(COMMITS)} |"
    assert lines[2].startswith("| nothing | ")
    assert lines[2].count("(1.00)") == len(COMMITS)
    assert "Of a log of 30 entries" in lines[-1]
