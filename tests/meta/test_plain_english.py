"""Pages and code name producers, clients, readers and operators: no sentence has a subject that could be anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.markdown import ROOT, prose
from tests.meta.plain_english import NOBODY, WORDS, headless, page_sentences, source_texts, unnamed

PAGES = sorted(
    path.relative_to(ROOT)
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    if path.name not in {"CHANGELOG.md", "CONTRIBUTING.md"}  # CONTRIBUTING.md says which words
)
FOLDERS = (
    "txnformat",
    "writers",
    "spark_datasource",
    "txnlog",
    "pyspark_txnlog",
    "txnlog_testing",
    "bench",
    "demo",
    "scripts",
)
"""Not ``tests``: a test's docstring is its claim, and may be a noun clause. Names of tests say "nobody", too."""


def _texts(folder: str) -> list[tuple[str, str, str]]:
    return [
        (f"{path.relative_to(ROOT)}:{line}", kind, text)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, kind, text in source_texts(path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_names_its_actors(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [match[0] for match in WORDS.finditer(re.sub(r"`[^`]*`", "", prose(text)))] == []
    assert unnamed(page_sentences(text)) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_and_messages_name_their_actors(folder: str) -> None:
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / folder).rglob("*.py")
        for match in WORDS.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_sentences_of_docstrings_and_comments_have_a_subject(folder: str) -> None:
    assert [(where, found) for where, _, text in _texts(folder) for found in unnamed(text)] == []


def test_sentences_of_tests_name_their_actors() -> None:
    assert [(where, found) for where, _, text in _texts("tests") for found in unnamed(text, NOBODY)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_field_s_docstring_says_what_the_field_is(folder: str) -> None:
    assert [(where, text) for where, kind, text in _texts(folder) if kind == "field" and headless(text)] == []


def test_the_words_are_found() -> None:
    assert WORDS.findall("Nobody waits; whoever commits") == ["Nobody", "whoever"]


@pytest.mark.parametrize(
    "text",
    [
        "What a log keeps.",
        "Kept. Who commits\nfirst wins.",
        "A list:\n\n* Whose it is.",
        "(Whatever lands is read.)",
    ],
)
def test_a_sentence_without_a_subject_is_found(text: str) -> None:
    assert len(unnamed(text)) == 1


@pytest.mark.parametrize(
    "text", ["What is an epoch?", "**What it costs.** Two requests.", "The log keeps what was committed."]
)
def test_questions_headings_and_clauses_are_no_findings(text: str) -> None:
    assert unnamed(text) == []


def test_texts_of_a_source_are_found() -> None:
    source = '"""A module."""\n\nLIMIT = 3\n"""Of a name."""\n# What is\n# left.\n'
    assert list(source_texts(source)) == [
        (1, "docstring", "A module."),
        (4, "field", "Of a name."),
        (5, "comment", "What is\nleft."),
    ]
    assert headless("Of a name.")
    assert headless("None: no limit.")
    assert headless("That deleted it.")
    assert not headless("Longest name. By bytes.")
    assert not headless("That entry's log time.")


def test_headings_of_a_page_and_of_its_tables_are_no_sentences() -> None:
    page = "# What it is\n\n| what | Why |\n|---|---|\n| What is left. | yes |\n"
    assert unnamed(page_sentences(page)) == ["What is left."]
