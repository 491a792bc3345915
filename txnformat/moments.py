"""Points in time as people write them. Pure."""

from __future__ import annotations

import contextlib
import datetime

from txnformat.digits import whole
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["Moment", "as_moment_ms", "as_moment_us"]

Moment = datetime.datetime | str | int
"""A time: with a zone or in UTC; as text ISO 8601 or digits; as a number ms since the epoch."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def as_moment_ms(value: Moment, name: str) -> int:
    """Return a time as ms since the epoch, rounded down: what is of that millisecond is not after it.

    Otherwise as :func:`as_moment_us`.
    """
    return as_moment_us(value, name) // 1_000


def as_moment_us(value: Moment, name: str) -> int:
    """Return a time, which the caller calls ``name``, as microseconds since the epoch.

    A datetime without a zone is UTC; text is ISO 8601, or ms since the epoch in digits; a number is ms since the epoch. Raises InvalidInputError
    of kind ``invalid-timestamp``.
    """
    if type(value) is int:
        return value * 1_000
    moment = value if isinstance(value, datetime.datetime) else None
    if isinstance(value, str):
        text = value.strip()
        digits = text.removeprefix("-")
        number = whole(digits)
        if number is not None:
            return (number if digits == text else -number) * 1_000
        with contextlib.suppress(ValueError):
            moment = datetime.datetime.fromisoformat(text)
    if moment is None:
        raise InvalidInputError(
            f"{name} is {repr_of(value, 100)}",
            kind="invalid-timestamp",
            hint="use a datetime, ISO 8601 such as 2026-01-31T12:00:00Z (without a zone: UTC), or ms since the epoch",
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    # In integers: a float of seconds is a millisecond off for some times.
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)
