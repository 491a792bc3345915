"""One hostile object: how to make it, and what a reader does with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["MEMORY_MAX", "SECONDS_MAX", "Case"]

MEMORY_MAX = 256 * 1024 * 1024
"""Bytes that a reader may take beyond what the process has before, for an object of at most 1 MiB
(inclusive)."""

SECONDS_MAX = 2.0
"""Seconds that it may take, of the processor."""


@dataclass(frozen=True, slots=True)
class Case:
    """A hostile object of one class of key."""

    key: str
    """Kebab-case, distinct."""
    what: str
    """Row of the table: which object, and what it claims."""
    make: Callable[[Path], int]
    """Writes it below an empty folder, in a process of its own; returns the bytes of the hostile object."""
    use: Callable[[Any], object]
    """Reads it, given the folder. Raises a TxnLogError, or returns what the table says was read instead."""
    prepare: Callable[[Path], object] | None = None
    """Makes what ``use`` is given in place of the folder; not measured: what the reader had before the object
    came."""
