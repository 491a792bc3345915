"""What a seed chooses for a campaign."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.chaos.__main__ import summary
from tests.chaos.faults import Control, Fault, Place
from tests.chaos.history import History, code_of
from tests.chaos.plans import KINDS, next_strike, settings_of


def test_a_seed_is_the_same_strikes_again() -> None:
    def strikes(seed: int) -> list[object]:
        rng = random.Random(seed)
        return [settings_of(rng), *(next_strike(rng, kinds=list(KINDS)) for _ in range(50))]

    assert strikes(7) == strikes(7)
    assert strikes(7) != strikes(8)


def test_every_kind_comes_and_is_sent_to_the_right_side() -> None:
    rng = random.Random(1)
    found = [next_strike(rng, kinds=list(KINDS)) for _ in range(1_000)]
    assert {strike.kind for strike in found} == set(KINDS)
    for strike in found:
        if strike.fault is None:
            assert strike.kind in ("task", "executor", "driver")
        elif strike.kind in ("task", "executor"):
            assert strike.fault.point.startswith("write/")
        elif strike.kind in ("committer", "driver-jvm"):
            assert strike.fault.point.startswith("commit/")
        if strike.kind == "zombie":
            assert strike.fault is not None
            assert (strike.fault.how, strike.fault.victim) == ("stop", "driver")


def test_the_figures_say_how_sure_one_can_be() -> None:
    history = History(3, kills=Counter({"driver": 2, "executor": 8}), rows=40)
    figures = summary([history, History(4, duplicates=1, problems=["twice"])], 60.0, on="local disk")
    assert (figures["kills"], figures["kills_per_minute"], figures["bound_95_percent"]) == (10, 10.0, 0.3)
    assert figures["problems"] == [{"seed": 4, "settings": {}, "problem": "twice"}]
    assert (figures["rows"], figures["duplicates"]) == (40, 1)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (
            "StreamingQueryException: [STREAM_FAILED] … x: [TXNLOG_STALE_INSTANCE] another run",
            "TXNLOG_STALE_INSTANCE",
        ),
        ("a: [STREAM_FAILED] b: [CONCURRENT_STREAM_LOG_UPDATE] c", "CONCURRENT_STREAM_LOG_UPDATE"),
        ("Py4JError: gone\nat", "Py4JError: gone"),
    ],
)
def test_an_error_is_counted_by_its_innermost_code(text: str, code: str) -> None:
    assert code_of(text) == code


def test_a_fault_waits_for_its_place_only() -> None:
    fault = Fault(point="*/before-entry", batch=2, attempt=0)
    here = Place(point="commit/before-entry", pid=1, batch=2, attempt=0)
    assert fault.matches(here)
    for other in ({"point": "commit/after-entry"}, {"batch": 3}, {"batch": None}, {"attempt": 1}):
        assert not fault.matches(Place(**{"point": here.point, "pid": 1, "batch": 2, "attempt": 0} | other))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="raise is for the worker"):
        Fault(point="plan", how="raise", victim="jvm")


def test_a_fault_is_hit_as_often_as_it_says_whoever_comes(tmp_path: object) -> None:
    control, other = Control(str(tmp_path)), Control(str(tmp_path))
    fault = Fault(point="plan", nth=2, times=2)
    control.arm("one", fault)
    assert control.armed() == [("one", fault)]
    assert [one.claim("one", fault) for one in (control, other, control, other)] == [None, 1, 2, None]
    control.disarm("one")
    assert other.armed() == []
    with pytest.raises(ValueError, match="armed before"):
        control.arm("one", fault)
