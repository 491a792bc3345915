"""docs/conformance: every upstream case has tests or one reason, and the pages are what the generator
makes.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conformance import report
from tests.conformance.cases import CASES, ROOT, Case, Cited, Group, case, cited, groups, problems, read_group

CITED = cited()
AGAIN = "run: python -m tests.conformance.report"


def test_every_case_has_tests_or_one_reason() -> None:
    assert problems(groups(), CITED) == []


def test_the_pages_are_what_the_generator_makes() -> None:
    made = report.pages(groups(), CITED)
    for path, text in made.items():
        assert (ROOT / path).is_file(), f"{path} is missing; {AGAIN}"
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path} is stale; {AGAIN}"
    stray = {path.relative_to(ROOT) for path in (ROOT / report.PAGES).glob("*")} - set(made)
    assert not stray, f"no class has these pages; {AGAIN}"


def test_the_groups_are_found() -> None:
    assert "LogSegmentTest" in groups()
    assert {each.test_class for each in CITED} <= set(groups())
    assert sorted(path.stem for path in CASES.iterdir()) == sorted(groups())


# --- the guards ---------------------------------------------------------------------------------------------

GROUP = Group("SomeTest", "Some project", "Something.", (Case("testOne"), Case("testTwo")))
SHOWN = [
    Cited("SomeTest", "testOne", "tests/test_x.py::test_one"),
    Cited("SomeTest", "testTwo", "tests/test_x.py::test_two"),
]


def _known(*cases: Case) -> dict[str, Group]:
    return {"SomeTest": Group("SomeTest", "Some project", "Something.", cases)}


def test_cases_with_tests_fit() -> None:
    assert problems({"SomeTest": GROUP}, SHOWN) == []


@pytest.mark.parametrize(
    ("known", "citations", "said"),
    [
        ([Case("testOne"), Case("testTwo")], SHOWN[:1], "neither a test nor a reason"),
        ([Case("testOne", not_applicable="no replicas")], SHOWN[:1], "has not_applicable, and yet"),
        ([Case("testOne", later="consumer groups")], SHOWN[:1], "has later, and yet"),
        ([Case("testOne", not_applicable="no replicas", later="groups")], [], "has both"),
        ([Case("testOne")], SHOWN, "does not list testTwo"),
        (
            [Case("testOne")],
            [*SHOWN[:1], Cited("Other", "testOne", "tests/test_x.py::test_x")],
            "no cases/Other.toml",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_found(known: list[Case], citations: list[Cited], said: str) -> None:
    (problem,) = problems(_known(*known), citations)
    assert said in problem


@pytest.mark.parametrize(
    ("test_class", "names", "said"),
    [
        ("NoSuchTest", ["testOne"], "no cases/NoSuchTest.toml"),
        ("LogSegmentTest", ["testNothing"], "does not list testNothing"),
        ("LogSegmentTest", [], "names no case"),
    ],
)
def test_a_citation_of_nothing_stops_the_import(test_class: str, names: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        case(test_class, *names)


def _source(folder: Path, text: str) -> list[Cited]:
    path = folder / "tests" / "test_x.py"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    ast.parse(text)
    return cited(root=folder)


def test_citations_are_read_from_the_source(tmp_path: Path) -> None:
    text = """
@case("SomeTest", "testOne")
@pytest.mark.xfail(strict=True, reason="a known defect")
def test_one() -> None: ...

@case("SomeTest", "testOne", "testTwo")
@case("Other", "a b/c")
class TestMachine: ...
"""
    assert _source(tmp_path, text) == [
        Cited("SomeTest", "testOne", "tests/test_x.py::test_one", expected_to_fail=True),
        Cited("SomeTest", "testOne", "tests/test_x.py::TestMachine"),
        Cited("SomeTest", "testTwo", "tests/test_x.py::TestMachine"),
        Cited("Other", "a b/c", "tests/test_x.py::TestMachine"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('@case("SomeTest", *NAMES)\ndef test_one(): ...', "literal strings"),
        ('@case("SomeTest")\ndef test_one(): ...', "literal strings"),
        ('@case("SomeTest", "testOne")\ndef helper(): ...', "no test function"),
        ('def outer():\n    @case("SomeTest", "testOne")\n    def test_one(): ...', "no test function"),
    ],
)
def test_a_citation_that_cannot_be_read_or_is_never_run_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        _source(tmp_path, text)


LISTED = 'name = "SomeTest"\nsource = "Some project"\nabout = "Something."\n[[case]]\nname = "testOne"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LISTED + 'because = "of it"', "unknown keys"),
        (LISTED + 'later = ""', "must be there and not empty"),
        (LISTED + '[[case]]\nname = "testOne"', "listed twice"),
        (LISTED.replace("SomeTest", "OtherTest"), "called as its class"),
        (LISTED.replace("about", "tests"), "unknown keys"),
        ('name = "SomeTest"\nsource = "Some project"\nabout = "Something."', "must be there and not empty"),
    ],
)
def test_a_list_that_is_not_in_form_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "SomeTest.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=said):
        read_group(path)


def test_a_page_tells_of_every_status() -> None:
    known = _known(
        Case("testOne", note="A note."),
        Case("testTwo", not_applicable="There are no replicas."),
        Case("testThree", later="compaction"),
        Case("testFour"),
    )
    failing = Cited("SomeTest", "testFour", "tests/test_x.py::test_four", expected_to_fail=True)
    made = report.pages(known, [SHOWN[0], failing])
    page = made[report.PAGES / "SomeTest.md"]
    assert "4 cases: 1 passing, 1 failing, 1 not applicable, 1 later." in page
    assert "| testOne | passing | A note. `tests/test_x.py::test_one` |" in page
    assert "| testTwo | not applicable | There are no replicas. |" in page
    assert "| testThree | later | compaction |" in page
    assert "| testFour | failing | `tests/test_x.py::test_four` |" in page
    assert "| [SomeTest](conformance/SomeTest.md) | 4 | 1 | 1 | 1 | 1 |" in made[report.INDEX]


def test_statuses_of_a_run_are_those_of_its_results(tmp_path: Path) -> None:
    junit = tmp_path / "results.xml"
    junit.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.test_x" name="test_one[a]"/>
        <testcase classname="tests.test_x" name="test_one[b]"><failure message="no"/></testcase>
        <testcase classname="tests.test_x" name="test_two"><skipped message="no server"/></testcase>
        <testcase classname="tests.test_x.TestMachine" name="runTest"/>
        </testsuite></testsuites>""",
        encoding="utf-8",
    )
    found = report.outcomes(junit)
    assert found == {
        "tests/test_x.py::test_one": "failing",
        "tests/test_x.py::test_two": report.NOT_RUN,
        "tests/test_x.py::TestMachine": "passing",
    }
    citations = [*SHOWN, Cited("SomeTest", "testThree", "tests/test_x.py::TestMachine")]
    known = _known(Case("testOne"), Case("testTwo"), Case("testThree"), Case("testFour", later="x"))
    (group,) = known.values()
    assert [row.status for row in report.rows(group, citations, found)] == [
        "failing",
        report.NOT_RUN,
        "passing",
        "later",
    ]
