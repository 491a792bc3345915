"""Formats of input and output files, by the suffix of their names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

__all__ = ["Format", "format_of"]


class Format(StrEnum):
    """Forms of files with records."""

    JSON = "json"
    """One object per line."""
    CSV = "csv"
    """With a header; an empty field is null, "" is the empty text."""
    PARQUET = "parquet"


_BY_SUFFIX = {
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}


def format_of(path: Path) -> Format | None:
    """Return the form that the suffix of a name stands for, in any letter case; None for another suffix, or
    none.
    """
    return _BY_SUFFIX.get(path.suffix.lower())
