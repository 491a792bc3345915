"""Small segment lists, and one request at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.maintenance.world import small_lists


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_lists():
        yield
