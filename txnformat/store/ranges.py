"""The one rule for byte ranges: all of it is there, or it is an error."""

from __future__ import annotations

from txnformat.errors import StorageError

__all__ = ["check_range"]


def check_range(url: str, key: str, start: int, length: int, size: int) -> None:
    """Raise StorageError unless bytes ``[start, start + length)`` lie within an object of ``size`` bytes.

    An empty range is legal anywhere from 0 to ``size`` (inclusive).
    """
    if start < 0 or length < 0 or start + length > size:
        raise StorageError(
            "the byte range lies outside the object",
            kind="invalid-range",
            hint="the object is shorter than what names it says: run a verification of the log",
            store=url,
            key=key,
            start=start,
            length=length,
            size=size,
        )
