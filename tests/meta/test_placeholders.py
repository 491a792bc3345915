"""A text with the name of a constant in braces is an f-string: else users read the name."""

from __future__ import annotations

import ast
import re

import pytest

from tests.meta.markdown import ROOT

PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]+)(?:![rsa])?(?::[^{}]*)?\}")
PRODUCT = ("txnformat", "spark_datasource", "writers", "txnlog", "pyspark_txnlog")


def forgotten(source: str) -> list[str]:
    """Return the names in braces of texts that are no f-strings, and that the module has."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names}
    formatted = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
    }
    return [
        match[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in formatted
        for match in PLACEHOLDER.finditer(node.value)
        if match[1] in names
    ]


@pytest.mark.parametrize("package", PRODUCT)
def test_no_text_shows_the_name_of_a_constant(package: str) -> None:
    found = {
        str(path.relative_to(ROOT)): forgotten(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert {path: names for path, names in found.items() if names} == {}


def test_they_are_found() -> None:
    assert forgotten('from a import VIEW\nx = "use {VIEW}"') == ["VIEW"]
    assert forgotten('from a import VIEW\nx = f"use {VIEW}" + "{OTHER}"') == []
