"""The judge of records that go one by one in a simulated history: those of keys that have later ones, and
erased ones.

Kept by the rules of the specification alone, from the operations of the entries and from the bytes of the
files that they name:

* a ``replace`` brings back nothing that was gone, and takes nothing away but what key compaction or an
  erasure may take;
* key compaction takes a record only if a later one of its key stays, or it is a tombstone that was there for
  long enough, with all before it of its key gone;
* an erasure takes only what its condition matches; when its certificate lands, no object of the topic has any
  of what it covers;
* the operation says of which entries it has taken records, so that older versions are refused.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry
from txnformat.core.lifecycle.operations import (
    AbandonErasure,
    AdvanceErasure,
    CleanedPartition,
    CompleteErasure,
    Replace,
    RequestErasure,
)
from txnformat.core.operations import Append
from txnformat.core.sealing.sidecar import SegmentIndex, decode_index
from txnformat.core.state import LogState
from txnformat.core.wire.bundle import decode_payloads
from txnformat.persistent import Rows
from txnformat.segments.payload import payload_of
from txnformat.types import OffsetRange, TopicPartition
from txnlog_testing.simulator.contents import DELETE_RETENTION_MS, Contents, Row
from txnlog_testing.simulator.store import SimStore
from txnlog_testing.simulator.world import HistoryViolation

__all__ = ["Condition", "ErasureOperation", "Known", "RewriteLedger"]

ErasureOperation = RequestErasure | AdvanceErasure | CompleteErasure | AbandonErasure


class Known(NamedTuple):
    """A committed record."""

    row: Row
    commit_entry: int


class Condition(NamedTuple):
    """Of an erasure."""

    topic_id: str
    sql: str
    matches: Callable[[Row], bool]


class _Erasure(NamedTuple):
    condition: Condition
    directory: str
    entry: int
    begun: frozenset[tuple[int, int]]
    """Transactions that were open then."""


class RewriteLedger:
    """The records that keys and erasures have taken in one history.

    Parameters
    ----------
    committed : callable
        Returns the committed records of a partition by offset, also those that are gone.
    start : callable
        Returns the log start of a partition.
    hits : Counter
        Counts what happened.
    """

    def __init__(
        self,
        contents: Contents,
        store: SimStore,
        committed: Callable[[TopicPartition], dict[int, Known]],
        start: Callable[[TopicPartition], int],
        hits: Counter[str],
    ) -> None:
        self.contents = contents
        self._store = store
        self._committed = committed
        self._start = start
        self._hits = hits
        self.gone: dict[TopicPartition, dict[int, str]] = {}
        """Why each record is gone, by offset: ``key`` or ``erasure``."""
        self.conditions: dict[str, Condition] = {}
        """Conditions of erasures, by the hash that the log has."""
        self._erasures: dict[str, _Erasure] = {}
        self.complete: set[str] = set()
        self._compared: dict[TopicPartition, list[tuple[int, int]]] = {}
        """How far keys were compared, and the log time of it."""
        self._landed: dict[str, tuple[int, tuple[int, int]]] = {}
        """Entry that has appended or staged a batch, and its transaction, by the digest of the batch."""
        self._files: dict[str, Any] = {}
        self._whole: set[str] = set()
        """Compacted files that an entry has named, with all of their records."""

    def landed(self, digest: str, entry: int, who: tuple[int, int]) -> None:
        """Note that a batch is in the log."""
        self._landed[digest] = (entry, who)

    def gone_of(self, key: TopicPartition) -> dict[int, str]:
        """Return what is gone of a partition."""
        return self.gone.setdefault(key, {})

    # Compaction.

    def replaced(self, op: Replace, entry: CommitEntry, after: LogState) -> None:
        """Judge a ``replace``."""
        missing: dict[TopicPartition, set[int]] = {}
        shown: dict[int, dict[int, int]] = {}
        files: set[str] = set()
        for segment in op.segments:
            index = decode_index(self._store.get(segment.index.key), segment.index)
            for part in segment.partitions:
                key = TopicPartition(op.topic_id, part.partition)
                within = OffsetRange(part.start_offset, part.end_offset)
                told = self.shown(index, key.partition, index.runs_of(key.partition, within))
                missing.setdefault(key, set()).update(self._missing(key, within, told))
                shown.setdefault(key.partition, {}).update(told)
                runs = index.runs_of(key.partition, within)
                files |= {index.files[int(one)].key for one in runs["file"]}
                self._hits["compacted by the product"] += 1
        self._check_whole(files, shown)
        taken = 0
        for key, offsets in missing.items():
            erased = self._erased(op, key, offsets)
            taken += len(erased)
            self._clean(op, entry, key, offsets - erased)
            for offset in erased:
                self.gone_of(key)[offset] = "erasure"
            self._check_stamp(key, after)
        if op.erased is not None:
            if taken != op.erased.records:
                raise HistoryViolation(f"{op.erased} has taken {taken} committed records")
            self._hits["erased records"] += taken

    def _check_whole(self, files: set[str], shown: Mapping[int, Mapping[int, int]]) -> None:
        """Check that files which are named for the first time hold nothing that is not: it may have been
        removed, and would stay.
        """
        for key in files - self._whole:
            for numbers, offsets, _ in self._file(key):
                for number, offset in zip(numbers, offsets, strict=True):
                    if offset not in shown.get(number, {}):
                        raise HistoryViolation(
                            f"{key} holds {number}/{offset}, which its entry does not name"
                        )
        self._whole |= files

    def shown(self, index: SegmentIndex, partition: int, runs: Rows) -> dict[int, int]:
        """Return what compacted files hold in some runs: numbers by offset."""
        found: dict[int, int] = {}
        for run in runs:
            file = self._file(index.files[int(run["file"])].key)
            first = int(run["row_group"])
            for group in range(first, first + int(run["row_group_count"])):
                numbers, offsets, names = file[group]
                for number, offset, name in zip(numbers, offsets, names, strict=True):
                    if number != partition or offset in found:
                        raise HistoryViolation(
                            f"a run of partition {partition} holds {number}/{offset} again"
                        )
                    found[offset] = name
        return found

    def _file(self, key: str) -> list[tuple[list[int], list[int], list[int]]]:
        if key not in self._files:
            data = self._store.get(key)
            if data is None:
                raise HistoryViolation(f"{key} is named, and not there")
            parquet = pq.ParquetFile(io.BytesIO(data))
            groups = [
                parquet.read_row_group(group, ["_partition", "_offset", "n"]).to_pydict()
                for group in range(parquet.num_row_groups)
            ]
            self._files[key] = [(one["_partition"], one["_offset"], one["n"]) for one in groups]
        found: list[tuple[list[int], list[int], list[int]]] = self._files[key]
        return found

    def _missing(self, key: TopicPartition, within: OffsetRange, told: dict[int, int]) -> set[int]:
        committed = {
            offset: known
            for offset, known in self._committed(key).items()
            if within.start <= offset < within.end
        }
        gone = self.gone_of(key)
        for offset, name in told.items():
            if offset not in committed or committed[offset].row.n != name:
                raise HistoryViolation(f"a compacted segment of {key} has {name} at {offset}")
            if offset in gone:
                raise HistoryViolation(f"{key}/{offset} is back, which was gone by {gone[offset]}")
        start = self._start(key)
        return {offset for offset in committed if offset >= start and offset not in gone} - set(told)

    def _erased(self, op: Replace, key: TopicPartition, missing: set[int]) -> set[int]:
        part = None
        if op.erased is not None:
            part = next((one for one in op.erased.partitions if one.partition == key.partition), None)
        if op.erased is None or part is None:
            return set()
        condition = self._erasures[op.erased.erasure_id].condition
        committed = self._committed(key)
        found = {offset for offset in missing if condition.matches(committed[offset].row)}
        newest = max((committed[offset].commit_entry for offset in found), default=-1)
        if part.commit_entry < newest:
            raise HistoryViolation(f"{part} of {key} has taken a record of entry {newest}")
        return found

    def _clean(self, op: Replace, entry: CommitEntry, key: TopicPartition, missing: set[int]) -> None:
        part = next((one for one in op.cleaned if one.partition == key.partition), None)
        if missing and part is None:
            raise HistoryViolation(f"{key} has lost {sorted(missing)}")
        if part is None:
            return
        committed, gone = self._committed(key), self.gone_of(key)
        for offset in missing:
            gone[offset] = "key"
        for offset in sorted(missing):
            self._check_taken(part, entry, key, offset, committed)
        self._hits["taken by keys"] += len(missing)
        if part.cleaned_end:
            self._compared.setdefault(key, []).append((part.cleaned_end, entry.timestamp_ms))

    def _check_taken(
        self,
        part: CleanedPartition,
        entry: CommitEntry,
        key: TopicPartition,
        offset: int,
        committed: dict[int, Known],
    ) -> None:
        """Check that key compaction may take a record."""
        gone = self.gone_of(key)
        row, commit_entry = committed[offset]
        later = any(
            other > offset
            and known.row.k == row.k
            and gone.get(other) != "erasure"
            and max(known.commit_entry, commit_entry) <= part.commit_entry
            for other, known in committed.items()
        )
        if later:
            return
        due_ms = entry.timestamp_ms - DELETE_RETENTION_MS
        is_due = any(end > offset and time <= due_ms for end, time in self._compared.get(key, ()))
        if not row.gone or not is_due:
            raise HistoryViolation(
                f"{part} has taken {key}/{offset}, for which no later one of its key is known: {row} of "
                f"entry {commit_entry}"
            )
        self._hits["tombstone taken"] += 1
        if commit_entry > part.commit_entry:
            raise HistoryViolation(f"{part} has taken {key}/{offset} of entry {commit_entry}")
        start = self._start(key)
        back = [
            other
            for other, known in committed.items()
            if start <= other < offset and known.row.k == row.k and other not in gone
        ]
        if back:
            raise HistoryViolation(f"{part} has taken the tombstone {key}/{offset}, and {back} are there")

    def _check_stamp(self, key: TopicPartition, after: LogState) -> None:
        """Check that versions from before what is gone are refused."""
        committed, partition = self._committed(key), after.partition(key)
        for offset, cause in self.gone_of(key).items():
            known = partition.erased_entry if cause == "erasure" else partition.cleaned_entry
            if committed[offset].commit_entry > known:
                raise HistoryViolation(f"{key}/{offset} is gone by {cause}, and the state says {known}")

    # Erasures.

    def on_erasure(
        self, op: ErasureOperation, entry: CommitEntry, after: LogState, opened: frozenset[tuple[int, int]]
    ) -> None:
        """Judge an operation of an erasure. ``opened``: the transactions that are open."""
        match op:
            case RequestErasure():
                condition = self.conditions[op.condition]
                directory = keys.topic_directory(*self._name_of(after, condition.topic_id))
                self._erasures[op.erasure_id] = _Erasure(condition, directory, entry.entry, opened)
                self._hits["erasure requested"] += 1
            case CompleteErasure():
                self.complete.add(op.erasure_id)
                self._hits["erasure complete"] += 1
                for key, numbers in self._held(self._erasures[op.erasure_id]):
                    raise HistoryViolation(f"{op} is complete, and {key} has {numbers}")
            case AbandonErasure():
                self._hits["erasure abandoned"] += 1
            case AdvanceErasure():
                self._hits["erasure advanced"] += 1

    @staticmethod
    def _name_of(after: LogState, topic_id: str) -> tuple[str, str]:
        for known in after.erasures.values():
            if known.topic_id == topic_id:
                return known.topic, topic_id
        raise HistoryViolation(f"no erasure of {topic_id} is in the state")

    def _held(self, erasure: _Erasure) -> Iterator[tuple[str, list[int]]]:
        """Yield the files of a topic that hold something of what an erasure covers."""
        for info in self._store.list(f"{erasure.directory}/data/"):
            data = self._store.get(info.key, info.size)
            assert data is not None
            numbers = pq.read_table(io.BytesIO(data), columns=["n"]).column("n").to_pylist()
            held = [number for number in numbers if self._is_covered(erasure, number)]
            if held:
                yield info.key, held
        for info in self._store.list(keys.LOG_PREFIX):
            slot, data = keys.parse_entry_key(info.key), self._store.get(info.key)
            assert slot is not None
            assert data is not None
            if held := self._covered_in(erasure, slot, data):
                yield info.key, held
        for info in self._store.list(keys.PAYLOAD_PREFIX):
            if held := [
                number
                for slot, data in self._bundled(info.key)
                for number in self._covered_in(erasure, slot, data)
            ]:
                yield info.key, held

    def _bundled(self, key: str) -> Iterable[tuple[int, bytes]]:
        """Return the entries of a payload bundle; none, if the simulator has damaged it."""
        entries, data = keys.parse_payloads_key(key), self._store.get(key)
        assert entries is not None
        assert data is not None
        first, last = entries
        return (
            ()
            if key in self._store.damaged
            else enumerate(decode_payloads(data, key, last + 1 - first), first)
        )

    def _covered_in(self, erasure: _Erasure, slot: int, data: bytes) -> list[int]:
        """Return the numbers in the payload of an entry that an erasure covers."""
        return [
            number
            for number in self._embedded(slot, data, f"{erasure.directory}/")
            if self._is_covered(erasure, number)
        ]

    def _embedded(self, slot: int, data: bytes, directory: str) -> Iterator[int]:
        """Yield the numbers in the payload of an entry, of the files of a topic."""
        payload = payload_of(data)
        if not payload:
            return
        for op in decode_entry(data, slot).operations:
            for file in op.files if isinstance(op, Append) else ():
                if file.place is not None and file.key.startswith(directory):
                    start = file.place.start
                    table = pq.read_table(io.BytesIO(payload[start : start + file.size]), columns=["n"])
                    yield from table.column("n").to_pylist()

    def _is_covered(self, erasure: _Erasure, number: int) -> bool:
        digest = self.contents.batch_of[number]
        row = next(one for one in self.contents.rows[digest] if one.n == number)
        if not erasure.condition.matches(row):
            return False
        if digest not in self._landed:
            return self.contents.uploaded[digest] <= erasure.entry
        landed, who = self._landed[digest]
        return landed <= erasure.entry or who in erasure.begun

    def check_live(self, live: Container[str]) -> None:
        """Check that none of the files that are in use holds anything of a complete erasure."""
        for erasure_id in self.complete:
            for key, numbers in self._held(self._erasures[erasure_id]):
                if key in live:
                    raise HistoryViolation(f"{key} is in use, and has the erased {numbers}")
                self._hits["erased records in garbage written late"] += 1

    # Readers.

    def check_version(
        self, key: TopicPartition, entry: int, shown: dict[int, int], gone: dict[int, str]
    ) -> None:
        """Judge what a reader of a version was shown of a partition: numbers by offset.

        ``gone``: what was gone when it began.
        """
        everything = self._committed(key)
        committed = {offset: known for offset, known in everything.items() if known.commit_entry <= entry}
        for offset, name in shown.items():
            if offset not in committed or committed[offset].row.n != name:
                raise HistoryViolation(f"version {entry} of {key} shows {name} at {offset}")
        refused = [
            offset
            for offset, cause in gone.items()
            if cause == "erasure" and everything[offset].commit_entry > entry
        ]
        if refused:
            raise HistoryViolation(f"version {entry} of {key} is shown, of which {refused} were erased later")
        for offset in committed.keys() - shown.keys():
            row, cause = committed[offset].row, self.gone_of(key).get(offset)
            later = any(other > offset and known.row.k == row.k for other, known in committed.items())
            if cause is None or (cause == "key" and not later and not row.gone):
                raise HistoryViolation(f"version {entry} of {key} lacks {row} at {offset} (gone by {cause})")
        self._hits["version read"] += 1
