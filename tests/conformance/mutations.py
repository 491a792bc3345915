"""Breaks the rules of ``mutation_rules.py``, one at a time, and runs the tests of the upstream cases that
claim them.

``python -m tests.conformance.mutations`` (``make mutations``) changes one line in a copy of the packages,
runs the tests that cite the claimed cases against that copy, and prints which of them failed. It fails when a
claimed case has no failing test, when a line is not there any more, or when the tests fail without a change.
When all is well it writes ``docs/internals/mutations.md``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.conformance.cases import ROOT, cited
from tests.conformance.mutation_rules import MUTATIONS as KAFKA
from tests.conformance.mutation_rules import Mutation
from tests.conformance.mutation_rules_fetch import FETCH
from tests.conformance.mutation_rules_groups import GROUPS
from tests.conformance.mutation_rules_lifecycle import LIFECYCLE_RULES
from tests.conformance.mutation_rules_pulsar import PULSAR_AND_FLINK
from tests.conformance.mutation_rules_upkeep import UPKEEP_RULES
from tests.conformance.report import outcomes

__all__ = [
    "MUTATIONS",
    "PAGE",
    "Verdict",
    "claiming_tests",
    "copy_to",
    "mutate",
    "page",
    "run_tests",
    "try_mutation",
]

PAGE = Path("docs/internals/mutations.md")
MUTATIONS = (*KAFKA, *FETCH, *GROUPS, *PULSAR_AND_FLINK, *LIFECYCLE_RULES, *UPKEEP_RULES)

COPIED = ("pyspark_txnlog", "spark_datasource", "tests", "txnformat", "txnlog", "txnlog_testing", "writers")


_citations = cache(cited)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutation."""

    mutation: Mutation
    failing: dict[tuple[str, str], str]
    """By case: a test of it that failed."""
    failing_tests: dict[str, str]
    """By named test or file: a test of it that failed."""

    @property
    def survived(self) -> list[str]:
        """The claimed cases, and the named tests, of which none failed."""
        cases = [".".join(claim) for claim in self.mutation.claims if claim not in self.failing]
        return cases + [test for test in self.mutation.tests if test not in self.failing_tests]


def claiming_tests(mutation: Mutation) -> dict[tuple[str, str], list[str]]:
    """Return the tests that cite each of a mutation's cases; none of one that names its tests only.

    Raises
    ------
    ValueError
        A case that no test cites, or that is expected to fail anyway.
    """
    found: dict[tuple[str, str], list[str]] = {claim: [] for claim in mutation.claims}
    for each in _citations():
        if (each.test_class, each.name) in found:
            if each.expected_to_fail:
                raise ValueError(f"{mutation.name}: {each.test} is expected to fail without it")
            found[each.test_class, each.name].append(each.test)
    bare = [f"{test_class}.{name}" for (test_class, name), tests in found.items() if not tests]
    if bare or not (found or mutation.tests):
        raise ValueError(f"{mutation.name}: no test cites {', '.join(bare) or 'anything that it claims'}")
    return found


def copy_to(folder: Path) -> Path:
    """Copy what the tests need into ``folder``, with bytecode where there is some, and return it."""
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "setup.cfg", folder)
    return folder


