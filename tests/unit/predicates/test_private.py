"""Errors about conditions whose literals must not be shown."""

from __future__ import annotations

import traceback

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError
from txnformat.predicates.private import compile_private

COLUMNS = {
    "name": pa.string(),
    "n": pa.int64(),
    "at": pa.timestamp("us", tz="UTC"),
    "odd `name": pa.string(),
}


def refused(text: object) -> InvalidInputError:
    with pytest.raises(InvalidInputError) as got:
        compile_private(text, COLUMNS)  # type: ignore[arg-type]
    assert got.value.kind == "invalid-where"
    return got.value


@pytest.mark.parametrize(
    "text",
    [
        "name = 'SECRET",
        "name = 'SECRET' AND",
        "title = 'SECRET'",
        "name = SECRET",
        "name = `SECRET`",
        "SECRET",
        "name > 5 + 'SECRET'",
        "n = 'SECRET'",
        'n = "SECRET"',
        "name LIKE '%SECRET'",
        "name LIKE 'SECRET' ESCAPE 'SECRET'",
        "name = upper('SECRET')",
        "SECRET(name) = 'a'",
        "'SECRET' = 'SECRET2'",
        "SELECT 'SECRET'",
        "name == 'SECRET'; drop",
        "name RLIKE 'SECRET'",
        "n = 99999999999999999999999 AND name < 5 OR name = 'SECRET'",
        "name IN (SELECT 'SECRET')",
        "(" * 100 + "name = 'SECRET'" + ")" * 100,
        "/* SECRET */ name = 'x' /*",
        "n = 'x' -- SECRET",
        "DATE 'SECRET' = name",
        "at = 'SECRET'",
        "name = r'SECRET' AND n",
        "name = N'SECRET' AND n",
        "n.SECRET = 5",
        "name[SECRET] = 5",
        "name = :SECRET",
        "name = CAST('SECRET' AS INT)",
        "name = INTERVAL 'SECRET' DAY",
        "CASE WHEN name = 'SECRET' THEN 1 END",
        "name = 'SECRET' 'SECRET'",
        "name = $$SECRET$$",
    ],
)
def test_no_error_shows_a_literal_nor_a_name_that_may_be_one(text: str) -> None:
    error = refused(text)
    shown = "".join(traceback.format_exception(error)) + repr(error.__context__) + repr(error.values)
    # The traceback has the lines of this file, not their values.
    assert "SECRET" not in shown.upper()


@pytest.mark.parametrize("number", ["31337", "31337.5", "-31337", "3.1337e4", "X'3133'"])
def test_no_error_shows_a_number(number: str) -> None:
    assert "313" not in str(refused(f"name = {number}"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = 'x'", "there is no column '…'; the columns are name, n, at"),
        ("N = 'x'", "column 'n' has the type 'int64', which does not compare with the text '…'"),
        ("name LIKE '%x'", "the pattern '%…' is more than a prefix and %"),
        ("name = 'x", "a quote or a comment does not end"),
        ("at = '2026-01-01' AND n = 'x'", "column 'n' has the type"),
        ("n = 1e999", "a literal of the condition does not fit its column"),
        ("`odd ``name` = 5", "column 'odd `name' has the type 'string'"),
    ],
)
def test_the_problem_is_told(text: str, problem: str) -> None:
    error = refused(text)
    assert problem in error.problems[0]
    assert len(error.problems) == 1
    assert error.hint is not None
    assert "… stands for" in error.hint


def test_what_is_no_text_is_refused_as_in_every_condition() -> None:
    assert "of the type int" in str(refused(5))
    assert "is empty" in str(refused(" "))


def test_a_condition_that_holds_is_compiled_as_ever() -> None:
    assert compile_private("name = 'x' AND n > 5", COLUMNS).text == "name = 'x' AND n > 5"
