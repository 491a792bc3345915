"""Pages and the product's code name producers, clients, readers and operators: no sentence has a subject that could be anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.markdown import ROOT, prose

MADE = {"benchmarks.md", "mapping.md", "mutations.md"}
"""Pages with names of tests and rules."""
PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/adr/*.md")]
    if path.name not in {*MADE, "CHANGELOG.md", "CONTRIBUTING.md"}  # CONTRIBUTING.md says which words
)
WORDS = re.compile(r"\b(?:whoever|whomever|nobody|somebody|anybody|everybody)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_names_its_actors(page: Path) -> None:
    text = re.sub(r"`[^`]*`", "", prose((ROOT / page).read_text(encoding="utf-8")))
    assert [match[0] for match in WORDS.finditer(text)] == []


@pytest.mark.parametrize("package", ["txnformat", "writers", "spark_datasource", "txnlog", "pyspark_txnlog"])
def test_messages_docstrings_and_comments_name_their_actors(package: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / package).rglob("*.py")
        for match in WORDS.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_the_words_are_found() -> None:
    assert WORDS.findall("Nobody waits; whoever commits") == ["Nobody", "whoever"]
