"""CSV as input: a header and rows of the topic's columns; every wrong row is named, as far as an error can
name them.

pyarrow cuts the text into values; it stops at the first that does not fit a type, so the values are taken as
bytes and become the columns' types here.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.types as pt
from pyarrow import compute

from txnformat.columns.json_values import Binary, decoder
from txnformat.errors import InvalidInputError
from txnlog.cli.records.csv_quotes import Quotes
from txnlog.cli.records.pieces import PROBLEMS_MAX, Piece, Source, invalid

__all__ = ["read_csv"]

Convert = Callable[[Any], Any]

_DIGITS = r"^-?[0-9]+$"
_WRITE_DIGITS = "; write digits, such as 42 or -42"

_OPEN = ": its quote is not closed, so the rest of the input is in one value"

ROW_BYTES_MAX = 16 * 2**20
"""A row of this size, in bytes, is read; one of twice the size is not."""


def read_csv(
    file: io.BufferedReader, total: int | None, schema: pa.Schema, binary: Binary, delimiter: str
) -> Source:
    """Return the input. Raises InvalidInputError: ``unsupported-column``; ``invalid-record`` while pieces are
    taken.
    """
    nested = [
        f"column {field.name!r:.300} of type {field.type} cannot come from CSV"
        for field in schema
        if pt.is_nested(field.type)
    ]
    if nested:
        raise InvalidInputError(nested, kind="unsupported-column", hint="use JSON lines or Parquet")
    # pyarrow does not say what it read of a header when the first record is bad.
    header = file.peek().partition(b"\n")[0].decode("utf-8-sig", "replace")
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:  # pyarrow says what is wrong
        names = []
    rows = _Rows(schema, binary)
    # More values than the header has: so it is no row, and comes to the handler.
    mark = f"{rows.end_mark}{delimiter * (len(names) + 1_000)}\n".encode() if names else b""
    quotes = Quotes(delimiter)
    text = _Ended(file, mark, quotes)
    convert = pc.ConvertOptions(
        column_types={field.name: pa.binary() for field in schema},
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )

    def pieces() -> Iterator[Piece]:
        has_header = False
        try:
            reader = pc.open_csv(
                text,
                # One thread: rows have numbers.
                read_options=pc.ReadOptions(use_threads=False, block_size=ROW_BYTES_MAX),
                parse_options=pc.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    # Of one column, an empty line is a null.
                    ignore_empty_lines=len(names) != 1,
                    invalid_row_handler=rows.refuse,
                ),
                convert_options=convert,
            )
            has_header = True
            _check_header(reader.schema.names)
            for batch in reader:
                yield Piece(rows.typed(batch, text), 0 if total is None else file.tell())
            if names:
                rows.close()
            rows.end(quotes.problems)
        except pa.ArrowInvalid as error:
            what = _of_pyarrow(str(error), names)
            if not has_header and quotes.is_open:
                what = f"row 1, the header{_OPEN}"
            raise invalid([*rows.problems(), *quotes.problems, what]) from None

    return Source(pieces(), total)


class _Ended(io.RawIOBase):
    """A file with a line behind its last one, as UTF-8: pyarrow cannot hand on a row that is none.

    Each byte of what is not UTF-8 becomes a character of its own; the characters that stand for bytes become
    four of them.
    """

    def __init__(self, file: io.BufferedReader, line: bytes, quotes: Quotes) -> None:
        self._file = file
        self._quotes = quotes
        self._line = line
        self._last = b"\n"
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._rest = b""
        self._is_over = False
        self.has_escapes = False
        """Whether a character stands for a byte in what was read so far."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while not self._rest and not self._is_over:
            self._rest = self._next(len(view))
        found, self._rest = self._rest[: len(view)], self._rest[len(view) :]
        view[: len(found)] = found
        return len(found)

    def _next(self, size: int) -> bytes:
        found = self._file.read(size)
        self._last = found[-1:] or self._last
        # A line without an end comes with the one behind it: pyarrow takes no header from a block that has no
        # whole line.
        self._is_over = len(found) < size
        text = self._decode(found, self._is_over)
        self._quotes.feed(text)
        if _ESCAPED.search(text):
            self.has_escapes = True
            text = _ESCAPED.sub(_escaped, text)
        if not self._is_over:
            return text.encode()
        return text.encode() + (b"" if self._last in b"\r\n" else b"\n") + self._line


_FIRST = 0x10FF00
"""The character that stands for the byte 0: one for private use, as the 255 behind it."""
_ESCAPED = re.compile("[\udc80-\udcff\U0010ff00-\U0010ffff]")
_ESCAPES = re.compile(rb"\xf4\x8f[\xbc-\xbf][\x80-\xbf]")


