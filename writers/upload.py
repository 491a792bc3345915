"""Uploading the records of one topic: batches in, segment files out. Nothing here is in the log yet.

An uploaded file means nothing until an entry names it; the vacuum removes files that no entry names.
``Uploaded`` is plain data, so that a Spark executor can upload and its driver can commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from txnformat import keys
from txnformat.clock import Clock, Ids
from txnformat.core.entry import sha256_hex
from txnformat.core.intents import PendingPartition, TopicAppend
from txnformat.core.records.batch_table import BATCHES_IN_ENTRY_MAX, encode_batch_table
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import InternalError, NotFoundError, StorageError
from txnformat.persistent import replace
from txnformat.segments.writer import SegmentFileWriter, is_uneven
from txnformat.store.base import CreateOutcome, ObjectStore, ObjectWriter, make_durable, range_of
from txnformat.store.patient import Pauses
from txnformat.store.uploads import HeldWriter, Writer
from txnformat.types import NO_TIMESTAMP_MS, BatchRecord, FileRecord, ObjectRecord
from writers.whole_files import WholeFile

__all__ = [
    "ROLL_BYTES",
    "TopicUpload",
    "Uploaded",
    "combine",
    "topic_append",
    "upload_held",
    "upload_whole",
    "with_batch_table",
]

ROLL_BYTES = 512 * 1024 * 1024
"""A file that has grown to this is closed and the next one begun."""

TABLE_ATTEMPTS_MAX = 5

KEPT_BYTES = 16 * 1024 * 1024
"""Bytes of a file that are kept until it is closed, so that it can be uploaded anew (inclusive): what goes up
in one request on S3. Parts of larger files are repeated by the store's adapter; where that gives up, so does
the upload."""

END_BYTES = 64 * 1024
"""Bytes at the end of an object that are compared to recognize an upload."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The files and batches of an upload."""

    files: tuple[FileRecord, ...]
    batches: tuple[BatchRecord, ...]
    """In log order; ``file`` is an index into ``files``."""
    payload: tuple[bytes, ...] = ()
    """The bytes of the files, if they are held and not in the store."""

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.size for file in self.files)


class TopicUpload:
    """Streams batches of one topic to segment files. One thread at a time.

    ``directory``: the topic's directory. ``born``: number of an entry that is known to be in the log: a lower
    bound for the files' age. ``roll_bytes``: size at which a file is closed and the next one begun.
    ``clock``: with it, what fails for now is tried again, with pauses, for a minute; without, only by the
    store's adapter. ``is_small``: all batches together are at most SMALL_BYTES in memory: a file goes to the
    store when it is closed. ``held_bytes_max``: if all files together are one of at most so many bytes, it
    does not go to the store, but stays in memory: it may become a part of an entry.
    """

    def __init__(
        self,
        store: ObjectStore,
        ids: Ids,
        *,
        directory: str,
        schema: TopicSchema,
        born: int,
        roll_bytes: int = ROLL_BYTES,
        clock: Clock | None = None,
        is_small: bool = False,
        held_bytes_max: int = 0,
    ) -> None:
        self._store = store
        self._is_small = is_small
        self._held_bytes_max = held_bytes_max
        self._held: list[HeldWriter] = []
        self._ids = ids
        self._directory = directory
        self._schema = schema
        self._born = born
        self._roll_bytes = roll_bytes
        self._clock = clock
        self._writer: SegmentFileWriter | None = None
        self._compresses = True
        self._files: list[FileRecord] = []
        self._batches: list[BatchRecord] = []
        self._closed_bytes = 0

    @property
    def size(self) -> int:
        """Bytes uploaded so far."""
        return self._closed_bytes + (self._writer.size if self._writer else 0)

    def add(self, partition: int, table: pa.Table) -> None:
        """Write one batch of one partition; an empty one is nothing."""
        if table.num_rows == 0:
            return
        compresses = not is_uneven(table, self._schema.arrow_schema)
        if compresses != self._compresses:
            self.close_file()
            self._compresses = compresses
        if self._writer is None:
            key = keys.data_key(self._directory, self._born, self._ids.new())
            self._writer = SegmentFileWriter(
                self._out(key),
                key,
                self._schema.arrow_schema,
                timestamp_column=self._schema.timestamp_column,
                file=len(self._files),
                is_small=self._is_small,
                is_compressed=compresses,
            )
        self._batches.append(self._writer.write_batch(partition, table))
        if self._writer.size >= self._roll_bytes:
            self.close_file()

    def _out(self, key: str) -> ObjectWriter:
        def begin() -> ObjectWriter:
            return _ConfirmedWriter(self._store, key, self._pauses())

        if not self._held_bytes_max:
            return begin()
        self._held.append(HeldWriter(begin, self._held_bytes_max))
        return self._held[-1]

    def _pauses(self) -> Pauses | None:
        return None if self._clock is None else Pauses(self._clock, self._ids)

    @property
    def is_open(self) -> bool:
        """Whether a file is being written."""
        return self._writer is not None

    def close_file(self) -> None:
        """Close the file that is being written, if any; the next batch begins another."""
        if self._writer is None:
            return
        record = replace(self._writer.close(), schema_id=self._schema.schema_id)
        self._writer = None
        self._files.append(record)
        self._closed_bytes += record.size

    def finish(self) -> Uploaded:
        """Close the last file: everything is visible and durable, or held."""
        self.close_file()
        held = [one.data() for one in self._held]
        payload = tuple(data for data in held if data is not None)
        if len(self._files) != 1:
            for file, data in zip(self._files, held, strict=False):
                if data is not None:
                    _create(self._store, file.key, data, self._pauses())
            payload = ()
        return Uploaded(tuple(self._files), tuple(self._batches), payload)

    def abort(self) -> None:
        """Drop the file that is being written; finished ones are left alone. Idempotent; never raises."""
        if self._writer is not None:
            self._writer.abort()
            self._writer = None


