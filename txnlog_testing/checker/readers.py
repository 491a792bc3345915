"""Runs of readers: what one reader read of one partition, from a place that it was set to, without being set
again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from txnformat.types import IsolationLevel
from txnlog_testing.checker.anomalies import Anomaly, AnomalyClass
from txnlog_testing.checker.evidence import NEVER, Evidence, Line, Operation, Written
from txnlog_testing.checker.vocabulary import EventType, Function, Key, Order, Poll, Value

__all__ = ["Coverage", "Run", "check_polls", "runs_of"]

Found = tuple[Anomaly, bool]
"""An anomaly, and whether its process was subscribed."""


@dataclass(slots=True)
class Run:
    """The polls of one reader in one partition, in order; a whole read is a run by itself."""

    key: Key
    isolation: IsolationLevel
    order: Order
    subscribed: bool
    steps: list[tuple[Operation, Poll]] = field(default_factory=list)

    @property
    def records(self) -> Iterator[tuple[int, Value]]:
        """Yield what it read."""
        for _, poll in self.steps:
            yield from poll.records.get(self.key, ())

    @property
    def is_committed_only(self) -> bool:
        """Return whether it asked for committed records."""
        return self.isolation is not IsolationLevel.READ_UNCOMMITTED

    def bounds(self) -> tuple[int, int]:
        """Return the offsets [first, end) that it has been through; empty where it read nothing."""
        first, end = NEVER, -1
        for _, poll in self.steps:
            start_end = _bounds(poll, self.key)
            if start_end is not None:
                first, end = min(first, start_end[0]), max(end, start_end[1])
        return first, end


def _bounds(poll: Poll, key: Key) -> tuple[int, int] | None:
    """Return the offsets [start, end) that a poll has been through; None: it says nothing."""
    records = poll.records.get(key, ())
    start, end = poll.ranges.get(key, (NEVER, -1))
    for offset, _ in records:
        start, end = min(start, offset), max(end, offset + 1)
    if poll.whole:
        start, end = 0, max(end, 0)
    return (start, end) if end >= start else None


def runs_of(evidence: Evidence) -> list[Run]:
    """Return all runs of all readers."""
    found: list[Run] = []
    current: dict[str, dict[tuple[Key, IsolationLevel, Order], Run]] = {}
    subscribed: set[str] = set()
    for one in evidence.operations:
        own = current.setdefault(one.process, {})
        _set_anew(one, own, subscribed)
        for poll in one.polls:
            for key in dict.fromkeys([*poll.records, *poll.ranges]):
                which = (key, poll.isolation, poll.order)
                if poll.whole or key in one.rebalanced:
                    own.pop(which, None) if not poll.whole else None
                    run = Run(*which, subscribed=one.process in subscribed)
                    found.append(run)
                elif which in own:
                    run = own[which]
                else:
                    run = own[which] = Run(*which, subscribed=one.process in subscribed)
                    found.append(run)
                run.steps.append((one, poll))
        if one.told == NEVER and one.outcome is EventType.INFO:
            own.clear()  # the process died: its successor under the same name begins anew
    return found


def _set_anew(
    one: Operation, own: dict[tuple[Key, IsolationLevel, Order], Run], subscribed: set[str]
) -> None:
    match one.f:
        case Function.ASSIGN | Function.SUBSCRIBE | Function.CRASH:
            own.clear()
            subscribed.discard(one.process)
            if one.f is Function.SUBSCRIBE:
                subscribed.add(one.process)
        case Function.SEEK:
            for which in list(own):
                if not one.keys or which[0] in one.keys:
                    del own[which]
        case _:
            pass


class Coverage:
    """The coverage of readers in one partition: they would have seen the records that were lost there."""

    def __init__(self, evidence: Evidence, runs: list[Run]) -> None:
        # A snapshot passes over what is open, which may be committed later.
        passed = [
            run for run in runs if run.order is Order.OFFSET and run.isolation is not IsolationLevel.SNAPSHOT
        ]
        offsets = sorted(run.bounds() for run in passed)
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Starts of offsets; the end is the largest of those up to it."""
        for start, end in offsets:
            self._starts.append(start)
            self._ends.append(max(end, self._ends[-1] if self._ends else -1))
        times = sorted(_times(evidence, run) for run in runs)
        self._after: list[int] = []
        self._before: list[int] = []
        for after, before in times:
            self._after.append(after)
            self._before.append(max(before, self._before[-1] if self._before else -1))

    def has_offset(self, offset: int) -> bool:
        """Return whether a reader has been through an offset."""
        place = bisect_left(self._starts, offset + 1)
        return place > 0 and self._ends[place - 1] > offset

    def has_time(self, began: int, completed: int) -> bool:
        """Return whether a reader saw something from before an operation, and something from after it."""
        place = bisect_left(self._after, began)
        return place > 0 and self._before[place - 1] > completed


