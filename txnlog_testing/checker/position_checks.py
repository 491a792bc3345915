"""Checks on positions: of groups, which move with the outputs, and last stable offsets, which must not stand
still.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from txnlog_testing.checker.anomalies import Anomaly, AnomalyClass
from txnlog_testing.checker.evidence import NEVER, Evidence, Operation
from txnlog_testing.checker.holding import OpenTransactions, WholeReads
from txnlog_testing.checker.vocabulary import (
    CommitOffsets,
    EventType,
    Function,
    Key,
    ReadOffsets,
    StableOffset,
)

__all__ = ["check_positions", "check_stable_offsets"]

Place = tuple[str, Key]
"""Group and partition."""


@dataclass(slots=True)
class _Commits:
    """All commits of one group's position in one partition."""

    by_offset: dict[int, list[Operation]] = field(default_factory=dict)
    known_at: list[int] = field(default_factory=list)
    """Ascending: where it became certain that a commit is in force, and ..."""
    known: list[Operation] = field(default_factory=list)
    """... the one that began last among those known by then."""
    moved_to: dict[Operation, int] = field(default_factory=dict)


def check_positions(evidence: Evidence, wholes: WholeReads) -> Iterator[Anomaly]:
    """Yield offset-atomicity."""
    commits = _commits(evidence)
    for one in evidence.operations:
        for micro in one.value:
            if not isinstance(micro, ReadOffsets) or one.outcome is EventType.FAIL:
                continue
            for key, offset in micro.offsets.items():
                found = commits.get((micro.group, key))
                if found is None:
                    continue
                yield from _is_stale(micro.group, key, offset, one, found)
                if offset is not None:
                    yield from _has_outputs(evidence, micro.group, key, offset, one, found, wholes)


def _commits(evidence: Evidence) -> dict[Place, _Commits]:
    commits: dict[Place, _Commits] = {}
    certain: list[tuple[int, Place, Operation]] = []
    for one in evidence.operations:
        for micro in one.value:
            if not isinstance(micro, CommitOffsets):
                continue
            when = one.completed if one.outcome is EventType.OK else NEVER
            for _, found in evidence.values_of(one):
                if found.writer is one and found.first_read is not None:
                    when = min(when, found.first_read.told)
            for key, offset in micro.offsets.items():
                place = (micro.group, key)
                here = commits.setdefault(place, _Commits())
                here.by_offset.setdefault(offset, []).append(one)
                here.moved_to[one] = offset
                if when < NEVER:
                    certain.append((when, place, one))
    for when, place, one in sorted(certain, key=lambda entry: entry[0]):
        here = commits[place]
        if not here.known or one.began > here.known[-1].began:
            here.known_at.append(when)
            here.known.append(one)
    return commits


def _is_stale(
    group: str, key: Key, offset: int | None, reader: Operation, found: _Commits
) -> Iterator[Anomaly]:
    """Judge a position that is older than what was in force when the look at it began."""
    place = bisect_left(found.known_at, reader.invoked) - 1
    if place < 0:
        return
    newest = found.known[place]
    may = [] if offset is None else found.by_offset.get(offset, [])
    # Operations that ended before the newest one began were overwritten by it.
    if any(
        one is newest or (one.completed > newest.began and one.outcome is not EventType.FAIL) for one in may
    ):
        return
    what = (
        f"{reader} found position {offset} of group {group!r} in {key}, though {newest} had moved it to "
        f"{found.moved_to[newest]}"
    )
    yield Anomaly(AnomalyClass.OFFSET_ATOMICITY, what, (key,), (), (newest.invoked, reader.invoked))


def _has_outputs(
    evidence: Evidence,
    group: str,
    key: Key,
    offset: int,
    reader: Operation,
    found: _Commits,
    wholes: WholeReads,
) -> Iterator[Anomaly]:
    """Judge a position of which only one transaction can be the source."""
    committers = found.by_offset.get(offset, [])
    may = [one for one in committers if one.outcome is not EventType.FAIL]
    if committers and not may:
        what = f"{reader} found position {offset} of group {group!r} in {key}, but {committers[0]} failed"
        places = (committers[0].invoked, reader.invoked)
        yield Anomaly(AnomalyClass.OFFSET_ATOMICITY, what, (key,), (), places)
    if len(may) != 1 or may[0].f is not Function.TXN:
        return
    for send, written in evidence.values_of(may[0]):
        if written.is_read or written.writer is not may[0]:
            continue
        for polled in wholes.polls:
            if polled.operation.invoked > reader.told and wholes.must_show(polled, send.key, written):
                what = (
                    f"{reader} found position {offset} of group {group!r} in {key}, which {may[0]} moved, "
                    "but its "
                    f"output {send.value!r} of {send.key} is not there"
                )
                three = (may[0].invoked, reader.invoked, polled.operation.invoked)
                yield Anomaly(AnomalyClass.OFFSET_ATOMICITY, what, (key, send.key), (send.value,), three)
                return


# --- last stable offsets ------------------------------------------------------------------------------------


def check_stable_offsets(evidence: Evidence, stall_ms: int) -> Iterator[Anomaly]:
    """Yield lso-stall."""
    looks = [
        (one, micro) for one in evidence.operations for micro in one.value if isinstance(micro, StableOffset)
    ]
    if not looks:
        return
    opened = OpenTransactions(evidence)
    highest: dict[Key, list[tuple[int, int]]] = {}
    for one, look in sorted(looks, key=lambda pair: pair[0].told):
        highest.setdefault(look.key, []).append((one.told, look.last_stable_offset))
    peaks = {key: _peaks(found) for key, found in highest.items()}
    for one, look in looks:
        told, peak = peaks[look.key]
        place = bisect_left(told, one.invoked) - 1
        if place >= 0 and peak[place] > look.last_stable_offset:
            what = (
                f"the last stable offset of {look.key} went back from {peak[place]} to "
                f"{look.last_stable_offset}"
            )
            yield Anomaly(AnomalyClass.LSO_STALL, what, (look.key,), (), (one.invoked,))
        if look.last_stable_offset >= look.log_end_offset:
            continue
        if not opened.may_hold(look.key, one, stall_ms * 1_000_000):
            what = (
                f"the last stable offset of {look.key} was {look.last_stable_offset}, below the log's end "
                f"{look.log_end_offset}, though no transaction was open"
            )
            yield Anomaly(AnomalyClass.LSO_STALL, what, (look.key,), (), (one.invoked,))


def _peaks(looks: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    told: list[int] = []
    peak: list[int] = []
    for at, offset in looks:
        told.append(at)
        peak.append(max(offset, peak[-1] if peak else -1))
    return told, peak
