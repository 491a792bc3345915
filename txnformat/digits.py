"""Numbers as text: in text that comes from outside digits of ASCII, no more than a number here can have.

``int`` takes digits of every script, underscores, signs and spaces, ``str.isdecimal`` and its like other
scripts, too; and ``int`` raises for thousands of digits.
"""

from __future__ import annotations

import math
import re

__all__ = ["seconds", "special_float", "whole"]

DIGITS_MAX = 19
"""Most digits of a number below 2**63."""

_WHOLE = re.compile("[0-9]{1,19}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}")


def whole(text: str, digits_max: int = DIGITS_MAX) -> int | None:
    """Return the whole number from 0 on that ``text`` is, and nothing else; None when it is none."""
    return int(text) if len(text) <= digits_max and _WHOLE.fullmatch(text) else None


def seconds(text: str) -> float | None:
    """Return the number from 0 on that ``text`` is, with a point or without; None when it is none."""
    return float(text) if _SECONDS.fullmatch(text) else None


def special_float(value: float) -> str:
    """Return the name of a float that JSON has no number for: ``NaN``, ``Infinity`` or ``-Infinity``, as
    protobuf's JSON has it.
    """
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
