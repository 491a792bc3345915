"""The history of a log, entry by entry, newest first: for people, audits and tools.

Entries are read backwards. Each one's hash is in the entry after it, and the newest one's in the state, so
that what is shown is the chain itself: an entry that was exchanged is an error, never a line of the history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from txnformat import keys
from txnformat.core.entry import CommitEntry, decode_entry, missing_entry, sha256_hex
from txnformat.core.groups.operations import CommitOffsets, DeleteGroup, JoinGroup
from txnformat.core.operation_codec import operation_name
from txnformat.core.operations import Append, Cause, EndTxn, GiveUp, InitProducer, Stage
from txnformat.core.state import LogState
from txnformat.core.subscriptions.operations import Ack
from txnformat.core.wire.bundle import BUNDLE_ENTRIES, bundle_first
from txnformat.errors import CorruptDataError, InvalidInputError, NotFoundError, repr_of
from txnformat.protocol.effects import Steps
from txnformat.protocol.old_entries import history_gone
from txnformat.protocol.reads import get_object, read_boundary, read_slots
from txnformat.protocol.tail import bundle_key_of, usable_bundle
from txnformat.segments.payload import entry_bytes
from txnformat.types import Outcome

__all__ = [
    "GivenUp",
    "GroupChange",
    "GroupChangeKind",
    "HistoryEntry",
    "TopicChange",
    "TransactionEnd",
    "read_history",
]

BATCH_MIN = 16
"""Entries read at once to begin with: a caller who wants the newest few does not wait for more."""
BATCH_MAX = 128
"""Entries read at once further back."""
LOOK_BACK = 1_000
"""Most entries read further back for a transaction without offsets that an opening of its id aborted."""

T = TypeVar("T")


class RunSteps(Protocol):
    """Runs steps that only read, and returns what they return."""

    def __call__(self, steps: Steps[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The records that one entry appended to one topic."""

    topic: str
    """Its name; its id when the log knows no name for it any more."""
    topic_id: str
    partitions: int
    """Partitions that got records."""
    rows: int
    bytes: int
    """Compressed bytes of the batches."""
    files: int
    batches: int


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A transaction that an entry ended."""

    transactional_id: str
    producer_id: int
    epoch: int
    outcome: Outcome
    cause: Cause


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The records that a prepared transaction lost in one partition, by force; it kept the others, and stayed
    prepared.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    topic: str
    """Its name; its id when the log knows no name for it any more."""
    partition: int
    marker_offset: int
    """Offset of the ABORT marker there."""


class GroupChangeKind(StrEnum):
    """The kind of a change of a consumer group."""

    JOINED = "joined"
    """It has a new member, which fences the one before."""
    LEFT = "left"
    """It has no member any more: that one left, or was put out."""
    COMMITTED = "committed"
    """Positions: at once, or with the end of a transaction."""
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The change that one operation of an entry made to a consumer group."""

    group: str
    kind: GroupChangeKind
    generation: int | None = None
    """JOINED, LEFT: the group's from here on. COMMITTED: the member's that committed, if one did."""
    member: str | None = None
    """JOINED: its name."""
    positions: int = 0
    """COMMITTED: how many, foreign ones included."""
    transactional_id: str | None = None
    """COMMITTED: the id whose transaction they are in. If None, they were committed at once."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of a log, for people."""

    entry: int
    timestamp_ms: int
    """Log time, ms since the epoch."""
    engine: str
    """The program that wrote the entry."""
    write_id: str
    intents: tuple[str, ...]
    operations: tuple[str, ...]
    """Names of its operations, in order."""
    topics: tuple[TopicChange, ...]
    """The records that the entry appended, by topic name."""
    transactions: tuple[TransactionEnd, ...]
    """Transactions that it ended, in order."""
    given_up: tuple[GivenUp, ...]
    """The partitions in which it took all records from prepared transactions, in order."""
    groups: tuple[GroupChange, ...]
    """The changes that the entry made to consumer groups, in order."""
    size: int
    """Bytes of the entry as stored."""
    sha256: str
    """SHA-256 of those bytes."""

    @property
    def rows(self) -> int:
        """Return the records that it appended."""
        return sum(change.rows for change in self.topics)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def read_history(
    state: LogState, run: RunSteps, *, limit: int | None, start: int | None
) -> Iterator[HistoryEntry]:
    """Yield the entries of a log, newest first: at most ``limit`` (at least 1; None: all), from ``start``
    (inclusive; None: the log's last) on.

    ``state`` says where the history ends, and what topics are called. Raises InvalidInputError about
    ``limit`` and ``start``; CorruptDataError of kind ``missing-entry`` (an entry is not there and may not be)
    or ``broken-chain`` (it is not the one that the next one follows); NotFoundError of kind ``history-gone``
    (it is deleted, and no bundle has it), after the entries that come before.

    Requests: 1 GET per entry, many at once; further back 1 GET per hundred where there are bundles.

    An opening does not name a transaction without offsets that it aborts (staged records, positions of
    groups, acknowledgements). The state tells of each id's last one; of others what the id did before does,
    for which up to LOOK_BACK entries more are read.
    """
    _check(state, limit, start)
    return _history(state, run, limit, start)


