"""What is true of one partition, of its step from one state to the next, and of what it refers to. Pure.

Part of :mod:`txnformat.core.invariants`, which numbers the rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np

from txnformat.core.records.state import PartitionState, Transaction
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.types import NO_PRODUCER

__all__ = ["check_partition", "check_partition_step"]

_Problems = Iterator[str]


def check_partition_step(old: PartitionState, new: PartitionState, after: LogState) -> _Problems:
    """Yield the violations of a partition's step; costs what the step changed, or sealed."""
    kept = _Kept.of(old, new.sealed_end)
    grown, markers = new.extents.since(kept.extents), new.markers.since(kept.markers)
    yield from _check_offsets_step(old, new, kept)
    yield from _check_segments(new, after)
    yield from _check_transactions(old.open, grown, markers, new.aborted.since(kept.aborted), new)
    following = {producer: window[-1].last_sequence + 1 for producer, window in old.sequences.items()}
    yield from _check_sequences(following, grown, new)
    yield from _check_references(grown, after)


def check_partition(partition: PartitionState, state: LogState) -> _Problems:
    """Yield the violations in one partition, everything derived again from what the state has of it."""
    extents, markers = partition.extents.array(), partition.markers.array()
    yield from _check_bounds(partition)
    yield from _check_tiling(extents, markers, partition.sealed_end, partition.log_end)
    yield from _check_segments(partition, state)
    opened = _open_at_sealed_end(partition)
    yield from _check_transactions(
        opened, extents, markers, partition.aborted.array(), partition, known_from=partition.sealed_end
    )
    yield from _check_sequences(None, extents, partition)
    yield from _check_windows(partition, extents, state)
    yield from _check_references(extents, state)


class _Kept(NamedTuple):
    """How many rows of a partition stay when its sealed end moves."""

    extents: int
    markers: int
    aborted: int

    @classmethod
    def of(cls, old: PartitionState, sealed_end: int) -> _Kept:
        if sealed_end == old.sealed_end:
            return cls(len(old.extents), len(old.markers), len(old.aborted))
        return cls(
            int(np.count_nonzero(old.extents.array()["base_offset"] >= sealed_end)),
            int(np.count_nonzero(old.markers.array()["offset"] >= sealed_end)),
            int(np.count_nonzero(old.aborted.array()["last_offset"] >= sealed_end)),
        )


def _check_bounds(partition: PartitionState) -> _Problems:
    if not 0 <= partition.log_start <= partition.last_stable_offset <= partition.log_end:
        yield f"I3 {partition.log_start} <= {partition.last_stable_offset} <= {partition.log_end} does not hold"
    if partition.log_start > partition.sealed_end:
        yield f"I3 the log start {partition.log_start} is beyond the sealed end {partition.sealed_end}"
    horizons = [(one.end_offset, one.timestamp_ms) for one in partition.horizons]
    if not partition.cleaned_end <= partition.listed_end or any(
        later[0] <= one[0] or later[1] < one[1] for one, later in pairwise(horizons)
    ):
        yield f"I23 keys were compared up to {partition.cleaned_end}, with horizons {horizons}"
    if horizons and horizons[-1][0] > partition.cleaned_end:
        yield f"I23 a horizon {horizons[-1]} is beyond what was compared, {partition.cleaned_end}"
    if partition.trimmed_entry >= 0 and not partition.log_start:
        yield f"I3 nothing is trimmed, and it says that entry {partition.trimmed_entry} committed what went"


def _check_tiling(extents: Rows, markers: Rows, start: int, end: int) -> _Problems:
    """Extents and markers, sorted, must follow each other from ``start`` to ``end``, and stand in offset order."""
    starts = np.concatenate([extents["base_offset"], markers["offset"]])
    ends = np.concatenate([extents["base_offset"] + extents["records"], markers["offset"] + 1])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    expected = np.concatenate([[start], ends])
    got = np.concatenate([starts, [end]])
    wrong = np.flatnonzero(expected != got)
    if len(wrong):
        yield f"I5 there is a gap or an overlap: expected offset {expected[wrong[0]]}, got {got[wrong[0]]}"
    if np.any(extents["records"] < 1):
        yield "I5 an extent is empty"
    for name, offsets in (("extents", extents["base_offset"]), ("markers", markers["offset"])):
        if np.any(np.diff(offsets) <= 0):
            yield f"I5 {name} are not in the order of their offsets"


