"""Spilling: what an open transaction keeps from being sealed moves from the state into an object.

The choice, and the steps. Without IO.

A prepared or hanging transaction holds the last stable offset of its partitions for as long as it is
undecided. Batches behind it cannot be sealed, for a seal says what became of each batch. A spill says nothing
of that: it is the rows themselves, moved.

Spills of a partition are merged as segment lists are: each is more than twice as large as all newer ones
together, up to the batches of one seal. So a row is written O(log n) times, and the state has O(log n) spills
of a partition, and one more for each 100,000 batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txnformat import keys
from txnformat.core.entry import sha256_hex
from txnformat.core.operations import Spill, SpilledPartition
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.lists import RATIO
from txnformat.core.sealing.spills import Spilled, named_files, spilled_from
from txnformat.core.snapshot.spilled import encode_spill
from txnformat.core.state import LogState
from txnformat.errors import InvalidInputError
from txnformat.protocol.effects import DrawId, Steps
from txnformat.protocol.sealing import (
    BATCHES_MAX,
    PARTITIONS_MAX,
    may_spill,
    rows_in_state,
    rows_min,
    with_spills,
    within,
)
from txnformat.protocol.snapshots import create_object
from txnformat.protocol.unembedding import as_objects
from txnformat.types import ObjectRecord, OffsetRange, TopicPartition

__all__ = ["log_ends", "spillable", "write_spill"]

SHARES = (1, 16, 256, 4_096)
"""A spill that would be too large is made with this share of the batches."""


def log_ends(state: LogState, topic_id: str | None = None) -> dict[TopicPartition, int]:
    """Return the log end of each partition, of one topic or of all."""
    found = {key: partition.log_end for key, partition in state.partitions.items()}
    return found if topic_id is None else {key: end for key, end in found.items() if key.topic_id == topic_id}


def spillable(
    state: LogState,
    bound: int,
    ends: Mapping[TopicPartition, int] | None = None,
    batches_max: int | None = None,
) -> dict[TopicPartition, OffsetRange]:
    """Return what one spill of ``state`` takes: of each partition, the offsets, with those of the spills that
    it takes in.

    ``bound``: of extents in the state. Nothing at or above ``ends`` is taken (:func:`log_ends` of an earlier
    state), so that a caller comes to an end however much is appended meanwhile. Those with most rows first.
    ``batches_max``: so many, by default BATCHES_MAX.
    """
    if not may_spill(state):
        return {}
    least = rows_min(bound)
    found = [
        (rows_in_state(one), key)
        for key, one in state.partitions.items()
        if one.open and one.spilled_end >= one.last_stable_offset and rows_in_state(one) >= least
    ]
    found.sort(key=lambda one: (-one[0], one[1]))
    chosen: dict[TopicPartition, OffsetRange] = {}
    left = BATCHES_MAX if batches_max is None else batches_max
    for _, key in found:
        partition = state.partitions[key]
        end = partition.log_end if ends is None else min(partition.log_end, ends.get(key, 0))
        if len(chosen) == PARTITIONS_MAX or end <= partition.spilled_end or left <= 0:
            continue
        wanted, batches = within(partition, OffsetRange(partition.spilled_end, end), left)
        if batches > left and chosen:
            continue
        start, batches = _merged(partition, wanted, batches, left)
        chosen[key] = OffsetRange(start, wanted.end)
        left -= batches
    return chosen


def _merged(
    partition: PartitionState, wanted: OffsetRange, batches: int, batches_max: int
) -> tuple[int, int]:
    """Return where a spill begins that takes in the spills that are not more than twice as large, and how
    many batches it has.
    """
    total = (
        len(partition.extents.until("base_offset", wanted.end))
        + len(partition.markers.until("offset", wanted.end))
        + len(partition.aborted.until("last_offset", wanted.end))
    )
    found = (wanted.start, batches)
    for one in reversed(partition.spills):
        rows = one.extents + one.markers + one.aborted
        batches += one.batches
        # A spill that begins below the last stable offset waits for its seal.
        if one.start_offset < partition.last_stable_offset or batches > batches_max:
            break
        if rows <= RATIO * total:
            found = (one.start_offset, batches)
        total += rows
    return found


def write_spill(
    state: LogState, bound: int, ends: Mapping[TopicPartition, int] | None = None
) -> Steps[Spill | None]:
    """Write the object of what one spill takes (:func:`spillable`); the caller commits it.

    None: there is nothing to spill.

    Requests: a GET for each object that is taken in, and 1 PUT, read back; for each embedded file also a GET,
    and 1 PUT, read back.
    """
    for share in SHARES:
        found = yield from _taken(state, bound, ends, max(1, BATCHES_MAX // share))
        if found is None:
            return None
        try:
            data = encode_spill(found.spilled)
        except InvalidInputError:  # appends of very many files
            if share == SHARES[-1]:
                raise
        else:
            return (yield from _written(state, found, data))
    return None


class _Found(NamedTuple):
    """The offsets that a spill takes, and its rows."""

    wanted: dict[TopicPartition, OffsetRange]
    spilled: Spilled


def _taken(
    state: LogState, bound: int, ends: Mapping[TopicPartition, int] | None, batches_max: int
) -> Steps[_Found | None]:
    wanted = spillable(state, bound, ends, batches_max)
    if not wanted:
        return None
    whole = yield from with_spills(state, {key: one.start for key, one in wanted.items()})
    spilled = spilled_from(whole, {key: (one.start, one.end) for key, one in wanted.items()})
    topics = {
        number: key.topic_id
        for key, rows in spilled.partitions.items()
        for number in named_files(rows.extents)
    }
    files = yield from as_objects(state, topics, spilled.files)
    return _Found(wanted, Spilled(spilled.partitions, files, spilled.tables))


def _written(state: LogState, found: _Found, data: bytes) -> Steps[Spill]:
    """Create the object, and return the operation that names it."""
    uuid = yield DrawId()
    key = keys.table_key(max(0, state.entry), uuid)
    yield from create_object(key, data)
    parts = []
    for place, rows in found.spilled.partitions.items():
        start, end = found.wanted[place]
        parts.append(
            SpilledPartition(
                *place,
                start,
                end,
                len(rows.extents),
                int(rows.extents["batch_count"].sum()),
                len(rows.markers),
                len(rows.aborted),
                int(rows.extents["records"].sum()),
                int(rows.extents["size"].sum()),
                tuple(
                    state.tables[one.table].key
                    for one in state.partition(place).spills
                    if one.start_offset >= start
                ),
            )
        )
    return Spill(ObjectRecord(key, len(data), sha256_hex(data)), tuple(parts))
