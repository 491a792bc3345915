"""`make interrupts`: calls are interrupted at every point; what their caller was told must be so."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.interrupts import logs, readers
from tests.interrupts.calls import SCENARIOS
from tests.interrupts.trials import Actor, Mode, Next, Trial, points_of, run_trial
from tests.interrupts.world import Stores


def main(arguments: list[str] | None = None) -> int:
    """Run trials; return 1 when one has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.interrupts", description=__doc__)
    parser.add_argument("--calls", default="", help="only scenarios whose name/kind holds this text")
    parser.add_argument("--then", type=Next, action="append", choices=list(Next), help="only these")
    parser.add_argument("--mode", type=Mode, action="append", choices=list(Mode), help="only these")
    parser.add_argument("--every", type=int, default=1, help="only each n-th point")
    parser.add_argument("--at", default="", help="only points whose text holds this")
    parser.add_argument("--per-place", type=int, default=2, help="times that one place is tried (default: 2)")
    parser.add_argument(
        "--show", type=int, default=3, help="problems shown for each scenario and kind of problem"
    )
    parser.add_argument("--disk", action="store_true", help="on a local disk in place of memory")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the counts there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        return _run(options, Stores(Path(folder) if options.disk else None))


def _run(options: argparse.Namespace, stores: Stores) -> int:
    total: Counter[str] = Counter()
    bad = 0
    rows: list[dict[str, Any]] = []
    actors: tuple[Actor, ...] = (*SCENARIOS, *readers.CASES, *logs.CASES)
    for scenario in actors:
        if options.calls not in str(scenario):
            continue
        start = time.perf_counter()
        trials = []
        for mode in options.mode or list(Mode):
            every = 1 if mode is Mode.REQUEST else options.every
            points = points_of(scenario, mode, stores, options.per_place)[::every]
            trials += [
                run_trial(scenario, then, mode, point, stores)
                for then in options.then or list(Next)
                for point in points
                if options.at in str(point)
            ]
        found = [trial for trial in trials if trial.problems]
        bad += len(found)
        total.update(trial.outcome for trial in trials)
        print(
            f"{scenario!s:28} {len(trials):6} trials, {len(found):5} with problems, "
            f"{sum(not trial.is_hit for trial in trials)} not hit, {time.perf_counter() - start:.1f} s",
            flush=True,
        )
        rows.append(
            {
                "call": str(scenario).split("/")[0],
                "of": str(scenario).split("/")[1],
                "trials": len(trials),
                "problems": len(found),
                "kinds": dict(Counter(_kind(trial) for trial in found)),
            }
        )
        if options.json:
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
        _show(found, options.show)
    print(f"{sum(total.values())} trials, {bad} with problems; {dict(total)}")
    return 1 if bad else 0


def _kind(trial: Trial) -> str:
    return trial.problems[0].split(":")[0]


def _show(trials: list[Trial], most: int) -> None:
    kinds: Counter[str] = Counter()
    for trial in trials:
        kind = _kind(trial)
        kinds[kind] += 1
        if kinds[kind] <= most:
            print(f"    {trial}")
    if kinds:
        print(f"    {dict(kinds)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
