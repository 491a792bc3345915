"""The docstring of each package's ``__init__`` is its README: what lives there, what it may import, and no
module that is gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.markdown import ROOT

TOP = (
    "pyspark_txnlog",
    "spark_datasource",
    "txnformat",
    "txnlog",
    "txnlog_testing",
    "writers",
    "bench",
    "demo",
)
PACKAGES = sorted(path.parent for top in TOP for path in (ROOT / top).rglob("__init__.py"))
WORDS = {"where", "with", "latest", "testing"}
"""In double backticks, and no modules: keywords, options and objects."""
FILES = {"json", "pyi"}
"""Suffixes of files that are named."""


def _docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def _children(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }


def _known(package: Path) -> set[str]:
    """Return the names that a docstring may mean: modules of the package, of those above it, and the rooms of
    txnformat."""
    found = {*TOP, *_children(package), *_children(ROOT / "txnformat")}
    while package != ROOT:
        package = package.parent
        found |= _children(package)
    return found


def _unknown(text: str, package: Path) -> list[str]:
    """Return the names in double backticks that are neither a module nor a room nor a file of another
    kind.
    """
    known = _known(package)
    found = []
    for name in re.findall(r"``([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)``", text):
        path, _, last = name.replace(".", "/").rpartition("/")
        is_there = (
            last in known
            if not path
            else any(last in _children(base / path) for base in (package, ROOT / "txnformat", ROOT))
        )
        if not is_there and name not in WORDS and last not in FILES:
            found.append(name)
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_what_lives_there_and_what_it_may_import(package: Path) -> None:
    text = _docstring(package)
    assert 5 <= len(text.splitlines()) <= 35
    assert re.search(r"^May import: \S", text, re.MULTILINE), "say what the package may import"
    modules = _children(package) - {"__init__", "__main__"}
    assert not modules or modules & set(re.findall(r"``(\w+)``", text)), "name the modules to start with"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_names_only_modules_that_exist(package: Path) -> None:
    assert _unknown(_docstring(package), package) == []


def test_a_module_that_is_gone_is_found() -> None:
    text = "``metrics`` count, ``group_listing`` lists, ``core.state`` holds, ``core.gone`` does not."
    assert _unknown(text, ROOT / "txnformat" / "admin") == ["group_listing", "core.gone"]
