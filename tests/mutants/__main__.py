"""Changed footers, pages and Arrow files in numbers: ``python -m tests.mutants [--inputs N] [--only TEXT]
[--seed N]``.

Prints a line for each target and exits with 1 when an input ended by a signal, by an error that is none of
txnlog's, or with other rows than were written; such inputs are kept in ``--keep``.
"""

from __future__ import annotations

import sys
from itertools import islice

from tests.mutants.runner import Report, campaign, run
from tests.mutants.targets import Target, targets

CHUNK = 5_000
"""Inputs that are in memory at a time."""


def attack(target: Target, seed: int, inputs: int) -> Report:
    """Return what became of about ``inputs`` changed copies of a target: each byte several times, the rest
    drawn."""
    times = min(14, max(1, inputs // 2 // max(1, target.end - target.start)))
    drawn = max(0, inputs - times * (target.end - target.start))
    report = Report()
    waiting = target.inputs(seed, times, drawn)
    while chunk := list(islice(waiting, CHUNK)):
        report.add(run(chunk, target.use))
    return report


if __name__ == "__main__":
    sys.exit(campaign("tests.mutants", targets(), 200_000, attack))
