"""Changed footers, pages and Arrow files behind the right hash: the product's own errors or the right rows,
never a signal.

A share of ``python -m tests.mutants``. Each target is a test of its own; failing inputs are kept by the
campaign.
"""

from __future__ import annotations

import os
import signal
from itertools import islice

import pytest

from tests.mutants.runner import run
from tests.mutants.targets import Target, targets
from txnformat.errors import CorruptDataError

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

SHARE = 400
"""Inputs for each target; half of them spread over its bytes."""


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_changed_bytes_are_refused_or_read_rightly(target: Target) -> None:
    every = list(target.inputs(seed=7, times=1, drawn=SHARE // 2))
    spread = every[: -SHARE // 2 : max(1, 2 * len(every) // SHARE)]
    report = run([*spread, *every[-SHARE // 2 :]], target.use)
    assert [what for _, what in report.failures] == []
    assert report.refused > SHARE // 50


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_what_was_not_changed_is_read(target: Target) -> None:
    report = run([target.data], target.use)
    assert (report.inputs, report.refused, report.failures) == (1, 0, [])


def test_the_runner_finds_signals_and_errors_and_goes_on() -> None:
    def use(data: bytes) -> None:
        if data == b"abort":
            os.abort()
        if data == b"error":
            raise KeyError("what")
        if data == b"refused":
            raise CorruptDataError("it is corrupt")
        if data == b"hang":
            signal.alarm(0)
            signal.raise_signal(signal.SIGALRM)

    report = run([b"abort", b"", b"error", b"refused", b"hang", b"", b"abort"], use)
    assert report.inputs == 7
    assert report.refused == 1
    assert {(data, what) for data, what in report.failures} == {
        (b"abort", "SIGABRT"),
        (b"error", "KeyError: 'what'"),
        (b"hang", "SIGALRM"),
    }


def test_inputs_are_the_same_for_a_seed() -> None:
    target = targets()[0]
    first, again = (list(islice(target.inputs(seed=3, times=2, drawn=5), 20)) for _ in range(2))
    assert first == again
    assert all(data != target.data for data in first)
