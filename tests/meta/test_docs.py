"""Documentation is executed, its links lead somewhere, and what it lists is what the code has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spark_datasource.options import declared
from spark_datasource.options.read import parse_read_options
from spark_datasource.options.values import Option
from spark_datasource.options.write import parse_stream_write_options, parse_write_options
from tests.meta.kinds import KINDS
from tests.meta.markdown import ROOT, blocks, codes, prose, section, tables
from tests.meta.pages import PYTHON_PAGES, SPARK_PAGES, page
from tests.meta.prompt import unpasteable
from tests.meta.runner import NOT_RUN, run_blocks
from txnformat import errors
from txnformat.core.invariants import INVARIANTS
from txnformat.errors import TxnLogError
from txnformat.reading.rows import METADATA_FIELDS

FILES = sorted(
    path.relative_to(ROOT)
    for path in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("notebooks/*.md"),
        *ROOT.glob("tests/**/*.md"),
    ]
)
ARCHITECTURE = page("ARCHITECTURE.md")
OPTIONS = page("docs/options.md")
COLUMNS_MAX = 88
"""Characters of a line of code that a page shows without a scroll bar, on a desktop."""


# --- code blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PYTHON_PAGES, *SPARK_PAGES])
def test_a_page_can_be_pasted_into_the_prompt_of_python(name: str) -> None:
    """No blank line inside of a statement, one behind it, and no line that is wider than its column."""
    for block in blocks(page(name)):
        if block.info == "python":
            assert [(block.line + line, text) for line, text in unpasteable(block.text)] == []
            assert [line for line in block.text.splitlines() if len(line) > COLUMNS_MAX] == []


def test_a_block_that_fails_is_reported_with_its_line() -> None:
    with pytest.raises(AssertionError) as caught:
        run_blocks("sample.md", {}, with_spark=False, text="\n\n```python\nx = 1\nassert x == 2\n```\n")
    assert caught.traceback[-1].lineno == 4  # zero-based
    assert str(caught.traceback[-1].path).endswith("sample.md")


@pytest.mark.parametrize("path", FILES, ids=str)
def test_blocks_of_python_are_left_out_only_with_a_reason(path: Path) -> None:
    run = {*PYTHON_PAGES, *SPARK_PAGES}
    for block in blocks(page(path)):
        if block.info == "python" and str(path) not in run:
            assert NOT_RUN.fullmatch(block.before), f"{path}:{block.line} is not run, and no comment says why"
        assert block.info != "py", f"{path}:{block.line}: call it python"


# --- links and commands -------------------------------------------------------------------------------------


def _anchor(heading: str) -> str:
    """Return the anchor that a heading gets on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _links(path: Path) -> Iterator[str]:
    for match in re.finditer(r"\[[^\]]*\]\(([^)\s]+)\)", prose(page(path))):
        yield match[1]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for link in _links(path):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (ROOT / path.parent / target) if target else ROOT / path
        assert file.exists(), f"{path}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file.read_text(encoding="utf-8")), re.MULTILINE)
            assert anchor in set(map(_anchor, headings)), f"{path}: {link}"


def test_links_are_found() -> None:
    assert "docs/internals/spec.md" in set(_links(Path("README.md")))


MAKEFILE = page("Makefile")
TARGETS = set(re.findall(r"^([a-z0-9-]+):(?!=)", MAKEFILE, re.MULTILINE))


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_make_target_that_is_named_exists(path: Path) -> None:
    text = page(path)
    named = set(re.findall(r"`make ([a-z0-9-]+)", text)) | set(
        re.findall(r"^ *make ([a-z0-9-]+)", text, re.MULTILINE)
    )
    assert named <= TARGETS


def test_the_readme_names_the_commands_that_a_newcomer_needs() -> None:
    assert (
        {"demo", "test", "help"} <= set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", page("README.md"))) <= TARGETS
    )


@pytest.mark.parametrize("path", FILES, ids=str)
def test_every_file_of_the_tree_that_is_named_exists(path: Path) -> None:
    folders = "bench|demo|docs|notebooks|spark_datasource|tests|txnformat|writers"
    for name in re.findall(rf"`((?:{folders})/[\w./-]+\.(?:py|md|ipynb|json))(?:::\w+)?`", page(path)):
        if not re.search(r"\bNN(?:NN)?[_-]", name):  # a pattern of names
            assert (ROOT / name).exists(), f"{path}: {name}"


# --- Spark --------------------------------------------------------------------------------------------------


def _option_rows(direction: str) -> dict[str, list[str]]:
    (table,) = [table for table in tables(OPTIONS) if table.header[0] == f"{direction} option"]
    return {codes(row[0])[0]: row for row in table.rows}


