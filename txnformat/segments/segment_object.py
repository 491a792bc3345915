"""The bytes of one segment file: its footer and its column chunks, fetched and compared with their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from zlib_ng import zlib_ng

from txnformat.errors import CorruptDataError, NotFoundError, StorageError
from txnformat.keys import Place, entry_key
from txnformat.segments.ahead import ahead
from txnformat.segments.footer import Chunk, Footer, FooterError, decode_footer
from txnformat.segments.footer_shape import shape_of
from txnformat.segments.payload import payload_of
from txnformat.segments.writer import CHUNK_CRC32_KEY
from txnformat.store.base import ObjectStore, range_of
from txnformat.store.recent import recent_payloads
from txnformat.types import FileRecord

__all__ = [
    "SMALL_FILE_BYTES",
    "Fetch",
    "SegmentObject",
    "embedded_file",
    "has_file",
    "is_small",
    "read_range",
    "tail_start",
    "together",
]

FOOTER_BYTES_MAX = 256 * 1024 * 1024

SMALL_FILE_BYTES = 256 * 1024
"""A file of up to so many bytes (inclusive) is fetched whole: a second request takes longer than these bytes.
"""

Fetch = Callable[[int, int], bytes]
"""Gives the bytes of an object from a start (inclusive), and of a length; raises what
:meth:`ObjectStore.get_range` does."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Place(NamedTuple):
    start: int
    """First byte in the object (inclusive)."""
    length: int
    crc32: int | None
    """CRC-32 of the chunk; None in files of other writers."""


def is_small(file: FileRecord) -> bool:
    """Return whether a file is fetched whole, by the size that the log says; an embedded one always is."""
    return file.size <= SMALL_FILE_BYTES or file.place is not None


def read_range(store: ObjectStore, file: FileRecord, start: int, length: int) -> bytes:
    """Return bytes of a segment file: of its object, or of the payload that has it, whose hash was compared.

    Raises as :meth:`ObjectStore.get_range`, and CorruptDataError of kind ``payload-missing``. Requests: 1
    GET; none for a payload that this process has just seen.
    """
    place = file.place
    if place is None:
        return range_of(store, file.key, start, length, file.size)
    recent = recent_payloads(store)
    payload = recent.get(place.entry)
    if payload is None or not has_file(payload, file, place):
        data = store.get(entry_key(place.entry))
        if data is None:
            raise NotFoundError("no such object", store=store.url, object=entry_key(place.entry))
        payload = payload_of(data)
        recent.keep(place.entry, payload)
    return embedded_file(payload, file, place)[start : start + length]


def embedded_file(payload: bytes, file: FileRecord, place: Place) -> bytes:
    """Return an embedded file.

    Raises CorruptDataError of kind ``payload-missing``: the payload has another one there.
    """
    if has_file(payload, file, place):
        return payload[place.start : place.start + file.size]
    raise CorruptDataError(
        "an entry does not have the payload that its head names",
        kind="payload-missing",
        hint="restore the object from a copy",
        object=entry_key(place.entry),
        expected=f"{file.size} bytes from {place.start} on, sha256 {file.sha256}",
        got=f"{len(payload)} bytes, and there sha256 {_digest(payload, file, place)}",
    )


def has_file(payload: bytes, file: FileRecord, place: Place) -> bool:
    """Return whether a payload has an embedded file at its place, by the hash that the log says."""
    return _digest(payload, file, place) == file.sha256


def _digest(payload: bytes, file: FileRecord, place: Place) -> str:
    return hashlib.sha256(memoryview(payload)[place.start : place.start + file.size]).hexdigest()


def tail_start(file: FileRecord, *, has_data: bool) -> int:
    """Return where the first request for a file begins: it ends where the file does.

    ``has_data``: column chunks are read, too.
    """
    return 0 if has_data and is_small(file) else file.size - file.footer_bytes


