"""Verification: everything that can be derived again from a log's objects is, and all that differs is told.

Nothing here trusts the hint, a cache or this process's view: format.json, entries, snapshots, batch tables
and files are read from the store. Damage is an answer, never an exception; only a store that cannot even be
listed raises. The order of the first requests makes it right beside running writers: what an entry names was
there before the entry, so objects are listed after entries.

Every entry's own checksum is derived again; it alone vouches for the newest one. An entry of an older writer
has none: if it is the newest, a change of it that still decodes and fits shows only once a next one is there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TypeVar

import pyarrow as pa

from txnformat import keys
from txnformat.arguments import check_callable, check_flags
from txnformat.clock import Clock, SystemClock
from txnformat.core.entry import CommitEntry
from txnformat.core.operations import AlterTopic, CreateTopic
from txnformat.core.ownership import directories
from txnformat.core.sealing.segment_list import (
    ListedSegments,
    decode_leaf,
    decode_root,
    decode_segment_list,
)
from txnformat.core.state import LogState
from txnformat.core.topics.evolution import next_version
from txnformat.core.topics.schema import TopicSchema
from txnformat.core.wire.bundle import BUNDLE_ENTRIES
from txnformat.core.wire.small_documents import LOG_ENCRYPTED
from txnformat.errors import FormatError, InvalidInputError, NotFoundError, StorageError
from txnformat.persistent import Rows
from txnformat.protocol.follow import empty_state
from txnformat.protocol.tail import bundle_key_of
from txnformat.reading.stored_rows import stored_schema
from txnformat.store.base import ObjectStore
from txnformat.store.object_sizes import ABOUT_KEYS
from txnformat.types import ObjectRecord
from txnformat.verify.all_files import check_files
from txnformat.verify.bytes import check_bundle, check_hint, check_payloads, decode_problem, decoded, present
from txnformat.verify.chain import ChainCheck
from txnformat.verify.copied_rows import Copied
from txnformat.verify.deep_child import Asked
from txnformat.verify.files import RESTORE_TABLE, check_table, size_of_unlisted
from txnformat.verify.live import Live
from txnformat.verify.overtaken import without_overtaken
from txnformat.verify.references import FileUse, References
from txnformat.verify.report import ProblemKind, Progress, Record, VerifyReport
from txnformat.verify.requests import Requests
from txnformat.verify.sidecars import (
    RESTORE,
    RESTORE_SPILL,
    check_index,
    check_markers,
    check_spill,
    check_txnindex,
    sidecars_of,
)
from txnformat.verify.unnamed import count_unnamed, named_after

__all__ = ["verify_log"]

T = TypeVar("T")


def verify_log(
    store: ObjectStore, *, deep: bool = False, progress: Progress | None = None, clock: Clock | None = None
) -> VerifyReport:
    """Check a log from its objects alone; needs only read rights, and writers may go on.

    ``store``: where the log is; it need not be possible to open it. ``deep``: also read every data file: its
    hash, the checksums of its chunks, its records. Where the store can be opened again, by a path or a URL,
    files are decoded in another process, which a file may end without ending this one; a ``memory://`` store,
    one with parts of this process, and one with a clock of its own are read here. ``progress``: called with a
    VerifyProgress, on the calling thread. Raises NotFoundError: kind ``no-log``: there is neither format.json
    nor any entry; StorageError: the store cannot be listed.

    Requests: 3 LISTs (of 1,000 objects each on cloud stores), 1 GET per entry and for the slot after the
    last, 1 per bundle, snapshot, batch table and sidecar, 1 ranged GET per segment file, 1 HEAD for each that
    is in no listing; with ``deep`` all bytes of every file.
    """
    check_flags(deep=deep)
    check_callable(progress, "progress")
    return _Verification(store, deep, progress, clock or SystemClock()).run()


class _Verification:
    def __init__(self, store: ObjectStore, deep: bool, progress: Progress | None, clock: Clock) -> None:
        self._store = store
        self._deep = deep
        self._clock = clock
        self._requests = Requests(store, clock, progress)
        self._record = Record()
        self._references = References(self._record)
        self._schemas: dict[str, TopicSchema] = {}
        self._directories: dict[str, str] = {}
        self._deleted_below = 0
        self._anchored = False
        """Whether the fold began with a snapshot, whose topics are known."""
        self._table_rows: dict[str, Rows] = {}
        self._sizes: dict[str, int] = {}
        self._named: set[str] = {keys.FORMAT_KEY, keys.LATEST_KEY}
        self._live: Live | None = None
        """Objects that the newest state leads to; None while that is unknown."""
        self._vacuumed: set[str] = set()
        """Objects that entries name and a vacuum has deleted, since no reader needs them any more."""

    def run(self) -> VerifyReport:
        hint = self._requests.fetch(keys.LATEST_KEY)
        boundary = self._boundary()
        found = map(keys.parse_entry_key, self._requests.list(keys.LOG_PREFIX))
        listed = [number for number in found if number is not None]
        objects = self._requests.list("").items()
        self._sizes = {key: size for key, size in objects if not key.startswith(keys.PROBE_PREFIX)}
        empty = self._format(bool(listed))
        last = max((number for number in listed if number >= boundary), default=boundary - 1)
        snapshots = {name.born for name in map(keys.parse_snapshot_key, self._sizes) if name is not None}
        chain = ChainCheck(self._record, empty if boundary == 0 else None, snapshots, self._requests.fetch)
        if empty is not None:
            chain.log_id = empty.log_id
        self._read_chain(chain, range(boundary, last + 1))
        chain.finish()
        boundary = max(boundary, self._deleted_below)
        self._check_snapshots(chain, boundary)
        check_hint(self._record, hint, chain.checkpoints, is_known=chain.state is not None)
        self._check_tip(last)
        self._check_bundles(chain, last, boundary)
        for anchor in chain.anchors:
            self._references.add_state(anchor, chain.readable(anchor))
            self._schemas |= {key: topic.schema for key, topic in anchor.topics.items()}
            self._directories |= directories(anchor)
        self._anchored = bool(chain.anchors)
        self._live = None if chain.state is None else Live(chain.state)
        self._check_tables()
        self._check_spills(chain)
        self._check_segments(chain)
        self._check_files()
        count_unnamed(self._record, self._sizes, self._named, self._vacuumed, boundary)
        return VerifyReport(
            self._store.url,
            chain.log_id,
            boundary,
            last,
            self._deep,
            without_overtaken(self._requests, chain.state, self._record.problems),
            tuple(self._record.notes),
            dict(self._record.checked),
        )

    def _boundary(self) -> int:
        found = map(keys.parse_boundary_key, self._requests.list(keys.BOUNDARY_PREFIX))
        return max((number for number in found if number is not None), default=0)

    # The parts.

    def _format(self, has_entries: bool) -> LogState | None:
        """Return the empty state that format.json gives."""
        data = self._requests.fetch(keys.FORMAT_KEY)
        if data is None and not has_entries:
            raise NotFoundError(
                "there is no log here",
                kind="no-log",
                hint="create it with TxnLog.create, or check the path",
                path=self._store.url,
            )
        hint = "restore it from a copy; entry 0 follows it"
        if data is None:
            what = "there are commit entries, but the log's format.json is missing"
            self._record.add(ProblemKind.MISSING, keys.FORMAT_KEY, what, hint=hint)
        elif isinstance(data, StorageError):
            if data.kind in ABOUT_KEYS:
                raise data  # nothing could be looked at
            self._record.add_error(ProblemKind.UNREADABLE, keys.FORMAT_KEY, data)
        else:
            try:
                return empty_state(data)
            except FormatError as error:
                if error.kind == LOG_ENCRYPTED:
                    raise
                self._record.add_error(decode_problem(error), keys.FORMAT_KEY, error, hint)
        return None

    def _read_chain(self, chain: ChainCheck, numbers: range) -> None:
        wanted = [keys.entry_key(number) for number in numbers]
        held: CommitEntry | None = None  # counts once the next one follows it
        for number, data in zip(
            numbers, self._requests.parallel("entries", self._requests.fetch, wanted), strict=True
        ):
            if data is None and self._is_deleted(number):
                chain.skip()
                continue
            entry = chain.feed(number, data)
            if held is not None and held.entry not in chain.distrusted:
                self._learn(held)
            held = entry
        if held is not None:
            self._learn(held)

    def _is_deleted(self, number: int) -> bool:
        """Return whether an entry that is not there has been deleted meanwhile, as the boundary allows."""
        if number >= self._deleted_below:
            self._deleted_below = self._boundary()
        return number < self._deleted_below

    def _learn(self, entry: CommitEntry) -> None:
        self._references.add(entry)
        for op in entry.operations:
            if isinstance(op, CreateTopic):
                try:
                    schema = TopicSchema.from_json(op.fields, op.key_columns, op.timestamp_column)
                except (FormatError, InvalidInputError):
                    continue  # the fold has said so
                self._schemas[op.topic_id] = schema
                self._directories[op.topic_id] = op.directory
            elif isinstance(op, AlterTopic) and op.fields is not None and op.topic_id in self._schemas:
                try:
                    newer = next_version(self._schemas[op.topic_id], op.fields, op.places)
                except FormatError:
                    continue
                self._schemas[op.topic_id] = newer or self._schemas[op.topic_id]

    def _check_snapshots(self, chain: ChainCheck, boundary: int) -> None:
        """Named snapshots must be there, but for those that a truncation or a vacuum may have deleted."""
        newest = {named.key for named in chain.checkpoints[-2:]}
        floor = max(boundary, 0 if chain.state is None else chain.state.vacuum_floor)
        for named in chain.checkpoints:
            self._named.add(named.key)
            if named.key not in self._sizes and (named.key in newest or named.entry >= floor):
                what = "a snapshot that the log names is gone"
                hint = "the log is complete without it; restore it from a copy, or wait for the next snapshot"
                look = partial(size_of_unlisted, self._record, self._store, named.key, what, hint)
                try:
                    self._requests.attempt(look)
                except StorageError as error:
                    self._record.add_error(ProblemKind.UNREADABLE, named.key, error)
        if chain.state is None and boundary > 0 and not self._record.problems:
            what = f"entries below {boundary} are deleted, and no named snapshot stands for them"
            self._record.add(
                ProblemKind.MISSING, keys.SNAPSHOT_PREFIX, what, hint="restore the snapshots from a copy"
            )

    def _check_tip(self, last: int) -> None:
        """Look for whatever tells that the log was longer than its entries are now."""
        told = [
            (name.born, key)
            for key in self._sizes
            if (name := named_after(key)) is not None and name.born > last
        ]
        missing = keys.entry_key(last + 1)
        found = self._requests.fetch(missing)
        if isinstance(found, StorageError):
            advice = "remove the object in its place: readers and writers cannot pass it"
            self._record.add_error(ProblemKind.UNREADABLE, missing, found, advice)
        if told and found is None:
            born, key = max(told)
            what = f"the newest entries are missing: {key} was made after entry {born}"
            advice = "restore them from a copy; a writer that continues from here loses them"
            self._record.add(ProblemKind.MISSING, missing, what, hint=advice)

    def _check_bundles(self, chain: ChainCheck, last: int, boundary: int) -> None:
        """Compare bundles with the entries that they repeat, and those of deleted entries with the chain."""
        bundles = {key: parsed for key in self._sizes if (parsed := keys.parse_bundle_key(key)) is not None}
        firsts = {first for first, _ in bundles.values()}
        for first in range(0, boundary - BUNDLE_ENTRIES + 1, BUNDLE_ENTRIES):
            slots = map(keys.entry_key, range(first, first + BUNDLE_ENTRIES))
            if first not in firsts and not all(slot in self._sizes for slot in slots):
                what = "the bundle of deleted entries is gone: their history is lost, but no record is lost"
                self._record.add(
                    ProblemKind.MISSING, bundle_key_of(first), what, hint="restore it from a copy"
                )
        wanted = sorted((key for key in bundles if bundles[key][1] <= last), reverse=True)
        for key, data in zip(
            wanted, self._requests.parallel("bundles", self._requests.fetch, wanted), strict=True
        ):
            if check_bundle(self._record, key, bundles[key][0], data, chain.hashes):
                self._record.advise(
                    {keys.entry_key(number) for number in range(bundles[key][0], bundles[key][1] + 1)},
                    f"its bytes, without a payload, are in {key} too",
                )
        check_payloads(self._record, self._sizes, last, chain.hashes, self._requests.bundles)

    def _check_tables(self) -> None:
        uses = list(self._references.tables.values())
        self._named |= self._references.tables.keys()
        wanted = [use.record.key for use in uses]
        for use, data in zip(
            uses, self._requests.parallel("tables", self._requests.fetch, wanted), strict=True
        ):
            key, what = use.record.key, "a batch table that the log names is gone"
            if data is None and self._is_vacuumed(key):
                continue
            found = present(self._record, key, data, what, RESTORE_TABLE)
            rows = None if found is None else check_table(self._record, use, found)
            if rows is not None:
                self._table_rows[key] = rows
                for entry, op in use.appends:
                    self._references.table_rows(op, entry, rows)

    def _check_spills(self, chain: ChainCheck) -> None:
        """Compare spills with the rows that they took out of the state."""
        wanted = list(self._references.spills.values())
        self._named |= self._references.spills.keys()
        numbers = (
            {}
            if chain.state is None
            else dict(zip((one.key for one in chain.state.tables), chain.state.tables.numbers(), strict=True))
        )
        answers = self._requests.parallel("spills", self._requests.fetch, [named.key for named in wanted])
        for named, answer in zip(wanted, answers, strict=True):
            if answer is None and self._is_vacuumed(named.key):
                continue
            data = present(
                self._record, named.key, answer, "a spill that the log names is gone", RESTORE_SPILL
            )
            if data is None:
                continue
            self._record.checked["spills"] += 1
            found = check_spill(self._record, named, data, chain.spilled.get(named.key))
            if found is not None and self._live is not None and named.key in numbers:
                self._live.spilled(numbers[named.key], found)

    def _check_segments(self, chain: ChainCheck) -> None:
        """Compare segment lists, and the sidecars of every sealed segment."""
        newest = (
            () if self._live is None else self._live.lists
        )  # first: older lists may share objects with them
        for one in {
            named.key: named for named in (*newest, *self._references.segment_lists.values())
        }.values():
            is_live = one in newest
            if not one.leaves:
                self._check_list(
                    one, partial(decode_segment_list, named=one, directories=self._directories), is_live
                )
                continue
            for leaf in self._list_object(one, partial(decode_root, named=one)) or ():
                if self._live is not None and is_live:
                    self._live.keys.add(leaf.record.key)
                decode = partial(decode_leaf, leaf=leaf, directories=self._directories)
                self._check_list(leaf.record, decode, is_live)
        uses = list(self._references.segments.values())
        wanted = [(use, kind, named) for use in uses for kind, named in sidecars_of(use.record)]
        self._named |= {named.key for _, _, named in wanted}
        fetched = self._requests.parallel(
            "sidecars", self._requests.fetch, [named.key for _, _, named in wanted]
        )
        for (use, kind, named), answer in zip(wanted, fetched, strict=True):
            if answer is None and self._is_vacuumed(named.key):
                continue
            data = self._object(named.key, answer)
            expected = chain.sealed.get(use.record.index.key)
            if data is None:
                continue
            self._record.checked["sidecars"] += 1
            match kind:
                case "index":
                    copies: list[tuple[int, Copied]] = []
                    index = check_index(self._record, named, data, expected, self._table_rows, copies)
                    if index is not None:
                        self._references.sealed_batches(use, index, copies)
                        if self._live is not None:
                            self._live.index(named.key, index)
                        chain.lifecycle.index(named.key, index)
                case "markers":
                    check_markers(self._record, named, data, expected)
                case _:
                    check_txnindex(self._record, named, data, expected)
        chain.lifecycle.finish()

    def _object(self, key: str, answer: bytes | StorageError | None) -> bytes | None:
        """Return a sidecar's bytes, or note why there are none."""
        return present(self._record, key, answer, "a sidecar that the log names is gone", RESTORE)

    def _list_object(self, named: ObjectRecord, decode: Callable[[bytes], T]) -> T | None:
        """Return what an object of a segment list holds, or note what is wrong with it."""
        self._named.add(named.key)
        answer = self._requests.fetch(named.key)
        if answer is None and self._is_vacuumed(named.key):
            return None
        data = self._object(named.key, answer)
        if data is None:
            return None
        self._record.checked["segment_lists"] += 1
        advice = "restore the object from a copy; offsets that it describes cannot be read without it"
        return decoded(self._record, named, data, advice, decode)

    def _is_vacuumed(self, key: str) -> bool:
        """Return whether an object that is not there may have been deleted by a vacuum; then it is
        counted.
        """
        if self._live is None or not self._live.may_be_gone(key):
            return False
        self._vacuumed.add(key)
        return True

    def _check_list(
        self, named: ObjectRecord, decode: Callable[[bytes], ListedSegments], is_live: bool
    ) -> None:
        """Compare a segment list, or a leaf of it, with the seals; where those are deleted, learn the
        segments from it.
        """
        listed = self._list_object(named, decode)
        if listed is not None and is_live and self._live is not None:
            self._live.listed(listed)
        for part in (part for parts in (listed or {}).values() for part in parts):
            known = self._references.segments.get(part.record.index.key)
            if self._is_gone(part.record.topic_id):
                continue  # left out by the next list that takes this one in
            if known is None:
                self._references.segment(part.record, 0)
            elif known.record != part.record:
                what = "the segment list names sidecars otherwise than the entry that sealed them"
                self._record.add(
                    ProblemKind.CONFLICTING_REFERENCE, named.key, what, known.record, part.record
                )

    def _is_gone(self, topic_id: str) -> bool:
        """Return whether a topic was deleted: by an entry that is there, or before the snapshot that the fold
        began with.
        """
        return topic_id in self._references.deleted or (self._anchored and topic_id not in self._directories)

    def _check_files(self) -> None:
        self._named |= self._references.files.keys()
        named = self._references.files.items()
        uses = [use for key, use in named if key in self._sizes or not self._may_lack(use)]
        asked = [
            Asked(number, use, self._sizes.get(use.record.key), self._schema_of(use))
            for number, use in enumerate(uses)
        ]
        check = partial(check_files, self._store, self._clock, self._requests)
        with closing(check(asked, self._sizes, deep=self._deep)) as files:
            for found in files:
                self._record.problems += found.problems
                self._record.checked.update(found.checked)

    def _may_lack(self, use: FileUse) -> bool:
        """Return whether a file that is no object may be gone: a vacuum has deleted it, or a truncation the
        entry that had it.
        """
        place = use.record.place
        if place is None:
            return self._is_vacuumed(use.record.key)
        is_live = self._live is None or use.record.key in self._live.keys
        return (
            not is_live and keys.entry_key(place.entry) not in self._sizes and self._is_deleted(place.entry)
        )

    def _schema_of(self, use: FileUse) -> pa.Schema | None:
        topic = self._schemas.get(use.topic_id or "")
        if topic is None or use.record.schema_id > topic.schema_id:
            return None
        return stored_schema(topic, use.record).stored if use.runs else topic.version(use.record.schema_id)
