"""Paths of a local disk as URLs, and back. Pure."""

from __future__ import annotations

import os
from urllib.parse import unquote

from txnformat.arguments import is_utf8

__all__ = ["file_path", "file_url", "unescaped"]


def file_url(path: str) -> str:
    """Return ``file://`` and an absolute path; a percent sign, and a byte that is no UTF-8, stand as ``%25``
    and the like, so that :func:`file_path` gives the path back.
    """
    if "%" not in path and is_utf8(path):
        return f"file://{path}"
    return "file://" + "".join(one if one != "%" and is_utf8(one) else _percent(one) for one in path)


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(character))


def file_path(url: str) -> str:
    """Return the absolute path of a ``file:`` URL.

    Raises ValueError about one that names another machine, or no path.
    """
    rest = url[len("file:") :]
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise ValueError("a file URL names another machine, or no path")
        rest = slash + path
    return unquote(rest, errors="surrogateescape")


def unescaped(url: str) -> str:
    """Return the URL of a root as Hadoop, Iceberg's clients and deltalake take it: they know no escapes in a
    path.

    Other URLs stay as they are.
    """
    return f"file://{file_path(url)}" if url.startswith("file://") else url
