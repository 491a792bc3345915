"""What every test shares: hypothesis profiles, and Spark tests kept in one process."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline anywhere: a slow machine is not a defect. HYPOTHESIS_PROFILE chooses; CI takes "ci" by itself.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, max_examples=200)
settings.register_profile(
    "nightly",
    deadline=None,
    print_blob=True,
    max_examples=1000,
    stateful_step_count=500,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long tests first, and give all Spark tests to one worker: a JVM costs seconds and 1 GB."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("spark"):
        return 0
    return 1 if item.get_closest_marker("simulation") else 2
