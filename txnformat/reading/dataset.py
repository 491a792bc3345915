"""A planned read as a ``pyarrow.dataset.Dataset``: for engines that bring their own Parquet reader.

Each file that the plan touches is a fragment of exactly the planned row groups, so what is aborted, open or
out of range is never read. A row group of which the range takes only a part is read at once and becomes a
table in memory: at most two for each partition. So is all that is read of a file in which the columns have
other names than now: the engine looks for columns by their names. Columns and conditions that the engine
pushes down reach Parquet.

Not checked here, other than by :meth:`TxnLog.read`: the hash of a footer and the checksums of column chunks.
The page checksums are, while decoding.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from txnformat.arguments import is_utf8
from txnformat.columns.file_columns import FileColumns
from txnformat.core.records.scan import Stored
from txnformat.errors import ConflictError, InvalidInputError, NotFoundError, repr_of
from txnformat.file_urls import file_path
from txnformat.forking import renew_after_fork
from txnformat.persistent import Rows
from txnformat.reading.open_files import KEPT_BYTES_MAX
from txnformat.reading.plan import ReadPlan
from txnformat.reading.row_groups import by_row_group
from txnformat.reading.rows import METADATA_FIELDS, output_schema, read_rows
from txnformat.reading.stored_rows import stored_schema
from txnformat.segments.ranged_file import SeekableFile
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.segment_object import SMALL_FILE_BYTES
from txnformat.store.base import ObjectStore, range_of
from txnformat.store.local import LocalStore
from txnformat.types import FileRecord

__all__ = ["LogDataset", "plan_dataset"]

PARTITION = "_partition"
"""The one metadata column that a dataset can have: files do not hold the others."""

RENAMED_BYTES_MAX = 256 * 2**20
"""Most bytes (inclusive) of files that are read into memory because their columns have other names."""

ROW_GROUPS_TRUSTED = 10_000
"""A run with a row group from here on (inclusive) is compared with the footer before its numbers are listed.
"""


class LogDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that counts its own rows.

    pyarrow counts all rows of a file when a fragment is only some of its row groups and no column decides. A
    scanner of this dataset still does: count with :meth:`count_rows`, or count what is scanned.
    """

    def count_rows(self, filter: Any = None, **options: Any) -> int:  # pyarrow's name
        """Return the number of rows that a scan gives. Fetches footers, and what the filter needs."""
        scanned = self.to_batches(columns=[], filter=filter, **options)
        return sum(batch.num_rows for batch in scanned)

    def __reduce__(self) -> tuple[Any, ...]:
        return LogDataset, (self.schema, self.children)


class _Piece(NamedTuple):
    """Rows of a plan in one file."""

    partition: int
    rows: Rows
    is_whole: bool
    """Whether all records of these row groups are taken, as they are; else they are read at once: one row
    group of which some are taken, or a file with other names of columns."""
    is_renamed: bool
    """Whether they are read at once because of the names."""


def plan_dataset(
    store: ObjectStore, plan: ReadPlan, columns: Sequence[str] | None, *, may_be_cut: bool = True
) -> LogDataset:
    """Return what a plan reads as a dataset, pinned to the plan's entry.

    ``may_be_cut``: whether the plan may end within a batch: it does not where it ends at the end of what can
    be read. ``columns``: the topic's own columns, and ``_partition``; None for all of its own. Raises
    InvalidInputError: kind ``unsupported-column``: a metadata column, in ``columns`` or in the plan's
    condition, that a file does not hold; or the condition needs a column that ``columns`` leaves out.

    Requests: none, but for clipped row groups: their footer and their chunks of ``columns``; for each
    embedded file 1 GET; and for files with more than 10,000 row groups: their footer. A scan costs 1 GET for
    a file of up to 256 KiB; files of which it reads batches of several partitions are kept for them, up to 64
    MiB.
    """
    schema = output_schema(plan.topic.schema, columns)
    _check_columns(plan, schema.names)
    format_ = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            pre_buffer=True, page_checksum_verification=True
        )
    )
    found = list(_pieces(store, plan, may_be_cut, schema.names))
    _check_renamed(plan, found)
    uses = Counter(int(piece.rows["file"][0]) for piece in found if piece.is_whole)
    several = frozenset(plan.files[file].key for file, count in uses.items() if count > 1)
    objects = {file.key: file.size for file in plan.files.values() if file.place is None}
    system = _file_system(store, objects, several)
    children: list[Any] = []
    for is_whole, pieces in groupby(found, lambda piece: piece.is_whole):
        if is_whole:
            fragments = [_fragment(store, format_, system, plan, piece) for piece in pieces]
            children.append(ds.FileSystemDataset(fragments, schema, format_, system))
        else:
            children.append(
                ds.dataset(pa.concat_tables(_table(store, plan, piece, schema) for piece in pieces))
            )
    union = LogDataset(schema, children or [ds.dataset(schema.empty_table())])
    return union if plan.where is None else union.filter(plan.where.expression())