def _check(state: LogState, limit: int | None, start: int | None) -> None:
    problems = []
    if limit is not None and (type(limit) is not int or limit < 1):
        problems.append(f"limit is {repr_of(limit)}, not a number of entries from 1 on")
    if start is not None and (type(start) is not int or not 0 <= start <= state.entry):
        problems.append(f"start is {repr_of(start)}, not an entry from 0 to {state.entry}")
    if problems:
        raise InvalidInputError(problems, kind="invalid-history-range")


def _history(state: LogState, run: RunSteps, limit: int | None, start: int | None) -> Iterator[HistoryEntry]:
    names = {topic.topic_id: topic.name for topic in state.topics.values()}
    newest = state.entry if start is None else start
    end = -1 if limit is None else max(-1, newest - limit)
    # The entry after ``start`` says what hash it must have.
    first = newest if newest == state.entry else newest + 1
    backwards = _Backwards(run, first, state.entry_sha256 if first == state.entry else None)
    held: deque[_Told] = deque()
    try:
        for read in backwards.entries(end):
            if read.entry.entry <= newest:
                held.append(_Told(read))
                held[-1].ask(state)
            yield from _described(held, read.entry, names)
    except (CorruptDataError, NotFoundError):
        yield from (describe_entry(told, names) for told in held)
        raise
    if held:
        oldest = held[-1].read.entry.entry
        # Damage beyond the entries that the caller asked for does not concern them.
        with suppress(CorruptDataError, NotFoundError):
            for read in backwards.entries(max(-1, oldest - LOOK_BACK)):
                yield from _described(held, read.entry, names)
                if not held:
                    break
    yield from (describe_entry(told, names) for told in held)


class _Read(NamedTuple):
    entry: CommitEntry
    sha256: str
    size: int
    """Bytes, with the payload."""


def _read(number: int, head: bytes) -> _Read:
    entry = decode_entry(head, number)
    return _Read(entry, sha256_hex(head), entry_bytes(head, entry.payload))


