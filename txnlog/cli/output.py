"""Printing: JSON for programs; for people tables, drawn with rich on a terminal and plainly aligned
elsewhere.

Names and values in a log may be hostile, and a terminal does what control characters say. So everything that
a command prints goes through this module: text for people always shows such characters escaped; what programs
read (JSON, CSV, Prometheus' format) is exact in a pipe or a file, and on a terminal escaped.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, BinaryIO, Literal, TextIO

from msgspec import Struct, structs

from txnformat.digits import special_float
from txnformat.errors import TxnLogError, printable
from txnformat.moments import iso_time

__all__ = [
    "Guarded",
    "Table",
    "TerminalBytes",
    "counted",
    "duration",
    "instant",
    "is_terminal",
    "json_for",
    "plain_values",
    "print_exact",
    "print_json",
    "print_table",
    "printable",
    "printable_json",
    "printable_lines",
    "say",
    "say_parts",
    "show_json",
    "show_lines",
    "unguarded",
]

_NOTHING = "-"

CELL_LENGTH_MAX = 1_000
"""Longest text of a cell, in characters; the rest is cut off."""
TEXT_WIDTH_MIN = 20
"""Narrowest column of text on a terminal, in characters."""

_UNCUT = re.compile(r"-|[+-]?[\d.,]+( ?\w{1,5})?|\d{4}-\d\d-\d\d(T[\d:.]+Z?)?|[+-]?\d+ \w+ \d+ \w+")
"""A number, a size, a duration or a time: cut, it would be another one."""

_FOLDS = re.compile("(?<=-)(?=.)|(?<=[a-z])(?=[A-Z])")
"""Where a heading is folded."""


def instant(ms: int | None) -> str | None:
    """Return log time as ISO 8601, UTC; years outside of 0 to 9999 with a sign and at least six digits, as
    ISO has them.
    """
    return None if ms is None else f"{iso_time(ms, 1_000, 3)}Z"


def duration(ms: int) -> str:
    """Return a duration in its two largest units: ``15 min``, ``1 d 2 h``, ``2.5 s``."""
    if abs(ms) < 60_000:
        return f"{ms / 1000:g} s"
    left, parts = abs(ms) // 1000, []
    for name, seconds in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {name}")
    return ("-" if ms < 0 else "") + " ".join(parts[:2])


def plain_values(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain_values({one.name: getattr(value, one.name) for one in fields(value)})
    if isinstance(value, Struct):
        return plain_values(structs.asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [plain_values(item) for item in items]
    if isinstance(value, float) and not math.isfinite(value):
        return special_float(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def is_terminal(file: TextIO | None) -> bool:
    """Return whether a person looks at what is written to ``file``."""
    return file is not None and not file.closed and file.isatty()


def printable_lines(text: str) -> str:
    """Return text of several lines, each as :func:`printable` gives it."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""Return the text of JSON documents with ``\uXXXX`` for each character that would not show: the values
    stay the same.
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]
        for character in text
    )


def json_for(file: TextIO, document: Any, *, indent: int | None = None) -> str:
    """Return a document as JSON, as ``file`` can take it."""
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    if is_terminal(file):
        return printable_json(text)
    return text if _fits(text, file) else json.dumps(document, indent=indent)


