"""A real file system that is small: a tmpfs, mounted for a test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["mount", "small_disk"]


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call mount."""
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of ``size`` bytes at a new directory; skip the test where that is not allowed."""
    place.mkdir()
    try:
        mounted = mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