def _escaped(found: re.Match[str]) -> str:
    return "".join(chr(_FIRST + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def _unescaped(raw: bytes) -> bytes:
    """Return the bytes of the file."""
    return _ESCAPES.sub(lambda found: bytes([ord(found[0].decode()) - _FIRST]), raw)


class _Rows:
    """Gives rows their types, and keeps what is wrong with them."""

    def __init__(self, schema: pa.Schema, binary: Binary) -> None:
        self._schema = schema
        self._convert: dict[str, Convert] = {
            field.name: decoder(field.type, binary)
            for field in schema
            # pyarrow's own reader of decimals crashes at far exponents, and rounds.
            if pt.is_decimal(field.type) or (pt.is_binary(field.type) and binary is not Binary.UTF8)
        }
        self._next = 2  # as pyarrow counts rows: the header is the first
        self._refused: set[int] = set()
        self._wrong: list[tuple[int, str]] = []
        self.end_mark = secrets.token_hex(16)
        """Begins a line that is put behind the last one, and no row of the input. A quote that is still open
        takes it in: so the last row is not whole."""
        self._is_ended = False

    def refuse(self, row: pc.InvalidRow) -> str:
        """Take note of a row with too many values, or too few, and go on with the next."""
        if row.text.startswith(self.end_mark):
            self._is_ended = True
            return "skip"
        self._refused.add(row.number)
        if self.end_mark in row.text:
            return "skip"  # a quote is open, which close() tells
        expected = f"{row.expected_columns} value{'' if row.expected_columns == 1 else 's'}"
        self._wrong.append(
            (row.number, f": it has {row.actual_columns}, not {expected}: {_shown(row.text):.80}")
        )
        return "skip"

    def typed(self, batch: pa.RecordBatch, text: _Ended) -> pa.RecordBatch:
        """Return a batch of a text in the topic's types. Raises InvalidInputError: what was wrong so far, if
        it is enough.
        """
        numbers = self._numbers(batch.num_rows)
        for place, name in enumerate(batch.schema.names):
            if name not in self._schema.names:
                continue  # the producer names columns that the topic lacks
            type_ = self._schema.field(name).type
            raw = batch.column(place)
            if text.has_escapes:
                raw = pa.array([one and _unescaped(one) for one in raw.to_pylist()], pa.binary())
            column = self._column(raw, name, type_, numbers)
            batch = batch.set_column(place, name, column)
        if len(self._wrong) >= PROBLEMS_MAX:
            self.end()
        return batch if not self._wrong else batch.slice(0, 0)

    def close(self) -> None:
        """Take note of a last row that is not whole."""
        if not self._is_ended:
            last = max([self._next - 1, *self._refused])
            self._wrong = [one for one in self._wrong if one[0] != last]  # they follow from it
            self._wrong.append((last, _OPEN))

    def end(self, more: Sequence[str] = ()) -> None:
        """Raise InvalidInputError about all that was wrong so far."""
        if self._wrong or more:
            raise invalid([*self.problems(), *more])

    def problems(self) -> list[str]:
        """Return all that was wrong, by row."""
        return [f"row {number}{what}" for number, what in sorted(self._wrong, key=lambda one: one[0])]

    def _numbers(self, count: int) -> list[int]:
        """Return the numbers of the next rows: those that were refused are not among them."""
        numbers: list[int] = []
        while len(numbers) < count:
            if self._next not in self._refused:
                numbers.append(self._next)
            self._next += 1
        return numbers

    def _column(self, column: pa.Array, name: str, type_: pa.DataType, numbers: list[int]) -> pa.Array:
        """Return a column in its type; nulls in the place of values that do not fit."""
        if pt.is_binary(type_) and name not in self._convert:
            return column
        convert = self._convert.get(name)
        if convert is None:
            try:
                return _cast(column.cast(pa.string()), type_)
            except pa.ArrowInvalid:
                convert = _one_by_one(type_)
        values = []
        for number, raw in zip(numbers, column.to_pylist(), strict=True):
            try:
                values.append(None if raw is None else convert(_decoded(raw)))
            except ValueError as error:
                values.append(None)
                self._wrong.append((number, f", column {name!r:.300}: {error}"))
        return pa.array(values, type=type_)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(_not_utf8(error)) from None


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"not UTF-8: byte 0x{error.object[error.start]:02x} at byte {error.start + 1}"


def _check_header(names: list[str]) -> None:
    for name in names:
        try:
            _unescaped(name.encode()).decode()
        except UnicodeDecodeError as error:
            raise invalid([f"row 1, the header: {_not_utf8(error)}"]) from None


def _shown(text: str) -> str:
    r"""Return a row for a message; bytes that are not UTF-8 as ``\xff``."""
    raw = _unescaped(text.encode())
    try:
        return repr(raw.decode())
    except UnicodeDecodeError:
        return repr(raw.decode("utf-8", "backslashreplace")).replace("\\\\x", "\\x")


def _cast(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return texts as values, as pyarrow's reader of CSV understands them; times without a zone are in
    UTC.
    """
    if pt.is_string(type_) or pt.is_large_string(type_) or pt.is_boolean(type_):
        return texts.cast(type_)
    texts = compute.utf8_trim(texts, " \t")
    if pt.is_integer(type_) and compute.all(compute.match_substring_regex(texts, _DIGITS)).as_py() is False:
        raise pa.ArrowInvalid("a text is not an integer")  # pyarrow takes 0x10 for 16
    if pt.is_time(type_):
        return compute.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("us")).cast(type_)
    if pt.is_timestamp(type_) and type_.tz is not None:
        zoned = compute.match_substring_regex(texts, r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
        return compute.if_else(zoned, texts, compute.binary_join_element_wise(texts, "Z", "")).cast(type_)
    return texts.cast(type_)


def _one_by_one(type_: pa.DataType) -> Convert:
    """Return what makes one value of a text; it raises ValueError about one that does not fit."""
    if pt.is_timestamp(type_) and type_.tz is not None:
        return decoder(type_, Binary.UTF8)

    def convert(text: str) -> Any:
        try:
            return _cast(pa.array([text], pa.string()), type_)[0].as_py()
        except pa.ArrowInvalid:
            why = (
                "" if not pt.is_integer(type_) or re.fullmatch(_DIGITS, text.strip(" \t")) else _WRITE_DIGITS
            )
            raise ValueError(f"{text!r:.80} is not a value of {type_}{why}") from None

    return convert


def _of_pyarrow(message: str, names: list[str]) -> str:
    if "straddling" in message:
        return f"a row is larger than {ROW_BYTES_MAX:,} bytes: use JSON lines or Parquet"
    match = re.search(r"CSV column #(\d+)", message)
    if match and int(match[1]) < len(names):
        return f"column {names[int(match[1])]!r:.300}: {message}"
    return message
