"""Pages and code name producers, clients, readers and operators: no sentence has a subject that could be
anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.markdown import ROOT, prose
from tests.meta.plain_english import (
    DIALECT,
    NOBODY,
    WORDS,
    headless,
    page_sentences,
    source_texts,
    unnamed,
    users_strings,
)

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
"""Not ``tests``: a test's docstring is its claim, and may be a noun clause. Names of tests say "nobody", too.
"""

PRODUCT = ("txnformat", "writers", "spark_datasource", "txnlog", "pyspark_txnlog")


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


@pytest.mark.parametrize("folder", PRODUCT)
def test_messages_and_helps_are_standard_english(folder: str) -> None:
    found = [
        (f"{path.relative_to(ROOT)}:{line}", match[0], text)
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in users_strings(path.read_text(encoding="utf-8"))
        for match in DIALECT.finditer(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "this JSON is no schema",
        "values that are no whole numbers from 0 on",
        "older master keys are needed no more",
        "it answers no more",
        "a list has not the length that it tells",
        "publish with rebuild=True to state the whole table anew",
        "the same command goes on behind it",
        "Type its name to go on",
        "--dry-run goes neither with --watch nor with --metrics-file",
        "so it does not go with {}",
        "Let commit entries go that are older",
        "a transaction aborted less than so long ago",
        "clients that have no news for so long",
        "they stay, as at first.",
        "the topic's compact.target.bytes unless you say so.",
        "Default: end at what is there when the command begins.",
        "a version of its topic's schema that there is not",
        "start is {}, none of {}",
        "which Arrow takes for no list",
        "Allow as well that columns of topics are dropped.",
        "the log does not allow that anything is removed",
        "the log is not concerned",
        "so this key is of no use",
        "the log is another one than the checkpoint says",
        "a look whether the vacuums have deleted all old objects",
    ],
)
def test_dialect_is_found(text: str) -> None:
    assert DIALECT.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "there is no such topic",
        "the position is no longer in the partition",
        "so there are no records to read",
        "let the error leave the with block",
        "a long run of records ago",
    ],
)
def test_standard_english_is_no_dialect(text: str) -> None:
    assert not DIALECT.search(text)


def test_strings_that_users_read_are_found() -> None:
    source = (
        '"""A module."""\nTEXT = "a\\n  text"\n"""A field."""\n\n\n@click.command()\ndef f():\n'
        '    """Help."""\n    say(f"{x} is late")\n\n\ndef g():\n    """A function."""\n'
    )
    assert sorted(users_strings(source)) == [(2, "a text"), (8, "Help."), (9, "{} is late")]


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
