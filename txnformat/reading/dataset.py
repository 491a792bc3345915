"""A planned read as a ``pyarrow.dataset.Dataset``: for engines that bring their own Parquet reader.

Each file that the plan touches is a fragment of exactly the planned row groups, so what is aborted, open or out of
range is never read. A row group of which the range takes only a part is read at once and becomes a table in memory:
at most two for each partition. What the engine pushes down (columns, conditions) reaches Parquet.

Not checked here, other than by :meth:`TxnLog.read`: the hash of a footer and the checksums of column chunks. The
page checksums are, while decoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from txnformat.core.records.scan import Stored
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnformat.persistent import Rows
from txnformat.reading.plan import ReadPlan
from txnformat.reading.row_groups import by_row_group
from txnformat.reading.rows import METADATA_FIELDS, output_schema, read_rows
from txnformat.reading.stored_rows import stored_schema
from txnformat.segments.ranged_file import SeekableFile
from txnformat.segments.reader import SegmentFileReader
from txnformat.store.base import ObjectStore
from txnformat.store.local import LocalStore

__all__ = ["LogDataset", "plan_dataset"]

PARTITION = "_partition"
"""The one metadata column that a dataset can have: files do not hold the others."""

ROW_GROUPS_TRUSTED = 10_000
"""A run with a row group from here on (inclusive) is compared with the footer before its numbers are listed."""


class LogDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """A dataset that counts its own rows.

    pyarrow counts all rows of a file when a fragment is only some of its row groups and no column decides. A scanner
    of this dataset still does: count with :meth:`count_rows`, or count what is scanned.
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
    """Whether all records of these row groups are taken; else it is one row group of which some are."""


def plan_dataset(
    store: ObjectStore, plan: ReadPlan, columns: Sequence[str] | None, *, may_be_cut: bool = True
) -> LogDataset:
    """Return what a plan reads as a dataset, pinned to the plan's entry.

    ``may_be_cut``: whether the plan may end within a batch: it does not where it ends at the end of what can be read.
    ``columns``: the topic's own columns, and ``_partition``; None for all of its own. Raises InvalidInputError: kind
    ``unsupported-column``: a metadata column, in ``columns`` or in the plan's condition, that a file does not hold; or the
    condition needs a column that ``columns`` leaves out.

    Requests: none, but for clipped row groups: their footer and their chunks of ``columns``; and for files with more than
    10,000 row groups: their footer.
    """
    schema = output_schema(plan.topic.schema, columns)
    _check_columns(plan, schema.names)
    format_ = ds.ParquetFileFormat(
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(
            pre_buffer=True, page_checksum_verification=True
        )
    )
    system = _file_system(store, {file.key: file.size for file in plan.files.values()})
    children: list[Any] = []
    for is_whole, pieces in groupby(_pieces(store, plan, may_be_cut), lambda piece: piece.is_whole):
        if is_whole:
            fragments = [_fragment(store, format_, system, plan, piece) for piece in pieces]
            children.append(ds.FileSystemDataset(fragments, schema, format_, system))
        else:
            children += [ds.dataset(_table(store, plan, piece, schema)) for piece in pieces]
    found = LogDataset(schema, children or [ds.dataset(schema.empty_table())])
    return found if plan.where is None else found.filter(plan.where.expression())


def _fragment(store: ObjectStore, format_: Any, system: Any, plan: ReadPlan, piece: _Piece) -> Any:
    file = plan.files[int(piece.rows["file"][0])]
    last = int(piece.rows["row_group"][-1]) + int(piece.rows["row_group_count"][-1]) - 1
    if last >= ROW_GROUPS_TRUSTED:
        schema = plan.topic.schema
        columns = stored_schema(schema, file) if piece.rows["stored"][0] else schema.of_file(file)
        segment = SegmentFileReader(store, file, columns)
        segment.check_row_groups((last,))
    groups = [
        number
        for first, count in zip(
            piece.rows["row_group"].tolist(), piece.rows["row_group_count"].tolist(), strict=True
        )
        for number in range(first, first + count)
    ]
    # What the engine may take for granted of every row; where the schema has the column, it is its value.
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


def _pieces(store: ObjectStore, plan: ReadPlan, may_be_cut: bool) -> Iterator[_Piece]:
    """Yield the plan's rows in runs of one file, with clipped row groups apart from the others."""
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
        last = rows["row_group"].astype(np.int64) + rows["row_group_count"]
        breaks = (
            (rows["file"][1:] != rows["file"][:-1])
            | (rows["row_group"][1:] < last[:-1])
            | ~is_whole[1:]
            | ~is_whole[:-1]
        )
        for run in np.split(np.arange(len(rows)), np.flatnonzero(breaks) + 1):
            if len(run):
                yield _Piece(part.partition, rows[run], bool(is_whole[run[0]]))


def _split(store: ObjectStore, plan: ReadPlan, rows: Rows) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return planned rows by row group, and of which of them all records are taken. Requests: the footers."""
    parts: list[Rows] = []
    flags: list[bool] = []
    for index in range(len(rows)):
        file = plan.files[int(rows["file"][index])]
        segment = SegmentFileReader(store, file, plan.topic.schema.of_file(file))
        split = by_row_group(rows[index : index + 1], segment)
        parts.append(split)
        flags += [
            segment.row_group_rows(group) == take
            for group, take in zip(split["row_group"].tolist(), split["take"].tolist(), strict=True)
        ]
    return np.concatenate(parts), np.array(flags, np.bool_)


def _file_system(store: ObjectStore, sizes: Mapping[str, int]) -> Any:
    """Return a ``pyarrow.fs.FileSystem`` whose paths are the store's keys. No request, but on a local disk one ``head`` for each object.

    ``sizes`` has the bytes of each object that may be read, by key: so nothing has to be asked before a read.
    """
    if isinstance(store, LocalStore):  # pyarrow's own readers need no lock of Python's
        for key in sizes:
            store.head(key)  # they open whatever is there: a link to anywhere, or a pipe for which they wait
        return pafs.SubTreeFileSystem(store.url.removeprefix("file://"), pafs.LocalFileSystem())
    return pafs.PyFileSystem(_Handler(store, sizes))


class _Object(SeekableFile):
    """An object as ``pyarrow.PythonFile`` reads it; each read is one ranged GET."""

    def __init__(self, store: ObjectStore, key: str, size: int) -> None:
        self._store = store
        self._key = key
        super().__init__(size)

    def read(self, nbytes: int = -1) -> bytes:
        left = max(0, self._size - self._position)
        count = left if nbytes < 0 else min(nbytes, left)
        try:
            data = self._store.get_range(self._key, self._position, count) if count else b""
        except NotFoundError as error:
            raise NotFoundError(
                "a segment file that the log names is gone",
                kind="segment-file-missing",
                hint="it was deleted outside txnlog, or by a vacuum after the dataset was made: make it again",
                store=self._store.url,
                object=self._key,
            ) from error
        self._position += count
        return data

    def size(self) -> int:
        return self._size


class _Handler(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """The calls that pyarrow makes to a file system; known files can be read, and nothing else."""

    def __init__(self, store: ObjectStore, sizes: Mapping[str, int]) -> None:
        self._store = store
        self._sizes = sizes

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
        return pa.PythonFile(_Object(self._store, path, self._sizes[path]), mode="r")

    def open_input_stream(self, path: str) -> Any:
        return self.open_input_file(path)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("files of a log can only be read by key")

    get_file_info_selector = create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = (
        _refuse
    )
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse
