"""`make bench`: every row of the table in one run; writes the results as JSON and the page made from them."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.machine import ROOT, describe
from bench.page import HEADER, PAGE, RESULTS, cells, page
from bench.registry import chosen
from bench.table import Benchmark, Context, Measurement, Row
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["as_json", "main"]


def as_json(row: Row, found: Measurement | str) -> dict[str, Any]:
    """Return a row of the results: what was asked and what was found; a text says why nothing was."""
    result: dict[str, Any] = {
        "key": row.key,
        "work": row.work,
        "against": row.against,
        "unit": row.figure,
        "target": row.target,
        "target_digits": 0 if row.target is None or float(row.target).is_integer() else row.digits,
        "at_least": row.at_least,
        "digits": row.digits,
        "note": row.note if isinstance(found, Measurement) else found,
        "figure": None,
        "met": None,
    }
    if isinstance(found, Measurement):
        result |= {
            "figure": found.figure,
            "met": row.met(found.figure),
            "smallest": min(found.rounds),
            "largest": max(found.rounds),
            "rounds": list(found.rounds),
            "details": dict(found.details),
        }
    return result


def run(benchmark: Benchmark, folder: Path, progress: Progress) -> dict[str, Any]:
    """Measure the rows of one benchmark.

    A failure is reported, and does not keep the others from being measured.
    """
    task = progress.add_task(benchmark.name, total=None, what="")
    start = time.perf_counter()
    found: Mapping[str, Measurement | str]
    try:
        context = Context(folder, lambda what: progress.update(task, what=what))
        found = {one.key: one for one in benchmark.measure(context)}
    except Exception as error:  # noqa: BLE001  # a row of its own says so
        progress.console.print_exception()
        found = dict.fromkeys(
            (row.key for row in benchmark.rows), f"not measured: {type(error).__name__}: {error}"[:500]
        )
    seconds = time.perf_counter() - start
    progress.update(task, total=1, completed=1, what="")
    missing = "not measured: the benchmark gave no figure"
    return {
        "name": benchmark.name,
        "how": benchmark.how,
        "seconds": round(seconds, 1),
        "rows": [as_json(row, found.get(row.key, missing)) for row in benchmark.rows],
    }


def as_text(results: Mapping[str, Any]) -> str:
    """Return results as they are kept."""
    return json.dumps(results, indent=1, ensure_ascii=False) + "\n"


def with_notes(results: dict[str, Any]) -> dict[str, Any]:
    """Return results with the rows' notes, and the benchmarks' texts, as the code has them now; figures stay.

    Benchmarks of the code that have no results are named.
    """
    known = {benchmark.name: benchmark for benchmark in chosen("")}
    measured = {benchmark["name"] for benchmark in results["benchmarks"]}
    results["unmeasured"] = [name for name in known if name not in measured]
    for benchmark in results["benchmarks"]:
        benchmark["how"] = known[benchmark["name"]].how
        notes = {row.key: row.note for row in known[benchmark["name"]].rows}
        for result in benchmark["rows"]:
            if result["figure"] is not None:
                result["note"] = notes[result["key"]]
    return results


def updated(
    kept: Mapping[str, Any], found: Sequence[Mapping[str, Any]], date: str, commit: str
) -> dict[str, Any]:
    """Return kept results with newer ones of some benchmarks, which say when and at which commit they were
    measured.
    """
    newer = {one["name"]: {**one, "date": date, "commit": commit} for one in found}
    kept_by_name = {one["name"]: one for one in kept["benchmarks"]}
    names = [benchmark.name for benchmark in chosen("")]
    everything = {**kept_by_name, **newer}
    return {**kept, "benchmarks": [everything[name] for name in names if name in everything]}


def show(results: Mapping[str, Any], console: Console) -> None:
    """Print the table."""
    table = Table(*HEADER[:-1], "verdict")
    for benchmark in results["benchmarks"]:
        for result in benchmark["rows"]:
            table.add_row(*cells(result))
    console.print(table)


def main() -> None:
    """Run what the command line asks for; a whole run replaces the results and the page."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("words", nargs="*", help="only benchmarks whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="print the names of the benchmarks")
    parser.add_argument(
        "--page", action="store_true", help="only make the page anew, with the notes of the code"
    )
    parser.add_argument(
        "--update", action="store_true", help="let the results of what is run replace older ones of the same"
    )
    parser.add_argument("--folder", type=Path, help="where to work (default: the system's temporary folder)")
    given = parser.parse_args()
    if given.page:
        kept = with_notes(json.loads((ROOT / RESULTS).read_text("utf-8")))
        (ROOT / RESULTS).write_text(as_text(kept), "utf-8")
        (ROOT / PAGE).write_text(page(kept), "utf-8")
        return
    asked = chosen(" ".join(given.words))
    console = Console()
    if given.list:
        for each in asked:
            console.print(f"{each.name}: {len(each.rows)} rows, about {each.minutes:g} minutes")
        return
    start = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    with tempfile.TemporaryDirectory(prefix="txnlog-bench-", dir=given.folder) as name:
        machine = describe(Path(name))
        found = []
        with Progress(*columns, console=console) as progress:
            for each in asked:
                folder = Path(name) / each.name
                folder.mkdir()
                found.append(run(each, folder, progress))
    results = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "minutes": round((time.perf_counter() - start) / 60, 1),
        "machine": machine,
        "benchmarks": found,
    }
    show(results, console)
    kept = json.loads((ROOT / RESULTS).read_text("utf-8"))
    results |= {name: kept[name] for name in ("large_logs", "folds") if name in kept}
    if given.update:
        results = with_notes(updated(kept, found, str(results["date"]), str(machine["commit"])))
    elif given.words:
        console.print(
            f"{RESULTS} and {PAGE} stay as they are: only a run of everything, or --update, replaces them"
        )
        return
    (ROOT / RESULTS).parent.mkdir(exist_ok=True)
    (ROOT / RESULTS).write_text(as_text(results), "utf-8")
    (ROOT / PAGE).write_text(page(results), "utf-8")
    console.print(f"wrote {RESULTS} and {PAGE}")


if __name__ == "__main__":
    get_temp_dir()  # multiprocessing removes its directory when Python ends: after this program's
    with own_temporary_directory():
        main()
