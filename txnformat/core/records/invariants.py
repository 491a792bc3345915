"""Invariants of one partition, of its step from one state to the next, and of the objects it refers to. Pure.

Part of :mod:`txnformat.core.invariants`, which numbers the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np

from txnformat.core.producers.state import SequenceWindow
from txnformat.core.records.state import PartitionState, Transaction
from txnformat.core.state import LogState
from txnformat.persistent import Rows
from txnformat.types import NO_PRODUCER

__all__ = ["check_partition", "check_partition_step"]

_Problems = Iterator[str]


def check_partition_step(old: PartitionState, new: PartitionState, after: LogState) -> _Problems:
    """Yield the violations of a partition's step; costs what the step changed, or sealed."""
    kept = _Kept.of(old, new.spilled_end)
    grown, markers = new.extents.since(kept.extents), new.markers.since(kept.markers)
    yield from _check_offsets_step(old, new, kept)
    yield from _check_segments(new, after)
    yield from _check_spills(new, after)
    yield from _check_spills_step(old, new)
    yield from _check_transactions(old.open, grown, markers, new.aborted.since(kept.aborted), new)
    yield from _check_sequences(old.sequences, grown, new)
    yield from _check_references(grown, after)


def check_partition(partition: PartitionState, state: LogState) -> _Problems:
    """Yield the violations in one partition, everything derived again from what the state has of it."""
    extents, markers = partition.extents.array(), partition.markers.array()
    yield from _check_bounds(partition)
    yield from _check_spills(partition, state)
    yield from _check_tiling(extents, markers, partition.spilled_end, partition.log_end)
    yield from _check_segments(partition, state)
    opened = _open_at_start(partition)
    yield from _check_transactions(
        opened, extents, markers, partition.aborted.array(), partition, known_from=partition.spilled_end
    )
    yield from _check_sequences(None, extents, partition)
    yield from _check_windows(partition, extents, state)
    yield from _check_references(extents, state)


class _Kept(NamedTuple):
    """How many rows of a partition stay when its sealed or spilled end moves."""

    extents: int
    markers: int
    aborted: int

    @classmethod
    def of(cls, old: PartitionState, start: int) -> _Kept:
        if start == old.spilled_end:
            return cls(len(old.extents), len(old.markers), len(old.aborted))
        return cls(
            int(np.count_nonzero(old.extents.array()["base_offset"] >= start)),
            int(np.count_nonzero(old.markers.array()["offset"] >= start)),
            int(np.count_nonzero(old.aborted.array()["last_offset"] >= start)),
        )


def _check_bounds(partition: PartitionState) -> _Problems:
    if not 0 <= partition.log_start <= partition.last_stable_offset <= partition.log_end:
        yield (
            f"I3 {partition.log_start} <= {partition.last_stable_offset} <= {partition.log_end} does not hold"
        )
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
    """Extents and markers, sorted, must follow each other from ``start`` to ``end``, and stand in offset
    order.
    """
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
    if new.erased_entry < old.erased_entry:
        yield f"I24 the newest erased commit goes back from {old.erased_entry} to {new.erased_entry}"
    if new.last_stable_offset < old.last_stable_offset:
        yield f"I4 the last stable offset goes back from {old.last_stable_offset} to {new.last_stable_offset}"
    if new.sealed_end < old.sealed_end or new.listed_end < old.listed_end:
        yield f"I15 the sealed end goes back from {old.sealed_end} to {new.sealed_end}"
    if len(new.extents) < kept.extents or len(new.markers) < kept.markers or len(new.aborted) < kept.aborted:
        yield "I5 extents, markers or abort index entries are gone"
        return
    grown, markers = new.extents.since(kept.extents), new.markers.since(kept.markers)
    yield from _check_tiling(grown, markers, old.log_end, new.log_end)


def _check_spills(partition: PartitionState, state: LogState) -> _Problems:
    position = partition.sealed_end
    for one in partition.spills:
        if one.start_offset != position or one.records + one.markers != one.end_offset - one.start_offset:
            yield f"I25 a spill has [{one.start_offset}, {one.end_offset}), expected from {position}"
        if not 0 <= one.extents <= one.batches <= one.records or one.aborted > one.markers:
            yield f"I25 the totals of the spill at {one.start_offset} cannot be"
        if one.table not in state.tables:
            yield f"I25 table {one.table} of the spill at {one.start_offset} is not in the state"
        position = one.end_offset


