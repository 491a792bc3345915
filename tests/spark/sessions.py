"""The kinds of session that a test runs in."""

from __future__ import annotations

import pytest

__all__ = ["BOTH_SESSIONS"]

BOTH_SESSIONS = pytest.mark.parametrize("spark", ["classic", "connect"], indirect=True)
"""Run a test in a classic session and in a Connect session (``spark`` in tests/spark/conftest.py)."""
