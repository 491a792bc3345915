"""Attack every decoder and every form of input: ``python -m tests.fuzz [--inputs N] [--only TEXT] [--seed
N]``.

Prints a line for each target and exits with 1 when an input ended by a signal, by an error that is none of
txnlog's, after 20 seconds, or with more than 4 GiB. Such inputs are kept in ``--keep``; mend the cause, then
move them to ``tests/fuzz/corpus``. ``tests.mutants`` attacks footers, pages and Arrow files in the same way.
"""

from __future__ import annotations

import sys

from tests.fuzz.targets import Target, targets
from tests.mutants.runner import Report, campaign, run

CHUNK = 5_000
"""Inputs that are in memory at a time."""


def attack(target: Target, seed: int, inputs: int) -> Report:
    """Return what became of the kept inputs of a target and of changed ones."""
    report = run([*target.seeds, *target.corpus()], target.use)
    for number in range(0, inputs, CHUNK):
        report.add(run(target.inputs(seed + number, min(CHUNK, inputs - number)), target.use))
    return report


if __name__ == "__main__":
    sys.exit(campaign("tests.fuzz", targets(), 750_000, attack))
