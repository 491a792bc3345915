"""Asks for known advisories about what is locked; fails only for those for which a mended version exists.

``python scripts/audit.py`` (``make audit``). pip-audit asks the index's advisory service; it has an
environment of its own (``.venv-audit``), locked like the other. Where the service does not answer this says
so, and does not fail: a machine without it can still be a CI machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".venv-audit"
AUDITED = (
    *("requirements-dev.lock", "requirements-oldest-pyspark.lock", "requirements-audit.lock"),
    "requirements-fuzz.lock",
)

SECONDS_MAX = 300
"""For one lock; a service that does not answer must not hold up CI."""


def judge(report: Mapping[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Return what pip-audit's report says: findings with a mended version, those without, and what was not
    audited.
    """
    mended: list[str] = []
    open_ones: list[str] = []
    unasked: list[str] = []
    for package in report.get("dependencies", ()):
        name = f"{package['name']} {package.get('version', '')}".strip()
        if "skip_reason" in package:
            unasked.append(name)
        for finding in package.get("vulns", ()):
            fixes = finding.get("fix_versions", [])
            if fixes:
                mended.append(f"{name}: {finding['id']}, mended in {', '.join(fixes)}")
            else:
                open_ones.append(f"{name}: {finding['id']}, no mended version yet")
    return mended, open_ones, unasked


def _environment() -> Path:
    python, stamp = FOLDER / "bin" / "python", FOLDER / "txnlog-lock.txt"
    lock = ROOT / "requirements-audit.lock"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != lock.read_text(encoding="utf-8"):
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(
            [*install, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r", str(lock)], check=True
        )
        stamp.write_text(lock.read_text(encoding="utf-8"), encoding="utf-8")
    return python


def main() -> int:
    """Audit each lock; return 1 if there is a finding with a mended version."""
    python = _environment()
    failed = False
    for lock in AUDITED:
        command = [str(python), "-m", "pip_audit", "--format=json", "--disable-pip", "--progress-spinner=off"]
        try:
            done = subprocess.run(
                [*command, "--require-hashes", "--requirement", lock],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS_MAX,
            )
        except subprocess.TimeoutExpired:
            print(f"{lock}: NOT AUDITED, the advisory service did not answer within {SECONDS_MAX} s")
            break
        try:
            report = json.loads(done.stdout)
        except ValueError:
            print(f"{lock}: NOT AUDITED, the advisory service gave no answer: {done.stderr[-300:].strip()}")
            continue
        mended, open_ones, unasked = judge(report)
        failed |= bool(mended)
        for line in (*mended, *open_ones):
            print(f"{lock}: {line}")
        known = len(report["dependencies"]) - len(unasked)
        print(
            f"{lock}: {known} audited, {len(mended) + len(open_ones)} findings, {len(mended)} with a "
            "mended version"
        )
        if unasked:
            print(
                f"{lock}: NOT AUDITED, the service does not know them: {len(unasked)} "
                f"({', '.join(unasked[:5])} …)"
            )
        if not known:
            break  # what it does not know of one lock it does not know of the others
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
