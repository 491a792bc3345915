"""docs/internals/history-checker.md lists exactly the classes of the code, and its words are those of the
code."""

from __future__ import annotations

import re

from tests.meta.markdown import ROOT, codes, section, tables
from txnlog_testing.checker import DEFINITIONS, KAFKA, AnomalyClass, Function

TEXT = (ROOT / "docs" / "internals" / "history-checker.md").read_text(encoding="utf-8")


def test_the_table_of_classes_is_the_codes() -> None:
    (table,) = tables(section(TEXT, "## Classes"))
    documented = [(codes(name), when, unless) for name, when, unless in table.rows]
    assert documented == [([cls.value], one.when, one.unless) for cls, one in DEFINITIONS.items()]
    assert list(DEFINITIONS) == list(AnomalyClass)


def test_the_functions_are_the_codes() -> None:
    (line,) = re.findall(r"\* \*\*Functions\*\*: (.*?)\. After", TEXT, re.DOTALL)
    assert set(re.findall(r"`([a-z]+)`", line)) == {function.value for function in Function}


def test_kafkas_allowances_are_the_codes() -> None:
    (line,) = re.findall(r"`check_history\(events, KAFKA\)` allows (.*?), as Jepsen", TEXT, re.DOTALL)
    named = set(re.findall(r"`([\w-]+)`", line))
    variants = {"G0-process", "G0-realtime"}
    assert named | variants == {cls.value for cls in KAFKA.allowed | KAFKA.allowed_subscribed}
