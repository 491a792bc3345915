"""Regular expressions of users, matched in time that grows with the text alone. Pure.

The engine is RE2, as pyarrow has it: it does not backtrack, so no expression and no name takes longer than
their lengths allow (Python's own takes 25 s for ``(a+)+b`` and thirty letters). It knows neither look-around
nor references to groups.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from txnformat.errors import InvalidInputError, repr_of

__all__ = ["Pattern"]

PATTERN_BYTES_MAX = 4096
"""Longest expression, UTF-8 bytes."""

_REPETITIONS = re.compile(r"\{[0-9]*,?[0-9]{5}")


class Pattern:
    """An expression of RE2, of at most 4 KiB, that a whole name has to match; else InvalidInputError of kind
    ``invalid-pattern``.
    """

    def __init__(self, text: Any) -> None:
        if not isinstance(text, str):
            raise _invalid(text, "it is not a text")
        try:
            if len(text.encode()) > PATTERN_BYTES_MAX:
                raise _invalid(text, f"longer than {PATTERN_BYTES_MAX} bytes")
            if _REPETITIONS.search(text):
                raise _invalid(text, "more than 1,000 repetitions")  # which the engine would take for a text
            self._whole = rf"\A(?:{text})\z"
            # By itself first: "a)(b" would be one between the parentheses.
            for whole in (text, self._whole):
                pc.match_substring_regex(pa.array([""]), whole)
        except UnicodeEncodeError:
            raise _invalid(text, "half of a surrogate pair") from None
        except pa.ArrowException as error:
            raise _invalid(text, str(error).removeprefix("Invalid regular expression: ")) from None

    def matching(self, names: Collection[str]) -> list[str]:
        """Return those of some names that match as a whole, in their order."""
        given = list(names)
        if not given:
            return []
        found = pc.match_substring_regex(pa.array(given, pa.large_string()), self._whole)
        return [name for name, matches in zip(given, found.to_pylist(), strict=True) if matches]


def _invalid(text: object, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{repr_of(text, 100)} is not a regular expression: {why:.200}",
        kind="invalid-pattern",
        hint="use the syntax of RE2: no look-around, no references to groups, at most 1,000 repetitions",
    )
