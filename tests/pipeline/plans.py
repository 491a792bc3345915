"""What a seed chooses for a pipeline: whom to hit next, and where. Pure but for the generator that is handed
in."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.chaos import plans
from tests.chaos.faults import Fault
from tests.chaos.plans import VICTIMS, Kind, Strike
from txnformat.persistent import replace

__all__ = ["doom_of", "master_of", "next_strike", "settings_of"]

SOURCE_POINTS = ("latest/start", "latest/done", "splits/start", "splits/done")
FETCH_POINTS = ("fetch/start", "fetch/row")
SOURCE_SHARE = 0.4
"""How many of the other strikes hit at a step of the source."""

DOOMED, STOPPED = 0.7, 0.25
"""How many of the processes beside Spark end by themselves; how many of those stand still instead."""
REQUESTS_MAX = 120
"""The last request that writes at which they do."""


def next_strike(rng: random.Random, *, kinds: Sequence[Kind] = tuple(VICTIMS)) -> Strike:
    """Choose one of the kinds, each as often as VICTIMS says."""
    kind = rng.choices(kinds, [VICTIMS[kind][1] for kind in kinds])[0]
    if kind == "source":
        fault = Fault(point=rng.choice(SOURCE_POINTS), nth=rng.randint(1, 4))
        return Strike(kind=kind, fault=fault, settles=rng.random() < 0.5)
    strike = plans.next_strike(rng, kinds=[kind])
    if strike.fault is None or rng.random() >= SOURCE_SHARE or kind == "committer":
        return strike
    points = FETCH_POINTS if kind in ("task", "executor") else SOURCE_POINTS
    return replace(strike, fault=replace(strike.fault, point=rng.choice(points)))


def settings_of(rng: random.Random, seed: int) -> dict[str, int]:
    """Choose the shape of a history."""
    return {
        "by_commit": seed % 2,  # in which order the query reads
        "maxRowsPerTrigger": rng.choice([10, 40, 200]),
        "minPartitions": rng.choice([1, 2, 4]),
        "orders": rng.randint(1, 4),  # partitions
        "sides": rng.randint(1, 3),
    }


def master_of(seed: int) -> int:
    """Return whether tasks run in executors of their own (1) or in the driver (0)."""
    return seed // 2 % 2


def doom_of(rng: random.Random) -> tuple[int | None, bool]:
    """Choose at which of its requests that write a process ends, if at all, and whether it stands still
    instead."""
    if rng.random() >= DOOMED:
        return None, False
    return rng.randint(1, REQUESTS_MAX), rng.random() < STOPPED
