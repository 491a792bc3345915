"""`make chaos`: a Spark query that writes a topic is killed 200 times and more; every row must be there once.

Executors, Python workers and drivers are real processes and end by SIGKILL, at points that a seed chooses, or
by the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.chaos.drivers import cluster
from tests.chaos.history import History, run_history
from tests.chaos.jobs import CLUSTER, LOCAL
from tests.chaos.pool import Pool
from txnlog_testing.temporary import own_temporary_directory

KILLS_A_HISTORY = 20


def main(arguments: list[str] | None = None) -> int:
    """Run histories; return 1 when one of them has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all, at least (default: 200)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first history; the next have the next (default: 1)"
    )
    parser.add_argument(
        "--histories", type=int, help=f"how many (default: one for each {KILLS_A_HISTORY} kills)"
    )
    parser.add_argument("--local", action="store_true", help="tasks in the driver's JVM: no executors")
    parser.add_argument("--s3", action="store_true", help="on a SeaweedFS server that is started and stopped")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result there")
    options = parser.parse_args(arguments)
    count = options.histories or max(1, round(options.kills / KILLS_A_HISTORY))
    seeds = range(options.seed, options.seed + count)
    kills = KILLS_A_HISTORY if options.histories else -(-options.kills // count)
    console = Console(stderr=True)
    on = "S3 (SeaweedFS)" if options.s3 else "local disk"
    start = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        _place(folder, s3=options.s3) as there,
    ):
        console.print(f"seeds {seeds[0]} to {seeds[-1]}, {kills} kills each, on {on}")
        master = LOCAL if options.local else CLUSTER
        histories, result = [], None
        for history in _run(seeds, kills, master, there, Path(folder), console):
            histories.append(history)
            result = summary(histories, time.perf_counter() - start, on=on)
            if options.json:  # after each, so that a run that is cut short has its figures
                options.json.write_text(json.dumps(result, indent=2) + "\n")
            console.print(
                f"seed {history.seed}: {history.kill_count} kills, {len(history.problems)} problems"
            )
    assert result is not None
    _show(result, Console())
    return 1 if result["problems"] else 0


def _run(
    seeds: range,
    kills: int,
    master: str,
    there: tuple[str, dict[str, str]],
    folder: Path,
    console: Console,
) -> Iterator[History]:
    """Run one history after the other, and show how far they are."""
    columns = (
        TextColumn("kills"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with (
        cluster(folder / "spark") as place,
        Pool(place, master) as pool,
        Progress(*columns, console=console) as progress,
    ):
        task, done = progress.add_task("", total=kills * len(seeds)), 0
        for seed in seeds:
            notice: Callable[[History], None] = lambda history, done=done: progress.update(  # type: ignore[misc]
                task, completed=done + history.kill_count, description=f"seed {history.seed}"
            )
            history = run_history(
                pool,
                f"{there[0]}/{seed}",
                folder / str(seed),
                seed,
                kills,
                storage_options=there[1],
                notice=notice,
            )
            done += history.kill_count
            for problem in history.problems:
                console.print(f"seed {seed}: {problem}", style="red", markup=False)
            if history.problems:
                console.print(f"again: make chaos SEED={seed} ARGS='--histories 1'", style="red")
            yield history


def summary(histories: list[History], seconds: float, on: str) -> dict[str, Any]:
    """Return the figures of all histories."""
    kills: Counter[str] = sum((one.kills for one in histories), Counter())
    points: Counter[str] = sum((one.points for one in histories), Counter())
    failures: Counter[str] = sum((one.failures for one in histories), Counter())
    total = kills.total()
    sums = ("zombies", "drivers", "batches", "rows", "duplicates", "losses", "torn")
    return {
        "on": on,
        "seeds": [histories[0].seed, histories[-1].seed],
        "seconds": round(seconds),
        "kills": total,
        "kills_per_minute": round(60 * total / seconds, 1),
        **{name: sum(getattr(one, name) for one in histories) for name in sums},
        "bound_95_percent": round(3 / total, 5) if total else None,
        "killed": dict(kills.most_common()),
        "hit_at": dict(points.most_common()),
        "queries_failed_with": dict(failures.most_common()),
        "problems": [
            {"seed": one.seed, "settings": one.settings, "problem": problem}
            for one in histories
            for problem in one.problems
        ],
    }


def _show(result: dict[str, Any], console: Console) -> None:
    for title, name in (
        ("killed", "killed"),
        ("hit at", "hit_at"),
        ("queries failed with", "queries_failed_with"),
    ):
        table = Table(title, "times", box=None, pad_edge=False)
        for what, count in result[name].items():
            table.add_row(what, f"{count:,}")
        console.print(table)
        console.print()
    console.print(
        f"{result['kills']} kills and {result['zombies']} zombies in {result['seconds']} s "
        f"({result['kills_per_minute']} kills a minute), seeds {result['seeds'][0]} to {result['seeds'][1]}, "
        f"on {result['on']}: {result['drivers']} drivers, {result['batches']} batches, {result['rows']:,} "
        "rows, "
        f"{result['duplicates']} duplicates, {result['losses']} losses, {result['torn']} torn, "
        f"{len(result['problems'])} problems",
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


@contextlib.contextmanager
def _place(folder: str, *, s3: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """Return where logs are to be, and the storage options there."""
    if not s3:
        yield f"{folder}/logs", {}
        return
    from txnlog_testing.stores.s3_server import seaweedfs_server

    with seaweedfs_server() as server:
        yield server.url("chaos"), server.storage_options


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main())
