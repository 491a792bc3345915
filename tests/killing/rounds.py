"""Histories of a job that is killed again and again, each made from a seed.

A history has a log (or two), a worker with settings of its own, and rounds: a worker starts, goes on where
the one before was killed, and is killed at a point that the seed chooses, or when some milliseconds have
passed. Between the rounds somebody outside compares outputs with positions. When nothing is left to read
there is more input, aborted transactions among it. At the end a worker is let through, and every output is
counted.

The same seed makes the same history as far as a kill can be repeated: which point is the n-th depends on the
worker alone, but for its threads in the background; what has happened after some milliseconds does not.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.killing.etl import Job
from tests.killing.outside import Compared, feed, look, look_at_all, opened, prepare
from tests.killing.points import ANY
from tests.killing.workers import FENCED, REFUSED, Nursery, Worker
from txnlog import Producer

KILLED = -9
POINTS_MAX = 60
"""The last point, counted from the worker's start, at which it may be killed."""
MILLISECONDS_MAX = 200
"""The same of the kills by time."""
BY_TIME, TOGETHER, DIRTY, SEALED = 0.15, 0.15, 0.3, 0.2
"""How often: kills by time; two workers at once; input with an aborted transaction; seals between rounds."""


@dataclass
class History:
    """What became of one seed."""

    seed: int
    settings: dict[str, Any] = field(default_factory=dict)
    rounds: int = 0
    kills: int = 0
    points: Counter[str] = field(default_factory=Counter)
    """Where workers were killed."""
    ends: Counter[str] = field(default_factory=Counter)
    """How workers ended that were not killed."""
    inputs: int = 0
    records: int = 0
    duplicates: int = 0
    losses: int = 0
    problems: list[str] = field(default_factory=list)
    """What somebody outside saw that must not be."""

    def saw(self, when: str, found: Compared) -> None:
        if not found.is_exact:
            self.problems.append(
                f"{when}: {len(found.duplicates)} duplicates, {len(found.losses)} losses: "
                f"{found.duplicates[:3]} {found.losses[:3]}"
            )


def run_history(
    nursery: Nursery, place: str, seed: int, kills: int, *, notes: Path, **settings: Any
) -> History:
    """Run one history.

    Parameters
    ----------
    place : str
        Path or URL under which its logs are to be.
    kills : int
        When it is over.
    notes : Path
        A folder of this machine.
    **settings
        Of the job, instead of what the seed chooses.
    """
    rng = random.Random(seed)
    chosen: dict[str, Any] = {
        "buffer": rng.choice(["auto", "inline", "deferred"]),
        "batch": rng.randint(1, 12),
        "flushes": rng.random() < 0.5,
    }
    other = f"{place}/b" if rng.random() < 0.3 else None
    job = prepare(f"{place}/a", other=other, note=str(notes / f"point-{seed}"), **(chosen | settings))
    history = History(seed, {**chosen, "two_roots": other is not None})
    _more(rng, job)
    while history.kills < kills:
        history.rounds += 1
        _round(rng, nursery, job, history)
        history.saw(f"after round {history.rounds}", look(job))
        if rng.random() < SEALED:
            opened(job, job.target).maintain("seal")
    code = nursery.run(job)
    if code:
        history.problems.append(f"the last worker, which nobody killed, ended with {code}")
    found = look_at_all(job)
    history.saw("at the end", found)
    history.inputs, history.records = found.inputs, found.records
    history.duplicates, history.losses = len(found.duplicates), len(found.losses)
    return history


def _round(rng: random.Random, nursery: Nursery, job: Job, history: History) -> None:
    """Let one worker work, or two at once, until they are killed or there is nothing left to read."""
    workers: list[tuple[Worker, Path, int | None]] = []
    for number in range(1 + (rng.random() < TOGETHER)):
        note = Path(f"{job.note}-{number}")
        note.unlink(missing_ok=True)
        if rng.random() < BY_TIME:
            delay = rng.randint(1, MILLISECONDS_MAX)
            workers.append((nursery.start(replace(job, note=None)), note, delay))
        else:
            doomed = replace(job, at=ANY, nth=rng.randint(1, POINTS_MAX), note=str(note))
            workers.append((nursery.start(doomed), note, None))
    codes = []
    for worker, note, delay_ms in workers:
        if delay_ms is not None:
            threading.Event().wait(delay_ms / 1_000)
            worker.kill()
        codes.append(code := worker.end())
        if code == KILLED:
            history.kills += 1
            history.points[note.read_text() if delay_ms is None else "by time"] += 1
        else:
            history.ends[{0: "done", REFUSED: "refused", FENCED: "fenced"}.get(code, f"failed: {code}")] += 1
            if code not in (0, REFUSED, FENCED):
                history.problems.append(f"round {history.rounds}: a worker failed with {code}")
    if 0 in codes:
        _more(rng, job)


def _more(rng: random.Random, job: Job) -> None:
    """Write more to read."""
    feed(job, *(rng.randrange(1_000) for _ in range(rng.randint(8, 40))))
    if rng.random() < DIRTY:
        with Producer(opened(job, job.source), "source", buffer="inline") as producer:
            producer.begin()
            producer.send("raw", [{"n": -1}], partition=rng.randrange(2))
            producer.flush()
            feed(job, rng.randrange(1_000), rng.randrange(1_000))
            producer.abort()
