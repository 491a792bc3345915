"""`make chaos-pipeline`: producers, a Spark query from topic to topics, a sealer and readers; all but the
readers are killed.

Spark's processes end by SIGKILL at points that a seed chooses, or by the clock, and drivers are stopped and
continued; producers and sealers end or stop at requests of their own choice, all the time. Seeds take turns:
the order in which the query reads, and whether its tasks run in executors of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.chaos.drivers import cluster
from tests.chaos.jobs import CLUSTER, LOCAL
from tests.chaos.plans import VICTIMS
from tests.chaos.pool import Pool
from tests.pipeline.histories import PipelineHistory, run_pipeline
from tests.pipeline.plans import master_of
from txnlog_testing.temporary import own_temporary_directory

KILLS_A_HISTORY = 25


def main(arguments: list[str] | None = None) -> int:
    """Run histories; return 1 when one of them has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline", description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=100, help="of Spark's processes, at least (default: 100)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first history; the next have the next (default: 1)"
    )
    parser.add_argument(
        "--histories", type=int, help=f"how many (default: one for each {KILLS_A_HISTORY} kills)"
    )
    parser.add_argument("--minutes", type=float, help="begin no further history after that time")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result there")
    options = parser.parse_args(arguments)
    count = options.histories or max(1, round(options.kills / KILLS_A_HISTORY))
    kills = KILLS_A_HISTORY if options.histories else -(-options.kills // count)
    console, start = Console(stderr=True), time.perf_counter()
    histories: list[PipelineHistory] = []
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for seed in range(options.seed, options.seed + count):
            if options.minutes and time.perf_counter() - start > 60 * options.minutes:
                break
            histories.append(_run(seed, kills, Path(folder) / str(seed), console))
            result = summary(histories, time.perf_counter() - start)
            if options.json:  # after each, so that a run that is cut short has its figures
                options.json.write_text(json.dumps(result, indent=2) + "\n")
    _show(result, Console())
    return 1 if result["problems"] else 0


def _run(seed: int, kills: int, folder: Path, console: Console) -> PipelineHistory:
    def notice(history: PipelineHistory) -> None:
        console.print(f"seed {seed}: {history.kill_count} of {kills} kills", end="\r")

    master = (LOCAL, CLUSTER)[master_of(seed)]
    # Where tasks are in the driver, there is no executor whose JVM could be killed without it.
    kinds = tuple(kind for kind in VICTIMS if master == CLUSTER or kind != "executor")
    with cluster(folder / "spark") as place, Pool(place, master) as pool:
        history = run_pipeline(pool, folder / "history", seed, kills, kinds=kinds, notice=notice)
    console.print(
        f"seed {seed}: {history.kill_count} kills, {len(history.problems)} problems, {history.settings}"
    )
    for problem in history.problems:
        console.print(f"seed {seed}: {problem}", style="red", markup=False)
    if history.problems:
        console.print(f"again: make chaos-pipeline SEED={seed} ARGS='--histories 1'", style="red")
    return history


def summary(histories: list[PipelineHistory], seconds: float) -> dict[str, Any]:
    """Return the figures of all histories."""
    counted = ("kills", "outside", "stopped", "replaced", "points", "failures")
    counts: dict[str, Counter[str]] = {
        name: sum((getattr(one, name) for one in histories), Counter()) for name in counted
    }
    kills = counts["kills"].total() + counts["outside"].total()
    sums = (
        *("zombies", "drivers", "entries", "events", "orders", "given_up", "unknown", "batches", "rows"),
        *("duplicates", "losses", "torn"),
    )
    return {
        "seeds": [histories[0].seed, histories[-1].seed],
        "seconds": round(seconds),
        "kills": kills,
        "kills_of_spark": counts["kills"].total(),
        "bound_95_percent": round(3 / kills, 5) if kills else None,
        **{name: sum(getattr(one, name) for one in histories) for name in sums},
        "killed": dict(counts["kills"].most_common()),
        "killed_beside_spark": dict(counts["outside"].most_common()),
        "stopped_beside_spark": dict(counts["stopped"].most_common()),
        "who_was_stopped_ended": dict(counts["replaced"].most_common()),
        "hit_at": dict(counts["points"].most_common()),
        "queries_failed_with": dict(counts["failures"].most_common()),
        "problems": [
            {"seed": one.seed, "settings": one.settings, "problem": problem}
            for one in histories
            for problem in one.problems
        ],
    }


def _show(result: dict[str, Any], console: Console) -> None:
    for name in (
        *("killed", "killed_beside_spark", "stopped_beside_spark", "who_was_stopped_ended"),
        *("hit_at", "queries_failed_with"),
    ):
        table = Table(name.replace("_", " "), "times", box=None, pad_edge=False)
        for what, count in result[name].items():
            table.add_row(what, f"{count:,}")
        console.print(table)
        console.print()
    console.print(
        f"{result['kills']} kills ({result['kills_of_spark']} of Spark's processes) and "
        f"{result['zombies']} drivers stopped in "
        f"{result['seconds']} s, seeds {result['seeds'][0]} to {result['seeds'][1]}: "
        f"{result['entries']:,} entries, "
        f"{result['orders']:,} records read ({result['given_up']:,} given up), {result['batches']:,} "
        "batches, "
        f"{result['events']:,} events of the history; {result['duplicates']} duplicates, "
        f"{result['losses']} losses, "
        f"{result['torn']} torn, {len(result['problems'])} problems",
        soft_wrap=True,
        highlight=False,
    )
    if not result["problems"]:
        console.print(
            f"with 0 of {result['kills']}: at most {result['bound_95_percent']:.3%} of such kills do "
            "harm, at 95 % "
            "confidence (3/n)",
            soft_wrap=True,
            highlight=False,
        )


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main())
