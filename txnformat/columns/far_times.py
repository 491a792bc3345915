"""Dates and instants of any year as ISO 8601. Python's own end at the years 1 and 9999."""

from __future__ import annotations

__all__ = ["iso_date", "iso_time"]

_DAY_S = 86_400


def iso_date(day: int) -> str:
    """Return a day, counted from 1970-01-01, in the proleptic Gregorian calendar.

    Years outside of 0 to 9999 have a sign and at least six digits, as ISO 8601 writes them: ``+292277-01-09``.
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
    """Return an instant, ``value`` parts of a second since 1970, with ``digits`` digits of the second (0: none)."""
    seconds, part = divmod(value, per_second)
    day, second = divmod(seconds, _DAY_S)
    fraction = f".{part:0{digits}}" if digits else ""
    return f"{iso_date(day)}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}"