class SegmentObject:
    """One segment file in a store. The footer is fetched at the first need and kept, and so is a small file.

    ``has_data``: column chunks are read, not only the footer. ``fetch_tail``: fetches from :func:`tail_start`
    to the end of the file; by default this object does.
    """

    def __init__(
        self,
        store: ObjectStore,
        file: FileRecord,
        schema: pa.Schema,
        *,
        has_data: bool = True,
        fetch_tail: Fetch | None = None,
    ) -> None:
        self._store = store
        self._file = file
        self._schema = schema
        self._has_data = has_data
        self._fetch_tail = fetch_tail
        self._whole: bytes | None = None
        self._footer: Footer | None = None
        self._checksums: str | None = None

    @property
    def has_checksums(self) -> bool:
        """Whether the footer, which was fetched, has a checksum of every column chunk."""
        return self._checksums is not None

    def footer(self) -> Footer:
        """Return the footer, fetched and checked at the first call."""
        if self._footer is not None:
            return self._footer
        file = self._file
        if not 0 < file.footer_bytes <= min(file.size, FOOTER_BYTES_MAX):
            raise self.corrupt(
                "a segment file cannot have such a footer",
                f"1 to {min(file.size, FOOTER_BYTES_MAX)} bytes",
                file.footer_bytes,
            )
        end = file.size - file.footer_bytes
        start = tail_start(file, has_data=self._has_data)
        tail = self._fetch(start, file.size - start, self._fetch_tail)
        data = tail[end - start :]
        digest = hashlib.sha256(data).hexdigest()
        if digest != file.footer_sha256:
            raise self.corrupt("the footer of a segment file has another hash", file.footer_sha256, digest)
        try:
            footer = decode_footer(data, shape_of(self._schema), end)
        except FooterError as error:
            raise self.refused(error) from error
        if footer.rows != file.rows:
            raise self.corrupt("a segment file has another number of records", file.rows, footer.rows)
        self._checksums = self._parse_checksums(footer)
        if start == 0 < end:
            self._whole = tail
        self._footer = footer
        return footer

    def _parse_checksums(self, footer: Footer) -> str | None:
        found = footer.metadata.get(CHUNK_CRC32_KEY)
        if found is None:
            return None
        digits = 8 * len(footer.groups) * len(footer.shape.leaves)
        text: str = found.decode("ascii", "replace")
        if len(text) != digits or found.strip(b"0123456789abcdef"):
            raise self.corrupt(
                "the chunk checksums of a segment file are malformed", f"{digits} hex digits", text
            )
        return text

    def fetch_chunks(self, leaves: Sequence[int], chunks: Mapping[int, Sequence[Chunk]]) -> dict[int, bytes]:
        """Return start to content of the runs of adjacent chunks; as many at a time as the store likes.

        ``leaves``: of the footer's shape. ``chunks``: of these leaves, by row group.
        """
        self._check_places(chunks)
        width = len(self.footer().shape.leaves)
        places: list[_Place] = []
        for group, found in chunks.items():
            first = group * width
            for leaf, chunk in zip(leaves, found, strict=True):
                places.append(_Place(chunk.start, chunk.length, self._crc32(first + leaf)))
        runs: list[list[_Place]] = []
        end = 0
        for place in sorted(places):
            if end > place.start:
                raise self.corrupt("column chunks of a segment file overlap", f"from {end} on", place.start)
            if runs and end == place.start:
                runs[-1].append(place)
            else:
                runs.append([place])
            end = place.start + place.length
        threads = 1 if self._whole is not None else self._store.reads_in_flight
        contents = together(self._fetch_run, runs, threads=threads)
        return {run[0].start: data for run, data in zip(runs, contents, strict=True)}

    def _check_places(self, chunks: Mapping[int, Sequence[Chunk]]) -> None:
        """Raise CorruptDataError about chunks that lie among those of another row group."""
        footer = self.footer()
        try:
            for group, found in chunks.items():
                begin, end = footer.row_group_place(group)
                for chunk in found:
                    if not begin <= chunk.start <= chunk.start + chunk.length <= end:
                        raise FooterError(
                            "column chunks of a segment file overlap those of another row group",
                            f"from {begin} to {end}",
                            (chunk.start, chunk.length),
                        )
        except FooterError as error:
            raise self.refused(error) from error

    def _crc32(self, place: int) -> int | None:
        return None if self._checksums is None else int(self._checksums[8 * place : 8 * place + 8], 16)

    def _fetch_run(self, run: list[_Place]) -> bytes:
        """Return the content of adjacent chunks, each compared with its checksum."""
        start = run[0].start
        data = self._fetch(start, run[-1].start + run[-1].length - start)
        view = memoryview(data)
        for chunk in run:
            part = view[chunk.start - start : chunk.start - start + chunk.length]
            if chunk.crc32 is not None and zlib_ng.crc32(part) != chunk.crc32:
                raise self.corrupt(
                    "a column chunk of a segment file has another checksum",
                    f"{chunk.crc32:08x}",
                    f"{zlib_ng.crc32(part):08x}",
                    start=chunk.start,
                    length=chunk.length,
                )
        return data

    def _fetch(self, start: int, length: int, fetch: Fetch | None = None) -> bytes:
        if self._whole is not None:
            return self._whole[start : start + length]
        try:
            return (fetch or partial(read_range, self._store, self._file))(start, length)
        except NotFoundError as error:
            raise NotFoundError(
                "a segment file that the log names is gone",
                kind="segment-file-missing",
                hint="it was deleted outside txnlog: restore it, or run a verification of the log",
                store=self._store.url,
                object=self._file.key,
            ) from error
        except StorageError as error:
            if error.kind != "invalid-range":
                raise
            raise self.corrupt("a segment file is too short", f"{self._file.size} bytes", error) from error

    def refused(self, error: FooterError) -> CorruptDataError:
        """Return the error about a footer or a page that is not what it must be."""
        return self.corrupt(error.what, error.expected, error.got)

    def corrupt(self, what: str, expected: object, got: object, **values: Any) -> CorruptDataError:
        """Return the error about this object."""
        return CorruptDataError(
            what,
            hint="the object was damaged after it was written: restore it from a copy",
            store=self._store.url,
            object=self._file.key,
            expected=expected if isinstance(expected, int) else str(expected),
            got=got if isinstance(got, int) else str(got),
            **values,
        )


def together(function: Callable[[Item], Result], items: Sequence[Item], *, threads: int) -> list[Result]:
    """Return ``function(item)`` of each item, done by up to ``threads`` threads; 1 is the caller's."""
    if threads == 1:
        return [function(item) for item in items]
    threads = min(threads, len(items))
    return list(
        ahead(function, items, threads=threads, weight=lambda _: 1, weight_max=threads, count_max=threads)
    )