def _fragment(store: ObjectStore, format_: Any, system: Any, plan: ReadPlan, piece: _Piece) -> Any:
    file = plan.files[int(piece.rows["file"][0])]
    last = int(piece.rows["row_group"][-1]) + int(piece.rows["row_group_count"][-1]) - 1
    if last >= ROW_GROUPS_TRUSTED:
        columns = _columns(plan, file, is_stored=bool(piece.rows["stored"][0]))
        segment = SegmentFileReader(store, file, columns, has_data=False)
        segment.check_row_groups((last,))
    groups = [
        number
        for first, count in zip(
            piece.rows["row_group"].tolist(), piece.rows["row_group_count"].tolist(), strict=True
        )
        for number in range(first, first + count)
    ]
    # A condition that the engine may take for granted of every row; where the schema has the column, it is
    # its value.
    guarantee = pc.field(PARTITION) == pa.scalar(piece.partition, METADATA_FIELDS[PARTITION].type)
    return format_.make_fragment(file.key, system, guarantee, row_groups=groups)


def _table(store: ObjectStore, plan: ReadPlan, piece: _Piece, schema: pa.Schema) -> pa.Table:
    topic = plan.topic
    file_of = plan.files.__getitem__
    batches = read_rows(store, topic.name, topic.schema, piece.partition, piece.rows, file_of, schema.names)
    return pa.Table.from_batches(list(batches), schema)


def _check_columns(plan: ReadPlan, names: Sequence[str]) -> None:
    needed = plan.where.columns if plan.where is not None else ()
    problems = [
        f"a dataset has no column {repr_of(name)}: files do not hold it"
        for name in dict.fromkeys((*names, *needed))
        if name in METADATA_FIELDS and name != PARTITION
    ]
    problems += [
        f"the condition needs column {repr_of(name)}, which columns leaves out"
        for name in needed
        if name not in names and (name not in METADATA_FIELDS or name == PARTITION)
    ]
    if problems:
        raise InvalidInputError(
            problems,
            kind="unsupported-column",
            hint="name the columns that the condition needs, give offsets as start and end, or use log.read",
        )


def _columns(plan: ReadPlan, file: FileRecord, *, is_stored: bool) -> FileColumns:
    schema = plan.topic.schema
    return stored_schema(schema, file) if is_stored else schema.of_file(file)


def _check_renamed(plan: ReadPlan, pieces: Sequence[_Piece]) -> None:
    """Raise ConflictError of kind ``renamed-columns`` if more is read into memory than that is for, because
    of names.
    """
    files = {int(piece.rows["file"][0]) for piece in pieces if piece.is_renamed}
    size = sum(plan.files[file].size for file in files)
    if size > RENAMED_BYTES_MAX:
        raise ConflictError(
            f"{len(files)} files of {size} bytes were written before a column was renamed or dropped, and "
            "a dataset reads such files into memory",
            kind="renamed-columns",
            hint="compact the topic first, which rewrites them, or ask for columns that kept their names; "
            "log.read needs no compaction",
            topic=plan.topic.name,
            maximum=RENAMED_BYTES_MAX,
        )


