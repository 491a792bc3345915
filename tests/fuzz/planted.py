"""A flaw behind four conditions: a campaign that is guided by what inputs reach finds it, one that is not does not."""

from __future__ import annotations

__all__ = ["planted"]


def planted(data: bytes) -> None:
    """Raise ValueError for data that begins with four certain bytes."""
    if data[:1] != b"\x7f":
        return
    if data[1:2] != b"T":
        return
    if data[2:3] != b"\xe3":
        return
    if data[3:4] == b"N":
        raise ValueError("the planted flaw")
