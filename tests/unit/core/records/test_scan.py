"""Planning: which entry committed each batch, for numbers of any size."""

from __future__ import annotations

import numpy as np
import pytest

from bench.plan import partition
from txnformat.core.records.scan import HALF, check_range, plan_partition
from txnformat.types import IsolationLevel


@pytest.mark.parametrize("shift", [0, HALF - 4, HALF, 2**62])
@pytest.mark.parametrize("column", ["producer_id", "epoch"])
def test_the_entry_that_committed_a_batch_is_that_of_its_transactions_marker(column: str, shift: int) -> None:
    """Large producer ids and epochs must not be mistaken for others when two numbers are looked up as one."""
    state = partition(8_000)
    for rows in (state.extents.array(), state.markers.array(), state.aborted.array()):
        rows[column] += shift
    wanted = check_range(state, IsolationLevel.READ_UNCOMMITTED, None, None, topic="t", number=0)
    plan = plan_partition(0, state, wanted, IsolationLevel.READ_UNCOMMITTED, {})
    entry_of = {
        (int(marker["producer_id"]), int(marker["epoch"])): int(marker["entry"])
        for marker in state.markers.array()
        if marker["commit"]
    }
    expected = [
        entry_of.get((int(row["producer_id"]), int(row["epoch"])), -1) for row in state.extents.array()
    ]
    assert plan.rows["commit_entry"].tolist() == expected
    assert 0 < np.count_nonzero(plan.rows["commit_entry"] == -1) < len(expected)


def test_batches_whose_transaction_has_no_marker_yet_have_no_commit_entry() -> None:
    state = partition(800)
    undecided = type(state)(log_end=state.log_end, extents=state.extents)
    wanted = check_range(undecided, IsolationLevel.READ_UNCOMMITTED, None, None, topic="t", number=0)
    plan = plan_partition(0, undecided, wanted, IsolationLevel.READ_UNCOMMITTED, {})
    assert set(plan.rows["commit_entry"].tolist()) == {-1}
