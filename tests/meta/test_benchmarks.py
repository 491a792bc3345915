"""docs/internals/benchmarks.md is what the kept results say, and the results are those of the rows that the
code has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.lifecycle.opening import WORLDS, newer
from bench.page import LARGE_LOGS_MORE, PAGE, RESULTS, large_logs, page, verdict
from bench.registry import benchmarks
from bench.table import ROUNDS
from tests.meta.markdown import ROOT

RESULT: dict[str, Any] = json.loads((ROOT / RESULTS).read_text(encoding="utf-8"))
ROWS = {row["key"]: row for benchmark in RESULT["benchmarks"] for row in benchmark["rows"]}
UNMEASURED = RESULT.get("unmeasured", [])
KNOWN = {
    row.key: row for benchmark in benchmarks() if benchmark.name not in UNMEASURED for row in benchmark.rows
}


def test_the_page_is_made_from_the_results() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(RESULT), "run python -m bench --page"


def test_every_row_of_the_code_has_a_result_and_there_are_no_others() -> None:
    assert set(ROWS) == set(KNOWN), "run make bench"


def test_a_benchmark_without_results_is_named_on_the_page() -> None:
    without = [each.name for each in benchmarks() if not any(row.key in ROWS for row in each.rows)]
    assert without == UNMEASURED, "run python -m bench --page"
    shown = (ROOT / PAGE).read_text(encoding="utf-8")
    assert all(name in shown for name in without)


@pytest.mark.parametrize("key", KNOWN)
def test_a_result_was_measured_for_the_row_as_it_is(key: str) -> None:
    """A target that is changed, or a figure that is edited, does not go unnoticed."""
    row, result = KNOWN[key], ROWS[key]
    assert (result["work"], result["against"], result["unit"]) == (row.work, row.against, row.figure)
    assert (result["target"], result["at_least"]) == (row.target, row.at_least)
    assert result["figure"] is not None, result["note"]
    rounds = sorted(result["rounds"])
    assert len(rounds) >= ROUNDS
    middle = len(rounds) // 2
    median = rounds[middle] if len(rounds) % 2 else (rounds[middle - 1] + rounds[middle]) / 2
    assert result["figure"] == pytest.approx(median)
    assert result["met"] is row.met(result["figure"])


@pytest.mark.parametrize("key", [key for key, result in ROWS.items() if verdict(result) == "missed"])
def test_a_miss_says_why(key: str) -> None:
    assert len(ROWS[key]["note"]) > 100
    assert ROWS[key]["note"] == KNOWN[key].note, "run python -m bench --page"


def test_a_large_log_that_is_measured_again_leaves_the_others_and_the_text() -> None:
    """The text is in the code: what is measured replaces figures only."""
    first, second, *_ = [world.name for world in WORLDS]
    kept = [{"world": first, "entries": 1, "older": 7}, {"world": second, "entries": 2_000}]
    found = newer(kept, [{"world": first, "entries": 3, "lost": [{"what": "gone", "open_wall_ms": 1.5}]}])
    assert large_logs(found) == [
        f"| | {first} | {second} |",
        "|---|---|---|",
        "| entries | 3 | 2,000 |",
        "| gone: open wall ms | 1.5 | – |",
        "| gone: open requests | – | – |",
        "| gone: open memory mib | – | – |",
    ]
    again = page({**RESULT, "large_logs": {"worlds": newer(RESULT["large_logs"]["worlds"], found)}})
    assert LARGE_LOGS_MORE in again
    assert LARGE_LOGS_MORE in page(RESULT)
