"""Names of columns in options: written as in Spark SQL, and matched as Spark matches them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["matched", "parse_name", "parse_names"]

_QUOTED = r"`(?:[^`]|``)+`"
_NAMES = re.compile(rf"\s*({_QUOTED}|[^`,]*)\s*(?:,|$)")

HOW = "put a name with commas or backquotes in backquotes, with each backquote in it doubled: `a,b`, `it``s`"


def parse_names(text: str) -> tuple[str, ...]:
    """Return the names of a comma list.

    Raises ValueError: an empty name, or backquotes not around a whole name.
    """
    names = []
    position = 0
    while True:
        match = _NAMES.match(text, position)
        if match is None:
            raise ValueError(f"has backquotes that are not around a whole name: {text!r:.100}; {HOW}")
        name = _plain(match[1].strip())
        if not name:
            raise ValueError(f"has an empty name in it: {text!r:.100}")
        names.append(name)
        position = match.end()
        if not match[0].endswith(","):
            return tuple(names)


def parse_name(text: str) -> str:
    """Return the one name of an option: as it is, or what the backquotes around it hold."""
    return _plain(text) if re.fullmatch(_QUOTED, text) else text


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def matched(names: Sequence[str], known: Iterable[str], *, case_sensitive: bool) -> tuple[str, ...]:
    """Return names in the letter case of ``known``, where exactly one of those is meant; others stay as they
    are.
    """
    there = list(known)
    found = []
    for name in names:
        alike = (
            [] if case_sensitive or name in there else [one for one in there if one.lower() == name.lower()]
        )
        found.append(alike[0] if len(alike) == 1 else name)
    return tuple(found)