def _check_offsets_step(old: PartitionState, new: PartitionState, kept: _Kept) -> _Problems:
    yield from _check_bounds(new)
    if new.log_end < old.log_end or new.log_start < old.log_start or new.trimmed_entry < old.trimmed_entry:
        yield f"I3 it goes back from [{old.log_start}, {old.log_end}) to [{new.log_start}, {new.log_end})"
    if new.cleaned_end < old.cleaned_end or new.cleaned_entry < old.cleaned_entry:
        yield f"I23 key compaction goes back from {old.cleaned_end} to {new.cleaned_end}"
    if new.last_stable_offset < old.last_stable_offset:
        yield f"I4 the last stable offset goes back from {old.last_stable_offset} to {new.last_stable_offset}"
    if new.sealed_end < old.sealed_end or new.listed_end < old.listed_end:
        yield f"I15 the sealed end goes back from {old.sealed_end} to {new.sealed_end}"
    if len(new.extents) < kept.extents or len(new.markers) < kept.markers or len(new.aborted) < kept.aborted:
        yield "I5 extents, markers or abort index entries are gone"
        return
    grown, markers = new.extents.since(kept.extents), new.markers.since(kept.markers)
    yield from _check_tiling(grown, markers, old.log_end, new.log_end)


def _check_segments(partition: PartitionState, state: LogState) -> _Problems:
    rows = partition.segments.array()
    if not 0 <= partition.listed_end <= partition.sealed_end <= partition.last_stable_offset:
        yield f"I15 {partition.listed_end} <= {partition.sealed_end} <= {partition.last_stable_offset} does not hold"
    expected = np.concatenate([[partition.listed_end], rows["end_offset"]])
    got = np.concatenate([rows["start_offset"], [partition.sealed_end]])
    if np.any(expected != got) or np.any(rows["start_offset"] >= rows["end_offset"]):
        yield f"I15 its segments do not tile [{partition.listed_end}, {partition.sealed_end})"
    unknown = [number for number in rows["segment"].tolist() if number not in state.segments]
    if unknown:
        yield f"I15 segment {unknown[0]} is not in the state"


def _key(row: Any) -> Transaction:
    return int(row["producer_id"]), int(row["epoch"])


_BEFORE_SEALED_END = -1
"""First offset of a transaction that began below the sealed end: the state no longer says where."""


def _open_at_sealed_end(partition: PartitionState) -> dict[Transaction, int]:
    """Return the transactions that markers in the state end and that began below the sealed end."""
    if partition.sealed_end == 0:
        return {}
    extents = partition.extents.array()
    begun = {_key(row): int(row["base_offset"]) for row in extents[extents["transactional"] != 0][::-1]}
    indexed = {_key(row): int(row["first_offset"]) for row in partition.aborted.array()}
    found: dict[Transaction, int] = {}
    for row in partition.markers.array():
        key = _key(row)
        if key in indexed and indexed[key] < partition.sealed_end:
            found[key] = indexed[key]
        elif row["commit"] and begun.get(key, partition.log_end) > row["offset"]:
            found[key] = _BEFORE_SEALED_END
    return found


class _Replay:
    """Goes through data and markers in offset order, and keeps what must follow from them."""

    def __init__(self, opened: dict[Transaction, int]) -> None:
        self.open = dict(opened)
        self.ended: set[Transaction] = set()
        self.aborted: list[tuple[int, ...]] = []
        """Expected rows of the abort index, as in ``partition.ABORTED``."""
        self.problems: list[str] = []

    def run(self, extents: Rows, markers: Rows) -> None:
        data = extents[extents["transactional"] != 0]
        steps = [(int(row["base_offset"]), False, row) for row in data]
        steps += [(int(row["offset"]), True, row) for row in markers]
        for offset, is_marker, row in sorted(steps, key=lambda step: step[0]):
            if is_marker:
                self._marker(offset, row)
            elif _key(row) in self.ended:
                self.problems.append(f"I9 data of {_key(row)} at {offset} follows its marker")
            else:
                self.open.setdefault(_key(row), offset)

    def _marker(self, offset: int, row: Any) -> None:
        key = _key(row)
        first = self.open.pop(key, None)
        if first is None:
            what = "a second marker ends" if key in self.ended else "a marker without data ends"
            self.problems.append(f"I9 {what} {key} at {offset}")
        elif not row["commit"]:
            stable = min(self.open.values(), default=offset + 1)  # _BEFORE_SEALED_END: not known
            self.aborted.append((*key, first, offset, stable, int(row["entry"])))
        self.ended.add(key)