READ_MINIMUM = {"path": "/log", "topic": "orders"}


@pytest.mark.parametrize(
    ("direction", "known"),
    [
        ("read", declared.READ),
        ("write", declared.WRITE),
        ("stream write", declared.STREAM_WRITE),
    ],
)
def test_the_options_are_exactly_those_of_the_code(direction: str, known: Mapping[str, Option]) -> None:
    names = [name for each in known.values() for name in (each.name, each.alias) if name is not None]
    assert list(_option_rows(direction)) == names


def _parse(direction: str, given: dict[str, str]) -> Any:
    minimum = {name: value for name, value in READ_MINIMUM.items() if name not in given}
    if given.keys() & {"subscribe", "subscribePattern"}:
        del minimum["topic"]
    if direction == "write" and "txnAppId" in given:
        given = {**given, "txnVersion": "1"}
    elif "txnVersion" in given:
        given = {**given, "txnAppId": "job"}
    return PARSERS[direction]({**minimum, **given})


PARSERS: dict[str, Callable[[dict[str, str]], Any]] = {
    "read": parse_read_options,
    "write": parse_write_options,
    "stream write": parse_stream_write_options,
}


OPTION_ROWS = [
    (direction, name, row) for direction in PARSERS for name, row in _option_rows(direction).items()
]


@pytest.mark.parametrize(("direction", "name", "row"), OPTION_ROWS, ids=lambda value: str(value)[:30])
def test_examples_of_options_are_accepted_and_defaults_are_what_happens_without(
    direction: str, name: str, row: list[str]
) -> None:
    _, _, default, example, _ = row
    accepted = _parse(direction, {name: codes(example)[0]})
    plain = _parse(direction, {})
    if name not in (
        "path",
        "topic",
        "subscribe",
        "checkpointLocation",
        "queryName",
    ):  # the last two are Spark's
        assert accepted != plain, "an example should do something"
    if name == "partitions":  # decided when the topic is created
        assert (codes(default), getattr(plain, "write", plain).partitions) == (["1"], None)
        return
    if name == "startingOffsets":  # what it is by default depends on what is read
        return
    for value in codes(default):
        if "()" not in value:
            assert _parse(direction, {name: value}) == plain


def test_the_options_of_later_versions_are_named_and_refused() -> None:
    later = section(page("docs/spark-read.md"), "## Not in this version")
    assert codes(later) == list(declared.LATER)
    for name in declared.LATER:
        with pytest.raises(TxnLogError, match="is not supported by this version"):
            parse_read_options({**READ_MINIMUM, name: "1"})


def test_the_metadata_columns_are_those_of_the_code() -> None:
    (table,) = tables(section(page("docs/spark-read.md"), "## Metadata columns"))
    assert [codes(row[0])[0] for row in table.rows] == list(METADATA_FIELDS)


@pytest.mark.parametrize("name", ["docs/troubleshoot.md", "docs/spark-streams.md"])
def test_every_error_code_is_one_that_the_code_can_give(name: str) -> None:
    named = re.findall(r"TXNLOG_[A-Z_]+", page(name))
    assert len(named) > 10
    assert {name.removeprefix("TXNLOG_").lower().replace("_", "-") for name in named} <= KINDS


# --- docs/troubleshoot.md -----------------------------------------------------------------------------------


def test_troubleshooting_says_of_every_error_what_to_do() -> None:
    (table,) = tables(section(page("docs/troubleshoot.md"), "## Errors"))
    assert sorted(
        [
            *(name for row in table.rows for name in codes(row[0])),
            "FormatError",
            "SequenceError",
            "TxnLogError",
        ]
    ) == sorted(errors.__all__)


# --- ARCHITECTURE.md ----------------------------------------------------------------------------------------


def _invariants() -> list[list[str]]:
    (table,) = tables(section(ARCHITECTURE, "## Invariants"))
    return table.rows


def test_the_invariants_are_exactly_those_of_the_code() -> None:
    assert [(number, text) for number, text, _ in _invariants()] == list(INVARIANTS.items())


@pytest.mark.parametrize("row", _invariants(), ids=lambda row: str(row[0]))
def test_the_tests_that_show_an_invariant_are_there(row: list[str]) -> None:
    named = codes(row[2])
    assert named
    for name in named:
        file, _, function = name.partition("::")
        assert f"\ndef {function}(" in page(file), name


def test_documentation_names_no_place_of_this_machine() -> None:
    root = str(ROOT)
    for path in FILES:
        assert root not in page(path)


def test_the_changelog_has_a_section_for_what_is_not_released() -> None:
    assert "## [Unreleased]" in page("CHANGELOG.md")
