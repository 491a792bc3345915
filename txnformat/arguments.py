"""Arguments that hold several values, read to their end, which a generator need not have; and names among others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from txnformat.errors import InvalidInputError

__all__ = ["ITEMS_MAX", "is_text", "items", "other_case"]

ITEMS_MAX = 1_000_000
"""Values that an argument may have (inclusive): columns, partitions, topics, names, headers, records to acknowledge."""


def is_text(value: object) -> bool:
    """Return whether an argument that should be a text is one: what users pass may be anything, also what cannot be hashed."""
    return isinstance(value, str)


def items(values: Any, name: str, *, kind: str = "too-many-items") -> Any:
    """Return the values of the argument ``name`` as a list; what is no iterable, a text or a mapping comes back as it is.

    Raises
    ------
    InvalidInputError
        Kind ``kind``: there are more than ITEMS_MAX, perhaps without end. Nothing was done.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        return values
    found = list(islice(values, ITEMS_MAX + 1))
    if len(found) > ITEMS_MAX:
        raise InvalidInputError(
            f"{name} has more than {ITEMS_MAX:,} values, or no end; nothing was done",
            kind=kind,
            hint="pass fewer at a time, in a list",
        )
    return found


def other_case(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for an unknown name that differs from exactly one of ``known`` by letter case; else ""."""
    if not isinstance(name, str):
        return ""
    alike = [one for one in known if one.lower() == name.lower()]
    return f"; did you mean {alike[0]!r:.300}?" if len(alike) == 1 else ""
