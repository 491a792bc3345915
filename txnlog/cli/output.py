"""Printing: JSON for programs; for people tables, drawn with rich on a terminal and plainly aligned elsewhere."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from enum import Enum
from typing import Any

__all__ = ["instant", "plain_values", "print_json", "print_table", "printable", "say"]

_NOTHING = "-"


def instant(ms: int | None) -> str | None:
    """Return log time as ISO 8601, UTC."""
    if ms is None:
        return None
    time = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return text without control characters: names in a log are anybody's, and must not steer a terminal."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def plain_values(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain_values(asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain_values(item) for item in items]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; with ``indent=None`` on one line."""
    print(json.dumps(plain_values(value), ensure_ascii=False, indent=indent))


def say(text: str) -> None:
    """Print a line for people."""
    print(printable(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; in a pipe one line per row, columns two spaces apart, nothing cut off."""
    values = [list(row) for row in rows]
    cells = [[_NOTHING if value is None else printable(str(value)) for value in row] for row in values]
    right = [
        bool(values) and all(isinstance(row[index], int | None) for row in values)
        for index in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(columns, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (list(columns), *cells):
        line = "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        print(line.rstrip())


def _draw(columns: Sequence[str], cells: Iterable[Sequence[str]], right: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_right in zip(columns, right, strict=True):
        table.add_column(name, justify="right" if is_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)
