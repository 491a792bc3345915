"""The path of a cloud's URL."""

from __future__ import annotations

import re

from txnformat.arguments import is_utf8

__all__ = ["path_of"]

_CONTROL = re.compile(r"[\x00-\x1f\x7f?#]")


def path_of(text: str | None) -> str | None:
    """Return a path without slashes at its ends; None for one that has an empty part, a dot alone, a control
    character, or something behind ``?``.
    """
    path = (text or "").rstrip("/")
    parts = path.split("/") if path else []
    if not is_utf8(path) or _CONTROL.search(path) or any(part in ("", ".", "..") for part in parts):
        return None
    return path