def _check_transactions(
    opened: dict[Transaction, int],
    extents: Rows,
    markers: Rows,
    index: Rows,
    partition: PartitionState,
    known_from: int = 0,
) -> _Problems:
    """I6, I8 and I9 inside one partition: what was open, and what ``extents`` and ``markers`` did since.

    A committed transaction may have begun below ``known_from``, and held back the last stable offset from there.
    """
    replay = _Replay(opened)
    replay.run(extents, markers)
    yield from replay.problems
    expected_open = sorted(replay.open.items(), key=lambda opened: opened[1])
    if list(partition.open.items()) != expected_open:
        yield f"I6 the open transactions are {partition.open}, expected {dict(expected_open)}"
    got = [tuple(int(value) for value in row) for row in index.tolist()]
    for number, (expected, found) in enumerate(zip_longest(replay.aborted, got)):
        if (
            expected is not None
            and found is not None
            and (expected[4] == _BEFORE_SEALED_END or found[4] < known_from)
        ):
            expected = (*expected[:4], found[4], expected[5])
        if expected != found:
            yield f"I8 abort index entry {number} of those looked at is {found}, expected {expected}"
            break


def _check_sequences(
    known: dict[Transaction, int] | None, extents: Rows, partition: PartitionState
) -> _Problems:
    """I10: ``known`` says the next sequence of each producer before ``extents``; None: take what sealed data left."""
    following = dict(known or {})
    is_cut = known is None and partition.sealed_end > 0
    ended = {_key(row) for row in extents if row["transactional"]} - set(partition.open)
    for row in extents[extents["producer_id"] != NO_PRODUCER]:
        key = _key(row)
        expected = following.get(key, int(row["base_sequence"]) if is_cut else 0)
        if row["base_sequence"] != expected:
            yield f"I10 {key} at offset {row['base_offset']}: sequence {row['base_sequence']}, expected {expected}"
        following[key] = int(row["base_sequence"] + row["records"])
    for key in sorted(following.keys() - ended):
        window = partition.sequences.get(key)
        if window is None:
            continue
        if window[-1].last_sequence + 1 != following[key] or any(
            later.first_sequence != earlier.last_sequence + 1 for earlier, later in pairwise(window)
        ):
            yield f"I10 {key}: its window does not end at sequence {following[key]} without gaps"


def _check_windows(partition: PartitionState, extents: Rows, state: LogState) -> _Problems:
    """I10: a window exists for exactly those who may append with a sequence above 0."""
    rows = extents[extents["producer_id"] != NO_PRODUCER]
    expected = {
        _key(row)
        for row in rows
        if (
            _key(row) in partition.open
            if row["transactional"]
            else int(row["producer_id"]) in state.producers
        )
    }
    unexpected = {key for key in partition.sequences if key not in partition.open} - expected
    if partition.sealed_end > 0:  # their data may be sealed
        unexpected = set()
    for key in sorted(expected - set(partition.sequences)):
        yield f"I10 {key}: it has no window"
    for key in sorted(unexpected):
        yield f"I10 {key}: it has a window without data, or after its end"


def _check_references(extents: Rows, state: LogState) -> _Problems:
    is_file = np.array([number in state.files for number in extents["file"].tolist()], bool)
    is_table = np.array([number in state.tables for number in extents["table"].tolist()], bool)
    in_file = is_file & (extents["table"] == -1)
    in_table = is_table & (extents["file"] == -1)
    in_table &= np.array([number in state.files for number in extents["first_file"].tolist()], bool)
    wrong = extents[~(in_file | in_table)]
    if len(wrong):
        row = wrong[0]
        yield f"I14 extent at {row['base_offset']}: file {row['file']}, table {row['table']}, not exactly one exists"
