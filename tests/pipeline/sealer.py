"""Maintenance, running throughout: what there is of it."""

from __future__ import annotations

import random
import threading

from tests.pipeline.processes import Task, open_log

__all__ = ["seal"]

PAUSE_MS = (5, 150)
OTHERS = 0.1
"""How often all of it is done, and not sealing alone."""


def seal(task: Task) -> None:
    """Seal until everybody is to end."""
    rng = random.Random(f"{task.seed} {task.slot} {task.incarnation}")
    with open_log(task) as log:
        task.began.touch()
        while not task.is_over:
            if rng.random() < OTHERS:
                log.maintain()
            else:
                log.maintain("seal")
            threading.Event().wait(rng.randint(*PAUSE_MS) / 1_000)
