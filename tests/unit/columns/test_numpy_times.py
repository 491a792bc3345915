"""Times of numpy in pandas columns of objects: Arrow crashes over some mixtures of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from txnformat.columns.row_values import uninferable


@pytest.mark.parametrize(
    "value",
    [
        [[], np.array(["2026-01-01"], "M8[D]"), np.array([1, 2])],  # ends the process, too
        [[np.datetime64("NaT")], np.array([[1, 2]])],  # ends the process in pyarrow 26
        [np.datetime64("NaT")],
        np.datetime64("NaT"),
        [np.timedelta64(5)],
        [np.array([np.timedelta64(5)])],
        np.array([[1, 2]]),
        [[np.zeros((2, 0))]],
    ],
    ids=repr,
)
def test_numpy_without_a_unit_and_arrays_of_more_dimensions_are_named(value: Any) -> None:
    assert uninferable([None, value]) is not None


def test_numpy_with_a_unit_and_plain_arrays_are_left_to_arrow() -> None:
    times = [np.datetime64("2026-01-31", "us"), np.datetime64("NaT", "s"), np.timedelta64(5, "ms")]
    assert uninferable([None, *times]) is None
    assert uninferable([None, np.array(times[:1]), np.array(times[:1])]) is None
    assert uninferable([None, np.array([1, 2]), np.array([0.5])]) is None
    assert uninferable([np.array([1, 2]), np.array(times[:1])]) is not None