def _fits(text: str, file: TextIO) -> bool:
    """Return whether the encoding of ``file`` has all characters; UTF-8 lacks halves of surrogate pairs."""
    try:
        text.encode(file.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _fitting(text: str, file: TextIO) -> str:
    if _fits(text, file):
        return text
    encoding = file.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; with ``indent=None`` on one line."""
    print(json_for(sys.stdout, plain_values(value), indent=indent))


def print_exact(text: str) -> None:
    """Print lines for programs: as they are, unless a terminal shows them."""
    print(_fitting(printable_lines(text) if is_terminal(sys.stdout) else text, sys.stdout))


def say(text: str) -> None:
    """Print a line for people."""
    print(_fitting(printable(text), sys.stdout))


def say_parts(*parts: str) -> None:
    """Print parts of a line for people, two spaces apart; on a terminal that is narrower as many to a line as
    fit.
    """
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None
    line = ""
    for part in map(printable, parts):
        longer = f"{line}  {part}" if line else part
        if line and width is not None and len(longer) > width:
            say(line)
            longer = part
        line = longer
    say(line)


def show_lines(text: str, file: TextIO) -> None:
    """Print lines for people, such as an error, to ``file``."""
    _show(_fitting(printable_lines(text), file), file)


def show_json(document: Any, file: TextIO) -> None:
    """Print a JSON document, such as an error, to ``file``, on one line."""
    _show(json_for(file, document), file)


def _show(text: str, file: TextIO) -> None:
    """Print a text. Standard error that takes nothing, as on a full disk, ends no work: the exit code tells
    its end.
    """
    with contextlib.suppress(OSError) if file is sys.stderr else contextlib.nullcontext():
        print(text, file=file, flush=file is sys.stderr)


class Guarded:
    """A terminal's standard error for text that no command makes: warnings, log lines, tracebacks of any
    library.
    """

    def __init__(self, file: TextIO) -> None:
        self.unguarded = file

    def write(self, text: str) -> int:
        """Write lines, escaped."""
        self.unguarded.write(_fitting(printable_lines(text), self.unguarded))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


class TerminalBytes:
    """A terminal's standard output for a writer of bytes: UTF-8, which goes through ``show`` on its way."""

    def __init__(self, file: BinaryIO, show: Callable[[str], str]) -> None:
        self._file = file
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes; a character may be cut between two calls."""
        view = memoryview(data)
        self._file.write(self._show(self._decoder.decode(bytes(view))).encode("utf-8", "backslashreplace"))
        return view.nbytes

    def writelines(self, lines: Iterable[bytes]) -> None:
        """Write lines of bytes."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Show what was written."""
        self._file.flush()

    def close(self) -> None:
        """Do nothing: the terminal is not ours to close."""


def unguarded(file: TextIO) -> TextIO:
    """Return the file itself, for rich, which draws with control characters of its own."""
    return file.unguarded if isinstance(file, Guarded) else file


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table for people; in a pipe one line per row, columns two spaces apart. A long cell is cut."""
    columns = [printable(name) for name in columns]
    values = [list(row) for row in rows]
    cells = [
        [_NOTHING if value is None else _cut(printable(str(value)[: CELL_LENGTH_MAX + 1])) for value in row]
        for row in values
    ]
    right = [
        bool(values) and all(isinstance(row[index], int | None) for row in values)
        for index in range(len(columns))
    ]
    if is_terminal(sys.stdout):
        _draw(columns, cells, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (list(columns), *cells):
        line = "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        print(_fitting(line.rstrip(), sys.stdout))


class Table:
    """The columns of a table, and what each shows of a row.

    ``headings``: in their order, between spaces. ``StartOffset`` and ``START-OFFSET`` show the attribute
    ``start_offset``. ``cells``: by the attribute's name: return what to show in place of the attribute.
    """

    def __init__(self, headings: str, **cells: Callable[..., object]) -> None:
        self._headings = headings.split()
        names = [re.sub(r"(?<=[a-z])(?=[A-Z])|\W+", "_", name).strip("_").lower() for name in self._headings]
        self._cells = [cells.get(name) or _attribute(name) for name in names]

    def show(self, rows: Iterable[Any]) -> None:
        """Print the rows: each an object, or a tuple of objects of which the first that has an attribute
        shows it.

        If the rows end with an error, those before it are printed first.
        """
        shown: list[list[object]] = []
        try:
            for row in rows:
                parts = row if type(row) is tuple else (row,)
                shown.append([cell(*parts) for cell in self._cells])
        except TxnLogError:
            if shown:
                print_table(self._headings, shown)
            raise
        print_table(self._headings, shown)

    def answer(self, rows: Sequence[Any], *, as_json: bool, name: str) -> None:
        """Print the rows, or as JSON an object that has them under a name."""
        if as_json:
            print_json({name: rows})
        else:
            self.show(rows)


def _attribute(name: str) -> Callable[..., object]:
    return lambda *row: next(getattr(part, name) for part in row if hasattr(part, name))


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """Draw a table as wide as the terminal.

    If numbers and times do not all fit, columns without a value are left out; if that is not enough, each
    value has a line.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    shown = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in columns]
    place = console.width - 2 - 3 * (len(columns) - 1)  # without the margins, and what is between two columns
    headings = list(columns)
    widths, least = _widths(headings, shown, right)
    if sum(least) > place:
        headings = [_FOLDS.sub("\n", name) for name in columns]
        widths, least = _widths(headings, shown, right)
    if sum(least) > place:
        full = [index for index, column in enumerate(shown) if any(cell != _NOTHING for cell in column)]
        if 0 < len(full) < len(columns):
            kept = [[row[index] for index in full] for row in cells]
            _draw([columns[index] for index in full], kept, [right[index] for index in full])
        else:
            _list(columns, cells)
        return
    while sum(widths) > place:
        widest = max(range(len(widths)), key=lambda index: widths[index] - least[index])
        widths[widest] -= min(widths[widest] - least[widest], sum(widths) - place)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, is_right, width in zip(headings, right, widths, strict=True):
        justify: Literal["left", "right"] = "right" if is_right else "left"
        table.add_column(Text(heading), justify=justify, width=width, no_wrap=True, overflow="ellipsis")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def _widths(
    headings: Sequence[str], shown: Sequence[Sequence[str]], right: Sequence[bool]
) -> tuple[list[int], list[int]]:
    """Return how wide columns are, and how narrow they may be, in characters."""
    from rich.cells import cell_len

    widths = [
        max(map(cell_len, [*heading.split("\n"), *column]))
        for heading, column in zip(headings, shown, strict=True)
    ]
    least = [
        width if is_right or all(map(_UNCUT.fullmatch, column)) else min(width, TEXT_WIDTH_MIN)
        for width, is_right, column in zip(widths, right, shown, strict=True)
    ]
    return widths, least


def _list(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print rows one below the other, a line for each value."""
    width = max(map(len, columns))
    for number, row in enumerate(cells):
        if number:
            print()
        for name, cell in zip(columns, row, strict=True):
            print(_fitting(f"{name.ljust(width)}  {cell}", sys.stdout))


def _cut(text: str) -> str:
    """Return the text of a cell: in a table a long one is not readable, and padding makes all rows as
    long.
    """
    return text if len(text) <= CELL_LENGTH_MAX else f"{text[: CELL_LENGTH_MAX - 1]}…"


def counted(number: int, what: str) -> str:
    """Return a number with what it counts: ``1 record``, ``2 records``, ``0 entries``, ``2 keys``."""
    if what.endswith("y") and what[-2] not in "aeiou":
        many = what.removesuffix("y") + "ies"
    else:
        many = what + ("es" if what.endswith("ch") else "s")
    return f"{number} {what if number == 1 else many}"
