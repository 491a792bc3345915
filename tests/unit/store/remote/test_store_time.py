"""The store's clock from its Date headers."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate

import pytest

from txnformat.clock import Instant, SystemClock
from txnformat.store.remote.store_time import StoreTime


@dataclass
class _Clock(SystemClock):
    instant: Instant

    def now(self) -> Instant:
        return self.instant

    def forward(self, milliseconds: int) -> None:
        boot = self.instant.boot_ms
        self.instant = Instant(
            self.instant.wall_ms + milliseconds, None if boot is None else boot + milliseconds
        )


def _date(store_ms: int) -> str:
    return formatdate(store_ms // 1000, usegmt=True)


@pytest.mark.parametrize("boot_ms", [5_000, None])
@pytest.mark.parametrize("offset_ms", [0, 60_000, -3_600_000])
def test_answers_narrow_the_offset_far_below_the_second_that_a_header_names(
    boot_ms: int | None, offset_ms: int
) -> None:
    clock = _Clock(Instant(1_700_000_000_000, boot_ms))
    time = StoreTime(clock)
    assert time.estimate_ms() is None
    for _ in range(200):
        sent = time.now()
        clock.forward(7)
        header = _date(clock.instant.wall_ms + offset_ms)
        clock.forward(4)
        time.learn(sent, header)
        clock.forward(93)
        known = time.estimate_ms()
        assert known is not None
        assert abs(known - clock.instant.wall_ms - offset_ms) <= 1011
    known = time.estimate_ms()
    assert known is not None
    assert abs(known - clock.instant.wall_ms - offset_ms) <= 15


def test_a_wall_clock_that_jumps_does_not_move_the_stores_time() -> None:
    clock = _Clock(Instant(1_700_000_000_000, 5_000))
    time = StoreTime(clock)
    time.learn(time.now(), _date(1_700_000_000_000))
    before = time.estimate_ms()
    clock.instant = clock.instant._replace(wall_ms=1_700_000_600_000)
    assert time.estimate_ms() == before


def test_a_store_whose_clock_is_set_is_believed_at_the_next_answer() -> None:
    clock = _Clock(Instant(1_700_000_000_000, 5_000))
    time = StoreTime(clock)
    time.learn(time.now(), _date(1_700_000_000_000))
    time.learn(time.now(), _date(1_700_000_500_000))
    known = time.estimate_ms()
    assert known is not None
    assert abs(known - 1_700_000_500_000) <= 1_000


def test_answers_without_a_date_teach_nothing() -> None:
    time = StoreTime(_Clock(Instant(1, 2)))
    for header in (None, "", "yesterday"):
        time.learn(Instant(1, 2), header)
    assert time.estimate_ms() is None
