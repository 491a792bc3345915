"""Removing the oldest records of a topic: what a trim says of them is counted here, then committed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from txnformat.admin.topics import check_named, names_in
from txnformat.client.committer import Committer
from txnformat.core.intents import FreePartitions, TrimTopic
from txnformat.core.lifecycle.features import check_removal
from txnformat.core.lifecycle.forcing import check_uncut
from txnformat.core.lifecycle.operations import Trim, TrimmedPartition
from txnformat.core.lifecycle.touching import check_named_prepared, holders, is_prepared
from txnformat.core.operations import EndTxn, GiveUp
from txnformat.core.records.state import PartitionState
from txnformat.core.sealing.segment_list import SegmentPart
from txnformat.core.state import LogState, TopicState
from txnformat.errors import ConflictError, InvalidInputError, OffsetOutOfRangeError, repr_of
from txnformat.persistent import replace as replace_in
from txnformat.protocol.sealing import sealable_end
from txnformat.reading.sealed import SidecarCache
from txnformat.segments.segment_object import together
from txnformat.types import OffsetRange, TopicPartition

__all__ = ["LATEST", "DeletedRecords", "count_trim", "delete_records", "trim_to"]

LATEST = -1
"""In place of an offset: the last stable offset (Kafka's high watermark, RecordsToDelete of -1); by force the
log end."""
ATTEMPTS = 10
"""How often a trim is counted anew because another client has moved a log start."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """The effect of a deletion on a partition."""

    topic: str
    partition: int
    previous_earliest: int
    """The first offset that could be read before."""
    earliest: int
    """The first offset that can be read now."""
    aborted: tuple[str, ...] = ()
    """Transactional ids whose open transactions began below, and were aborted by force."""
    given_up: tuple[str, ...] = ()
    """Transactional ids of prepared transactions that have lost what they had in the partition."""


def delete_records(
    committer: Committer,
    sidecars: SidecarCache,
    topic: str,
    offsets: int | Mapping[int, int],
    *,
    dry_run: bool = False,
    force: bool | Sequence[str] = False,
) -> list[DeletedRecords]:
    """Move the log start of partitions of a topic to an offset; see
    :meth:`txnformat.log.TxnLog.delete_records`.
    """
    prepared = names_in(force)
    state = committer.refresh()
    found = state.topic(topic)
    check_named(state, prepared)
    wanted = _checked(state, found, offsets, force=force is not False)
    check_removal(state)
    held: Ended = {}
    if force is not False:
        check_uncut(state, {_key(found, number): offset for number, offset in wanted.items()})
        held = _held(state, found, wanted, prepared)
        if held and not dry_run:
            held = _free(committer, found, wanted, prepared)
    if dry_run:
        before = {number: state.partition(_key(found, number)).log_start for number in wanted}
        done = [
            DeletedRecords(topic, number, start, max(start, wanted[number]))
            for number, start in before.items()
        ]
    else:
        done = trim_to(committer, sidecars, found, wanted)
    return [
        replace(
            one,
            aborted=held.get(one.partition, {}).get("aborted", ()),
            given_up=held.get(one.partition, {}).get("given_up", ()),
        )
        for one in done
    ]


Ended = dict[int, dict[str, tuple[str, ...]]]
"""Transactions that were ended in each partition, as the fields of DeletedRecords have them."""


def _held(state: LogState, topic: TopicState, wanted: Mapping[int, int], prepared: Sequence[str]) -> Ended:
    """Return the transactions that are to be ended.

    Raises InvalidTransactionStateError about a prepared one that the user has not named.
    """
    found = holders(state, {_key(topic, number): offset for number, offset in wanted.items()})
    check_named_prepared(state, found, prepared)
    ended: Ended = {}
    for name, held in found.items():
        field = "given_up" if is_prepared(state, name) else "aborted"
        for key in held:
            _note(ended, key.partition, field, name)
    return ended


def _free(
    committer: Committer, topic: TopicState, wanted: Mapping[int, int], prepared: tuple[str, ...]
) -> Ended:
    """End what undecided transactions have below the offsets, in one entry, and return them."""
    action = FreePartitions(topic.topic_id, tuple(wanted.items()), prepared)
    try:
        result = committer.commit(committer.intend(action))
    except ConflictError as error:
        if error.kind != "nothing-held":
            raise
        logger.debug("they have ended by themselves: %s", error)
        return {}
    ended: Ended = {}
    for op in result.operations:
        if isinstance(op, EndTxn | GiveUp):
            field = "given_up" if isinstance(op, GiveUp) else "aborted"
            for marker in op.markers:
                if marker.topic_id == topic.topic_id:
                    _note(ended, marker.partition, field, op.transactional_id)
    return ended


def _note(ended: Ended, partition: int, field: str, name: str) -> None:
    known = ended.setdefault(partition, {})
    known[field] = (*known.get(field, ()), name)


def trim_to(
    committer: Committer,
    sidecars: SidecarCache,
    topic: TopicState,
    wanted: Mapping[int, int],
    *,
    unpinned: Mapping[int, int] | None = None,
) -> list[DeletedRecords]:
    """Move the log start of partitions to offsets up to the last stable ones, which are sealed first; return
    the log starts before and now.

    ``unpinned``: by partition the offset below which readers hold nothing back; None: they hold nothing
    anywhere. Raises ConflictError: ``records-pinned``, and as :meth:`txnformat.log.TxnLog.delete_records`;
    NotFoundError of kind ``topic-gone``.
    """
    state = committer.state
    state.topic_of(topic.topic_id, "a removal of records")
    before = {number: state.partition(_key(topic, number)).log_start for number in wanted}
    for attempt in range(1, ATTEMPTS + 1):
        state = _sealed(committer, state, topic, wanted)
        action = count_trim(sidecars, state, topic, wanted)
        if action is None:
            break
        if unpinned is not None:
            named = (part.partition for part in action.trim.partitions)
            action = replace(action, unpinned=tuple(unpinned[number] for number in named))
        try:
            committer.commit(committer.intend(action))
        except ConflictError as error:
            if error.kind != "trim-superseded" or attempt == ATTEMPTS:
                raise
            logger.debug("counted again: %s", error)
        state = committer.refresh()
    state.topic_of(topic.topic_id, "a removal of records")
    return [
        DeletedRecords(topic.name, number, start, state.partition(_key(topic, number)).log_start)
        for number, start in before.items()
    ]


def _sealed(committer: Committer, state: LogState, topic: TopicState, wanted: Mapping[int, int]) -> LogState:
    """Return a state in which everything is sealed that goes; another client may seal at the same time."""

    def behind(state: LogState) -> dict[int, int]:
        state.topic_of(topic.topic_id, "a removal of records")
        ends = {number: state.partition(_key(topic, number)).sealed_end for number in wanted}
        return {number: end for number, end in ends.items() if end < wanted[number]}

    left = behind(state)
    while left:
        committer.seal(topic_id=topic.topic_id)
        state = committer.refresh()
        if left == (left := behind(state)):
            raise ConflictError(
                "records that are to be removed could not be sealed",
                kind="not-sealed",
                hint="call again; `txnlog maintain seal` and the log output of this process say more",
                topic=topic.name,
                partitions=sorted(left)[:20],
            )
    return state


def _checked(
    state: LogState, topic: TopicState, offsets: int | Mapping[int, int], *, force: bool
) -> dict[int, int]:
    """Return the new log start of each partition; raise about what is none.

    ``force``: no open transaction is in the way.
    """
    if type(offsets) is int:
        offsets = dict.fromkeys(range(topic.partitions), offsets)
    if not isinstance(offsets, Mapping) or not offsets:
        raise InvalidInputError(
            f"{repr_of(offsets)} names no offsets",
            kind="invalid-offsets",
            hint="pass an offset for every partition, or a dict of partition to offset, such as {0: 1000}",
            topic=topic.name,
        )
    wanted = {}
    for number, offset in offsets.items():
        topic.check_partition(number)
        if type(offset) is not int:
            raise InvalidInputError(
                f"{repr_of(offset)} is not an offset",
                kind="invalid-offsets",
                hint="pass a whole number; -1 is the latest offset that can be deleted up to",
                topic=topic.name,
                partition=number,
            )
        partition = state.partition(_key(topic, number))
        stable = sealable_end(replace_in(partition, open={}) if force else partition)
        if not LATEST <= offset <= stable:
            bound = "log end" if force else "last stable offset"
            if not force and stable < partition.last_stable_offset:
                bound = (
                    "start of what was spilled, or appended, together with records that cannot be sealed yet"
                )
            raise OffsetOutOfRangeError(
                f"records can be deleted up to latest, the {bound}",
                hint="use an offset up to that"
                if force
                else (
                    "use an offset up to that; an open transaction may hold it back: `txnlog offsets` "
                    "shows it, and force (--force) aborts it"
                ),
                topic=topic.name,
                partition=number,
                got=offset,
                earliest=partition.log_start,
                latest=stable,
            )
        wanted[number] = stable if offset == LATEST else offset
    return dict(sorted(wanted.items()))


def _key(topic: TopicState, number: int) -> TopicPartition:
    return TopicPartition(topic.topic_id, number)


def count_trim(
    sidecars: SidecarCache, state: LogState, topic: TopicState, wanted: Mapping[int, int]
) -> TrimTopic | None:
    """Return the intent that moves the log starts that are still below; None: there are none.

    Requests: 1 GET for each sealed segment that the removed offsets are in, several at a time, and those of
    the segment lists.
    """
    parts, seen, revisions = [], [], []
    for number, offset in sorted(wanted.items()):
        partition = state.partition(_key(topic, number))
        if offset > partition.log_start:
            parts.append(_trimmed(sidecars, state, _key(topic, number), partition, offset))
            seen.append(partition.log_start)
            revisions.append(partition.revision)
    if not parts:
        return None
    return TrimTopic(Trim(topic.topic_id, tuple(parts)), tuple(seen), revisions=tuple(revisions))


def _trimmed(
    sidecars: SidecarCache, state: LogState, key: TopicPartition, partition: PartitionState, end: int
) -> TrimmedPartition:
    gone = OffsetRange(partition.log_start, end)
    segments = sidecars.segments(state, key, gone)
    whole = [part.row for part in segments if part.range.end <= end]
    sums = [
        sum(int(row[name]) for row in whole)
        for name in ("records", "size", "aborted_records", "aborted_size")
    ]
    entries = together(
        lambda part: _commit_entry(sidecars, part, key, end), segments, threads=sidecars.store.reads_in_flight
    )
    return TrimmedPartition(key.partition, end, max(entries, default=-1), *sums)


def _commit_entry(sidecars: SidecarCache, part: SegmentPart, key: TopicPartition, end: int) -> int:
    """Return the largest entry that committed a record of a segment below an offset (exclusive); -1: none
    did.
    """
    if part.row["records"] <= part.row["aborted_records"]:
        return -1
    # Of a run that the log start cuts, the largest of all its records: too late an entry loses nothing.
    below = OffsetRange(part.range.start, min(part.range.end, end))
    return sidecars.index(part.record.index).newest_commit(key.partition, below)
