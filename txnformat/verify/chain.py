"""The chain checked from its bytes: links, fold, invariants, snapshots. Pure; bytes come in as arguments.

Entries are fed in order. While all is well they are folded from the empty state. After a missing or
unreadable entry, or one that is not what the next one follows, the state is unknown: the next entries are
decoded and their links checked, and the fold begins again from the next snapshot that an entry names. The
same way begins a log whose oldest entries are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.core.fold import apply
from txnformat.core.invariants import check_state, check_whole
from txnformat.core.operations import Checkpoint
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.spills import Spilled, unspilled
from txnformat.core.snapshot.codec import decode_snapshot, state_digest
from txnformat.core.snapshot.spilled import decode_spill
from txnformat.core.state import LogState
from txnformat.core.wire.entry_bytes import has_checksum
from txnformat.errors import CorruptDataError, FormatError, StorageError, TxnLogError, UnsupportedFeatureError
from txnformat.persistent import replace, update
from txnformat.segments.payload import head_of, payload_problem
from txnformat.types import ObjectRecord, TopicPartition
from txnformat.verify.bytes import decode_problem, decoded, present
from txnformat.verify.lifecycle import LifecycleCheck
from txnformat.verify.offsets import OffsetDerivation
from txnformat.verify.report import ProblemKind, Record
from txnformat.verify.sidecars import (
    RESTORE_SPILL,
    ExpectedSegment,
    expected_segments,
    expected_spills,
    moved_by,
)

__all__ = ["ChainCheck"]

RESTORE_ENTRY = "restore the entry from a copy; until then readers stop before it"
RESTORE_PAYLOAD = (
    "restore the entry from a copy; until then readers stop at its rows, and no seal moves them to a file"
)
FOLLOWED = (
    "the next entry follows these very bytes, from a writer that checks less: the entry as it was written "
    "would break the "
    "chain there, so restore the whole log from a backup"
)
REPORT_DEFECT = "run no writer on this log before its cause is known, and please report it"

Fetch = Callable[[str], bytes | StorageError | None]


class _Linked(NamedTuple):
    """An entry that was read, without a state."""

    entry: CommitEntry
    sha256: str


@dataclass(frozen=True, slots=True)
class _Mismatch:
    """A link that does not fit; whose fault it is, the next link tells."""

    key: str
    """Key of the object that the entry after it does not follow."""
    expected: str
    got: str


class ChainCheck:
    """Checks the entries of a log one after another.

    ``record``: where problems go. ``empty``: the state before entry 0, to begin with; None to begin with a
    snapshot. ``candidates``: entries of which there are snapshots: digests are kept of the states after them.
    ``fetch``: returns the bytes of a snapshot, None when it is missing, or why it could not be read.
    """

    def __init__(self, record: Record, empty: LogState | None, candidates: set[int], fetch: Fetch) -> None:
        self.state = empty
        """The state after the last entry; None while it is unknown."""
        self.anchors: list[LogState] = []
        """Snapshots that the fold began with: what they name comes from entries that were not seen."""
        self.log_id = empty.log_id if empty is not None else None
        self.sealed: dict[str, ExpectedSegment] = {}
        """Rows that sealed segments must hold, by the key of their ``.index``."""
        self.spilled: dict[str, Spilled] = {}
        """Rows that spills must hold, by key."""
        self.lifecycle = LifecycleCheck(record)
        """Trims and compactions, to be compared with the segments."""
        self.distrusted: set[int] = set()
        """Entries that are not what the next one follows: what they say counts for nothing."""
        self.hashes: dict[int, str] = {}
        """sha256 of every entry: what the next one says, else (the newest) of what was read."""
        self.checkpoints: list[Checkpoint] = []
        """All that entries name, oldest first."""
        self._record = record
        self._candidates = candidates
        self._fetch = fetch
        self._derivation = OffsetDerivation(empty) if empty is not None else None
        self._previous = (keys.FORMAT_KEY, empty.entry_sha256) if empty is not None else None
        self._mismatch: _Mismatch | None = None
        self._said: dict[int, str] = {}
        self._digests: dict[int, str] = {}
        self._buffer: dict[int, _Linked] = {}
        self._torn: set[str] = (
            set()
        )  # entries of which nothing but the payload is damaged: the chain does not bind that

    def feed(self, number: int, data: bytes | StorageError | None) -> CommitEntry | None:
        """Check the next entry; returns it, or None when it could not be read."""
        key = keys.entry_key(number)
        data = present(
            self._record, key, data, "a commit entry is missing, but later entries exist", RESTORE_ENTRY
        )
        if data is None:
            self.skip()
            return None
        sha256 = self.hashes[number] = sha256_hex(head_of(data))
        self._record.checked["entries"] += 1
        try:
            entry = decode_entry(data, number)
        except FormatError as error:
            hint = RESTORE_ENTRY if isinstance(error, CorruptDataError) else None
            self._record.add_error(decode_problem(error), key, error, hint)
            self._settle(None)
            self._lose()
            self._previous = (key, sha256)
            return None
        self._check_payload(entry, data)
        self._record.checked["entries_with_checksum"] += has_checksum(head_of(data))
        self._record.checked["operations"] += len(entry.operations)
        self._link(entry)
        self._said[number - 1] = entry.previous
        self._previous = (key, sha256)
        if self.state is not None:
            self._fold(self.state, entry, sha256)
        elif self._buffer or number in self._candidates:
            self._buffer[number] = _Linked(entry, sha256)
        for operation in entry.operations:
            if isinstance(operation, Checkpoint):
                self._checkpoint(operation)
        return entry

    def _check_payload(self, entry: CommitEntry, data: bytes) -> None:
        """Compare the payload with what the head says of it: the chain does not bind it."""
        got = payload_problem(entry.payload, data)
        if got is not None:
            self._torn.add(keys.entry_key(entry.entry))
            what = "the entry's payload differs from the one that its head names"
            expected = (
                "none"
                if entry.payload is None
                else f"{entry.payload.size} bytes, sha256 {entry.payload.sha256}"
            )
            self._record.add(
                ProblemKind.WRONG_HASH, keys.entry_key(entry.entry), what, expected, got, RESTORE_PAYLOAD
            )

    def skip(self) -> None:
        """Say that the next entry was deleted meanwhile, as its boundary allows."""
        self._settle(None)
        self._lose()
        self._previous = None

    def _link(self, entry: CommitEntry) -> None:
        """Compare the entry's link with what is before it."""
        linked = self._previous is None or entry.previous == self._previous[1]
        self._settle(self._previous[0] if linked and self._previous is not None else None)
        if linked and self._previous is not None and self._previous[0] not in self._torn:
            self._record.advise({self._previous[0]}, FOLLOWED)
        if not linked and self._previous is not None:
            self._mismatch = _Mismatch(self._previous[0], entry.previous, self._previous[1])
            self._distrust(entry)
        if self.log_id is None:
            self.log_id = entry.log_id
        elif entry.log_id != self.log_id:
            self._record.add(
                ProblemKind.BROKEN_CHAIN,
                keys.entry_key(entry.entry),
                "an entry belongs to another log",
                self.log_id,
                entry.log_id,
                RESTORE_ENTRY,
            )

    def _distrust(self, entry: CommitEntry) -> None:
        """Do not judge what follows by an object that is not what ``entry`` follows."""
        if entry.entry == 0:
            self.log_id = entry.log_id  # of format.json nothing else counts
        else:
            self.distrusted.add(entry.entry - 1)
            self._digests.pop(entry.entry - 1, None)
            self._lose()

    def _settle(self, vouched: str | None) -> None:
        """Report the link that did not fit, now that it is known whether the entry that says so is
        ``vouched`` for.
        """
        mismatch, self._mismatch = self._mismatch, None
        if mismatch is None or self._record.has(mismatch.key):
            return
        hint = RESTORE_ENTRY
        if vouched is None:
            hint += "; if the next entry has a problem too, restore that first and verify again"
        self._record.add(
            ProblemKind.BROKEN_CHAIN,
            mismatch.key,
            "it differs from the entry that the next entry names",
            f"sha256 {mismatch.expected}",
            mismatch.got,
            hint,
        )

    def _fold(self, state: LogState, entry: CommitEntry, sha256: str) -> None:
        key = keys.entry_key(entry.entry)
        # A format.json or a log id that does not fit is reported as such; the rest is looked at all the same.
        before = replace(state, entry_sha256=entry.previous, log_id=entry.log_id)
        try:
            after = apply(before, entry, sha256)
            problems = check_state(before, entry, after)
        except UnsupportedFeatureError as error:
            self._record.add_error(ProblemKind.UNSUPPORTED, key, error)
            self._lose()
            return
        except (TxnLogError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            self._record.add_error(
                ProblemKind.INVALID_ENTRY, key, error, f"{RESTORE_ENTRY}; if it is its own, {REPORT_DEFECT}"
            )
            self._lose()
            return
        for problem in problems:
            self._record.add(ProblemKind.INVARIANT, key, problem, hint=REPORT_DEFECT)
        moved = moved_by(entry)
        if moved:
            self._compare(state)  # what leaves the state is looked at before it is gone
            whole = self.whole(before, moved)
            if whole is not None:
                self.sealed |= expected_segments(whole, entry)
                self.spilled |= expected_spills(whole, entry)
        self.lifecycle.add(before, entry)
        self.state = after
        if self._derivation is not None:
            self._derivation.add(entry)
        if entry.entry in self._candidates:
            self._digests[entry.entry] = state_digest(after)

    def whole(self, state: LogState, places: Iterable[TopicPartition]) -> LogState | None:
        """Return a state with what was spilled of some partitions; None where an object is gone or, and then
        the problem is noted, cannot be read.
        """
        found: dict[int, Spilled] = {}
        for key in places:
            for one in state.partition(key).spills:
                named = state.tables[one.table]
                if named.key not in self.spilled and not self._load(named):
                    return None
                found[one.table] = self.spilled[named.key]
        try:
            return unspilled(state, dict.fromkeys(places, 0), found)
        except FormatError as error:
            self._record.add_error(decode_problem(error), keys.entry_key(state.entry), error, REPORT_DEFECT)
            return None

    def readable(self, snapshot: LogState) -> LogState:
        """Return the state of a snapshot with what those of its spills hold that are there and can be read:
        the others may have been taken in, and deleted, since.
        """
        changed: dict[TopicPartition, PartitionState] = {}
        found: dict[int, Spilled] = {}
        for key, partition in snapshot.partitions.items():
            kept = []
            for one in partition.spills:
                named = snapshot.tables[one.table]
                if named.key in self.spilled or self._load(named):
                    found[one.table] = self.spilled[named.key]
                    kept.append(one)
            if partition.spills:
                changed[key] = replace(partition, spills=tuple(kept))
        state = replace(snapshot, partitions=update(snapshot.partitions, changed))
        try:
            return unspilled(state, dict.fromkeys(changed, 0), found)
        except FormatError as error:
            self._record.add_error(
                decode_problem(error), keys.entry_key(snapshot.entry), error, REPORT_DEFECT
            )
            return snapshot

    def _load(self, named: ObjectRecord) -> bool:
        """Read a spill whose entry was not seen: nothing else says what is in it.

        One that is gone is no problem yet: a later spill or seal may have taken it in, and a vacuum deleted
        it. Once the newest state is known, all spills are looked at.
        """
        answer = self._fetch(named.key)
        if answer is None:
            return False
        data = present(self._record, named.key, answer, "a spill that the log names is gone", RESTORE_SPILL)
        found = (
            decoded(self._record, named, data, RESTORE_SPILL, lambda data: decode_spill(data, named))
            if data is not None
            else None
        )
        if found is None:
            return False
        self.spilled[named.key] = found
        return True

    def _lose(self) -> None:
        """Go on without a state."""
        if self.state is not None:
            self._compare(self.state)
        self.state = None
        self._derivation = None
        self._buffer = {}

    def _checkpoint(self, named: Checkpoint) -> None:
        """Check the snapshot that an entry names, and begin the fold with it if there is none."""
        self.checkpoints.append(named)
        data = self._fetch(named.key)
        if data is None:
            return  # whether it may be gone is known once all checkpoints are
        self._record.checked["snapshots"] += 1
        if isinstance(data, StorageError):
            self._record.add_error(ProblemKind.UNREADABLE, named.key, data)
            return
        hint = (
            "the log is complete without it; restore it from a copy, or wait for the next snapshot, "
            "which replaces it"
        )
        expected, log_id = self._digests.get(named.entry), self.log_id or ""
        snapshot = decoded(self._record, named, data, hint, lambda data: decode_snapshot(data, named, log_id))
        if snapshot is None:
            return
        if expected is not None and expected != named.digest:
            self._record.add(
                ProblemKind.SNAPSHOT_DIFFERS,
                named.key,
                f"the snapshot is not the state that the entries up to {named.entry} give",
                expected,
                named.digest,
                REPORT_DEFECT,
            )
        if self.state is None:
            self._begin_with(snapshot)

    def _begin_with(self, snapshot: LogState) -> None:
        at = self._buffer.get(snapshot.entry)
        if at is None:
            return
        if at.sha256 != snapshot.entry_sha256:
            key = keys.entry_key(snapshot.entry)
            if not self._record.has(key):
                self._record.add(
                    ProblemKind.BROKEN_CHAIN,
                    key,
                    "it is not the entry that the snapshot of its state follows",
                    f"sha256 {snapshot.entry_sha256}",
                    at.sha256,
                    RESTORE_ENTRY,
                )
            return
        for problem in check_whole(snapshot):
            self._record.add(
                ProblemKind.INVARIANT, keys.entry_key(snapshot.entry), problem, hint=REPORT_DEFECT
            )
        later = {number: linked for number, linked in self._buffer.items() if number > snapshot.entry}
        self._buffer = {}
        self.state = snapshot
        self.anchors.append(snapshot)
        self.lifecycle.begin(snapshot)
        self._derivation = OffsetDerivation(snapshot)
        for _, (entry, sha256) in sorted(later.items()):
            if self.state is not None:
                self._fold(self.state, entry, sha256)

    def _compare(self, state: LogState) -> None:
        """Compare a state with what its entries say when they are looked at in another way."""
        if self._derivation is None:
            return
        for violation in self._derivation.compare(state):
            kind = ProblemKind.OFFSETS if violation.is_offsets else ProblemKind.VISIBILITY
            name = partition_name(state, violation.partition)
            self._record.add(kind, name, violation.what, violation.expected, violation.got, REPORT_DEFECT)

    def finish(self) -> None:
        """Check what only the end shows."""
        self._settle(None)
        self.hashes |= {
            number: said for number, said in self._said.items() if number + 1 not in self.distrusted
        }
        if self.state is None:
            return
        self._compare(self.state)
        self._record.checked["partitions"] += self.state.partition_count
        if self.state.entry >= 0:
            for problem in check_whole(self.state):
                self._record.add(
                    ProblemKind.INVARIANT, keys.entry_key(self.state.entry), problem, hint=REPORT_DEFECT
                )


def partition_name(state: LogState, key: TopicPartition) -> str:
    """Return what people call a partition."""
    topic = state.topics.get(key.topic_id)
    return f"{topic.name if topic else key.topic_id}/{key.partition}"