def _pieces(store: ObjectStore, plan: ReadPlan, may_be_cut: bool, columns: Sequence[str]) -> Iterator[_Piece]:
    """Yield the plan's rows in runs of one file, with clipped row groups, and those of files with other names
    of columns, apart from the others.
    """
    for part in plan.partitions:
        parts: list[Rows] = []
        flags: list[npt.NDArray[np.bool_]] = []
        ends = part.rows["base_offset"] + part.rows["take"]
        doubtful = (part.rows["skip"] > 0) | ((ends == part.range.end) & may_be_cut)
        doubtful &= part.rows["stored"] == Stored.NO
        for run in np.split(np.arange(len(doubtful)), np.flatnonzero(np.diff(doubtful)) + 1):
            rows = part.rows[run]
            is_whole = (rows["stored"] == Stored.NO) | (rows["stored"] == Stored.WHOLE)
            if len(rows) and doubtful[run[0]]:
                rows, is_whole = _split(store, plan, rows)
            parts.append(rows)
            flags.append(is_whole)
        rows, is_whole = np.concatenate(parts), np.concatenate(flags)
        is_whole &= np.array([plan.files[file].place is None for file in rows["file"].tolist()], np.bool_)
        is_renamed = _renamed(plan, rows, columns) & is_whole
        is_whole &= ~is_renamed
        last = rows["row_group"].astype(np.int64) + rows["row_group_count"]
        breaks = (
            (rows["file"][1:] != rows["file"][:-1])
            | (rows["row_group"][1:] < last[:-1])
            | ~is_whole[1:]
            | ~is_whole[:-1]
        )
        for run in np.split(np.arange(len(rows)), np.flatnonzero(breaks) + 1):
            if len(run):
                yield _Piece(part.partition, rows[run], bool(is_whole[run[0]]), bool(is_renamed[run[0]]))