def mutate(folder: Path, mutation: Mutation) -> None:
    """Change the line in a copy.

    Raises
    ------
    ValueError
        Its text is not in the file exactly once.
    """
    path = folder / mutation.path
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.before) != 1:
        raise ValueError(
            f"{mutation.name}: the text is {text.count(mutation.before)} times in {mutation.path}, "
            "expected once: "
            f"{mutation.before}"
        )
    path.write_text(text.replace(mutation.before, mutation.after), encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


def run_tests(folder: Path, tests: Sequence[str]) -> dict[str, str]:
    """Run tests of a copy and return their outcomes (:func:`tests.conformance.report.outcomes`).

    Raises
    ------
    RuntimeError
        pytest could not run them.
    """
    results = folder / "results.xml"
    results.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(
        [*command, f"--junit-xml={results}", "--rootdir", str(folder), *sorted(set(tests))],
        cwd=folder,
        # The copy comes first on the path, also for processes that tests start.
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or not results.exists():
        raise RuntimeError(
            f"pytest ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
        )
    return outcomes(results)


def try_mutation(original: Path, folder: Path, mutation: Mutation) -> Verdict:
    """Break one rule in a copy of ``original`` at ``folder``, which must not exist, and run the tests that
    claim it."""
    claimed = claiming_tests(mutation)
    shutil.copytree(original, folder)
    mutate(folder, mutation)
    found = run_tests(folder, [*mutation.tests, *(test for tests in claimed.values() for test in tests)])
    shutil.rmtree(folder)
    failing = {
        claim: failed[0]
        for claim, tests in claimed.items()
        if (failed := [test for test in tests if found.get(test) == "failing"])
    }
    broken = [test for test, status in found.items() if status == "failing"]
    failing_tests = {
        named: hit[0]
        for named in mutation.tests
        if (hit := [test for test in broken if test == named or test.startswith(f"{named}::")])
    }
    return Verdict(mutation, failing, failing_tests)


def page(mutations: Sequence[Mutation]) -> str:
    """Return the page that says so when every claimed case of these mutations fails."""
    lines = [
        "# Mutations",
        "",
        (
            "Whether the tests behind [the conformance pages](conformance.md) notice when a rule is broken. "
            "Each row changes one"
        ),
        (
            "line in a copy of the packages, and runs the tests that cite its cases: of every case, at least "
            "one failed. A guard that"
        ),
        (
            "no other system has cases of names its tests. `make mutations` writes this page after a run in "
            "which that was so."
        ),
        "",
        f"**In short**: {len(mutations)} broken rules, each noticed.",
        "",
        "| the log does then | changed in | becomes | cases or tests that fail |",
        "|---|---|---|---|",
    ]
    for one in mutations:
        cases = ", ".join([*map(".".join, one.claims), *(f"`{test}`" for test in one.tests)])
        after = " ".join(one.after.split()).replace(
            "|", "\\|"
        )  # a row of a table is one line, a bar a new cell
        lines.append(f"| {one.name} | `{one.path}` | `{after}` | {cases} |")
    return "\n".join(lines) + "\n"


def _main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.mutations", description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="mutations that are tried at once"
    )
    parser.add_argument(
        "name", nargs="*", help="only mutations whose names have this in them; no page is written"
    )
    asked = parser.parse_args(arguments)
    chosen = [one for one in MUTATIONS if all(name in one.name for name in asked.name)]
    if not chosen:
        parser.error(f"no mutation has all of this in its name: {' '.join(asked.name)}")
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(asked.jobs) as pool:
        original = copy_to(Path(temporary) / "original")
        tests = {test for one in chosen for tests in claiming_tests(one).values() for test in tests}
        tests.update(test for one in chosen for test in one.tests)
        before = [test for test, status in run_tests(original, sorted(tests)).items() if status == "failing"]
        if before:
            print("these fail without any change:", *before, sep="\n  ")
            return 1
        folders = [Path(temporary) / str(number) for number in range(len(chosen))]
        for verdict in pool.map(try_mutation, [original] * len(chosen), folders, chosen):
            print(f"{verdict.mutation.name}  ({verdict.mutation.path})")
            for (test_class, name), test in verdict.failing.items():
                print(f"    {test_class}.{name}: {test}")
            for test in verdict.failing_tests.values():
                print(f"    {test}")
            for survivor in verdict.survived:
                print(f"    SURVIVED {survivor}")
            wrong += bool(verdict.survived)
    if not wrong and not asked.name:
        (ROOT / PAGE).write_text(page(MUTATIONS), encoding="utf-8")
    print(
        f"{len(chosen) - wrong} of {len(chosen)} mutations fail every case that claims the rule, and "
        "every named test"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
