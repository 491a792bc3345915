"""The import rules of setup.cfg hold, and catch what they are there to catch."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pyspark_txnlog", "spark_datasource", "txnformat", "txnlog", "writers")
COMMAND = "from importlinter.cli import lint_imports_command as run; run(prog_name='lint-imports')"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def _check(root: Path) -> subprocess.CompletedProcess[str]:
    # -c puts the working directory first on sys.path: the copy is judged, not the checkout.
    return subprocess.run(
        [sys.executable, "-c", COMMAND, "--no-cache", "--no-logo"],
        cwd=root,
        env={"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_tree_keeps_every_contract(copy: Path) -> None:
    verdict = _check(copy)
    assert verdict.returncode == 0, verdict.stdout + verdict.stderr
    assert "0 broken" in verdict.stdout


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("txnformat/errors.py", "import txnformat.store.base", "txnformat.errors -> txnformat.store.base"),
        ("txnformat/types.py", "import writers", "txnformat.types -> writers"),
        ("txnformat/types.py", "import time", "txnformat.types -> time"),
        ("writers/__init__.py", "import pyspark.sql", "writers -> pyspark"),
        ("writers/__init__.py", "import spark_datasource", "writers -> spark_datasource"),
        ("txnformat/stray.py", "", "txnformat.stray"),
    ],
)
def test_a_planted_violation_is_caught(copy: Path, file: str, line: str, found: str) -> None:
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    verdict = _check(copy)
    assert verdict.returncode == 1, verdict.stdout + verdict.stderr
    assert found in " ".join(verdict.stdout.split())
