"""`make kill-rounds`: a job that consumes, transforms and produces is killed 1,000 times; every output must
be there once.

Each history prints nothing but its problems, and how to do it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.killing.rounds import History, run_history
from tests.killing.workers import Nursery
from txnlog_testing.temporary import own_temporary_directory

KILLS_A_HISTORY = 10


def main(arguments: list[str] | None = None) -> int:
    """Run histories; return 1 when one of them has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.killing", description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000, help="in all (default: 1000)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first history; the next have the next (default: 1)"
    )
    parser.add_argument(
        "--histories", type=int, help=f"how many (default: one for each {KILLS_A_HISTORY} kills)"
    )
    parser.add_argument("--together", type=int, default=os.cpu_count() or 1, help="histories at a time")
    parser.add_argument("--s3", action="store_true", help="on a SeaweedFS server that is started and stopped")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the result there")
    options = parser.parse_args(arguments)
    count = options.histories or max(1, round(options.kills / KILLS_A_HISTORY))
    seeds = range(options.seed, options.seed + count)
    kills = KILLS_A_HISTORY if options.histories else max(1, options.kills // count)
    console = Console(stderr=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, _place(folder, s3=options.s3) as (place, settings):
        console.print(f"seeds {seeds[0]} to {seeds[-1]}, {kills} kills each, in {place}")
        histories = list(_run(seeds, kills, options.together, place, Path(folder), settings, console))
    result = summary(
        histories, time.perf_counter() - start, on="S3 (SeaweedFS)" if options.s3 else "local disk"
    )
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(
        f"{result['kills']} kills in {result['rounds']} rounds of {len(histories)} histories on "
        f"{result['on']}: "
        f"{result['inputs']} inputs, {result['records']} outputs, {result['duplicates']} duplicates, "
        f"{result['losses']} losses, {len(result['problems'])} problems; {result['seconds']} s"
    )
    return 1 if result["problems"] else 0


def _run(
    seeds: range,
    kills: int,
    together: int,
    place: str,
    folder: Path,
    settings: dict[str, Any],
    console: Console,
) -> Iterator[History]:
    """Run some histories at a time, and show how far they are."""
    columns = (
        TextColumn("kills"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    nurseries: queue.Queue[Nursery] = queue.Queue()
    with contextlib.ExitStack() as stack:
        for _ in range(min(together, len(seeds))):
            nurseries.put(stack.enter_context(Nursery()))
        progress = stack.enter_context(Progress(*columns, console=console))
        task = progress.add_task("", total=kills * len(seeds))

        def one(seed: int) -> History:
            nursery = nurseries.get()
            try:
                return run_history(nursery, f"{place}/{seed}", seed, kills, notes=folder, **settings)
            finally:
                nurseries.put(nursery)

        pool = stack.enter_context(ThreadPoolExecutor(together))
        for done in as_completed([pool.submit(one, seed) for seed in seeds]):
            history = done.result()
            progress.update(task, advance=history.kills, description=f"seed {history.seed}")
            for problem in history.problems:
                console.print(f"seed {history.seed}: {problem}", style="red")
            if history.problems:
                console.print(
                    f"again: make kill-rounds SEED={history.seed} ARGS='--histories 1'", style="red"
                )
            yield history


def summary(histories: list[History], seconds: float, on: str) -> dict[str, Any]:
    """Return the figures of all histories."""
    histories = sorted(histories, key=lambda one: one.seed)
    points: Counter[str] = sum((one.points for one in histories), Counter())
    ends: Counter[str] = sum((one.ends for one in histories), Counter())
    return {
        "on": on,
        "seeds": [histories[0].seed, histories[-1].seed],
        "seconds": round(seconds),
        **{
            name: sum(getattr(one, name) for one in histories)
            for name in ("rounds", "kills", "inputs", "records", "duplicates", "losses")
        },
        "killed_at": dict(points.most_common()),
        "not_killed": dict(ends.most_common()),
        "problems": [
            {"seed": one.seed, "settings": one.settings, "problem": problem}
            for one in histories
            for problem in one.problems
        ],
    }


@contextlib.contextmanager
def _place(folder: str, *, s3: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return where logs are to be, and the settings of jobs there."""
    if not s3:
        yield f"{folder}/logs", {}
        return
    from txnlog_testing.stores.s3_server import seaweedfs_server

    with seaweedfs_server() as server:
        yield server.url("kill-rounds"), {"storage_options": server.storage_options}


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main())
