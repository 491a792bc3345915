"""The table of docs/internals/reliability.md names the tests that there are: every case has one, none is
forgotten."""

from __future__ import annotations

import re

from tests.meta.markdown import ROOT, codes, section, tables

CASES = range(1, 24)

TEXT = (ROOT / "docs" / "internals" / "reliability.md").read_text(encoding="utf-8")


def test_every_case_names_exactly_the_tests_that_hold_it() -> None:
    there: dict[int, set[str]] = {}
    for path in (ROOT / "tests" / "spark").glob("test_*.py"):
        for name, number in re.findall(
            r"^def (test_case_(\d+)_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            there.setdefault(int(number), set()).add(name)
    (table,) = tables(section(TEXT, "## Cases"))
    named = {int(number): codes(tests) for number, _, _, tests in table.rows}
    assert list(named) == list(CASES)
    assert {number: set(tests) for number, tests in named.items()} == there
    assert all(len(tests) == len(set(tests)) for tests in named.values())
