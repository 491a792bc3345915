"""Counting the descriptors that a process has open."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["descriptors_below"]


def descriptors_below(below: Path) -> int:
    """Return how many descriptors this process has of what lies below a directory; those of other threads are
    elsewhere."""
    links = Path("/proc/self/fd")
    found = 0
    for link in links.iterdir() if links.is_dir() else ():
        with contextlib.suppress(OSError):  # the one that lists is closed by now
            found += link.readlink().is_relative_to(below)
    return found