@dataclass(slots=True)
class _Told:
    """An entry that was read, and what is known of transactions that it aborts without naming them."""

    read: _Read
    aborted: set[tuple[int, int]] = field(default_factory=set)
    """(producer id, epoch) of the transactions that its openings aborted."""
    asked: set[tuple[int, int]] = field(default_factory=set)
    """The transactions of which older entries will tell whether they were open."""

    def ask(self, state: LogState) -> None:
        """Find out of each opening whether it aborted a transaction without offsets, as far as the state
        tells.
        """
        for op in self.read.entry.operations:
            if not isinstance(op, InitProducer):
                continue
            if op.aborted:
                self.aborted.add((op.producer_id, op.epoch - 1))
                continue
            known = state.transactional_ids.get(op.transactional_id)
            if known is not None and known.producer_id != op.producer_id:
                known = None  # the id was forgotten meanwhile, and came back
            last = None if known is None else known.last_end
            if known is not None and last is None:
                continue  # nothing of the id was ever ended
            if last is not None and last.entry <= self.read.entry.entry:
                if last.epoch == op.epoch - 1:
                    self.aborted.add((op.producer_id, op.epoch - 1))
            elif op.epoch > 0:
                self.asked.add((op.producer_id, op.epoch - 1))

    def listen(self, entry: CommitEntry) -> None:
        """Take from an entry that is not newer whether what was asked about was open."""
        for op in reversed(entry.operations):
            if not isinstance(op, Stage | CommitOffsets | Ack | EndTxn | InitProducer):
                continue
            for one in [one for one in self.asked if one[0] == op.producer_id and one[1] >= op.epoch]:
                self.asked.remove(one)
                if one[1] == op.epoch and isinstance(op, Stage | CommitOffsets | Ack):
                    self.aborted.add(one)


def _described(held: deque[_Told], entry: CommitEntry, names: Mapping[str, str]) -> Iterator[HistoryEntry]:
    """Let an entry tell of newer ones, and yield those of which all is known by now, newest first."""
    for told in held:
        if told.asked:
            told.listen(entry)
    while held and (not held[0].asked or held[0].read.entry.entry - entry.entry >= LOOK_BACK):
        yield describe_entry(held.popleft(), names)


class _Backwards:
    """Reads entries from ``number`` on backwards, each checked against the hash that the one after it has."""

    def __init__(self, run: RunSteps, number: int, expected: str | None) -> None:
        self._run = run
        self._number = self._newest = number
        self._expected = expected
        self._bundle: tuple[int, list[bytes] | None] = (-1, None)

    def entries(self, end: int) -> Iterator[_Read]:
        """Yield entries down to ``end`` (exclusive).

        Raises NotFoundError of kind ``history-gone`` where one is deleted, and in no bundle.
        """
        size = BATCH_MIN
        while self._number > end:
            number = self._number
            first = bundle_first(number)
            is_whole = number == first + BUNDLE_ENTRIES - 1 and first > end
            bundle = self._bundled(number) if is_whole and size == BATCH_MAX else None
            if bundle is not None:
                yield from self._take(bundle)
            else:
                lowest = max(end + 1, number - size + 1, bundle_first(number) if size == BATCH_MAX else 0)
                slots = range(number, lowest - 1, -1)
                found = self._run(read_slots(slots))
                for slot, data in zip(slots, found, strict=True):
                    read = self._of_slot(slot, data) if isinstance(data, bytes) else self._deleted(slot)
                    yield from self._take([read])
                size = min(2 * size, BATCH_MAX)

    def _take(self, reads: Iterable[_Read]) -> Iterator[_Read]:
        for read in reads:
            self._number, self._expected = read.entry.entry - 1, read.entry.previous
            yield read

    def _of_slot(self, number: int, data: bytes) -> _Read:
        """Return the entry in a slot; from its bundle, if the slot was deleted and a writer that slept has
        created it again.
        """
        try:
            return self._check(number, data)
        except CorruptDataError:
            if number >= self._run(read_boundary()):
                raise
            return self._deleted(number)

    def _check(self, number: int, data: bytes) -> _Read:
        read = _read(number, data)
        if self._expected is not None and read.sha256 != self._expected:
            raise CorruptDataError(
                "a commit entry differs from the one that the next entry names",
                kind="broken-chain",
                hint="restore it from a copy; verify lists everything that is wrong",
                object=keys.entry_key(number),
                expected=self._expected,
                got=read.sha256,
            )
        return read

    def _deleted(self, number: int) -> _Read:
        """Return a deleted entry out of its bundle.

        Raises NotFoundError of kind ``history-gone``: it is not to be had any more.
        """
        if number >= self._run(read_boundary()):
            raise missing_entry(number)
        read = next(self._bundled(number) or iter(()), None)
        if read is None:
            raise history_gone(number, number + 1, self._newest)
        return read

    def _bundled(self, number: int) -> Iterator[_Read] | None:
        """Return the entries from ``number`` down to the first of its bundle, checked; None without a good
        bundle.
        """
        first = bundle_first(number)
        if self._bundle[0] != first:
            self._bundle = (first, usable_bundle(self._run(get_object(bundle_key_of(first))), first))
        entries = self._bundle[1]
        if entries is None:
            return None
        reads: list[_Read] = []
        expected = self._expected
        for slot in range(number, first - 1, -1):
            data = entries[slot - first]
            if expected is not None and sha256_hex(data) != expected:
                return None
            try:
                reads.append(_read(slot, data))
            except CorruptDataError:
                return None
            expected = reads[-1].entry.previous
        return iter(reads)


