"""The cost model: requests of a step are bounded, and the table of docs/operate.md is what the model says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.cost import MONTH_S, PRICES, WORKLOADS, Workload, bill, billed, dollars, embedded
from txnformat.protocol.commit import CommitSettings
from txnformat.protocol.sealing import SEAL_EXTENTS
from txnformat.store.memory import MemoryStore
from txnformat.store.requests import KeyClass, RequestKind
from txnlog_testing.stores.counting import CountingStore

PAGE = Path(__file__).parents[3] / "docs" / "operate.md"
STEPS = 300
"""Enough for the first bundles and snapshots; a bundle is written for each hundred."""


def test_a_thousand_writes_a_second_cost_what_the_price_list_says() -> None:
    assert dollars({"write": 1_000}) == pytest.approx(MONTH_S * PRICES["write"])
    assert dollars({"read": 1_000, "write": 0}) == pytest.approx(MONTH_S * PRICES["read"])


def test_a_million_small_transactions_in_their_entries_cost_at_most_six_dollars() -> None:
    """With their snapshots, bundles and seals: of these 16 times as many as there are."""
    every = SEAL_EXTENTS // 16
    steps = 4 * every + 8
    store = CountingStore(MemoryStore())
    log, step = embedded(store, settings=CommitSettings(seal_extents=every))
    with store.measure() as measured:
        for _ in range(steps):
            step()
            log.close()  # what is under way in the background ends in the seconds before the next step
    counts = measured.counts
    assert counts.count(RequestKind.CREATE, KeyClass.DATA) >= 3, "each seal writes one file"
    assert counts.count(RequestKind.OPEN_WRITE, KeyClass.DATA) == 0
    kinds = billed(counts)
    assert kinds["write"] <= 1.07 * steps
    assert kinds["read"] <= 1.1 * steps, "bundles read each entry once, and seals none"
    assert sum(PRICES[kind] * number / steps * 1_000 for kind, number in kinds.items()) <= 6


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
