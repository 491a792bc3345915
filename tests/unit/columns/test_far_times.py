"""Dates and instants of any year: shown as Python shows its own, and the others as ISO 8601 has them."""

from __future__ import annotations

import datetime

import pytest

from txnformat.columns.far_times import iso_date, iso_time
from txnlog.cli.output import instant

EPOCH = datetime.date(1970, 1, 1).toordinal()


def test_days_of_python_are_shown_as_python_shows_them() -> None:
    for ordinal in [*range(1, 3_652_060, 997), 3_652_059, *range(730_000, 731_500)]:
        assert iso_date(ordinal - EPOCH) == datetime.date.fromordinal(ordinal).isoformat()


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (2_932_897, "+010000-01-01"),
        (-719_163, "0000-12-31"),
        (-719_529, "-000001-12-31"),
        (2**31 - 1, "+5881580-07-11"),
        (-(2**31), "-5877641-06-23"),
    ],
)
def test_other_days(day: int, text: str) -> None:
    assert iso_date(day) == text


def test_instants() -> None:
    assert iso_time(-1, 1_000_000, 6) == "1969-12-31T23:59:59.999999"
    assert iso_time(2**63 - 1, 1_000_000, 6) == "+294247-01-10T04:00:54.775807"
    assert iso_time(0, 1, 0) == "1970-01-01T00:00:00"


@pytest.mark.parametrize("ms", [2**53, 253_402_300_800_000, 2**63 - 1, -(2**63), 2**64])
def test_log_time_of_any_number_is_shown(ms: int) -> None:
    assert str(instant(ms)).endswith("Z")


def test_log_time_is_shown_as_before() -> None:
    assert instant(None) is None
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert instant(1_795_424_267_622) == "2026-11-23T08:57:47.622Z"
