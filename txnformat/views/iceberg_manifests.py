"""Manifests and manifest lists of an Iceberg table as bytes: Avro, by pyiceberg, in memory. Pure.

Only files, their sizes and their numbers of records are in them: bounds of columns would outlive erased
records. Keys of both end with a hash of their bytes. pyiceberg's decoder is native code that trusts its
input, so it gets only bytes with the hash of their key (:func:`checked`).
"""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from pyiceberg.exceptions import ResolveError
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    DataFile as AvroDataFile,
)
from pyiceberg.manifest import (
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema as AvroSchema
from pyiceberg.typedef import Record

from txnformat.views.delta_actions import corrupt_view
from txnformat.views.iceberg_metadata import Schema, Snapshot, encode_metadata

__all__ = [
    "DataFile",
    "Listed",
    "Manifest",
    "RemovedFile",
    "checked",
    "decode_list",
    "decode_manifest",
    "digest_of",
    "encode_list",
    "encode_manifest",
]

_CODEC: Literal["deflate"] = "deflate"
_BROKEN = (
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    OSError,
    OverflowError,
    RecursionError,
    ResolveError,
    SystemError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
"""Exceptions of pyiceberg about bytes that are no manifest."""


class DataFile(NamedTuple):
    """A file of a table."""

    path: str
    """With scheme, as engines open it."""
    size: int
    rows: int
    snapshot: int
    """The snapshot that added it."""
    sequence: int
    """The sequence number of that snapshot."""


class RemovedFile(NamedTuple):
    """A file that the table no longer has: readers of older versions may still use it."""

    file: DataFile
    snapshot: int
    """The snapshot that removed it, whose id is a time in milliseconds."""


class Listed(NamedTuple):
    """A manifest as manifest lists have it."""

    path: str
    length: int
    """Bytes."""
    sequence: int
    min_sequence: int
    snapshot: int
    """The snapshot that it was made for."""
    files: tuple[int, int, int]
    """Numbers of files that it adds, that were there before, and that it removes."""
    rows: tuple[int, int, int]
    """Their records."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest with its files."""

    listed: Listed
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """The files that the table has, by path."""
    gone: Mapping[str, RemovedFile] = field(default_factory=dict)


class _Memory(InputFile, OutputFile):
    """A file in memory."""

    def __init__(self, location: str, data: bytes = b"") -> None:
        super().__init__(location)
        self.data = data
        self._stream = _Stream()

    def __len__(self) -> int:
        return len(self.data)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self.data)

    def create(self, overwrite: bool = False) -> OutputStream:
        return self._stream

    def to_input_file(self) -> InputFile:
        return self

    def written(self) -> bytes:
        """Return what was written."""
        return self._stream.written


class _Stream(io.BytesIO):
    """Keeps its bytes when it is closed."""

    written = b""

    def close(self) -> None:
        self.written = self.getvalue()
        super().close()


class _MemoryIO(FileIO):
    """Gives pyiceberg the bytes of one file."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def new_input(self, location: str) -> InputFile:
        return _Memory(location, self._data)

    def new_output(self, location: str) -> OutputFile:
        return _Memory(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete nothing."""


def digest_of(data: bytes) -> str:
    """Return the digits that end the key of a manifest or a manifest list with these bytes."""
    return hashlib.sha256(data).hexdigest()[:32]


def checked(data: bytes, key: str) -> bytes:
    """Return the bytes of an object whose key ends with their hash.

    Raises CorruptDataError of kind ``corrupt-view`` about other bytes.
    """
    found = digest_of(data)
    if not key.endswith(f"-{found}.avro"):
        raise corrupt_view(key, f"bytes with the hash {found}")
    return data


def encode_manifest(
    schema: Schema,
    snapshot: int,
    sequence: int,
    *,
    added: Iterable[DataFile] = (),
    existing: Iterable[DataFile] = (),
    gone: Iterable[RemovedFile] = (),
) -> tuple[bytes, Manifest]:
    """Return the bytes of a manifest, and the manifest, with an empty path. It has at least one file."""
    output = _Memory("")
    files, rows = [0, 0, 0], [0, 0, 0]
    own = AvroSchema.model_validate_json(encode_metadata(schema))  # type: ignore[arg-type]
    live: dict[str, DataFile] = {}
    removed: dict[str, RemovedFile] = {}
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, own, output, snapshot, _CODEC) as writer:

        def add(number: int, status: ManifestEntryStatus, one: DataFile, by: int, seen: int | None) -> None:
            files[number] += 1
            rows[number] += one.rows
            writer.add_entry(
                ManifestEntry.from_args(
                    status=status,
                    snapshot_id=by,
                    sequence_number=seen,
                    file_sequence_number=seen,
                    data_file=_data_file(one),
                )
            )

        for one in added:
            add(0, ManifestEntryStatus.ADDED, one, snapshot, None)
            live[one.path] = one
        for one in existing:
            add(1, ManifestEntryStatus.EXISTING, one, one.snapshot, one.sequence)
            live[one.path] = one
        for last in gone:
            add(2, ManifestEntryStatus.DELETED, last.file, last.snapshot, last.file.sequence)
            removed[last.file.path] = last
    data = output.written()
    least = min((one.sequence for one in live.values()), default=sequence)
    counts = (files[0], files[1], files[2]), (rows[0], rows[1], rows[2])
    return data, Manifest(Listed("", len(data), sequence, least, snapshot, *counts), live, removed)


