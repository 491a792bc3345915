"""Arguments of imports and exports, checked before anything is done. Pure."""

from __future__ import annotations

from typing import Any

from txnformat.errors import InvalidInputError, repr_of
from txnlog.kafka.pace import Pace

__all__ = ["one_of", "pace", "positive"]


def one_of(kind: Any, name: str, value: object) -> Any:
    """Return a member of an enum. Raises InvalidInputError (``invalid-argument``)."""
    try:
        return kind(value)
    except ValueError:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, none of {', '.join(one.value for one in kind)}",
            kind="invalid-argument",
        ) from None


def positive(name: str, value: object) -> int:
    """Return a whole number from 1 on. Raises InvalidInputError (``invalid-argument``)."""
    if type(value) is not int or value < 1:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 80)}, not a whole number from 1 on", kind="invalid-argument"
        )
    return value


def pace(name: str, per_second: object) -> Pace:
    """Return the limit of a rate; None: no limit. Raises InvalidInputError (``invalid-argument``)."""
    if per_second is None:
        return Pace(None)
    if not isinstance(per_second, int | float) or isinstance(per_second, bool) or not per_second > 0:
        raise InvalidInputError(
            f"{name} is {repr_of(per_second, 80)}, not a number above 0", kind="invalid-argument"
        )
    return Pace(float(per_second))
