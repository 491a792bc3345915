"""Cuts: which entry a snapshot read shows, by its number or by a time. Steps without IO.

A cut is one entry. A record is in it iff the entry that committed it is the cut's or an older one
(docs/internals/spec.md, section 6). Since a transaction is committed by one entry, over all its topics and
partitions, every cut shows it whole or not at all, and an open transaction hides nothing but itself.
"""

from __future__ import annotations

from txnformat.arguments import is_text
from txnformat.core.state import LogState, TopicState
from txnformat.digits import whole
from txnformat.errors import InvalidInputError, NotFoundError, repr_of
from txnformat.moments import Moment, as_moment_ms
from txnformat.protocol.effects import ReadClock, Steps
from txnformat.protocol.old_entries import HISTORY_GONE, OldEntries, history_gone
from txnformat.types import IsolationLevel

__all__ = [
    "check_isolation",
    "check_version_options",
    "cut_at",
    "entry_time_ms",
    "last_entry_at",
    "topic_as_of",
]


def check_isolation(value: str | IsolationLevel) -> IsolationLevel:
    """Return the isolation level that ``value`` names."""
    if is_text(value) and value in tuple(IsolationLevel):
        return IsolationLevel(value)
    raise InvalidInputError(
        f"{repr_of(value)} is not an isolation level",
        kind="unknown-isolation-level",
        hint=f"use one of {', '.join(IsolationLevel)}",
    )


def check_version_options(
    isolation: str | IsolationLevel | None,
    version_as_of: int | None,
    timestamp_as_of: Moment | None,
    names: tuple[str, str] = ("version_as_of", "timestamp_as_of"),
) -> IsolationLevel:
    """Return the isolation level that a read has; a version or a time by itself makes it a snapshot read.

    ``names`` is what the caller calls these two. Raises InvalidInputError: ``unknown-isolation-level``, or
    ``invalid-version`` (a version and a time, one of them with another isolation level, or something that is
    not the number of an entry).
    """
    is_versioned = version_as_of is not None or timestamp_as_of is not None
    default = IsolationLevel.SNAPSHOT if is_versioned else IsolationLevel.READ_COMMITTED
    level = default if isolation is None else check_isolation(isolation)
    problems = []
    if version_as_of is not None and timestamp_as_of is not None:
        problems.append(f"give {names[0]} or {names[1]}, not both")
    if is_versioned and level is not IsolationLevel.SNAPSHOT:
        problems.append(f"{names[0]} and {names[1]} are for isolation snapshot, not for {level}")
    if version_as_of is not None and type(version_as_of) is not int:
        problems.append(f"{names[0]} is {repr_of(version_as_of, 100)}, not the number of an entry")
    if problems:
        text: object = version_as_of
        number = whole(text.strip()) if isinstance(text, str) else None
        hint = None if number is None else f"pass a number in place of text: {names[0]}={number}"
        raise InvalidInputError(problems, kind="invalid-version", hint=hint)
    return level


def cut_at(
    state: LogState, version_as_of: int | None = None, timestamp_as_of: Moment | None = None
) -> Steps[int]:
    """Return the entry of a cut: the newest, the one that is named, or the last one at or before a time
    (:func:`~txnformat.moments.as_moment_ms`).

    A time is by log time, which strictly increases from entry to entry. Raises NotFoundError:
    ``unknown-version`` (no such entry yet, or any more), ``timestamp-before-log``, ``history-gone`` (no
    bundle has the deleted entries of that time), ``timestamp-in-future`` (after the store's now: what will
    have happened by then is not known yet); and InvalidInputError of kind ``invalid-timestamp``.

    Requests: none, but by a time before the newest entry at most log2(entries) + 1 GETs (twice as many where
    entries are deleted), and 1 LIST.
    """
    if timestamp_as_of is not None:
        moment_ms = as_moment_ms(timestamp_as_of, "timestamp_as_of")
        yield from _check_passed(state, moment_ms)
        return (yield from _last_at(state, moment_ms))
    entry = state.entry if version_as_of is None else version_as_of
    if version_as_of is not None and not 0 <= entry <= state.entry:
        raise _unknown_version(state, entry)
    return entry


def last_entry_at(state: LogState, timestamp_ms: int) -> Steps[int]:
    """Return the last known entry at or before a time; -1: there is none, or it is no longer known: nothing
    may be taken to be as old.

    The time was read before, and a store's time is an estimate that each answer improves. So it may lie ahead
    of what is read now: the newest known entry is at or before it all the same.

    Requests: those of :func:`cut_at`.
    """
    try:
        return (yield from _last_at(state, timestamp_ms))
    except NotFoundError as error:
        if error.kind not in ("timestamp-before-log", HISTORY_GONE):
            raise
        return -1


def _check_passed(state: LogState, timestamp_ms: int) -> Steps[None]:
    """Raise NotFoundError for a time that has not come: entries that are still to come may be at or before
    it.
    """
    if timestamp_ms < state.timestamp_ms:
        return
    times = yield ReadClock()
    now_ms = max(times.store_ms, state.timestamp_ms)
    if timestamp_ms > now_ms:
        raise NotFoundError(
            "the time is in the future",
            kind="timestamp-in-future",
            hint="use a time up to the store's now, or leave it out for the newest entry",
            timestamp_ms=timestamp_ms,
            now_ms=now_ms,
        )


def _last_at(state: LogState, timestamp_ms: int) -> Steps[int]:
    if timestamp_ms >= state.timestamp_ms and state.entry >= 0:
        return state.entry
    entries = OldEntries(state.entry)
    floor = low = 0  # truncations leave bundles of what they delete; where one is gone, the floor rises
    high = max(state.entry, 0)
    # Every entry from ``floor`` to below ``low`` is at or before the time, ``high`` and all after it are not.
    while low < high:
        middle = (low + high) // 2
        try:
            time_ms = yield from _time_ms(state, entries, middle)
        except NotFoundError as error:
            earliest = error.values["earliest"]
            if error.kind != HISTORY_GONE or not isinstance(earliest, int):
                raise
            floor = low = earliest
            if low > high:
                break
            continue
        if time_ms > timestamp_ms:
            high = middle
        else:
            low = middle + 1
    if low == floor and floor > 0:
        raise history_gone(floor - 1, floor, state.entry, timestamp_ms=timestamp_ms)
    if low == floor:
        raise NotFoundError(
            "the time is before the oldest entry of the log",
            kind="timestamp-before-log",
            hint="use a later time; txnlog history shows the time of each entry",
            timestamp_ms=timestamp_ms,
        )
    return low - 1


def entry_time_ms(state: LogState, number: int) -> Steps[int]:
    """Return the log time of an entry.

    Raises NotFoundError of kind ``history-gone``. Requests: none for the newest, else those of
    :class:`OldEntries`.
    """
    return (yield from _time_ms(state, OldEntries(state.entry), number))


def _time_ms(state: LogState, entries: OldEntries, number: int) -> Steps[int]:
    if number == state.entry:
        return state.timestamp_ms
    return (yield from entries.read(number)).timestamp_ms


def topic_as_of(state: LogState, name: str, entry: int) -> TopicState:
    """Return a topic as it is now.

    Raises NotFoundError (``unknown-topic``) if it was not there at an entry.
    """
    topic = state.topic(name)
    if topic.created_entry > entry:
        raise NotFoundError(
            "the topic did not exist at this version",
            kind="unknown-topic",
            hint=f"it was created at entry {topic.created_entry}: read that version or a later one",
            topic=name,
            version=entry,
        )
    return topic


def _unknown_version(state: LogState, entry: int) -> NotFoundError:
    there_is = f"there are versions 0 to {state.entry}" if state.entry >= 0 else "the log has no versions yet"
    return NotFoundError("no such version of the log", kind="unknown-version", hint=there_is, version=entry)
