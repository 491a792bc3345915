"""Segment files and batch tables compared with what the log says of them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa

from txnformat.clock import Clock
from txnformat.columns.text import bad_texts
from txnformat.core.records.batch_table import decode_batch_table
from txnformat.errors import CorruptDataError, FormatError, NotFoundError, StorageError, TxnLogError
from txnformat.keys import own_key
from txnformat.persistent import Rows, replace
from txnformat.protocol.reads import READ_ATTEMPTS_MAX, READ_BACKOFF_MS
from txnformat.segments.footer import FooterError
from txnformat.segments.footer_schema import decode_schema
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.segment_object import read_range
from txnformat.store.base import ObjectStore, range_of
from txnformat.store.memory import MemoryStore
from txnformat.types import FileRecord
from txnformat.verify.bytes import decode_problem, decoded
from txnformat.verify.copied_rows import check_copied
from txnformat.verify.references import FileUse, TableUse
from txnformat.verify.report import ProblemKind, Record
from txnformat.verify.stored_runs import StoredRuns

__all__ = ["RESTORE_TABLE", "check_patiently", "check_table", "patiently", "size_of_unlisted"]

T = TypeVar("T")

WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Files up to this size are read in one piece; larger ones are read twice, the second time for their hash. A
larger file has at most as many bytes that are of no column chunk, or is not read whole: a sparse file of
terabytes must not be hashed for hours."""
PIECE_BYTES = 16 * 1024 * 1024
ROWS_MAX = 65_536

RESTORE_FILE = "restore the file from a copy; its records cannot be read without it"
RESTORE_TABLE = "restore the object from a copy; the data that it describes cannot be read without it"
_GONE = "a segment file that the log names is gone"
TEXTS_SHOWN = 5
"""Rows with invalid text that one problem names, from 0 in the file; the rest is counted."""
REPLACE_TEXT = (
    "Python's readers fail at these rows (Arrow and Spark hand them out): read the column as bytes, "
    'with table.column(name).cast("binary"), and write the repaired records again'
)
REPORT_BATCHES = "run no writer on this log before its cause is known"


def check_table(record: Record, use: TableUse, data: bytes) -> Rows | None:
    """Return the rows of a batch table, or note why there are none."""
    record.checked["tables"] += 1
    return decoded(record, use.record, data, RESTORE_TABLE, lambda data: decode_batch_table(data, use.record))


def patiently(clock: Clock, request: Callable[[], T]) -> T:
    """Return what ``request`` returns; a read that fails transiently is repeated."""
    for attempt in range(READ_ATTEMPTS_MAX - 1):
        try:
            return request()
        except StorageError as error:
            if not error.transient or error.patience_over:
                raise
        clock.sleep(READ_BACKOFF_MS * 2**attempt / 1000)
    return request()


def check_patiently(
    store: ObjectStore,
    clock: Clock,
    use: FileUse,
    sizes: Mapping[str, int],
    schema: pa.Schema | None,
    *,
    deep: bool,
) -> Record:
    """As :func:`check_file`; an object that the store fails to deliver is a problem, too."""
    try:
        return patiently(clock, lambda: check_file(store, use, sizes, schema, deep=deep))
    except StorageError as error:
        record = Record()
        record.add_error(ProblemKind.UNREADABLE, use.record.key, error)
        return record


def check_file(
    store: ObjectStore, use: FileUse, sizes: Mapping[str, int], schema: pa.Schema | None, *, deep: bool
) -> Record:
    """Return the findings about one segment file.

    ``sizes``: bytes of every object that there is. ``schema``: what the file must hold; None when nothing
    says it. ``deep``: read it all: its hash, every chunk's checksum, every record.

    Requests: 1 HEAD of a file that was not listed, 1 ranged GET for the footer; with ``deep`` 1 GET of the
    whole file instead, or, above 64 MiB, the whole file twice in ranged GETs: decoded first, then hashed,
    unless it cannot be decoded.
    """
    record = Record()
    file = use.record
    record.checked["files"] += 1
    record.checked["file_bytes"] += file.size
    size = sizes.get(file.key) if file.place is None else file.size
    if size is None:
        size = size_of_unlisted(record, store, file.key, _GONE, RESTORE_FILE)
    if size is None:
        pass  # that is noted
    elif size != file.size:
        what = "the file differs in size from its entry"
        record.add(ProblemKind.WRONG_SIZE, file.key, what, f"{file.size} bytes", size, RESTORE_FILE)
    else:
        try:
            _check_content(record, store, use, schema, deep=deep)
        except NotFoundError:
            record.add(ProblemKind.MISSING, file.key, _GONE, hint=RESTORE_FILE)
        except StorageError as error:
            if error.transient:
                raise  # the caller tries again
            record.add_error(ProblemKind.UNREADABLE, file.key, error)
        except FormatError as error:
            wrong_hash = isinstance(error, CorruptDataError) and "hash" in error.what
            kind = ProblemKind.WRONG_HASH if wrong_hash else decode_problem(error)
            record.add_error(kind, file.key, error, RESTORE_FILE)
        except TxnLogError as error:
            record.add_error(ProblemKind.UNDECODABLE, file.key, error, RESTORE_FILE)
    return record


