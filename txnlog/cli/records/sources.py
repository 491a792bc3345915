"""Input of ``produce``: JSON lines, CSV or Parquet, from a file or stdin, piece by piece.

Any error in it is raised before anything is in the log, and names line (of CSV: row) and column.
"""

from __future__ import annotations

import io
import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, cast

import click
import pyarrow as pa

from txnformat.arguments import other_case
from txnformat.columns.json_values import Binary, decoder, has_decimal, shown
from txnformat.errors import InvalidInputError, NotFoundError
from txnlog.cli.records.csv_input import read_csv
from txnlog.cli.records.file_formats import Format, format_of
from txnlog.cli.records.pieces import HINT, PROBLEMS_MAX, Piece, Source, invalid
from txnlog.foreign_files import open_foreign

__all__ = ["open_source"]

LINES_PER_PIECE = 10_000
LINE_BYTES_MAX = 64 * 1024 * 1024

Absent = Mapping[str, Callable[[], Any]]


@contextmanager
def open_source(
    name: str,
    format_: str | None,
    schema: pa.Schema,
    binary: Binary = Binary.UTF8,
    absent: Absent = types.MappingProxyType({}),
    delimiter: str | None = None,
) -> Iterator[Source]:
    """Open input for a topic with columns ``schema``.

    ``name``: path, or ``-`` for stdin. ``format_``: None: by the suffix, JSON lines for stdin. ``absent``: by
    column, what gives the JSON value that a line leaves out; null for other columns. ``delimiter``: what
    stands between two values of CSV; None: a comma, or no CSV. Raises NotFoundError of kind ``no-file``;
    InvalidInputError of kind ``unknown-format``, ``invalid-file``, and while reading ``invalid-record``.
    """
    path = Path(name)
    if name != "-" and not path.exists():
        raise NotFoundError("there is no such file", kind="no-file", file=name)
    if path.is_dir():
        raise InvalidInputError("this is a directory, not a file", kind="invalid-file", file=name)
    chosen = Format(format_) if format_ else Format.JSON if name == "-" else format_of(path)
    if chosen is None:
        raise InvalidInputError(
            f"the format of the input is not clear from its name {path.name!r:.100}",
            kind="unknown-format",
            hint=f"add --format {'|'.join(Format)}",
        )
    if delimiter is not None and chosen != Format.CSV:
        raise click.UsageError("--delimiter needs --format csv")
    if name == "-" and sys.stdin is None:
        raise InvalidInputError(
            "standard input is closed, so there are no records to read",
            kind="invalid-file",
            hint="name a file, or pass the records on stdin; for no records: < /dev/null",
        )
    with ExitStack() as opened:
        file, size = cast(io.BufferedReader, sys.stdin and sys.stdin.buffer), None
        if name != "-":
            try:
                file = opened.enter_context(path.open("rb"))
            except OSError as error:
                what = f"the file cannot be read: {error.strerror}"
                raise InvalidInputError(what, kind="invalid-file", file=name) from None
            size = path.stat().st_size if path.is_file() else None
        yield opened.enter_context(
            closing(_reader(chosen, file, size, schema, binary, absent, delimiter or ","))
        )


# --- JSON lines ---------------------------------------------------------------------------------------------


class _RepeatedNameError(ValueError):
    """An object names a member twice. RFC 8259 leaves open which value counts, so neither is taken."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object."""
    members = dict(pairs)
    if len(members) != len(pairs):
        times = Counter(name for name, _ in pairs)
        repeated = next(name for name in times if times[name] > 1)
        raise _RepeatedNameError(f"{repeated!r:.300} appears twice")
    return members


def _number(text: str) -> Decimal:
    """Return a JSON number as it is written."""
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent that no decimal has
        raise ValueError(f"the number {text!r:.80} is out of range") from None


def _not_json(error: Exception) -> str:
    """Return what is wrong with a line that the parser refused, without words about Python."""
    match error:
        case UnicodeDecodeError():
            return f"not UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start + 1}"
        case json.JSONDecodeError():
            return f"not JSON: {error.msg} at character {error.pos + 1}"
        case RecursionError():
            return "not JSON: values are nested too deeply"
        case _ if "set_int_max_str_digits" in str(error):
            return f"not JSON: a number has more than {sys.get_int_max_str_digits()} digits"
        case _:
            return f"not JSON: {error}"


