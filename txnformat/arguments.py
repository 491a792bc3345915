"""Arguments that hold several values, read to their end, which a generator need not have; flags, numbers, and
names among others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from txnformat.errors import InvalidInputError, repr_of

__all__ = [
    "ITEMS_MAX",
    "check_callable",
    "check_flags",
    "check_settings",
    "each_text",
    "is_flag",
    "is_text",
    "is_utf8",
    "items",
    "listed",
    "one_of",
    "other_case",
    "positive",
    "problems_of_columns",
    "text",
    "whole",
]

WHOLE_MAX = 2**63 - 1
"""Largest number that an argument may be: no offset, entry, time or amount is larger."""
ITEMS_MAX = 1_000_000
"""Values that an argument may have (inclusive): columns, partitions, topics, names, headers, records to
acknowledge."""


def is_text(value: object) -> bool:
    """Return whether an argument that should be a text is one: what users pass may be anything, also what
    cannot be hashed.
    """
    return isinstance(value, str)


def is_utf8(value: str) -> bool:
    """Return whether a string has a form in UTF-8: no half of a surrogate pair."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_flag(value: object) -> bool:
    """Return whether an argument is True or False: also 1, 0 or a boolean of numpy, which may not be
    loaded.
    """
    if isinstance(value, int):
        return value in (0, 1)
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")


def check_flags(**flags: object) -> None:
    """Raise InvalidInputError of kind ``invalid-argument`` about each argument that is neither True nor
    False.
    """
    found = [
        f"{name} is {repr_of(value, 80)}, not True or False"
        for name, value in flags.items()
        if not (value is True or value is False or is_flag(value))
    ]
    if found:
        raise InvalidInputError(found, kind="invalid-argument", hint="nothing was done")


def check_callable(value: object, name: str) -> None:
    """Raise InvalidInputError of kind ``invalid-argument`` about an argument that is neither None nor can be
    called.
    """
    if value is not None and not callable(value):
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, not a function",
            kind="invalid-argument",
            hint="pass a function that takes one argument, or None; nothing was done",
        )


def one_of(kind: Any, name: str, value: object) -> Any:
    """Return a member of an enum. Raises InvalidInputError (``invalid-argument``)."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, not one of {', '.join(one.value for one in kind)}",
            kind="invalid-argument",
        ) from None


def positive(name: str, value: object) -> int:
    """Return a whole number from 1 on. Raises InvalidInputError (``invalid-argument``)."""
    return whole(name, value, 1)


def whole(
    name: str,
    value: object,
    least: int | None = 0,
    most: int | None = None,
    *,
    kind: str = "invalid-argument",
) -> int:
    """Return a whole number from ``least`` to ``most`` (both inclusive); without them, one that fits into 64
    bits.

    Raises InvalidInputError of kind ``kind``.
    """
    lowest, highest = -WHOLE_MAX - 1 if least is None else least, WHOLE_MAX if most is None else most
    if type(value) is not int or not lowest <= value <= highest:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, not a whole number{_span(least, most, value)}", kind=kind
        )
    return value


def _span(least: int | None, most: int | None, value: object) -> str:
    """Return the bounds of a number in words; that of 64 bits only where it matters."""
    if most is not None or (type(value) is int and abs(value) > WHOLE_MAX):
        first = -WHOLE_MAX - 1 if least is None else least
        return f" from {first} to {WHOLE_MAX if most is None else most}"
    return "" if least is None else f" from {least} on"


def text(name: str, value: object) -> str:
    """Return a text. Raises InvalidInputError (``invalid-argument``)."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} is {repr_of(value, 80)}, not a text", kind="invalid-argument")
    return value


def each_text(name: str, values: Sequence[object], call: str) -> None:
    """Raise InvalidInputError (``invalid-argument``) about names that a user passes one by one, and that are
    none, such as a list of them.
    """
    for value in values:
        if not isinstance(value, str):
            inner = items(value, name)
            names = inner if isinstance(inner, list) and inner and all(map(is_text, inner)) else ["name"]
            raise InvalidInputError(
                f"{name} has {repr_of(value, 80)}, not a name",
                kind="invalid-argument",
                hint=f"pass each name by itself: {call}({', '.join(map(repr, names[:5]))})",
            )


def problems_of_columns(value: Any) -> list[str]:
    """Return what is wrong with the columns that a reader wants: they are in an order, and each has one place
    in it.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return [f"columns is {repr_of(value, 80)}, not a list of names"]
    if not value:
        return ["columns is empty: name at least one"]
    problems = [f"columns has {repr_of(name, 80)}, not a name" for name in value if not isinstance(name, str)]
    names = [name for name in value if isinstance(name, str)]
    problems += [
        f"columns has {repr_of(name, 80)} twice" for name in dict.fromkeys(names) if names.count(name) > 1
    ]
    return problems


def items(values: Any, name: str, *, kind: str = "too-many-items") -> Any:
    """Return the values of the argument ``name`` as a list; what is no iterable, a text or a mapping comes
    back as it is.

    Raises InvalidInputError of kind ``kind`` about more than ITEMS_MAX, perhaps without end. Nothing was
    done.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        return values
    found = list(islice(values, ITEMS_MAX + 1))
    if len(found) > ITEMS_MAX:
        raise InvalidInputError(
            f"{name} has more than {ITEMS_MAX:,} values, or is endless; nothing was done",
            kind=kind,
            hint="pass fewer at a time, in a list",
        )
    return found


def listed(name: str, values: object) -> list[Any]:
    """Return names as a list.

    Raises InvalidInputError: ``invalid-argument``, also about one text; ``too-many-items``.
    """
    found = items(values, name)
    if not isinstance(found, list):
        raise InvalidInputError(
            f"{name} is {repr_of(values, 80)}, not a list of names",
            kind="invalid-argument",
            hint='pass ["name"]',
        )
    return found


def check_settings(
    settings: object,
    bounds: Mapping[str, tuple[int, int | None]],
    choices: Mapping[str, Iterable[str]],
    problems: Iterable[str] = (),
    flags: Iterable[str] = (),
) -> None:
    """Raise about every problem of a settings object (kind ``invalid-settings``), those that are known
    already included.

    ``bounds``: by field, the smallest and the largest whole number (inclusive); ``choices``: by field, the
    texts allowed; ``flags``: fields that are True or False, also as numpy has them.
    """
    found = [
        f"{name} is {repr_of(value)}, not one of {', '.join(allowed)}"
        for name, allowed in choices.items()
        if not (isinstance(value := getattr(settings, name), str) and value in tuple(allowed))
    ]
    found += problems
    for name, (smallest, largest) in bounds.items():
        value = getattr(settings, name)
        if type(value) is not int or not smallest <= value <= (WHOLE_MAX if largest is None else largest):
            found.append(f"{name} is {repr_of(value)}, not a whole number{_span(smallest, largest, value)}")
    found += [
        f"{name} is {repr_of(value, 80)}, not True or False"
        for name in flags
        if not is_flag(value := getattr(settings, name))
    ]
    if found:
        raise InvalidInputError(found, kind="invalid-settings")


def other_case(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean …?" for an unknown name that differs from exactly one of ``known`` by letter
    case; else "".
    """
    if not isinstance(name, str):
        return ""
    alike = [one for one in known if one.lower() == name.lower()]
    return f"; did you mean {alike[0]!r:.300}?" if len(alike) == 1 else ""