def _renamed(plan: ReadPlan, rows: Rows, columns: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return of which rows the file has one of the columns under another name, or another column under one of
    these names.
    """
    schema = plan.topic.schema
    if not (schema.places or schema.later_places):
        return np.zeros(len(rows), np.bool_)  # no column has had two names
    known: dict[tuple[int, bool], bool] = {}
    found = []
    for number, stored in zip(rows["file"].tolist(), (rows["stored"] != Stored.NO).tolist(), strict=True):
        file = plan.files[number]
        kind = (file.schema_id, stored)
        if kind not in known:
            known[kind] = not _columns(plan, file, is_stored=stored).has_own_names(columns)
        found.append(known[kind])
    return np.array(found, np.bool_)


def _split(store: ObjectStore, plan: ReadPlan, rows: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return planned rows by row group, and of which of them all records are taken. Requests: the footers."""
    parts: list[Rows] = []
    flags: list[bool] = []
    for index in range(len(rows)):
        file = plan.files[int(rows["file"][index])]
        segment = SegmentFileReader(store, file, plan.topic.schema.of_file(file), has_data=False)
        split = by_row_group(rows[index : index + 1], segment)
        parts.append(split)
        flags += [
            segment.row_group_rows(group) == take
            for group, take in zip(split["row_group"].tolist(), split["take"].tolist(), strict=True)
        ]
    return np.concatenate(parts), np.array(flags, np.bool_)


def _file_system(store: ObjectStore, sizes: Mapping[str, int], several: AbstractSet[str]) -> Any:
    """Return a ``pyarrow.fs.FileSystem`` whose paths are the store's keys.

    No request, but on a local disk one ``head`` for each object.

    ``sizes`` has the bytes of each object that may be read, by key: so nothing has to be asked before a read.
    ``several``: keys that a scan reads several times.
    """
    if isinstance(store, LocalStore) and is_utf8(root := file_path(store.url)):
        # pyarrow's own readers need no lock of Python's; they take no other paths.
        for key in sizes:
            store.head(key)  # they open whatever is there: a link to anywhere, or a pipe for which they wait
        return pafs.SubTreeFileSystem(root, pafs.LocalFileSystem())
    return pafs.PyFileSystem(_Handler(store, sizes, several))


class _Object(SeekableFile):
    """An object as ``pyarrow.PythonFile`` reads it; each read is one ranged GET, of a small file the first
    one only.

    Opening it makes no request: Arrow opens one file after the other, and reads several at a time.
    """

    def __init__(self, store: ObjectStore, key: str, size: int, small: _SmallFiles) -> None:
        self._store = store
        self._key = key
        self._small = small
        self._whole: bytes | None = None
        super().__init__(size)

    def read(self, nbytes: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if nbytes < 0 else min(nbytes, left)
        if not count:
            return b""
        if self._size <= SMALL_FILE_BYTES:
            if self._whole is None:
                self._whole = self._small.get(self._key, self._size)
            data = self._whole[self._position : self._position + count]
        else:
            data = _fetched(self._store, self._key, self._position, count, self._size)
        self._position += count
        return data

    def close(self) -> None:
        super().close()
        self._whole = None

    def size(self) -> int:
        return self._size


def _fetched(store: ObjectStore, key: str, start: int, length: int, size: int) -> bytes:
    try:
        return range_of(store, key, start, length, size)
    except NotFoundError as error:
        raise NotFoundError(
            "a segment file that the log names is gone",
            kind="segment-file-missing",
            hint="it was deleted outside txnlog, or by a vacuum after the dataset was made: make it again",
            store=store.url,
            object=key,
        ) from error


class _SmallFiles:
    """Small files of a dataset, each fetched whole.

    Those that a scan reads several times are kept, as far as there is room.

    Arrow's threads call it. A copy in another process begins without any.
    """

    def __init__(self, store: ObjectStore, several: AbstractSet[str]) -> None:
        self._store = store
        self._several = several
        self.renew()
        renew_after_fork(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _SmallFiles, (self._store, self._several)

    def renew(self) -> None:
        """Begin anew: a forked child does not have the threads that fetch."""
        self._lock = threading.Lock()
        self._bytes = 0
        self._kept: dict[str, Future[bytes]] = {}

    def get(self, key: str, size: int) -> bytes:
        """Return a file. Requests: 1 GET, none when it is kept, or another thread fetches it just now."""
        if key not in self._several:
            return _fetched(self._store, key, 0, size, size)
        with self._lock:
            kept = self._kept.get(key)
            mine: Future[bytes] | None = None
            if kept is None and self._bytes + size <= KEPT_BYTES_MAX:
                mine = self._kept[key] = Future()
                self._bytes += size
        if kept is not None:
            return kept.result()
        if mine is None:
            return _fetched(self._store, key, 0, size, size)
        try:
            data = _fetched(self._store, key, 0, size, size)
        except BaseException as error:
            with self._lock:
                del self._kept[key]
                self._bytes -= size
            mine.set_exception(error)
            raise
        mine.set_result(data)
        return data


class _Handler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The calls that pyarrow makes to a file system; known files can be read, and nothing else."""

    def __init__(self, store: ObjectStore, sizes: Mapping[str, int], several: AbstractSet[str]) -> None:
        self._store = store
        self._sizes = sizes
        self._small = _SmallFiles(store, several)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Handler) and other._store is self._store and other._sizes == self._sizes

    def __hash__(self) -> int:
        return hash(id(self._store))

    def get_type_name(self) -> str:
        return "txnlog"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        return [
            pafs.FileInfo(path, pafs.FileType.File, size=self._sizes[path])
            if path in self._sizes
            else pafs.FileInfo(path, pafs.FileType.NotFound)
            for path in paths
        ]

    def open_input_file(self, path: str) -> Any:
        return pa.PythonFile(_Object(self._store, path, self._sizes[path], self._small), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("files of a log can only be read by key")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = (
        _refuse
    )
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
