"""The cost model: requests of a step are bounded, and the table of docs/operations.md is what the model says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.cost import MONTH_S, PRICES, WORKLOADS, Workload, bill, dollars

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
STEPS = 300
"""Enough for the first bundles and snapshots; a bundle is written for each hundred."""


def test_a_thousand_writes_a_second_cost_what_the_price_list_says() -> None:
    assert dollars({"write": 1_000}) == pytest.approx(MONTH_S * PRICES["write"])
    assert dollars({"read": 1_000, "write": 0}) == pytest.approx(MONTH_S * PRICES["read"])


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda one: one.name)
def test_the_page_says_what_the_model_counts(workload: Workload) -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {workload.name} |")]
    writes, reads, requests, metadata, keeping = (
        float(cell.replace(",", "")) for cell in line.split("|")[2:-1]
    )
    found = bill(replace(workload, steps=100 if "consumer" in workload.name else STEPS))
    assert found.writes == pytest.approx(writes, rel=0.03, abs=0.02)
    assert found.reads == pytest.approx(reads, rel=0.03, abs=0.02)
    assert found.requests_usd == pytest.approx(requests, rel=0.03, abs=0.02)
    # Sizes vary more: the first snapshots are small, and come early.
    assert found.metadata_gb == pytest.approx(metadata, rel=0.4, abs=0.02)
    assert found.metadata_usd == pytest.approx(keeping, rel=0.4, abs=0.02)
