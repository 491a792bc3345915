"""What a seed chooses: whom to hit next, where, and how. Pure but for the generator that is handed in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.chaos.faults import Fault

__all__ = ["BY_TIME", "KINDS", "VICTIMS", "Kind", "Strike", "next_strike", "settings_of"]

Kind = Literal["task", "executor", "committer", "driver", "driver-jvm", "zombie", "source"]

KINDS: dict[Kind, tuple[str, int]] = {
    "task": ("Python worker of a task", 10),
    "executor": ("executor's JVM", 6),
    "committer": ("Python worker that commits", 4),
    "driver": ("driver, all of it", 3),
    "driver-jvm": ("driver's JVM, not the Python that commits", 2),
    "zombie": ("driver, stopped, and continued after its successor has gone on", 2),
}
"""What is hit, and how often, compared with the others. What costs the start of a Spark is rarer."""

VICTIMS: dict[Kind, tuple[str, int]] = {**KINDS, "source": ("Python process that follows the source", 5)}
"""With who is there only where the source is a log: :mod:`tests.pipeline`."""

BY_TIME = "by time"
TIME_SHARE = 0.15
"""How many strikes come by the clock instead of at a point."""
MILLISECONDS_MAX = 2_000

TASK_POINTS = (
    "write/start",
    "write/row",
    "write/last",
    "write/before-data",
    "write/after-data",
    "write/uploaded",
)
COMMIT_POINTS = (
    "plan",
    "commit/start",
    "commit/before-entry",
    "commit/after-entry",
    "commit/done",
)
TIMED: frozenset[Kind] = frozenset({"task", "executor", "driver"})


@dataclass(frozen=True, kw_only=True)
class Strike:
    """One thing to happen."""

    kind: Kind
    fault: Fault | None = None
    """None: it comes by the clock."""
    after_ms: int = 0
    settles: bool = False
    """Whether a micro-batch is to be committed before the next strike."""
    lingers: bool = False
    """Whether what a dead driver leaves may go on while its successor works."""

    @property
    def ends_driver(self) -> bool:
        return self.kind in ("driver", "driver-jvm", "zombie")

    @property
    def is_kill(self) -> bool:
        return self.kind != "zombie"


def next_strike(rng: random.Random, *, kinds: Sequence[Kind]) -> Strike:
    """Choose one of the kinds, each as often as VICTIMS says."""
    kind = rng.choices(kinds, [VICTIMS[kind][1] for kind in kinds])[0]
    settles, lingers = rng.random() < 0.5, rng.random() < 0.5
    if kind in TIMED and rng.random() < TIME_SHARE:
        after_ms = rng.randint(1, MILLISECONDS_MAX)
        return Strike(kind=kind, after_ms=after_ms, settles=settles, lingers=lingers)
    at_task = kind in ("task", "executor") or (kind in ("driver", "zombie") and rng.random() < 0.3)
    point = rng.choice(TASK_POINTS if at_task else COMMIT_POINTS)
    if kind in ("driver-jvm", "committer") and point == "plan":
        point = "commit/before-entry"  # planning has a Python worker of its own
    fault = Fault(
        point=point,
        victim={"task": "worker", "committer": "worker", "executor": "jvm", "driver-jvm": "jvm"}.get(  # type: ignore[arg-type]
            kind, "driver"
        ),
        how="stop" if kind == "zombie" else "kill",
        nth=rng.randint(1, 4) if at_task else rng.randint(1, 2),
    )
    return Strike(kind=kind, fault=fault, settles=settles, lingers=lingers)


def settings_of(rng: random.Random) -> dict[str, int]:
    """Choose the shape of a history's data."""
    return {
        "partitions": rng.randint(1, 4),  # of the topic
        "files_per_trigger": rng.randint(1, 3),
        "rows_per_file_max": rng.choice([5, 40, 150]),  # 1,024 bytes, about 40 rows, make a task
    }
