"""The part of docs/engines.md that a run of all engines makes."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Outcome", "Passed", "Run", "rendered"]


class Outcome(NamedTuple):
    """An engine over one kind of topic."""

    rows: int | None
    """Records, equal to the log's in number and in each column's checksum; None: it could not."""
    reason: str = ""


class Passed(NamedTuple):
    """The records that pass a filter."""

    filtered: int
    judged: int
    """Those that pass when the engine reads all of them, and judges each."""


class Run(NamedTuple):
    """A run of all engines."""

    kinds: Sequence[str]
    """The kinds of topics."""
    outcomes: Mapping[str, Mapping[str, Outcome]]
    """By engine and kind."""
    copied: Mapping[str, int]
    """Bytes of records that publications wrote, by kind."""
    passed: Mapping[str, Mapping[str, Passed]]
    """By engine and filter."""
    passed_in_the_log: Mapping[str, int]
    """The log's own answer, by filter."""
    delta_writes: Mapping[str, str]
    """The answers of Delta on Spark to writes."""
    iceberg_writes: Mapping[str, str]


def rendered(run: Run) -> str:
    """Return the part of the page that is made."""
    lines = [f"Made {stamp()}.", "", *_read(run), "", *_filters(run)]
    for format_, writes, what in (
        ("Delta", run.delta_writes, "opened by its path"),
        ("Iceberg", run.iceberg_writes, "registered in a catalog by its metadata file"),
    ):
        lines += [
            "",
            f"{format_} on Spark tried to write to the compacted topic's table, {what}. Its answers:",
            "",
            "| what | answer |",
            "|---|---|",
            *(f"| {name} | {answer} |".replace("\n", " ") for name, answer in writes.items()),
        ]
    return "\n".join([*lines, ""])


def stamp() -> str:
    """Return the day of the run, and the commit that it ran at."""

    def git(*words: str) -> str:
        root = Path(__file__).resolve().parents[2]
        return subprocess.run(
            ["git", *words], cwd=root, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.strip()

    changes = ", with changes that are not committed" if git("status", "--porcelain") else ""
    day = datetime.datetime.now(datetime.UTC).date()
    return f"on {day} at commit {git('rev-parse', '--short=12', 'HEAD')}{changes}"


def _read(run: Run) -> list[str]:
    lines = ["| engine | " + " | ".join(run.kinds) + " |", "|---|" + "---|" * len(run.kinds)]
    reasons = []
    for name, by_kind in run.outcomes.items():
        cells = []
        for kind in run.kinds:
            one = by_kind[kind]
            cells.append(str(one.rows) if one.rows is not None else "no")
            if one.rows is None:
                reasons.append(f"* {name}, {kind}: {one.reason}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    copied = " | ".join(str(run.copied[kind]) for kind in run.kinds)
    lines.append(f"| bytes of records that the publications wrote | {copied} |")
    return [*lines, "", *(reasons or ["No engine differs anywhere."])]


def _filters(run: Run) -> list[str]:
    filters = list(run.passed_in_the_log)
    lines = [
        (
            "Filters of the topic `floats`, which has NaN and -0.0. A number is that of the records that "
            "pass, as many as when the engine reads all of them and judges each; “no” is another number."
        ),
        "",
        "| engine | " + " | ".join(f"`{one}`" for one in filters) + " |",
        "|---|" + "---|" * len(filters),
        "| the log, `where` | " + " | ".join(str(run.passed_in_the_log[one]) for one in filters) + " |",
    ]
    reasons = []
    for name, passed in run.passed.items():
        cells = []
        for filter_ in filters:
            one = passed[filter_]
            cells.append(str(one.filtered) if one.filtered == one.judged else "no")
            if one.filtered != one.judged:
                reasons.append(f"* {name}, `{filter_}`: {one.filtered} records, and {one.judged} one by one")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return [*lines, "", *(reasons or ["No filter leaves out a record."])]
