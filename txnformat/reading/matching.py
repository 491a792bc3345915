"""Which files hold rows that a condition matches: whole files are read, also rows that no reader sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from txnformat.core.records.chunks import CHUNK_HEADER
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.core.topics.schema import TopicSchema
from txnformat.errors import ConflictError
from txnformat.persistent import Rows
from txnformat.predicates.tree import Predicate
from txnformat.reading.latest import may_have_chunks
from txnformat.reading.sealed import SidecarCache
from txnformat.reading.stored_rows import stored_schema
from txnformat.segments.reader import SegmentFileReader
from txnformat.types import FileRecord, OffsetRange, TopicPartition

__all__ = ["FoundFile", "Matcher", "condition_of", "files_of_part", "matches", "unlisted_files"]

ROWS_PER_READ = 65_536


class FoundFile(NamedTuple):
    """A file that the log names, and how it was written."""

    record: FileRecord
    is_compacted: bool


class _Counted(NamedTuple):
    rows: int
    matching: int


def condition_of(where: str, schema: TopicSchema) -> Predicate:
    """Return a condition on the topic's own columns.

    Raises InvalidInputError of kind ``invalid-where``, without literals: they may be personal data.
    """
    from txnformat.predicates.private import compile_private  # brings the SQL parser

    return compile_private(where, {one.name: one.type for one in schema.arrow_schema})


def matches(where: Predicate, batch: pa.RecordBatch) -> Rows:
    """Return a mask of the rows of a batch, which has the columns of the condition, for which it is true;
    null is not true.
    """
    arrays = {name: batch.column(name) for name in where.columns}
    found: Rows = (
        pc.fill_null(where.mask(arrays, batch.num_rows), False).to_numpy(zero_copy_only=False).astype(bool)
    )
    return found


@dataclass(slots=True)
class Matcher:
    """Reads files for rows that match.

    A file never changes, so each is read once. Memory: its key, and one batch.
    """

    sidecars: SidecarCache
    topic: TopicState
    where: Predicate
    seen: dict[str, _Counted] = field(default_factory=dict)
    """Counts by the key of the file."""

    def fit(self, topic: TopicState) -> TopicState:
        """Take the topic as it is by now, and return it: its schema may have grown.

        The knowledge about files stays valid.

        Raises ConflictError of kind ``column-changed``: the condition would be about another column, or about
        none.
        """
        if topic.schema.schema_id != self.topic.schema.schema_id:
            before = topic.schema.of_version(self.topic.schema.schema_id).names
            if changed := [name for name in self.where.columns if before.get(name) != name]:
                raise ConflictError(
                    "columns that the condition names were renamed or dropped meanwhile",
                    kind="column-changed",
                    hint="describe the topic; if the condition is about other columns now, abandon the "
                    "erasure by its id (--abandon), and erase again",
                    topic=topic.name,
                    columns=changed,
                )
            self.where = condition_of(self.where.text, topic.schema)
        self.topic = topic
        return topic

    def is_dirty(self, file: FoundFile) -> bool:
        """Return whether any row of a file matches.

        Requests: its footer, and all chunks of the columns of the condition.

        Raises ConflictError of kind ``chunks-in-erasure``; CorruptDataError, NotFoundError, StorageError.
        """
        key = file.record.key
        if key not in self.seen:
            self.seen[key] = self._read(file)
        return self.seen[key].matching > 0

    def _read(self, file: FoundFile) -> _Counted:
        schema = self.topic.schema
        in_file = stored_schema(schema, file.record) if file.is_compacted else schema.of_file(file.record)
        reader = SegmentFileReader(self.sidecars.store, file.record, in_file)
        names = in_file.held(self.where.columns)
        has_headers = may_have_chunks(schema) and in_file.has("headers")
        if has_headers:
            names = list(dict.fromkeys([*names, "headers"]))
        groups = range(len(reader.row_group_counts()))
        rows = matching = 0
        for batch in reader.read(groups, names, ROWS_PER_READ):
            if has_headers:
                self._check_chunks(batch, file.record.key)
            rows += batch.num_rows
            mask = self.where.mask(self._arrays(batch), batch.num_rows)
            matching += pc.sum(pc.fill_null(mask, False)).as_py() or 0
        return _Counted(rows, matching)

    def _arrays(self, batch: pa.RecordBatch) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, type_ in self.where.types:
            if name not in batch.schema.names:
                found[name] = pa.nulls(batch.num_rows, type_)
            else:
                column = batch.column(name)
                found[name] = column if column.type.equals(type_) else column.cast(type_)
        return found

    def _check_chunks(self, batch: pa.RecordBatch, key: str) -> None:
        names: Any = pc.struct_field(pc.list_flatten(batch.column("headers")), "key")
        if pc.any(pc.equal(names, CHUNK_HEADER)).as_py():
            raise ConflictError(
                "the topic has values in several records: a condition would match only a part of one, so "
                "nothing is erased",
                kind="chunks-in-erasure",
                hint="remove the records with delete-records, or copy the topic without such values and "
                "delete it",
                topic=self.topic.name,
                object=key,
            )


def files_of_part(
    sidecars: SidecarCache, key: TopicPartition, part: SegmentPart, log_start: int
) -> Iterator[FoundFile]:
    """Yield the files that a part of a segment names, with records at or above the log start: a vacuum may
    have deleted the others.

    Requests: 1 GET, none when it is kept.
    """
    index = sidecars.index(part.record.index)
    rows = index.rows_from(key.partition, part.range, log_start)
    for file in sorted(set(rows["file"].tolist())):
        yield FoundFile(index.files[file], index.is_compacted)


def unlisted_files(sidecars: SidecarCache, state: LogState, topic: TopicState) -> Iterator[FoundFile]:
    """Yield the files of a topic that no segment list leads to: of young segments, of extents, and of what is
    staged.
    """
    for number in range(topic.partitions):
        key = TopicPartition(topic.topic_id, number)
        partition = state.partition(key)
        for row in partition.segments.array():
            part = SegmentPart(state.segments[int(row["segment"])], row)
            yield from files_of_part(sidecars, key, part, partition.log_start)
        unspilled = sidecars.whole(state, key, OffsetRange(partition.sealed_end, partition.log_end))
        for extent in unspilled.partition(key).extents.array():
            whole = extent["file"] < 0
            first = int(extent["first_file"] if whole else extent["file"])
            for file in range(first, first + (int(extent["file_count"]) if whole else 1)):
                yield FoundFile(unspilled.files[file], is_compacted=False)
    for known in state.transactional_ids.values():
        for flush in known.staged:
            if flush.topic_id == topic.topic_id:
                for file in range(flush.first_file, flush.first_file + flush.file_count):
                    yield FoundFile(state.files[file], is_compacted=False)