def describe_entry(told: _Told, names: Mapping[str, str]) -> HistoryEntry:
    """Return what an entry did; ``names`` are the topics' names by id."""
    entry, sha256, size = told.read
    return HistoryEntry(
        entry.entry,
        entry.timestamp_ms,
        entry.engine,
        entry.write_id,
        entry.intents,
        tuple(operation_name(operation) for operation in entry.operations),
        tuple(sorted(_changes(entry, names), key=lambda change: (change.topic, change.topic_id))),
        tuple(_ends(entry, told.aborted)),
        tuple(_given_up(entry, names)),
        tuple(_group_changes(entry)),
        size,
        sha256,
    )


def _changes(entry: CommitEntry, names: Mapping[str, str]) -> Iterator[TopicChange]:
    appends: dict[str, list[Append | Stage]] = {}
    for operation in entry.operations:
        if isinstance(operation, Append | Stage):
            appends.setdefault(operation.topic_id, []).append(operation)
    for topic_id, found in appends.items():
        parts = [part for append in found for part in append.partitions]
        yield TopicChange(
            names.get(topic_id, topic_id),
            topic_id,
            len({part.partition for part in parts}),
            sum(part.records for part in parts),
            sum(part.size for part in parts),
            len({file.key for append in found for file in append.files}),
            sum(part.batch_count for part in parts),
        )


def _ends(entry: CommitEntry, aborted: set[tuple[int, int]]) -> Iterator[TransactionEnd]:
    for op in entry.operations:
        match op:
            case EndTxn():
                yield TransactionEnd(op.transactional_id, op.producer_id, op.epoch, op.outcome, op.cause)
            case InitProducer() if (op.producer_id, op.epoch - 1) in aborted:
                yield TransactionEnd(
                    op.transactional_id, op.producer_id, op.epoch - 1, Outcome.ABORT, Cause.INIT
                )
            case _:
                pass


def _given_up(entry: CommitEntry, names: Mapping[str, str]) -> Iterator[GivenUp]:
    for op in entry.operations:
        if isinstance(op, GiveUp):
            for marker in op.markers:
                topic = names.get(marker.topic_id, marker.topic_id)
                yield GivenUp(
                    op.transactional_id, op.producer_id, op.epoch, topic, marker.partition, marker.offset
                )


def _group_changes(entry: CommitEntry) -> Iterator[GroupChange]:
    for op in entry.operations:
        match op:
            case JoinGroup():
                kind = GroupChangeKind.LEFT if op.member is None else GroupChangeKind.JOINED
                yield GroupChange(op.group, kind, op.generation, op.member)
            case CommitOffsets():
                yield GroupChange(
                    op.group,
                    GroupChangeKind.COMMITTED,
                    op.generation,
                    positions=sum(1 for _ in op.commits()),
                    transactional_id=op.transactional_id,
                )
            case DeleteGroup():
                yield GroupChange(op.group, GroupChangeKind.DELETED)
            case _:
                pass
