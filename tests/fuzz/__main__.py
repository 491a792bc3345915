"""Attack every decoder and every form of input: ``python -m tests.fuzz [--inputs N] [--only TEXT] [--seed N]``.

Prints a line for each target and exits with 1 when an input ended by a signal, by an error that is none of txnlog's, after
20 seconds, or with more than 4 GiB. Such inputs are kept in ``--keep``; mend the cause, then move them to ``tests/fuzz/corpus``.
``tests.mutants`` attacks footers, pages and Arrow files in the same way.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path

from tests.fuzz.targets import Target, targets
from tests.mutants.runner import Report, run

CHUNK = 5_000
"""Inputs that are in memory at a time."""


def attack(target: Target, seed: int, inputs: int) -> Report:
    """Return what became of the kept inputs of a target and of changed ones."""
    report = run([*target.seeds, *target.corpus()], target.use)
    for number in range(0, inputs, CHUNK):
        report.add(run(target.inputs(seed + number, min(CHUNK, inputs - number)), target.use))
    return report


def main() -> int:
    """Attack the targets and print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--inputs", type=int, default=810_000, help="over all targets")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where failing inputs go")
    asked = parser.parse_args()
    chosen = [target for target in targets() if asked.only in target.name]
    total = sum(target.weight for target in chosen)
    whole = Report()
    for target in chosen:
        report = attack(target, asked.seed, int(asked.inputs * target.weight / total) + 1)
        whole.add(report)
        print(
            f"{target.name}: {report.inputs:,} inputs, {report.refused:,} refused, {len(report.failures)} failed",
            flush=True,
        )
        for data, what in report.failures[:5]:
            folder = asked.keep / target.name
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / hashlib.sha256(data).hexdigest()[:12]
            path.write_bytes(data)
            print(f"  {what}: {path}")
    print(f"{whole.inputs:,} inputs, {whole.refused:,} refused, {len(whole.failures)} failed")
    return 1 if whole.failures else 0


if __name__ == "__main__":
    sys.exit(main())
