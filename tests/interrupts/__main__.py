"""Interrupt calls, and hold what their caller was told against the log: `make interrupt-points` does it at
every point, `make interrupts` by real signals."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.interrupts import logs, readers
from tests.interrupts.calls import SCENARIOS
from tests.interrupts.campaign import judge, run_history
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
    parser.add_argument(
        "--interrupts", type=int, default=0, help="with real signals on a local disk, so many in all"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first history with real signals (default: 1)"
    )
    parser.add_argument("--together", type=int, default=os.cpu_count() or 1, help="histories at a time")
    options = parser.parse_args(arguments)
    logging.getLogger("txnlog").setLevel(logging.CRITICAL)  # what it warns of is what is done to it
    if options.interrupts:
        return _campaign(options)
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


HISTORY_INTERRUPTS = 250


def _campaign(options: argparse.Namespace) -> int:
    """Interrupt calls with real signals, in processes of their own."""
    count = max(1, round(options.interrupts / HISTORY_INTERRUPTS))
    interrupts = min(options.interrupts, HISTORY_INTERRUPTS)
    calls: Counter[tuple[str, str]] = Counter()
    problems: list[str] = []
    groups: Counter[str] = Counter()
    done = 0
    start = time.perf_counter()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(options.together, spawn) as pool:
        roots = {seed: Path(folder) / str(seed) for seed in range(options.seed, options.seed + count)}
        running = [pool.submit(run_history, seed, root, interrupts) for seed, root in roots.items()]
        for future in as_completed(running):
            history = future.result()
            found = judge(history, roots[history.seed])
            shutil.rmtree(roots[history.seed])
            problems += found
            calls.update(history.calls)
            groups.update(str(group.fate) for group in history.ledger.groups if group.is_transaction)
            done += history.interrupts
            for problem in found:
                print(problem, flush=True)
            if options.json:
                so_far = {"interrupts": done, "calls": sum(calls.values()), "problems": problems}
                options.json.write_text(json.dumps(so_far, indent=1) + "\n")
    names = sorted({name for name, _ in calls})
    for name in names:
        outcomes = {outcome: number for (called, outcome), number in calls.most_common() if called == name}
        print(f"{name:14} " + ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items()))
    result = {
        "interrupts": done,
        "histories": count,
        "seeds": [options.seed, options.seed + count - 1],
        "calls": {name: {out: n for (called, out), n in calls.items() if called == name} for name in names},
        "transactions": dict(groups),
        "problems": problems,
        "seconds": round(time.perf_counter() - start),
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{done} interrupts in {sum(calls.values())} calls of {count} histories; transactions: "
        f"{dict(groups)}; "
        f"{len(problems)} problems; {result['seconds']} s"
    )
    return 1 if problems else 0


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
