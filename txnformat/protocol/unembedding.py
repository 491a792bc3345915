"""Embedded files become objects, when what they hold is sealed or spilled. Steps without IO.

Many small files of entries become few larger ones. Batches of aborted transactions go to files of their own:
so read_committed never fetches them, and each file is wholly in its rows or wholly not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from txnformat import keys
from txnformat.core.entry import missing_entry
from txnformat.core.sealing.sidecar import BatchOutcome, compacted_number
from txnformat.core.state import LogState, TopicState
from txnformat.persistent import Rows, replace
from txnformat.protocol.effects import DrawId, GetObject, Steps
from txnformat.protocol.reads import simultaneous
from txnformat.protocol.snapshots import create_object
from txnformat.segments.payload import payload_of
from txnformat.segments.reader import SegmentFileReader
from txnformat.segments.segment_object import embedded_file, has_file
from txnformat.segments.writer import SegmentFileWriter
from txnformat.store.memory import MemoryStore
from txnformat.store.uploads import HeldWriter
from txnformat.types import FileRecord

__all__ = ["KeptPayload", "as_objects", "embedded_entries", "nothing_kept", "topics_embedded", "unembed"]

FILE_BATCHES_MAX = 1_024
"""Batches of one file: each is a row group of its own, and a reader parses a footer that has them all."""
FILE_BYTES_MAX = 16 * 2**20
"""Compressed bytes of the batches of one file, unless it has a single one: it is made in memory."""
AT_ONCE = 64
"""Batches whose entries are read at once."""
KEPT_BYTES_MAX = 32 * 2**20
"""Payloads that are kept while a file is written: a batch of another partition may be in the same."""
ROWS_AT_ONCE = 65_536

KeptPayload = Callable[[int], bytes | None]
"""Returns the payload of an entry as this process has read or written it before; None: it has not, or has
dropped it."""


def nothing_kept(entry: int) -> None:
    """Return None, as a process that keeps no payloads."""


def embedded_entries(files: Iterable[FileRecord]) -> set[int]:
    """Return the entries whose payloads have some of these files."""
    return {file.place.entry for file in files if file.place is not None}


def topics_embedded(state: LogState, below: int | None = None) -> list[str]:
    """Return the ids of the topics of which the state names embedded files, of entries below ``below``
    (exclusive), or of any.
    """
    directories = {
        file.key.partition("/")[0]
        for file in state.files
        if file.place is not None and (below is None or file.place.entry < below)
    }
    return [topic_id for topic_id, topic in state.topics.items() if topic.directory in directories]


def unembed(
    state: LogState, topic_id: str, rows: Rows, kept: KeptPayload = nothing_kept
) -> Steps[tuple[Rows, dict[int, FileRecord]]]:
    """Write the batches of embedded files to objects; return the rows as they name these, and all files that
    they name, by number.

    ``rows``: of one topic's ``.index``. ``kept``: payloads that need not be fetched. Requests: a GET for each
    other entry with such a file, 16 at once; for 1,024 batches of one schema and outcome 1 PUT and 1 GET.
    """
    files = {number: state.files[number] for number in np.unique(rows["file"]).tolist()}
    if not embedded_entries(files.values()):
        return rows, files
    topic = state.topics[topic_id]
    kinds: dict[tuple[int, bool], list[int]] = defaultdict(list)
    for place, (number, outcome) in enumerate(rows[["file", "outcome"]].tolist()):
        if files[number].place is not None:
            kinds[files[number].schema_id, outcome == BatchOutcome.ABORTED].append(place)
    changed = rows.copy()
    payloads = _Payloads(kept)
    for _, places in sorted(kinds.items()):
        for part in _parts(places, rows["size"]):
            wanted = [
                (files[number], group, count)
                for number, group, count in rows[part][["file", "row_group", "row_group_count"]].tolist()
            ]
            record, groups = yield from _write(topic, max(0, state.entry), wanted, payloads)
            files[compacted_number(record)] = record
            changed["file"][part] = compacted_number(record)
            changed["row_group"][part], changed["row_group_count"][part] = np.array(groups).T
    named = set(changed["file"].tolist())
    return changed, {number: file for number, file in files.items() if number in named}


def _parts(places: Sequence[int], sizes: Rows) -> Iterator[Rows]:
    """Yield the places of batches, in order, as they go into one file each."""
    part: list[int] = []
    total = 0
    for place in places:
        size = int(sizes[place])
        if part and (len(part) == FILE_BATCHES_MAX or total + size > FILE_BYTES_MAX):
            yield np.array(part)
            part, total = [], 0
        part.append(place)
        total += size
    yield np.array(part)


def _write(
    topic: TopicState, born: int, batches: Sequence[tuple[FileRecord, int, int]], payloads: _Payloads
) -> Steps[tuple[FileRecord, list[tuple[int, int]]]]:
    """Write batches, each (embedded file, first row group, row groups), to one file; return its record, and
    where each batch is in it.
    """
    version = topic.schema.at_version(batches[0][0].schema_id)
    schema = version.arrow_schema
    key = keys.data_key(topic.directory, born, (yield DrawId()))
    held = HeldWriter()
    writer = SegmentFileWriter(held, key, schema, timestamp_column=version.timestamp_column)
    groups: list[tuple[int, int]] = []
    for first in range(0, len(batches), AT_ONCE):
        part = batches[first : first + AT_ONCE]
        yield from payloads.fetch([file for file, _, _ in part])
        for file, group, count in part:
            found = payloads.table(file, range(group, group + count), schema)
            written = writer.write_batch(0, found)
            groups.append((written.row_group, written.row_group_count))
    record = replace(writer.close(), schema_id=batches[0][0].schema_id)
    yield from create_object(key, held.data() or b"")
    return record, groups


def as_objects(
    state: LogState, topics: Mapping[int, str], files: Mapping[int, FileRecord]
) -> Steps[dict[int, FileRecord]]:
    """Write each embedded file to an object of its own; return all files by number.

    ``topics``: the topic of each. Requests: of each its entry's GET, 1 PUT and 1 GET.
    """
    found = dict(files)
    payloads = _Payloads()
    for number, file in files.items():
        if file.place is None:
            continue
        yield from payloads.fetch([file])
        directory = state.topics[topics[number]].directory
        key = keys.data_key(directory, max(0, state.entry), (yield DrawId()))
        yield from create_object(key, payloads.bytes_of(file))
        found[number] = replace(file, key=key)
    return found


class _Payloads:
    """The payloads of entries that are read one after the other."""

    def __init__(self, kept: KeptPayload = nothing_kept) -> None:
        self._kept = kept
        self._own: dict[int, bytes] = {}  # of the kept ones those that the last files are in
        self._known: dict[int, bytes] = {}
        self._opened: tuple[str, SegmentFileReader] | None = None

    def fetch(self, files: Sequence[FileRecord]) -> Steps[None]:
        """Read the payloads that have these embedded files, 16 at once; one that the process has kept, and
        that has them, is not read.
        """
        entries = embedded_entries(files)
        missing = entries - self._known.keys() - self._find_kept(files)
        if not missing:
            return
        if sum(map(len, self._known.values())) > KEPT_BYTES_MAX:
            self._known = {entry: data for entry, data in self._known.items() if entry in entries}
        wanted = sorted(missing)
        found = yield from simultaneous(*(GetObject(keys.entry_key(entry)) for entry in wanted))
        for entry, data in zip(wanted, found, strict=True):
            if not isinstance(data, bytes):
                raise missing_entry(entry)
            self._known[entry] = payload_of(data)

    def _find_kept(self, files: Sequence[FileRecord]) -> set[int]:
        """Return the entries whose payloads the process has kept: each of these files has its hash there."""
        found, others = set(), set()
        self._own = {}
        for file in files:
            place = file.place
            if place is None or place.entry in self._known:
                continue
            payload = self._own.get(place.entry) or self._kept(place.entry)
            if payload is not None and has_file(payload, file, place):
                self._own[place.entry] = payload
                found.add(place.entry)
            else:
                others.add(place.entry)
        return found - others

    def bytes_of(self, file: FileRecord) -> bytes:
        """Return the bytes of an embedded file, whose hash was compared. Its entry was fetched."""
        place = file.place
        assert place is not None
        payload = self._known.get(place.entry)
        return embedded_file(self._own[place.entry] if payload is None else payload, file, place)

    def table(self, file: FileRecord, groups: Sequence[int], schema: pa.Schema) -> pa.Table:
        """Return row groups of an embedded file."""
        if self._opened is None or self._opened[0] != file.key:
            held = MemoryStore()
            own = replace(file, key=keys.own_key(file.key))
            held.put(own.key, self.bytes_of(file))
            self._opened = file.key, SegmentFileReader(held, own, schema, threads=1)
        batches = self._opened[1].read(groups, schema.names, ROWS_AT_ONCE)
        return pa.Table.from_batches(batches, schema)
