"""Points in time as people write them. Pure."""

from __future__ import annotations

import contextlib
import datetime

from txnformat.digits import whole
from txnformat.errors import InvalidInputError, repr_of

__all__ = ["Moment", "as_moment_ms", "as_moment_us", "iso_date", "iso_time"]

Moment = datetime.datetime | str | int
"""A time: with a zone or in UTC; as text ISO 8601 or digits; as a number ms since the epoch."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY_S = 86_400


def as_moment_ms(value: Moment, name: str) -> int:
    """Return a time as ms since the epoch, rounded down: what is of that millisecond is not after it.

    Otherwise as :func:`as_moment_us`.
    """
    return as_moment_us(value, name) // 1_000


def as_moment_us(value: Moment, name: str) -> int:
    """Return a time, which the caller calls ``name``, as microseconds since the epoch.

    A datetime without a zone is UTC; text is ISO 8601, or ms since the epoch in digits; a number is ms since
    the epoch. Raises InvalidInputError of kind ``invalid-timestamp``.
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
            hint="use a datetime, ISO 8601 such as 2026-01-31T12:00:00Z (without a zone: UTC), or ms "
            "since the epoch",
        )
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    # In integers: a float of seconds is a millisecond off for some times.
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def iso_date(day: int) -> str:
    """Return a day, counted from 1970-01-01, in the proleptic Gregorian calendar.

    Years outside of 0 to 9999 have a sign and at least six digits, as ISO 8601 writes them:
    ``+292277-01-09``.
    """
    # Days since 0000-03-01: the day that a leap year adds is then the last of its year.
    era, day_of_era = divmod(day + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day_of_month = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = 400 * era + year_of_era + (month <= 2)
    shown = f"{year:04}" if 0 <= year <= 9_999 else f"{year:+07}"
    return f"{shown}-{month:02}-{day_of_month:02}"


def iso_time(value: int, per_second: int, digits: int) -> str:
    """Return an instant, ``value`` parts of a second since 1970, with ``digits`` digits of the second (0:
    none).
    """
    seconds, part = divmod(value, per_second)
    day, second = divmod(seconds, _DAY_S)
    fraction = f".{part:0{digits}}" if digits else ""
    return f"{iso_date(day)}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}"