def _check_spills_step(old: PartitionState, new: PartitionState) -> _Problems:
    """Spilled offsets stay so until they are sealed, and only what the last stable offset has not passed is
    spilled anew.
    """
    if new.spilled_end < old.spilled_end:
        yield f"I25 the spilled end goes back from {old.spilled_end} to {new.spilled_end}"
    known = set(old.spills)
    for one in new.spills:
        if one not in known and one.start_offset < old.last_stable_offset:
            yield (
                f"I25 a spill begins at {one.start_offset}, below the last stable offset "
                f"{old.last_stable_offset}"
            )
    if new.sealed_end > old.sealed_end and any(
        one.start_offset < new.sealed_end < one.end_offset for one in old.spills
    ):
        yield f"I25 the sealed end {new.sealed_end} is inside of a spill"


def _check_segments(partition: PartitionState, state: LogState) -> _Problems:
    rows = partition.segments.array()
    if not 0 <= partition.listed_end <= partition.sealed_end <= partition.last_stable_offset:
        yield (
            f"I15 {partition.listed_end} <= {partition.sealed_end} <= {partition.last_stable_offset} "
            "does not hold"
        )
    expected = np.concatenate([[partition.listed_end], rows["end_offset"]])
    got = np.concatenate([rows["start_offset"], [partition.sealed_end]])
    if np.any(expected != got) or np.any(rows["start_offset"] >= rows["end_offset"]):
        yield f"I15 its segments do not tile [{partition.listed_end}, {partition.sealed_end})"
    unknown = [number for number in rows["segment"].tolist() if number not in state.segments]
    if unknown:
        yield f"I15 segment {unknown[0]} is not in the state"


def _key(row: Any) -> Transaction:
    return int(row["producer_id"]), int(row["epoch"])


_BEFORE_START = -1
"""First offset of a transaction that began below the extents in the state, which no longer says where."""


def _open_at_start(partition: PartitionState) -> dict[Transaction, int]:
    """Return the transactions that began below the extents in the state: those that are open, and those that
    markers in the state end.
    """
    start = partition.spilled_end
    if start == 0:
        return {}
    extents = partition.extents.array()
    begun = {_key(row): int(row["base_offset"]) for row in extents[extents["transactional"] != 0][::-1]}
    indexed = {_key(row): int(row["first_offset"]) for row in partition.aborted.array()}
    found = {key: first for key, first in partition.open.items() if first < start}
    for row in partition.markers.array():
        key = _key(row)
        if key in indexed and indexed[key] < start:
            found[key] = indexed[key]
        elif row["commit"] and begun.get(key, partition.log_end) > row["offset"]:
            found[key] = _BEFORE_START
    return found


class _Replay:
    """Goes through data and markers in offset order, and keeps what must follow from them."""

    def __init__(self, opened: Mapping[Transaction, int]) -> None:
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
            stable = min(self.open.values(), default=offset + 1)  # _BEFORE_START: not known
            self.aborted.append((*key, first, offset, stable, int(row["entry"])))
        self.ended.add(key)


def _check_transactions(
    opened: Mapping[Transaction, int],
    extents: Rows,
    markers: Rows,
    index: Rows,
    partition: PartitionState,
    known_from: int = 0,
) -> _Problems:
    """I6, I8 and I9 inside one partition: what was open, and what ``extents`` and ``markers`` did since.

    A committed transaction may have begun below ``known_from``, and held back the last stable offset from
    there.
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
            and (expected[4] == _BEFORE_START or found[4] < known_from)
        ):
            expected = (*expected[:4], found[4], expected[5])
        if expected != found:
            yield f"I8 abort index entry {number} of those looked at is {found}, expected {expected}"
            break


def _check_sequences(
    known: Mapping[Transaction, SequenceWindow] | None, extents: Rows, partition: PartitionState
) -> _Problems:
    """I10: ``known`` has the window of each producer before ``extents``; None: take what sealed data left."""
    following: dict[Transaction, int] = {}
    is_cut = known is None and partition.spilled_end > 0
    ended = {_key(row) for row in extents if row["transactional"]} - set(partition.open)
    for row in extents[extents["producer_id"] != NO_PRODUCER]:
        key = _key(row)
        window = known.get(key) if known else None
        begin = window[-1].last_sequence + 1 if window else int(row["base_sequence"]) if is_cut else 0
        expected = following.get(key, begin)
        if row["base_sequence"] != expected:
            yield (
                f"I10 {key} at offset {row['base_offset']}: sequence {row['base_sequence']}, expected "
                f"{expected}"
            )
        following[key] = int(row["base_sequence"] + row["records"])
    for key in sorted(following.keys() - ended):
        window = partition.sequences.get(key)
        if not window:
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
    if partition.spilled_end > 0:  # their data may be sealed, or spilled
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
        yield (
            f"I14 extent at {row['base_offset']}: file {row['file']}, table {row['table']}, not exactly "
            "one exists"
        )
