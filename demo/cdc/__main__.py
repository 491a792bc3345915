"""Changes of a shop into two topics, and into two tables of Delta; readers join the two meanwhile:
``make demo-cdc``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.cdc.changes import changes
from demo.cdc.chart import draw
from demo.cdc.reader import Read
from demo.cdc.running import Load, Run, run
from demo.cdc.systems import SYSTEMS
from txnformat.errors import TxnLogError
from txnlog_testing.temporary import own_temporary_directory

OUTPUT = Path("demo-output")

REMEDIES = """\
What a user of Delta can do:
* match versions by hand, as the second line does: one writer, every transaction changes both tables, and each reader knows how;
* write one table whose rows are the whole transaction, and derive both from it;
* let the writer note after each transaction which versions belong together, and let all readers begin with that note;
* use a catalog that commits to several tables at once, where there is one.
What a user of txnlog has to do: ask for one moment, log.snapshot(). Two reads one after the other are two moments, as the last line shows."""  # noqa: E501  # a terminal wraps


def main(arguments: list[str]) -> int:
    """Run the demo; 0 if both systems hold in the end what the shop has committed, and no join at one entry
    was torn.
    """
    parser = argparse.ArgumentParser(prog="python -m demo.cdc", description=__doc__)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--transactions", type=int, default=200)
    parser.add_argument("--rate", type=float, default=5.0, help="transactions a second at most")
    parser.add_argument("--kills", type=int, default=5, help="how often the writer is killed")
    parser.add_argument("--output", type=Path, default=OUTPUT / "cdc", help="a folder, which is made anew")
    given = parser.parse_args(arguments)
    load = Load(seed=given.seed, count=given.transactions, rate=given.rate, kills=given.kills)
    console = Console(width=120, soft_wrap=True)
    shutil.rmtree(given.output, ignore_errors=True)
    given.output.mkdir(parents=True)
    try:
        return _run(load, given.output, console)
    except TxnLogError as error:
        print(f"txnlog: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("txnlog: the demo was interrupted", file=sys.stderr)
        return 130


def _run(load: Load, output: Path, console: Console) -> int:
    began = time.monotonic()
    all_ = list(changes(load.seed, load.count))
    console.rule("1. The load")
    console.print(
        f"seed {load.seed}: {len(all_):,} transactions of a shop, {sum(one.rolled_back for one in all_)} "
        "of them rolled back; "
        f"{sum(len(one.orders) for one in all_):,} rows of orders, "
        f"{sum(len(one.payments) for one in all_):,} of payments; "
        f"{load.rate:g} transactions a second; the writer is killed {load.kills} times (kill -9) and "
        "started again"
    )
    console.rule("2. Write, and join meanwhile: one system after the other")
    runs = [_shown(system, str(output.resolve() / system), load, console) for system in SYSTEMS]
    console.rule("3. What the joins saw")
    console.print(_table(runs))
    console.print(
        "torn: a payment has no order, or an order's payments are not its total, or a customer's balance "
        "is not the total of the customer's orders. "
        f"{os.cpu_count()} processors; a transaction took {_milliseconds(runs)} in the median."
    )
    console.print(REMEDIES)
    picture = output / "joins.png"
    draw(runs, picture)
    console.print(f"\nPicture: [bold]{picture}[/]   took {time.monotonic() - began:.0f} s")
    ok = True
    for one in runs:
        ok &= one.is_complete
        console.print(
            f"{'[green]✓[/]' if one.is_complete else '[red]✗[/]'} {SYSTEMS[one.system]}: in the end both "
            "tables hold each row that the "
            f"shop has committed, once, and nothing else; the writer was killed {len(one.kills)} times"
        )
    at_one_entry = _torn(next(iter(runs[-1].ways().values())))
    console.print(
        f"{'[red]✗[/]' if at_one_entry else '[green]✓[/]'} joins at one entry that were torn: {at_one_entry}"
    )
    return 0 if ok and not at_one_entry else 1


def _shown(system: str, path: str, load: Load, console: Console) -> Run:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{SYSTEMS[system]:<20}", total=load.count)
        return run(system, path, load, lambda number: progress.update(task, completed=number))


def _table(runs: Sequence[Run]) -> Table:
    table = Table("system", "read by", "joins", "torn", "torn per 10,000", "median of a join")
    for run_ in runs:
        for way, reads in run_.ways().items():
            torn = _torn(reads)
            middle = sorted(one.ended - one.began for one in reads)[len(reads) // 2]
            table.add_row(
                SYSTEMS[run_.system],
                way,
                f"{len(reads):,}",
                f"{torn:,}",
                f"{10_000 * torn / len(reads):,.0f}",
                f"{middle * 1000:.0f} ms",
            )
    return table


def _torn(reads: Sequence[Read]) -> int:
    return sum(one.found.is_torn for one in reads)


def _milliseconds(runs: Sequence[Run]) -> str:
    return " and ".join(f"{run_.seconds * 1000:.0f} ms ({SYSTEMS[run_.system]})" for run_ in runs)


if __name__ == "__main__":
    with own_temporary_directory():
        sys.exit(main(sys.argv[1:]))
