"""Runs the features with every supported pyspark, each in an environment of its own, and keeps what came out.

``python -m tests.smoke.versions`` writes docs/internals/versions.json and docs/internals/versions.md (``make
versions``), for all versions or those that are named; with ``--check`` it writes nothing, and fails when
something that the record says works does not (``make smoke-versions``). The environments are
``.venv-<version>`` in the checkout, 0.5 GB each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.requirements import closure, own
from txnlog_testing.temporary import own_temporary_directory

__all__ = ["RECORD", "VERSIONS", "render"]

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "internals" / "versions.json"
PAGE = ROOT / "docs" / "internals" / "versions.md"

VERSIONS = ("4.1.4", "4.2.1", "4.3.0")
"""The last release of every minor version that is supported; the last one is that of requirements-dev.txt."""

KINDS = ("classic", "connect")

NEEDED = (
    *(Requirement(line).name for line in own()),
    *("pandas", "fsspec", "grpcio", "grpcio-status", "googleapis-common-protos", "zstandard"),
)
"""What txnlog requires, and what the features and Connect need besides pyspark, in the versions of
requirements-dev.txt."""


def constraints() -> str:
    """Return the pins of requirements-dev.txt, without those that follow from pyspark."""
    lines = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(
        line for line in lines if re.match(r"[\w.-]+==", line) and not re.match("pyspark|py4j", line)
    )


def lock(version: str) -> str:
    """Return the lock of an environment with the oldest pyspark: that of the development one, without its own
    pyspark."""
    wanted = closure(list(NEEDED))
    blocks = re.split(r"\n(?=\S)", (ROOT / "requirements-dev.lock").read_text(encoding="utf-8"))
    kept = [
        block
        for block in blocks
        if (named := re.match(r"([\w.-]+)==", block)) and canonicalize_name(named[1]) in wanted
    ]
    return "\n".join([*kept, (ROOT / "requirements-oldest-pyspark.lock").read_text(encoding="utf-8")])


def environment(version: str) -> Path:
    """Return the interpreter for a version of pyspark, after making its environment."""
    if version == VERSIONS[-1]:
        return Path(sys.executable)
    folder = ROOT / f".venv-{version}"
    python, stamp, pins = folder / "bin" / "python", folder / "txnlog-constraints.txt", constraints()
    made_from = pins + lock(version)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != made_from:
        print(f"making {folder.name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        locked = folder / "locked.txt"
        locked.write_text(lock(version), encoding="utf-8")
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        hashed = [*install, "--no-deps", "--require-hashes", "-r"]
        if version in (ROOT / "requirements-oldest-pyspark.lock").read_text(encoding="utf-8"):
            subprocess.run([*hashed, ROOT / "requirements-build.lock"], check=True)
            subprocess.run([*hashed, locked, "--use-pep517", "--no-build-isolation"], check=True)
        else:  # not in CI
            pinned = folder / "pins.txt"
            pinned.write_text(pins, encoding="utf-8")
            subprocess.run([*install, "-c", str(pinned), f"pyspark=={version}", *NEEDED], check=True)
        stamp.write_text(made_from, encoding="utf-8")
    return python


def run(version: str) -> dict[str, Any]:
    """Return what the features gave with a version, by kind of session."""
    python = environment(version)
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK", "SPARK", "PYTHON"))
    }
    found: dict[str, Any] = {}
    for kind in KINDS:
        begun = time.monotonic()
        done = subprocess.run(
            [python, "-m", "tests.smoke", kind],
            cwd=ROOT,
            env={**clean, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            timeout=900,
            check=True,
        )
        found[kind] = json.loads(done.stdout.splitlines()[-1])
        print(f"pyspark {version} {kind}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    versions = {"date": today, "java": java(), **found["classic"]["versions"]}
    return {
        "versions": versions,
        "offers": found["classic"]["offers"],
        "features": {kind: found[kind]["features"] for kind in KINDS},
    }


def render(record: dict[str, Any]) -> str:
    """Return the page of a record."""
    runs = record["runs"]
    head = "| | " + " | ".join(runs) + " |\n|---|" + "---|" * len(runs)
    features = list(next(iter(runs.values()))["features"]["classic"])
    notes: list[str] = []

    def cell(found: dict[str, Any], feature: str) -> str:
        results = {kind: found["features"][kind].get(feature, "not run") for kind in KINDS}
        if set(results.values()) == {"yes"}:
            return "yes"
        texts = []
        for kind, result in results.items():
            if result != "yes":
                notes.append(f"{len(notes) + 1}. {found['versions']['pyspark']}, {kind}: {result}")
            texts.append(f"{kind}: {'yes' if result == 'yes' else f'no ({len(notes)})'}")
        return ", ".join(texts)

    rows = [
        f"| {feature} | " + " | ".join(cell(found, feature) for found in runs.values()) + " |"
        for feature in features
    ]
    offered = list(next(iter(runs.values()))["offers"])
    offers = [
        f"| {what} | " + " | ".join(found["offers"][what] for found in runs.values()) + " |"
        for what in offered
    ]
    beside = [
        f"| {name} | " + " | ".join(found["versions"][name] for found in runs.values()) + " |"
        for name in ("date", "java", "python", "pyarrow", "pandas")
    ]
    return "\n".join(
        [
            "# Versions of Spark",
            "",
            (
                "Made by `make versions` from runs; the record is `docs/internals/versions.json`. Every "
                "feature is a small program"
            ),
            (
                "(`tests/smoke/features.py`) that runs in a classic session and in a Spark Connect session; "
                '"yes" is both. The'
            ),
            "full tests run with the last version of the table.",
            "",
            head,
            *rows,
            "",
            *(["What went wrong:", "", *notes, ""] if notes else []),
            "## Run with",
            "",
            head,
            *beside,
            "",
            "## What Spark offers to Python data sources",
            "",
            (
                "Whether the classes are there. Without the last two, streams have no limits, and "
                "`Trigger.AvailableNow` is one batch."
            ),
            "",
            head,
            *offers,
            "",
        ]
    )


def java() -> str:
    """Return the version of the Java that Spark starts."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return found[1] if found else "unknown"


def worse(version: str, found: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Return what the record says works and this run says does not."""
    known = record["runs"][version]["features"]
    return [
        f"pyspark {version} {kind}: {feature}: {result}"
        for kind, features in found["features"].items()
        for feature, result in features.items()
        if result != "yes" and known[kind].get(feature) == "yes"
    ]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=[], help="of pyspark; all by default")
    parser.add_argument("--check", action="store_true", help="only compare with the record")
    given = parser.parse_args()
    asked = tuple(given.versions) or VERSIONS
    if unknown := sorted(set(asked) - set(VERSIONS)):
        sys.exit(f"not among {', '.join(VERSIONS)}: {', '.join(unknown)}")
    runs = {version: run(version) for version in asked}
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"runs": {}}
    if given.check:
        problems = [problem for version in asked for problem in worse(version, runs[version], record)]
        if problems:
            sys.exit("\n".join(problems))
        return
    known = {**record["runs"], **runs}
    record = {"runs": {version: known[version] for version in VERSIONS if version in known}}
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render(record), encoding="utf-8")


if __name__ == "__main__":
    with own_temporary_directory():
        main()
