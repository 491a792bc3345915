"""Planning a read of a million batches: which of them a reader at read_committed reads.

No data is read to plan.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from bench import scale
from bench.table import ROUNDS, Benchmark, Context, Measurement, Row
from txnformat.core.records.scan import check_range, plan_partition
from txnformat.core.records.state import ABORTED, EXTENT, MARKER, PartitionState
from txnformat.persistent import Columns
from txnformat.reading.plan import plan_read
from txnformat.reading.sealed import SidecarCache
from txnformat.types import IsolationLevel

__all__ = ["BENCHMARKS", "partition"]

BATCHES = 1_000_000
RECORDS = 100
"""Records of a batch."""
PRODUCERS = 8
"""They write at the same time, a batch in turn."""
BATCHES_OF_TRANSACTION = 10
ABORTED_EVERY = 10
SEGMENTS = 100_000
PARTITIONS = 10_000


def partition(batches: int) -> PartitionState:
    """Return a partition with so many batches, in transactions of which every tenth was aborted."""
    rounds = batches // (PRODUCERS * BATCHES_OF_TRANSACTION)
    shape = (rounds, BATCHES_OF_TRANSACTION, PRODUCERS)
    count = int(np.prod(shape))
    of_round, _, producer = (axis.ravel() for axis in np.indices(shape))
    markers_before = of_round * PRODUCERS  # all producers end their transactions when the round is over
    extents = np.zeros(count, EXTENT)
    extents["base_offset"] = np.arange(count) * RECORDS + markers_before
    extents["records"] = RECORDS
    extents["producer_id"] = producer
    extents["epoch"] = of_round
    extents["transactional"] = 1
    extents["entry"] = np.arange(count) + markers_before
    extents["size"] = 10_000
    extents["file"] = np.arange(count) // 100
    extents["table"] = -1
    extents["row_group"] = np.arange(count) % 100
    extents["row_group_count"] = extents["batch_count"] = 1

    ends = np.arange(rounds * PRODUCERS)
    markers = np.zeros(len(ends), MARKER)
    markers["epoch"], markers["producer_id"] = np.divmod(ends, PRODUCERS)
    markers["offset"] = (markers["epoch"] + 1) * (RECORDS * BATCHES_OF_TRANSACTION * PRODUCERS) + ends
    markers["entry"] = (markers["epoch"] + 1) * BATCHES_OF_TRANSACTION * PRODUCERS + ends
    is_aborted = ends % ABORTED_EVERY == 0
    markers["commit"] = ~is_aborted

    of_aborted = markers[is_aborted]
    aborted = np.zeros(len(of_aborted), ABORTED)
    for name in ("producer_id", "epoch", "entry"):
        aborted[name] = of_aborted[name]
    aborted["last_offset"] = of_aborted["offset"]
    aborted["last_stable_offset"] = of_aborted["offset"] + 1
    first = of_aborted["epoch"] * (BATCHES_OF_TRANSACTION * PRODUCERS) + of_aborted["producer_id"]
    aborted["first_offset"] = extents["base_offset"][first]
    return PartitionState(
        log_end=int(markers["offset"][-1]) + 1,
        extents=Columns(EXTENT, (extents,)),
        markers=Columns(MARKER, (markers,)),
        aborted=Columns(ABORTED, (aborted,)),
    )


def measure(context: Context) -> list[Measurement]:
    """Return batches planned in a second."""
    context.tick("laying out")
    state = partition(BATCHES)
    level = IsolationLevel.READ_COMMITTED
    found = []
    plan = None
    for number in range(1 + ROUNDS):
        context.tick(f"{number + 1}/{1 + ROUNDS}")
        start = time.perf_counter()
        wanted = check_range(state, level, None, None, topic="t", number=0)
        plan = plan_partition(0, state, wanted, level, {})
        elapsed = time.perf_counter() - start
        if number:
            found.append(len(state.extents) / elapsed)
    planned = 0 if plan is None else int((plan.rows["commit_entry"] >= 0).sum())
    if planned != len(state.extents) * (ABORTED_EVERY - 1) // ABORTED_EVERY:
        raise RuntimeError(f"{planned} batches were planned")
    milliseconds = round(len(state.extents) / statistics.median(found) * 1_000)
    return [
        Measurement("plan-batches", tuple(found), {"batches_planned": planned, "milliseconds": milliseconds})
    ]


def measure_segments(context: Context) -> list[Measurement]:
    """Return the seconds of the processor for a plan of a topic with so many sealed segments; none of their
    sidecars is read.
    """
    log = scale.Growing(PARTITIONS, 1)
    for number in range(SEGMENTS // PARTITIONS):
        context.tick(f"sealing {number + 1}/{SEGMENTS // PARTITIONS}")
        log.append()
        while log.unsealed:
            log.seal()
    seconds = []
    for number in range(1 + ROUNDS):
        context.tick(f"{number + 1}/{1 + ROUNDS}")
        start = time.process_time()
        plan = plan_read(SidecarCache(log.store), log.state, "orders", open_sealed=False)
        elapsed = time.process_time() - start
        if len(plan.sealed) != SEGMENTS:
            raise RuntimeError(f"{len(plan.sealed)} segments were planned")
        if number:
            seconds.append(elapsed)
    return [Measurement("plan-segments", tuple(seconds), {"segment_lists": len(log.state.segment_lists)})]


BENCHMARKS = (
    Benchmark(
        name="plan-segments",
        how=(
            f"`plan_read` of a topic of {PARTITIONS:,} partitions with {SEGMENTS:,} sealed segments, "
            "which the real code sealed, as Spark's driver calls it: the lists of segments are read, "
            "the sidecars are not. A cache of its own each time; objects in memory."
        ),
        rows=(
            Row(
                key="plan-segments",
                work=f"plan of {SEGMENTS:,} sealed segments",
                against="–",
                figure="s of the processor",
                target=2,
                at_least=False,
            ),
        ),
        measure=measure_segments,
        minutes=1,
    ),
    Benchmark(
        name="plan",
        how=(
            f"`plan_partition` on a partition of {BATCHES:,} batches that {PRODUCERS} producers wrote in "
            "turn, in transactions "
            f"of {BATCHES_OF_TRANSACTION} batches of which every {ABORTED_EVERY}th was aborted: range, "
            "filter by the abort "
            "index, and the rows of the plan with the entries that committed them."
        ),
        rows=(
            Row(
                key="plan-batches",
                work="plan and filter 1,000,000 batches, 10 % aborted",
                against="–",
                figure="batches/s",
                target=1_000_000,
                digits=0,
            ),
        ),
        measure=measure,
        minutes=0.2,
    ),
)
