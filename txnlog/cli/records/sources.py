"""Input of ``produce``: JSON lines, CSV or Parquet, from a file or stdin, piece by piece.

Any error in it is raised before anything is in the log. Of JSON lines all of it names line and column, of CSV
decimals and decoded bytes do; the rest is told as pyarrow tells it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.types as pt
from pyarrow import compute

from txnformat.arguments import other_case
from txnformat.errors import InvalidInputError, NotFoundError
from txnlog.cli.records.file_formats import Format, format_of
from txnlog.cli.records.foreign_parquet import open_foreign
from txnlog.cli.records.json_values import Binary, decoder, has_decimal

__all__ = ["Piece", "Source", "open_source"]

LINES_PER_PIECE = 10_000
PROBLEMS_MAX = 20
LINE_BYTES_MAX = 64 * 1024 * 1024
HINT = "no record was written"

Absent = Mapping[str, Callable[[], Any]]


class Piece(NamedTuple):
    """Some records."""

    table: Any
    """pyarrow.Table or RecordBatch."""
    done: int
    """How much of the source is read, in the units of ``Source.total``."""


class Source(NamedTuple):
    """Input that is open."""

    pieces: Iterator[Piece]
    total: int | None
    """Bytes, or rows of a Parquet file; None when it is not known."""
    close: Callable[[], None] = lambda: None
    """Ends what reads the file."""


@contextmanager
def open_source(
    name: str,
    format_: str | None,
    schema: pa.Schema,
    binary: Binary = Binary.UTF8,
    absent: Absent = types.MappingProxyType({}),
) -> Iterator[Source]:
    """Open input for a topic with columns ``schema``.

    ``name``: path, or ``-`` for stdin. ``format_``: None: by the suffix, JSON lines for stdin. ``absent``: by column, what
    gives the JSON value that a line leaves out; null for other columns. Raises NotFoundError of kind ``no-file``; InvalidInputError of kind ``unknown-format``, ``invalid-file``, and while reading
    ``invalid-record``.
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
        yield opened.enter_context(closing(_reader(chosen, file, size, schema, binary, absent)))


# --- JSON lines ------------------------------------------------------------------------------------------------------


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


def _invalid(problems: list[str]) -> InvalidInputError:
    more = len(problems) - PROBLEMS_MAX
    shown = problems[:PROBLEMS_MAX] + ([f"and {more} more"] if more > 0 else [])
    return InvalidInputError(shown, kind="invalid-record", hint=HINT)


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
        """Return a line's values in the order of the schema; None for a line with nothing on it, or a bad one."""
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
            self.problems.append(f"line {number}: {value!r:.80} is not an object with the topic's columns")
            return None
        self.problems += [
            f"line {number}, column {name!r:.300}: the topic has no such column{other_case(name, self._decoders)}"
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
            raise _invalid(self.problems)
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


# --- CSV -------------------------------------------------------------------------------------------------------------


def _read_csv(file: io.BufferedReader, total: int | None, schema: pa.Schema, binary: Binary) -> Source:
    problems = [
        f"column {field.name!r:.300} of type {field.type} cannot come from CSV"
        for field in schema
        if pt.is_nested(field.type)
    ]
    if problems:
        raise InvalidInputError(problems, kind="unsupported-column", hint="use JSON lines or Parquet")
    # pyarrow's own reader of decimals crashes at far exponents, and rounds; that of timestamps asks for a zone.
    decoders = {
        field.name: decoder(field.type, binary)
        for field in schema
        if pt.is_decimal(field.type)
        or _has_zone(field.type)
        or (pt.is_binary(field.type) and binary is not Binary.UTF8)
    }
    convert = pc.ConvertOptions(
        column_types={field.name: pa.string() if field.name in decoders else field.type for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    # pyarrow does not say what it read of a header when the first record is bad.
    header = file.peek().partition(b"\n")[0].decode("utf-8-sig", "replace")
    try:
        names = next(csv.reader([header]), [])
    except csv.Error:  # pyarrow says what is wrong
        names = []

    def pieces() -> Iterator[Piece]:
        try:
            reader = pc.open_csv(
                file,
                # One thread: the errors name their row.
                read_options=pc.ReadOptions(use_threads=False),
                # Of one column, an empty line is a null.
                parse_options=pc.ParseOptions(newlines_in_values=True, ignore_empty_lines=len(names) != 1),
                convert_options=convert,
            )
            first = 2  # as pyarrow counts rows: the header is the first
            for batch in reader:
                yield Piece(_decoded(batch, schema, decoders, first), 0 if total is None else file.tell())
                first += batch.num_rows
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                _csv_problem(str(error), names), kind="invalid-record", hint=HINT
            ) from None

    return Source(pieces(), total)


def _decoded(
    batch: pa.RecordBatch, schema: pa.Schema, decoders: Mapping[str, Callable[[Any], Any]], first: int
) -> pa.RecordBatch:
    """Return a batch with what was read as text in its types; raise about all that does not fit."""
    problems: list[str] = []
    for name, convert in decoders.items():
        number = batch.schema.get_field_index(name)
        if number < 0:
            continue
        type_ = schema.field(name).type
        instants = _instants(batch.column(number), type_) if _has_zone(type_) else None
        if instants is not None:
            batch = batch.set_column(number, name, instants)
            continue
        values = []
        for row, text in enumerate(batch.column(number).to_pylist(), start=first):
            try:
                values.append(convert(text))
            except ValueError as error:
                problems.append(f"row {row}, column {name!r:.300}: {error}")
        if not problems:
            batch = batch.set_column(number, name, pa.array(values, type=type_))
    if problems:
        raise _invalid(problems)
    return batch


def _has_zone(type_: pa.DataType) -> bool:
    return bool(pt.is_timestamp(type_)) and type_.tz is not None


def _instants(texts: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return texts as times, those without a zone in UTC; None when some are to be read one by one."""
    zoned = compute.match_substring_regex(texts, r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    try:
        return compute.if_else(zoned, texts, compute.binary_join_element_wise(texts, "Z", "")).cast(type_)
    except pa.ArrowInvalid:
        return None


def _csv_problem(message: str, names: list[str]) -> str:
    match = re.search(r"CSV column #(\d+)", message)
    if match and int(match[1]) < len(names):
        return f"column {names[int(match[1])]!r:.300}: {message}"
    return message


# --- Parquet ---------------------------------------------------------------------------------------------------------


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
) -> Source:
    match chosen:
        case Format.JSON:
            return _read_json(file, size, schema, binary, absent)
        case Format.CSV:
            return _read_csv(file, size, schema, binary)
        case Format.PARQUET:
            return _read_parquet(file)
