"""Sidecars of a sealed segment: ``.index`` and ``.markers`` as Arrow files, ``.txnindex`` in Kafka's format.

Pure.

``.index`` has a row per batch and stands for itself: with it and the segment files that it names, every
record of its offsets can be read at either isolation level. ``.txnindex`` holds Kafka's 34-byte entries
(:mod:`txnformat.core.transactions.abort_index`), the entries of one partition after those of the other; for
one partition it is what a Kafka broker would have written. A ``.index``'s ``outcome`` is what the heap over
``.txnindex`` gives.

A compacted segment has a ``.runs`` in place of these, with a row per run of row groups: its files say the
rest about each record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.columns.arrow_file import decode_arrow_file, encode_arrow_file, rows_of
from txnformat.core.entry import difference
from txnformat.core.transactions.abort_index import ENTRY_BYTES, AbortedTransaction, decode, encode
from txnformat.errors import CorruptDataError, InternalError
from txnformat.field_types import INT64_MAX
from txnformat.persistent import Rows
from txnformat.types import FileRecord, ObjectRecord, OffsetRange

__all__ = [
    "COMPACTED_FILES",
    "INDEX_ROW",
    "INDEX_SCHEMA",
    "MARKERS_SCHEMA",
    "MARKER_ROW",
    "RUNS_SCHEMA",
    "RUN_ROW",
    "BatchOutcome",
    "SegmentIndex",
    "compacted_number",
    "decode_index",
    "decode_markers",
    "decode_txnindex",
    "encode_index",
    "encode_markers",
    "encode_runs",
    "encode_txnindex",
]


class BatchOutcome(IntEnum):
    """The outcome of a batch."""

    PLAIN = 0
    """Appended outside of a transaction: committed with its entry."""
    COMMITTED = 1
    ABORTED = 2


INDEX_ROW: np.dtype[Any] = np.dtype(
    [
        ("partition", "<i4"),
        ("outcome", "<i4"),  # BatchOutcome
        ("base_offset", "<i8"),
        ("records", "<i8"),
        ("producer_id", "<i8"),  # -1: no producer
        ("epoch", "<i8"),
        ("base_sequence", "<i8"),
        ("transactional", "<i4"),
        ("row_group", "<i4"),
        ("row_group_count", "<i4"),
        ("file", "<i8"),  # number of the segment file, counted over the whole life of the log
        ("size", "<i8"),
        ("min_timestamp_ms", "<i8"),
        ("max_timestamp_ms", "<i8"),
        ("entry", "<i8"),  # of the append
        ("timestamp_ms", "<i8"),  # log time of that entry
        ("commit_entry", "<i8"),  # of the commit (the append's without a transaction); -1: aborted
    ]
)
MARKER_ROW: np.dtype[Any] = np.dtype(
    [
        ("partition", "<i4"),
        ("commit", "<i4"),  # 1 commit, 0 abort (Kafka's control types)
        ("offset", "<i8"),
        ("producer_id", "<i8"),
        ("epoch", "<i8"),
        ("entry", "<i8"),
        ("timestamp_ms", "<i8"),
    ]
)
RUN_ROW: np.dtype[Any] = np.dtype(
    [
        ("partition", "<i4"),
        ("row_group", "<i4"),
        ("row_group_count", "<i4"),
        ("start_offset", "<i8"),  # of the first record
        ("end_offset", "<i8"),  # behind the last record
        ("records", "<i8"),  # at most as many as offsets: markers and aborted records are left out
        ("file", "<i8"),  # number of the file, from 0 in this object
        ("size", "<i8"),
        ("min_timestamp_ms", "<i8"),  # of the records, as in an INDEX_ROW
        ("max_timestamp_ms", "<i8"),
        ("min_entry", "<i8"),  # of the appends
        ("max_entry", "<i8"),
        ("min_commit_entry", "<i8"),
        ("max_commit_entry", "<i8"),
        ("min_log_ms", "<i8"),  # log time of the appends
        ("max_log_ms", "<i8"),
    ]
)
"""Committed records of one partition in a compacted file, which has their offsets and the rest in columns of
its own."""
_FILE_FIELDS = {
    f"file_{name}": pa.string() if name == "key" or name.endswith("sha256") else pa.int64()
    for name in FileRecord.__struct_fields__
}


def _schema(dtype: np.dtype[Any], files: bool) -> pa.Schema:
    columns = [pa.field(name, pa.from_numpy_dtype(dtype[name]), nullable=False) for name in dtype.names or ()]
    if files:
        columns += [
            pa.field(
                name, pa.dictionary(pa.int32(), kind) if pa.types.is_string(kind) else kind, nullable=False
            )
            for name, kind in _FILE_FIELDS.items()
        ]
    return pa.schema(columns)


INDEX_SCHEMA = _schema(INDEX_ROW, files=True)
RUNS_SCHEMA = _schema(RUN_ROW, files=True)
MARKERS_SCHEMA = _schema(MARKER_ROW, files=False)
COMPACTED_FILES = 2**62
"""Files of compacted segments have numbers from here on (inclusive), made from their keys; appended ones
lower ones."""


class SegmentIndex:
    """A decoded ``.index`` or ``.runs``: rows ascending by partition, then offset; files by the numbers in
    their column ``file``.
    """

    __slots__ = ("_rows", "files", "is_compacted")

    def __init__(self, rows: Rows, files: Mapping[int, FileRecord]) -> None:
        self._rows = rows
        self.files = files
        self.is_compacted = rows.dtype == RUN_ROW

    @property
    def rows(self) -> Rows:
        """The rows of an ``.index``, of dtype INDEX_ROW: a batch each."""
        self._check(compacted=False)
        return self._rows

    @property
    def runs(self) -> Rows:
        """The rows of a ``.runs``, of dtype RUN_ROW."""
        self._check(compacted=True)
        return self._rows

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return int(self._rows.nbytes)

    def partition(self, number: int) -> Rows:
        """Return the batches of one partition, ascending by offset."""
        self._check(compacted=False)
        return self._of(number)

    def runs_of(self, number: int, within: OffsetRange) -> Rows:
        """Return the runs of one partition with offsets in a range, ascending: a ``.runs`` may be that of
        several parts of it.
        """
        self._check(compacted=True)
        runs = self._of(number)
        found: Rows = runs[(runs["end_offset"] > within.start) & (runs["start_offset"] < within.end)]
        return found

    def newest_entry(self, number: int, within: OffsetRange) -> int:
        """Return the newest entry that appended a record of one partition; -1: there is none.

        ``within``: the offsets that a ``.runs`` is asked for.
        """
        if self.is_compacted:
            return int(self.runs_of(number, within)["max_entry"].max(initial=-1))
        return int(self.partition(number)["entry"].max(initial=-1))

    def newest_commit(self, number: int, within: OffsetRange) -> int:
        """Return the newest entry that committed a record of one partition in a range; -1: none did.

        Of a run that the range cuts, all records count.
        """
        if self.is_compacted:
            return int(self.runs_of(number, within)["max_commit_entry"].max(initial=-1))
        rows = self.partition(number)
        return int(rows["commit_entry"][rows["base_offset"] < within.end].max(initial=-1))

    def log_times(self, number: int, within: OffsetRange) -> tuple[int, int]:
        """Return the log times of the first and the last append of one partition.

        ``within``: the offsets that a ``.runs`` is asked for.
        """
        rows = self.rows_of(number, within)
        names = ("min_log_ms", "max_log_ms") if self.is_compacted else ("timestamp_ms", "timestamp_ms")
        first, last = (rows[name] for name in names)
        return int(first.min(initial=INT64_MAX)), int(last.max(initial=0))

    def rows_of(self, number: int, within: OffsetRange) -> Rows:
        """Return the batches of one partition, or its runs in a range, ascending."""
        return self.runs_of(number, within) if self.is_compacted else self.partition(number)

    def rows_from(self, number: int, within: OffsetRange, start: int) -> Rows:
        """Return :meth:`rows_of` without those that end at an offset or before it."""
        rows = self.rows_of(number, within)
        ends = rows["end_offset"] if self.is_compacted else rows["base_offset"] + rows["records"]
        found: Rows = rows[ends > start]
        return found

    def _of(self, number: int) -> Rows:
        first, last = np.searchsorted(self._rows["partition"], [number, number + 1])
        found: Rows = self._rows[first:last]
        return found

    def _check(self, *, compacted: bool) -> None:
        if self.is_compacted != compacted:
            raise InternalError("a segment is not read as what it is", is_compacted=self.is_compacted)


def encode_index(rows: Rows, files: Mapping[int, FileRecord]) -> bytes:
    """Return the bytes of an ``.index``: an Arrow IPC file of one record batch, compressed with zstd.

    ``rows`` (INDEX_ROW) ascend by partition, then offset; ``files`` are those that they name.
    """
    return _encode_files(rows, files, INDEX_SCHEMA)


def encode_runs(rows: Rows, files: Mapping[int, FileRecord]) -> bytes:
    """Return the bytes of a ``.runs``; ``rows`` are of dtype RUN_ROW, otherwise as :func:`encode_index`."""
    return _encode_files(rows, files, RUNS_SCHEMA)


def _encode_files(rows: Rows, files: Mapping[int, FileRecord], schema: pa.Schema) -> bytes:
    numbers, places = np.unique(rows["file"], return_inverse=True)
    records = [files[int(number)] for number in numbers]
    arrays = _arrays(rows)
    for name, kind in _FILE_FIELDS.items():
        values = pa.array([getattr(record, name.removeprefix("file_")) for record in records], kind)
        if pa.types.is_string(kind):
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), values))
        else:
            arrays.append(values.take(pa.array(places)))
    return encode_arrow_file(pa.record_batch(arrays, schema=schema))


def encode_markers(rows: Rows) -> bytes:
    """Return the bytes of a ``.markers``: an Arrow IPC file; rows (dtype MARKER_ROW) by partition, then
    offset.
    """
    return encode_arrow_file(pa.record_batch(_arrays(rows), schema=MARKERS_SCHEMA))


def encode_txnindex(partitions: Iterable[Sequence[AbortedTransaction]]) -> bytes:
    """Return the bytes of a ``.txnindex``: of each partition in turn, its entries in the order of their
    markers.
    """
    return b"".join(encode(entries) for entries in partitions)


def _arrays(rows: Rows) -> list[Any]:
    return [pa.array(np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()]


def decode_index(data: bytes | None, named: ObjectRecord) -> SegmentIndex:
    """Return what an ``.index`` or a ``.runs`` holds, as its key says, verified against what the log says
    first.

    Raises CorruptDataError: it is missing, not the object that was named, or not such a file.
    """
    if keys.is_runs_key(named.key):
        return _decode_runs(data, named)
    table = decode_arrow_file(_verified(data, named), INDEX_SCHEMA, partial(_corrupt, named))
    rows = rows_of(table, INDEX_ROW)
    order = np.diff(rows["partition"].astype(np.int64))
    if np.any(order < 0) or np.any(np.diff(rows["base_offset"])[order == 0] <= 0):
        raise _corrupt(named, "its rows are not in the order of partitions and offsets")
    if len(rows) and (rows["records"].min() < 1 or rows["row_group_count"].min() < 1):
        raise _corrupt(named, "a batch is empty")
    if len(rows) and not 0 <= rows["outcome"].min() <= rows["outcome"].max() <= max(BatchOutcome):
        raise _corrupt(named, "a batch has an unknown outcome")
    return SegmentIndex(rows, _files(table, rows, named))


def _decode_runs(data: bytes | None, named: ObjectRecord) -> SegmentIndex:
    table = decode_arrow_file(_verified(data, named), RUNS_SCHEMA, partial(_corrupt, named))
    rows = rows_of(table, RUN_ROW)
    order = np.diff(rows["partition"].astype(np.int64))
    if np.any(order < 0) or np.any((rows["start_offset"][1:] < rows["end_offset"][:-1])[order == 0]):
        raise _corrupt(named, "its rows are not in the order of partitions and offsets")
    least = {"row_group": 0, "row_group_count": 1, "start_offset": 0, "records": 1, "min_entry": 0}
    if len(rows) and (
        any(rows[name].min() < value for name, value in least.items())
        or np.any(rows["records"] > rows["end_offset"] - rows["start_offset"])
        or np.any(rows["min_entry"] > rows["min_commit_entry"])
        or any(
            np.any(rows[f"min_{name}"] > rows[f"max_{name}"])
            for name in ("entry", "commit_entry", "timestamp_ms", "log_ms")
        )
    ):
        raise _corrupt(named, "a run is empty, or has bounds that cannot be")
    files: dict[int, FileRecord] = {}
    numbers = {}
    name = keys.parse_runs_key(named.key)
    assert name is not None  # its key says that it is one
    for number, record in _files(table, rows, named).items():
        if name.born > keys.born_of(
            record.key
        ):  # a vacuum would take the file for garbage while the object may be named
            raise _corrupt(named, f"it is younger than its file {record.key}")
        numbers[number] = compacted_number(record)
        files[numbers[number]] = record
    if len(files) < len(numbers):
        raise _corrupt(named, "two of its files have one key")
    renumbered = rows.copy()
    renumbered["file"] = [numbers[number] for number in rows["file"].tolist()]
    renumbered.flags.writeable = False
    return SegmentIndex(renumbered, files)


def compacted_number(file: FileRecord) -> int:
    """Return the number that the file of a compacted segment has in plans: from its key, which no other file
    has.
    """
    name = keys.parse_data_key(file.key)
    assert name is not None  # the key was checked
    return COMPACTED_FILES | (int(name.uuid.replace("-", ""), 16) % COMPACTED_FILES)


def _files(table: pa.Table, rows: Rows, named: ObjectRecord) -> dict[int, FileRecord]:
    """Return the files that rows name, by their numbers there."""
    numbers, first = np.unique(rows["file"], return_index=True)
    texts = table.column("file_key").chunk(0).dictionary
    if len(numbers) > len(texts):
        raise _corrupt(named, f"{len(numbers)} files with {len(texts)} keys")
    names = FileRecord.__struct_fields__
    columns = [_file_values(table.column(name).chunk(0), first) for name in _FILE_FIELDS]
    try:
        records = [
            msgspec.convert(dict(zip(names, values, strict=True)), FileRecord)
            for values in zip(*columns, strict=True)
        ]
    except msgspec.ValidationError as error:
        raise _corrupt(named, f"a file record is invalid: {error}") from None
    for key in {record.key for record in records}:
        keys.check_key(key, keys.parse_data_key, where=named.key)
        keys.check_topics_file(key, named.key.partition("/")[0], where=named.key)
    return dict(zip(numbers.tolist(), records, strict=True))


def _file_values(column: Any, places: Any) -> list[Any]:
    """Return the values of a column at some places, each text made once."""
    found = column.take(pa.array(places))
    if not pa.types.is_dictionary(column.type):
        values: list[Any] = found.to_pylist()
        return values
    texts = found.dictionary.to_pylist()
    return [texts[index] for index in found.indices.to_pylist()]


def decode_markers(data: bytes | None, named: ObjectRecord) -> Rows:
    """Return the rows (dtype MARKER_ROW) of a ``.markers``, verified as in :func:`decode_index`."""
    return rows_of(
        decode_arrow_file(_verified(data, named), MARKERS_SCHEMA, partial(_corrupt, named)), MARKER_ROW
    )


def decode_txnindex(
    data: bytes | None, named: ObjectRecord, first: int, count: int
) -> list[AbortedTransaction]:
    """Return ``count`` entries from entry ``first`` (from 0) on of a ``.txnindex``, verified as a whole."""
    data = _verified(data, named)
    if len(data) < (first + count) * ENTRY_BYTES:
        raise _corrupt(named, "it has fewer entries than the log says")
    return decode(data[first * ENTRY_BYTES : (first + count) * ENTRY_BYTES], name=named.key)


def _verified(data: bytes | None, named: ObjectRecord) -> bytes:
    got = difference(data, named)
    if data is None or got is not None:
        raise CorruptDataError(
            "a sidecar of a sealed segment differs from the one that the log names",
            kind="corrupt-sidecar",
            hint="restore the object from a copy; the rest of the log can be read and written",
            object=named.key,
            expected=f"{named.size} bytes, sha256 {named.sha256}",
            got=got,
        )
    return data


def _corrupt(named: ObjectRecord, got: str) -> CorruptDataError:
    return CorruptDataError(
        "a sidecar of a sealed segment cannot be decoded",
        kind="corrupt-sidecar",
        hint="run no writer on this log before its cause is known",
        object=named.key,
        got=got,
    )