def _times(evidence: Evidence, run: Run) -> tuple[int, int]:
    """Return where the first of what a run saw ended, and where the last of it began."""
    first, end = run.bounds() if run.order is Order.OFFSET else (NEVER, -1)
    after, before = (-1 if first == 0 and end >= 0 else NEVER), -1  # who began at 0 saw what is before all
    for _, value in run.records:
        writer = evidence.written(run.key, value).writer
        if writer is not None:
            after, before = min(after, writer.completed), max(before, writer.began)
    return after, before


# --- the order of polls -------------------------------------------------------------------------------------


def check_polls(evidence: Evidence, runs: list[Run]) -> Iterator[Found]:
    """Yield poll-skip, nonmonotonic-poll, int-poll-skip, int-nonmonotonic-poll and partial-poll."""
    for run in runs:
        if run.steps[0][1].whole:
            continue  # resurrected, torn, unseen and lost-write are its classes
        check = _by_offset if run.order is Order.OFFSET else _by_commit
        for anomaly in check(evidence, run):
            yield anomaly, run.subscribed
    yield from _split_by_commit(evidence)


def _anomaly(
    cls: AnomalyClass, what: str, run: Run, values: list[Value], operations: tuple[Operation, ...]
) -> Anomaly:
    places = tuple(dict.fromkeys(one.invoked for one in operations))
    return Anomaly(cls, what, (run.key,), tuple(values), places)


def _by_offset(evidence: Evidence, run: Run) -> Iterator[Anomaly]:
    lines = evidence.committed_line if run.is_committed_only else evidence.all_line
    line = lines.get(run.key, Line(()))
    position: int | None = None
    before: Operation | None = None
    seen: set[Operation] = set()
    missed: list[tuple[Operation, Written]] = []
    for one, poll in run.steps:
        offsets = [offset for offset, _ in poll.records.get(run.key, ())]
        for _, value in poll.records.get(run.key, ()):
            writer = evidence.written(run.key, value).writer
            if writer is not None:
                seen.add(writer)
        start, end = poll.ranges.get(run.key, (offsets[0], offsets[-1] + 1) if offsets else (0, 0))
        if not offsets and run.key not in poll.ranges:
            continue
        if position is not None and before is not None:
            inside = before is one
            yield from _went_back(evidence, run, (position, start), (before, one), inside=inside)
            gap = _unread(evidence, run.key, line.between(position, start))
            yield from _skipped(run, gap, (before, one), inside=inside)
            missed += [(one, found) for found in gap]
        steps = [start - 1, *offsets, end]
        for left, right in pairwise(steps):
            yield from _went_back(evidence, run, (left + 1, right), (one, one), inside=True)
            gap = _unread(evidence, run.key, line.between(left + 1, right))
            yield from _skipped(run, gap, (one, one), inside=True)
            missed += [(one, found) for found in gap]
        position, before = max(end, max(offsets, default=-1) + 1), one
    if run.is_committed_only:
        yield from _parts(run, missed, seen)


def _unread(evidence: Evidence, key: Key, offsets: list[int]) -> list[Written]:
    return [found for offset in offsets for found in evidence.values_at(key, offset)]


def _went_back(
    evidence: Evidence,
    run: Run,
    offsets: tuple[int, int],
    operations: tuple[Operation, Operation],
    *,
    inside: bool,
) -> Iterator[Anomaly]:
    expected, got = offsets
    if got < expected:
        cls = AnomalyClass.INT_NONMONOTONIC_POLL if inside else AnomalyClass.NONMONOTONIC_POLL
        values = [found.value for found in evidence.values_at(run.key, got)]
        what = f"{operations[1]} read {run.key} at {got}, though its position was {expected}"
        yield _anomaly(cls, what, run, values, operations)