def _data_file(one: DataFile) -> AvroDataFile:
    return AvroDataFile.from_args(
        content=DataFileContent.DATA,
        file_path=one.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=one.rows,
        file_size_in_bytes=one.size,
    )


def decode_manifest(data: bytes, listed: Listed, key: str) -> Manifest:
    """Return a manifest; ``data``: :func:`checked`. Raises CorruptDataError of kind ``corrupt-view``."""
    files: dict[str, DataFile] = {}
    gone: dict[str, RemovedFile] = {}
    try:
        for entry in _listed(listed).fetch_manifest_entry(_MemoryIO(data), discard_deleted=False):
            one = entry.data_file
            by, sequence = entry.snapshot_id or 0, entry.sequence_number or 0
            file = DataFile(one.file_path, one.file_size_in_bytes, one.record_count, by, sequence)
            if entry.status == ManifestEntryStatus.DELETED:
                gone[file.path] = RemovedFile(file, by)
            else:
                files[file.path] = file
    except _BROKEN as error:
        raise corrupt_view(key, repr(error)) from None
    return Manifest(listed, files, gone)


def encode_list(snapshot: Snapshot, manifests: Sequence[Manifest]) -> bytes:
    """Return the bytes of a snapshot's manifest list."""
    output = _Memory("")
    with write_manifest_list(
        2, output, snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.sequence_number, _CODEC
    ) as writer:
        if manifests:
            writer.add_manifests([_listed(one.listed) for one in manifests])
    return output.written()


def _listed(one: Listed) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=one.path,
        manifest_length=one.length,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=one.sequence,
        min_sequence_number=one.min_sequence,
        added_snapshot_id=one.snapshot,
        added_files_count=one.files[0],
        existing_files_count=one.files[1],
        deleted_files_count=one.files[2],
        added_rows_count=one.rows[0],
        existing_rows_count=one.rows[1],
        deleted_rows_count=one.rows[2],
        partitions=None,
        key_metadata=None,
    )


def decode_list(data: bytes, key: str) -> list[Listed]:
    """Return the manifests of a manifest list; ``data``: :func:`checked`.

    Raises CorruptDataError of kind ``corrupt-view``.
    """
    try:
        return [
            Listed(
                one.manifest_path,
                one.manifest_length,
                one.sequence_number,
                one.min_sequence_number,
                one.added_snapshot_id or 0,
                (one.added_files_count or 0, one.existing_files_count or 0, one.deleted_files_count or 0),
                (one.added_rows_count or 0, one.existing_rows_count or 0, one.deleted_rows_count or 0),
            )
            for one in read_manifest_list(_Memory(key, data))
        ]
    except _BROKEN as error:
        raise corrupt_view(key, repr(error)) from None
