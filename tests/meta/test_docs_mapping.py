"""docs/internals/mapping.md: every mechanism once, with tests that are there and counts that are right."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.meta.markdown import tables

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/internals/mapping.md").read_text(encoding="utf-8")
STATUSES = ("built", "in part", "later", "cannot exist here")
ROWS = [row for table in tables(TEXT) if table.header[0] == "no." for row in table.rows]
LAST = 110


def test_every_number_is_there_once_and_in_order() -> None:
    assert [int(row[0]) for row in ROWS] == list(range(1, LAST + 1))


def test_the_groups_are_where_they_belong() -> None:
    (groups,) = [table for table in tables(TEXT) if table.header[0] == "group"]
    bounds = [int(number) for row in groups.rows for number in re.findall(r"\d+", row[1])[:2]]
    assert bounds == [1, 18, 19, 40, 41, 55, 56, 88, 89, 103, 104, LAST]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_says_what_it_has_to(row: list[str]) -> None:
    _, mechanism, ours, code, status, shown = row
    assert mechanism
    assert ours, "what it is here, what it waits for, or the reason why it cannot be"
    assert status in STATUSES
    named = re.findall(r"`([^`]+)`", shown)
    if status in ("built", "in part"):
        assert code
        assert named, "what is built is shown by a test"
    for name in named:
        file, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), name
    for module in re.findall(r"`([^`]+)`", code):
        assert (ROOT / module).exists(), module


def test_the_counts_are_those_of_the_rows() -> None:
    (groups,) = [table for table in tables(TEXT) if table.header[0] == "group"]
    assert tuple(groups.header[2:]) == STATUSES
    for name, span, *counts in groups.rows:
        first, last = map(int, re.findall(r"\d+", span)[:2])
        found = Counter(row[4] for row in ROWS if first <= int(row[0]) <= last)
        assert [int(count) for count in counts] == [found[status] for status in STATUSES], name
