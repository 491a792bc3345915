"""Inputs run in forked processes: what ends a process by a signal is found, and the rest goes on.

:func:`run` gives each input to a function and says which of them ended otherwise than by returning or by an
error of txnlog. A child takes hundreds of inputs; when one kills it, the next child goes on behind that
input. :func:`campaign` is the command line of a program that does it to many targets.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import mmap
import os
import resource
import signal
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from txnformat.errors import TxnLogError

__all__ = ["Report", "campaign", "run"]

INPUTS_PER_CHILD = 500
SECONDS_MAX = 120
"""For one input; beyond that it counts as one that ended by SIGALRM."""
MEMORY_MAX = 4 * 1024**3
"""Address space that a child may take beyond what it has."""


class Named(Protocol):
    """A target of a campaign."""

    @property
    def name(self) -> str:
        """What the target is called in lines and options."""

    @property
    def weight(self) -> float:
        """Its share of the inputs, among the weights of all."""


T = TypeVar("T", bound=Named)


@dataclass(slots=True)
class Report:
    """What became of the inputs."""

    inputs: int = 0
    refused: int = 0
    """Those that raised a TxnLogError; the rest returned."""
    failures: list[tuple[bytes, str]] = field(default_factory=list)
    """Inputs that ended by a signal or another error, with its text."""

    def __str__(self) -> str:
        return f"{self.inputs:,} inputs, {self.refused:,} refused, {len(self.failures)} failed"

    def add(self, other: Report) -> None:
        """Count another report in."""
        self.inputs += other.inputs
        self.refused += other.refused
        self.failures += other.failures


def run(inputs: Sequence[bytes], use: Callable[[bytes], object]) -> Report:
    """Give each input to ``use``, in forked processes.

    Parameters
    ----------
    use : callable
        Returns, or raises a TxnLogError; anything else is a failure. An AssertionError is one, too.
    """
    report = Report()
    done = 0
    with mmap.mmap(-1, 16) as progress:
        while done < len(inputs):
            end = min(len(inputs), done + INPUTS_PER_CHILD)
            progress[:16] = struct.pack("<qq", done, 0)
            status, failures = _child(inputs, done, end, use, progress)
            at, refused = struct.unpack("<qq", progress[:16])
            report.refused += refused
            report.failures += [(inputs[number], what) for number, what in failures]
            if status:
                what = signal.Signals(status & 0x7F).name if status & 0x7F else f"exit {status >> 8}"
                report.failures.append((inputs[at], what))
                end = at + 1
            report.inputs += end - done
            done = end
    return report


def _child(
    inputs: Sequence[bytes], start: int, end: int, use: Callable[[bytes], object], progress: mmap.mmap
) -> tuple[int, list[tuple[int, str]]]:
    """Return how a child ended that took inputs [start, end), and what it failed at besides."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _work(inputs, start, end, use, progress, writing)
            os._exit(0)
        finally:
            os._exit(70)  # nothing of the caller may go on in the child
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    return status, [(number, what) for number, what in map(json.loads, told.splitlines())]


def _work(
    inputs: Sequence[bytes],
    start: int,
    end: int,
    use: Callable[[bytes], object],
    progress: mmap.mmap,
    writing: int,
) -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_MAX, size + MEMORY_MAX))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what C++ says before it ends the process
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    refused = 0
    for number in range(start, end):
        progress[:16] = struct.pack("<qq", number, refused)
        signal.alarm(SECONDS_MAX)
        try:
            use(inputs[number])
        except TxnLogError:
            refused += 1
        except BaseException as error:  # noqa: BLE001 - that it is none of txnlog's is what is told
            what = f"{type(error).__name__}: {error}"[:300]
            os.write(writing, json.dumps([number, what]).encode() + b"\n")
    progress[:16] = struct.pack("<qq", end, refused)


def campaign(program: str, targets: Sequence[T], inputs: int, attack: Callable[[T, int, int], Report]) -> int:
    """Attack targets as the command line says, print what came of it, and return the exit code: 1 when an
    input failed.

    Parameters
    ----------
    inputs : int
        Over all targets, if the command line says nothing else.
    attack : callable
        Gets a target, the seed and a number of inputs.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--inputs", type=int, default=inputs, help="over all targets")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where failing inputs go")
    asked = parser.parse_args()
    chosen = [target for target in targets if asked.only in target.name]
    total = sum(target.weight for target in chosen)
    whole = Report()
    for target in chosen:
        report = attack(target, asked.seed, int(asked.inputs * target.weight / total) + 1)
        whole.add(report)
        print(f"{target.name}: {report}", flush=True)
        for data, what in report.failures[:5]:
            folder = asked.keep / target.name
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / hashlib.sha256(data).hexdigest()[:12]
            path.write_bytes(data)
            print(f"  {what}: {path}")
    print(whole)
    return 1 if whole.failures else 0
