"""Runs a system: a writer that is killed now and then, and a reader beside it; and says what the reader
saw.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from demo.cdc.changes import expected
from demo.cdc.reader import Read
from demo.cdc.systems import opened

__all__ = ["Load", "Run", "is_complete", "run"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of a run."""

    seed: int
    count: int
    """The shop's transactions."""
    rate: float
    """Transactions a second at most."""
    kills: int

    def moments(self) -> Mapping[int, float]:
        """Return when the writer is killed: transactions, and how much of one's usual time has passed since
        it began, 0 to 1.
        """
        draws = random.Random(f"kills {self.seed}")
        chosen = sorted(draws.sample(range(2, self.count), self.kills))
        return {number: draws.random() for number in chosen}


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a system: its reads, kills and outcome."""

    system: str
    began: float
    """Seconds of the machine's monotonic clock."""
    reads: Sequence[Read]
    kills: Sequence[float]
    """When the writer was killed, seconds of the same clock."""
    seconds: float
    """Usual time of a transaction of the writer (median)."""
    is_complete: bool
    """In the end both tables hold exactly what the shop has committed: nothing is lost, doubled, or rolled
    back."""

    def ways(self) -> dict[str, list[Read]]:
        """Return the reads by way."""
        found: dict[str, list[Read]] = {}
        for one in self.reads:
            found.setdefault(one.way, []).append(one)
        return found


def run(system: str, path: str, load: Load, show: Callable[[int], None] = lambda _: None) -> Run:
    """Write the whole load to a new place, with a reader beside it.

    ``show`` gets the number of the transaction that was done last.
    """
    target = opened(system, path)  # so that the reader finds both tables
    began = time.monotonic()
    with tempfile.TemporaryFile() as said:
        with _process("reader", system, path, load.seed, stdin=subprocess.PIPE, stdout=said) as reader:
            try:
                kills, seconds = _write(system, path, load, show)
                reader.communicate()  # closes its stdin
            finally:
                reader.kill()
        if reader.returncode:
            raise RuntimeError(f"the reader of {system} ended with {reader.returncode}")
        said.seek(0)
        reads = msgspec.json.Decoder(Read).decode_lines(said.read())
    return Run(system, began, reads, kills, seconds, is_complete(target.everything(), load))


def _process(name: str, *arguments: object, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a module of this package. Ctrl-C reaches this process alone, which ends the others."""
    command = [sys.executable, "-m", f"demo.cdc.{name}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, start_new_session=True, **streams)


def _write(system: str, path: str, load: Load, show: Callable[[int], None]) -> tuple[list[float], float]:
    """Run writers until the load is written: each but the last is killed; return when, and the usual time of
    a transaction.
    """
    left = dict(load.moments())
    kills: list[float] = []
    durations: list[float] = []
    while True:
        killed = False
        with _process(
            "writer", system, path, load.seed, load.count, load.rate, stdout=subprocess.PIPE
        ) as writer:
            try:
                begun = 0.0
                for line in writer.stdout or ():
                    said, number = line.decode().split()
                    if said == "done":
                        durations.append(time.monotonic() - begun)
                        show(int(number))
                        continue
                    begun = time.monotonic()
                    if (share := left.pop(int(number), None)) is not None:
                        time.sleep(share * _usual(durations))
                        writer.kill()
                        killed = True
                        kills.append(time.monotonic())
                        break
            finally:
                writer.kill()
        if not killed:
            if writer.returncode:
                raise RuntimeError(f"the writer of {system} ended with {writer.returncode}")
            return kills, _usual(durations)


def _usual(durations: Sequence[float]) -> float:
    """Return the median, seconds; 0 if there is none."""
    return statistics.median(durations) if durations else 0.0


def is_complete(found: tuple[pa.Table, pa.Table], load: Load) -> bool:
    """Return whether tables have all rows of the shop, each once."""
    wanted = expected(load.seed, load.count)
    keys = (["order_id", "version"], ["payment_id"])
    return all(
        one.cast(other.schema)
        .sort_by([(name, "ascending") for name in key])
        .equals(other.sort_by([(name, "ascending") for name in key]))
        for one, other, key in zip(found, wanted, keys, strict=True)
    )
