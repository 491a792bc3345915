"""The README is short, and its figures are those of the pages that commands make."""

from __future__ import annotations

import re

import pytest

from tests.meta.markdown import ROOT, codes, section, tables

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = tables(section(README, "## Figures"))[0].rows
EVIDENCE = {
    "bench": "docs/internals/benchmarks.md",
    "kill-rounds": "docs/internals/campaigns.md",
    "power-cuts": "docs/internals/reliability.md",
}
"""Where the results of a command are."""


def test_a_stranger_reads_it_to_the_end() -> None:
    assert len(README.splitlines()) <= 250


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: row[2])
def test_a_figure_is_that_of_the_page_of_its_command(row: list[str]) -> None:
    _, figure, command = row
    target = codes(command)[0].split()[1]
    page = (ROOT / EVIDENCE[target]).read_text(encoding="utf-8")
    numbers = re.findall(r"\d[\d,.]*\d|\d", figure)
    assert numbers
    for number in numbers:
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d])", page), (
            f"{number} is not in {EVIDENCE[target]}"
        )


PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_figures_beside_a_benchmark_are_those_of_its_page(name: str) -> None:
    """Of every line that names one: numbers with a fraction, and rates."""
    page = (ROOT / EVIDENCE["bench"]).read_text(encoding="utf-8")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if "`make bench BENCH=" in line:
            for number in re.findall(r"(?<![\d.])(\d+\.\d+|[\d,]+(?= per second))", line):
                assert re.search(rf"(?<![\d.,]){number.replace(',', ',?')}(?:\.\d)?\b", page), (
                    f"{number} is not in {EVIDENCE['bench']}"
                )


def test_the_figures_that_say_when_not_to_use_it_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "internals" / "benchmarks.md").read_text(encoding="utf-8")
    said = [row for row in tables(section(README, "## Is it for you?"))[0].rows if "`make bench" in row[1]]
    assert len(said) == 3
    for row in said:
        for number in re.findall(r"(\d[\d,]*) (?:per second|by eight|where|ms (?:in|to))", row[1]):
            assert re.search(rf"(?<![\d.,]){number.replace(',', ',?')}(?:\.\d)?\b", page), number
