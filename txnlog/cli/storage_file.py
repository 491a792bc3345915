"""``--storage @FILE``: storage options from a file, where ``ps`` and the history of a shell do not show
them.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

from txnformat.errors import InvalidInputError, NotFoundError
from txnformat.store.options import shown_name

__all__ = ["BYTES_MAX", "read_storage_file"]

logger = logging.getLogger("txnlog")

BYTES_MAX = 64 * 1024
HINT = "write one KEY=VALUE per line, with # before comments, or one JSON object whose values are texts"


def read_storage_file(name: str) -> dict[str, str]:
    """Return the options in a file: lines ``KEY=VALUE``, or a JSON object whose values are texts.

    Blank lines and lines that begin with ``#`` are passed over. Spaces around key and value do not count. A
    warning says when other users may read the file. No error repeats a line or a value. Raises NotFoundError
    of kind ``no-file``; InvalidInputError of kind ``invalid-file``: it cannot be read, is larger than 64 KiB,
    or is no text. Kind ``invalid-storage-option``: every line that is no option.
    """
    text = _read(name)
    pairs = _json(text, name) if text.lstrip().startswith("{") else _lines(text, name)
    found: dict[str, str] = {}
    problems = []
    for where, key, value in pairs:
        if not isinstance(value, str):
            problems.append(f"{where}option {shown_name(key)} is {type(value).__name__}; use text")
        elif key in found:
            problems.append(f"{where}option {shown_name(key)} is given twice")
        else:
            found[key] = value
    if problems:
        raise InvalidInputError(problems, kind="invalid-storage-option", hint=HINT, file=name)
    return found


def _read(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            state = os.fstat(file.fileno())
            data = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError("there is no such file", kind="no-file", file=name) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "this is not a valid file name"
        raise InvalidInputError(
            f"the storage options cannot be read: {why}", kind="invalid-file", hint=HINT, file=name
        ) from None
    if len(data) > BYTES_MAX:
        raise InvalidInputError(
            f"a file of storage options has at most {BYTES_MAX} bytes",
            kind="invalid-file",
            hint=HINT,
            file=name,
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInputError(
            "storage options are UTF-8 text", kind="invalid-file", hint=HINT, file=name
        ) from None
    if stat.S_ISREG(state.st_mode) and state.st_mode & 0o077:
        logger.warning("other users can read %s; chmod 600 ends that", name)
    return text


def _lines(text: str, name: str) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = []
    problems = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not (equals and key.strip()):
            problems.append(f"line {number} is not KEY=VALUE")
        else:
            found.append((f"line {number}: ", key.strip(), value.strip()))
    if problems:
        raise InvalidInputError(problems, kind="invalid-storage-option", hint=HINT, file=name)
    return found


def _json(text: str, name: str) -> list[tuple[str, str, Any]]:
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: pairs)
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "too deep"
        raise InvalidInputError(
            f"this is not JSON: {where}", kind="invalid-file", hint=HINT, file=name
        ) from None
    return [("", key, value) for key, value in document]
