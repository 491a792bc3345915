"""Regular expressions of users: linear time, whole names, clear refusals."""

from __future__ import annotations

import pytest

from txnformat.errors import InvalidInputError
from txnformat.patterns import PATTERN_BYTES_MAX, Pattern


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(a*)*b", "(.*)(.*)(.*)(.*)(.*)(.*)(.*)(.*)b"])
def test_what_makes_others_backtrack_is_matched_at_once(pattern: str) -> None:
    """An engine that backtracks would go on for longer than the universe is old."""
    assert Pattern(pattern).matching(["a" * 249, "a" * 10_000 + "b"]) == ["a" * 10_000 + "b"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", ["orders"]),
        ("orders|x", ["orders", "x"]),
        ("or.*", ["orders", "orders-1"]),
        ("[ox]", ["x"]),
        ("(?i)ORDERS", ["orders"]),
        ("orders$", ["orders"]),
        (r"orders-\d{1,3}", ["orders-1"]),
        (".*", ["orders", "orders-1", "x", "ö"]),
        ("ö", ["ö"]),
    ],
)
def test_a_whole_name_has_to_match(pattern: str, expected: list[str]) -> None:
    assert Pattern(pattern).matching(["orders", "orders-1", "x", "ö"]) == expected
    assert Pattern(pattern).matching([]) == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(", "a)(b", "(?=a)a", r"(a)\1", "a{1001}", "t{9999999999}", "t{1,99999}", "(?P=a)", "\ud800", "(" * 5000,
        "(?:a{1000}){1000}", "a" * (PATTERN_BYTES_MAX + 1),
    ],
)  # fmt: skip
def test_what_the_engine_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a regular expression") as caught:
        Pattern(pattern)
    assert caught.value.kind == "invalid-pattern"
    assert "RE2" in str(caught.value.hint)
