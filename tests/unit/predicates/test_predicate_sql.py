"""SQL conditions: what is accepted and what it becomes; what is refused, and how."""

from __future__ import annotations

import math
import pickle
import re
import traceback

import pyarrow as pa
import pytest

from txnformat.errors import InvalidInputError
from txnformat.predicates.sql import WHERE_CHARS_MAX, compile_where
from txnformat.predicates.tree import And, Compare, Constant, IsIn, NullTest, Op, Or, Predicate, Prefix

COLUMNS = {
    "i": pa.int64(),
    "small": pa.int8(),
    "f": pa.float64(),
    "g": pa.float32(),
    "d": pa.decimal128(6, 2),
    "s": pa.string(),
    "x": pa.binary(),
    "b": pa.bool_(),
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "Mixed Case": pa.int64(),
    "list": pa.list_(pa.int64()),
    "struct": pa.struct({"a": pa.int64()}),
}
NOON = 20_454 * 86_400_000_000 + 43_200_000_000


def root(text: str) -> object:
    return compile_where(text, COLUMNS).root


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 5", Compare("i", Op.EQ, 5)),
        ("I == 5L", Compare("i", Op.EQ, 5)),
        ("5 < i", Compare("i", Op.GE, 6)),
        ("(i) >= (-5)", Compare("i", Op.GE, -5)),
        ("i <> 5", Compare("i", Op.NE, 5)),
        ("i != 5", Compare("i", Op.NE, 5)),
        ("i < 5.5", Compare("i", Op.LE, 5)),
        ("i > 5.5", Compare("i", Op.GE, 6)),
        ("i = 5.5", Constant(False)),
        ("i <> 5.5", NullTest("i", False)),
        ("small < 128", NullTest("small", False)),
        ("small = 128", Constant(False)),
        ("i >= 9007199254740992e0", Compare("i", Op.GE, 2**53)),
        ("i > 9007199254740992e0", Compare("i", Op.GE, 2**53 + 2)),  # 2^53 + 1 rounds to 2^53
        ("i = 9007199254740992e0", And((Compare("i", Op.GE, 2**53), Compare("i", Op.LE, 2**53 + 1)))),
        ("i < 1e-999999999", Compare("i", Op.LE, -1)),
        ("d = 1.5", Compare("d", Op.EQ, 150)),
        ("d > 1.501", Compare("d", Op.GE, 151)),
        ("d < 10000", NullTest("d", False)),
        ("d = 1.50BD", Compare("d", Op.EQ, 150)),
        ("f > 1", Compare("f", Op.GT, 1.0, nan=True)),
        ("f > 1 AND f < 2", And((Compare("f", Op.GT, 1.0), Compare("f", Op.LT, 2.0)))),
        ("NOT f < 1", Compare("f", Op.GE, 1.0, nan=True)),
        ("f NOT IN (1, 2)", IsIn("f", (1.0, 2.0), negated=True, nan=True)),
        ("g = 0.1", Constant(False)),  # no float of 32 bits is the double 0.1
        ("g = 0.5", Compare("g", Op.EQ, 0.5)),
        ("g < 1e300", Compare("g", Op.LT, math.inf)),
        ("s = 'it\\'s'", Compare("s", Op.EQ, "it's")),
        ('s = "a" -- of them', Compare("s", Op.EQ, "a")),
        ("s LIKE 'ab%'", Prefix("s", "ab")),
        ("s NOT LIKE 'ab%%'", Prefix("s", "ab", negated=True)),
        ("NOT s NOT LIKE 'ab%'", Prefix("s", "ab")),
        ("s LIKE 'a\\_b\\%%'", Prefix("s", "a_b%")),
        ("s LIKE 'a!_%' ESCAPE '!'", Prefix("s", "a_")),
        ("s LIKE 'abc'", Compare("s", Op.EQ, "abc")),
        ("s LIKE '%'", NullTest("s", False)),
        ("s NOT LIKE '%'", Constant(False)),
        ("x = X'00fF'", Compare("x", Op.EQ, b"\x00\xff")),
        ("b", Compare("b", Op.EQ, 1)),
        ("NOT b", Compare("b", Op.EQ, 0)),
        ("b IS TRUE", Compare("b", Op.EQ, 1)),
        ("b IS NOT TRUE", Or((Compare("b", Op.EQ, 0), NullTest("b", True)))),
        ("day = DATE '2026-01-01'", Compare("day", Op.EQ, 20_454)),
        ("day = '2026-01-01'", Compare("day", Op.EQ, 20_454)),
        ("day > TIMESTAMP '2026-01-01 12:00:00Z'", Compare("day", Op.GE, 20_455)),
        ("ts = TIMESTAMP '2026-01-01 12:00:00'", Compare("ts", Op.EQ, NOON)),
        ("ts = TIMESTAMP '2026-01-01T14:00:00.000000+02:00'", Compare("ts", Op.EQ, NOON)),
        ("ts = TIMESTAMP '2026-01-01 07:30:00-0430'", Compare("ts", Op.EQ, NOON)),
        ("ts = TIMESTAMP '2026-01-01 14:00+2'", Compare("ts", Op.EQ, NOON)),
        ("ts = '2026-01-01 12:00:00 UTC'", Compare("ts", Op.EQ, NOON)),
        ("local > DATE '2026-01-01'", Compare("local", Op.GE, NOON - 43_199_999_999)),
        ("`mixed case` IN (3, 1, 3)", IsIn("Mixed Case", (1, 3))),
        ("i IN (1, NULL)", Compare("i", Op.EQ, 1)),
        ("i NOT IN (1, NULL)", Constant(False)),
        ("i NOT IN (1, 2)", IsIn("i", (1, 2), negated=True)),
        ("i BETWEEN 1 AND 2", And((Compare("i", Op.GE, 1), Compare("i", Op.LE, 2)))),
        ("i NOT BETWEEN 1 AND 2", Or((Compare("i", Op.LE, 0), Compare("i", Op.GE, 3)))),
        ("list IS NULL", NullTest("list", True)),
        ("NOT struct IS NULL", NullTest("struct", False)),
        ("i = NULL OR NULL", Constant(False)),
        ("NOT (i = NULL)", Constant(False)),
        ("TRUE OR i = 1", Constant(True)),
        (("NOT (i = 1 OR (b AND s = "
         "'a'))"), And((Compare("i", Op.NE, 1), Or((Compare("b", Op.EQ, 0), Compare("s", Op.NE, "a")))))),
    ],
)  # fmt: skip
def test_what_a_condition_becomes(text: str, expected: object) -> None:
    assert root(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("i", "is not a condition by itself"),
        ("idd = 1", "there is no column 'idd'"),
        ("smal = 1", "did you mean 'small'?"),
        ("i = 'a'", "column 'i' has the type 'int64', which does not compare with the text 'a'"),
        ("s = 5", "write a text in single quotes"),
        ("s = X'00'", "does not compare with the binary"),
        ("x = 'a'", "write bytes in hexadecimal"),
        ("x LIKE 'a%'", "LIKE compares text"),
        ("b = 1", "use TRUE or FALSE"),
        ("list = 1", "only IS NULL"),
        ("struct.a = 1", "fields of structs are not supported"),
        ("day = '2026-02-30'", "write DATE"),
        ("day = '2026-01-01 12:00:00'", "write DATE"),
        ("ts = TIMESTAMP 'noon'", "is not a timestamp"),
        ("ts = TIMESTAMP '2026-01-01 00:00:00+19:00'", "is not a timestamp"),
        ("ts = 5", "write TIMESTAMP"),
        ("i = j", "there is no column 'j'|compares two columns"),
        ("i = small", "compares two columns"),
        ("1 = 1", "compares two literals"),
        ("i + 1 = 2", "arithmetic"),
        ("i = 1 + 1", "arithmetic"),
        ("abs(i) = 1", "function"),
        ("ts > now()", "function"),
        ("ts > current_timestamp", "function CURRENT_TIMESTAMP"),
        ("i IN (SELECT 1)", "a subquery"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("i = (SELECT 1)", "a subquery"),
        ("CAST(i AS STRING) = 'a'", "CAST"),
        ("i = CAST(1.5 AS INT)", "CAST"),
        ("CASE WHEN b THEN b END", "CASE"),
        ("s ILIKE 'a%'", "ILIKE"),
        ("s RLIKE 'a'", "RLIKE"),
        ("s LIKE 'a_'", "more than a prefix"),
        ("s LIKE 'a\\\\\\\\_'", "more than a prefix"),  # an escaped backslash, then a wildcard
        ("s LIKE '%a'", "more than a prefix"),
        ("s LIKE '%\\%'", "more than a prefix"),
        ("s LIKE 'a\\\\b'", "escape"),
        ("s LIKE ANY ('a%', 'b%')", "ANY"),
        ("i <=> 1", "<=>"),
        ("i IS DISTINCT FROM 1", "IS DISTINCT FROM"),
        ("i = ?", "a parameter"),
        ("i = 1e999", "beyond the range of a double"),
        ("x = X'0'", "hexadecimal"),
        ("s = 'a' 'b'", "text of several literals"),
        ("i AND", "not a condition"),
        ("i = 1; DROP TABLE t", "not a condition"),
        ("i = 1) OR (i = 2", "not one condition"),
        ("SELECT 1", "not one condition"),
        ("SHOW TABLES", "not supported"),
        ("s = 'open", "not SQL"),
        ("(" * 3_000 + "b" + ")" * 3_000, "nested too deeply"),
        ("NOT " * 100 + "b", "nested too deeply"),
        ("a" + "::int" * 300 + " = 1", "nested too deeply"),
        ("i = 1 OR " * (WHERE_CHARS_MAX // 9) + "i = 1 OR i = 1", "at most 262144"),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        root(text)
    assert caught.value.kind == "invalid-where"
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize("text", ["(" * 3_000 + "b" + ")" * 3_000, "NOT " * 300 + "b", "b ="])
def test_an_error_shows_no_stack_of_the_parser(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        root(text)
    assert len("".join(traceback.format_exception(caught.value)).splitlines()) < 50


def test_every_problem_is_in_one_error_and_what_is_supported_is_listed_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        root("idd = 1 AND (s = 5 OR NOT abs(i) = 2) AND i * 2 > 3")
    assert len(caught.value.problems) == 4
    assert str(caught.value).count("supported are") == 1


def test_a_text_is_asked_for() -> None:
    with pytest.raises(InvalidInputError, match="where is of the type int"):
        compile_where(5, COLUMNS)  # type: ignore[arg-type]


def test_names_that_stand_for_others_and_needed_columns() -> None:
    found = compile_where("ts > DATE '2026-01-01' AND i = 1", COLUMNS, aliases={"ts": "local"})
    assert found.columns == ("i", "local")
    assert pickle.loads(pickle.dumps(found)) == found


def test_thousands_of_terms_are_no_deeper_than_one() -> None:
    many = compile_where(" OR ".join(f"i = {n}" for n in range(10_000)), COLUMNS)
    assert isinstance(many.root, Or)
    assert len(many.root.operands) == 10_000
    array = pa.array([0, 9_999, 10_000, None])
    assert many.mask({"i": array}, 4).to_pylist() == [True, True, False, None]
    assert str(many.expression()).count("or") == 9_999


@pytest.mark.parametrize("value", [True, False])
def test_a_constant_keeps_all_or_nothing(value: bool) -> None:
    found = Predicate(Constant(value), ())
    assert found.mask({}, 3).to_pylist() == [value] * 3
    assert found.never is not value


@pytest.mark.parametrize(
    "text",
    [
        "ts = TIMESTAMP '2026-01-01 12:00:00'",
        "TIMESTAMP '2026-01-01 12:00:00' < ts",
        "ts = TIMESTAMP_LTZ '2026-01-01'",
        "ts = TIMESTAMP_NTZ '2026-01-01 12:00:00'",
        "ts = '2026-01-01 12:00:00'",
        "ts = '2026-01-01'",
        "ts IN (TIMESTAMP '2026-01-01 12:00:00Z', TIMESTAMP '2026-01-01 12:00:00')",
        "ts BETWEEN TIMESTAMP '2026-01-01 12:00:00Z' AND (TIMESTAMP '2026-01-01 12:00:00')",
        "NOT (ts > TIMESTAMP '2026-01-01 12:00:00')",
        "local = TIMESTAMP '2026-01-01 12:00:00'",
        "day = TIMESTAMP '2026-01-01 12:00:00'",
    ],
)
def test_a_time_without_a_zone_is_refused_where_one_is_needed(text: str) -> None:
    compile_where(text, COLUMNS)  # in UTC else
    with pytest.raises(InvalidInputError, match="has no time zone; write TIMESTAMP") as caught:
        compile_where(text, COLUMNS, need_zone=True)
    assert caught.value.kind == "invalid-where"
    # What it says to write is taken.
    for written in re.findall(r"TIMESTAMP(?:_NTZ)? '[^']+'", str(caught.value).partition("write ")[2]):
        column = "local" if "NTZ" in written else "ts"
        compile_where(f"{column} = {written}", COLUMNS, need_zone=True)


@pytest.mark.parametrize(
    "text",
    [
        "ts = TIMESTAMP '2026-01-01 12:00:00Z'",
        "ts > '2026-01-01 12:00:00+01:00' OR ts IS NULL",
        "local = TIMESTAMP_NTZ '2026-01-01 12:00:00'",
        "local > '2026-01-01 12:00:00' AND day = '2026-01-01'",
        "day >= DATE '2026-01-01' AND ts > DATE '2026-01-01'",
        "s = '2026-01-01 12:00:00'",
    ],
)
def test_where_no_zone_is_missing_a_needed_one_changes_nothing(text: str) -> None:
    assert compile_where(text, COLUMNS, need_zone=True).root == compile_where(text, COLUMNS).root
