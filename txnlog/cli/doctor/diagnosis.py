"""Findings of ``doctor``, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Area", "Check", "Status"]


class Status(StrEnum):
    """The outcome of a check."""

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
    """The way to fix it."""


class Area(str):
    """``environment``, ``store`` or ``log``: makes its checks."""

    __slots__ = ()

    def ok(self, name: str, found: str) -> Check:
        """Return a check that found nothing wrong."""
        return Check(self, name, Status.OK, found)

    def warning(self, name: str, found: str, fix: str | None) -> Check:
        """Return a check that found something to improve."""
        return Check(self, name, Status.WARNING, found, fix)

    def problem(self, name: str, found: str, fix: str | None) -> Check:
        """Return a check that found something that does not work."""
        return Check(self, name, Status.PROBLEM, found, fix)
