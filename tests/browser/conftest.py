"""One browser for all tests of pages; without one they are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Chromium, chromium, find_chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    """A running browser."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is here, and make test could not install one: see scripts/find-chromium")
    with chromium(program) as running:
        yield running
