"""Offsets, last stable offset and abort index derived once more, from the operations alone. Pure.

The fold walks entry by entry and keeps what is open. This looks at whole histories instead: every piece of a
partition and every transaction as an interval from its first record to its marker. Offsets must tile; the
last stable offset is where the first interval without an end begins; an aborted transaction's last stable
offset is the smallest beginning of those intervals that its marker lies in. Nothing is shared with the fold,
so that a defect of one is seen by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import zip_longest
from typing import NamedTuple

from txnformat.core.entry import CommitEntry
from txnformat.core.lifecycle.operations import DeleteTopic
from txnformat.core.operations import Append, EndTxn, GiveUp, InitProducer, Marker
from txnformat.core.records.state import PartitionState, Transaction
from txnformat.core.state import LogState
from txnformat.types import Outcome, TopicPartition

__all__ = ["OffsetDerivation", "Violation"]


class Violation(NamedTuple):
    """Disagreements in one partition."""

    partition: TopicPartition
    is_offsets: bool
    """True: offsets have a gap or an overlap; False: visibility."""
    what: str
    expected: object
    got: object


class _Piece(NamedTuple):
    start: int
    end: int
    """Exclusive."""
    entry: int


class _End(NamedTuple):
    offset: int
    """Offset of the marker."""
    is_abort: bool
    entry: int


@dataclass(slots=True)
class _Track:
    """Facts about one partition."""

    start: int = 0
    """Where the pieces begin."""
    aborted_before: int = 0
    """Entries of the abort index that are older than the pieces."""
    pieces: list[_Piece] = field(default_factory=list)
    firsts: dict[Transaction, int] = field(default_factory=dict)
    ends: dict[Transaction, _End] = field(default_factory=dict)


class OffsetDerivation:
    """Collects the operations of entries that follow each other.

    ``state``: the state before the first of them: of an empty log, or a snapshot's.
    """

    def __init__(self, state: LogState) -> None:
        self._tracks = {
            key: _Track(
                partition.log_end,
                partition.aborted_transactions,
                firsts=dict(partition.open),
            )
            for key, partition in state.partitions.items()
        }

    def add(self, entry: CommitEntry) -> None:
        """Take in one entry."""
        for op in entry.operations:
            match op:
                case Append():
                    self._append(op, entry.entry)
                case EndTxn():
                    is_abort = op.outcome is Outcome.ABORT
                    self._placed(op, entry.entry)
                    self._markers(op.markers, (op.producer_id, op.epoch), is_abort, entry.entry)
                case GiveUp():
                    self._markers(op.markers, (op.producer_id, op.epoch), True, entry.entry)
                case DeleteTopic():
                    for key in [key for key in self._tracks if key.topic_id == op.topic_id]:
                        del self._tracks[key]
                case InitProducer():
                    self._markers(op.aborted, (op.producer_id, op.epoch - 1), True, entry.entry)
                case _:
                    pass  # not about offsets

    def _track(self, key: TopicPartition) -> _Track:
        return self._tracks.setdefault(key, _Track())

    def _append(self, op: Append, entry: int) -> None:
        for part in op.partitions:
            track = self._track(TopicPartition(op.topic_id, part.partition))
            track.pieces.append(_Piece(part.base_offset, part.base_offset + part.records, entry))
            if op.transactional_id is not None:
                first = track.firsts.get((op.producer_id, op.epoch), part.base_offset)
                track.firsts[op.producer_id, op.epoch] = min(first, part.base_offset)

    def _placed(self, op: EndTxn, entry: int) -> None:
        for part in op.placed:
            track = self._track(part.topic_partition)
            track.pieces.append(_Piece(part.base_offset, part.base_offset + part.records, entry))
            track.firsts[op.producer_id, op.epoch] = part.base_offset

    def _markers(
        self, markers: Iterable[Marker], transaction: Transaction, is_abort: bool, entry: int
    ) -> None:
        for marker in markers:
            track = self._track(marker.topic_partition)
            track.pieces.append(_Piece(marker.offset, marker.offset + 1, entry))
            track.ends[transaction] = _End(marker.offset, is_abort, entry)

    def compare(self, state: LogState) -> Iterator[Violation]:
        """Yield where ``state``, folded from the same entries, disagrees with what they say."""
        for key in sorted(self._tracks.keys() | state.partitions.keys()):
            track = self._track(key)
            yield from (Violation(key, *found) for found in _compare(track, state.partition(key)))


def _compare(track: _Track, partition: PartitionState) -> Iterator[tuple[bool, str, object, object]]:
    position = track.start
    for piece in sorted(track.pieces):
        if piece.start != position:
            what = f"a piece of entry {piece.entry} does not begin where the one before it ends"
            yield True, what, position, piece.start
        position = max(position, piece.end)
    if partition.log_end != position:
        yield True, "the log end is not where the last piece ends", position, partition.log_end
    undecided = {key: first for key, first in track.firsts.items() if key not in track.ends}
    if partition.open != undecided:
        yield False, "other transactions are open", undecided, partition.open
    stable = min(undecided.values(), default=position)
    if partition.last_stable_offset != max(stable, partition.log_start):
        yield False, "the last stable offset differs", stable, partition.last_stable_offset
    # The state has the entries whose marker is above the spilled end; those of the track begin with its
    # first.
    in_state = partition.aborted_transactions - len(partition.aborted)
    expected = _abort_index(track)[max(0, in_state - track.aborted_before) :]
    got = [tuple(row) for row in partition.aborted.since(max(0, track.aborted_before - in_state)).tolist()]
    for number, (ours, theirs) in enumerate(zip_longest(expected, got)):
        if ours != theirs:
            first = max(in_state, track.aborted_before)
            yield False, f"entry {first + number} of the abort index differs", ours, theirs
            return


def _abort_index(track: _Track) -> list[tuple[int, ...]]:
    """Return producer id, epoch, first offset, marker's offset, last stable offset, entry of each abort, by
    marker.
    """
    never = max((end.offset for end in track.ends.values()), default=0) + 1
    ends = {key: track.ends[key].offset if key in track.ends else never for key in track.firsts}
    waiting = sorted(((first, ends[key]) for key, first in track.firsts.items()), reverse=True)
    begun: list[tuple[int, int]] = []  # (first offset, marker's offset), the smallest first offset on top
    found: list[tuple[int, ...]] = []
    aborts = [(end.offset, key, end.entry) for key, end in track.ends.items() if end.is_abort]
    for offset, key, entry in sorted(aborts):
        while waiting and waiting[-1][0] < offset:
            heappush(begun, waiting.pop())
        while begun and begun[0][1] <= offset:
            heappop(begun)
        stable = begun[0][0] if begun else offset + 1
        found.append((*key, track.firsts.get(key, -1), offset, stable, entry))
    return found