def upload_held(store: ObjectStore, ids: Ids, uploaded: Uploaded, clock: Clock | None = None) -> Uploaded:
    """Upload the files that are held, under the keys that they have; return the upload without their bytes.

    Requests: 1 PUT for each, tried again as by :func:`with_batch_table`. The call can be repeated.
    """
    for file, data in zip(uploaded.files, uploaded.payload, strict=False):
        _create(store, file.key, data, None if clock is None else Pauses(clock, ids))
    return replace(uploaded, payload=())


def upload_whole(
    store: ObjectStore, ids: Ids, clock: Clock | None, whole: WholeFile, key: str, partition: int
) -> Uploaded:
    """Upload a whole file under a key, all of it for one partition.

    Raises StorageError: nothing of it is in the log; OSError: the file cannot be read.
    """
    out = _ConfirmedWriter(store, key, None if clock is None else Pauses(clock, ids))
    try:
        for piece in whole.pieces():
            out.write(piece)
        out.close()
    except BaseException:
        out.abort()
        raise
    batches = tuple(replace(batch, partition=partition) for batch in whole.batches)
    return Uploaded((whole.record(key),), batches)


class _ConfirmedWriter(Writer):
    """An upload whose end is looked up when its answer is lost, and that is begun anew when it fails for now.

    No other client has the key, so an object of the right size that ends as ours does is ours: what is
    written last is a Parquet footer, which holds the checksum of everything before it. So an earlier attempt
    that lands late does no harm: it is the same object.
    """

    def __init__(self, store: ObjectStore, key: str, pauses: Pauses | None) -> None:
        self._store = store
        self._key = key
        self._pauses = pauses
        self._kept: list[bytes] | None = None if pauses is None else []
        self._size = 0
        self._last = b""
        self._inner: ObjectWriter
        try:
            self._inner = store.open_write(key)
        except StorageError as error:
            self._begin_anew(error)

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        if self._kept is not None:
            if self._size + size <= KEPT_BYTES:
                self._kept.append(bytes(data))
            else:
                self._kept = None
        try:
            self._inner.write(data)
        except StorageError as error:
            self._begin_anew(error)
        self._size += size
        self._last = bytes(data[-END_BYTES:])
        return size

    def close(self) -> None:
        while True:
            try:
                self._inner.close()
            except StorageError as error:
                if (error.transient or error.kind == "object-exists") and self._is_there():
                    return
                self._begin_anew(error)
            else:
                return

    def _begin_anew(self, error: StorageError) -> None:
        """Write again what was written, in a new upload; raise when that is not possible, or fails for too
        long.
        """
        while True:
            if self._kept is None or self._pauses is None:
                raise error
            self._pauses.wait_out(error)
            try:
                if hasattr(self, "_inner"):
                    self._inner.abort()
                self._inner = self._store.open_write(self._key)
                for data in self._kept:
                    self._inner.write(data)
            except StorageError as failed:
                error = failed
            else:
                return

    def abort(self) -> None:
        self._inner.abort()

    def _is_there(self) -> bool:
        try:
            found = self._store.head(self._key)
            if found is None or found.size != self._size:
                return False
            start = self._size - len(self._last)
            is_ours = range_of(self._store, self._key, start, len(self._last), self._size) == self._last
            if is_ours:
                make_durable(self._store, [self._key])  # before an entry names it
            return is_ours
        except (StorageError, NotFoundError):
            return False


