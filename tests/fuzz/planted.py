"""A flaw behind three conditions: a campaign that is guided by what inputs reach finds it, one that is not
does not."""

from __future__ import annotations

__all__ = ["planted"]


def planted(data: bytes) -> None:
    """Raise ValueError for data that begins with three certain bytes."""
    if data[:1] != b"\x7f":
        return
    if data[1:2] != b"T":
        return
    if data[2:3] == b"\xe3":
        raise ValueError("the planted flaw")
