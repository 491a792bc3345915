"""The import rules of setup.cfg hold, and catch what they are there to catch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

from tests.meta.markdown import blocks

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGES = ("pyspark_txnlog", "spark_datasource", "txnformat", "txnlog", "txnlog_testing", "writers")
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
        timeout=300,
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
        ("txnlog/__init__.py", "import txnlog_testing.replay", "txnlog -> txnlog_testing"),
        (
            "txnformat/core/state.py",
            "import txnformat.protocol.pace",
            "txnformat.core.state -> txnformat.protocol.pace",
        ),
        (
            "txnformat/core/groups/state.py",
            "import txnformat.core.groups.decide",
            "groups.state -> txnformat.core.groups.decide",
        ),
        ("txnformat/core/fold.py", "import time", "txnformat.core.fold -> time"),
        (
            "txnformat/core/transactions/fold.py",
            "import txnformat.core.groups.ends",
            "txnformat.core.transactions.fold -> txnformat.core.groups.ends",
        ),
        (
            "writers/inputs.py",
            "import txnformat.core.subscriptions.decide",
            "writers.inputs -> txnformat.core.subscriptions.decide",
        ),
        (
            "txnformat/admin/topics.py",
            "import txnformat.core.lifecycle.deletion",
            "txnformat.admin.topics -> txnformat.core.lifecycle.deletion",
        ),
        (
            "txnformat/protocol/pace.py",
            "import txnformat.core.groups.fold",
            "txnformat.protocol.pace -> txnformat.core.groups.fold",
        ),
    ],
)
def test_a_planted_violation_is_caught(copy: Path, file: str, line: str, found: str) -> None:
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
    verdict = _check(copy)
    assert verdict.returncode == 1, verdict.stdout + verdict.stderr
    assert found in " ".join(verdict.stdout.split())


def test_no_module_imports_itself_around_a_circle() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 200
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_a_circle_is_found() -> None:
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"c"}, "c": {"a"}}).prepare()


def test_the_picture_of_the_architecture_has_every_room() -> None:
    (drawn,) = (block.text for block in blocks(ARCHITECTURE) if "\n txnformat\n" in block.text)
    named = {
        name for line in re.findall(r"^   ((?:[a-z_]+ )+)  ", drawn, re.MULTILINE) for name in line.split()
    }
    assert [name for name in named if find_spec(f"txnformat.{name}") is None] == []
    assert {path.parent.name for path in (ROOT / "txnformat").glob("*/__init__.py")} <= named
    inner = re.findall(r"^     ((?:[a-z_]+ )+)  ", drawn, re.MULTILINE)
    assert {name for line in inner for name in line.split()} == {
        path.parent.name for path in (ROOT / "txnformat" / "core").glob("*/__init__.py")
    }
