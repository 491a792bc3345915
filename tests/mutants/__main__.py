"""Changed footers, pages and Arrow files in numbers: ``python -m tests.mutants [--inputs N] [--only TEXT] [--seed N]``.

Prints a line for each target and exits with 1 when an input ended by a signal, by an error that is none of txnlog's, or
with other rows than were written; such inputs are kept in ``--keep``.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from itertools import islice
from pathlib import Path

from tests.mutants.runner import Report, run
from tests.mutants.targets import Target, targets

CHUNK = 5_000
"""Inputs that are in memory at a time."""


def attack(target: Target, seed: int, inputs: int) -> Report:
    """Return what became of about ``inputs`` changed copies of a target: each byte several times, the rest drawn."""
    times = min(14, max(1, inputs // 2 // max(1, target.end - target.start)))
    drawn = max(0, inputs - times * (target.end - target.start))
    report = Report()
    waiting = target.inputs(seed, times, drawn)
    while chunk := list(islice(waiting, CHUNK)):
        report.add(run(chunk, target.use))
    return report


def main() -> int:
    """Attack the targets and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--inputs", type=int, default=200_000, help="over all targets")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("mutants-found"), help="where failing inputs go")
    asked = parser.parse_args()
    chosen = [target for target in targets() if asked.only in target.name]
    whole = Report()
    for target in chosen:
        report = attack(target, asked.seed, asked.inputs // len(chosen))
        whole.add(report)
        print(
            f"{target.name}: {report.inputs:,} inputs, {report.refused:,} refused, {len(report.failures)} failed",
            flush=True,
        )
        for data, what in report.failures[:5]:
            asked.keep.mkdir(exist_ok=True)
            path = asked.keep / f"{target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"  {what}: {path}")
    print(f"{whole.inputs:,} inputs, {whole.refused:,} refused, {len(whole.failures)} failed")
    return 1 if whole.failures else 0


if __name__ == "__main__":
    sys.exit(main())
