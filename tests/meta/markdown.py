"""The parts of a Markdown file that tests hold against the code: fenced blocks, tables, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Block", "Table", "blocks", "codes", "prose", "section", "tables"]

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^(`{3,})(.*)$")


class Block(NamedTuple):
    """A fenced block."""

    info: str
    """What stands behind the opening fence, such as ``python``."""
    text: str
    line: int
    """Of the first line of its text, from 1."""
    before: str
    """The line before the fence that is not empty: where a marker comment stands."""


class Table(NamedTuple):
    """A table; cells without the spaces around them."""

    header: list[str]
    rows: list[list[str]]


def blocks(text: str) -> list[Block]:
    """Return all fenced blocks of a file.

    Raises
    ------
    ValueError
        A block is not closed.
    """
    found: list[Block] = []
    before, opened, body, start = "", None, [""], 0
    for number, line in enumerate(text.splitlines(), start=1):
        match = _FENCE.match(line)
        if opened is None and match:
            opened, body, start = match, [], number + 1
        elif opened is not None and match and match[1] == opened[1] and not match[2]:
            found.append(Block(opened[2].strip(), "\n".join(body) + "\n", start, before))
            opened, before = None, ""
        elif opened is not None:
            body.append(line)
        elif line.strip():
            before = line.strip()
    if opened is not None:
        raise ValueError(f"the block of line {start - 1} is not closed")
    return found


def prose(text: str) -> str:
    """Return the text without its fenced blocks."""
    lines, closing = [], None
    for line in text.splitlines():
        match = _FENCE.match(line)
        if closing is None and match:
            closing = match[1]
        elif closing is not None and match and match[1] == closing and not match[2]:
            closing = None
        elif closing is None:
            lines.append(line)
    return "\n".join(lines)


def section(text: str, heading: str) -> str:
    """Return what stands under a heading, up to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    lines = text.splitlines()
    start = lines.index(heading)
    end = next(
        (
            index
            for index in range(start + 1, len(lines))
            if (match := re.match(r"(#+) ", lines[index])) and len(match[1]) <= level
        ),
        len(lines),
    )
    return "\n".join(lines[start + 1 : end])


def tables(text: str) -> list[Table]:
    """Return all tables, in order."""
    found: list[Table] = []
    run: list[list[str]] = []
    for line in [*prose(text).splitlines(), ""]:
        if line.startswith("|"):
            run.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif run:
            found.append(Table(run[0], run[2:]))
            run = []
    return found


def codes(cell: str) -> list[str]:
    """Return what is in backticks."""
    return re.findall(r"`([^`]+)`", cell)