def combine(uploads: Iterable[Uploaded]) -> Uploaded:
    """Return several uploads of one topic as one, in the given order."""
    files: list[FileRecord] = []
    batches: list[BatchRecord] = []
    payload: list[bytes] = []
    for upload in uploads:
        first = len(files)
        files.extend(upload.files)
        batches.extend(replace(batch, file=first + batch.file) for batch in upload.batches)
        payload.extend(upload.payload)
    if len(payload) not in (0, len(files)):
        raise InternalError("some files of an upload are held, and others are not")
    return Uploaded(tuple(files), tuple(batches), tuple(payload))


def topic_append(
    topic_id: str, partition_count: int, uploaded: Uploaded, base_sequences: Mapping[int, int] | None = None
) -> TopicAppend:
    """Return an upload's append.

    ``base_sequences``: of each partition's first record; None without a producer.
    """
    by_partition: dict[int, list[BatchRecord]] = {}
    for batch in uploaded.batches:
        by_partition.setdefault(batch.partition, []).append(batch)
    partitions = tuple(
        _pending(
            partition, batches, uploaded.files, -1 if base_sequences is None else base_sequences[partition]
        )
        for partition, batches in sorted(by_partition.items())
    )
    return TopicAppend(
        topic_id, partition_count, uploaded.files, partitions, uploaded.batches, payload=uploaded.payload
    )


def _pending(
    partition: int, batches: Sequence[BatchRecord], files: Sequence[FileRecord], base_sequence: int
) -> PendingPartition:
    content = hashlib.sha256()
    for batch in batches:
        content.update(
            f"{files[batch.file].sha256} {batch.row_group} {batch.row_group_count} {batch.records}\n".encode()
        )
    known = [batch for batch in batches if batch.min_timestamp_ms != NO_TIMESTAMP_MS]
    return PendingPartition(
        partition,
        sum(batch.records for batch in batches),
        len(batches),
        base_sequence,
        content.hexdigest()[:16],
        sum(batch.size for batch in batches),
        min((batch.min_timestamp_ms for batch in known), default=NO_TIMESTAMP_MS),
        max((batch.max_timestamp_ms for batch in known), default=NO_TIMESTAMP_MS),
    )


def with_batch_table(
    store: ObjectStore,
    ids: Ids,
    born: int,
    appends: Sequence[TopicAppend],
    batches_max: int = BATCHES_IN_ENTRY_MAX,
    clock: Clock | None = None,
) -> tuple[TopicAppend, ...]:
    """Return the appends of one entry, their batches moved to a batch table if the entry cannot name them
    all.

    Requests: 1 PUT when there are more than ``batches_max`` batches in all, else none. With a ``clock`` what
    fails for now is tried again, with pauses, for a minute; without, five times at once.
    """
    if sum(len(append.batches) for append in appends) <= batches_max:
        return tuple(appends)
    data = encode_batch_table((section, append.batches) for section, append in enumerate(appends))
    key = keys.table_key(born, ids.new())
    _create(store, key, data, None if clock is None else Pauses(clock, ids))
    table = ObjectRecord(key, len(data), sha256_hex(data))
    return tuple(
        replace(append, batches=(), table=table, section=section) for section, append in enumerate(appends)
    )


def _create(store: ObjectStore, key: str, data: bytes, pauses: Pauses | None) -> None:
    """Create an object under a key of its own; repeating an unclear attempt is harmless."""
    attempt = 0
    while True:
        attempt += 1
        result = store.create(key, data)
        if result.outcome is CreateOutcome.CREATED:
            return
        error = result.error
        if result.outcome is CreateOutcome.REFUSED or (error is not None and not error.transient):
            break
        try:
            found = store.get(key, len(data))
        except StorageError as failed:
            if pauses is None:
                raise
            error, found = failed, None
        if found == data:
            make_durable(store, [key])
            return
        if error is None or (pauses is None and attempt == TABLE_ATTEMPTS_MAX):
            break
        if pauses is not None:
            pauses.wait_out(error)
    raise error or InternalError("an object exists under a key that only this client uses", object=key)
