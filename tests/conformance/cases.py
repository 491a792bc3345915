"""The test cases of other systems that txnlog is held to, and the tests that show them.

Every upstream test class has a file ``cases/<class>.toml`` that lists its cases. A test of ours cites what it shows::

    @case("ProducerStateManagerTest", "testFirstUnstableOffset", "testFirstUnstableOffsetAfterTruncation")
    def test_the_oldest_open_transaction_is_the_first_unstable_offset() -> None: ...

A case without a test has one of two reasons: ``not_applicable`` (its subject cannot exist here) or ``later``
(its subject comes with a feature that is not built yet). ``tests/meta/test_conformance.py`` holds cases,
tests and pages together; ``python -m tests.conformance.report`` writes the pages.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CASES", "ROOT", "Case", "Cited", "Group", "case", "cited", "groups", "problems", "read_group"]

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).resolve().parent / "cases"

_GROUP_KEYS = {"name", "source", "about", "case"}
_CASE_KEYS = {"name", "not_applicable", "later", "note"}


@dataclass(frozen=True, slots=True)
class Case:
    """One upstream test case."""

    name: str
    not_applicable: str = ""
    """Why its subject cannot exist here."""
    later: str = ""
    """The feature that it waits for."""
    note: str = ""
    """What the case is here, when its name does not say so."""


@dataclass(frozen=True, slots=True)
class Group:
    """One upstream test class."""

    name: str
    source: str
    """Project, branch and month of the list."""
    about: str
    """One line: what the class tests."""
    cases: tuple[Case, ...]

    def names(self) -> list[str]:
        """Return the names of the cases, in the order of the file."""
        return [each.name for each in self.cases]


@dataclass(frozen=True, slots=True)
class Cited:
    """One test that cites one case."""

    test_class: str
    name: str
    test: str
    """``path::function`` or ``path::Class``."""
    expected_to_fail: bool = False
    """It is marked ``xfail``, which is strict: it does fail."""


def read_group(path: Path) -> Group:
    """Read one list of cases.

    Raises
    ------
    ValueError
        A key that is not known, a missing or empty value, a name that comes twice, or a file not called as
        its class.
    """
    where = f"{path.parent.name}/{path.name}"
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    _check_keys(where, table, _GROUP_KEYS, required=_GROUP_KEYS)
    if table["name"] != path.stem:
        raise ValueError(f"{where}: the file is called as its class, got name = {table['name']!r}")
    found: dict[str, Case] = {}
    for each in table["case"]:
        _check_keys(f"{where}, case {each.get('name')!r}", each, _CASE_KEYS, required={"name"})
        if each["name"] in found:
            raise ValueError(f"{where}: {each['name']} is listed twice")
        found[each["name"]] = Case(**each)
    return Group(table["name"], table["source"], table["about"], tuple(found.values()))


def _check_keys(where: str, table: dict[str, Any], known: set[str], *, required: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ValueError(f"{where}: unknown keys {unknown}, expected some of {sorted(known)}")
    empty = [key for key in sorted(required | (set(table) & known)) if not table.get(key)]
    if empty:
        raise ValueError(f"{where}: {empty} must be there and not empty")


@cache
def groups() -> dict[str, Group]:
    """Return all lists of cases, by class."""
    return {path.stem: read_group(path) for path in sorted(CASES.glob("*.toml"))}


def case(test_class: str, *names: str) -> pytest.MarkDecorator:
    """Mark a test as one that shows these upstream cases. Literal strings only: the pages are made without
    imports.

    Raises
    ------
    ValueError
        No such class or case in ``cases/``, or no name: the test's module cannot be imported.
    """
    problem = _unknown(groups(), test_class, names)
    if problem:
        raise ValueError(problem)
    return pytest.mark.case(test_class, *names)


def _unknown(known: dict[str, Group], test_class: str, names: Iterable[str]) -> str:
    names = list(names)
    if test_class not in known:
        return f"no cases/{test_class}.toml; there are {', '.join(known) or 'none'}"
    if not names:
        return f"case({test_class!r}) names no case"
    unknown = sorted(set(names) - set(known[test_class].names()))
    return f"cases/{test_class}.toml does not list {', '.join(unknown)}" if unknown else ""


def cited(paths: Iterable[Path] | None = None, root: Path = ROOT) -> list[Cited]:
    """Return every citation in the tests, found in their source: nothing is imported.

    Parameters
    ----------
    paths : iterable of Path, optional
        Files to look at; default: every ``test_*.py`` below ``tests``.

    Raises
    ------
    ValueError
        A citation that is not of literal strings, or at something that pytest does not collect.
    """
    files = sorted((root / "tests").rglob("test_*.py")) if paths is None else paths
    found: list[Cited] = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        if re.search(r"^\s*@case\(", text, re.MULTILINE):
            found += _cited_in(ast.parse(text), path.relative_to(root).as_posix())
    return found


def _cited_in(tree: ast.Module, path: str) -> Iterator[Cited]:
    inner = {id(node) for scope in tree.body if isinstance(scope, ast.ClassDef) for node in scope.body}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        calls = [each for each in node.decorator_list if _called(each) == "case"]
        if not calls:
            continue
        test = f"{path}::{node.name}"
        prefix = "Test" if isinstance(node, ast.ClassDef) else "test_"
        if id(node) in inner or node not in tree.body or not node.name.startswith(prefix):
            raise ValueError(
                f"{test} cites a case, but is no test function or class of the module's top level"
            )
        fails = any(_called(each) == "xfail" for each in node.decorator_list)
        for call in calls:
            test_class, *names = _literals(call, test)
            yield from (Cited(test_class, name, test, fails) for name in names)


def _called(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else node
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else ""
    )


def _literals(node: ast.expr, test: str) -> list[str]:
    arguments = node.args if isinstance(node, ast.Call) and not node.keywords else []
    values = [each.value for each in arguments if isinstance(each, ast.Constant)]
    if len(values) != len(arguments) or len(values) < 2 or not all(isinstance(each, str) for each in values):
        raise ValueError(f"{test}: case() takes a class and its cases as literal strings")
    return [str(value) for value in values]


def problems(known: dict[str, Group], citations: Iterable[Cited]) -> list[str]:
    """Return what does not fit together; nothing when every case has tests, or one reason, and never both."""
    citations = list(citations)
    found = [
        f"{each.test}: {text}"
        for each in citations
        if (text := _unknown(known, each.test_class, [each.name]))
    ]
    shown = {(each.test_class, each.name): each.test for each in citations}
    for group in known.values():
        for each in group.cases:
            where = f"{group.name}.{each.name}"
            test = shown.get((group.name, each.name))
            reasons = [word for word in ("not_applicable", "later") if getattr(each, word)]
            if test and reasons:
                found.append(f"{where} has {reasons[0]}, and yet {test} shows it")
            elif len(reasons) == 2:
                found.append(f"{where} has both not_applicable and later")
            elif not test and not reasons:
                found.append(f"{where} has neither a test nor a reason (not_applicable, later)")
    return found
