"""``docs/internals/benchmarks.md`` and the table on the terminal, made from results alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PAGE", "RESULTS", "page", "verdict"]

RESULTS = "bench/results/latest.json"
PAGE = "docs/internals/benchmarks.md"

HEAD = f"""# Benchmarks

<!-- Made by `make bench` from {RESULTS}; not edited by hand. -->

All that is compared took turns in one run on one machine, in an order that was reversed every other round. A figure is
the median of the rounds' ratios; in brackets the smallest and the largest. Figures of one machine say little about
another: `make bench` measures yours, `make bench BENCH=scan` only what has "scan" in its name. A row that was measured again since the run that is named below says so.
"""


LARGE_LOGS = """`make bench-open` makes four logs on local disk with the real code, without data files, and opens each in a process of its own: `small` to compare with; `entries`, of a million
entries; `topics`, with 10,000 partitions of 1,000 topics; `partition`, one of ten million batches. Milliseconds are of the processor and the least of several rounds (a commit: the median), but for
"wall": that is time that passes, with the files in the page cache. A probe of a slot is a request on a local disk; on an object store one listing takes the place of all probes, and a round trip is one wait. Measured
on the machine below with much other work beside; `--world` measures one log again and leaves the others.

A log is also opened once without its hint, without any snapshot, and beside 1,000 newer snapshots that no entry names: an opener takes the listed ones newest first, and reads none that no entry names, so
these cost it no request. Without a snapshot a reader folds all entries: it streams the bundles, so it takes no more memory than with one. The wall time of these is that of one round on a busy machine."""

LARGE_LOGS_MORE = """A plan of all batches of the log `partition`, which 1,000 appends of 10,000 batches brought and no writer has sealed, is the longest that a reader can ask for: 3.4 GiB, 350 bytes for each batch.

The memory of a compaction does not grow with what it rewrites: Arrow held at most 9.8 MiB to compact 20 files of 20,000 records and 11.5 MiB for 80 such files (one run; `tests/integration/upkeep/test_compaction_memory.py` keeps the second below 1.5 times the first).

A commit of one batch beside 8,000 producers that have each written to 20 partitions (`make bench-scale`): 51 µs of the processor, 44 µs without any; of one of these producers 352 µs. The list of 100,000 sealed parts of 10,000 partitions was read in 0.64 s."""

FOLDS = """`make bench-folds`: microseconds of the processor for one commit that is decided, encoded, folded and checked by the invariants of a step, in a state that has something else besides; in brackets
the median of the rounds' ratios to a state that has nothing besides. The states take turns, and a figure is the median of rounds of 200 commits. Measured on {date}, on the machine below with much other work beside."""


def _number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def verdict(result: Mapping[str, Any]) -> str:
    """Return "met", "missed", "reported", or "not measured"."""
    if result["figure"] is None:
        return "not measured"
    return {True: "met", False: "missed", None: "reported"}[result["met"]]


def _target(result: Mapping[str, Any]) -> str:
    if result["target"] is None:
        return "–"
    return f"{'≥' if result['at_least'] else '≤'} {_number(result['target'], result['target_digits'])}"


def cells(result: Mapping[str, Any]) -> list[str]:
    """Return the texts of a row of the table."""
    digits = result["digits"]
    got = "–"
    if result["figure"] is not None:
        low, high = (_number(result[name], digits) for name in ("smallest", "largest"))
        got = f"{_number(result['figure'], digits)} ({low} to {high})"
    return [
        result["work"],
        result["against"],
        result["unit"],
        _target(result),
        got,
        verdict(result),
    ]


HEADER = ["work", "against", "figure", "target", "got", ""]


def _medians(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what was found besides the figures, each set once."""
    texts = [
        ", ".join(f"{name} {value}" for name, value in row["details"].items())
        for row in rows
        if row.get("details")
    ]
    return [f"<br>{text}" for text in dict.fromkeys(texts)]


def large_logs(worlds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of the logs that ``make bench-open`` opened: a column for each; what was not measured
    of one is a dash.
    """
    names = dict.fromkeys(name for world in worlds for name in world if name not in ("world", "lost"))
    rows = [(name.replace("_", " "), [world.get(name) for world in worlds]) for name in names]
    losses = dict.fromkeys(lost["what"] for world in worlds for lost in world.get("lost", ()))
    for what in losses:
        found = [{lost["what"]: lost for lost in world.get("lost", ())}.get(what, {}) for world in worlds]
        rows += [
            (f"{what}: {name.replace('_', ' ')}", [each.get(name) for each in found])
            for name in ("open_wall_ms", "open_requests", "open_memory_mib")
        ]
    head = [
        "| | " + " | ".join(str(world["world"]) for world in worlds) + " |",
        "|---" * (len(worlds) + 1) + "|",
    ]
    return head + [f"| {name} | {' | '.join(map(_figure, figures))} |" for name, figures in rows]


def _figure(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _in_short(results: Mapping[str, Any]) -> str:
    """Return how many figures reach their targets."""
    verdicts = [verdict(result) for benchmark in results["benchmarks"] for result in benchmark["rows"]]
    met, missed = verdicts.count("met"), verdicts.count("missed")
    return (
        f"**In short**: of {met + missed} figures with a target {met} reach it and {missed} miss it, each "
        "with its reason below the table; "
        f"{len(verdicts) - met - missed} are reported without one. [Is it for you?](../fit.md) has those "
        "that decide."
    )


def page(results: Mapping[str, Any]) -> str:
    """Return the page for what the runner wrote."""
    lines = [HEAD, _in_short(results), "", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    for benchmark in results["benchmarks"]:
        lines += ["| " + " | ".join(cells(result)) + " |" for result in benchmark["rows"]]
    missed = [
        result
        for benchmark in results["benchmarks"]
        for result in benchmark["rows"]
        if verdict(result) in ("missed", "not measured")
    ]
    if missed:
        lines += ["", "## What was missed, and why", ""]
        rows_of: dict[str, list[str]] = {}
        for result in missed:
            rows_of.setdefault(result["note"], []).append(
                f"**{result['work']}**, against {result['against']}"
            )
        lines += [f"* {'; '.join(rows)}: {note}" for note, rows in rows_of.items()]
    if results.get("unmeasured"):
        names = ", ".join(results["unmeasured"])
        lines += [
            "",
            f"Not measured on this machine so far: {names}. `make bench BENCH=…` measures them on yours.",
        ]
    lines += ["", "## How it is measured", ""]
    for benchmark in results["benchmarks"]:
        when = (
            f" Measured on {benchmark['date']}, commit {benchmark['commit']}." if "date" in benchmark else ""
        )
        lines += [f"* **{benchmark['name']}** ({benchmark['seconds']:.0f} s): {benchmark['how']}{when}"]
        lines += [f"  {line}" for line in _medians(benchmark["rows"])]
    if "large_logs" in results:
        worlds = results["large_logs"]["worlds"]
        lines += ["", "## Large logs", "", LARGE_LOGS, "", *large_logs(worlds), "", LARGE_LOGS_MORE]
    if "folds" in results:
        lines += ["", "### Commits and folds", "", FOLDS.format(date=results["folds"]["date"]), ""]
        lines += results["folds"]["lines"]
    lines += ["", "## Machine and versions", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in results["machine"].items()]
    lines += ["", f"Measured on {results['date']}, in {results['minutes']:.0f} minutes."]
    return "\n".join(lines) + "\n"