def size_of_unlisted(record: Record, store: ObjectStore, key: str, gone: str, hint: str) -> int | None:
    """Return the bytes of an object that no listing had, or note why there are none: it is gone, or cannot be
    read.

    A listing passes over what the store would not read, such as a symbolic link: that is no loss, and nothing
    to restore.
    """
    try:
        found = store.head(key)
    except StorageError as error:
        if error.transient:
            raise  # the caller tries again
        record.add_error(ProblemKind.UNREADABLE, key, error)
        return None
    if found is None:
        record.add(ProblemKind.MISSING, key, gone, hint=hint)
        return None
    return found.size


def _check_content(
    record: Record, store: ObjectStore, use: FileUse, schema: pa.Schema | None, *, deep: bool
) -> None:
    file = use.record
    is_large = file.size > WHOLE_BYTES_MAX
    source = store
    if deep and not is_large:
        source = _in_memory(record, store, file)
        file = replace(file, key=own_key(file.key))
    if schema is None:
        schema = _own_schema(source, file)
    reader = SegmentFileReader(source, file, schema, threads=1, has_data=deep)
    counts = reader.row_group_counts()
    record.checked["row_groups"] += len(counts)
    _check_batches(record, use, counts)
    if deep and is_large:
        unused = file.size - file.footer_bytes - reader.chunk_bytes()
        if unused > WHOLE_BYTES_MAX:
            what = "most of the file belongs to no column chunk: it was not read"
            expected = f"at most {WHOLE_BYTES_MAX} such bytes"
            record.add(ProblemKind.UNDECODABLE, file.key, what, expected, unused, RESTORE_FILE)
            return
    if deep:
        rows = 0
        texts = _Texts()
        runs = StoredRuns(use, counts)
        for batch in reader.read(range(len(counts)), schema.names, ROWS_MAX):
            texts.look(batch, rows)
            runs.look(batch)
            rows += batch.num_rows
        runs.report(record)
        check_copied(record, store, reader, file.key, use.copies, schema)
        record.checked["records"] += rows
        texts.report(record, file.key)
    if deep and is_large:
        _check_hash(record, file, _pieces(store, file))


@dataclass(slots=True)
class _Texts:
    """Values of a file that should be text and are not UTF-8."""

    found: dict[str, list[str]] = field(default_factory=dict)
    """The values by column: a few, with their rows."""
    counts: Counter[str] = field(default_factory=Counter)

    def look(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Note those of a batch."""
        for bad in bad_texts(batch):
            self.counts[bad.column] += 1
            shown = self.found.setdefault(bad.column, [])
            if len(shown) < TEXTS_SHOWN:
                shown.append(f"row {first_row + bad.row} ({bad})")

    def report(self, record: Record, key: str) -> None:
        """Note a problem for each column."""
        for column, shown in sorted(self.found.items()):
            count = self.counts[column]
            rest = f" and {count - len(shown):,} more" if count > len(shown) else ""
            what = f"column {column!r:.300} holds text that is not UTF-8 in {', '.join(shown)}{rest}"
            record.add(ProblemKind.INVALID_TEXT, key, what, hint=REPLACE_TEXT)


def _in_memory(record: Record, store: ObjectStore, file: FileRecord) -> ObjectStore:
    """Return a store that holds the file, whose hash was compared."""
    data = store.get(file.key, file.size) if file.place is None else read_range(store, file, 0, file.size)
    if data is None:
        raise NotFoundError("no such object", store=store.url, object=file.key)
    _check_hash(record, file, [data])
    held = MemoryStore()
    held.put(own_key(file.key), data)
    return held


def _check_hash(record: Record, file: FileRecord, pieces: Iterable[bytes]) -> None:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    record.checked["bytes_read"] += file.size
    if digest.hexdigest() != file.sha256:
        what = "the file differs in hash from its entry"
        record.add(ProblemKind.WRONG_HASH, file.key, what, file.sha256, digest.hexdigest(), RESTORE_FILE)


def _pieces(store: ObjectStore, file: FileRecord) -> Iterator[bytes]:
    for start in range(0, file.size, PIECE_BYTES):
        yield range_of(store, file.key, start, min(PIECE_BYTES, file.size - start), file.size)


def _own_schema(store: ObjectStore, file: FileRecord) -> pa.Schema:
    """Return the schema that a file has, when nothing says which it should have."""
    data = read_range(store, file, file.size - file.footer_bytes, file.footer_bytes)
    digest = hashlib.sha256(data).hexdigest()
    if digest != file.footer_sha256:
        what = "the footer of a segment file has another hash"
        raise CorruptDataError(what, object=file.key, expected=file.footer_sha256, got=digest)
    try:
        return decode_schema(data)
    except FooterError as error:
        raise CorruptDataError(
            error.what, object=file.key, expected=str(error.expected), got=str(error.got)
        ) from error


def _check_batches(record: Record, use: FileUse, counts: list[int]) -> None:
    """Compare the row groups of a file with the batches that entries say are in it."""
    runs = sorted(use.batches)
    for earlier, later in pairwise(runs):
        if later.row_group < earlier.row_group + earlier.row_group_count:
            what = "two batches share a row group"
            record.add(ProblemKind.BATCHES, use.record.key, what, earlier, later, REPORT_BATCHES)
    for run in runs:
        groups = counts[run.row_group : run.row_group + run.row_group_count]
        if len(groups) != run.row_group_count or sum(groups) != run.records:
            what = (
                f"row groups {run.row_group} to {run.row_group + run.row_group_count - 1} differ from "
                "their batch"
            )
            got = f"{sum(groups)} records in {len(groups)} row groups"
            expected = f"{run.records} records in {run.row_group_count} row groups"
            record.add(ProblemKind.BATCHES, use.record.key, what, expected, got, REPORT_BATCHES)