def _skipped(
    run: Run, gap: list[Written], operations: tuple[Operation, Operation], *, inside: bool
) -> Iterator[Anomaly]:
    # Records that no reader has read are lost; this is about records that others have read.
    gap = [found for found in gap if found.is_read]
    if gap:
        cls = AnomalyClass.INT_POLL_SKIP if inside else AnomalyClass.POLL_SKIP
        values = [found.value for found in gap]
        what = f"{operations[1]} passed over {len(gap)} records of {run.key}, such as {values[0]!r}"
        yield _anomaly(cls, what, run, values, operations)


def _parts(run: Run, missed: list[tuple[Operation, Written]], seen: set[Operation]) -> Iterator[Anomaly]:
    told: set[Operation] = set()
    for one, found in missed:
        writer = found.writer
        if writer is None or writer.f is not Function.TXN or writer not in seen or writer in told:
            continue
        told.add(writer)
        what = (
            f"{one} passed over {found.value!r} of {run.key}, though its reader saw other records of {writer}"
        )
        yield _anomaly(AnomalyClass.PARTIAL_POLL, what, run, [found.value], (writer, one))


# --- in the order of commits --------------------------------------------------------------------------------


def _by_commit(evidence: Evidence, run: Run) -> Iterator[Anomaly]:
    """Judge by time: what was acknowledged before something else was sent is before it."""
    seen: dict[int, Operation] = {}
    writers: set[Operation] = set()
    latest: Operation | None = None
    """The last to begin of the writers seen so far."""
    latest_in: Operation | None = None
    first_end, last_begin, last_reader = NEVER, -1, None
    for one, poll in run.steps:
        for offset, value in poll.records.get(run.key, ()):
            writer = evidence.written(run.key, value).writer
            again = seen.get(offset)
            behind = (
                latest is not None
                and latest_in is not None
                and writer is not None
                and writer.completed < latest.began
            )
            if again is not None or behind:
                other = again or latest_in
                assert other is not None
                inside = other is one
                cls = AnomalyClass.INT_NONMONOTONIC_POLL if inside else AnomalyClass.NONMONOTONIC_POLL
                why = (
                    "again"
                    if again is not None
                    else f"behind {latest}, which began after it was acknowledged"
                )
                yield _anomaly(cls, f"{one} read {value!r} of {run.key} {why}", run, [value], (other, one))
            seen[offset] = one
            if writer is not None:
                writers.add(writer)
                if latest is None or writer.began > latest.began:
                    latest, latest_in = writer, one
                first_end = min(first_end, writer.completed)
                last_begin, last_reader = max(last_begin, writer.began), one
    yield from _missed_by_commit(evidence, run, writers, (first_end, last_begin), last_reader)


def _missed_by_commit(
    evidence: Evidence,
    run: Run,
    seen: set[Operation],
    times: tuple[int, int],
    last_reader: Operation | None,
) -> Iterator[Anomaly]:
    first_end, last_begin = times
    if last_reader is None:
        return
    for writer in evidence.acknowledged_between(run.key, first_end, last_begin):
        if writer in seen:
            continue
        values = [
            send.value for send, found in evidence.values_of(writer) if send.key == run.key and found.is_read
        ]
        if values and writer.began > first_end:
            what = (
                f"{last_reader} passed over {values[0]!r} of {run.key}, which was acknowledged before "
                "what it read was sent"
            )
            yield _anomaly(AnomalyClass.POLL_SKIP, what, run, values, (writer, last_reader))


def _split_by_commit(evidence: Evidence) -> Iterator[Found]:
    for polled in evidence.polls:
        if polled.poll.order is not Order.COMMIT or not polled.is_committed_only or polled.poll.whole:
            continue
        seen: dict[Operation, set[tuple[str, Value]]] = {}
        for key, records in polled.poll.records.items():
            for _, value in records:
                found = evidence.written(key, value)
                if found.writer is not None and found.writer.f is Function.TXN:
                    seen.setdefault(found.writer, set()).add((found.scope, value))
        for writer, values in seen.items():
            missing = [
                found
                for send, found in evidence.values_of(writer)
                if send.key in polled.poll.records and (found.scope, found.value) not in values
            ]
            if missing:
                what = (
                    f"{polled.operation} read {len(values)} records of {writer}, but not {missing[0].value!r}"
                )
                keys = tuple(dict.fromkeys(found.key or found.scope for found in missing))
                places = (writer.invoked, polled.operation.invoked)
                left_out = tuple(found.value for found in missing)
                yield Anomaly(AnomalyClass.PARTIAL_POLL, what, keys, left_out, places), False
