"""What ``doctor`` finds: values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Status"]


class Status(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """It works, but not as well as it could, or not for long."""
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a diagnosis."""

    area: str
    """``environment``, ``store`` or ``log``."""
    name: str
    status: Status
    found: str
    fix: str | None = None
    """What to do about it."""