class _JsonLines:
    """Makes tables of lines."""

    def __init__(self, schema: pa.Schema, binary: Binary, absent: Absent) -> None:
        self._schema = schema
        self._absent = absent
        self._decoders: dict[str, Callable[[Any], Any]] = {}
        problems = []
        for field in schema:
            try:
                self._decoders[field.name] = decoder(field.type, binary)
            except ValueError as error:
                problems.append(f"column {field.name!r:.300}: {error}")
        if problems:
            raise InvalidInputError(problems, kind="unsupported-column", hint=HINT)
        exact = any(has_decimal(field.type) for field in schema)
        self._parse = json.JSONDecoder(
            parse_float=_number if exact else None, object_pairs_hook=_object
        ).decode
        self.problems: list[str] = []

    def row(self, line: bytes, number: int) -> list[Any] | None:
        """Return a line's values in the order of the schema; None for a line with nothing on it, or a bad
        one.
        """
        if not line.strip():
            return None
        try:
            value = self._parse(line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip(" \t\r\n"))
        except _RepeatedNameError as error:
            self.problems.append(f"line {number}: {error}")
            return None
        except (ValueError, RecursionError) as error:
            self.problems.append(f"line {number}: {_not_json(error)}")
            return None
        if not isinstance(value, dict):
            self.problems.append(
                f"line {number}: {shown(value):.80} is not an object with the topic's columns"
            )
            return None
        self.problems += [
            f"line {number}, column {name!r:.300}: the topic has no such "
            f"column{other_case(name, self._decoders)}"
            for name in value
            if name not in self._decoders
        ]
        for name, make in self._absent.items():
            if name not in value:
                value[name] = make()
        row = []
        for name, convert in self._decoders.items():
            try:
                row.append(convert(value.get(name)))
            except ValueError as error:
                self.problems.append(f"line {number}, column {name!r:.300}: {error}")
        return row if len(row) == len(self._decoders) else None

    def table(self, rows: list[list[Any]]) -> pa.Table:
        """Return rows as a table, or raise about everything that was wrong so far."""
        if self.problems:
            raise invalid(self.problems)
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        try:
            arrays = [
                pa.array(values, type=field.type) for values, field in zip(columns, self._schema, strict=True)
            ]
        except (pa.ArrowException, ValueError, OverflowError, TypeError) as error:
            raise InvalidInputError(str(error), kind="invalid-record", hint=HINT) from None
        return pa.Table.from_arrays(arrays, schema=self._schema)


def _read_json(
    file: io.BufferedReader, total: int | None, schema: pa.Schema, binary: Binary, absent: Absent
) -> Source:
    lines = _JsonLines(schema, binary, absent)

    def pieces() -> Iterator[Piece]:
        rows: list[list[Any]] = []
        done = number = 0
        while line := file.readline(LINE_BYTES_MAX + 1):
            number += 1
            done += len(line)
            if len(line) > LINE_BYTES_MAX:
                raise InvalidInputError(
                    f"line {number} is longer than {LINE_BYTES_MAX} bytes", kind="invalid-record", hint=HINT
                )
            row = lines.row(line, number)
            if row is not None:
                rows.append(row)
            if len(rows) >= LINES_PER_PIECE or len(lines.problems) >= PROBLEMS_MAX:
                yield Piece(lines.table(rows), done)
                rows = []
        yield Piece(lines.table(rows), done)

    return Source(pieces(), total)


# --- Parquet ------------------------------------------------------------------------------------------------


def _read_parquet(file: io.BufferedReader) -> Source:
    opened = ExitStack()
    found = opened.enter_context(open_foreign(file))

    def pieces() -> Iterator[Piece]:
        done = 0
        with opened:
            for batch in found.batches:
                done += batch.num_rows
                yield Piece(batch, done)

    return Source(pieces(), found.rows, opened.close)


def _reader(
    chosen: Format,
    file: io.BufferedReader,
    size: int | None,
    schema: pa.Schema,
    binary: Binary,
    absent: Absent,
    delimiter: str,
) -> Source:
    match chosen:
        case Format.JSON:
            return _read_json(file, size, schema, binary, absent)
        case Format.CSV:
            return read_csv(file, size, schema, binary, delimiter)
        case Format.PARQUET:
            return _read_parquet(file)
