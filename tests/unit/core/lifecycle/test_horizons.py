"""How long horizons are remembered."""

from __future__ import annotations

from txnformat.core.lifecycle.cleaned import HORIZONS_MAX, _thinned
from txnformat.core.records.state import DeleteHorizon


def test_horizons_of_even_times_grow_old() -> None:
    """A tombstone that was covered at first has to become due, however even the times of compactions are."""
    horizons: tuple[DeleteHorizon, ...] = ()
    for number in range(2_000):
        horizons = _thinned([*horizons, DeleteHorizon(number + 1, 1_000 * number)])
        assert len(horizons) <= HORIZONS_MAX
    assert horizons[0].timestamp_ms < 1_000 * 1_000
    ends = [one.end_offset for one in horizons]
    assert ends == sorted(ends)
    assert ends[-1] == 2_000
