"""What happened to a log, entry by entry, newest first: for people, audits and tools.

Entries are read backwards. Each one's hash is in the entry after it, and the newest one's in the state, so that what
is shown is the chain itself: an entry that was exchanged is an error, never a line of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeVar

from txnformat import keys
from txnformat.effects import GetObject, Steps
from txnformat.entry import CommitEntry, decode_entry, sha256_hex
from txnformat.errors import CorruptDataError, InvalidInputError
from txnformat.follow import read_boundary, simultaneous
from txnformat.operation_codec import operation_name
from txnformat.operations import Append, Cause, EndTxn, InitProducer
from txnformat.state import LogState
from txnformat.types import Outcome

__all__ = ["EndedTransaction", "HistoryEntry", "TopicChange", "read_history"]

BATCH_MIN = 16
"""Entries read at once to begin with: who wants the newest few should not wait for more."""
BATCH_MAX = 128
"""Entries read at once further back."""

T = TypeVar("T")


class Run(Protocol):
    """Runs steps that only read, and returns what they return."""

    def __call__(self, steps: Steps[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What one entry appended to one topic."""

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
class EndedTransaction:
    """A transaction that an entry ended."""

    transactional_id: str
    producer_id: int
    epoch: int
    outcome: Outcome
    cause: Cause


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One entry of a log, for people."""

    entry: int
    timestamp_ms: int
    """Log time, ms since the epoch."""
    engine: str
    """Who wrote it."""
    write_id: str
    intents: tuple[str, ...]
    operations: tuple[str, ...]
    """Names of its operations, in order."""
    topics: tuple[TopicChange, ...]
    """What it appended, by topic name."""
    transactions: tuple[EndedTransaction, ...]
    """Transactions that it ended, in order."""
    size: int
    """Bytes of the entry as stored."""
    sha256: str
    """Of those bytes."""

    @property
    def rows(self) -> int:
        """Return the records that it appended."""
        return sum(change.rows for change in self.topics)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


def read_history(
    state: LogState, run: Run, *, limit: int | None, start: int | None
) -> Iterator[HistoryEntry]:
    """Yield the entries of a log, newest first.

    Parameters
    ----------
    state : LogState
        Where the history ends, and what topics are called.
    run : callable
        Runs steps that only read.
    limit : int or None
        Most entries (at least 1); None for all.
    start : int or None
        The newest entry to show (inclusive); None for the log's last.

    Raises
    ------
    InvalidInputError
        ``limit`` or ``start`` is not one that can be.
    CorruptDataError
        Kind ``missing-entry``: an entry is not there and may not be; ``broken-chain``: it is not the one that the
        next one follows.

    Notes
    -----
    Requests: 1 GET per entry, many at once. Ends where the entries below are deleted.
    """
    _check(state, limit, start)
    return _history(state, run, limit, start)


def _check(state: LogState, limit: int | None, start: int | None) -> None:
    problems = []
    if limit is not None and (type(limit) is not int or limit < 1):
        problems.append(f"limit is {limit!r}, not a number of entries from 1 on")
    if start is not None and (type(start) is not int or not 0 <= start <= state.entry):
        problems.append(f"start is {start!r}, not an entry from 0 to {state.entry}")
    if problems:
        raise InvalidInputError(problems, kind="invalid-history-range")


def _history(state: LogState, run: Run, limit: int | None, start: int | None) -> Iterator[HistoryEntry]:
    names = {topic.topic_id: topic.name for topic in state.topics.values()}
    newest = state.entry if start is None else start
    end = -1 if limit is None else max(-1, newest - limit)
    expected: str | None = state.entry_sha256 if newest == state.entry else None
    # The entry after ``start`` says what hash it must have.
    number = newest if expected is not None else newest + 1
    size = BATCH_MIN
    while number > end:
        numbers = range(number, max(end, number - size), -1)
        for data in run(_entries(numbers)):
            if not isinstance(data, bytes):
                if number < run(read_boundary()):
                    return
                raise CorruptDataError(
                    "a commit entry is missing: later ones are there",
                    kind="missing-entry",
                    hint="restore it from a copy; verify lists everything that is wrong",
                    object=keys.entry_key(number),
                )
            entry = decode_entry(data, number)
            digest = sha256_hex(data)
            if expected is not None and digest != expected:
                raise CorruptDataError(
                    "a commit entry is not the one that the next one follows",
                    kind="broken-chain",
                    hint="restore it from a copy; verify lists everything that is wrong",
                    object=keys.entry_key(number),
                    expected=expected,
                    got=digest,
                )
            if number <= newest:
                yield describe_entry(entry, digest, len(data), names)
            expected = entry.previous
            number -= 1
        size = min(2 * size, BATCH_MAX)


def _entries(numbers: range) -> Steps[list[object]]:
    return (yield from simultaneous(*(GetObject(keys.entry_key(number)) for number in numbers)))


def describe_entry(entry: CommitEntry, sha256: str, size: int, names: Mapping[str, str]) -> HistoryEntry:
    """Return what an entry did; ``names`` are the topics' names by id."""
    return HistoryEntry(
        entry.entry,
        entry.timestamp_ms,
        entry.engine,
        entry.write_id,
        entry.intents,
        tuple(operation_name(operation) for operation in entry.operations),
        tuple(sorted(_changes(entry, names), key=lambda change: (change.topic, change.topic_id))),
        tuple(_ends(entry)),
        size,
        sha256,
    )


def _changes(entry: CommitEntry, names: Mapping[str, str]) -> Iterator[TopicChange]:
    appends: dict[str, list[Append]] = {}
    for operation in entry.operations:
        if isinstance(operation, Append):
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


def _ends(entry: CommitEntry) -> Iterator[EndedTransaction]:
    for op in entry.operations:
        match op:
            case EndTxn():
                yield EndedTransaction(op.transactional_id, op.producer_id, op.epoch, op.outcome, op.cause)
            case InitProducer() if op.aborted:
                yield EndedTransaction(
                    op.transactional_id, op.producer_id, op.epoch - 1, Outcome.ABORT, Cause.INIT
                )
            case _:
                pass
